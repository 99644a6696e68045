"""Functions in words: order statistics, and what stands in the place of a function without a formula."""

from __future__ import annotations

from collections.abc import Sequence

NOT_RECORDED = "not recorded: "  # begins what stands in the place of a text


def recorded(function: str) -> bool:
    """Whether what a claim calls its function is a text of the formula language."""
    return not function.startswith(NOT_RECORDED)


def describe(length: int, weights: Sequence[float] | None) -> str:
    """The function in words."""
    if weights is None:
        return f"sort of {length} numbers"
    used = [(k, weight) for k, weight in enumerate(weights, start=1) if weight]
    if len(used) == 1 and used[0][1] == 1:
        return f"{_ordinal(used[0][0])} smallest of {length} numbers"
    last = range(length - len(used) + 1, length + 1)
    if used and used == [(k, 1) for k in last]:
        return f"sum of the {len(used)} largest of {length} numbers"
    shown = ", ".join(f"{weight!r} x ({k})" for k, weight in used)
    return f"weighted order statistics of {length} numbers: {shown}"


def _ordinal(k: int) -> str:
    """1st, 2nd, 3rd, 4th, ..., 11th, ..."""
    if k % 100 in (11, 12, 13):
        return f"{k}th"
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    return f"{k}{suffix}"
