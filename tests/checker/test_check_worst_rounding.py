"""Every bound of the checker's error analysis against the worst execution that its assumptions allow.

Executions of a machine round up and down and mostly cancel. Here each operation errs by a whole unit roundoff, one
after another in the direction that carries furthest, in fractions: a result that is no number of the format goes
astray by u of itself, one below the normal range is lost, an exponential errs by eight units. Operands are chosen so
that one of them takes part in every rounding. A bound that leaves out one rounding is below such an execution.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from flint import arb
from narrow_passes import ball, float32_pass

from onelayer.checker.arithmetic import constant
from onelayer.checker.attention import Vector
from onelayer.checker.functions import Kinks
from onelayer.checker.linear import LinearHead
from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution

U, NORMAL = Fraction(1, 2**24), Fraction(1, 2**126)  # of float32
ROUNDS = 60


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return float32_pass(tmp_path)


def astray(value: Fraction, sign: int, units: int = 1) -> Fraction:
    """The result of an operation, ``units`` unit roundoffs up or down, or lost below the normal range."""
    if abs(value) < NORMAL and sign * value < 0:
        return Fraction(0)
    return value * (1 + sign * units * U)


def number(rng: random.Random) -> Fraction:
    """A number of any size: mostly large beside the others or small, and sometimes below what is normal."""
    exponent = rng.choice([0, 0, -30, -140, 20])
    return Fraction(rng.uniform(1, 2)) * Fraction(2) ** exponent * rng.choice([-1, 1])


def summed(terms: list[Fraction], sign: int) -> Fraction:
    """Summed one after the other, each sum astray away from zero or towards it."""
    total = terms[0]
    for term in terms[1:]:
        total = astray(total + term, sign)
    return total


def apart(a: Fraction, b: Fraction) -> arb:
    return ball(abs(a - b))


def bounded(found: Fraction, real: Fraction, bound: arb) -> None:
    assert apart(found, real) <= bound, (float(abs(found - real)), float(bound))


def given(rng: random.Random, count: int) -> tuple[list[Fraction], list[Fraction], list[arb], list[arb]]:
    """Executed numbers and real ones, bounds of the sizes of these and of the differences."""
    real = [number(rng) for _ in range(count)]
    errors = [abs(v) * rng.choice([0, 0, Fraction(1, 2**20), Fraction(1, 2), 3]) for v in real]
    found = [v + rng.choice([-1, 1]) * e for v, e in zip(real, errors, strict=True)]
    return found, real, [ball(abs(v)) for v in real], [ball(e) for e in errors]


def test_sums(execution: Execution) -> None:
    rng = random.Random(1)
    with precise():
        for _ in range(ROUNDS):
            found, real, sizes, errors = given(rng, rng.randint(1, 5))
            bound = execution.summed(sizes, errors)
            for sign in (-1, 1):
                bounded(summed(found, sign), sum(real), bound)
            if len(found) == 2:
                size = [ball(abs(sum(real)))]
                (one,) = execution.added(size, [sum(errors, arb(0))])
                bounded(summed(found, rng.choice([-1, 1])), sum(real), one)


def test_products(execution: Execution) -> None:
    rng = random.Random(2)
    with precise():
        for _ in range(ROUNDS):
            count = rng.randint(1, 4)
            a, real_a, sizes_a, errors_a = given(rng, count)
            b, real_b, sizes_b, errors_b = given(rng, count)
            bound = execution.dot(sizes_a, errors_a, sizes_b, errors_b)
            real = sum(x * y for x, y in zip(real_a, real_b, strict=True))
            for sign in (-1, 1):
                bounded(summed([astray(x * y, sign) for x, y in zip(a, b, strict=True)], sign), real, bound)
            # The same as an affine map: weights are exact, and a bias goes through every sum.
            bias = rng.choice([Fraction(0), number(rng)])
            weights = b
            passed = sum((ball(abs(w)) * e for w, e in zip(weights, errors_a, strict=True)), arb(0))
            rows = zip(weights, sizes_a, errors_a, strict=True)
            total = sum((ball(abs(w)) * (s + e) for w, s, e in rows), arb(0))
            bound = execution.affine(count, ball(bias), passed, total)
            real = sum((w * x for w, x in zip(weights, real_a, strict=True)), bias)
            for sign in (-1, 1):
                terms = [astray(w * x, sign) for w, x in zip(weights, a, strict=True)]
                bounded(summed([*([bias] if bias else []), *terms], sign), real, bound)


def test_a_bias_alone_and_a_number_alone(execution: Execution) -> None:
    with precise():
        small = NORMAL / 2
        bounded(Fraction(0), small, execution.affine(0, ball(small), arb(0), arb(0)))
        bounded(Fraction(0), small, execution.selected(arb(0), ball(small)))
        error = Fraction(1, 3)
        bounded(Fraction(4, 3), Fraction(1), execution.selected(ball(error), ball(Fraction(4, 3))))
        for factor in (0.5, 3.0, 0.1):
            kept = Fraction(float(np.float32(factor)))
            for value in (Fraction(5, 3), small):
                for sign in (-1, 1):
                    (bound,) = execution.scaled(factor, [ball(value)], [ball(value / 7)])
                    strayed = value * (1 + Fraction(sign, 7)) * kept
                    exact = factor == 0.5 and strayed >= NORMAL
                    bounded(strayed if exact else astray(strayed, sign), value * Fraction(factor), bound)


def exponential(value: Fraction) -> Fraction:
    """e^value, far within a unit of what is asked for."""
    middle = ball(value).exp().mid()
    whole, power = middle.man_exp()
    return Fraction(int(whole)) * Fraction(2) ** int(power)


def weights_of(logits: list[Fraction], signs: tuple[int, ...], outward: int) -> list[Fraction]:
    """Executed weights: differences, exponentials, the sum and quotients, all astray."""
    top = max(logits)
    powers = []
    for logit, sign in zip(logits, signs, strict=True):
        apart = astray(logit - top, -sign)  # of a negative number: towards zero is up
        powers.append(astray(exponential(apart), sign, 8) if apart else Fraction(1))
    total = summed(powers, outward)
    return [astray(power / total, sign) for power, sign in zip(powers, signs, strict=True)]


def test_weights_and_averages(execution: Execution) -> None:
    rng = random.Random(3)
    with precise():
        for count, manner, wide in product((1, 2, 4, 90), ("any", "lost", "equal"), (1, 5, 40)):
            real = [Fraction(rng.uniform(-wide, wide)) for _ in range(count)]
            if count == 90:
                # One token goes through all sums, first of all.
                real = [Fraction(8), *(v / wide for v in real[1:])]
            errors = [Fraction(rng.choice([0.0, 1e-6, 1e-3, 0.05])) for _ in range(count)]
            masses = [exponential(v) for v in real]
            exact = [m / sum(masses) for m in masses]
            uppers = [ball(w) * (1 + arb(2) ** -60) for w in exact]
            spreads = [ball(v) for v in real]
            relative, absolute = execution.softmax(spreads, [ball(e) for e in errors], uppers)
            values = [number(rng) for _ in range(count)]
            if manner == "lost":
                # Every product is just small enough to be lost.
                values = [NORMAL / w * Fraction(15, 16) for w in exact]
            elif manner == "equal":
                # What averages of one number err by is that of the sum of the weights.
                values = values[:1] * count
            spoiled = execution.average(uppers, relative, absolute, count)
            bound = sum((s * ball(abs(v)) for s, v in zip(spoiled, values, strict=True)), execution.underflow(count))
            wanted = sum(w * v for w, v in zip(exact, values, strict=True))
            low, high = min(values), max(values)
            hull = execution.within(count, ball((low + high) / 2), ball((high - low) / 2))
            for signs in product((-1, 1), repeat=count) if count < 5 else [(1,) * count, (-1,) * count]:
                logits = [v + s * e for v, s, e in zip(real, signs, errors, strict=True)]
                for outward in (-1, 1):
                    found = weights_of(logits, signs, outward)
                    for w, e, r in zip(found, exact, relative, strict=True):
                        assert apart(w, e) <= ball(e) * r + absolute
                    for sign in (-1, 1):
                        terms = [astray(w * v, sign) for w, v in zip(found, values, strict=True)]
                        bounded(summed(terms, sign), wanted, bound)
                        bounded(summed(terms, sign), wanted, hull)


def root(value: Fraction) -> Fraction:
    whole, power = ball(value).sqrt().mid().man_exp()
    return Fraction(int(whole)) * Fraction(2) ** int(power)


def normalised(x: list[Fraction], eps: Fraction) -> list[Fraction]:
    mean = sum(x) / len(x)
    return [(v - mean) / root(sum((w - mean) ** 2 for w in x) / len(x) + eps) for v in x]


def test_normalisations(execution: Execution) -> None:
    """Moments in two passes or in one, and everything astray in directions that are drawn."""
    rng = random.Random(4)
    eps = Fraction(float(np.float32(1e-5)))
    with precise():
        for _ in range(ROUNDS):
            count = rng.randint(1, 4)
            near = rng.choice([0, 1, 30, 1000])
            scale = rng.choice([Fraction(1), Fraction(1), NORMAL])  # there sums and squares are lost
            real = [Fraction(near + rng.uniform(-1, 1) * rng.choice([1, 0.01])) * scale for _ in range(count)]
            errors = [Fraction(rng.choice([0.0, 1e-7, 1e-4])) * scale for _ in real]
            mean = sum(real) / count
            variance = sum((v - mean) ** 2 for v in real) / count
            gain = [rng.choice([1.0, -3.0, 0.25]) for _ in real]
            shift = [rng.choice([0.0, 2.0]) for _ in real]
            centred = [ball(v - mean) for v in real]
            bounds = execution.norm(
                [ball(abs(v)) for v in real],
                [ball(e) for e in errors],
                centred,
                gain,
                shift,
                ball(variance + eps).lower(),
                float(eps),
            )
            wanted = [v * Fraction(g) + Fraction(b) for v, g, b in zip(normalised(real, eps), gain, shift, strict=True)]
            for _ in range(12):
                turn = [rng.choice([-1, 1]) for _ in range(8)]
                x = [v + rng.choice([-1, 1]) * e for v, e in zip(real, errors, strict=True)]
                middle = astray(summed(x, turn[0]) / count, turn[0])
                apart_ = [astray(v - middle, turn[1]) for v in x]
                spread = astray(summed([astray(c * c, turn[2]) for c in apart_], turn[2]) / count, turn[2])
                if rng.random() < 0.5:
                    squares = astray(summed([astray(v * v, turn[2]) for v in x], turn[2]) / count, turn[2])
                    spread = max(Fraction(0), astray(squares - astray(middle * middle, turn[3]), turn[2]))
                inverse = astray(1 / astray(root(astray(spread + eps, turn[4])), turn[4]), -turn[4])
                for v, c, g, b, wish, bound in zip(x, apart_, gain, shift, wanted, bounds, strict=True):
                    scaled = astray(c * inverse, turn[5])
                    if turn[7] > 0:
                        # The difference of two products in the place of the product of a difference.
                        scaled = astray(astray(v * inverse, turn[5]) - astray(middle * inverse, -turn[5]), turn[5])
                    found = astray(scaled * Fraction(g), turn[5])
                    found = astray(found + Fraction(b), turn[6]) if b else found
                    assert not bound.is_finite() or apart(found, wish) <= bound


def test_what_a_narrow_format_holds() -> None:
    """A number is rounded once more, to nearest: half of a last place of what it may be."""
    ex = Execution.__new__(Execution)
    ex.held = (2.0**-11, 2.0**-25, 65504.0)  # float16: unit roundoff, half of the smallest number
    rng = random.Random(5)
    with precise():
        for _ in range(ROUNDS):
            real = Fraction(rng.uniform(1, 2)) * Fraction(2) ** rng.randint(-30, 14)
            error = real * Fraction(rng.choice([0.0, 1e-3, 0.4]))
            (bound,) = ex.stored([ball(real)], [ball(error)], [False])
            for sign in (-1, 1):
                computed = real + sign * error
                spacing = 2.0 ** max(math.frexp(float(computed))[1] - 11, -24)  # of the format there
                # Midway between two numbers of the format the bound is reached.
                assert not apart(computed + sign * Fraction(spacing) / 2, real) > bound


def features_of(u: list[Fraction], feature: str, order: int, sign: int) -> list[Fraction]:
    """What linear attention makes of numbers, executed; each result astray in one direction."""
    if feature == "elu":
        return [astray(v + 1, sign) if v > 0 else astray(exponential(v), sign, 8) for v in u]
    found, power = [Fraction(1)], u
    for p in range(1, order + 1):
        if p > 1:
            power = [astray(a * b, sign) for a in power for b in u]
        by = Fraction(float(np.float32(1 / math.sqrt(math.factorial(p)))))
        found += power if by == 1 else [astray(by * v, sign) for v in power]
    return found


def linear_average(rows: list[list[Fraction]], feature: str, order: int, signs: tuple[int, int]) -> Fraction:
    """phi(q) sum phi(k) v / phi(q) sum phi(k) for rows of a query, keys and their values, numerator and rest astray."""
    query, *keys, values = rows
    up, down = signs
    seen = [features_of(key, feature, order, up) for key in keys]
    asked = features_of(query, feature, order, up)
    moments, masses = [], []
    for column in zip(*seen, strict=True):
        moments.append(summed([astray(k * v, up) for k, v in zip(column, values, strict=True)], up))
        masses.append(summed(list(column), down))
    top = summed([astray(a * m, up) for a, m in zip(asked, moments, strict=True)], up)
    bottom = summed([astray(a * m, down) for a, m in zip(asked, masses, strict=True)], down)
    return astray(top / bottom, up)


@pytest.mark.parametrize(("feature", "order"), [("elu", 2), ("taylor", 2), ("taylor", 4)])
def test_linear_attention(feature: str, order: int, execution: Execution) -> None:
    rng = random.Random(6)
    head = LinearHead(feature, order, execution)
    with precise():
        for _ in range(24):
            width, tokens = rng.choice([(1, 1), (1, 3)] if order == 4 else [(1, 1), (1, 3), (2, 2)])
            wide = rng.choice([0.1, 1.0, 3.0])

            drawn = [
                [
                    (Fraction(rng.uniform(-wide, wide)), Fraction(rng.choice([0.0, 0.0, 1e-6, 1e-3, 0.02, 0.9])))
                    for _ in row
                ]
                for row in (*[range(width)] * (1 + tokens), range(tokens))
            ]
            vectors = [Vector([constant(ball(v), 1) for v, _ in row], [ball(e) for _, e in row]) for row in drawn]
            values = [vectors[-1][at : at + 1] for at in range(tokens)]
            found = head(vectors[0], vectors[1:-1], values, Kinks())
            (item, error) = found.entries()[0]
            if not error.is_finite():
                continue
            for _ in range(12):
                strayed = [[v + rng.choice([-1, 1]) * e for v, e in row] for row in drawn]
                for signs in ((1, -1), (-1, 1), (1, 1)):
                    executed = linear_average(strayed, feature, order, signs)
                    assert abs(item.c[0] - ball(executed)).abs_lower() <= error
