"""Intervals of float64 that hold the value of an expression, at thousands of points at once.

Each operation is carried out on the ends, by monotony or by a Lipschitz constant, and its result widened by more than
any kernel of torch errs: the width of a span is the computed bound of the rounding so far. NaN: nothing is known.
The intervals are the liar's own, so that a mistake in those of the package is found like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from liar.expressions import Expr

Span = tuple[Tensor, Tensor]
Image = Callable[..., Span]

RELATIVE, ABSOLUTE = 2.0**-49, 2.0**-1060  # more than 4 ulp, and what underflow may lose
GAMMA_LEAST, GAMMA_TURNS = -0.1214862905358496, 1.4616321449683623  # of lgamma, and where: Abramowitz and Stegun 6.1
CANCELLED = 1e-14  # absolute error of lgamma and sinc beside their zeros


def outward(low: Tensor, high: Tensor) -> Span:
    """The same and the rounding of one operation; NaN where an end is none or infinite."""
    low = low - (low.abs() * RELATIVE + ABSOLUTE)
    high = high + (high.abs() * RELATIVE + ABSOLUTE)
    known = torch.isfinite(low) & torch.isfinite(high)
    return torch.where(known, low, torch.nan), torch.where(known, high, torch.nan)


def where(known: Tensor, span: Span) -> Span:
    return torch.where(known, span[0], torch.nan), torch.where(known, span[1], torch.nan)


def hull(*values: Tensor) -> Span:
    stacked = torch.stack(values)
    return stacked.amin(0), stacked.amax(0)


def mul(a: Span, b: Span) -> Span:
    return outward(*hull(*(x * y for x in a for y in b)))


def div(a: Span, b: Span) -> Span:
    return where((b[0] > 0) | (b[1] < 0), outward(*hull(*(x / y for x in a for y in b))))


def rising(function: Callable[[Tensor], Tensor]) -> Image:
    return lambda x: outward(function(x[0]), function(x[1]))


def magnitude(x: Span) -> Span:
    low, high = x
    around = (low < 0) & (high > 0)
    return torch.where(around, 0.0, torch.minimum(low.abs(), high.abs())), torch.maximum(low.abs(), high.abs())


def wave(function: Callable[[Tensor], Tensor], slope: float = 1.0, lost: float = 0.0) -> Image:
    """A function of this Lipschitz constant, from its value in the middle, which errs by ``lost`` beside its zeros."""

    def image(x: Span) -> Span:
        middle = x[0] / 2 + x[1] / 2
        value, reach = function(middle), (x[1] - x[0]) * slope + lost
        return outward(value - reach, value + reach)

    return image


def within(low: float, high: float, image: Image) -> Image:
    """Known only where the argument surely lies between the two."""
    return lambda x: where((x[0] >= low) & (x[1] <= high), image(x))


def tan(x: Span) -> Span:
    same = (torch.cos(x[0]) * torch.cos(x[1]) > 0) & (x[1] - x[0] < 1)
    return where(same, rising(torch.tan)(x))


def lgamma(x: Span) -> Span:
    ends = torch.lgamma(x[0]), torch.lgamma(x[1])
    low, high = hull(*ends)
    around = (x[0] <= GAMMA_TURNS) & (x[1] >= GAMMA_TURNS)
    low = torch.where(around, GAMMA_LEAST, low)
    return outward(low - CANCELLED, high + CANCELLED)


def power(x: Span, exponent: float) -> Span:
    if exponent == 0:
        return where(~torch.isnan(x[0]), (torch.ones_like(x[0]), torch.ones_like(x[1])))
    if exponent < 0:
        return div((torch.ones_like(x[0]),) * 2, power(x, -exponent))
    if not float(exponent).is_integer():  # by the root for half-integers, else by the logarithm
        least = 0.0 if float(2 * exponent).is_integer() else 5e-324
        return within(least, math.inf, rising(lambda u: u**exponent))(x)
    if exponent % 2:
        return rising(lambda u: u**exponent)(x)
    low, high = rising(lambda u: u**exponent)(magnitude(x))
    return low.clamp(min=0), high


def choice(u: Span, a: Span, b: Span) -> Span:
    both = hull(a[0], b[0])[0], hull(a[1], b[1])[1]
    ends = [torch.where(u[0] > 0, x, torch.where(u[1] <= 0, y, z)) for x, y, z in zip(a, b, both, strict=True)]
    return where(~torch.isnan(u[0]), (ends[0], ends[1]))


def hypot(a: Span, b: Span) -> Span:
    return IMAGES["sqrt"](add(IMAGES["square"](a), IMAGES["square"](b)))


def add(a: Span, b: Span) -> Span:
    return outward(a[0] + b[0], a[1] + b[1])


def neg(x: Span) -> Span:
    return -x[1], -x[0]


def _falling(function: Callable[[Tensor], Tensor]) -> Image:
    return lambda x: outward(function(x[1]), function(x[0]))


def _half_erfc(x: Span) -> Span:
    """Phi(x) = erfc(-x / sqrt 2) / 2, which keeps its digits far below zero."""
    return rising(lambda u: torch.special.erfc(-u))(mul(x, _number(x, math.sqrt(0.5))))


def _number(like: Span, value: float) -> Span:
    """A real number next to the float ``value``."""
    return outward(torch.full_like(like[0], value), torch.full_like(like[0], value))


def _cbrt(x: Tensor) -> Tensor:
    return torch.from_numpy(np.cbrt(x.numpy()))


def _exprel(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 1e-20, 1.0, torch.expm1(x) / x)


IMAGES: dict[str, Image] = {
    "add": add,
    "sub": lambda a, b: add(a, neg(b)),
    "mul": mul,
    "div": div,
    "neg": neg,
    "min": lambda a, b: (torch.minimum(a[0], b[0]), torch.minimum(a[1], b[1])),
    "max": lambda a, b: (torch.maximum(a[0], b[0]), torch.maximum(a[1], b[1])),
    "where": choice,
    "hypot": hypot,
    "abs": magnitude,
    "relu": lambda x: (torch.relu(x[0]), torch.relu(x[1])),
    "square": lambda x: power(x, 2),
    "floor": lambda x: (x[0].floor(), x[1].floor()),
    "ceil": lambda x: (x[0].ceil(), x[1].ceil()),
    "sin": wave(torch.sin),
    "cos": wave(torch.cos),
    "sinc": wave(torch.sinc, 1.5, CANCELLED),
    "tan": tan,
    "cosh": lambda x: rising(torch.cosh)(magnitude(x)),
    "erfc": _falling(torch.special.erfc),
    "acos": within(-1.0, 1.0, _falling(torch.acos)),
    "asin": within(-1.0, 1.0, rising(torch.asin)),
    "acosh": within(1.0, math.inf, rising(torch.acosh)),
    "atanh": rising(torch.atanh),
    "lgamma": lambda x: where(x[0] > 0, lgamma(x)),
    "softplus": rising(lambda u: torch.logaddexp(u, torch.zeros_like(u))),
    "silu": lambda x: mul(x, rising(torch.sigmoid)(x)),
    "gelu": lambda x: mul(mul(x, _half_erfc(x)), _number(x, 0.5)),
    "cbrt": rising(_cbrt),
    "third_power": rising(lambda u: u.sign() * u.abs() ** (1 / 3)),
    "exprel": rising(_exprel),
    **{name: rising(getattr(torch, name)) for name in ("log", "log1p", "log2", "log10", "sqrt", "exp", "expm1")},
    **{name: rising(getattr(torch, name)) for name in ("tanh", "atan", "erf", "sinh", "sigmoid", "asinh")},
}


def spans(expression: Expr, points: Tensor) -> Span:
    """Ends, (C,) each, of what the expression is at points (C, D) of float64."""
    values: dict[int, Any] = {}
    zero = torch.zeros_like(points[:, 0])
    for node in expression.walk():
        args = [values[id(arg)] for arg in node.args]
        match node.op:
            case "var":
                values[id(node)] = (points[:, int(node.value)],) * 2
            case "num":
                values[id(node)] = (zero + node.value,) * 2
            case "pi" | "e":
                values[id(node)] = _number((zero, zero), getattr(math, node.op))
            case "pow":
                values[id(node)] = power(args[0], node.value)
            case _:
                values[id(node)] = IMAGES[node.op](*args)
    return values[id(expression)]
