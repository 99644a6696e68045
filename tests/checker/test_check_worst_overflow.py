"""What the checker notes of overflow, against executions on whose way some number is beyond all of the format."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flint import arb
from narrow_passes import ball, float32_pass

from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution

LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104  # of float32
ROUNDS = 240


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return float32_pass(tmp_path)


def partial_sums(terms: list[Fraction]) -> list[Fraction]:
    return [*terms, *(sum(terms[:count], Fraction(0)) for count in range(1, len(terms) + 1))]


def test_what_may_overflow_is_noted(execution: Execution) -> None:
    """A number on the way that is beyond all of the format leaves the pass open, however small the result is."""
    rng = random.Random(7)
    noted = 0
    with precise():
        execution.sure = False
        for _ in range(ROUNDS):
            count = rng.randint(1, 4)
            top = rng.choice([63, 100, 126, 127])
            a, b = (
                [
                    Fraction(rng.uniform(-2, 2)) * Fraction(2) ** rng.choice([rng.randint(40, top), top])
                    for _ in range(count)
                ]
                for _ in "ab"
            )
            errors = [abs(v) * rng.choice([0, Fraction(1, 100), 1]) for v in a]
            strayed = [v + (e if v > 0 else -e) for v, e in zip(a, errors, strict=True)]
            sizes, other, lost = ([ball(abs(v)) for v in row] for row in (a, b, errors))
            products = [x * y for x, y in zip(strayed, b, strict=True)]
            passed = sum((s * e for s, e in zip(other, lost, strict=True)), arb(0))
            total = sum((s * (x + e) for s, x, e in zip(other, sizes, lost, strict=True)), arb(0))
            bias = rng.choice([Fraction(0), Fraction(2) ** 127, -(Fraction(2) ** 127)])
            centre = sum(a, Fraction(0)) / count
            hull = ball(centre), ball(max(abs(v - centre) for v in a))
            reach = other[0] * (sizes[0] + lost[0])
            ways = {
                "summed": (partial(execution.summed, sizes, lost), partial_sums(strayed)),
                "dot": (partial(execution.dot, sizes, lost, other, [arb(0)] * count), partial_sums(products)),
                "affine": (
                    partial(execution.affine, count, ball(bias), passed, total),
                    partial_sums([*products, bias]),
                ),
                "scaled": (partial(execution.scaled, 3.0, sizes[:1], lost[:1]), [3 * strayed[0]]),
                "selected": (partial(execution.selected, other[0] * lost[0], reach), products[:1]),
                "within": (partial(execution.within, count, *hull), a),
            }
            for name, (bound, numbers) in ways.items():
                execution.open = False
                found = bound()
                if max(map(abs, numbers)) > LARGEST:
                    noted += 1
                    (worst,) = found if isinstance(found, list) else (found,)
                    assert execution.open, name
                    assert not worst.is_finite(), name
        assert noted > 100


def test_normalisations_that_may_overflow_are_noted(execution: Execution) -> None:
    rng = np.random.default_rng(8)
    execution.sure = False
    seen = 0
    with precise(), np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            count = int(rng.integers(2, 5))
            x = (rng.standard_normal(count) * 10.0 ** rng.uniform(10, 20)).astype(np.float32)
            gain = (10.0 ** rng.uniform(0, 39, count)).astype(np.float32).clip(max=3e38)
            if count > 2 and rng.random() < 0.3:
                # One number is farther from the mean than the largest of them from zero.
                x = np.float32(10.0 ** rng.uniform(0, 15)) * np.where(np.arange(count), np.float32(-1), np.float32(1))
                gain = np.full(count, 1.8 * float(LARGEST) * np.sqrt(count - 1) / count, dtype=np.float32)
            shift = (rng.standard_normal(count) * 10.0 ** rng.uniform(0, 38)).astype(np.float32)
            middle = x.mean(dtype=np.float32)
            centred = x - middle
            squares = np.cumsum(centred * centred, dtype=np.float32), np.cumsum(x * x, dtype=np.float32)
            root = np.float32(1) / np.sqrt(squares[0][-1] / np.float32(count) + np.float32(1e-5))
            normal = (centred * root, x * root)
            computed = [*squares, *normal, *(v * gain for v in normal), normal[0] * gain + shift]
            if all(np.isfinite(v).all() for v in computed):
                continue
            seen += 1
            balls = [arb(float(v)) for v in x]
            mean = sum(balls, arb(0)) / count
            exact = [v - mean for v in balls]
            low = (sum((c * c for c in exact), arb(0)) / count + arb(1e-5)).lower()
            execution.open = False
            execution.norm([abs(v) for v in balls], [arb(0)] * count, exact, gain.tolist(), shift.tolist(), low)
            assert execution.open
    assert seen > 20
