"""Formulas on boxes by the million: ranges, polynomials and bounds of |T - f| against the function at many points.

The function is known at all points at once by the liar's own intervals of float64 (spans.py), whose width is the bound
of their rounding. A value that may lie outside is evaluated again in balls, and only there called a lie.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from flint import arb, ctx
from torch import Tensor

import onelayer as ol
from liar import formulas, places
from liar.expressions import (
    PRECISIONS,
    Expr,
    Unclear,
    Undefined,
    arguments_at_risk,
    as_code,
    ball_values,
    read_values,
    text,
    torch_code,
)
from liar.judge import Tally
from liar.spans import Span, add, neg, spans
from onelayer.language.formula import parse
from onelayer.proof.error import error_function
from onelayer.recording.target import as_target
from onelayer.taylor import basis, kernels, variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.hull import evaluate_hulled
from onelayer.taylor.levels import Levels
from onelayer.taylor.sides import Sides

BOXES, POINTS = 192, 256
CONFIRMED = 6  # values of a formula that are evaluated in balls: those that seem farthest outside
NARROWEST = -13.0  # width of boxes against the domain, as a power of ten
Exact = Callable[[int, int], arb]  # box, point -> the value in the precision of the context


@dataclass(frozen=True)
class Drawn:
    """A formula, its domain and the places at which it was meant to hurt: spikes, kinks, ends of domains."""

    formula: formulas.Drawn
    low: Tensor
    high: Tensor
    marks: Tensor  # (S, D)


def boxes(rng: Random, case: Any) -> Tally:
    """Enclosures of one formula in real arithmetic, then bounds of |T - f| for code T, executed or real."""
    drawn = _drawn(rng, case)
    order = rng.randint(1, 6 if len(drawn.low) < 3 else 4)
    compiled = rng.random() < 0.5
    case.words |= {"order": order, "kernels": "compiled" if compiled else "plain"}
    with torch.no_grad(), nullcontext() if compiled else kernels.backend(False):
        tally = Tally()
        for attempt in (enclosed, claimed, sided):
            try:
                tally += attempt(drawn, order, rng, case)
            except ol.OnelayerError:  # the door has seen that f has no value somewhere, or T uses what has no rule
                tally.count["refused"] += 1
        return tally


def enclosed(drawn: Drawn, order: int, rng: Random, case: Any) -> Tally:
    """Range and polynomial of the Taylor models of f, by the way of short formulas or that of long ones."""
    expression = drawn.formula.expression
    formula = parse(text(expression), len(drawn.low))
    low, high, points = _placed(drawn, torch.float64, rng)
    x = variables(low, high, order)
    by_levels = rng.random() < 0.2
    case.words["by levels"] = str(by_levels)
    model = Levels(formula)(x) if by_levels else evaluate_hulled(formula, x, low, high)
    if not isinstance(model, TaylorModel):
        return Tally()
    model = model.reshape(len(low)).plain()
    value = _at_points(expression, points)
    exact = _exactly(expression, points, read_values)
    tally = held("range", model.range(), value, exact, points)
    size = model.split_bound()
    tally += held("bound", (-size, size), value, exact, points)
    polynomial, rounding = polynomials(model, x, points)
    apart = add(value, (-polynomial - rounding, -polynomial + rounding))
    tally += held(
        "remainder",
        (-model.rem, model.rem),
        apart,
        lambda b, k: exact(b, k) - exact_polynomial(model, x, points[b, k].tolist(), b),
        points,
    )
    return tally


def sided(drawn: Drawn, order: int, rng: Random, case: Any) -> Tally:
    """Remainders where a side of a kink is assumed, of each box the first that it leaves open, on that side of it."""
    dim = len(drawn.low)
    drawn = _marked(formulas.bent(rng, drawn.low.tolist(), drawn.high.tolist()), drawn.low, drawn.high, rng)
    expression = drawn.formula.expression
    case.words["beside a kink"] = text(expression)
    formula = parse(text(expression), dim)
    low, high, points = _placed(drawn, torch.float64, rng)
    noted = Sides([], len(low), dim, low.device, take_notes=True)
    evaluate_hulled(formula, variables(low, high, order, sides=noted), low, high)
    if not bool(noted.open.any()):
        return Tally()
    side = rng.choice([-1.0, 1.0])
    assumed = Sides([side * noted.plane], len(low), dim, low.device, take_notes=False)
    x = variables(low, high, order, sides=assumed)
    model = evaluate_hulled(formula, x, low, high).reshape(len(low))
    polynomial, rounding = polynomials(model, x, points)
    rest = add(_at_points(expression, points), (-polynomial - rounding, -polynomial + rounding))
    # Far from the plane against rounding; elsewhere nothing is claimed, which zero stands for. Of a side without points
    # anything may be said, and a radius below zero is.
    plane = assumed.assumed[0]  # (1 + D, B)
    distance = plane[0][:, None] + torch.einsum("bkd,db->bk", _normal(x, points), plane[1:])
    there = noted.open[:, None] & (distance > 1e-9 * plane.abs().sum(0)[:, None])
    exact = _exactly(expression, points, read_values)
    radius = torch.where(there.any(1), model.rem, torch.inf)
    return held(
        "side",
        (-radius, radius),
        (torch.where(there, rest[0], 0.0), torch.where(there, rest[1], 0.0)),
        lambda b, k: exact(b, k) - exact_polynomial(model, x, points[b, k].tolist(), b),
        points,
    )


def claimed(drawn: Drawn, order: int, rng: Random, case: Any) -> Tally:
    """What a leaf of a proof says: the bound of |T - f| on each box, T as it runs in a format or as a real function."""
    execution = rng.choice([torch.float64, torch.float32, None])
    expression, rest = drawn.formula.expression, drawn.formula.rest
    tree = as_code(rng.choice([expression, expression * 1.001, rest, rest]))
    code = torch_code(tree, rng)
    case.words |= {"T": text(tree), "execution": str(execution)}
    box = ol.Box(drawn.low, drawn.high)
    target = as_target(text(expression), box)
    error = error_function(code, target, box, execution, torch.device("cpu"))
    low, high, points = _placed(drawn, execution or torch.float64, rng)
    bound = error.bounds(low, high, order)
    f, exact_f = _at_points(expression, points), _exactly(expression, points, read_values)
    if execution is None:
        t, exact_t = _at_points(tree, points), _exactly(tree, points, ball_values)
    else:
        ran = code(points.reshape(-1, points.shape[-1]).to(execution)).double().reshape(points.shape[:2])
        t, exact_t = (ran, ran), lambda b, k: _number(float(ran[b, k]))
    return held("claim", (-bound, bound), add(t, neg(f)), lambda b, k: exact_t(b, k) - exact_f(b, k), points)


def held(what: str, ends: Span, value: Span, exact: Exact, points: Tensor) -> Tally:
    """Values (B, K), known by spans, against ends (B,): counted where both are finite and the span decides.

    Of the others those that seem farthest outside, or to have no value, are decided in balls.
    """
    tally = Tally()
    low, high = (end[:, None].expand_as(value[0]) for end in ends)
    committed = torch.isfinite(low) & torch.isfinite(high)
    sure = committed & (value[0] >= low) & (value[1] <= high)
    tally.count["enclosures"] += int(sure.sum())
    outside = torch.maximum(low - value[0], value[1] - high) / (high - low + (value[1] - value[0]))
    outside = torch.where(committed & ~sure, outside.nan_to_num(torch.inf), -torch.inf).flatten()
    tally.count["undecided"] += int((outside > -torch.inf).sum())
    for at in outside.topk(min(CONFIRMED, len(outside))).indices.tolist():
        if outside[at] == -torch.inf:
            break
        b, k = divmod(at, points.shape[1])
        told = _false(float(low[b, k]), float(high[b, k]), lambda b=b, k=k: exact(b, k))
        tally.count["in balls"] += 1
        if told:
            tally.lies.append(
                f"{what} [{float(low[b, k])!r}, {float(high[b, k])!r}] at {points[b, k].tolist()}: {told}"
            )
            break
    return tally


def _false(low: float, high: float, exact: Callable[[], arb]) -> str:
    """What is wrong with an enclosure at one point, in balls; empty where nothing is, or no precision decides."""
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            try:
                value = exact()
            except Undefined as error:
                return f"undefined ({error})"
            except Unclear:
                continue
            if value < arb(low) or value > arb(high):
                return value.str(20)
            if arb(low) <= value <= arb(high):
                return ""
    return ""


def _number(value: float) -> arb:
    if value != value or abs(value) == float("inf"):
        raise Undefined("executed")
    return arb(value)


def _at_points(expression: Expr, points: Tensor) -> Span:
    low, high = spans(expression, points.reshape(-1, points.shape[-1]))
    return low.reshape(points.shape[:2]), high.reshape(points.shape[:2])


def _exactly(expression: Expr, points: Tensor, values: Callable[[Expr, list[float]], arb]) -> Exact:
    return lambda b, k: values(expression, points[b, k].tolist())


def polynomials(model: TaylorModel, x: TaylorModel, points: Tensor) -> tuple[Tensor, Tensor]:
    """The polynomial of each box at its points (B, K), in float64, and a bound of its rounding."""
    t = _normal(x, points)
    table = torch.as_tensor(basis.exponents(len(model.support), model.degree), device=points.device).double()
    powers = (t[..., None, list(model.support)] ** table).prod(-1)  # (B, K, P)
    slack = 1e-14 * (2 + model.degree) * model.total()
    return torch.einsum("bkp,pb->bk", powers, model.coef), slack[:, None].expand(points.shape[:2])


def _normal(x: TaylorModel, points: Tensor) -> Tensor:
    """The points in the coordinates of their boxes, from -1 to 1."""
    radius = torch.stack([x.coef[1 + i, :, i] for i in range(points.shape[-1])], -1)  # (B, D)
    return torch.where(radius[:, None] > 0, (points - x.coef[0][:, None]) / radius[:, None], 0.0)


def exact_polynomial(model: TaylorModel, x: TaylorModel, point: list[float], b: int) -> arb:
    """The same at one point, in balls."""
    t = []
    for v in model.support:
        centre, radius = float(x.coef[0][b, v]), float(x.coef[1 + v][b, v])
        t.append((arb(point[v]) - arb(centre)) / arb(radius) if radius > 0 else arb(0))
    total = arb(0)
    for row, coefficient in zip(basis.exponents(len(t), model.degree).tolist(), model.coef[:, b].tolist(), strict=True):
        term = arb(coefficient)
        for value, exponent in zip(t, row, strict=True):
            for _ in range(exponent):
                term = term * value
        total = total + term
    return total


def _drawn(rng: Random, case: Any) -> Drawn:
    dim = rng.choice([1, 1, 2, 2, 3])
    low, high = (places.ordinary if rng.random() < 0.7 else places.sides)(rng, dim)
    formula = formulas.attack(rng, low, high)
    case.words |= {"f": text(formula.expression), "low": low, "high": high}
    ends = [torch.tensor(side, dtype=torch.float64) for side in (low, high)]
    return _marked(formula, *ends, rng)


def _marked(formula: formulas.Drawn, low: Tensor, high: Tensor, rng: Random) -> Drawn:
    """The formula with the places at which it was meant to hurt, and those where its operations end."""
    samples = low + (high - low) * _uniform(rng, 64, len(low))
    marks = [places.marked(formula.centres, low, high, rng), samples[:4]]
    for item in arguments_at_risk(formula.expression)[:4]:
        marks.append(places.zeros_of(item, low, high, samples))
    return Drawn(formula, low, high, torch.cat(marks).clamp(low, high))


def _uniform(rng: Random, *size: int) -> Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.rand(*size, generator=generator, dtype=torch.float64)


def _placed(drawn: Drawn, dtype: torch.dtype, rng: Random) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (B, D) of every width that hold a mark, inside or on their edge; points (B, K, D), numbers of the format.

    The points are corners, the mark with its neighbours, random ones; a box grows to hold those that were rounded.
    """
    dim, width = len(drawn.low), drawn.high - drawn.low
    mark = drawn.marks[(_uniform(rng, BOXES) * len(drawn.marks)).long()]
    share = 10 ** (_uniform(rng, BOXES, 1) * NARROWEST) * _uniform(rng, BOXES, dim)
    share[_uniform(rng, BOXES, dim) < 0.08] = 0.0
    before = (_uniform(rng, BOXES, dim) * 2 - 0.5).clamp(0, 1)
    low = (mark - width * share * before).clamp(drawn.low, drawn.high)
    high = (mark + width * share * (1 - before)).clamp(drawn.low, drawn.high)
    place = _uniform(rng, BOXES, POINTS, dim)
    place[:, : POINTS // 8] = place[:, : POINTS // 8].round()
    points = low[:, None] + place * (high - low)[:, None]
    near = places.neighbours(mark[None])  # (5, B, D)
    points[:, -len(near) :] = near.transpose(0, 1)
    points = torch.minimum(torch.maximum(points, low[:, None]), high[:, None]).to(dtype).double()
    return torch.minimum(low, points.amin(1)), torch.maximum(high, points.amax(1)), points
