"""The table of operations is complete: every row says the same in all its columns, and has its rules elsewhere."""

from __future__ import annotations

import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest
import torch
from flint import arb, ctx

from onelayer.checker.operations import OPERATIONS as CHECKED
from onelayer.checker.operations import operation as checked
from onelayer.errors import FormulaError, OnelayerError
from onelayer.language.formula import Formula, Node, parse
from onelayer.language.operations import OPERATIONS, POWER, Operation, operation, power
from onelayer.language.tree import LEAVES, Tape
from onelayer.recording import recorder  # noqa: F401  (registers all recorded operations)
from onelayer.recording.dispatch import OPERATIONS as RECORDED
from onelayer.taylor import variables
from onelayer.taylor.hull import evaluate_hulled
from onelayer.taylor.registry import supported

ROWS = [*OPERATIONS.values(), *map(power, (-3, -2, 0, 1, 2, 5))]
# Beside ordinary numbers those at which some operation has no value, bends or jumps.
NUMBERS = [-2.5, -1.0, -math.nextafter(1, 2), -0.3, -1e-300, 0.0, 1e-300, 0.4, math.nextafter(1, 0), 1.0, 2.0, 3.7]


def arguments(row: Operation) -> list[tuple[float, ...]]:
    if row.arity == 1:
        return [(a,) for a in NUMBERS]
    return [
        tuple(NUMBERS[(at + shift * k) % len(NUMBERS)] for k in range(row.arity))
        for at in range(12)
        for shift in (0, 1, 5)
    ]


def value(row: Operation, args: tuple[float, ...]) -> float:
    try:
        return float(row.number(*args))
    except (ValueError, ZeroDivisionError):
        return math.nan
    except OverflowError:
        return math.inf


def tensors(args: tuple[float, ...]) -> list[torch.Tensor]:
    return [torch.tensor([a], dtype=torch.float64) for a in args]


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-14 * (1 + abs(b))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_column_is_filled(row: Operation) -> None:
    assert all(getattr(row, field.name) is not None for field in fields(row) if field.name not in ("guard", "infix"))
    assert row.taylor in supported()
    assert row.name == POWER or row.name in CHECKED
    assert row.name in RECORDED or row.taylor in RECORDED
    assert all(spelling in RECORDED for spelling in row.spellings)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_columns_say_the_same(row: Operation) -> None:
    """Float, torch, ball, interval and guard agree at every point, also on where there is no value."""
    for args in arguments(row):
        number = value(row, args)
        with ctx.workprec(300):
            ball = row.ball(*map(arb, args))
        low, high = row.image(*[(t, t) for t in tensors(args)])
        met = row.guard is None or bool(row.guard.met_by(tensors(args)[row.guard.argument])[0])
        defined = not math.isnan(number) and met
        assert met or not ball.is_finite(), (args, ball)
        assert defined or bool(torch.isnan(low) | torch.isnan(high)), (args, low, high)
        if defined and ball.is_finite() and math.isfinite(number):
            assert close(float(ball.mid()), number), (args, number, ball)
            assert close(float(row.torch(*tensors(args))), number), args
            assert not arb(float(low)) > ball, args
            assert not arb(float(high)) < ball, args
        exact = [Fraction(a) for a in args]
        assert not row.total(exact) or met
        if row.rational and row.total(exact):
            assert not math.isfinite(number) or close(float(row.number(*exact)), number), args


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_read_written_evaluated_and_enclosed(row: Operation) -> None:
    tape = Tape()
    nodes = [tape.variable(at) for at in range(row.arity)]
    exponent = round(math.log2(row.number(2.0))) if row.name == POWER else 0
    out = tape.add(row.name, *nodes, value=exponent)
    formula = Formula.build(tape.nodes, [out], (row.arity,))
    assert parse(str(formula), row.arity) == formula or exponent == 1
    args = (0.4, 0.7, 0.2)[: row.arity]
    assert close(float(formula(torch.tensor([args], dtype=torch.float64))), value(row, args))
    centre = torch.tensor([args], dtype=torch.float64)
    low, high = evaluate_hulled(formula, variables(centre - 0.1, centre + 0.1, 3), centre - 0.1, centre + 0.1).range()
    assert float(low) <= value(row, args) <= float(high) < float(low) + 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_no_number_has_no_value(row: Operation) -> None:
    for at in range(row.arity):
        for unknown in (arb("nan"), arb("nan").lower(), arb(0, "inf") * 0 + arb("nan")):
            args = [unknown if k == at else arb(0.5) for k in range(row.arity)]
            spared = row.chooses and at == 2  # 0.5 > 0 chooses the second argument
            assert spared or not row.ball(*args).is_finite()
        ends = [torch.tensor([math.nan if k == at else 0.5], dtype=torch.float64) for k in range(row.arity)]
        low, high = row.image(*[(end, end) for end in ends])
        assert spared or bool(low.isnan() & high.isnan())


def test_what_is_not_in_the_table_is_named() -> None:
    node: Any = Node("nonsense", (0,))
    with pytest.raises(FormulaError, match="unknown operation 'nonsense'"):
        operation(node.op)
    with pytest.raises(OnelayerError, match="nonsense"):
        checked(node)
    with pytest.raises(FormulaError, match="nonsense"):
        Tape().add("nonsense")
    assert not set(LEAVES) & set(OPERATIONS)
