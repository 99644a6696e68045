"""Free numbers of our layers against the cheapest of tensor, low-rank and sparse Chebyshev interpolants, at one error.

python benchmarks/yardstick.py [--eps 1e-3 1e-6] [--seconds 60] [--out yardstick]

A token carries a slope, a bias and a value, a Chebyshev coefficient is one number. Free is what structure does not fix.
Ours: of M tokens on an axis 2 (M - 1) numbers, since softmax does not see a line added to all logits, and every value;
values of a grid of rank r over two axes r (M_1 + M_2) numbers if that is less; the nonzero entries of kinks and of the
affine part. Taken is the cheaper of the layer that ``approximate`` builds, of the fewest tokens, and of one whose keys
are tied (build/lookup/ties.py): equally spaced slopes are one number, biases on a parabola two, and mirrored tokens of
an even or odd function one. Both are proved, and ties are counted only where the stored numbers show them.
Theirs: the cheapest of tensor, n_1 ... n_D values; low rank, two inputs, r (n_1 + n_2) from the singular values of the
tensor of values, which adaptive cross approximation (chebfun2) approaches; sparse, the largest coefficients alone,
their places for nothing, so that even and odd functions take half of them. All to the same sup error, ours proved,
theirs seen on a grid.
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

from onelayer import Approximation, Box, Certificate, approximate, certify
from onelayer.box import as_box
from onelayer.build.lookup.blueprint import draw_up
from onelayer.build.lookup.groups import FitBudget
from onelayer.language.formula import Formula, parse
from onelayer.layer.lookup import LookupHead
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.portfolio.task import FIT_SHARE
from onelayer.proof.recorded import understood
from onelayer.recording.target import as_target

Array = NDArray[np.float64]
SIZES = [*range(2, 24), *range(24, 64, 4), *range(64, 161, 12)]  # points per axis that are tried
TIED = 1e-9  # of the largest of some numbers, by which they may miss a tie: rounding
DENSE = {1: 4001, 2: 301, 4: 23}  # points per axis at which errors are seen


def free_numbers(a: Approximation) -> int:
    """What a layer of lookup heads of free keys does not owe to its structure."""
    total = _beside_heads(a.model)
    for memory in a.model.memory.values():
        if isinstance(memory, GridMemory):
            total += sum(2 * (len(axis) - 1) for axis in memory.axes) + _value_numbers(memory.values.detach().numpy())
    return total


def tied_layer(f: Formula, box: Box, eps: float) -> tuple[Certificate, int]:
    """The layer whose axes have tied keys: its proof and its free numbers."""
    target = understood(as_target(f, box), box)
    budget = FitBudget(torch.float64, 20_000, 0, effort="thrifty")
    blueprint = draw_up(target, box, FIT_SHARE[box.dim] * eps, budget)
    model = blueprint.build(torch.float64)
    total = _beside_heads(model)
    for head in blueprint.heads:
        alone = len(head.axes) == 1
        total += sum(2 * (len(axis.slopes) - 1) for axis in head.axes) if not alone else 0
        total += _axis_numbers(head, box) if alone else _value_numbers(head.values.numpy())
    return certify(model, target, box, eps), total


def _beside_heads(model: OneLayerTransformer) -> int:
    """The nonzero entries of kinks and of the affine part."""
    weights = model.state_dict()
    return sum(int(weights[name].count_nonzero()) for name in ("W_1", "b_1", "W_2", "b_R") if name in weights)


def _value_numbers(values: Array) -> int:
    """Of a grid of values, (M_1, ..., M_r, 1)."""
    if values.ndim != 3:
        return values.size
    rank = int(np.linalg.matrix_rank(values[..., 0], tol=TIED * np.abs(values).max()))
    return min(values.size, rank * sum(values.shape[:2]))


def _axis_numbers(head: LookupHead, box: Box) -> int:
    """Of the keys and values of one axis, ties that the stored numbers show counted once."""
    (axis,) = head.axes
    centre = float(axis.direction @ box.center.flatten()) if isinstance(axis.direction, torch.Tensor) else 0.0
    slopes = axis.slopes.numpy() - (axis.slopes.max() + axis.slopes.min()).item() / 2
    order = np.argsort(slopes)
    slopes, biases = slopes[order], (axis.biases.numpy() + slopes * centre)[order]
    values = head.values.numpy().reshape(len(order), -1)[order, 0]
    count, places = len(order), np.arange(len(order))
    mirrored = _same(slopes, -slopes[::-1]) and _same(biases, biases[::-1])
    free = (count // 2, (count - 1) // 2) if mirrored else (count - 1, count - 1)
    spaced = _same(slopes, np.polyval(np.polyfit(places, slopes, 1), places))
    bent = _same(biases, np.polyval(np.polyfit(places, biases, min(2, count - 1)), places))
    keys = (min(1, free[0]) if spaced else free[0]) + (min(1 if mirrored else 2, free[1]) if bent else free[1])
    sums = values + values[::-1]
    if mirrored and _same(values, values[::-1]):
        return keys + (count + 1) // 2
    odd = mirrored and bool(np.ptp(sums) <= TIED * np.abs(values).max())
    return keys + (count // 2 + int(abs(sums[0]) > TIED * np.abs(values).max()) if odd else count)


def _same(one: Array, other: Array) -> bool:
    return bool(np.abs(one - other).max() <= TIED * max(1.0, np.abs(one).max()))


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
            tied, numbers = tied_layer(formula, box, eps)
            proved = [n for n, c in ((free_numbers(a), a.certificate), (numbers, tied)) if c.proved]
            others = interpolants(formula, box, eps)
            best = min(others.values(), default=0)
            ratio = min(proved) / best if best and proved else math.nan
            ratios += [ratio] if ratio == ratio else []
            row = {"function": name, "eps": eps, "status": a.certificate.status, "tokens": a.size()["tokens"]}
            row |= {"free numbers": free_numbers(a), "tied": numbers if tied.proved else tied.status}
            rows.append(row | {**others, "ratio": ratio})
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    report.write(options.out, rows, geometric_mean=mean, largest=max(ratios, default=None))


if __name__ == "__main__":
    main()
