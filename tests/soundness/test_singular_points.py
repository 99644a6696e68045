"""Functions at the points where they are not analytic: enclosed up to the last float, undefined beyond it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from flint import arb, ctx

from onelayer import Box
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.language.balls import in_balls
from onelayer.language.formula import parse
from onelayer.language.operations import OPERATIONS
from onelayer.proof.certify import certify
from onelayer.taylor import variables
from onelayer.taylor.hull import evaluate_hulled

BELOW_ONE, ABOVE_ONE = math.nextafter(1, 0), math.nextafter(1, 2)
REMOVABLE = ("sin(x)/x", "(exp(x) - 1)/x", "(1 - cos(x))/x**2", "log(1 + x)/x", "sinc(x)", "tan(x)/x", "sinh(x)/x")
AROUND_ZERO = [(-0.5, 0.5), (0.0, 0.9), (0.0, 0.0), (-5e-324, 5e-324), (-1e-300, 1e-9), (1e-9, 2e-9), (-0.9, -0.1)]
# Formula text, and intervals that touch its singular points from where it is defined.
TOUCHING: dict[str, list[tuple[float, float]]] = {
    "asin(x)": [(0.9, 1.0), (-1.0, -0.5), (-1.0, 1.0), (BELOW_ONE, 1.0), (1.0, 1.0), (-1.0, -BELOW_ONE)],
    "acos(x)": [(0.9, 1.0), (-1.0, -0.5), (-1.0, 1.0), (BELOW_ONE, 1.0), (1.0, 1.0), (-1.0, -BELOW_ONE)],
    "cbrt(x)": [(0.0, 1.0), (-1.0, 0.0), (-1.0, 1.0), (0.0, 5e-324), (0.0, 0.0), (-1e-300, 1e-300), (1e-9, 1e-8)],
    "lgamma(x)": [(1e-6, 1.0), (0.9, 1.1), (1.4, 1.5), (BELOW_ONE, ABOVE_ONE), (9.5, 10.5), (1e-300, 1e-299)],
    **dict.fromkeys(REMOVABLE, AROUND_ZERO),
}
# And intervals that hold points at which it has no value.
BEYOND: dict[str, list[tuple[float, float]]] = {
    "asin(x)": [(0.9, ABOVE_ONE), (-ABOVE_ONE, 0.0), (1.5, 2.0), (-3.0, 3.0)],
    "acos(x)": [(0.9, ABOVE_ONE), (-ABOVE_ONE, 0.0), (1.5, 2.0), (-3.0, 3.0)],
    "lgamma(x)": [(0.0, 1.0), (-0.5, 0.5), (-1.5, -1.2), (-5e-324, 3.0)],
    "log(1 + x)/x": [(-1.0, 0.5), (-3.0, -2.0)],
    "cos(x)/x": [(-1.0, 1.0), (0.0, 1.0)],
    "log(x)**0": [(-2.0, -1.0), (-1.0, 1.0), (0.0, 0.0)],
    "(1/x)**0": [(-1.0, 1.0), (0.0, 0.0)],
    "sin(x)*y/(x*y)".replace("y", "(x - 0.5)"): [(0.0, 1.0), (0.5, 0.5)],
}
CASES = [(text, *ends) for text, intervals in TOUCHING.items() for ends in intervals]


def enclosed(text: str, low: float, high: float, order: int) -> tuple[float, float]:
    a, b = (torch.tensor([[end]], dtype=torch.float64) for end in (low, high))
    lower, upper = evaluate_hulled(parse(text, 1), variables(a, b, order), a, b).range()
    return float(lower), float(upper)


def points(low: float, high: float) -> list[float]:
    inner = [low + (high - low) * share for share in (0.1, 0.37, 0.5, 0.93)]
    return [low, math.nextafter(low, high), *inner, math.nextafter(high, low), high]


@pytest.mark.parametrize(("text", "low", "high"), CASES)
def test_values_up_to_the_singular_point_are_enclosed(text: str, low: float, high: float) -> None:
    formula = parse(text, 1)
    for order in (1, 3, 6):
        lower, upper = enclosed(text, low, high, order)
        assert -math.inf < lower <= upper < math.inf
        with ctx.workprec(128):
            checked = evaluate(formula, [coordinate(0, low, high, order)], Kinks())[0]
            assert checked.is_finite()
            for point in points(low, high):
                (value,) = in_balls(formula, [point])
                assert value.is_finite()
                assert not value < arb(lower), (point, value, lower)
                assert not value > arb(upper), (point, value, upper)
                assert checked.range().overlaps(value)


@pytest.mark.parametrize(("text", "low", "high"), [(t, *ends) for t, rows in BEYOND.items() for ends in rows])
def test_nothing_is_said_beyond_it(text: str, low: float, high: float) -> None:
    lower, upper = enclosed(text, low, high, 3)
    assert not (math.isfinite(lower) and math.isfinite(upper))
    with ctx.workprec(128):
        assert not evaluate(parse(text, 1), [coordinate(0, low, high, 3)], Kinks())[0].is_finite()


@pytest.mark.parametrize("text", ["asin(x)", "acos(x)", "sinc(x)"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_torch_executes_lies_inside(text: str, dtype: torch.dtype) -> None:
    function = getattr(torch, text.split("(")[0])
    for low, high in ((-0.999, 0.999), (0.99, 0.9999), (0.5, 1.0)):
        a, b = (torch.tensor([[end]], dtype=torch.float64) for end in (low, high))
        lower, upper = function(variables(a, b, 4, execution=dtype)).range()
        x = torch.linspace(low, high, 400, dtype=torch.float64).to(dtype)
        x = x[(x.double() >= low) & (x.double() <= high)]
        y = function(x).double()
        inside = (y >= lower.flatten()) & (y <= upper.flatten())
        assert bool(inside.all()) or not bool(torch.isfinite(lower) & torch.isfinite(upper))


@pytest.mark.parametrize("name", ["asin", "acos", "cbrt", "sinrel", "exprel"])
def test_a_spike_is_not_missed(name: str) -> None:
    """T = g but for a needle at c: an enclosure of g that misses its value there would prove T - g small."""
    c, function = 0.8125, OPERATIONS[name].torch

    def spiked(x: Any) -> Any:
        return function(x[..., 0]) + 1e-3 * (1 - torch.tanh(1e8 * (x[..., 0] - c)) ** 2)

    box = Box([0.5], [0.97])
    found = certify(spiked, f"{name}(x)", box, 5e-4, max_boxes=4000)
    assert not found.proved
    assert found.upper >= 9.99e-4
    assert certify(lambda x: function(x[..., 0]), f"{name}(x)", box, 1e-12, max_boxes=4000).proved
