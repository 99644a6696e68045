"""One table of every operation of the checker: values in 60 digits, undefined points, constants, both formats."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx, fmpq

from onelayer.checker.arithmetic import Taylor, constant, coordinate, monomials, whole_power
from onelayer.checker.formula import node_value
from onelayer.checker.functions import FUNCTIONS, Kinks, apply
from onelayer.checker.intervals import node_interval
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.language.formula import Node
from onelayer.language.operations import OPERATIONS, POWER
from onelayer.language.tree import LEAVES
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

DIGITS = 60
ARITY = {row.name: row.arity for row in OPERATIONS.values()}
Real = Callable[..., Any]


def exprel(a: Any) -> Any:
    """(exp(a) - 1) / a, 1 at 0."""
    return mpmath.expm1(a) / a if a else mpmath.mpf(1)


# op -> the function in mpmath, and intervals on which it is defined for every argument
TABLE: dict[str, tuple[Real, list[tuple[float, float]]]] = {
    "var": (lambda x: x, [(-1.0, 2.0)]),
    "num": (lambda x: mpmath.mpf(0.1), [(-1.0, 2.0)]),
    "pi": (lambda x: +mpmath.pi, [(-1.0, 2.0)]),
    "e": (lambda x: +mpmath.e, [(-1.0, 2.0)]),
    "add": (lambda a, b: a + b, [(-1.0, 2.0), (1e300, 1.5e300), (1e-310, 3e-310)]),
    "sub": (lambda a, b: a - b, [(-1.0, 2.0), (1e300, 1.5e300), (1e-310, 3e-310)]),
    "mul": (lambda a, b: a * b, [(-1.0, 2.0), (1e200, 1.5e200), (1e-200, 3e-200)]),
    "div": (lambda a, b: a / b, [(0.5, 2.0), (-3.0, -2.9), (1e-300, 1.1e-300), (1e300, 1.1e300)]),
    "neg": (lambda a: -a, [(-1.0, 2.0)]),
    "pow": (lambda a: a**3, [(-1.0, 2.0), (1e150, 1.1e150), (0.0, 0.0)]),
    "abs": (abs, [(-1.0, 2.0), (0.0, 1.0), (-1e-300, 1e-300)]),
    "relu": (lambda a: max(a, mpmath.mpf(0)), [(-1.0, 2.0), (-2.0, 0.0), (0.0, 0.3)]),
    "min": (min, [(-1.0, 2.0), (0.0, 1e-300)]),
    "max": (max, [(-1.0, 2.0), (0.0, 1e-300)]),
    "where": (lambda u, a, b: a if u > 0 else b, [(-1.0, 2.0), (0.0, 1.0), (-1.0, 0.0), (-1e-300, 1e-300)]),
    "floor": (mpmath.floor, [(-1.0, 2.0), (0.1, 0.9), (2.0, 2.0), (-1e-300, 1e-300), (1e15, 1e15 + 3)]),
    "sin": (mpmath.sin, [(-1.0, 2.0), (1e6, 1e6 + 0.1), (0.0, 40.0)]),
    "cos": (mpmath.cos, [(-1.0, 2.0), (1e6, 1e6 + 0.1), (0.0, 40.0)]),
    "tan": (mpmath.tan, [(-1.0, 1.2), (1.6, 1.7)]),
    "exp": (mpmath.exp, [(-1.0, 2.0), (700.0, 701.0), (-800.0, -790.0)]),
    "log": (mpmath.log, [(0.5, 2.0), (1e-300, 2e-300), (1e300, 2e300)]),
    "sqrt": (mpmath.sqrt, [(0.5, 2.0), (0.0, 0.3), (0.0, 1e-300), (1e-20, 1.0)]),
    "tanh": (mpmath.tanh, [(-1.0, 2.0), (30.0, 40.0), (-1e8, 1e8)]),
    "sigmoid": (lambda a: 1 / (1 + mpmath.exp(-a)), [(-1.0, 2.0), (-800.0, -790.0), (-1e8, 1e8)]),
    "atan": (mpmath.atan, [(-1.0, 2.0), (1e10, 2e10), (-1e8, 1e8)]),
    "asin": (mpmath.asin, [(-0.5, 0.9), (0.5, 1.0), (-1.0, 1.0), (-1.0, -0.999), (1e-300, 1.1e-300)]),
    "acos": (mpmath.acos, [(-0.5, 0.9), (0.5, 1.0), (-1.0, 1.0), (-1.0, -0.999), (1e-300, 1.1e-300)]),
    "erf": (mpmath.erf, [(-1.0, 2.0), (5.0, 6.0), (-1e3, 1e3)]),
    "sinrel": (mpmath.sinc, [(-1.0, 2.0), (0.0, 0.0), (-1e-300, 1e-300), (1e-9, 2e-9), (3.0, 40.0), (1e6, 1e6 + 0.1)]),
    "exprel": (exprel, [(-1.0, 2.0), (0.0, 0.0), (-1e-300, 1e-300), (1e-9, 2e-9), (600.0, 601.0), (-800.0, -790.0)]),
    "cbrt": (lambda a: mpmath.sign(a) * mpmath.cbrt(abs(a)), [(-1.0, 2.0), (0.0, 0.3), (1e-20, 1.0), (-3.0, -2.9)]),
    "lgamma": (mpmath.loggamma, [(0.5, 3.0), (1e-9, 1.0), (1.4, 1.5), (100.0, 101.0), (2.0, 2.0)]),
    "inv": (lambda a: 1 / a, [(0.5, 2.0), (-3.0, -2.9), (1e-300, 1.1e-300)]),
    "rsqrt": (lambda a: 1 / mpmath.sqrt(a), [(0.5, 2.0), (1e-5, 1e-4), (1e-5, 1e30)]),
}
UNDEFINED = {"log": (0.0, 1.0), "sqrt": (-1e-300, 1.0), "inv": (-1.0, 1.0), "rsqrt": (0.0, 1.0), "tan": (1.5, 1.6)}
UNDEFINED |= {"lgamma": (0.0, 1.0), "asin": (0.5, math.nextafter(1, 2)), "acos": (-math.nextafter(1, 2), -0.5)}


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 128, 40
    yield
    ctx.prec, ctx.cap = before


def test_every_operation_is_in_the_table() -> None:
    assert set(TABLE) == {*LEAVES, *OPERATIONS, POWER, *FUNCTIONS}


def ball(value: Any) -> arb:
    """A number of mpmath with room for its last digits."""
    return arb(mpmath.nstr(value, DIGITS)) * (1 + arb(0, 1e-45))


def value_at(item: Taylor, t: arb) -> arb:
    total = arb(0)
    for c, exponents in zip(item.c, monomials(len(item.support), item.degree), strict=True):
        total = total + c * whole_power(t, sum(exponents))
    return total


@pytest.mark.parametrize("op", TABLE)
@pytest.mark.parametrize("order", [1, 3, 6])
def test_values_lie_in_their_enclosures(op: str, order: int) -> None:
    """On [a, b], and on the point a: Taylor enclosure, its range and the interval all hold the value."""
    function, intervals = TABLE[op]
    rng = random.Random(op)
    for low, high in [*intervals, *((low, low) for low, _ in intervals)]:
        x = coordinate(0, low, high, order)
        second = x.scaled(arb(-0.5)).shifted(arb(1.25) * arb(high))  # the other argument of a binary operation
        args = [x, second, x.shifted(arb(7))][: ARITY.get(op, 1)]
        node = Node(op, tuple(range(len(args))) if op not in LEAVES else (), {"pow": 3, "num": 0.1}.get(op, 0))
        if op in ("inv", "rsqrt"):
            found, ends = apply(op, x), None
        else:
            found = node_value(node, args, [x], Kinks())
            ends = node_interval(node, [item.ends() for item in args], [x.ends()])
        for _ in range(8):
            point = rng.choice([low, high, rng.uniform(low, high)])
            t = (2 * arb(point) - arb(low) - arb(high)) / (arb(high) - arb(low)) if high > low else arb(0)
            with mpmath.workdps(DIGITS):
                first = mpmath.mpf(point)
                want = ball(function(*[first, first * -0.5 + 1.25 * mpmath.mpf(high), first + 7][: len(args)]))
            assert value_at(found, t).overlaps(want), (op, low, high, point)
            assert found.range().overlaps(want)
            if ends is not None and ends[0].is_finite():
                assert ends[0].lower() <= want.upper()
                assert want.lower() <= ends[1].upper()


@pytest.mark.parametrize("op", TABLE)
@pytest.mark.parametrize("order", [1, 4])
def test_a_bounded_spike_hides_nothing(op: str, order: int) -> None:
    """S(x) (g(x) - g(c) - 1) with S = 1 - tanh(1e8 (x - c))^2 is -1 at c, however small it is wherever one looks."""
    function, intervals = TABLE[op]
    for low, high in intervals:
        for share in (0.0, 0.318, 0.5):
            centre = low + share * (high - low)
            x = coordinate(0, low, high, order)
            second = x.scaled(arb(-0.5)).shifted(arb(1.25) * arb(high))
            args = [x, second, x.shifted(arb(7))][: ARITY.get(op, 1)]
            node = Node(op, tuple(range(len(args))) if op not in LEAVES else (), {"pow": 3, "num": 0.1}.get(op, 0))
            found = apply(op, x) if op in ("inv", "rsqrt") else node_value(node, args, [x], Kinks())
            with mpmath.workdps(DIGITS):
                first = mpmath.mpf(centre)
                there = ball(function(*[first, first * -0.5 + 1.25 * mpmath.mpf(high), first + 7][: len(args)]))
            hidden = apply("tanh", x.shifted(-arb(centre)).scaled(arb(1e8)))
            product = (-(hidden * hidden)).shifted(arb(1)) * found.shifted(-there - 1)
            t = (2 * arb(centre) - arb(low) - arb(high)) / (arb(high) - arb(low)) if high > low else arb(0)
            for bound in (value_at(product, t), product.range()):
                assert not bound.is_finite() or bound.overlaps(arb(-1)), (op, low, high, centre)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_an_expansion_point_outside_the_values_is_sound(name: str) -> None:
    """u = 0.5 + 0.1 t, known only within a ball around 3 and by its ends: the remainder has to reach the point."""
    for middle, radius in ((3.0, 2.6), (3.0, 2.5001), (0.9, 0.5), (-2.0, 2.6), (40.0, 39.6)):
        for order in (1, 2, 4, 7):
            u = Taylor((0,), [arb(middle, radius), arb("0.1")], order)
            found = apply(name, u, (arb("0.4"), arb("0.6")))
            for t in (-1.0, -0.3, 0.0, 0.8, 1.0):
                with mpmath.workdps(DIGITS):
                    want = ball(TABLE[name][0](mpmath.mpf("0.5") + mpmath.mpf("0.1") * t))
                assert not found.is_finite() or value_at(found, arb(t)).overlaps(want), (middle, order, t)


@pytest.mark.parametrize("op", [op for op in TABLE if op not in LEAVES and op not in ("inv", "rsqrt")])
def test_what_is_undefined_stays_so(op: str) -> None:
    x = coordinate(0, 0.5, 1.0, 3)
    unknown, unbounded = arb("nan"), arb(0, "inf")
    for bad in (constant(unknown, 3), Taylor((0,), [arb(1), unknown], 3), Taylor((0,), [unbounded, arb(1)], 3)):
        for args in [[bad, x, x], [x, bad, x], [-x, x, bad]][: ARITY.get(op, 1)]:
            args = args[: ARITY.get(op, 1)]
            node = Node(op, tuple(range(len(args))), 3 if op == "pow" else 0)
            assert not node_value(node, args, [x], Kinks()).is_finite()
            low, high = node_interval(node, [item.ends() for item in args], [x.ends()])
            assert not (low.is_finite() and high.is_finite()) or op in ("tanh", "atan", "erf", "sin", "cos", "sigmoid")


@pytest.mark.parametrize("name", sorted(UNDEFINED))
def test_functions_have_no_value_outside_their_domain(name: str) -> None:
    for order in (1, 4):
        assert not apply(name, coordinate(0, *UNDEFINED[name], order)).is_finite()
        ball = arb(UNDEFINED[name][0]).union(arb(UNDEFINED[name][1]))
        assert not apply(name, constant(ball, order)).is_finite()


def execution(kind: Any, folder: Path) -> Execution:
    """An execution of some small layer in the format."""
    dtype = torch.float32 if kind is np.float32 else torch.float64
    zero = torch.zeros(1, 1, dtype=dtype)
    save_model(OneLayerTransformer.packed((1,), (), [PlainMemory(zero, zero)], dtype=dtype), folder)
    made = Execution.of(f"{dtype} execution".removeprefix("torch."), read_model(folder), ((0.0,), (1.0,)))
    assert made is not None
    return made


class Executed:
    """Random numbers of a format at random scales, subnormal ones too: executed, real, and the errors between them."""

    def __init__(self, kind: Any, rng: random.Random) -> None:
        self.kind, self.rng = kind, rng
        self.top = 12 if kind is np.float32 else 100
        self.bottom = -44 if kind is np.float32 else -322

    def vector(self, count: int) -> tuple[Any, list[Fraction], list[arb]]:
        """Executed numbers, real ones, and bounds of their differences."""
        scale = self.rng.choice([0, 0, self.top, self.bottom, self.rng.uniform(self.bottom, self.top)])
        numbers = np.array([self.rng.uniform(-9, 9) * 10.0**scale for _ in range(count)]).astype(self.kind)
        shifts = [Fraction(float(v)) * Fraction(self.rng.choice([0, 0, 1, -3]), 10**6) for v in numbers]
        real = [Fraction(float(v)) + d for v, d in zip(numbers, shifts, strict=True)]
        return numbers, real, [upward(abs(d)) for d in shifts]


def exactly(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def upward(value: Fraction) -> arb:
    return exactly(value).upper()


def sizes(values: list[Fraction]) -> list[arb]:
    return [upward(abs(v)) for v in values]


def within(executed: Any, real: Fraction, bound: arb) -> None:
    assert abs(arb(float(executed)) - exactly(real)) <= bound * (1 + arb(2) ** -60)


def affine(ex: Execution, made: Executed) -> None:
    x, real, errors = made.vector(5)
    w, _, _ = made.vector(5)
    b = made.kind(made.rng.choice([0.0, 1.5]))
    weights = [Fraction(float(v)) for v in w]
    passed = sum((exactly(abs(v)) * e for v, e in zip(weights, errors, strict=True)), arb(0))
    total = sum((exactly(abs(v)) * (s + e) for v, s, e in zip(weights, sizes(real), errors, strict=True)), arb(0))
    want = sum((v * r for v, r in zip(weights, real, strict=True)), Fraction(float(b)))
    for order in (1, -1):
        within((x * w)[::order].sum(dtype=made.kind) + b, want, ex.affine(5, arb(float(b)), passed, total))


def scaled(ex: Execution, made: Executed) -> None:
    x, real, errors = made.vector(3)
    for factor in (0.5, -2.0, 1 / 3, 0.1):
        bounds = ex.scaled(factor, sizes(real), errors)
        for v, r, bound in zip(x * made.kind(factor), real, bounds, strict=True):
            within(v, r * Fraction(factor), bound)


def selected(ex: Execution, made: Executed) -> None:
    x, real, errors = made.vector(3)
    factor = made.rng.choice([1.0, -0.5, 2.0**-20])
    for v, r, error in zip(x * made.kind(factor), real, errors, strict=True):
        passed, wanted = error * abs(factor), r * Fraction(factor)
        within(v, wanted, ex.selected(passed, upward(abs(wanted)) + passed))


def cast(ex: Execution, made: Executed) -> None:
    """Numbers of the format, numbers between them, and numbers beyond all of them or below all."""
    drawn = made.rng.uniform(-9, 9) * 10.0 ** made.rng.uniform(-300, 300)
    for number in (drawn, 0.5, 1 / 3, 2.0**130, 1e39, 2.0**-200, -1e-310):
        given, bound = float(made.kind(number)), ex.cast(number)
        if not math.isfinite(given):
            assert not bound.is_finite()
            continue
        within(given, Fraction(number), bound)
        assert bound.is_zero() == (given == number)


def added(ex: Execution, made: Executed) -> None:
    (x, p, ep), (y, q, eq) = made.vector(3), made.vector(3)
    real = [a + b for a, b in zip(p, q, strict=True)]
    bounds = ex.added(sizes(real), [a + b for a, b in zip(ep, eq, strict=True)])
    for v, r, bound in zip(x + y, real, bounds, strict=True):
        within(v, r, bound)


def summed(ex: Execution, made: Executed) -> None:
    x, real, errors = made.vector(6)
    for order in made.rng.sample(range(6), 6), range(6):
        total = made.kind(0)
        for at in order:
            total = total + x[at]
        within(total, sum(real, Fraction(0)), ex.summed(sizes(real), errors))


def dot(ex: Execution, made: Executed) -> None:
    (x, p, ep), (y, q, eq) = made.vector(4), made.vector(4)
    bound = ex.dot(sizes(p), ep, sizes(q), eq)
    within((x * y).sum(dtype=made.kind), sum((a * b for a, b in zip(p, q, strict=True)), Fraction(0)), bound)


def averaged(ex: Execution, made: Executed) -> None:
    """softmax, average, underflow and within: a softmax average of values at any scale."""
    count = made.rng.choice([1, 2, 5])
    logits = np.array([made.rng.uniform(-1, 1) * 10.0 ** made.rng.choice([0, 1, 2, 4]) for _ in range(count)])
    logits = logits.astype(made.kind)
    values, _, _ = made.vector(count)
    powers = np.exp(logits - logits.max())
    executed = ((powers / powers.sum(dtype=made.kind)) * values).sum(dtype=made.kind)
    exact = [arb(float(v)).exp() for v in logits]
    weights = [e / sum(exact, arb(0)) for e in exact]
    real = sum((w * arb(float(v)) for w, v in zip(weights, values, strict=True)), arb(0))
    spreads, none = [arb(float(v)) for v in logits], [arb(0)] * count
    relative, absolute = ex.softmax(spreads, none, [w.upper() for w in weights])
    spoiled = ex.average([w.upper() for w in weights], relative, absolute, count)
    bound = sum((s * abs(arb(float(v))) for s, v in zip(spoiled, values, strict=True)), ex.underflow(count))
    hull = arb(float(values.min())).union(arb(float(values.max())))
    assert abs(arb(float(executed)) - real).abs_lower() <= bound
    assert abs(arb(float(executed)) - real).abs_lower() <= ex.within(count, hull.mid(), hull.rad())


def stored(ex: Execution, made: Executed) -> None:
    """A wide format holds what it computes; narrow ones are attacked in tests/soundness/test_narrow.py."""
    _, real, errors = made.vector(3)
    assert [float(e) for e in ex.stored(sizes(real), errors, [False] * 3)] == [float(e) for e in errors]


def norm(ex: Execution, made: Executed) -> None:
    """Moments in two passes and in one, as kernels take them."""
    x, _, _ = made.vector(4)
    if not np.isfinite(x * x * 64).all():
        return
    kind, eps = made.kind, made.kind(1e-5)
    gain, shift = np.array([1.0, -3.0, 0.5, 1e9], dtype=kind), np.array([0.0, 1.0, -2.0, 0.25], dtype=kind)
    balls = [arb(float(v)) for v in x]
    mean = sum(balls, arb(0)) / 4
    centred = [b - mean for b in balls]
    variance = sum((c * c for c in centred), arb(0)) / 4 + arb(1e-5)
    real = [c / variance.sqrt() * float(g) + float(s) for c, g, s in zip(centred, gain, shift, strict=True)]
    arguments = [[abs(b) for b in balls], [arb(0)] * 4, [c.abs_upper() for c in centred], gain.tolist(), shift.tolist()]
    bounds = ex.norm(*arguments, variance.lower())
    middle = x.mean(dtype=kind)
    for spread in (((x - middle) ** 2).mean(dtype=kind), max(kind(0), (x * x).mean(dtype=kind) - middle * middle)):
        root = kind(1) / np.sqrt(spread + eps)
        for executed in ((x - middle) * root * gain + shift, (x * root - middle * root) * gain + shift):
            for v, r, bound in zip(executed, real, bounds, strict=True):
                assert not bound.is_finite() or abs(arb(float(v)) - r).abs_lower() <= bound


ROUNDINGS: dict[str, Callable[[Execution, Executed], None]] = {
    "affine": affine,
    "scaled": scaled,
    "selected": selected,
    "cast": cast,
    "added": added,
    "summed": summed,
    "dot": dot,
    "softmax": averaged,
    "average": averaged,
    "underflow": averaged,
    "within": averaged,
    "norm": norm,
    "stored": stored,
}


def test_every_rounding_bound_is_in_the_table() -> None:
    public = {name for name, value in vars(Execution).items() if callable(value) and not name.startswith("_")}
    assert public - {"gamma", "fits", "need_sure", "safe"} == set(ROUNDINGS)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_executions_stay_within_their_bounds(name: str, kind: Any, tmp_path: Path) -> None:
    ex, rng = execution(kind, tmp_path), random.Random(f"{name} {kind}")
    with np.errstate(all="ignore"):
        for _ in range(120):
            ROUNDINGS[name](ex, Executed(kind, rng))
