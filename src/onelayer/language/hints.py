"""What to write instead of what the formula language does not have."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

_INSTEAD = {
    "^": "is not a power here; write ** as in x**2",
    "²": "is not a power here; write **2",
    "³": "is not a power here; write **3",
    "√": "is not used; write sqrt(x)",
    "∞": "is not a number; every number and every box is finite",
    "%": "is not used; write mod(x, 1)",
    "!": "is not used; write factorial(x), and not for a condition",
    "|": "is not used; write abs(x), and or between conditions",
    "&": "is not used; join comparisons with and, or, not",
    "~": "is not used; join comparisons with and, or, not",
    "≤": "is not used; write <=",
    "≥": "is not used; write >=",
    "≠": "is not used; write !=",
    "{": "is not used; group with ( ) and write x1, x2 for coordinates",
    "}": "is not used; group with ( ) and write x1, x2 for coordinates",
}
_NO_NUMBERS = {"inf", "infinity", "nan", "oo"}


def of_character(character: str) -> str:
    """A character outside the language, and what would be inside it."""
    if character in _INSTEAD:
        return f"{character!r} {_INSTEAD[character]}"
    shown = repr(character) if character.isprintable() else ascii(character)
    return f"character {shown} is not part of the formula language"


def of_name(name: str, variables: Sequence[str], functions: Sequence[str]) -> str:
    """A name that means nothing here, those that are like it, and where names come from."""
    said = f"unknown name '{name[:40]}'"
    if name.lower() in _NO_NUMBERS:
        return f"{said}; every number and every box is finite"
    # In small letters, so that Sin is like sin; 0.65 lets one letter in three be wrong, and no other word in.
    lowered = {known.lower(): known for known in (*functions, *variables)}
    alike = get_close_matches(name.lower()[:40], list(lowered), n=2, cutoff=0.65)
    close = [lowered[found] for found in alike]
    meant = f"; did you mean {' or '.join(close)}?" if close else ";"
    if variables:
        return f"{said}{meant} the variables are {_some(variables)}, docs/formula-language.md lists the functions"
    own = "others get their names from the domain, as in v=1:2, c=3:10"
    return f"{said}{meant} the variables are x1..xD, or x, y, z; {own}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, ..." if len(names) > 8 else shown
