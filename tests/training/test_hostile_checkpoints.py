"""What lies where a checkpoint should be is refused in one line, waited for never; and what a run writes is JSON."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.training.checkpoint import FILE_NAME, read_checkpoint, write_checkpoint
from onelayer.training.distill import Distilled
from onelayer.training.trained import HISTORY

SMALL: dict[str, Any] = {"steps": 2, "heads": 1, "d_model": 2, "hidden": 2, "batch": 4}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes of that kind")
def test_a_pipe_is_no_checkpoint_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    with pytest.raises(OnelayerError, match="not a regular file"):
        ol.train("x", ol.Box([0], [1]), checkpoint=tmp_path, **SMALL)


@pytest.mark.parametrize("missing", ["step", "weights", "optimiser", "source", "history"])
def test_a_checkpoint_without_its_parts_is_one_line(missing: str, tmp_path: Path) -> None:
    ol.train("x", ol.Box([0], [1]), checkpoint=tmp_path, **SMALL)
    state = read_checkpoint(tmp_path)
    assert state is not None
    for broken in ({name: part for name, part in state.items() if name != missing}, {**state, missing: "x"}):
        write_checkpoint(tmp_path, broken)
        if missing == "step" and missing in broken:
            continue
        with pytest.raises(OnelayerError, match="corrupt"):
            ol.train("x", ol.Box([0], [1]), checkpoint=tmp_path, **SMALL)


@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"\xff" * 8, (2).to_bytes(8, "little") + b"{}"])
def test_bytes_that_are_no_checkpoint_are_one_line(data: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(OnelayerError):
        read_checkpoint(tmp_path)


def test_a_run_without_a_number_writes_json(tmp_path: Path) -> None:
    run = replace(ol.train("x", ol.Box([0], [1]), **SMALL), final={"sup": math.nan, "rmse": math.inf})

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    text = (run.save(tmp_path / "run") / HISTORY).read_text()
    assert json.loads(text, parse_constant=refused)["final"] == {"sup": "nan", "rmse": "inf"}


def test_a_student_whose_proof_failed_is_not_called_certified() -> None:
    made = ol.distill("sin(9*x)", ol.Box([0], [9]), 1e-6, max_tokens=2, max_seconds=2)
    assert made.approximation is not None
    assert not made.approximation.certificate.proved
    assert isinstance(made, Distilled)
    assert "certified" not in str(made)
    assert made.road == "built"
