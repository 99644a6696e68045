"""What an experiment is and what it returns: a claim with its place, measured checks, a verdict they support."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from onelayer.proof.certificate import outward
from onelayer.result import Approximation

HOLDS = "holds"
FAILS = "fails as stated"
REPAIRED = "holds after repair"
UNCONFIRMED = "not confirmed"
VERDICTS = (HOLDS, FAILS, REPAIRED, UNCONFIRMED)

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "=": operator.eq,
}


@dataclass(frozen=True)
class Check:
    """A measured number and what it has to be for the verdict. NaN satisfies nothing."""

    what: str
    value: float
    relation: str
    bound: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "bound", float(self.bound))

    @property
    def holds(self) -> bool:
        """Whether the relation holds; what is no number holds nothing."""
        relation = _RELATIONS[self.relation]
        return not math.isnan(self.value) and relation(self.value, self.bound)


@dataclass(frozen=True)
class ResultTable:
    """Rows of text and numbers under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure made from the numbers of the run, with the sentence that stands below it.

    ``live`` is the layer it shows, if it shows one: the page then lets the reader drag its input.
    """

    name: str
    caption: str
    figure: Figure
    live: Approximation | None = None


@dataclass(frozen=True)
class Finding:
    """What a run measured. ``verdict`` is what the checks, if they all hold, say about the claim.

    ``said`` explains it in a paragraph; ``notes`` are single observations. ``spent`` is the time of parts that a
    stopped run may have left behind: then the clock of this run alone would say too little.
    """

    verdict: str
    said: str
    checks: Sequence[Check]
    tables: Sequence[ResultTable] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    spent: float = 0.0

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS or not self.checks:
            raise ValueError("a finding needs a known verdict and at least one check")

    @property
    def judged(self) -> str:
        """The verdict, granted only if every check holds."""
        if all(check.holds for check in self.checks):
            return self.verdict
        return UNCONFIRMED


@dataclass(frozen=True)
class Setting:
    """How much to compute: ``quick`` takes the smaller sizes. ``seed`` is that of everything random.

    ``folder`` is where an experiment of many parts keeps those that are done; ``jobs`` how many run at a time.
    """

    quick: bool = False
    seed: int = 0
    folder: Path | None = None
    jobs: int = 1

    def pick(self, quick: Any, full: Any) -> Any:
        """The size for a quick run or for a full one."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Experiment:
    """A claim of the paper in our words, where it stands there, and the run that judges it.

    ``needs`` names an optional module without which the experiment is left out.
    """

    key: str
    title: str
    place: str
    claim: str
    run: Callable[[Setting], Finding]
    needs: str = ""

    @property
    def possible(self) -> bool:
        """Whether the optional module that the experiment needs, if any, is installed."""
        return not self.needs or find_spec(self.needs) is not None

    @property
    def command(self) -> str:
        """The command that runs it alone."""
        return f"onelayer paper --only {self.key}"


def largest(values: Iterable[float]) -> float:
    """The largest of some numbers, nan where one of them is: Python's own max would lose it, and a check would hold."""
    return float(np.max(list(values)))


def smallest(values: Iterable[float]) -> float:
    """The smallest of some numbers, nan where one of them is."""
    return float(np.min(list(values)))


def at_most(value: float) -> str:
    """A proved upper bound in a table: rounded up, so that what is printed is proved too."""
    return outward(value, up=True)


def at_least(value: float) -> str:
    """A proved lower bound in a table: rounded down."""
    return outward(value, up=False)


def measured(check: Mapping[str, Any]) -> str:
    """The number of a check with few digits, rounded to the side on which its relation is harder to meet.

    What is printed claims no more than was measured, and stands beside a relation that it meets as the number does.
    """
    value = check["value"]
    short = number(value)
    rounded = isinstance(value, float) and math.isfinite(value) and float(short.replace(",", "")) != value
    if not rounded or check["relation"] == "=":
        return short
    up = check["relation"] in ("<=", "<")
    limit = check["bound"] if check["holds"] else None
    if limit is not None and check["relation"] == "<":
        limit = math.nextafter(limit, -math.inf)
    return outward(value, up=up, limit=limit)


def number(value: Any) -> str:
    """A measured value as a reader wants it: four digits, whole numbers whole, truth as yes or no."""
    # First, for Python's True is an integer too.
    if isinstance(value, bool):
        return "yes" if value else "no"
    # Larger floats are measured, not counted: their last digits would claim too much.
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e7
    if isinstance(value, int) or whole:
        return f"{int(value):,}"
    if isinstance(value, float):
        mantissa, _, exponent = f"{value:.4g}".partition("e")
        # Python writes 1e-06; a reader wants 1e-6.
        if exponent:
            return f"{mantissa}e{int(exponent)}"
        return mantissa
    return str(value)
