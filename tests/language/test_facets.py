"""Functions that are affine on simplices: read and written, evaluated, enclosed, by the checker too."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from flint import arb, ctx
from scipy.interpolate import LinearNDInterpolator

import onelayer as ol
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.errors import FormulaError, OnelayerError
from onelayer.language.balls import in_balls
from onelayer.language.facets import image
from onelayer.language.formula import parse
from onelayer.recording.scattered import Scattered
from onelayer.taylor import variables
from onelayer.taylor.hull import evaluate_hulled


def rows(dim: int, count: int = 25) -> Scattered:
    rng = np.random.default_rng(dim)
    points = np.concatenate(
        [rng.uniform(0, 1, (count, dim)), np.array(np.meshgrid(*[[0.0, 1.0]] * dim)).reshape(dim, -1).T]
    )
    points = points * ([5200.0, 100.0, 3.0][:dim]) + 7.0
    return Scattered(points, np.sin(points).sum(1) * 10, ("a", "b", "c")[:dim])


@pytest.mark.parametrize("dim", [2, 3])
def test_values_are_those_of_scipy(dim: int) -> None:
    table = rows(dim)
    x = table.box.sample(300)
    low, high = table.points.min(0), table.points.max(0)
    wanted = LinearNDInterpolator(table.triangulation, table.values)((x.numpy() - low) / (high - low))
    assert np.abs(table(x).numpy() - wanted).max() < 1e-8
    assert table.rows_within < 1e-10
    assert parse(str(table.formula), dim) == table.formula
    assert pickle.loads(pickle.dumps(table.formula)) == table.formula


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("size", [1.0, 0.3, 0.02, 1e-9, 0.0])
def test_every_value_lies_in_the_enclosures(dim: int, size: float) -> None:
    table = rows(dim)
    box = table.box
    a = box.lower + box.width * torch.rand(30, dim, dtype=torch.float64) * (1 - size)
    b = torch.minimum(a + box.width * size, box.upper)
    lower, upper = evaluate_hulled(table.formula, variables(a, b, 3), a, b).range()
    low, high = image(table.formula.nodes[-1].value, *zip(a.T, b.T, strict=True))
    share = torch.rand(30, *a.shape, dtype=torch.float64)
    share[:8] = (share[:8] > 0.5).double()
    y = table(torch.minimum(a + (b - a) * share, b))
    assert bool(((y >= lower - 1e-9) & (y <= upper + 1e-9)).all())
    assert bool(((y >= low - 1e-9) & (y <= high + 1e-9)).all())
    if size < 1e-3:
        assert float((upper - lower).max()) < 1e-3


def test_the_checker_encloses_every_value() -> None:
    table, rng = rows(2), random.Random(3)
    with ctx.workprec(128):
        for size in (0.3, 0.02, 1e-9, 0.0):
            low = [p + (q - p) * rng.random() * (1 - size) for p, q in zip(*_corners(table), strict=True)]
            high = [x + (q - p) * size for x, p, q in zip(low, *_corners(table), strict=True)]
            found = evaluate(
                table.formula, [coordinate(i, p, q, 3) for i, (p, q) in enumerate(zip(low, high, strict=True))], Kinks()
            )[0]
            assert found.is_finite()
            for _ in range(10):
                point = [min(q, p + (q - p) * rng.random()) for p, q in zip(low, high, strict=True)]
                (want,) = in_balls(table.formula, point)
                assert want.is_finite()
                assert (found.range() + arb(0, 1e-25)).overlaps(want)


def _corners(table: Scattered) -> tuple[list[float], list[float]]:
    return table.box.lower.tolist(), table.box.upper.tolist()


def test_scattered_rows_become_such_a_function() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (2, 40))
    table = ol.Table.read({"x": x, "y": y, "z": x + 2 * y}, inputs=["x", "y"], output="z")
    assert isinstance(table, Scattered)
    assert table.covers(table.box)
    made = ol.approximate(table, table.box, eps=0.05)
    assert made.certificate.proved
    with pytest.raises(OnelayerError, match="table ends at"):
        ol.approximate(table, ol.Box([-1, -1], [2, 2]), eps=0.1)
    with pytest.raises(OnelayerError, match="linear interpolant only"):
        ol.Table.read({"x": x, "y": y, "z": x}, inputs=["x", "y"], output="z", interpolate="cubic")


@pytest.mark.parametrize(
    "text",
    [
        "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4], [0, 1, 2])",
        "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3], [0, 1, 3])",
        "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3], [0, 1])",
        "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3], [0, 1, 1.5])",
        "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3])",
        "facets(x, y)",
    ],
)
def test_irregular_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormulaError) as error:
        parse(text, 2)
    assert "\n" not in str(error.value)


def test_slopes_too_small_for_their_own_rounding_are_enclosed() -> None:
    formula = parse("facets(x, [1e202, 3e202, 4e202], [1e-122, 2e-122, -1e-122], [0, 1, 1, 2])", 1)
    a = torch.tensor([[1e202], [2e202], [2.9e202]], dtype=torch.float64)
    for b in (a, a * 1.1):
        lower, upper = evaluate_hulled(formula, variables(a, b, 2), a, b).range()
        low, high = image(formula.nodes[-1].value, (a[:, 0], b[:, 0]))
        for at, point in enumerate(a[:, 0].tolist()):
            (want,) = in_balls(formula, [point])
            assert arb(float(lower[at])) <= want <= arb(float(upper[at]))
            assert arb(float(low[at])) <= want <= arb(float(high[at]))


def test_boxes_of_neighbouring_subnormal_numbers_have_a_width() -> None:
    """Half of 5e-324 is 0: with it as a radius, a slope of 5e113 had one value on the box."""
    formula = parse("facets(x, [-6e74, 0], [-3e188, -2e-205], [0, 1])", 1)
    low = torch.tensor([[-5e-324], [0.0], [-1.5e-323]], dtype=torch.float64)
    high = torch.tensor([[0.0], [5e-324], [-1e-323]], dtype=torch.float64)
    lower, upper = evaluate_hulled(formula, variables(low, high, 2), low, high).range()
    least, most = image(formula.nodes[-1].value, (low[:, 0], high[:, 0]))
    for at in range(3):
        for end in (float(low[at]), float(high[at])):
            (want,) = in_balls(formula, [end])
            assert arb(float(lower[at])) <= want <= arb(float(upper[at]))
            assert arb(float(least[at])) <= want <= arb(float(most[at]))


@pytest.mark.parametrize(
    ("points", "values"),
    [
        (
            "-4.829531374838048e111, 6933919485493.182, -127800317405.45233, 6933919485493.185,"
            " -8.593832271050468e-103, 6933919485493.185",
            [-2.16813768724521e-65, 2.621014807247293e146, -5.189716139212963e-48],
        ),
        (
            "-5.142927355209371e-74, -1.5938569051269203e87, -37387.08528997806, -1.5938569051269203e87,"
            " -2.1260813084324694e106, -1.5938569051269214e87",
            [5.042809138389804e-66, 6.323294806280979e-31, -1.0665183356309139e120],
        ),
    ],
)
def test_forms_of_corners_that_cancel_are_known_to_their_rounding(points: str, values: list[float]) -> None:
    """At a corner the value is the given one; 400 bits lost all digits of a slope."""
    data = parse(f"facets(x, y, [{points}], {values}, [0, 1, 2])", 2).nodes[-1].value
    for (x, y), value in zip(data.points.tolist(), values, strict=True):
        low, high = image(data, *((torch.tensor([end], dtype=torch.float64),) * 2 for end in (x, y)))
        assert float(low) <= value <= float(high)


def test_slopes_beyond_all_floats_are_refused() -> None:
    """Of an infinite slope the simplices that count are unknown: an empty interval had a negative radius."""
    steep = "facets(x, [0, 1e-320, 1], [0, 1, 0.5], [0, 1, 1, 2])"
    spike = "(1 - tanh(1e8*(x - 0.7312345))**2)"
    with pytest.raises(FormulaError, match="slopes of facets"):
        ol.certify(parse("0*x", 1), f"where(x > 0.5, {spike}*tanh({steep}), 0.001*x)", ol.Box([0], [1]), eps=1e-3)
