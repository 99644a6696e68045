"""Reading rows: which belong together, their medians, and sentences about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onelayer.study.figures import Points
from onelayer.study.laws import Law, best_law
from onelayer.study.sweep import Row


def select(rows: Sequence[Row], **settings: Any) -> list[Row]:
    """Rows with these settings."""
    return [row for row in rows if all(row.get(name) == value for name, value in settings.items())]


def points(rows: Sequence[Row], size: str, error: str = "sup") -> Points:
    """(size, error) of every row."""
    return [(float(row[size]), float(row[error])) for row in rows]


def median(rows: Sequence[Row], name: str = "sup") -> float:
    """The median over rows of one of their numbers, an error if not said otherwise."""
    return float(np.median([row[name] for row in rows]))


def trend(name: str, rows: Sequence[Row], size: str) -> str:
    """A sentence on how the error falls with size, with the fitted law and its confidence."""
    sizes, errors = zip(*points(rows, size), strict=True)
    law = best_law(sizes, errors)
    smallest = min(sizes)
    largest = max(sizes)
    first = median(select(rows, **{size: smallest}))
    last = median(select(rows, **{size: largest}))
    ends = f"sup {first:.2g} at {size} {smallest:g}, {last:.2g} at {largest:g}"
    return f"{name}: {verdict(law)} ({ends}; {law})"


def verdict(law: Law) -> str:
    """What the confidence interval of a rate says about "the error decreases"."""
    if law.decreasing:
        return "the error decreases"
    return "the error grows" if law.high < 0 else "no decrease can be told from the spread of the seeds"
