"""Parts that a formula shares are opened once: sums of sums of sums have far more ways down than nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

import onelayer as ol
from onelayer.build.nested.apart import take_apart
from onelayer.build.nested.composer import composer
from onelayer.build.sequences.recognise import Recogniser
from onelayer.language.formula import Formula, parse
from onelayer.recording.target import as_target

pytestmark = pytest.mark.usefixtures("in_time")
LEVELS = 30  # 2^30 ways down
SQUARE = ol.Box([0.5, 0.5], [1.0, 1.0])


def stepped(first: str, step: str, levels: int = LEVELS) -> Formula:
    """t1 = first, and every further line the step of the one before."""
    lines = [f"t1 = {first}", *(f"t{k + 1} = {step.format(f't{k}')}" for k in range(1, levels))]
    return parse("; ".join([*lines, f"t{levels}"]), 2)


def test_the_summands_of_shared_sums_are_opened_once() -> None:
    formula = stepped("sin(x1*x2)", "{0} + {0}", 14)
    found = Recogniser(formula, SQUARE, affine=True).summands(formula.outputs[0])
    assert [factor for factor, _ in found] == [2**13]


def test_summands_that_cancel_are_still_named() -> None:
    """What is left of them is where they have no value: here at one point, which no sample sees."""
    text = "t = log(abs(x1 - 0.712345678) + abs(x2 - 0.7)); t - t + x1"
    found = Recogniser(parse(text, 2), SQUARE, affine=False).summands(parse(text, 2).outputs[0])
    assert sorted(factor for factor, _ in found) == [0, 1]
    with pytest.raises(ol.OnelayerError, match="not shown to have a value"):
        ol.superpose(text, SQUARE, 0.1)


def test_the_factors_of_shared_products_are_counted() -> None:
    formula = stepped("x1*exp(x2)", "{0}*{0}", 12)
    (term,), rest = Recogniser(formula, SQUARE, affine=False).terms(0)
    assert not rest
    assert sorted(weight for _, _, weight in term.inner) == [2**11, 2**11]


def _tokens(formula: Formula) -> Any:
    return Recogniser(formula, SQUARE, affine=False).terms(0)


def _apart(formula: Formula) -> Any:
    return take_apart(formula, SQUARE)


def _composer(formula: Formula) -> Any:
    return composer(as_target(formula, SQUARE), SQUARE, torch.float64)


@pytest.mark.parametrize("step", ["0.5*({0} + {0})", "{0} - 0.5*{0}", "{0}*{0}", "sqrt({0}*{0})", "log({0}*{0}) + 2"])
@pytest.mark.parametrize("first", ["x1*x2", "sin(x1*x2)", "x1 + x2 - 1"])
@pytest.mark.parametrize("read", [_tokens, _apart, _composer])
def test_shared_parts_take_no_time(read: Callable[[Formula], Any], first: str, step: str) -> None:
    # Of powers that no float holds nothing is read.
    with suppress(ol.OnelayerError):
        read(stepped(first, step))


def test_a_deadline_is_kept_by_a_formula_that_shares_parts() -> None:
    lines = "; ".join(f"t{k + 1} = t{k} + t{k}" for k in range(1, LEVELS))
    made = ol.approximate(f"t1 = sin(x1*x2); {lines}; t{LEVELS}*{2.0**-LEVELS}", SQUARE, 0.1, max_seconds=2, jobs=1)
    assert made.certificate.proved
