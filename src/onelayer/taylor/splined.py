"""Splines of tables on Taylor models: on every box a polynomial of the model's order and what the cells differ from it.

A box inside a cell gets the polynomial of the cell, one that meets several cells a fit (taylor/control.py), one that
meets very many all values of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product

import torch
from torch import Tensor

from onelayer.language.intervals import Interval
from onelayer.language.knots import Spline
from onelayer.language.spline import cell_of, image, tensors
from onelayer.taylor import basis
from onelayer.taylor.arithmetic import combine, div, mul, operand
from onelayer.taylor.control import MOST, Stretch, fit, normal_form, width_of
from onelayer.taylor.core import TaylorModel, prune
from onelayer.taylor.piecewise import aligned
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import executed, inflate

POWERS = 3  # the highest power on an axis


@implements("spline")
def spline(data: Spline, *args: TaylorModel) -> TaylorModel:
    """The spline of models. Executed, its weights err by ten roundings per degree, and none is larger than one."""
    like, models = aligned(args)
    shape = models[0].shape
    models = [prune(model) for model in models]
    exact = _coordinates(models)
    ranges = [model.range() for model in models]
    ends = [(low.flatten(), high.flatten()) for low, high in ranges]
    normal = _normal_forms(models, ends, exact)
    variables = {v for model in models for v in model.support} or {0}
    degree = min(models[0].space.cap(len(variables)), POWERS * data.dim)
    factors, radius = _fitted(data, ends, normal, degree)
    factors = factors.reshape(*factors.shape[: data.dim], *shape)
    radius = radius.reshape(shape)
    if exact:
        result = _of_coordinates(models, factors, radius, degree)
    else:
        shaped = [(middle.reshape(shape), reach.reshape(shape)) for middle, reach in normal]
        result = _of_models(models, shaped, factors, radius)
    if like.execution is None:
        return result
    low, high = image(data, *ranges)  # infinite beyond the axes
    largest = float(abs(data.coefficients).max())
    size = inflate(torch.maximum(-low, high).abs() + largest)
    result.rem = executed(result.rem, size, 40 * data.dim + 8, like.execution)
    return result.tagged(like.execution)


def _coordinates(models: Sequence[TaylorModel]) -> bool:
    """Whether each model is exactly a coordinate of the box, and no two the same one."""
    seen = [model.support for model in models]
    if len(set(seen)) != len(seen) or any(len(support) != 1 for support in seen):
        return False
    plain = all(model.degree == 1 and bool((model.rem == 0).all()) for model in models)
    return plain and all(bool((model.coef[1] > 0).all()) for model in models)


def _normal_forms(models: Sequence[TaylorModel], ends: Sequence[Interval], exact: bool) -> list[Interval]:
    """The middle and the radius of each argument on each box."""
    if exact:  # t is then the coordinate of the box itself
        return [(model.coef[0].flatten(), model.coef[1].flatten()) for model in models]
    return [normal_form(low, high) for low, high in ends]


def _at(pair: Interval, boxes: Tensor) -> Interval:
    return pair[0][boxes], pair[1][boxes]


def _fitted(data: Spline, ends: list[Interval], normal: list[Interval], degree: int) -> tuple[Tensor, Tensor]:
    """Factors (p_1 + 1, ..., p_D + 1, E) of the monomials in t = (u - middle) / radius, and the radius (E,)."""
    knots = [axis.to(ends[0][0].device) for axis in tensors(data)[0]]
    first = [cell_of(data, i, knots[i], low) for i, (low, _) in enumerate(ends)]
    last = [cell_of(data, i, knots[i], high, right=False) for i, (_, high) in enumerate(ends)]
    crossed = [(b - a).clamp(min=0) for a, b in zip(first, last, strict=True)]  # knots inside, by axis
    inner = torch.stack(crossed, dim=1)  # (E, D)
    # To begin with, all values of the table: right for every box that it bounds, and kept where no fit is better.
    low, high = image(data, *ends)
    middle = torch.where(torch.isfinite(low), low / 2 + high / 2, 0.0)
    finite = [torch.isfinite(a) & torch.isfinite(b) for a, b in ends]
    known = torch.stack(finite).all(0)
    away = torch.maximum(high - middle, middle - low)
    radius = torch.where(known, inflate(away), torch.inf)
    factors = torch.zeros(*[POWERS + 1] * data.dim, len(radius), dtype=torch.float64, device=radius.device)
    factors[(0,) * data.dim] = middle
    # Boxes that meet equally many cells are fitted together.
    for counts in torch.unique(inner[known], dim=0).tolist():
        if width_of(data.degrees, counts) > MOST:
            continue
        wanted = torch.tensor(counts, dtype=torch.int64, device=inner.device)
        boxes = torch.nonzero(known & (inner == wanted).all(1)).flatten()
        stretches = []
        for i, count in enumerate(counts):
            own = _at(ends[i], boxes)
            stretches.append(Stretch.of(data, i, own, _at(normal[i], boxes), first[i][boxes], count))
        found = fit(data, stretches, degree)
        better = found.radius < radius[boxes]
        chosen = boxes[better]
        factors[..., chosen] = _padded(found.factors[better]).movedim(0, -1)
        radius[chosen] = found.radius[better]
    return factors, radius


def _padded(factors: Tensor) -> Tensor:
    """With factors 0 for the powers that an axis does not have."""
    missing = [pad for count in reversed(factors.shape[1:]) for pad in (0, POWERS + 1 - count)]
    return torch.nn.functional.pad(factors, missing)


def _of_coordinates(models: Sequence[TaylorModel], factors: Tensor, radius: Tensor, degree: int) -> TaylorModel:
    """The polynomial itself: t is the coordinate."""
    order = sorted(range(len(models)), key=lambda at: models[at].support)
    support = tuple(models[at].support[0] for at in order)
    table = basis.exponents(len(support), degree)
    coef = torch.zeros(len(table), *radius.shape, dtype=torch.float64, device=radius.device)
    for row, exponents in enumerate(table.tolist()):
        # Exponents by variable, as the basis has them, to exponents by argument.
        if max(exponents) <= POWERS:
            by_argument = dict(zip(order, exponents, strict=True))
            coef[row] = factors[tuple(by_argument[at] for at in range(len(models)))]
    return TaylorModel(coef, radius, models[0].space, support, degree)


def _of_models(
    models: Sequence[TaylorModel], normal: Sequence[Interval], factors: Tensor, radius: Tensor
) -> TaylorModel:
    """The polynomial of (u - middle) / radius, by products of powers."""
    powers: list[list[TaylorModel | None]] = []
    for model, (middle, reach) in zip(models, normal, strict=True):
        t = div(combine(model, middle, -1), reach)
        found: list[TaylorModel | None] = [None, t]
        for _ in range(POWERS - 1):
            found.append(mul(found[-1], t))
        powers.append(found)
    total = operand(factors[(0,) * len(models)], models[0])
    for exponents in product(range(POWERS + 1), repeat=len(models)):
        factor = factors[exponents]
        if not any(exponents) or not bool((factor != 0).any()):
            continue
        used = [powers[axis][n] for axis, n in enumerate(exponents)]
        term = reduce(mul, [power for power in used if power is not None])
        total = combine(total, mul(term, factor), 1)
    defined = torch.stack([model.decided() for model in models]).all(0)
    rem = torch.where(defined, inflate(total.rem + radius), torch.inf)
    return total.with_(total.coef, rem)
