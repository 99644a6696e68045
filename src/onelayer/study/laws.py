"""Laws of error against size: power laws and exponential ones, by least squares on log error, with their confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from onelayer.errors import OnelayerError

KINDS = ("power", "exponential")


@dataclass(frozen=True)
class Law:
    """error = scale * size^(-rate) for kind "power", scale * exp(-rate * size) for "exponential".

    [``low``, ``high``] is the confidence interval of the rate at ``level``, from Student's t on the residuals of
    log error: it says how well the points fix the rate, if the law is the right one. ``spread`` is the standard
    deviation of log error around the law.
    """

    kind: str
    scale: float
    rate: float
    low: float
    high: float
    level: float
    spread: float
    points: int

    def __call__(self, size: float) -> float:
        return self.scale * math.exp(-self.rate * _abscissa(size, self.kind))

    @property
    def decreasing(self) -> bool:
        """Whether the whole confidence interval says that the error falls with size."""
        return self.low > 0

    def __str__(self) -> str:
        ends = f"[{self.low:.3g}, {self.high:.3g}]"
        form = "size^{:.3g}" if self.kind == "power" else "exp({:.3g} size)"
        return f"{self.scale:.3g} {form.format(-self.rate)}, rate in {ends} at {self.level:.0%}"


def fit_law(sizes: Sequence[float], errors: Sequence[float], kind: str = "power", *, level: float = 0.95) -> Law:
    """The law of that kind through (size, error); repeated sizes (seeds) count as separate points."""
    if kind not in KINDS:
        raise OnelayerError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    usable = _usable(sizes, errors)
    across = np.array([_abscissa(size, kind) for size, _ in usable])
    up = np.log([error for _, error in usable])
    line = stats.linregress(across, up)
    residual = up - (line.intercept + line.slope * across)
    freedom = len(usable) - 2
    # Two-sided: half of what the level leaves out lies beyond each end.
    half = float(stats.t.ppf(0.5 + level / 2, freedom) * line.stderr)
    spread = float(np.sqrt(np.sum(residual**2) / freedom))
    rate = -float(line.slope)
    return Law(kind, math.exp(line.intercept), rate, rate - half, rate + half, level, spread, len(usable))


def _usable(sizes: Sequence[float], errors: Sequence[float]) -> list[tuple[float, float]]:
    """The points that have logarithms."""
    pairs = zip(sizes, errors, strict=True)
    usable = [(size, error) for size, error in pairs if size > 0 and 0 < error < math.inf]
    different = {size for size, _ in usable}
    # Two sizes fix a line; a third point leaves a residual, from which the interval comes.
    if len(different) < 2 or len(usable) < 3:
        raise OnelayerError("a law needs at least three points of two sizes with positive finite errors")
    return usable


def best_law(sizes: Sequence[float], errors: Sequence[float], *, level: float = 0.95) -> Law:
    """The kind of law with the smaller spread around the points."""
    laws = [fit_law(sizes, errors, kind, level=level) for kind in KINDS]
    return min(laws, key=lambda law: law.spread)


def _abscissa(size: float, kind: str) -> float:
    if kind == "power":
        return math.log(size)
    return float(size)
