"""The checker's arithmetic on many boxes at once encloses what balls say: at points, at spikes, at extremes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from flint import arb, fmpq

from onelayer.checker import many, polynomials, spans, sweep
from onelayer.checker.arithmetic import Taylor, constant, count, monomials
from onelayer.checker.functions import FUNCTIONS, Kinks, apply, power
from onelayer.checker.intervals import image
from onelayer.checker.many import Many, coordinates
from onelayer.checker.polynomials import stay_below
from onelayer.checker.precision import precise
from onelayer.checker.quotient import quotients
from onelayer.checker.spans import Span, as_floats, exponential_above
from onelayer.language.formula import parse

ORDER = 3
BOXES = 40


@pytest.fixture(autouse=True)
def in_balls() -> Iterator[None]:
    with precise():
        yield


def exactly(item: Many, box: int, t: list[float]) -> arb:
    """Where the function may lie at the point t of a box."""
    total = arb(0)
    for c, exponents in zip(item.p[:, box].tolist(), monomials(len(item.support), item.degree), strict=True):
        term = arb(c)
        for at, exponent in zip(item.support, exponents, strict=True):
            term = term * arb(t[at]) ** exponent
        total = total + term
    return total + arb(0, 1) * arb(item.rest[box])


def boxes(rng: random.Random, dim: int, sizes: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of all widths around numbers of all sizes."""
    middle = np.array(
        [[rng.choice([-1, 1]) * rng.choice(sizes) * rng.uniform(0.5, 1) for _ in range(dim)] for _ in range(BOXES)]
    )
    width = np.abs(middle) * np.array([[rng.choice([0.0, 1e-12, 1e-3, 0.4]) for _ in range(dim)] for _ in range(BOXES)])
    return middle - width, middle + width


def inside(x: list[Taylor], box: int, t: list[float]) -> list[arb]:
    """The point of a box that t stands for, exactly."""
    found = []
    for item, one in zip(x, t, strict=True):
        assert isinstance(item, Many)
        found.append(arb(float(item.p[0, box])) + arb(float(item.p[1, box])) * arb(one))
    return found


def agree(made: Taylor, value: Callable[[list[arb]], arb], x: list[Taylor], rng: random.Random) -> int:
    """Random points, corners and centres of every box; how many were compared."""
    assert isinstance(made, Many)
    seen = 0
    for box in range(BOXES):
        if not made.defined()[box]:
            continue
        for t in ([rng.uniform(-1, 1) for _ in x], [rng.choice([-1.0, 1.0]) for _ in x], [0.0 for _ in x]):
            true = value(inside(x, box, t))
            if true.is_finite():
                assert exactly(made, box, t).contains(true.mid()), f"box {box} at {t}: {true}"
                seen += 1
    return seen


SIZES = [[1.0, 3.0, 0.1], [1e-3, 1e3], [1e-160, 1e-150], [1e150, 1e154], [5e-324, 1e-310, 1e-300]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_and_products_hold_every_value(sizes: list[float]) -> None:
    rng = random.Random(str(sizes))
    low, high = boxes(rng, 2, sizes)
    x = coordinates(low, high, ORDER)
    a, b = x
    third = arb(fmpq(1, 3))
    cases: list[tuple[Taylor, Callable[[list[arb]], arb]]] = [
        (a + b, lambda v: v[0] + v[1]),
        (a - b, lambda v: v[0] - v[1]),
        (a * b, lambda v: v[0] * v[1]),
        ((a + b) * (a - b) * a, lambda v: (v[0] + v[1]) * (v[0] - v[1]) * v[0]),
        (power(a * b + a, 3), lambda v: (v[0] * v[1] + v[0]) ** 3),
        ((a * b).scaled(third).shifted(third), lambda v: v[0] * v[1] * third + third),
        (constant(third, ORDER) - a * constant(third, ORDER), lambda v: third - v[0] * third),
        (a.weighted([(third, a), (arb(-2), b), (arb(1), constant(third, ORDER))], arb(7), ORDER),
         lambda v: third * v[0] - 2 * v[1] + third + 7),
        ((a * a * a * a * b).at_order(2), lambda v: v[0] ** 4 * v[1]),
        (Kinks().relu(a + b), lambda v: (v[0] + v[1]).max(arb(0))),
        (Kinks().absolute(a * b), lambda v: abs(v[0] * v[1])),
        (Kinks().maximum(a, b * b), lambda v: v[0].max(v[1] * v[1])),
    ]  # fmt: skip
    for at, (made, value) in enumerate(cases):
        seen = agree(made, value, x, rng)
        assert seen > BOXES or max(sizes) > 1e100, at  # products of huge numbers overflow, and say so


@pytest.mark.parametrize("sizes", SIZES[:4], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_hold_every_value(name: str, sizes: list[float]) -> None:
    rng = random.Random(f"{name} {sizes}")
    low, high = boxes(rng, 2, sizes)
    x = coordinates(low, high, ORDER)
    u = x[0] + x[1] * x[1].scaled(arb(0.25))
    agree(apply(name, x[0]), lambda v: FUNCTIONS[name].at(v[0]), x, rng)
    agree(apply(name, u), lambda v: FUNCTIONS[name].at(v[0] + v[1] * v[1] / 4), x, rng)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_something_on_small_boxes(name: str) -> None:
    low = np.linspace(0.2, 0.7, BOXES)[:, None]
    x = coordinates(low, low + 1e-3, ORDER)
    made = apply(name, x[0])
    assert isinstance(made, Many)
    assert made.is_finite()
    assert float(made.rest.max()) < 1e-9
    assert agree(made, lambda v: FUNCTIONS[name].at(v[0]), x, random.Random(name)) == 3 * BOXES


def test_a_box_is_inside_its_coordinates() -> None:
    rng = random.Random(1)
    for sizes in SIZES:
        low, high = boxes(rng, 1, sizes)
        (x,) = coordinates(low, high, ORDER)
        assert isinstance(x, Many)
        for at in range(BOXES):
            middle, radius = arb(float(x.p[0, at])), arb(float(x.p[1, at]))
            assert middle - radius <= arb(low[at, 0])
            assert middle + radius >= arb(high[at, 0])


def test_spans_round_outwards() -> None:
    rng = random.Random(2)
    for _ in range(300):
        numbers = [rng.choice([-1, 1]) * 10 ** rng.uniform(-320, 300) for _ in range(2)]
        x, y = (arb(v) for v in numbers)
        a, b = (Span(v, v) for v in numbers)
        for made, true in ((a + b, x + y), (a * b, x * y), (a.widened(abs(numbers[1])), x + abs(y))):
            held = arb(float(made.low)) <= true.lower() and true.upper() <= arb(float(made.high))
            assert held or not np.isfinite([made.low, made.high]).all() or made.high >= float(true)
        size = abs(numbers[0]) % 700
        assert arb(float(exponential_above(np.array(size)))) >= arb(size).exp()
        made = Span(-size, size).exp()
        assert arb(float(made.low)) <= arb(-size).exp()
        assert arb(float(made.high)) >= arb(size).exp()
        middle, radius = as_floats(x / 3)
        assert abs(arb(middle) - x / 3) <= arb(radius)


@pytest.mark.parametrize(
    "text", ["where(x1 > x2, x1*x2, x2 - 1)", "where(x1 > 0, exp(x1), 1 + x1)", "clip(x1*x2, -0.5, 0.5)"]
)
def test_choices_hold_every_value(text: str) -> None:
    rng = random.Random(text)
    formula = parse(text, 2)
    assert sweep.knows(formula)
    low, high = boxes(rng, 2, SIZES[0])
    x = coordinates(low, high, ORDER)
    (made,) = sweep.evaluate(formula, x)

    def value(v: list[arb]) -> arb:
        low, high = image(formula, [(one.lower(), one.upper()) for one in v])[0]
        return low.union(high) if (high - low) < 1e-20 else arb("nan")

    assert agree(made, value, x, rng) > BOXES


def test_operations_without_a_form_are_left_to_balls() -> None:
    assert not sweep.knows(parse("floor(x)", 1))
    assert not sweep.knows(parse("x - floor(x)", 1))


def test_what_is_undefined_stays_undefined() -> None:
    x = coordinates(np.array([[-1.0], [0.5]]), np.array([[1.0], [1.0]]), ORDER)
    for text in (
        "log(x)",
        "sqrt(x)",
        "1/x",
        "0*log(x)",
        "log(x)**0",
        "relu(log(x))",
        "min(0, 1/x)",
        "x/x",
        "tanh(1/x)",
    ):
        (made,) = sweep.evaluate(parse(text, 1), x)
        assert isinstance(made, Many)
        assert made.defined().tolist() == [False, True], text
    for text in ("x/x", "(x*x)/x", "1/(1/x)", "(1/x)**0"):
        found = quotients(parse(text, 1), x, Kinks())
        assert found is not None
        assert found[1].tolist() == [False, True], text


def test_infinities_and_nan_satisfy_no_bound() -> None:
    for value in (np.nan, np.inf, -np.inf):
        p = np.zeros((count(2, 2), 3))
        p[3, 1] = value
        item = Many((0, 1), p, np.zeros(3), 2)
        for made in (item, item + item, item * item, item - item, Kinks().relu(item), apply("exp", item)):
            assert isinstance(made, Many)
            within = sweep._within([(made, 1.0)], [1e300], 3)
            assert within.tolist() == [True, False, True]
        assert stay_below(p, 2, 2, np.ones(3)).tolist() == [True, False, True]
    rest = Many((0,), np.zeros((2, 1)), np.array([np.nan]), 2)
    for made in (rest * constant(arb(0), 2), rest.scaled(arb(0)), Kinks().relu(rest), rest * rest, apply("sin", rest)):
        assert isinstance(made, Many)
        assert not made.is_finite()


def test_polynomials_stay_below_only_what_they_do() -> None:
    """Against their values at corners, centres and random points; and close bounds are found."""
    rng = np.random.default_rng(3)
    for s, degree in ((1, 5), (2, 4), (3, 3), (4, 2)):
        p = rng.normal(size=(count(s, degree), 60)) * rng.choice([1.0, 1e-3, 5.0], size=(count(s, degree), 60))
        t = np.concatenate([rng.uniform(-1, 1, (2000, s)), rng.choice([-1.0, 0.0, 1.0], (2000, s))])
        exponents = np.array(monomials(s, degree)).reshape(-1, s)
        values = np.abs((t[:, None, :] ** exponents).prod(2) @ p).max(0)
        assert not stay_below(p, s, degree, values * 0.999).any()
        assert stay_below(p, s, degree, values * 1.5 + 0.5).mean() > 0.9
        assert stay_below(p, s, degree, np.abs(p).sum(0) * 1.001).all()


def remainder_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(many, "_cut_off", lambda a, b, order: np.zeros(a.shape[1]))


def rounding_forgotten(patch: pytest.MonkeyPatch) -> None:
    for module in (many, spans):
        patch.setattr(module, "UNIT", 0.0)
        patch.setattr(module, "above", lambda x: x)


def radius_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(many, "_difference", lambda a, b: (a - b) * (1 - 1e-6))


def power_misplaced(patch: pytest.MonkeyPatch) -> None:
    original = many._rows
    patch.setattr(many, "_rows", lambda *key: (tuple(np.roll(row, 1) for row in original(*key)[0]), original(*key)[1]))


@pytest.mark.parametrize("fault", [remainder_forgotten, rounding_forgotten, power_misplaced])
def test_planted_faults_are_seen(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        test_sums_and_products_hold_every_value(SIZES[0])


def test_planted_faults_of_boxes_and_pieces_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        radius_forgotten(patch)
        with pytest.raises(AssertionError):
            test_a_box_is_inside_its_coordinates()
    original = polynomials.moves
    monkeypatch.setattr(polynomials, "moves", lambda s, v, degree, upper, face: original(s, v, degree, True, face))
    with pytest.raises(AssertionError):
        test_polynomials_stay_below_only_what_they_do()


def test_boxes_that_resist_take_what_others_leave() -> None:
    spent = np.ones(100, dtype=np.int64)
    spent[0] = sweep.MOST - 1
    assert sweep._may_go_on(spent).all()
    spent[0] = sweep.MOST  # one box alone has its end
    assert not sweep._may_go_on(spent)[0]
    assert sweep._may_go_on(spent)[1:].all()
    spent[:] = 2 * sweep.EVALUATIONS  # nothing is left
    assert not sweep._may_go_on(spent).any()
