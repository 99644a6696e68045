"""Piecewise functions: each side is enclosed on its own, continuous or not; what is not chosen need not exist."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flint import arb, ctx

import onelayer as ol
from onelayer import Box
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.intervals import image
from onelayer.errors import OnelayerError
from onelayer.language.balls import in_balls
from onelayer.language.formula import parse
from onelayer.observer import Observer
from onelayer.proof.certify import certify
from onelayer.recording.jumps import JumpWarning, find_jump
from onelayer.recording.ramps import ramped
from onelayer.taylor import variables
from onelayer.taylor.hull import evaluate_hulled

TEXTS = [
    "where(x > 0.3, sqrt(x - 0.3), x**2)",
    "where(x < y, sin(x), cos(y))",
    "where(x <= 0 or y > 1, x + y, x*y)",
    "where(not (0 < x < 1 and y != 0.5), exp(x), 3)",
    "floor(3*x) + mod(y, 0.7)",
    "sign(x - y)*ceil(x)",
    "clip(x*y, -0.2, 0.3)",
    "interp(x, [-1, 0, 0.5, 2], [3, 1, y, -1])",
    "where(x > 0, log(x), 0) + where(y > 0.1, 1/y, 10)",
    "where(x == y, 5, x)",
    "atan2(x - 0.25, y - 0.3)",
    "erfc(x*y) + asinh(x) - atanh(y/9)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_values_lie_inside(text: str) -> None:
    """Random boxes, half of them touching a border of the pieces: both arithmetics hold every value."""
    formula, rng = parse(text, 2), random.Random(text)
    for _ in range(60):
        low = [rng.choice([0.0, 0.3, 0.5, rng.uniform(-1, 1)]) for _ in range(2)]
        high = [a + rng.choice([0.0, 0.25, rng.uniform(0, 0.7)]) for a in low]
        a, b = (torch.tensor([side], dtype=torch.float64) for side in (low, high))
        lower, upper = evaluate_hulled(formula, variables(a, b, rng.choice([1, 3])), a, b).range()
        with ctx.workprec(128):
            x = [coordinate(i, *ends, 3) for i, ends in enumerate(zip(low, high, strict=True))]
            checked = evaluate(formula, x, Kinks())[0]
            below, above = image(formula, [(arb(p), arb(q)) for p, q in zip(low, high, strict=True)])[0]
            for _ in range(12):
                point = [rng.choice([p, q, p + (q - p) * rng.random()]) for p, q in zip(low, high, strict=True)]
                (value,) = in_balls(formula, point)
                if not value.is_finite():
                    continue
                assert not value < arb(float(lower)), (point, low, high)
                assert not value > arb(float(upper)), (point, low, high)
                assert not checked.is_finite() or checked.range().overlaps(value)
                assert not below.is_finite() or (not value < below and not value > above)


def test_the_standard_atmosphere_as_a_formula() -> None:
    """Pressure in two layers, continuous at 11 km to rounding."""
    text = "where(h < 11, (1 - 0.0225577*h)**5.25588, 0.2233611*exp(-0.157688*(h - 11)))"
    result = ol.approximate(text, "h[km]=0:20", 1e-3)
    assert result.certificate.proved
    assert result.check().verdict == "accepted"
    layer: Callable[[Any], Any] = result.model
    assert abs(float(layer(torch.tensor([[11.0]], dtype=torch.float64))) - 0.22336) < 2e-3


def test_a_jump_is_refuted_at_a_point_beside_it() -> None:
    found = certify(lambda x: 0.5 * x[..., 0], "where(x < 0.3, 0, 1)", Box([0.0], [1.0]), 0.2, max_boxes=2000)
    assert found.status == "refuted"
    proved = certify(lambda x: 0 * x[..., 0] + 0.5, "where(x < 0.3, 0, 1)", Box([0.0], [1.0]), 0.5001, max_boxes=2000)
    assert proved.proved
    assert proved.upper >= 0.5


def test_a_jump_is_told_with_its_two_points() -> None:
    found = find_jump(parse("where(x < 0.3, 0, 1 + y)", 2), Box([0.0, 0.0], [1.0, 1.0]))
    assert found is not None
    assert 1 <= found.size <= 2
    assert max(abs(a - b) for a, b in zip(found.first, found.second, strict=True)) < 1e-15
    assert (found.first[0] < 0.3) != (found.second[0] < 0.3)
    smooth = find_jump(parse("where(x < 0.5, x, 1 - x)", 1), Box([0.0], [1.0]))
    assert smooth is None or smooth.size < 1e-15
    assert find_jump(parse("sin(x)", 1), Box([0.0], [1.0])) is None
    with pytest.warns(JumpWarning, match=r"jumps by 1 between \(0.2999[0-9]*\) and \(0.3\)"):
        result = ol.approximate("where(x < 0.3, 0, 1)", Box([0.0], [1.0]), 0.1)
    assert result.certificate.status == "refuted"


@pytest.mark.parametrize(
    ("text", "low", "high", "size"),
    [
        ("floor(3*x)", 0.0, 1.0, 1.0),
        ("mod(x, 1)", 0.0, 2.5, 1.0),
        ("sign(x)", -1.0, 1.0, 1.0),
        ("ceil(x)/4", 0, 2, 0.25),
    ],
)
def test_steps_jump_as_choices_do(text: str, low: float, high: float, size: float) -> None:
    found = find_jump(parse(text, 1), Box([low], [high]))
    assert found is not None
    assert found.size == pytest.approx(size)


def test_a_steep_function_is_no_jump() -> None:
    """Between neighbouring floats it changes by 111; so it does between the next ones."""
    for text in ("where(x > 0.5, 1e18*(x - 0.5), 0)", "abs(mod(x, 2) - 1)", "where(x > 0, sqrt(x), 0)"):
        found = find_jump(parse(text, 1), Box([0.0], [3.0]))
        assert found is None or found.size < 1e-12, text


def test_what_no_layer_reaches_ends_soon_and_says_so() -> None:
    """Without a budget it used to look for a closer layer for ever."""
    with pytest.warns(JumpWarning):
        a = ol.approximate("atan2(y, x)", Box([-2.0, -1.0], [-0.5, 1.0]), 0.1)
    assert a.certificate.status == "refuted"
    assert a.certificate.upper < 6.5
    assert "no layer, which is continuous" in a.outcome()
    assert a.advice() == {}


def test_the_angle_of_a_point_on_every_side_of_its_cut() -> None:
    """atan2 jumps by 2 pi on the negative x axis, which belongs to the upper side, and has no value at the origin."""
    formula = parse("atan2(x, y)", 2)
    angles = [(0.0, -1.0, "pi"), (-1e-300, -1.0, "-pi"), (1.0, 0.0, "pi/2"), (-1.0, 0.0, "-pi/2"), (0.0, 2.0, "0")]
    for y, x, angle in angles:
        with ctx.workprec(100):
            (value,) = in_balls(formula, [float(y), float(x)])
            (wanted,) = in_balls(parse(f"{angle} + 0*x", 1), [1.0])
            assert abs(value - wanted) < arb("1e-20"), (y, x)
    assert not in_balls(formula, [0.0, 0.0])[0].is_finite()
    cut = Box([-0.1, -2.0], [0.1, -1.0])
    zero = certify(lambda x: 0 * x[..., 0], formula, cut, 3.2, max_boxes=3000)
    assert zero.proved
    assert zero.upper >= 3.1415
    assert certify(lambda x: torch.atan(x[..., 0] / x[..., 1]), formula, Box([-0.1, 1.0], [0.1, 2.0]), 1e-9).proved
    assert not certify(lambda x: 0 * x[..., 0], formula, Box([-0.1, 0.0], [0.1, 1.0]), 3.2, max_boxes=500).proved


def test_the_angle_on_diagonals_and_axes() -> None:
    """On the borders between its sectors too, and a proof goes across all four."""
    formula = parse("atan2(y, x)", 2)
    side = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    x = torch.cartesian_prod(side, side)
    x = x[(x != 0).any(1)]
    torch.testing.assert_close(formula(x), torch.atan2(x[:, 1], x[:, 0]), rtol=1e-15, atol=1e-15)
    for low, high in (([1.0, -1.0], [2.0, 1.0]), ([-1.0, 0.5], [1.0, 1.0]), ([-1.0, -1.0], [1.0, -0.5])):
        box = Box(low, high)
        found = certify(lambda x: 0 * x[..., 0], formula, box, gap=0.05, max_boxes=500)
        assert found.proved
        assert found.upper >= float(torch.atan2(box.corners(4)[:, 1], box.corners(4)[:, 0]).abs().max())


def test_what_is_not_chosen_need_not_exist() -> None:
    box = Box([-1.0], [1.0])
    assert certify(lambda x: 0 * x[..., 0], "where(x > 0.5, log(x), 0)", box, 0.7, max_boxes=500).proved
    assert certify(lambda x: 0 * x[..., 0], "where(x > 0, sqrt(x), 0)", box, 1.1, max_boxes=500).proved
    for text in ("where(x > -0.5, log(x), 0)", "where(log(x) > 0, 1, 1)", "where(x > 0, 1, log(x))"):
        with pytest.raises(OnelayerError, match="undefined"):
            certify(lambda x: 0 * x[..., 0], text, box, 9.0)
    hidden = "where((x - 0.3137)**2 - 1e-12 > 0, 1, log(-1 - x**2))"
    assert not certify(lambda x: 0 * x[..., 0] + 1, hidden, box, 0.5, max_boxes=2000).proved


def test_a_needle_between_two_pieces_is_seen() -> None:
    """1e-9 wide, at a place that no sample hits: a side that is forgotten would be proved away."""
    text = "where(0.31371 < x < 0.313710001, 5, 0)"
    found = certify(lambda x: 0 * x[..., 0], text, Box([0.0], [1.0]), 1.0, max_boxes=3000)
    assert not found.proved
    assert found.upper >= 5


@pytest.mark.parametrize("text", ["where(x > 0.3, sqrt(x - 0.3), 0)", "where(x < 1/3, sqrt(1/3 - x), x - 1/3)"])
def test_a_piece_that_ends_at_its_border_is_enclosed_there(text):
    formula = parse(text, 1)
    assert parse(str(formula), 1) == formula
    for radius in (0.2, 1e-3, 1e-12):
        a, b = (torch.tensor([[end]], dtype=torch.float64) for end in (1 / 3 - radius, 1 / 3 + radius))
        lower, upper = evaluate_hulled(formula, variables(a, b, 3), a, b).range()
        x = torch.linspace(float(a), float(b), 101, dtype=torch.float64)[:, None]
        y = formula(x)
        assert bool(torch.isfinite(y).all())
        assert bool(((y >= lower) & (y <= upper)).all())
    assert ol.approximate(text, ol.Box([0], [1]), eps=0.06).certificate.proved


def test_steps_that_are_flat_between_are_looked_at_too() -> None:
    """floor(3 x) has no slope anywhere it is looked at; it ends refuted at a jump, not in an error."""
    with pytest.warns(JumpWarning, match="jumps by 1 between"):
        made = ol.approximate("floor(3*x)", Box([0.0], [1.0]), 0.1, max_seconds=5)
    assert made.certificate.status == "refuted"


@pytest.mark.parametrize(
    ("text", "box", "eps"),
    [
        ("where(x < 0.3, 0, 0.1)", (0, 1), 0.1),
        ("where(x < 0.3, 0, x)", (0, 1), 0.2),
        ("x + 0.1*floor(3*x)", (0.1, 0.9), 0.1),
        ("where(x + y < 1, 0, 0.1)", [(0, 1), (0, 1)], 0.1),
    ],
)
def test_a_jump_of_less_than_two_eps_is_proved(text: str, box: Any, eps: float, tmp_path: Path) -> None:
    """A ramp across a jump is half of it away; the layer is compared with f itself, and so does the checker."""
    made = ol.approximate(text, box, eps)
    assert made.certificate.proved
    made.save(tmp_path / "jump")
    assert ol.check(tmp_path / "jump").ok
    points = made.box.sample(4096)
    assert float((made.model(points) - made.target.function(points)).abs().max()) <= made.certificate.upper


def test_a_layer_across_a_larger_jump_is_near_half_of_it() -> None:
    with pytest.warns(UserWarning, match="jumps by 1 between"):
        made = ol.approximate("where(x + y < 1, 0, 1)", [(0, 1), (0, 1)], 0.1)
    assert made.certificate.status == "refuted"
    points = made.box.sample(4096)
    assert float((made.model(points) - made.target.function(points)).abs().max()) < 0.6


def test_a_ramp_is_within_half_of_the_jump() -> None:
    formula = parse("where(x < 0.4, x**2, 1 - x/2) + floor(2*x)", 1)
    found = ramped(formula, ol.Box([0.0], [2.0]), 0.01)
    assert found is not None
    points = ol.Box([0.0], [2.0]).sample(2048)
    assert float((found[0](points) - formula(points)).abs().max()) <= found[1].size / 2 + 0.1
    assert ramped(parse("where(x < 0.5, x, 1 - x)", 1), ol.Box([0.0], [1.0]), 1e-9) is None


def test_looking_for_jumps_ends_with_its_time() -> None:
    # Every border takes a bisection of the whole formula: hundreds of choices took minutes beyond any deadline.
    formula = parse("where(x < 0.3, 0, 1)", 1)
    box = Box([0.0], [1.0])
    assert find_jump(formula, box) is not None
    assert find_jump(formula, box, Observer(0.0)) is None
    assert ramped(formula, box, 0.01, Observer(0.0)) is None
