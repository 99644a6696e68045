"""Free numbers of our layers against the cheapest of tensor, low-rank and sparse Chebyshev interpolants, at one error.

python benchmarks/yardstick.py [--eps 1e-3 1e-6] [--seconds 60] [--out yardstick]

A token carries a slope, a bias and a value, a Chebyshev coefficient is one number. Free is what structure does not fix:
of M tokens on an axis 2 (M - 1) numbers, since softmax does not see a line added to all logits; every value; the
nonzero entries of kinks and of the affine part. Tensor: n_1 ... n_D values. Low rank, two inputs: r (n_1 + n_2) from
the singular values of the tensor of values, which adaptive cross approximation (chebfun2) approaches. Sparse: the
largest coefficients alone, their places for nothing. All to the same sup error, ours proved, theirs seen on a grid.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import report
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from suite import F1, F2, F3, F5, ONE_AXIS

from onelayer import Approximation, Box, approximate
from onelayer.box import as_box
from onelayer.language.formula import Formula, parse
from onelayer.layer.memory import GridMemory

Array = NDArray[np.float64]
SIZES = [*range(2, 24), *range(24, 64, 4), *range(64, 161, 12)]  # points per axis that are tried
DENSE = {1: 4001, 2: 301, 4: 23}  # points per axis at which errors are seen


def free_numbers(a: Approximation) -> int:
    """What a layer of lookup heads does not owe to its structure."""
    weights = a.model.state_dict()
    total = 0
    for memory in a.model.memory.values():
        if isinstance(memory, GridMemory):
            total += sum(2 * (len(axis) - 1) for axis in memory.axes) + memory.values.numel()
    for name in ("W_1", "b_1", "W_2"):
        total += int(weights[name].count_nonzero()) if name in weights else 0
    return total + int(weights["b_R"].count_nonzero())


def interpolants(f: Formula, box: Box, eps: float) -> dict[str, int]:
    """Numbers that each kind needs for eps."""
    dim = box.dim
    dense = _grid([np.linspace(-1, 1, DENSE[dim])] * dim)
    truth = _values(f, box, dense)
    found: dict[str, int] = {}
    for size in SIZES:
        nodes = np.cos(np.pi * (np.arange(size) + 0.5) / size)
        values = _values(f, box, _grid([nodes] * dim))
        coefficients = _transformed(values, size)
        if np.abs(_evaluated(coefficients, DENSE[dim]) - truth).max() > eps:
            continue
        found["tensor"] = size**dim
        found["sparse"] = _fewest(lambda count, c=coefficients: _largest(c, count), coefficients.size, eps, truth)
        if dim == 2:
            rank = _fewest(lambda count, c=coefficients: _truncated(c, count), size, eps, truth)
            found["low rank"] = rank * 2 * size
        break
    return found


def _grid(axes: list[Array]) -> Array:
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1)


def _values(f: Formula, box: Box, points: Array) -> Array:
    low, high = box.lower.flatten().numpy(), box.upper.flatten().numpy()
    x = low + (points + 1) / 2 * (high - low)
    found: Array = f(torch.from_numpy(x.reshape(-1, len(low)))).numpy().reshape(points.shape[:-1])
    return found


def _transformed(values: Array, size: int) -> Array:
    """Chebyshev coefficients from values at the roots, axis by axis."""
    angles = np.pi * (np.arange(size) + 0.5) / size
    matrix = 2 / size * np.cos(np.outer(np.arange(size), angles))
    matrix[0] /= 2
    for axis in range(values.ndim):
        values = np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)
    return values


def _evaluated(coefficients: Array, count: int) -> Array:
    basis = chebyshev.chebvander(np.linspace(-1, 1, count), len(coefficients) - 1)
    for axis in range(coefficients.ndim):
        coefficients = np.moveaxis(np.tensordot(basis, coefficients, (1, axis)), 0, axis)
    return coefficients


def _largest(coefficients: Array, count: int) -> Array:
    kept = np.zeros_like(coefficients).reshape(-1)
    order = np.argsort(-np.abs(coefficients).reshape(-1))[:count]
    kept[order] = coefficients.reshape(-1)[order]
    return kept.reshape(coefficients.shape)


def _truncated(coefficients: Array, rank: int) -> Array:
    u, s, v = np.linalg.svd(coefficients)
    found: Array = (u[:, :rank] * s[:rank]) @ v[:rank]
    return found


def _fewest(kept: Callable[[int], Array], most: int, eps: float, truth: Array) -> int:
    """The least count that keeps the error within eps, by bisection."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        good = np.abs(_evaluated(kept(middle), truth.shape[0]) - truth).max() <= eps
        low, high = (low, middle) if good else (middle, high)
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--eps", type=float, nargs="*", default=[1e-3, 1e-6])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", default="yardstick")
    options = parser.parse_args()
    problems = [(one.name, one.formula, one.domain) for one in (F1, F2, F3, F5)]
    problems += [(name, text, "-1:1") for name, text in ONE_AXIS.items()]
    rows, ratios = [], []
    for name, text, domain in problems:
        box = as_box(domain)
        formula = parse(text, box.dim)
        for eps in options.eps:
            a = approximate(formula, box, eps, layout="packed", max_seconds=options.seconds)
            others = interpolants(formula, box, eps)
            ours, best = free_numbers(a), min(others.values(), default=0)
            ratio = ours / best if best and a.certificate.proved else math.nan
            ratios += [ratio] if ratio == ratio else []
            row = {"function": name, "eps": eps, "status": a.certificate.status, "tokens": a.size()["tokens"]}
            rows.append(row | {"free numbers": ours, **others, "ratio": ratio})
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    report.write(options.out, rows, geometric_mean=mean, largest=max(ratios, default=None))


if __name__ == "__main__":
    main()
