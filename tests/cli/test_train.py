"""train, distill and study on the command line: what they print, their exit status, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onelayer.cli.console import run
from onelayer.cli.options import app

SMALL = ["--steps", "40", "--heads", "2", "--d-model", "8", "--hidden", "16", "--batch", "32"]


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(app, list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_train_prints_one_object_and_goes_on_from_its_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = ["train", "x1 * x2", "--domain", "0:1, 0:1", *SMALL, "--checkpoint", str(tmp_path / "c"), "--json"]
    status, out, err = command(capsys, *line)
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert {"sup", "rmse", "parameters", "seconds"} <= set(data)
    again = json.loads(command(capsys, *line)[1])
    assert again["sup"] == data["sup"]


def test_train_proves_saves_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "line"
    line = ["train", "x1 + x2", "--domain", "0:1, 0:1", *SMALL, "--eps", "1.0", "--out", str(folder)]
    status, out, _ = command(capsys, *line)
    assert status == 0
    assert "proved" in out
    assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "certificate.json", "picture.png"}
    assert command(capsys, *line[:-4], "--eps", "1e-9", "--json")[0] == 1


def test_distill_a_saved_result_with_a_proof(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "teacher"
    assert run(app, ["approximate", "sin(2*x)", "--domain", "-1:1", "--eps", "1e-5", "--out", str(folder)]) == 0
    status, out, _ = command(capsys, "distill", str(folder), "--eps", "1e-2", "--json")
    data = json.loads(out)
    assert status == 0
    assert data["status"] == "proved"
    assert data["teacher_parameters"] >= data["parameters"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "x1"], "needs domain="),
        (["train", "x1", "--domain", "0:1", "--heads", "5"], "multiple of heads"),
        (["train", "x1", "--domain", "0:1", "--device", "abacus"], "cpu or cuda"),
        (["train", "missing.csv", "--target", "y"], "cannot read missing.csv"),
        (["distill", "nowhere", "--eps", "0.1"], "nowhere"),
        (["study", "luck"], "no study 'luck'"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = command(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_study_writes_rows_and_a_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = command(capsys, "study", "kinds", "--out", str(tmp_path), "--json")
    assert status == 0
    found = json.loads(out)["kinds"]
    assert Path(found["picture"]).stat().st_size > 5000
    assert len(Path(found["rows"]).read_text().splitlines()) >= 6


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["sin(x)", "--domain=0:1", "--depth=2", "--certify"], "stack"),
        (["sin(x)", "--domain=0:1", "--depth=2", "--out=kept"], "stack"),
        (["table.csv", "--target=y", "--eps=0.1"], "table"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_it_is_trained(
    more: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.csv").write_text("x,y\n0,1\n1,2\n2,3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onelayer.train", lambda *given, **more: pytest.fail("it was trained"), raising=False)
    assert run(app, ["train", *more, "--steps=10"]) == 2
    assert says in capsys.readouterr().err
    assert [item.name for item in tmp_path.iterdir()] == ["table.csv"]
