"""How faithful a student is to its teacher on data that neither was fitted to, with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

Array = NDArray[np.float64]
REPEATS = 1000  # of the bootstrap: its 95 % interval is then good to two digits
LEAST_PAIRS = 10  # from which a correlation of ranks says anything
SMALLEST = 1e-300  # instead of zero, below a fraction bar


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval at ``level``."""

    value: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Fidelity:
    """Agreement on ``count`` held-out inputs: 1 is perfect in every field.

    ``explained`` is the share of the teacher's variance that the student explains. For vector outputs, ``cosine`` is
    the mean cosine between the two outputs, and ``rank`` Spearman's correlation between the teacher's and the student's
    similarities of disjoint pairs of inputs.
    """

    count: int
    explained: Estimate
    cosine: Estimate | None = None
    rank: Estimate | None = None

    def __str__(self) -> str:
        parts = [f"variance explained {self.explained}"]
        if self.cosine is not None:
            parts.append(f"cosine {self.cosine}")
        if self.rank is not None:
            parts.append(f"rank agreement of similarities {self.rank}")
        return f"{', '.join(parts)} on {self.count:,} held-out inputs"


def fidelity(teacher: Tensor, student: Tensor, *, seed: int = 0, level: float = 0.95) -> Fidelity:
    """Compare outputs (B, ...) of teacher and student on held-out inputs, which must be independent of each other."""
    t = _rows(teacher)
    s = _rows(student)
    residual = ((t - s) ** 2).sum(1)
    spread = ((t - t.mean(0)) ** 2).sum(1)

    def explained(rows: NDArray[np.int64]) -> float:
        total = max(spread[rows].sum(), SMALLEST)
        return float(1 - residual[rows].sum() / total)

    first = bootstrap(explained, len(t), seed=seed, level=level)
    if t.shape[1] < 2:
        return Fidelity(len(t), first)
    cosines = _cosines(t, s)
    mean = bootstrap(lambda rows: float(cosines[rows].mean()), len(t), seed=seed, level=level)
    # Pairs share no input: similarities of overlapping pairs are not independent, and a bootstrap of them too narrow.
    half = len(t) // 2
    if half < LEAST_PAIRS:
        return Fidelity(len(t), first, mean)
    of_teacher, of_student = (_cosines(out[:half], out[half : 2 * half]) for out in (t, s))

    def rank(rows: NDArray[np.int64]) -> float:
        return float(stats.spearmanr(of_teacher[rows], of_student[rows]).statistic)

    return Fidelity(len(t), first, mean, bootstrap(rank, half, seed=seed, level=level))


def _rows(outputs: Tensor) -> Array:
    """One row of numbers for every input, (B, K)."""
    values = outputs.detach().double().cpu().numpy()
    return np.asarray(values.reshape(len(values), -1))


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], count: int, *, seed: int = 0, level: float = 0.95
) -> Estimate:
    """The statistic of all rows, and percentiles of it over resampled rows."""
    generator = np.random.default_rng(seed)
    draws = [statistic(generator.integers(0, count, count)) for _ in range(REPEATS)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(draws, tails)
    value = statistic(np.arange(count))
    return Estimate(value, float(low), float(high), level)


def _cosines(a: Array, b: Array) -> Array:
    products = (a * b).sum(1)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(products / np.maximum(lengths, SMALLEST))
