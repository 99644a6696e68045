"""bound, lipschitz, gradient-error, monotone and equivalent on a saved folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onelayer as ol
from onelayer.cli.console import run
from onelayer.cli.options import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("claims") / "line"
    return ol.approximate("x + sin(x)/4", ol.Box([0.0], [1.0]), 1e-2).save(place)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    status = run(app, [*arguments, "--json"])
    return status, json.loads(capfd.readouterr().out)


def test_every_claim_of_a_folder(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, found = answer(capfd, "bound", str(folder))
    assert status == 0
    assert found["low"] <= 0.01
    assert found["high"] >= 1.2
    status, found = answer(capfd, "lipschitz", str(folder), "--eps", "2")
    assert (status, found["status"], found["claim"]) == (0, "proved", "sup sum_i |dT/dx_i|")
    assert answer(capfd, "lipschitz", str(folder), "--eps", "0.5")[0] == 1
    assert answer(capfd, "gradient-error", str(folder))[0] == 0
    assert answer(capfd, "monotone", str(folder), "x1 +")[1]["status"] == "proved"
    assert answer(capfd, "monotone", str(folder), "x1 -")[0] == 1
    assert answer(capfd, "prove", str(folder), "y1 >= x1 - 0.1 and y1 < 2")[1]["status"] == "proved"
    assert answer(capfd, "prove", str(folder), "y1 < 1")[0] == 1
    assert answer(capfd, "equivalent", str(folder), str(folder), "--eps", "1e-9")[1]["status"] == "proved"


def test_bad_questions_are_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["monotone", str(folder), "y +"],
        ["monotone", str(folder), ""],
        ["prove", str(folder), "y2 > 0"],
        ["bound", str(folder / "no")],
    ):
        assert run(app, arguments) == 2
        assert len(capfd.readouterr().err.splitlines()) == 1
