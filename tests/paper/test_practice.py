"""What is said about training follows the rows: fabricated rows lead to other sentences and other verdicts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from onelayer.paper.distillation import ELSEWHERE
from onelayer.paper.finding import HOLDS, UNCONFIRMED, Setting
from onelayer.paper.practice import digits, trainability
from onelayer.study import STUDIES
from onelayer.study.study import Findings, Study

ROOT = Path(__file__).parents[2]


def given(monkeypatch: pytest.MonkeyPatch, name: str, rows: list[dict[str, Any]]) -> None:
    """Let the study return these rows."""
    study = STUDIES[name]
    bare = Study(name, study.question, study.cells, study.measure, lambda rows: Figure(), study.findings)
    rows = [{"seconds": 2.0, **row} for row in rows]
    found = Findings(bare, rows, study.findings(rows), Path("rows"), Path("picture"))
    monkeypatch.setattr("onelayer.paper.practice.study", lambda *_: found)


def starts(target: str, built: float, trained: float) -> list[dict[str, Any]]:
    rows = [{"target": target, "start": "trained", "seed": seed, "sup": trained} for seed in range(3)]
    return [
        {"target": target, "start": "built", "sup": built},
        *rows,
        {"target": target, "start": "trained from built", "seed": 0, "sup": built},
    ]


def test_training_that_finds_what_exists_is_said_to_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "trainability", starts("waves", 1e-3, 0.1) + starts("bend", 1e-3, 1.1e-3))
    finding = trainability(Setting())
    assert finding.judged == HOLDS
    assert "did not find them for sin x1 + sin x2 and found them for exp(sin pi x)." in finding.said
    assert finding.spent == 20.0
    given(monkeypatch, "trainability", starts("waves", 1e-3, 1e-3) + starts("bend", 1e-3, 1e-3))
    assert trainability(Setting()).judged == UNCONFIRMED


def rules(difference: float) -> list[dict[str, Any]]:
    losses = {"gradient descent": 0.1, "sgd": 0.3, "momentum": 0.2, "adam": 0.05}
    rows: list[dict[str, Any]] = [
        {"method": "numpy and torch", "optimiser": name, "rate": 0.1, "steps": 60, "numpy_loss": loss,
         "torch_loss": loss, "largest_difference": difference if name == "momentum" else 0.0}
        for name, loss in losses.items()
    ]  # fmt: skip
    return [*rows, {"method": "classifier", "accuracy": 0.99, "parameters": 30_000, "test_rows": 450}]


def test_a_run_that_blows_up_withholds_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "digits", rules(0.0))
    assert digits(Setting()).judged == HOLDS
    given(monkeypatch, "digits", rules(math.nan))
    assert digits(Setting()).judged == UNCONFIRMED


def test_numbers_measured_elsewhere_are_those_of_their_file() -> None:
    (name,) = re.findall(r"benchmarks/results/\S+\.json", ELSEWHERE)
    layer, linear = json.loads((ROOT / name).read_text(encoding="utf-8"))["rows"]
    assert "elsewhere, not in this run" in ELSEWHERE
    for number in (layer["parameters"], layer["teacher's blocks"], layer["held out"]):
        assert f"{number:,}" in ELSEWHERE
    assert layer["cosine"] in ELSEWHERE
    assert linear["cosine"] in ELSEWHERE
