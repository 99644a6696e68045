"""Folders made to hurt: every door answers with one line and the status of bad input, at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from folder_mutations import BOXES, CERTIFICATE, FUNCTION, MODEL, arrays_of, signed, stored
from folder_truth import falsehood

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.superpose import superpose
from onelayer.checker.check import check
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.conductor import approximate
from onelayer.errors import FileError
from onelayer.result import load

Doors = list[list[str]]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return approximate("abs(x1 - x2)", Box([0.0, 0.0], [1.0, 1.0]), 1e-6).save(tmp_path_factory.mktemp("made") / "a")


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    for file in honest.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def doors(folder: Path) -> Doors:
    point = ["eval", str(folder), "0.5, 0.5"]
    return [["check", str(folder)], point, ["draw", str(folder)], ["certify", str(folder)], ["explain", str(folder)]]


def refused_everywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FileError in Python, one line and status 2 on the command line."""
    with pytest.raises(FileError) as from_load:
        load(folder)
    with pytest.raises(FileError) as from_check:
        check(folder)
    for caught in (from_load, from_check):
        assert "\n" not in str(caught.value)
    for command in doors(folder):
        assert run(app, command) == 2, command
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("onelayer: ")
        assert err.count("\n") == 1


def change_claim(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Another claim, signed anew."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    claim = json.loads(files[CERTIFICATE])
    change(claim)
    files[CERTIFICATE] = json.dumps(claim).encode()
    (folder / CERTIFICATE).write_bytes(signed(files)[CERTIFICATE])


def replace_text(folder: Path, old: str, new: str) -> None:
    path = folder / CERTIFICATE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("name", [CERTIFICATE, MODEL, BOXES, FUNCTION])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "dangling link", "device"])
def test_only_regular_files_are_read(folder: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe without a writer would be waited for, a device read for ever, a link leads anywhere."""
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (folder.parent / "elsewhere").write_bytes(data)
        path.symlink_to(folder.parent / "elsewhere")
    elif kind == "dangling link":
        path.symlink_to(folder.parent / "nowhere")
    else:
        path.symlink_to("/dev/zero")
    refused_everywhere(folder, capsys)


@pytest.mark.parametrize("name", [CERTIFICATE, MODEL, BOXES, FUNCTION])
def test_sizes_are_limited_before_reading(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A terabyte of zeros takes no room on a disk, and all memory of whoever reads it."""
    with (folder / name).open("r+b") as file:
        file.truncate(2**40)
    refused_everywhere(folder, capsys)


@pytest.mark.parametrize("literal", ["1e999", "-1e999", "NaN", "Infinity", "9" * 400, "1" + "0" * 5000, "[" * 9999])
@pytest.mark.parametrize("field", ["upper", "seconds", "boxes", "order"])
def test_numbers_that_are_none(folder: Path, field: str, literal: str, capsys: pytest.CaptureFixture[str]) -> None:
    stated = json.dumps(json.loads((folder / CERTIFICATE).read_text())[field])
    replace_text(folder, f'"{field}": {stated}', f'"{field}": {literal}')
    refused_everywhere(folder, capsys)


CLAIMS: dict[str, Callable[[dict[str, object]], object]] = {
    "sides of unequal length": lambda c: c["domain"][1].pop(),  # type: ignore[attr-defined,index]
    "sides of unequal length, no witness": lambda c: c.update(
        domain=[[0.0, 0.0], [1.0]], witness=None, lower=0.0, resisted=None
    ),
    "no sides": lambda c: c.update(domain=[]),
    "three sides": lambda c: c.update(domain=[*c["domain"], [1.0, 1.0]]),  # type: ignore[misc]
    "no shape": lambda c: c.update(shape=[]),
    "endless shape": lambda c: c.update(shape=[2**62] * 20_000),
    "shape of nothing": lambda c: c.update(shape=[0, 2]),
    "witness of other size": lambda c: c.update(witness=[0.5]),
    "upper below lower": lambda c: c.update(upper=0.0, lower=0.5, witness=[0.5, 0.5]),
    "true for a number": lambda c: c.update(upper=True),
    "text for a number": lambda c: c.update(upper="inf "),
    "negative boxes": lambda c: c.update(boxes=-1),
    "many boxes": lambda c: c.update(boxes=2**62),
    "status that does not follow": lambda c: c.update(status="refuted"),
    "unknown status": lambda c: c.update(status="true"),
    "half a surrogate pair": lambda c: c.update(version="\ud800"),
    "a field more": lambda c: c.update(note="x"),
    "a list": lambda c: c.clear(),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_malformed_claims(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    change_claim(folder, CLAIMS[name])
    refused_everywhere(folder, capsys)


def test_another_shape_is_not_that_of_the_model(folder: Path) -> None:
    change_claim(folder, lambda claim: claim.update(shape=[1, 2]))
    assert check(folder).verdict == "rejected"
    with pytest.raises(FileError, match="shape"):
        load(folder)


def accepted(folder: Path) -> bool:
    try:
        return check(folder).ok
    except FileError:
        return False


@pytest.mark.parametrize(
    "text", ["x1; x2", "x1 + x3", "", ";", "x1 +", "1/0", "exp(1e9)", "(" * 5000, "a" * 9999, "\0"]
)
def test_other_functions(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another number of outputs or of variables, or no formula at all."""
    (folder / FUNCTION).write_text(text)
    change_claim(folder, lambda claim: claim.update(function=text))
    assert not accepted(folder)
    for command in doors(folder)[1:]:
        assert run(app, command) == 2
        assert capsys.readouterr().err.count("\n") == 1


def reconfigured(folder: Path, **config: object) -> None:
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    metadata, arrays = arrays_of(files[MODEL])
    document = json.loads(metadata["onelayer"])
    document["config"] |= config
    files[MODEL] = stored({"onelayer": json.dumps(document, sort_keys=True, separators=(",", ":"))}, arrays)
    for name, data in signed(files).items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    "config",
    [
        {"layout": "tokens", "input_shape": []},
        {"layout": "tokens", "input_shape": [], "positions": "one-hot"},
        {"layout": "tokens", "input_shape": [1, 1, 2]},
        {"input_shape": [2**62] * 5000},
        {"output_shape": [3]},
        {"heads": []},
        {"d_model": 2**62},
        {"d_model": 1e999},
        {"pieces": None},
    ],
    ids=lambda config: ", ".join(config),
)
def test_configurations_that_no_layer_has(
    folder: Path, config: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    reconfigured(folder, **config)
    refused_everywhere(folder, capsys)


@pytest.mark.parametrize("name", ["W_1", "W_2", "W_E", "b_R", "W_Q"])
def test_a_weight_of_1e308_in_a_superposition(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = superpose("exp(x1 + x2 + x3)", Box([0.0] * 3, [1.0] * 3), 1e-1).save(tmp_path / "folder")
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    metadata, arrays = arrays_of(files[MODEL])
    arrays[name].flat[0] = 1e308
    files[MODEL] = stored(metadata, arrays)
    for file, data in signed(files).items():
        (path / file).write_bytes(data)
    if accepted(path):
        assert falsehood(load(path)) is None, "a key of zero leaves a huge query without effect"
    for command in (["check", str(path)], ["eval", str(path), "0.1, 0.2, 0.3"], ["draw", str(path)]):
        assert run(app, command) in (0, 1, 2)
        assert capsys.readouterr().err.count("\n") <= 1


def test_weights_of_another_format_than_that_of_the_claim(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound of 4e-14 about float64 is none of what these weights compute, and nothing is shown beside it."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    metadata, arrays = arrays_of(files[MODEL])
    files[MODEL] = stored(metadata, {name: array.astype("<f4") for name, array in arrays.items()})
    for name, data in signed(files).items():
        (folder / name).write_bytes(data)
    assert check(folder).verdict == "rejected"
    with pytest.raises(FileError, match="convert the model"):
        load(folder)
    for command in doors(folder)[1:]:
        assert run(app, command) == 2, command
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)


def test_a_long_chain_of_cuts_is_refused_before_its_boxes_are_made(folder: Path) -> None:
    """A tree of 254 coordinates and 2^19 leaves is half a megabyte on disk and two gigabytes of corners."""
    dim, cuts = 254, 2**19
    code = bytes([0]) * cuts + bytes([255]) * (cuts + 1)
    root = np.concatenate([np.zeros(dim), np.ones(dim)]).astype("<f8").tobytes()
    data = b"OLBOXES\n" + np.array([1, dim], "<u4").tobytes() + np.array([len(code)], "<u8").tobytes() + root + code
    (folder / BOXES).write_bytes(data)
    change_claim(folder, lambda claim: claim.update(boxes=cuts + 1))
    with pytest.raises(FileError, match="nodes"):
        check(folder)


def test_files_of_another_method_are_refused(folder: Path, tmp_path: Path) -> None:
    table = memorize([[0.0, 1.0], [1.0, 0.0]], [0.5, 1.25]).save(tmp_path / "table")
    (folder / "table.safetensors").write_bytes((table / "table.safetensors").read_bytes())
    change_claim(folder, lambda claim: None)
    with pytest.raises(FileError, match="no use for"):
        load(folder)


@pytest.mark.parametrize("write", [lambda text: json.dumps(json.loads(text)), lambda text: text.replace(":", ": ", 1)])
def test_a_description_that_is_not_written_as_it_is_hashed(
    folder: Path, write: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The checker hashed the text, all others what it says: one accepted what the others refused."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    metadata, arrays = arrays_of(files[MODEL])
    files[MODEL] = stored({"onelayer": write(metadata["onelayer"])}, arrays)
    for name, data in signed(files).items():
        (folder / name).write_bytes(data)
    refused_everywhere(folder, capsys)
