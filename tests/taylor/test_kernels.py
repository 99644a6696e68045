"""Compiled kernels: they enclose what the plain way encloses, and a fault planted in one of them is seen."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import onelayer.taylor
from onelayer.taylor import basis, kernels, variables
from onelayer.taylor.core import TaylorModel, prune

pytest.importorskip("numba")
from onelayer.taylor import compiled

SHAPES = [(1, 3), (2, 5), (3, 3), (4, 2)]


def random_model(dim: int, order: int, seed: int, boxes: int = 5) -> TaylorModel:
    """A polynomial with a remainder in the variables of a space, coefficients of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    x = variables(torch.zeros(boxes, dim).double(), torch.ones(boxes, dim).double(), order)
    degree = x.space.cap(dim)
    coef = torch.randn(basis.count(dim, degree), boxes, generator=generator, dtype=torch.float64)
    coef *= torch.exp2(torch.randint(-30, 6, coef.shape, generator=generator).double())
    coef[0] += 1000.0 * (1 + seed % 2)
    rem = torch.rand(boxes, generator=generator, dtype=torch.float64) * 1e-3
    return TaylorModel(coef, rem, x.space, tuple(range(dim)), degree)


def value(model: TaylorModel, box: int, point: list[Fraction]) -> Fraction:
    """The polynomial at a point, exactly."""
    table = basis.exponents(len(model.support), model.degree).tolist()
    total = Fraction(0)
    for row, exponents in enumerate(table):
        term = Fraction(float(model.coef[row, box]))
        for at, exponent in enumerate(exponents):
            term *= point[model.support[at]] ** exponent
        total += term
    return total


def encloses(
    result: TaylorModel, exact: Callable[[Fraction, Fraction], Fraction], a: TaylorModel, b: TaylorModel
) -> bool:
    """Whether the result covers the operation at corners, centres and a crooked point, the remainders at their ends."""
    dim = a.space.dim
    points = [[Fraction(0)] * dim, [Fraction(1)] * dim, [Fraction(-1)] * dim, [Fraction(3, 7)] * dim]
    points.append([Fraction(1 if at % 2 else -1) for at in range(dim)])
    for box in range(len(result)):
        r, s = Fraction(float(a.rem[box])), Fraction(float(b.rem[box]))
        low, high = (Fraction(float(side[box])) for side in result.range())
        for point in points:
            for u, v in ((-r, -s), (r, -s), (-r, s), (r, s)):
                true = exact(value(a, box, point) + u, value(b, box, point) + v)
                if abs(true - value(result, box, point)) > Fraction(float(result.rem[box])) or not low <= true <= high:
                    return False
    return True


OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Fraction, Fraction], Fraction]]] = {
    "mul": (lambda a, b: a * b, lambda x, y: x * y),
    "div": (lambda a, b: a / b, lambda x, y: x / y),
    "add": (lambda a, b: a + b, lambda x, y: x + y),
    "sub": (lambda a, b: a - b, lambda x, y: x - y),
}


@pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize(("dim", "order"), SHAPES)
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_both_ways_enclose_exact_arithmetic(name: str, dim: int, order: int, way: bool) -> None:
    operation, exact = OPERATIONS[name]
    a, b = random_model(dim, order, 1), random_model(dim, order, 2)
    with kernels.backend(way):
        assert encloses(operation(a, b), exact, a, b)


@pytest.mark.parametrize(("dim", "order"), SHAPES)
def test_the_two_ways_agree_within_their_rounding(dim: int, order: int) -> None:
    """Sums, ranges and remainders are those of the plain way up to a few units of the polynomial's size."""
    for name, (operation, _) in OPERATIONS.items():
        found = []
        for way in (False, True):
            with kernels.backend(way):
                y = operation(random_model(dim, order, 1), random_model(dim, order, 2))
                found.append((y.coef, y.rem, y.norms(), y.total(), *y.range()))
        size = found[0][3]
        for plain, fast in zip(*found, strict=True):
            assert bool(((plain - fast).abs() <= 1e-9 * (size + found[0][1])).all()), name


@pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_undecided_stays_so(bad: float, way: bool) -> None:
    for row in (0, 1, 5):
        a, b = random_model(2, 3, 1), random_model(2, 3, 2)
        a.coef[row, 0] = bad
        with kernels.backend(way):
            for operation, _ in OPERATIONS.values():
                for y in (operation(a, b), operation(b, a)):
                    assert not bool(y.decided()[0])
                    assert bool(y.decided()[1:].all())


@pytest.mark.parametrize("way", [False, True], ids=["plain", "compiled"])
def test_an_executed_operation_may_overflow(way: bool) -> None:
    ends = torch.tensor([[1e200], [1e308]], dtype=torch.float64)
    x = variables(ends / 2, ends, 3, execution=torch.float64)[:, 0]
    with kernels.backend(way):
        assert (x * x).decided().tolist() == [False, False]
        assert (x + x).decided().tolist() == [True, False]


def test_a_row_that_is_no_number_is_used() -> None:
    x = random_model(2, 3, 1)
    x.coef[1:] = 0.0
    x.coef[2, 3] = torch.nan
    with kernels.backend(True):
        assert prune(x).support == (1,)


def test_tables_and_sizes_are_looked_at_before_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis, "product_runs", lambda *_: ((0, ((0, 0, 99),)),))
    with pytest.raises(IndexError, match="outside"):
        kernels._runs.__wrapped__((0,), (0,), 1, 2, 2, 2)
    a = random_model(2, 3, 1)
    with pytest.raises(IndexError, match="was due"):
        kernels.sums(a.coef[:4], 2, 3)


FAULTS: dict[str, Callable[..., None]] = {}


def fault(kernel: Callable[..., None]) -> Callable[..., None]:
    FAULTS[kernel.__name__] = kernel
    return kernel


@fault
def product(runs: Any, *rest: Any) -> None:
    """One run of the table is forgotten."""
    ORIGINAL["product"](runs[:-1], *rest)


@fault
def quotient(
    runs: Any, starts: Any, divisor: Any, norms: Any, size_a: Any, size_b: Any, rem_a: Any, *rest: Any
) -> None:
    """The remainder of the numerator is forgotten."""
    ORIGINAL["quotient"](runs, starts, divisor, norms, size_a, size_b, 0 * rem_a, *rest)


@fault
def add(rows_a: Any, rows_b: Any, blocks: Any, a: Any, b: Any, rem_a: Any, rem_b: Any, *rest: Any) -> None:
    """The remainder of the second term is forgotten."""
    ORIGINAL["add"](rows_a, rows_b, blocks, a, b, rem_a, 0 * rem_b, *rest)


@fault
def interval(even: Any, coef: Any, norms: Any, *rest: Any) -> None:
    """The highest degree does not count."""
    ORIGINAL["interval"](even, coef, norms[:-1].copy(), *rest)


@fault
def sums(blocks: Any, coef: Any, norms: Any, total: Any) -> None:
    """The first box of every tile gets half of its sum."""
    ORIGINAL["sums"](blocks, coef, norms, total)
    norms[:, ::4] /= 4
    total[::4] /= 4


ORIGINAL = {name: getattr(compiled, name) for name in FAULTS}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, name, FAULTS[name])
    a, b = random_model(3, 3, 1), random_model(3, 3, 2)
    for model in (a, b):
        model.coef[1:] *= 2.0**-10 if name == "quotient" else 1.0
    with kernels.backend(True):
        assert not all(encloses(operation(a, b), exact, a, b) for operation, exact in OPERATIONS.values())


def test_nothing_changes_coefficients_in_place() -> None:
    """Models share coefficients and what is known of them: ``x.coef[...] = ...`` anywhere would make that a lie."""
    folder = Path(onelayer.taylor.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute):
                    assert target.value.attr not in ("coef", "rem"), f"{path.name}:{node.lineno}"


def test_without_numba_everything_is_plain() -> None:
    """The switch is off where numba is missing; off, no kernel is loaded."""
    with kernels.backend(False):
        assert not kernels.ready(torch.zeros(1, dtype=torch.float64))
    assert not kernels.ready(torch.zeros(1, dtype=torch.float64, requires_grad=True))


GROWN = """
import sys
import numpy as np
from onelayer.taylor import rounding
rounding.GROWTH = float(sys.argv[1])
from onelayer.taylor import compiled
rem = np.ones(1)
compiled.execute(np.array([0.0, 0.0, 1e300]), np.zeros(1), rem)
print(rem[0])
"""


def test_a_kernel_on_disk_is_not_used_with_other_constants(tmp_path: Path) -> None:
    """Numba compares the date of the file of a kernel alone: a bound of rounding that was mended elsewhere was not."""
    room = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for growth in ("1.0625", "1.5"):
        command = [sys.executable, "-c", GROWN, growth]
        found = subprocess.run(command, env=room, capture_output=True, text=True, check=True, timeout=120)
        assert float(found.stdout) == float(growth)
