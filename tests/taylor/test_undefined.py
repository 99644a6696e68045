"""What may be undefined is never bounded, what is computed in float64 stays float64, and lost digits are no bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flint import arb, ctx

from onelayer import Box
from onelayer.checker.arithmetic import constant
from onelayer.checker.attention import Vector
from onelayer.checker.boxes import PROVED, REFUTED, Prover
from onelayer.language.formula import Formula, parse
from onelayer.proof.certify import certify
from onelayer.recording.target import Target
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

U = "((x-0.3137)**2-1e-12)"  # negative in a needle that no sample hits
V = "(x**2-2)**2"  # zero at the square root of two, without a change of sign
POLE = "((x-0.3137)**2*(x+1))"
BOX = Box([0.0], [1.0])
ROOT = Box([1.0], [2.0])

UNDEFINED = [
    *((f"{f}{tail}", BOX) for f in (f"log({U})**0", f"sqrt({U})**0") for tail in ("", "+x", "/(x+5)")),
    *((f"(1/{V})**0{tail}", ROOT) for tail in ("", "/(x+1)")),
    *((f"{g}(1/{V})", ROOT) for g in ("atan", "tanh", "sigmoid", "erf", "sin")),
    *((f"{g}(1/{POLE})", BOX) for g in ("atan", "sin", "cos", "tanh")),
    *((f"{g}({h}({U}))", BOX) for g in ("tanh", "erf", "sin", "atan", "sigmoid") for h in ("log", "sqrt")),
    (f"1/(1+exp(log({U})))", BOX),
    (f"0*log({U})+x", BOX),
    (f"(x-x)*log({U})+x", BOX),
    (f"0/{V}+x", ROOT),
    (f"0*(1/{V})+1/x", ROOT),
    (f"relu(-exp(log({U})))", BOX),
    (f"min(1, tanh(1/{V}))", ROOT),
    (f"(2+tanh(log({U})))/(2+tanh(log({U})))/(x+5)", BOX),
    (f"(1+exp(sqrt({U})))/(1+exp(sqrt({U})))/(x+5)", BOX),
    (f"(1+0*log({U}))/(1+0*log({U}))/(x+5)", BOX),
]


def undoubted(formula: Formula) -> Target:
    """The formula as a target without the search for poles."""
    return Target(formula, formula.input_shape, (), "formula", str(formula), formula)


def constant_model(value: float) -> Callable[[Any], Any]:
    return lambda x: 0.0 * x[..., 0] + value


def prover(formula: Formula, value: float, limit: float, order: int = 4) -> Prover:
    def layer(x: Any, kinks: Any) -> Vector:
        return Vector([constant(arb(value), x[0].order)], [arb(0)])

    return Prover(layer, formula, limit, order, 20)


@pytest.mark.parametrize(("text", "box"), UNDEFINED)
def test_an_undefined_function_is_never_proved(text: str, box: Box) -> None:
    formula = parse(text, 1)
    found = certify(constant_model(0.0), undoubted(formula), box, 10.0, max_boxes=3000)
    assert not found.proved
    bits, ctx.prec = ctx.prec, 128
    try:
        verdict = prover(formula, 0.0, 10.0)(box.lower.tolist(), box.upper.tolist())
    finally:
        ctx.prec = bits
    assert verdict.outcome != PROVED


@pytest.mark.parametrize("g", [torch.tanh, torch.sigmoid, torch.atan, torch.erf, torch.sign, torch.exp, torch.sin])
def test_a_callable_keeps_what_is_undefined(g: Callable[[Any], Any]) -> None:
    x = variables(torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[1.0]], dtype=torch.float64), 3)
    assert not torch.isfinite(g(torch.log(x)).rem).any()


@pytest.mark.parametrize(
    ("text", "value", "truth"),
    [
        ("16777217-cos(3*exp(-1e14*(x-0.3137)**2))", 16777216.0, 1.9899),
        ("16777217+cos(1000*x)", 0.0, 16777218.0),
        ("tanh(sqrt(cos(1000*x)-0.99999999+2))", 0.0, 0.8883),
        ("sin(x)+16777217", 16777217.0, 0.8414),
    ],
)
def test_intervals_of_waves_are_not_rounded_to_float32(text: str, value: float, truth: float) -> None:
    found = certify(constant_model(value), text, BOX, None, gap=0.5, max_boxes=4000)
    assert found.upper >= truth


def test_a_model_in_float32_is_refused() -> None:
    x = variables(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), 2)
    with pytest.raises(TypeError):
        TaylorModel(x.coef.float(), x.rem, x.space, x.support, x.degree)
    assert torch.sign(x).coef.dtype == torch.float64
    assert (torch.sign(x) + 0.1).coef.dtype == torch.float64


@pytest.mark.parametrize("text", ["1e-23/x1/x2/x3+sqrt((pi-pi)**2)", "1e-23/x1/x1/x3+0*x2"])
def test_denominators_that_lose_digits_are_no_bound(text: str) -> None:
    """2e-162 times 2e-162 is 4e-324, which float64 rounds to 4.94e-324."""
    box = Box([2e-162, 2e-162, 1e300], [2.0000001e-162, 2.0000001e-162, 1.0000001e300])
    found = certify(constant_model(0.0), text, box, 2.2, max_boxes=200)
    assert not found.proved
    assert found.upper >= 2.4999


def test_a_false_claim_about_a_constant_is_refused_in_one_verdict() -> None:
    verdict = prover(parse("70/((x-x)-3)", 1), 1.0, 24.0, order=2)([1.0], [2.0])
    assert verdict.outcome == REFUTED


def test_a_variance_without_a_degree_of_freedom_is_no_number() -> None:
    """torch divides by zero where the correction is the number of entries or more, and gives infinity."""
    x = variables(torch.tensor([[0.1, 0.2, 0.4]]), torch.tensor([[0.1, 0.2, 0.5]]), 2, torch.float32)
    for correction in (3, 4, 7):
        assert not bool(x.var(-1, correction=correction).decided().any())


def test_an_interval_of_x_is_none_of_a_difference() -> None:
    """What is known of x by intervals decides a comparison of x with zero, and with no other number."""
    end = torch.tensor([0.2], dtype=torch.float64)
    x = variables(end, end + 0.6, 2)
    narrowed = x.with_hull(end + 0.1, end + 0.2)
    assert bool((narrowed > 0).true.all())
    for number in (0.5, -0.5, 0.35):
        found = narrowed > number
        assert not bool(found.true.any()) or number < 0.2
        assert not bool(found.false.any()) or number > 0.8


def test_a_whole_number_that_no_float_holds_is_enclosed() -> None:
    x = variables(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), 1)
    for number in (2**53 + 1, -(2**60) - 1):
        low, high = (x + number).range()
        assert int(low) <= number <= int(high)


def test_an_inverse_that_is_flushed_may_be_met_by_a_large_number() -> None:
    """1 / 2e38 is no normal float32: executed as a product with it, 1e30 / 2e38 may be zero."""
    x = variables(torch.tensor([[1e30]]), torch.tensor([[1e30]]), 1, torch.float32)
    low, high = (x / 2e38).range()
    assert float(low) <= 0 <= 1e30 / 2e38 <= float(high)
