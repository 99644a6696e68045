"""A map of an engine as a user brings it: a CSV file, a command, a proof between the rows, files that are checked."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import onelayer as ol
from onelayer.cli import app
from onelayer.errors import FileError


def engine(folder: Path) -> Path:
    """11 x 9 rows of torque over rpm and load, rounded as a test bench writes them; their range is 128.7."""
    rpm, load = np.linspace(800, 6300, 11), np.linspace(10, 100, 9)
    path = folder / "engine.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["rpm", "load", "torque"])
        for r in rpm.tolist():
            for p in load.tolist():
                torque = 1.3 * p * np.exp(-(((r - 3400) / 2600) ** 2)) + 12 * np.sin(r / 1100) * p / 100 + 8
                rows.writerow([r, p, round(float(torque), 1)])
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command writes."""
    folder = tmp_path_factory.mktemp("engine")
    path, out = engine(folder), folder / "engine"
    words = f"approximate {path} --inputs rpm,load --target torque --interpolate cubic --eps 0.5 --out {out} --json"
    said = CliRunner().invoke(app, words.split())
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["status"] == "proved"
    assert found["parameters"] < 99
    return out


def test_the_command_proves_half_a_percent_with_fewer_parameters_than_rows(made: Path) -> None:
    assert CliRunner().invoke(app, ["check", str(made)]).exit_code == 0
    assert (made / "function.txt").read_text().startswith("spline(")


def test_a_number_of_the_table_that_was_changed_is_seen(made: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(made, tmp_path / "copy")
    text = (copy / "function.txt").read_text()
    (copy / "function.txt").write_text(text.replace("-850", "-851"))
    with pytest.raises(FileError, match="another function"):
        ol.check(copy)


def test_the_file_for_onnxruntime_is_the_layer(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert ol.load(made).export("onnx", tmp_path / "engine.onnx").difference < 1e-9


@pytest.mark.slow
def test_in_float32(tmp_path: Path) -> None:
    table = ol.Table.read(engine(tmp_path), inputs=["rpm", "load"], output="torque", interpolate="cubic")
    found = ol.approximate(table, table.box, eps=0.64, dtype=torch.float32)
    assert found.certificate.proved
    assert "float32" in found.certificate.arithmetic
    assert found.model.size()["parameters"] < 99


def test_memorize_says_how_far_it_is_between_the_rows(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["memorize", str(engine(tmp_path)), "--target", "torque"])
    assert said.exit_code == 0
    assert "between" in said.output


def test_frames_and_parquet_are_the_same_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(engine(tmp_path))
    read = ol.Table.read(frame, inputs=["rpm", "load"], output="torque")
    assert np.array_equal(
        read.values, ol.Table.read(tmp_path / "engine.csv", inputs=["rpm", "load"], output="torque").values
    )
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "engine.parquet")
    again = ol.Table.read(tmp_path / "engine.parquet", inputs=["rpm", "load"], output="torque")
    assert again.formula == read.formula


def test_a_map_of_three_inputs_to_a_percent(tmp_path: Path) -> None:
    """51 x 41 x 7 rows: proved in float64, checked, and with a hundredth of the numbers of the table."""
    rpm, load, gear = np.linspace(800, 6300, 51), np.linspace(5, 100, 41), np.linspace(1, 7, 7)
    r, p, g = np.meshgrid(rpm, load, gear, indexing="ij")
    torque = 1.3 * p * np.exp(-(((r - 3400) / 2600) ** 2)) * (1 + 0.05 * g) + 12 * np.sin(r / 1100) * p / 100 + 8
    table = ol.Table((rpm, load, gear), np.round(torque, 1), ("rpm[1/min]", "load[%]", "gear"), "torque", "cubic")
    found = ol.approximate(table, table.box, 0.01 * np.ptp(torque))
    assert found.certificate.proved
    assert found.model.size()["parameters"] < len(table) / 100
    found.save(tmp_path / "map")
    assert ol.check(tmp_path / "map").ok
