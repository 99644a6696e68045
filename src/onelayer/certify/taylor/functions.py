"""Torch's elementary functions on Taylor models."""

from __future__ import annotations

import math
from typing import Any

import torch

from onelayer.certify.taylor.arithmetic import combine, div, mul, operand, square
from onelayer.certify.taylor.compose import compose
from onelayer.certify.taylor.core import TaylorModel, constant
from onelayer.certify.taylor.elementary import COS, EXP, LOG, RSQRT, SIN, SQRT, integer_power, power
from onelayer.certify.taylor.registry import implements
from onelayer.certify.taylor.rounding import executed, inflate
from onelayer.certify.taylor.special import ATAN, ERF, SIGMOID, SOFTPLUS, TAN, TANH
from onelayer.errors import UnsupportedOperation

_LARGEST_SERIES_POWER = 32  # beyond, a power is taken by repeated squaring: binomials would outgrow the underflow slack

for _name, _rule in {"exp": EXP, "sin": SIN, "cos": COS, "tan": TAN, "log": LOG, "atan": ATAN, "erf": ERF}.items():
    implements(_name)(lambda x, rule=_rule: compose(rule, x))
for _name, _rule in {"tanh": TANH, "sqrt": SQRT, "rsqrt": RSQRT}.items():
    implements(_name)(lambda x, rule=_rule: compose(rule, x))


@implements("sigmoid")
def sigmoid(x: TaylorModel) -> TaylorModel:
    """Executed as 1 / (1 + exp(-x)): a few more roundings than one function."""
    return compose(SIGMOID, x, roundings=24)


@implements("softplus")
def softplus(x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    """log(1 + e^(beta x)) / beta, which torch replaces by x where beta x > threshold."""
    inner = x if beta == 1 else mul(x, float(beta))
    result = compose(SOFTPLUS, inner, roundings=24)
    switched = inner.range()[1] > threshold
    gap = math.log1p(math.exp(-threshold)) * (1 + 2.0**-40)
    result.rem = torch.where(switched, inflate(result.rem + gap), result.rem)
    return result if beta == 1 else div(result, float(beta))


@implements("exp2")
def exp2(x: TaylorModel) -> TaylorModel:
    return executed_as(compose(EXP, mul(x.untag(), x.constant(math.log(2), 2.0**-52))), x, 8)


@implements("log2")
def log2(x: TaylorModel) -> TaylorModel:
    return executed_as(mul(compose(LOG, x.untag()), x.constant(1 / math.log(2), 2.0**-51).untag()), x, 8)


@implements("log10")
def log10(x: TaylorModel) -> TaylorModel:
    return executed_as(mul(compose(LOG, x.untag()), x.constant(1 / math.log(10), 2.0**-52).untag()), x, 8)


@implements("expm1")
def expm1(x: TaylorModel) -> TaylorModel:
    return executed_as(combine(compose(EXP, x.untag()), 1.0, -1), x, 8)


@implements("log1p")
def log1p(x: TaylorModel) -> TaylorModel:
    return executed_as(compose(LOG, combine(x.untag(), 1.0, 1)), x, 8)


@implements("sinh")
def sinh(x: TaylorModel) -> TaylorModel:
    return executed_as(mul(combine(compose(EXP, x.untag()), compose(EXP, -x.untag()), -1), 0.5), x, 8)


@implements("cosh")
def cosh(x: TaylorModel) -> TaylorModel:
    return executed_as(mul(combine(compose(EXP, x.untag()), compose(EXP, -x.untag()), 1), 0.5), x, 8)


def executed_as(exact: TaylorModel, x: TaylorModel, roundings: float) -> TaylorModel:
    """A function evaluated exactly on the executed argument, with the error of executing it once."""
    result = exact.tagged(x.execution)
    result.rem = executed(result.rem, result.magnitude(), roundings, x.execution)
    return result


@implements("pow", "float_power")
def pow_(base: Any, exponent: Any) -> TaylorModel:
    """x^m for integers m, x^a and a^x for real a (positive base), x^y as e^(y log x)."""
    if not isinstance(base, TaylorModel):
        number = torch.as_tensor(base, dtype=torch.float64, device=exponent.device)
        logarithm = constant(number.log(), exponent, inflate(number.log().abs() * 2.0**-50)).untag()
        return executed_as(compose(EXP, mul(exponent.untag(), logarithm)), exponent, 8)
    if isinstance(exponent, TaylorModel):
        exact = compose(EXP, mul(exponent.untag(), compose(LOG, base.untag())))
        return executed_as(exact, operand(base, exponent) if base.execution else exponent, 8)
    if isinstance(exponent, torch.Tensor):
        if exponent.numel() != 1:
            raise UnsupportedOperation("pow", "an exponent tensor must hold one number")
        exponent = exponent.item()
    if exponent != int(exponent):
        return compose(power(float(exponent)), base)
    return _integer_power(base, int(exponent))


def _integer_power(base: TaylorModel, exponent: int) -> TaylorModel:
    if exponent < 0:
        return executed_as(div(1.0, _integer_power(base.untag(), -exponent)), base, 8)
    if exponent == 0:
        return constant(torch.ones_like(base.rem), base)
    if exponent == 1:
        return base
    if exponent == 2:
        return square(base)
    if exponent <= _LARGEST_SERIES_POWER:
        return compose(integer_power(exponent), base)
    half = _integer_power(base.untag(), exponent // 2)
    whole = square(half) if exponent % 2 == 0 else mul(square(half), base.untag())
    return executed_as(whole, base, 8)


@implements("gelu")
def gelu(x: TaylorModel, approximate: str = "none") -> TaylorModel:
    """x Phi(x) = x (1 + erf(x / sqrt 2)) / 2, or its tanh form; executed errors are relative to |x|."""
    exact = x.untag()
    if approximate == "tanh":
        inner = mul(
            combine(exact, mul(compose(integer_power(3), exact), 0.044715), 1), x.constant(0.7978845608028654, 2e-16)
        )
        gate = compose(TANH, inner.untag())
    else:
        gate = compose(ERF, mul(exact, x.constant(math.sqrt(0.5), 2e-16).untag()))
    result = mul(mul(exact, 0.5), combine(gate, 1.0, 1)).tagged(x.execution)
    result.rem = executed(result.rem, x.magnitude(), 64, x.execution)
    return result


@implements("silu")
def silu(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    return executed_as(mul(x.untag(), compose(SIGMOID, x.untag())), x, 32)
