"""Checks and verdicts: a number that misses its bound, or is no number, withholds the verdict."""

from __future__ import annotations

import math

import pytest

from onelayer.errors import OnelayerError
from onelayer.paper.finding import HOLDS, UNCONFIRMED, Check, Finding, number
from onelayer.paper.registry import chosen


@pytest.mark.parametrize(
    ("value", "relation", "bound", "holds"),
    [
        (1, "<=", 1, True),
        (1, "<", 1, False),
        (2, ">=", 1, True),
        (1, ">", 1, False),
        (0.0, "=", 0, True),
        (1e-300, "=", 0, False),
        (math.nan, "<=", math.inf, False),
        (math.nan, "=", math.nan, False),
        (math.inf, "<=", 1, False),
    ],
)
def test_check(value: float, relation: str, bound: float, holds: bool) -> None:
    assert Check("x", value, relation, bound).holds is holds


def test_verdict_is_withheld_by_one_failed_check() -> None:
    good, bad = Check("a", 1, "<", 2), Check("b", 3, "<", 2)
    assert Finding(HOLDS, "", [good]).judged == HOLDS
    assert Finding(HOLDS, "", [good, bad]).judged == UNCONFIRMED


def test_a_finding_needs_a_check_and_a_known_verdict() -> None:
    with pytest.raises(ValueError, match="check"):
        Finding(HOLDS, "", [])
    with pytest.raises(ValueError, match="verdict"):
        Finding("true", "", [Check("a", 1, "<", 2)])


def test_unknown_experiment_is_named() -> None:
    with pytest.raises(OnelayerError, match="'19'"):
        chosen(["5", "19"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (12345, "12,345"),
        (0.123456, "0.1235"),
        (5.55e-17, "5.55e-17"),
        (True, "yes"),
        ("x", "x"),
    ],
)
def test_numbers_for_readers(value: object, text: str) -> None:
    assert number(value) == text
