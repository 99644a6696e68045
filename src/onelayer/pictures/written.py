"""How a reader writes a domain: the names of its coordinates as in the formula, and its intervals."""

from __future__ import annotations

import re

from onelayer.box import Box, inward
from onelayer.recording.target import Target

MOST_SIDES = 6  # intervals that are written out


def written_names(box: Box, target: Target | None) -> list[str]:
    """The names of the box; else x1 ... xD for a vector, or x, y, z as in the formula; x[i,j] for a sequence."""
    shape = tuple(box.shape)
    if box.names or target is None:
        return box.labels
    letters = target.kind == "formula" and re.search(r"\b[xyz]\b", target.description)
    if shape == (1,) or (letters and shape in ((2,), (3,))):
        return list("xyz"[: shape[0]])
    return box.labels


def written_box(box: Box, target: Target | None) -> Box:
    """The same box with those names, where they are not the ones it would be written with anyway."""
    names = written_names(box, target)
    if box.names or names == box.labels:
        return box
    return box.named(names)


def written_domain(box: Box) -> str:
    """Intervals with their names, a power where all are alike: "[0, 1]^4", "m0 in [1, 5], v in [1, 2]"."""
    lows = box.lower.flatten().tolist()
    highs = box.upper.flatten().tolist()
    sides = list(zip(lows, highs, strict=True))
    written = [inward(low, high, 4) for low, high in sides]
    # By the numbers, not by their texts: two sides that differ in the fifth digit are not alike.
    if not box.names and len(set(sides)) == 1:
        power = f"^{len(sides)}" if len(sides) > 1 else ""
        return f"{written[0]}{power}"
    if len(sides) > MOST_SIDES:
        return f"a box of {len(sides)} intervals"
    if not box.names:
        return " x ".join(written)
    return ", ".join(f"{name} in {side}" for name, side in zip(box.labels, written, strict=True))
