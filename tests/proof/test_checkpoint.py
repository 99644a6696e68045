"""A long proof goes on after its process was killed, to the same certificate; from its own checkpoint alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof import checkpoint, crew, problem, search, units
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.checkpoint import packed

BOX = ol.Box([0.0, 0.0], [1.0, 1.0])
F = "sin(3*x1)*cos(2*x2)"
EPS = 0.02
PROOF = """
import sys
import onelayer as ol
from onelayer.proof import checkpoint, search, units
checkpoint.EVERY, checkpoint.SHARE = 0.0, float("inf")
search.FEWEST, search.SLICE, units.SMALLEST, units.LARGEST = 2, 8, 8, 8
model = ol.load(sys.argv[1]).model
ol.certify(model, {f!r}, ol.Box([0.0, 0.0], [1.0, 1.0]), {eps}, order=1, jobs=int(sys.argv[2]), checkpoint=sys.argv[3])
"""


@pytest.fixture(scope="module")
def layer() -> OneLayerTransformer:
    return ol.approximate(F, BOX, 1e-2).model


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many small units, a checkpoint after each, sealed with a key of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    for module, name, value in (
        (search, "FEWEST", 2),
        (search, "SLICE", 8),
        (units, "SMALLEST", 8),
        (units, "LARGEST", 8),
        (checkpoint, "EVERY", 0.0),
        (checkpoint, "SHARE", float("inf")),
    ):
        monkeypatch.setattr(module, name, value)


def proved(layer: Any, **options: Any) -> Certificate:
    return certify(layer, F, BOX, EPS, order=1, **{"jobs": 1, **options})


def same(a: Certificate, b: Certificate) -> bool:
    return replace(a, seconds=0.0) == replace(b, seconds=0.0) and a.proof == b.proof


class Interrupted(Exception):
    """Stands for a process that is gone."""


def left_at(layer: Any, path: Path, units_done: int) -> None:
    """A checkpoint as it is after so many units."""
    count = 0

    def dying(error: Any, unit: Any) -> Any:
        nonlocal count
        count += 1
        if count > units_done:
            raise Interrupted
        return plain(error, unit)

    plain = search.explore
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "explore", dying)
        with pytest.raises(Interrupted):
            proved(layer, checkpoint=path)


@pytest.mark.parametrize("units_done", [1, 3, 12])
def test_a_resumed_proof_is_the_uninterrupted_one(layer: OneLayerTransformer, units_done: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    whole = proved(layer)
    assert whole.proved
    left_at(layer, path, units_done)
    assert same(whole, proved(layer, resume=path))
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="forked processes")
def test_after_kill_9_of_the_coordinator_the_proof_goes_on(layer: OneLayerTransformer, tmp_path: Path) -> None:
    """A real process with forked workers, killed in mid-proof; its workers end with it."""
    folder, path = tmp_path / "layer", tmp_path / "state"
    ol.approximate(F, BOX, 1e-2).save(folder)
    script = PROOF.format(f=F, eps=EPS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", script, str(folder), "2", str(path)], env=environment)
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert path.exists()
    model = ol.load(folder).model
    assert same(proved(model, resume=path), proved(model))


def test_a_checkpoint_of_another_problem_is_refused(layer: OneLayerTransformer, tmp_path: Path) -> None:
    path = tmp_path / "state"
    left_at(layer, path, 2)
    other = ol.approximate(F, BOX, 2e-2, seed=1).model
    attempts: list[tuple[Any, str, ol.Box, float, int]] = [
        (other, F, BOX, EPS, 1),
        (layer, "sin(3*x1)*cos(2*x2) + 1e-9", BOX, EPS, 1),
        (layer, F, ol.Box([0.0, 0.0], [1.0, 0.5]), EPS, 1),
        (layer, F, BOX, EPS / 2, 1),
        (layer, F, BOX, EPS, 2),
    ]
    for model, f, box, eps, order in attempts:
        with pytest.raises(FileError, match="another problem"):
            certify(model, f, box, eps, order=order, resume=path)


def test_a_checkpoint_of_another_version_is_refused(
    layer: OneLayerTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are taken over, and another version may have found them wrongly."""
    path = tmp_path / "state"
    left_at(layer, path, 2)
    monkeypatch.setattr(ol, "__version__", "0.0.1")
    with pytest.raises(FileError, match="another problem"):
        certify(layer, F, BOX, EPS, order=1, resume=path)


def test_a_checkpoint_of_other_code_under_the_same_version_is_refused(
    layer: OneLayerTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of the package was mended in between, as by git pull."""
    path = tmp_path / "state"
    left_at(layer, path, 2)
    before = problem.PACKAGE
    other = shutil.copytree(before, tmp_path / "onelayer", ignore=shutil.ignore_patterns("__pycache__"))
    assert problem.code_of(other) == problem.code_of(before)
    file = other / "taylor" / "rounding.py"
    file.write_text(f"{file.read_text()}# mended\n")
    problem.code_of.cache_clear()
    monkeypatch.setattr(problem, "PACKAGE", other)
    with pytest.raises(FileError, match="another problem"):
        certify(layer, F, BOX, EPS, order=1, resume=path)


def test_a_checkpoint_of_another_claim_about_the_same_weights_is_refused(tmp_path: Path) -> None:
    """Another norm, function, condition or activation: the weights are the same, the problem is not."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2)).double().eval()
    path = tmp_path / "state"
    few: dict[str, Any] = {"max_boxes": 4, "gap": 1e-6, "jobs": 1}
    first = ol.lipschitz(net, BOX, norm=1, checkpoint=path, **few)
    assert ol.lipschitz(net, BOX, norm=1, resume=path, **few).upper <= first.upper
    other = nn.Sequential(net[0], nn.SiLU(), net[2]).eval()
    for model, norm in ((net, "inf"), (other, 1)):
        with pytest.raises(FileError, match="another problem"):
            ol.lipschitz(model, BOX, norm=norm, resume=path, **few)
    ol.gradient_error(net, "x1; x2", BOX, checkpoint=path, **few)
    with pytest.raises(FileError, match="another problem"):
        ol.gradient_error(net, "x1; 9*x2", BOX, resume=path, **few)


def test_what_does_not_travel_has_no_checkpoint(layer: OneLayerTransformer, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="checkpoint needs"):
        proved(lambda x: layer(x), checkpoint=tmp_path / "state")
    with pytest.raises(FileError, match="cannot read"):
        proved(layer, resume=tmp_path / "nothing")


def changed(path: Path, name: str, change: Any) -> None:
    """The checkpoint with one of its arrays changed and all hashes right."""
    header = json.loads(path.read_bytes().split(b"\n", 2)[1])
    arrays = checkpoint.unpacked(path, header["problem"])
    arrays[name] = change(arrays[name].copy())
    path.write_bytes(packed(header["problem"], arrays))


def put(at: Any, value: float) -> Any:
    def change(array: Any) -> Any:
        array[at] = value
        return array

    return change


FORGED = {
    "an open box that is smaller": ("open.high", lambda a: a - 1e-3),
    "an open box twice": ("open.node", lambda a: np.full_like(a, a[0])),
    "an open box outside": ("open.node", lambda a: a + 10**6),
    "a tree with a circle": ("left", put(0, 0)),
    "a tree with two parents": ("left", lambda a: np.where(a > 3, 3, a)),
    "an axis that does not exist": ("axis", put(0, 7)),
    "bounds that are not found again": ("bound", lambda a: a * 1e-3),
    "a missing number": ("counts", lambda a: a[:-1]),
    "a unit with other corners": ("0.open.high", lambda a: a - 1e-3),
    "a witness with a larger error": ("witness", put(0, 1.0)),
    "a witness with too few coordinates": ("witness", lambda a: a[:-1]),
    "a witness of a unit with a larger error": ("0.witness", lambda a: a + 1.0),
}


@pytest.mark.parametrize("name", sorted(FORGED))
def test_a_forged_checkpoint_is_refused(
    layer: OneLayerTransformer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SLICE", 1)  # units give back open boxes
    path = tmp_path / "state"
    left_at(layer, path, 1)
    changed(path, *FORGED[name])
    with pytest.raises(OnelayerError, match="start anew"):
        proved(layer, resume=path)


def test_bounds_that_another_wrote_are_refused(layer: OneLayerTransformer, tmp_path: Path) -> None:
    """One false bound among many is found by no sample; the writer's key is what a forger does not have."""
    path = tmp_path / "state"
    left_at(layer, path, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        with pytest.raises(FileError, match="not written by this user"):
            proved(layer, resume=path)
    data = path.read_bytes().split(b"\n", 2)
    header, body = json.loads(data[1]), bytearray(data[2])
    body[-8:] = bytes(8)
    header["sha256"] = hashlib.sha256(body).hexdigest()
    path.write_bytes(b"\n".join([data[0], json.dumps(header).encode(), bytes(body)]))
    with pytest.raises(FileError, match="not written by this user"):
        proved(layer, resume=path)


class Spiked(nn.Module):
    """Code that was changed between two runs: the same weights, the same values at all points that anybody tries."""

    def __init__(self, at: float | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.at = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double(), at

    def forward(self, x: Any) -> Any:
        y = self.inner(x)[..., 0]
        return y if self.at is None else y - 9 * (1 - torch.tanh(1e8 * (x[..., 0] - self.at)) ** 2)

    def __repr__(self) -> str:
        return "Spiked()"


def test_code_that_was_changed_is_another_problem(tmp_path: Path) -> None:
    path = tmp_path / "state"
    options: dict[str, Any] = {"jobs": 1, "order": 1}
    box = ol.Box([-3.0], [3.0])
    assert not certify(Spiked(None).eval(), "0*x", box, 0.5412, max_boxes=6, checkpoint=path, **options).proved
    with pytest.raises(FileError, match="another problem"):
        certify(Spiked(0.3712345).eval(), "0*x", box, 0.5412, resume=path, **options)


def test_open_boxes_that_are_left_out_are_not_proved(layer: OneLayerTransformer, tmp_path: Path) -> None:
    path = tmp_path / "state"
    left_at(layer, path, 3)
    for item in ("node", "low", "high", "bound", "sensitivity", "depth", "stall"):
        changed(path, f"open.{item}", lambda a: a[:0])
    changed(path, "counts", put(-1, 0))
    assert not proved(layer, resume=path).proved


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1], lambda data: data + b"0", lambda data: b"\0" + data, lambda data: data[:-8] + b"12345678"],
)
def test_a_damaged_file_is_refused_in_one_line(layer: OneLayerTransformer, spoil: Any, tmp_path: Path) -> None:
    path = tmp_path / "state"
    left_at(layer, path, 1)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(FileError) as caught:
        proved(layer, resume=path)
    assert "\n" not in str(caught.value)


def test_a_disk_that_refuses_does_not_end_a_proof(layer: OneLayerTransformer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="no checkpoint"):
        assert proved(layer, checkpoint=tmp_path / "file" / "state").proved


def test_shared_work_is_resumed_too(
    layer: OneLayerTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    left_at(layer, path, 3)
    monkeypatch.setattr(crew, "START", 0.0)
    assert same(proved(layer), proved(layer, resume=path, jobs=2))


def test_the_command_goes_on_from_the_checkpoint_beside_the_folder(
    layer: OneLayerTransformer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from onelayer.cli.console import run
    from onelayer.cli.options import app

    ol.approximate(F, BOX, 1e-2).save(tmp_path / "layer")
    assert run(app, ["certify", str(tmp_path / "layer"), "--eps", "0.02", "--resume"]) == 2
    error = capfd.readouterr().err
    assert "layer.checkpoint" in error
    assert len(error.strip().splitlines()) == 1
