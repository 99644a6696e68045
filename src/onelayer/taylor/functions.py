"""Torch's elementary functions on Taylor models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from onelayer.errors import UnsupportedOperation
from onelayer.taylor import elementary, inverse, means, roots, special
from onelayer.taylor.arithmetic import combine, div, mul, operand, square
from onelayer.taylor.compose import compose
from onelayer.taylor.conditions import gt, where
from onelayer.taylor.core import TaylorModel, constant
from onelayer.taylor.elementary import EXP, LOG, Elementary, integer_power, power
from onelayer.taylor.means import SINREL
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import executed, inflate
from onelayer.taylor.special import ERF, SIGMOID, SOFTPLUS, TANH

_LARGEST_POWER = 2**20  # beyond, the bound of the rounding of a power is useless
_LARGEST_SERIES_POWER = 32  # beyond, a power is taken by repeated squaring: binomials would outgrow the underflow slack


def _composed(rule: Elementary, roundings: float = 8) -> Callable[[TaylorModel], TaylorModel]:
    def function(x: TaylorModel) -> TaylorModel:
        return compose(rule, x, roundings)

    return function


for _rule in (*elementary.RULES, *special.RULES, *inverse.RULES):
    implements(_rule.name)(_composed(_rule))
for _rule in (*means.RULES, *roots.RULES):
    implements(_rule.name)(_composed(_rule, roundings=24))  # executed in several steps


@implements("sigmoid")
def sigmoid(x: TaylorModel) -> TaylorModel:
    """Executed as 1 / (1 + exp(-x)): a few more roundings than one function."""
    return compose(SIGMOID, x, roundings=24)


@implements("sinc")
def sinc(x: TaylorModel) -> TaylorModel:
    """sin(pi x) / (pi x), 1 at 0. The executed pi x errs by three units of itself, where |sinrel'(p) p| <= 2."""
    pi = x.constant(math.pi, math.ulp(math.pi)).untag()
    result = compose(SINREL, mul(x.untag(), pi)).tagged(x.execution)
    reach = torch.ones_like(result.rem) * math.pi + x.magnitude()
    result.rem = executed(result.rem, reach, 32, x.execution)
    return result


@implements("softplus")
def softplus(x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    """log(1 + e^(beta x)) / beta, which torch replaces by x where beta x > threshold; below, e^(beta x) is executed."""
    inner = x if beta == 1 else mul(x, float(beta))
    curved = compose(SOFTPLUS, inner, roundings=24)
    _, upper = inner.range()
    largest = torch.exp(upper.clamp(max=float(threshold)))
    curved.rem = executed(curved.rem, inflate(largest), 0, x.execution)
    curved = curved if beta == 1 else div(curved, float(beta))
    return where(gt(inner, float(threshold)), x, curved)


@implements("exp2")
def exp2(x: TaylorModel) -> TaylorModel:
    """2^x by exp; log(2) is enclosed."""
    scaled = mul(x.untag(), x.constant(math.log(2), 2.0**-52))
    return _executed_as(compose(EXP, scaled), x, 8)


@implements("log2")
def log2(x: TaylorModel) -> TaylorModel:
    """log(x) / log(2), with the constant enclosed."""
    factor = x.constant(1 / math.log(2), 2.0**-51).untag()
    return _executed_as(mul(compose(LOG, x.untag()), factor), x, 8)


@implements("log10")
def log10(x: TaylorModel) -> TaylorModel:
    """log(x) / log(10), with the constant enclosed."""
    factor = x.constant(1 / math.log(10), 2.0**-52).untag()
    return _executed_as(mul(compose(LOG, x.untag()), factor), x, 8)


@implements("expm1")
def expm1(x: TaylorModel) -> TaylorModel:
    """exp(x) - 1 as one executed function."""
    return _executed_as(combine(compose(EXP, x.untag()), 1.0, -1), x, 8)


@implements("log1p")
def log1p(x: TaylorModel) -> TaylorModel:
    """log(1 + x) as one executed function."""
    return _executed_as(compose(LOG, combine(x.untag(), 1.0, 1)), x, 8)


@implements("sinh")
def sinh(x: TaylorModel) -> TaylorModel:
    """(exp(x) - exp(-x)) / 2."""
    rising, falling = _exponentials(x)
    return _executed_as(mul(combine(rising, falling, -1), 0.5), x, 8)


@implements("cosh")
def cosh(x: TaylorModel) -> TaylorModel:
    """(exp(x) + exp(-x)) / 2."""
    rising, falling = _exponentials(x)
    return _executed_as(mul(combine(rising, falling, 1), 0.5), x, 8)


def _exponentials(x: TaylorModel) -> tuple[TaylorModel, TaylorModel]:
    """exp(x) and exp(-x), exactly on the executed argument."""
    exact = x.untag()
    return compose(EXP, exact), compose(EXP, -exact)


def _executed_as(exact: TaylorModel, x: TaylorModel, roundings: float) -> TaylorModel:
    """A function evaluated exactly on the executed argument, with the error of executing it once."""
    result = exact.tagged(x.execution)
    result.rem = executed(result.rem, result.magnitude(), roundings, x.execution)
    return result


@implements("pow")
def pow_(base: Any, exponent: Any) -> TaylorModel:
    """x^m for integers m, x^a and a^x for real a (positive base), x^y as e^(y log x).

    A constant that the executing type cannot hold is rounded to it first: a^x with a (1 +- r) for a is
    e^(x (log a +- 1.01 r)), and x^a with a +- r for a is x^a e^(+- r log x).
    """
    if not isinstance(base, TaylorModel):
        logarithm = _log_of_constant(base, exponent)
        return _executed_as(compose(EXP, mul(exponent.untag(), logarithm)), exponent, 8)
    if isinstance(exponent, TaylorModel):
        logarithm = compose(LOG, base.untag())
        exact = compose(EXP, mul(exponent.untag(), logarithm))
        return _executed_as(exact, base if base.execution else exponent, 8)
    number = _single(exponent, base)
    if number == int(number):
        return _integer_power(base, int(number))
    result = compose(power(number), base)
    error = operand(number, base).rem
    if bool(error > 0):
        lower, upper = base.range()
        size = inflate(torch.maximum(lower.log().abs(), upper.log().abs()))
        relative = 1.01 * torch.expm1(inflate(error * size))
        result = result.with_radius(result.magnitude() * relative)
    return result


def _log_of_constant(base: Any, like: TaylorModel) -> TaylorModel:
    """log a for a constant a > 0 as the executing type holds it, as an exact model."""
    known = operand(base, like)
    number = known.coef[0]
    error = known.rem
    # log(a (1 + r)) is within 1.01 |r| of log a for |r| < 0.01.
    relative = torch.where(error > 0, inflate(error / number), error)
    relative = torch.where(relative < 0.01, 1.01 * relative, torch.inf)
    logarithm = number.log()
    radius = inflate(logarithm.abs() * 2.0**-50 + relative)
    return constant(logarithm, like, radius).untag()


def _single(exponent: Any, base: TaylorModel) -> float:
    """An exponent that is one finite number and does not enlarge the shape of the base."""
    if isinstance(exponent, torch.Tensor):
        if exponent.numel() != 1 or exponent.ndim > base.ndim:
            raise UnsupportedOperation("pow", "an exponent tensor must hold one number")
        exponent = exponent.item()
    if not math.isfinite(exponent) or (exponent == int(exponent) and abs(exponent) > _LARGEST_POWER):
        raise UnsupportedOperation(f"pow with exponent {exponent}", f"integers up to {_LARGEST_POWER}, real numbers")
    return float(exponent)


def _integer_power(base: TaylorModel, exponent: int) -> TaylorModel:
    if exponent < 0:
        return _executed_as(div(1.0, _integer_power(base.untag(), -exponent)), base, 8)
    # 1, and undecided where the base is: what has no value leaves none.
    if exponent == 0:
        one = constant(torch.ones_like(base.rem), base)
        return one.with_(one.coef, torch.where(base.decided(), one.rem, torch.inf))
    if exponent == 1:
        return base
    if exponent == 2:
        return square(base)
    if exponent <= _LARGEST_SERIES_POWER:
        return compose(integer_power(exponent), base)
    # Exactly on the executed base, and rounded once at the end: torch's pow is one function.
    half = _integer_power(base.untag(), exponent // 2)
    whole = square(half) if exponent % 2 == 0 else mul(square(half), base.untag())
    return _executed_as(whole, base, 8)


@implements("gelu")
def gelu(x: TaylorModel, approximate: str = "none") -> TaylorModel:
    """x Phi(x) = x (1 + erf(x / sqrt 2)) / 2, or its tanh form; executed errors are relative to |x|."""
    exact = x.untag()
    if approximate not in ("none", "tanh"):
        raise UnsupportedOperation(f"gelu(approximate={approximate!r})")
    if approximate == "tanh":
        cubed = compose(integer_power(3), exact)
        bent = combine(exact, mul(cubed, 0.044715), 1)
        inner = mul(bent, x.constant(0.7978845608028654, 2e-16))  # sqrt(2 / pi)
        gate = compose(TANH, inner.untag())
    else:
        root_half = x.constant(math.sqrt(0.5), 2e-16).untag()
        gate = compose(ERF, mul(exact, root_half))
    half = mul(exact, 0.5)
    result = mul(half, combine(gate, 1.0, 1)).tagged(x.execution)
    result.rem = executed(result.rem, x.magnitude(), 64, x.execution)
    return result


@implements("silu")
def silu(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """x sigmoid(x)."""
    exact = x.untag()
    return _executed_as(mul(exact, compose(SIGMOID, exact)), x, 32)
