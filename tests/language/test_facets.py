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
