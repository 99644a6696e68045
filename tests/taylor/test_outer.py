"""Contractions of models without a common variable: both ways enclose exact sums, and planted faults are seen."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.taylor import basis, kernels
from onelayer.taylor.contraction import einsum
from onelayer.taylor.core import Space, TaylorModel

pytest.importorskip("numba")
from onelayer.taylor import compiled

POINTS = [[Fraction(n) for n in point] for point in product((-1, 1), repeat=3)] + [[Fraction(3, 7)] * 3]
# Equation and the shapes of both operands: one output, several, some of the left alone, broadcast, summed in one alone.
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "one output": ("bm,bm->b", (3, 4), (3, 4)),
    "several": ("bm,bmj->bj", (3, 4), (3, 4, 2)),
    "both have their own": ("bim,bmj->bij", (2, 3, 4), (2, 4, 2)),
    "turned": ("bim,bmj->bji", (2, 3, 4), (2, 4, 2)),
    "broadcast": ("bm,bmj->bj", (3, 4), (1, 4, 2)),
    "one term": ("bm,bmj->bj", (3, 1), (3, 4, 2)),
    "nothing is summed": ("b,bj->bj", (3,), (3, 2)),
    "summed in one alone": ("bmk,bm->b", (2, 3, 2), (2, 3)),
}


def random_model(support: tuple[int, ...], degree: int, shape: tuple[int, ...], seed: int) -> TaylorModel:
    generator = torch.Generator().manual_seed(seed)
    coef = torch.randn(basis.count(len(support), degree), *shape, generator=generator, dtype=torch.float64)
    coef *= torch.exp2(torch.randint(-30, 6, coef.shape, generator=generator).double())
    rem = 1e-9 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return TaylorModel(coef, rem, Space(3, 3), support, degree)


def operands(name: str) -> tuple[str, TaylorModel, TaylorModel]:
    equation, left, right = CASES[name]
    return equation, random_model((1,), 5, left, 1), random_model((0, 2), 3, right, 2)


def values(model: TaylorModel, point: list[Fraction]) -> np.ndarray[Any, Any]:
    """The polynomials at a point, exactly."""
    total = np.zeros(tuple(model.shape), dtype=object) + Fraction(0)
    for row, exponents in zip(model.coef, basis.exponents(len(model.support), model.degree).tolist(), strict=True):
        factor = Fraction(1)
        for variable, exponent in zip(model.support, exponents, strict=True):
            factor *= point[variable] ** exponent
        total = total + np.vectorize(Fraction, otypes=[object])(row.numpy()) * factor
    return total


def encloses(equation: str, a: TaylorModel, b: TaylorModel) -> bool:
    """Whether the contraction differs from that of the polynomials by no more than its remainder."""
    found = einsum(equation, a, b)
    inputs, output = equation.split("->")
    left, right = inputs.split(",")
    size = {**dict(zip(right, b.shape, strict=True))}
    size |= {c: max(n, size.get(c, 1)) for c, n in zip(left, a.shape, strict=True)}
    letters = list(size)
    for point in POINTS:
        exact = np.zeros([size[c] for c in output], dtype=object) + Fraction(0)
        x, y = values(a, point), values(b, point)
        for place in product(*(range(size[c]) for c in letters)):
            at = dict(zip(letters, place, strict=True))
            pair = (
                u[tuple(at[c] if n > 1 else 0 for c, n in zip(text, u.shape, strict=True))]
                for u, text in ((x, left), (y, right))
            )
            exact[tuple(at[c] for c in output)] += next(pair) * next(pair)
        error = np.abs(exact - values(found, point))
        if (error > np.vectorize(Fraction, otypes=[object])(found.rem.numpy())).any():
            return False
    return True


@pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_both_ways_enclose_exact_sums(name: str, way: bool) -> None:
    equation, a, b = operands(name)
    with kernels.backend(way):
        assert encloses(equation, a, b)
        left, right = equation.split("->")[0].split(",")
        assert encloses(f"{right},{left}->{equation.split('->')[1]}", b, a)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_two_ways_agree_within_their_rounding(name: str) -> None:
    equation, a, b = operands(name)
    found = []
    for way in (False, True):
        with kernels.backend(way):
            found.append(einsum(equation, a, b))
    size = found[0].total() + found[0].rem
    assert bool(((found[0].coef - found[1].coef).abs() <= 1e-12 * size).all())
    assert bool(((found[0].rem - found[1].rem).abs() <= 1e-9 * found[0].rem).all())


@pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_undecided_stays_so(bad: float, way: bool) -> None:
    for row in (0, 5):
        equation, a, b = operands("several")
        a.coef[row, 0, 1] = bad
        with kernels.backend(way):
            decided = einsum(equation, a, b).decided()
        assert not bool(decided[0].any())
        assert bool(decided[1:].all())


def test_tables_and_sizes_are_looked_at_before_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.ones(2, 1, 3, 4, dtype=torch.float64)
    with pytest.raises(IndexError, match="was due"):
        kernels.outer(a, a[:, :, :, :3], kernels.targets((0,), (1,), 2, 1, 1, 2))
    monkeypatch.setattr(basis, "outer_rows", lambda *_: ((0, 1, 2), (0, 1, 99), (3,)))
    with pytest.raises(IndexError, match="outside"):
        kernels.targets.__wrapped__((0,), (1,), 2, 1, 1, 2)
    monkeypatch.setattr(basis, "outer_rows", lambda *_: ((0, 1), (0, 1), (3,)))
    with pytest.raises(IndexError, match="leaves one out"):
        kernels.targets.__wrapped__((0,), (1,), 2, 1, 1, 2)


def nothing_above(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """What lies above the highest degree is lost."""
    compiled.outer(targets, left, right, out, above)
    above[:] = 0.0


def one_term_less(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """The last term of every sum is left out."""
    left = left.copy()
    left[:, :, -1] = 0.0
    compiled.outer(targets, left, right, out, above)


def exchanged(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """Two pairs are written to each other's rows."""
    targets = targets.copy()
    targets[0, :2] = targets[0, 1::-1]
    compiled.outer(targets, left, right, out, above)


def forgotten(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """A pair is neither written nor counted."""
    right = right.copy()
    right[-1] = 0.0
    compiled.outer(targets, left, right, out, above)


@pytest.mark.parametrize("wrong", [nothing_above, one_term_less, exchanged, forgotten], ids=lambda f: f.__name__)
def test_a_planted_fault_is_caught(wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        outer = staticmethod(wrong)

        def __getattr__(self, name: str) -> Any:
            return getattr(compiled, name)

    monkeypatch.setattr(kernels, "_kernels", Faulty)
    with kernels.backend(True):
        assert not encloses(*operands("several"))
