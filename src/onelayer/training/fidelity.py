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
    t, s = (out.detach().double().cpu().numpy().reshape(len(out), -1) for out in (teacher, student))
    residual = ((t - s) ** 2).sum(1)
    spread = ((t - t.mean(0)) ** 2).sum(1)

    def explained(rows: NDArray[np.int64]) -> float:
        return float(1 - residual[rows].sum() / max(spread[rows].sum(), 1e-300))

    first = bootstrap(explained, len(t), seed=seed, level=level)
    if t.shape[1] < 2:
        return Fidelity(len(t), first)
    cosines = _cosines(t, s)
    half = len(t) // 2
    pairs = np.stack([_cosines(out[:half], out[half : 2 * half]) for out in (t, s)])

    def rank(rows: NDArray[np.int64]) -> float:
        return float(stats.spearmanr(pairs[0, rows], pairs[1, rows]).statistic)

    mean = bootstrap(lambda rows: float(cosines[rows].mean()), len(t), seed=seed, level=level)
    return Fidelity(len(t), first, mean, bootstrap(rank, half, seed=seed, level=level) if half >= 10 else None)


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], count: int, *, seed: int = 0, level: float = 0.95
) -> Estimate:
    """The statistic of all rows, and percentiles of it over resampled rows."""
    generator = np.random.default_rng(seed)
    draws = [statistic(generator.integers(0, count, count)) for _ in range(REPEATS)]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(statistic(np.arange(count)), float(low), float(high), level)


def _cosines(a: Array, b: Array) -> Array:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / np.maximum(lengths, 1e-300))
