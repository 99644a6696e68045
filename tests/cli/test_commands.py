"""The command line as a user meets it: what it prints, its exit status, and one line for every bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.layer.file import save_model
from onelayer.proof.files import write_proof
from onelayer.result import load


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "wave"
    assert run(app, ["approximate", "sin(3*x)", "--domain", "-1:1", "--eps", "1e-4", "--out", str(folder)]) == 0
    return folder


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(app, list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_approximate_leaves_model_proof_and_picture(saved: Path) -> None:
    names = {path.name for path in saved.iterdir()}
    assert names == {"model.safetensors", "certificate.json", "boxes.bin", "function.txt", "picture.png"}
    assert [path.name for path in saved.parent.iterdir()] == ["wave"]


def test_json_is_one_object_with_the_size_keys(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = command(capsys, "approximate", "x*y", "--domain", "0:1, 0:1", "--eps", "0.01", "--json")
    data = json.loads(out)
    assert status == 0
    assert err == ""
    assert data["status"] == "proved"
    assert data["lower"] <= data["upper"] <= data["eps"] == 0.01
    assert {"heads", "tokens", "hidden_units", "parameters"} <= set(data)


def test_check_certify_eval_draw(saved: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(capsys, "check", str(saved))[0] == 0
    status, out, _ = command(capsys, "check", str(saved), "--all", "--json")
    assert status == 0
    assert json.loads(out)["ok"] is True
    assert command(capsys, "certify", str(saved), "--eps", "1e-3")[0] == 0
    status, out, _ = command(capsys, "certify", str(saved), "--eps", "1e-12", "--json")
    assert status == 1
    assert json.loads(out)["status"] == "refuted"
    assert len(json.loads(out)["witness"]) == 1
    # No fit ran, and no time makes this layer another one.
    status, out, _ = command(capsys, "certify", str(saved), "--eps", "1e-12")
    assert status == 1
    assert "fit" not in out
    assert "--max-seconds" not in out
    status, out, _ = command(capsys, "eval", str(saved), "0.5; -pi/8")
    assert status == 0
    assert [float(line) for line in out.split()] == pytest.approx([0.99749, -0.92388], abs=2e-4)
    assert "outside" in command(capsys, "eval", str(saved), "3")[1]
    picture = tmp_path / "error.svg"
    assert command(capsys, "draw", str(saved), "--out", str(picture))[0] == 0
    assert picture.stat().st_size > 1000


def test_a_value_is_shown_beside_the_point_at_which_it_was_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is rounded to the format of the layer first, which may move it out of the domain."""
    made = str(tmp_path / "made")
    asked = ("approximate", "x", "--domain", "0:1", "--eps", "1e-2", "--dtype", "float16", "--out", made)
    assert command(capsys, *asked)[0] == 0
    (shown,) = json.loads(command(capsys, "eval", made, "0.1", "--json")[1])["points"]
    assert shown["x"] == [float(torch.tensor(0.1, dtype=torch.float16))]


def test_budget_too_small_is_honest(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(
        capsys, "approximate", "cos(40*x)", "--domain", "-1:1", "--eps", "1e-6", "--max-tokens", "5", "--json"
    )
    data = json.loads(out)
    assert status == 1
    assert data["status"] in ("refuted", "undecided")
    assert data["tokens"] <= 5 < data["wanted_tokens"]


GOOD = ["--domain", "0:1", "--eps", "1e-3"]
BAD = {
    "malformed formula": (["approximate", "sin(x", *GOOD], "column"),
    "unknown name": (["approximate", "foo(x)", *GOOD], "foo"),
    "code instead of a formula": (["approximate", "__import__('os').system('true')", *GOOD], "column"),
    "discontinuous": (["approximate", "round(x)", *GOOD], "floor"),
    "pole inside": (["approximate", "1/(x-0.3)", "--domain", "0:1", "--eps", "1e-3"], "0.3"),
    "log at zero": (["approximate", "log(x)", *GOOD], "0"),
    "variable outside the box": (["approximate", "x1+x2", *GOOD], "x2"),
    "empty box": (["approximate", "x", "--domain", "1:0", "--eps", "1"], "smaller endpoint first"),
    "infinite box": (["approximate", "x", "--domain", "0:1/0", "--eps", "1"], "finite"),
    "nan in the box": (["approximate", "x", "--domain", "nan:1", "--eps", "1"], "column"),
    "no colon": (["approximate", "x", "--domain", "0,1", "--eps", "1"], "lower:upper"),
    "eps zero": (["approximate", "x", "--domain", "0:1", "--eps", "0"], "eps"),
    "eps negative": (["approximate", "x", "--domain", "0:1", "--eps=-1"], "eps"),
    "eps nan": (["approximate", "x", "--domain", "0:1", "--eps", "nan"], "eps"),
    "eps not a number": (["approximate", "x", "--domain", "0:1", "--eps", "small"], "--eps"),
    "dtype": (["approximate", "x", *GOOD, "--dtype", "int4"], "float32"),
    "missing option": (["approximate", "x", "--eps", "1"], "--domain"),
    "unknown command": (["aproximate"], "aproximate"),
    "unwritable folder": (["approximate", "x", *GOOD, "--out", "/proc/onelayer/out"], "/proc/onelayer"),
    "missing folder": (["check", "no-such-folder"], "no-such-folder"),
    "missing folder for eval": (["eval", "no-such-folder", "1"], "no-such-folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_status_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, says = BAD[name]
    status, out, err = command(capsys, *arguments)
    assert status == 2, (out, err)
    assert out == ""
    assert len(err.strip().splitlines()) == 1, err
    assert says in err
    status, out, _ = command(capsys, *arguments, "--json")
    assert status == 2
    assert list(json.loads(out)) == ["error"]


def test_bad_points(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for point, says in (("1, 2", "coordinates"), ("", "at least one"), ("x", "constant"), ("1e999", "finite")):
        status, _, err = command(capsys, "eval", str(saved), point)
        assert status == 2, point
        assert says in err


def test_corrupt_files_are_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("model.safetensors", "certificate.json", "boxes.bin"):
        folder = tmp_path / name.split(".")[0]
        folder.mkdir()
        for path in saved.iterdir():
            content = path.read_bytes()
            (folder / path.name).write_bytes(content[: len(content) // 2] if path.name == name else content)
        for verb in (["check"], ["certify"], ["draw"]):
            status, out, err = command(capsys, *verb, str(folder))
            assert status == 2, (name, verb, out)
            assert len(err.strip().splitlines()) == 1


def test_check_has_three_words_and_a_status_for_each(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 for accepted alone; time that ended first and a false claim are 1, what is no proof at all is 2."""
    status, out, err = command(capsys, "check", str(saved))
    assert (status, out.split(":")[0], err) == (0, "accepted", "")
    status, out, err = command(capsys, "check", str(saved), "--max-seconds", "0")
    assert (status, out.split(":")[0], err) == (1, "not contradicted", "")
    assert "boxes (0.00%), 0.00% of the volume" in out
    data = json.loads(command(capsys, "check", str(saved), "--max-seconds", "0", "--json")[1])
    assert (data["verdict"], data["ok"], data["fraction"], data["volume"]) == ("not contradicted", False, 0, 0)
    false = load(saved)
    smaller = replace(false.certificate, eps=1e-9, lower=0.0, upper=1e-9, witness=None)
    save_model(false.model, tmp_path / "false")
    write_proof(tmp_path / "false", smaller)
    status, out, err = command(capsys, "check", str(tmp_path / "false"))
    assert (status, out.split(":")[0], err) == (1, "rejected", "")
    assert out.count("\n") == 1
    status, out, err = command(capsys, "check", str(tmp_path / "nothing"))
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_draw_html_export_c_and_their_refusals(saved: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = command(capsys, "draw", str(saved), "--html", "--out", str(tmp_path / "live.html"), "--json")
    assert status == 0
    assert json.loads(out) == {"page": str(tmp_path / "live.html")}
    assert (tmp_path / "live.html").read_text().startswith("<!DOCTYPE html>")
    assert command(capsys, "draw", str(saved), "--html", "--out", str(tmp_path / "x.png"))[0] == 2
    status, out, _ = command(capsys, "export", str(saved), "--to", "c", "--out", str(tmp_path / "wave.c"), "--json")
    assert status == 0
    assert json.loads(out)["bytes"] == sum((tmp_path / f"wave.{kind}").stat().st_size for kind in "ch")
    for wrong in (["--guard", "shout"], ["--to", "coq", "--guard", "warn"]):
        status, _, err = command(capsys, "export", str(saved), "--to", "c", "--out", str(tmp_path / "w.c"), *wrong)
        assert status == 2
        assert len(err.strip().splitlines()) == 1


def test_devices(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "certify", str(saved), "--eps", "1e-3", "--device", "auto")[0] == 0
    status, _, err = command(capsys, "certify", str(saved), "--eps", "1e-3", "--device", "abacus")
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    status, _, err = command(capsys, "approximate", "x", "--domain", "0:1", "--eps", "0.1", "--device", "abacus")
    assert status == 2
    assert "cpu" in err


def test_few_bits_and_slopes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wave = ["approximate", "sin(3*x)*exp(-x)", "--domain", "-1:1"]
    status, out, _ = command(capsys, *wave, "--eps", "2e-2", "--dtype", "bfloat16", "--json")
    assert (status, json.loads(out)["arithmetic"]) == (0, "bfloat16 execution")
    status, out, _ = command(capsys, *wave, "--eps", "1e-2", "--gradient-eps", "5e-2", "--json")
    assert (status, json.loads(out)["gradient"]["status"]) == (0, "proved")
    status, _, err = command(capsys, *wave, "--eps", "1e-2", "--dtype", "int4")
    assert status == 2
    assert "dtype must be float64, float32, float16 or bfloat16" in err
