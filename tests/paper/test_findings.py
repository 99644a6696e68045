"""Checks and verdicts: a number that misses its bound, or is no number, withholds the verdict."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import pytest

import onelayer.paper
from onelayer.errors import OnelayerError
from onelayer.paper.finding import HOLDS, UNCONFIRMED, Check, Finding, largest, measured, number, smallest
from onelayer.paper.page import _check
from onelayer.paper.record import RESULTS, Setting, prepare, read_record, write_record
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


def shown(value: float, relation: str, bound: float) -> str:
    check = Check("x", value, relation, bound)
    return measured({"value": check.value, "relation": relation, "bound": check.bound, "holds": check.holds})


@pytest.mark.parametrize("value", [0.1234449, 0.12344501, 9.9999e-5, 1.00001, 3.14159e-7, 123456.7])
def test_a_proved_number_is_printed_on_its_side(value: float) -> None:
    assert float(shown(value, "<=", 1e9)) >= value
    assert float(shown(value, ">=", 0.0)) <= value
    # Beside a bound that it just misses or just meets it is seen to.
    assert float(shown(value, "<=", math.nextafter(value, 0))) > math.nextafter(value, 0)
    assert float(shown(value, "<=", math.nextafter(value, 1e9))) <= math.nextafter(value, 1e9)
    assert float(shown(value, "<", math.nextafter(value, 1e9))) < math.nextafter(value, 1e9)


@pytest.mark.parametrize("of", [largest, smallest])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_no_number_is_not_lost_among_numbers(of: object, at: int) -> None:
    values = [1.0, 2.0, 3.0]
    values[at] = math.nan
    assert callable(of)
    assert not Check("x", of(values), "<=", math.inf).holds


def test_checks_take_no_extreme_that_loses_what_is_no_number() -> None:
    """Python's max and min drop a nan that is not the first: inside a check they would turn it into a verdict."""
    for path in Path(onelayer.paper.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Check":
                inside = [node for part in call.args[1:2] for node in ast.walk(part) if isinstance(node, ast.Name)]
                counted = {"seen", "counts"}  # whole numbers
                names = {node.id for node in inside}
                assert not names & {"max", "min"} or names & counted, f"{path.name}:{call.lineno}"


def test_a_record_whose_verdict_its_checks_do_not_grant_is_run_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    (experiment,) = chosen(["9"])
    write_record(tmp_path, experiment, Setting(), Finding(HOLDS, "", [Check("a", 1, "<", 2)]), 0.0)
    path = tmp_path / RESULTS / "9.json"
    record = json.loads(path.read_text())
    assert read_record(tmp_path, experiment) is not None
    for changes in ({"value": 3.0}, {"value": 3.0, "holds": False}, {"relation": "?"}, {"value": "<b>"}):
        changed = {**record, "checks": [{**record["checks"][0], **changes}]}
        path.write_text(json.dumps(changed))
        assert read_record(tmp_path, experiment) is None
    path.write_text(json.dumps({**record, "checks": []}))
    assert read_record(tmp_path, experiment) is None


def test_a_number_in_a_record_cannot_become_markup() -> None:
    hostile = {"what": "a", "value": "<script>", "relation": "<", "bound": 1.0, "holds": False}
    assert "<script>" not in _check(hostile)
