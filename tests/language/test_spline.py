"""Splines as one operation: read and written, evaluated, in balls, on intervals, on Taylor models, by the checker."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from flint import arb, ctx
from scipy.interpolate import BSpline

from onelayer.checker.arithmetic import coordinate, monomials
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.errors import FormulaError
from onelayer.language.balls import in_balls
from onelayer.language.formula import Formula, parse
from onelayer.language.knots import Spline
from onelayer.language.spline import image
from onelayer.language.tree import Tape
from onelayer.taylor import basis, variables
from onelayer.taylor.hull import evaluate_hulled

DEGREES = [(1,), (2,), (3,), (1, 1), (3, 3), (3, 1), (1, 2, 3)]


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = ctx.prec
    ctx.prec = 128
    yield
    ctx.prec = before


def some(degrees: tuple[int, ...], seed: int = 0) -> Spline:
    """Uneven knots and wild coefficients."""
    rng = np.random.default_rng(seed)
    counts = [k + 3 + axis for axis, k in enumerate(degrees)]
    knots = [np.cumsum(rng.uniform(0.2, 2, n + k + 1)) - 3 for n, k in zip(counts, degrees, strict=True)]
    return Spline(degrees, [axis.tolist() for axis in knots], rng.normal(0, 10, counts))


def formula_of(data: Spline) -> Formula:
    tape = Tape()
    node = tape.add("spline", *(tape.variable(at) for at in range(data.dim)), value=data)
    return Formula.build(tape.nodes, [node], (data.dim,))


def corners(data: Spline) -> tuple[torch.Tensor, torch.Tensor]:
    low = [axis[k] for axis, k in zip(data.knots, data.degrees, strict=True)]
    high = [axis[-k - 1] for axis, k in zip(data.knots, data.degrees, strict=True)]
    return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)


def boxes(data: Spline, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes of all sizes; some end on knots, some are points, some reach beyond the axes."""
    rng = random.Random(seed)
    low, high = corners(data)
    first, last = [], []
    for _ in range(count):
        size = rng.choice([1.0, 0.4, 0.05, 1e-9, 0.0])
        a = [float(p + (q - p) * rng.uniform(-0.1, 1.0)) for p, q in zip(low, high, strict=True)]
        a = [rng.choice([x, rng.choice(axis)]) for x, axis in zip(a, data.knots, strict=True)]
        first.append(a)
        last.append([x + float(q - p) * size for x, p, q in zip(a, low, high, strict=True)])
    return torch.tensor(first, dtype=torch.float64), torch.tensor(last, dtype=torch.float64)


def points(a: torch.Tensor, b: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(24, *a.shape, generator=generator, dtype=torch.float64)
    share[:8] = (share[:8] > 0.5).double()
    return torch.minimum(a + (b - a) * share, b)


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_values_are_those_of_b_splines(degrees: tuple[int, ...]) -> None:
    data = some(degrees)
    low, high = corners(data)
    x = low + (high - low) * torch.rand(50, len(degrees), dtype=torch.float64)
    wanted = torch.zeros(50, dtype=torch.float64)
    for at in product(*(range(n) for n in data.coefficients.shape)):
        term = torch.full((50,), float(data.coefficients[at]), dtype=torch.float64)
        for axis, i in enumerate(at):
            unit = np.eye(data.coefficients.shape[axis])[i]
            term = term * torch.from_numpy(BSpline(data.knots[axis], unit, degrees[axis])(x[:, axis].numpy()))
        wanted += term
    found = formula_of(data)(x)
    assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-11)
    for row, value in zip(x.tolist(), found.tolist(), strict=True):
        (ball,) = in_balls(formula_of(data), row)
        assert abs(float(ball.mid()) - value) < 1e-11


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_text_and_processes_keep_every_number(degrees: tuple[int, ...]) -> None:
    formula = formula_of(some(degrees))
    assert parse(str(formula), len(degrees)) == formula
    assert pickle.loads(pickle.dumps(formula)) == formula
    assert formula_of(some(degrees, 1)) != formula


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
@pytest.mark.parametrize("order", [1, 3, 6])
def test_every_value_lies_in_the_enclosures(degrees: tuple[int, ...], order: int) -> None:
    data = some(degrees)
    formula = formula_of(data)
    a, b = boxes(data, 40, order)
    model = evaluate_hulled(formula, variables(a, b, order), a, b)
    lower, upper = model.range()
    low, high = image(data, *zip(a.T, b.T, strict=True))
    x = points(a, b, order)
    y = formula(x)
    scale = 1e-11 * (1 + y.abs().amax(0))
    assert bool(((y >= lower - scale) & (y <= upper + scale)).all())
    assert bool(((y >= low - scale) & (y <= high + scale)).all())
    assert bool(torch.isfinite(model.rem).all())
    middle, radius = a / 2 + b / 2, (b - a) / 2
    t = torch.where(radius > 0, (x - middle) / torch.where(radius > 0, radius, 1.0), 0.0)[..., list(model.support)]
    powers = torch.tensor(basis.exponents(len(model.support), model.degree), dtype=torch.float64)
    value = (model.coef[:, None] * (t[None] ** powers[:, None, None]).prod(-1)).sum(0)
    assert bool(((value - y).abs() <= model.rem + scale).all())


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_the_checker_encloses_every_value(degrees: tuple[int, ...]) -> None:
    data = some(degrees)
    formula = formula_of(data)
    rng = random.Random(5)
    for low, high in zip(*(side.tolist() for side in boxes(data, 12, 9)), strict=True):
        x = [coordinate(at, p, q, 3) for at, (p, q) in enumerate(zip(low, high, strict=True))]
        found = evaluate(formula, x, Kinks())[0]
        assert found.is_finite()
        for _ in range(6):
            t = [rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]) for _ in low]
            point = [(p + q) / 2 + (q - p) / 2 * s for p, q, s in zip(low, high, t, strict=True)]
            exact = [(2 * arb(x) - arb(p) - arb(q)) / (arb(q) - arb(p)) if q > p else arb(0)
                     for x, p, q in zip(point, low, high, strict=True)]  # fmt: skip
            total = arb(0)
            for c, exponents in zip(found.c, monomials(len(found.support), found.degree), strict=True):
                for variable, n in zip(found.support, exponents, strict=True):
                    c = c * exact[variable] ** n
                total = total + c
            (want,) = in_balls(formula, point)
            inside = all(p <= x <= q for x, p, q in zip(point, low, high, strict=True))
            assert not inside or total.overlaps(want)


def test_inner_expressions_are_enclosed_too() -> None:
    data = some((3, 1))
    text = f"spline(sin(x), x*y/2, {data.text()}) + x"
    formula = parse(text, 2)
    a = torch.rand(30, 2, dtype=torch.float64) - 0.5
    for size in (0.5, 0.05, 1e-6):
        lower, upper = evaluate_hulled(formula, variables(a, a + size, 4), a, a + size).range()
        y = formula(points(a, a + size, 3))
        assert bool(((y >= lower - 1e-10) & (y <= upper + 1e-10)).all())
    assert float((upper - lower).max()) < 1e-3
    x = [coordinate(at, 0.1, 0.2, 3) for at in range(2)]
    (want,) = in_balls(formula, [0.15, 0.12])
    assert evaluate(formula, x, Kinks())[0].range().overlaps(want)


@pytest.mark.parametrize(
    "text",
    [
        "spline(x)",
        "spline(x, [1])",
        "spline(x, [4], [0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3])",
        "spline(x, [1.5], [0, 1, 2, 3], [1, 2])",
        "spline(x, [1], [0, 1, 1, 3], [1, 2])",
        "spline(x, [1], [0, 1, 2, 3], [1, 2, 3])",
        "spline(x, [1], [0, 1, 2, 3], [1, y])",
        "spline(x, [1], [0, 1, 2, 1e999], [1, 2])",
        "spline(x, y, [1], [0, 1, 2, 3], [1, 2])",
        "spline([1], [0, 1, 2, 3], [1, 2])",
    ],
)
def test_irregular_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormulaError) as error:
        parse(text, 2)
    assert "\n" not in str(error.value)
