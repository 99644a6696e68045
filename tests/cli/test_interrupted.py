"""Ctrl-C: one line that says what is kept, and it is kept."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import onelayer as ol
from onelayer.cli.console import INTERRUPTED, run
from onelayer.cli.options import app
from onelayer.observer import Observer


@contextmanager
def interrupt(monkeypatch: pytest.MonkeyPatch, stage: str, times: int = 1) -> Iterator[None]:
    """A signal as Ctrl-C sends it, when a call has reported the stage so many times."""
    heard: list[str] = []
    report = Observer.report

    def reporting(self: Observer, name: str, *rest: Any, **more: Any) -> None:
        report(self, name, *rest, **more)
        heard.extend([name] * (name == stage))
        if name == stage and len(heard) == times:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Observer, "report", reporting)
    yield
    assert len(heard) >= times


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What an interrupted command says of it, one line."""
    assert run(app, list(arguments)) == INTERRUPTED
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.fixture(autouse=True)
def heard_as_usual() -> Iterator[None]:
    """What is started in the background by a shell ignores the signal of Ctrl-C, the tests as well."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ol.approximate("sin(3*x)", ol.Box([0], [1]), 1e-2).save(tmp_path_factory.mktemp("saved") / "layer")


def test_a_layer_is_kept(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    with interrupt(monkeypatch, "proving"):
        command = ("approximate", "sin(3*x)", "--domain", "0:1", "--eps", "1e-4", "--out", str(out))
        assert said(capfd, *command) == f"interrupted; the best result so far is in {out}"
    assert not ol.load(out).certificate.proved


def test_the_state_of_a_proof_is_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("onelayer.proof.checkpoint.EVERY", 0.0)  # it is written between any two rounds
    monkeypatch.setattr("onelayer.proof.checkpoint.SHARE", math.inf)
    before = ol.load(folder).certificate
    nearly = ol.certify(ol.load(folder).model, "sin(3*x)", ol.Box([0], [1]), gap=1e-6).lower
    with interrupt(monkeypatch, "proving", times=4):
        line = said(capfd, "certify", str(folder), "--eps", str(nearly * (1 + 1e-9)), "--order", "1", "--save")
    assert line == f"interrupted; the state of the proof is in {folder}.checkpoint, and --resume goes on"
    assert ol.load(folder).certificate == before


def test_a_claim_is_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "claim"
    with interrupt(monkeypatch, "proving"):
        line = said(capfd, "lipschitz", str(folder), "--out", str(out))
    assert line == f"interrupted; the best so far is in {out}"
    assert not ol.load_claim(out).certificate.proved


def test_trained_weights_are_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "trained"
    with interrupt(monkeypatch, "training"):
        command = ("train", "sin(x)", "--domain", "0:1", "--steps", "10000000", "--batch", "8", "--out", str(out))
        monkeypatch.setattr("onelayer.training.recipe.EVALUATIONS", 10**6)
        assert said(capfd, *command) == f"interrupted; the weights so far are in {out}"
    assert (out / "model.safetensors").is_file()


def test_rows_of_a_study_are_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with interrupt(monkeypatch, "cells"):
        line = said(capfd, "study", "heads", "--out", str(tmp_path))
    assert line == f"interrupted; what is finished is kept in {tmp_path}, and the same command goes on"


def test_a_layer_of_the_zoo_is_stopped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupt(monkeypatch, "proving"):
        assert said(capfd, "zoo", "sine sum") == "interrupted; this is the best result so far"


def test_a_picture_is_not_begun(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    with interrupt(monkeypatch, "starting"):
        line = said(capfd, "draw", str(folder), "--out", str(tmp_path / "picture.png"))
    assert line == "interrupted; nothing was written"
    assert not any(tmp_path.iterdir())


def test_a_check_says_what_it_knows(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    with interrupt(monkeypatch, "checking"):
        assert said(capfd, "check", str(folder)) == "interrupted; this is what the checker knows so far"
