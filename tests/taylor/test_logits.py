"""Compiled softmax and contractions with constants: what the plain way encloses, and planted faults are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.taylor import basis, kernels, variables
from onelayer.taylor.core import TaylorModel

pytest.importorskip("numba")
from onelayer.taylor import compiled, compiled_softmax

RADIUS = 1e-3  # of the logits: what a fault in a remainder is seen by
LOW = torch.tensor([[0.1, -0.2], [-1.0, 0.5], [0.3, 0.3]], dtype=torch.float64)
HIGH = LOW + torch.tensor([[0.25, 0.25], [0.02, 0.5], [1.0, 0.0]], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
KEYS = torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64) * 3
BIAS = torch.randn(5, generator=GENERATOR, dtype=torch.float64)
VALUES = torch.randn(5, 3, generator=GENERATOR, dtype=torch.float64)
WAYS = pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])


def head(x: Any, shift: Any = 0.0) -> Any:
    """softmax(K x + b) V, with logits moved by ``shift``."""
    logits = torch.nn.functional.linear(x, KEYS.to(x.dtype), BIAS.to(x.dtype))
    logits = logits.with_radius(RADIUS) if isinstance(x, TaylorModel) else logits + shift
    return torch.softmax(logits, -1) @ VALUES.to(x.dtype)


def polynomial(y: TaylorModel, t: Tensor) -> Tensor:
    """The polynomial of y at normalised points t (C, D): (C, *shape)."""
    table = torch.from_numpy(basis.exponents(len(y.support), y.degree))
    powers = torch.stack([(t[:, list(y.support)] ** row).prod(1) for row in table], 1)
    return torch.einsum("cp,p...->c...", powers, y.coef)


def encloses(order: int, execution: torch.dtype | None) -> bool:
    """Whether values at points of every box, logits moved by up to their radius, lie within the remainder."""
    y = head(variables(LOW, HIGH, order, execution=execution)).plain()
    t = torch.rand(64, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    t[:4] = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    points = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * t[:, None]  # (C, B, D)
    signs = [torch.eye(5, dtype=torch.float64)[k] * RADIUS * sign for k in range(5) for sign in (1, -1)]
    near = polynomial(y, t)
    return all(bool(((head(points, shift) - near).abs() <= y.rem + 1e-12).all()) for shift in signs)


@WAYS
@pytest.mark.parametrize("execution", [None, torch.float64, torch.float32])
@pytest.mark.parametrize("order", [1, 3, 6])
def test_both_ways_enclose_attention(order: int, execution: torch.dtype | None, way: bool) -> None:
    with kernels.backend(way):
        assert encloses(order, execution)


def test_the_two_ways_agree() -> None:
    for execution in (None, torch.float64, torch.float32):
        for order in (1, 4):
            found = []
            for way in (False, True):
                with kernels.backend(way):
                    y = head(variables(LOW, HIGH, order, execution=execution)).plain()
                    found.append((y.coef, y.rem, *y.range()))
            for plain, fast in zip(*found, strict=True):
                assert torch.allclose(plain, fast, rtol=0.05, atol=1e-12), (execution, order)


@WAYS
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_undecided_stays_so(bad: float, way: bool) -> None:
    """A box whose logits have no bounds has no weights, and no other box is touched by it."""
    low, high = LOW.clone(), HIGH.clone()
    high[1, 0] = bad
    for execution in (None, torch.float64):
        with kernels.backend(way):
            y = head(variables(low, high, 3, execution=execution))
            assert torch.isfinite(y.bound()).any(1).tolist() == [True, False, True]


@WAYS
def test_steep_and_masked_logits(way: bool) -> None:
    """Logits of any size keep weights inside [0, 1]; a mask hides its key."""
    x = variables(LOW, HIGH, 3, execution=torch.float64)
    hidden = torch.tensor([False, True, False, False, False])
    with kernels.backend(way):
        steep = torch.softmax(torch.nn.functional.linear(x, KEYS * 1e3), -1)
        low, high = steep.range()
        assert bool((low > -0.01).all() and (high < 1.01).all())
        masked = torch.softmax(torch.nn.functional.linear(x, KEYS).masked_fill(hidden, -torch.inf), -1)
        assert bool((masked.bound()[:, 1] < 1e-200).all())


@WAYS
def test_a_row_of_weights_that_may_overflow_is_undecided(way: bool) -> None:
    ends = torch.tensor([[1.0], [1e308]], dtype=torch.float64)
    x = variables(ends / 2, ends, 2, execution=torch.float64)
    with kernels.backend(way):
        y = torch.nn.functional.linear(x, torch.full((2, 1), 4.0, dtype=torch.float64))
        assert y.decided().all(1).tolist() == [True, False]


FAULTS: dict[str, tuple[Any, Callable[..., Any]]] = {}


def fault(module: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS[kernel.__name__] = module, kernel
        return kernel

    return register


@fault(compiled_softmax)
def shifted(blocks: Any, coef: Any, rem: Any, *rest: Any) -> Any:
    """The remainder of the logits is forgotten."""
    return ORIGINAL["shifted"](blocks, coef, 0 * rem, *rest)


@fault(compiled_softmax)
def exponentials(*args: Any) -> Any:
    """The highest degree is lost."""
    state = ORIGINAL["exponentials"](*args)
    args[-4][1:] = 0.0
    return state


@fault(compiled_softmax)
def row_sums(coef: Any, *rest: Any) -> None:
    """The first key of every row is left out."""
    fewer = coef.copy()
    fewer[0, ::5] = 0.0
    ORIGINAL["row_sums"](fewer, *rest)


@fault(compiled_softmax)
def executed_weights(*args: Any) -> Any:
    """A hundredth of the remainder."""
    state = ORIGINAL["executed_weights"](*args)
    args[-1][:] *= 0.01
    return state


@fault(compiled)
def contracted(rem: Any, total: Any, size: Any, *rest: Any) -> None:
    """One of the constants counts as nothing."""
    ORIGINAL["contracted"](rem, total, size * (np.arange(len(size)) > 0)[:, None] * 0.01, *rest)


@fault(compiled)
def within(low: Any, high: Any, *rest: Any) -> Any:
    """Intervals of half the width."""
    return ORIGINAL["within"](low, low + (high - low) / 4, *rest)


@fault(compiled)
def replaced(coef: Any, middle: Any, *rest: Any) -> None:
    """The middle of an interval lies elsewhere."""
    ORIGINAL["replaced"](coef, middle + 1.0, *rest)


ORIGINAL = {name: getattr(module, name) for name, (module, _) in FAULTS.items()}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, faulty = FAULTS[name]
    monkeypatch.setattr(module, name, faulty)
    with kernels.backend(True):
        assert not all(encloses(order, execution) for order in (1, 3, 6) for execution in (None, torch.float64))
