"""The checker's Taylor arithmetic encloses: formulas against mpmath at random points of random boxes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from operator import add

import mpmath
import pytest
from flint import arb, ctx

from formula_values import formula_values
from onelayer.checker.arithmetic import Taylor, combination, constant, coordinate, monomials, products, whole_power
from onelayer.checker.boxes import below
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import FUNCTIONS, Kinks, apply, power
from onelayer.language.formula import Formula, parse


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 128, 40
    yield
    ctx.prec, ctx.cap = before


def value_at(item: Taylor, t: Sequence[arb]) -> arb:
    """The ball of values that the enclosure allows at t."""
    total = arb(0)
    for c, exponents in zip(item.c, monomials(len(item.support), item.degree), strict=True):
        for variable, exponent in zip(item.support, exponents, strict=True):
            c = c * whole_power(t[variable], exponent)
        total = total + c
    return total


def normalised(point: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[arb]:
    return [
        (2 * arb(x) - arb(a) - arb(b)) / (arb(b) - arb(a)) if b > a else arb(0)
        for x, a, b in zip(point, low, high, strict=True)
    ]


def reference(formula: Formula, point: Sequence[float]) -> list[arb]:
    """The outputs in 60 digits by mpmath."""
    with mpmath.workdps(60):
        return [arb(mpmath.nstr(value, 55)) + arb(0, 1e-40) for value in formula_values(formula, point)]


FORMULAS = [
    "exp(sin(pi*x) + y**2)",
    "cos(0.6*pi + x1 + 1.5*x2 + 2*x3)",
    "log(1 + x) * sqrt(y) / (1 + 25*x**2)",
    "x**1.5 + x**-2 + x**(1/3) + x**y - x**7",
    "tanh(3*x) * sigmoid(y) + atan(x*y) * erf(x - y) + tan(x/2)",
    "abs(x - y) * max(x, y, 0.7) - min(x, y) + relu(x - 0.8)",
    "hypot(x, y, z) + gelu(x) + softplus(y - z)",
    "e**(x*y) / (2 + sin(x + y + z))",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_enclosures_hold(text: str) -> None:
    rng = random.Random(text)
    formula = parse(text)
    checked = 0
    for order in (1, 2, 4, 7):
        for width in (0.0, 1e-6, 0.02, 0.3):
            low = [rng.uniform(0.3, 1.2) for _ in range(formula.dim)]
            high = [a + width for a in low]
            x = [coordinate(i, a, b, order) for i, (a, b) in enumerate(zip(low, high, strict=True))]
            found = evaluate(formula, x, Kinks())
            for _ in range(12):
                point = [rng.choice([a, b, rng.uniform(a, b)]) for a, b in zip(low, high, strict=True)]
                t = normalised(point, low, high)
                for item, want in zip(found, reference(formula, point), strict=True):
                    assert value_at(item, t).overlaps(want)
                    assert item.range().overlaps(want)
                    checked += 1
    assert checked == 16 * 12 * len(formula.outputs)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_remainders_shrink_with_the_order(name: str) -> None:
    x = coordinate(0, 0.6, 0.7, 2)
    widths = []
    for order in (2, 4, 6):
        item = apply(name, Taylor(x.support, x.c, order))
        widths.append(float(item.c[0].rad()))
    assert widths[0] > 20 * widths[1] > 400 * widths[2]


def test_functions_are_undecided_outside_their_domain() -> None:
    x = coordinate(0, -0.1, 0.1, 3)
    for name in ("log", "inv", "rsqrt"):
        assert not apply(name, x).range().is_finite()
    assert not apply("sqrt", x).range().is_finite()
    assert not power(x, -2).range().is_finite()
    assert not below(apply("log", x), arb(1e30), 3)


def test_powers_up_to_the_order_are_exact() -> None:
    cube = power(coordinate(0, -1.0, 1.0, 4), 3)
    assert [str(c.mid()) for c in cube.c[:4]] == ["0", "0", "0", "1.0000000000000000000000000000000000000"]
    assert all(c.rad() < 1e-30 for c in cube.c)


def test_products_cut_off_keep_what_they_cut() -> None:
    x, y = coordinate(0, -1.0, 1.0, 2), coordinate(1, -1.0, 1.0, 2)
    product = (x * y) * (x * y)
    assert value_at(product, [arb(1), arb(1)]).contains(arb(1))
    assert value_at(product, [arb(1), arb(0)]).contains(arb(0))


@pytest.mark.parametrize(
    ("s", "da", "db", "order"), [(1, 3, 2, 4), (3, 2, 4, 4), (2, 5, 1, 3), (4, 2, 2, 9), (0, 0, 0, 2)]
)
def test_products_of_monomials_lie_in_their_places(s: int, da: int, db: int, order: int) -> None:
    found = monomials(s, min(da + db, order))
    for a, row in zip(monomials(s, da), products(s, da, db, order), strict=True):
        wanted = [tuple(map(add, a, b)) for b in monomials(s, db) if sum(a) + sum(b) <= order]
        assert [found[place] for place in row] == wanted


def test_halves_are_the_same_function() -> None:
    item = evaluate(parse("x*y + x**2 - y**3"), [coordinate(i, 0.0, 1.0, 4) for i in range(2)], Kinks())[0]
    upper, lower = item.restricted(1, True), item.restricted(1, False)
    for t in ("-1", "0.25", "1"):
        s = arb(t)
        assert value_at(upper, [arb("0.5"), s]).overlaps(value_at(item, [arb("0.5"), (s + 1) / 2]))
        assert value_at(lower, [arb("0.5"), s]).overlaps(value_at(item, [arb("0.5"), (s - 1) / 2]))


def test_kinks_by_cases_cancel() -> None:
    """|x - y| less two ridges is zero under either sign, and undecided only without cases."""
    x, y = coordinate(0, 0.0, 1.0, 3), coordinate(1, 0.0, 1.0, 3)
    kinks = Kinks()
    gap = kinks.absolute(x - y) - (kinks.relu(x - y) + kinks.relu((y - x).scaled(arb(3))).scaled(arb(1) / 3))
    assert not below(gap, arb(0.1), 4)
    assert kinks.open
    for sign in (1, -1):
        assumed = Kinks([(x - y, sign)])
        gap = assumed.absolute(x - y) - (assumed.relu(x - y) + assumed.relu((y - x).scaled(arb(3))).scaled(arb(1) / 3))
        assert below(gap, arb(1e-30), 0)
        assert not assumed.open


def test_an_undecided_relu_is_enclosed_by_lines() -> None:
    u = coordinate(0, -1.0, 3.0, 2)
    item = Kinks().relu(u)
    for t in (-1.0, -0.75, -0.5, -0.25, 0.0, 0.5, 1.0):
        assert value_at(item, [arb(t)]).contains(arb(max(0.0, 1 + 2 * t)))
    assert item.range().abs_upper() < 4


def test_bounds_are_found_by_bisection() -> None:
    """The coefficients of 1 - t^2 + 0.9 t^4 sum to 2.9, its maximum on [-1, 1] is 1."""
    t = coordinate(0, -1.0, 1.0, 4)
    item = combination([(arb(-1), power(t, 2)), (arb("0.9"), power(t, 4))], arb(1), 4)
    assert not below(item, arb("1.001"), 1)
    assert below(item, arb("1.001"), 100)
    assert not below(item, arb("0.999"), 100)
    assert below(constant(arb(2), 3), arb(2), 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_case_of_one_kink_bounds_another_beside_it(seed: int) -> None:
    """relu(u) and |u| at points where v has the assumed sign, u being nearly a multiple of v, in more variables too."""
    rng = random.Random(seed)
    x, y, z = (coordinate(i, -1.0, 1.0, 2) for i in range(3))
    v = x.shifted(arb(rng.uniform(-0.5, 0.5)))
    if seed % 3:
        v = v + y.scaled(arb(rng.uniform(-2, 2)))
    u = v.scaled(arb(rng.choice([-1, 1]) * rng.uniform(0.5, 2))) + y.scaled(arb(rng.uniform(-0.1, 0.1)))
    u = u.shifted(arb(rng.uniform(-0.1, 0.1)))
    if seed % 2:
        u = u + z.scaled(arb(rng.uniform(-0.1, 0.1)))
    for sign in (1, -1):
        kinks = Kinks([(v, sign)])
        found = kinks.relu(u), kinks.absolute(u)
        for _ in range(200):
            point = [arb(rng.uniform(-1, 1)) for _ in range(3)]
            if float(value_at(v, point).mid()) * sign >= 0:
                number = float(value_at(u, point).mid())
                for enclosure, truth in zip(found, (max(number, 0.0), abs(number)), strict=True):
                    assert value_at(enclosure, point).overlaps(arb(truth, 1e-12))


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "erf", "inv", "log", "sqrt", "atan"])
def test_terms_of_a_series_that_flint_drops_are_unknown_and_not_zero(name: str) -> None:
    """flint keeps as many terms of a series as any thread of the process says; the rest is no remainder of zero."""
    x = coordinate(0, 1.0, 3.0, 4)
    ctx.cap = 40
    exact = apply(name, constant(arb(3), 4)).range()
    ctx.cap = 2
    found = value_at(apply(name, x), [arb(1)])
    assert not found.is_finite() or found.overlaps(exact)
