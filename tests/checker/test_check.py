"""The checker end to end: honest proofs are accepted, tampered ones are not, whether or not digests were re-made."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from stated_folders import Patience, claimed, identity

from onelayer.box import Box
from onelayer.checker import reproof
from onelayer.checker.check import check
from onelayer.checker.weights import read_model
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.file import save_model
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.proof.claim import _digest
from onelayer.proof.files import read_proof, write_proof
from onelayer.proof.tree import BoxTree


def axis(direction: int, low: float, high: float, tokens: int) -> AxisKeys:
    """Gaussian keys with one ghost key on either side."""
    step = (high - low) / (tokens - 3)
    centres = low - step + step * torch.arange(tokens, dtype=torch.float64)
    beta = 1 / (1.5 * step**2)
    return AxisKeys(direction, 2 * beta * centres, -beta * centres**2)


def least_squares(keys: AxisKeys, low: float, high: float, f: Callable[[torch.Tensor], torch.Tensor]) -> LookupHead:
    x = torch.linspace(low, high, 12 * len(keys.slopes), dtype=torch.float64)
    basis = torch.softmax(x[:, None] * keys.slopes + keys.biases, -1)
    return LookupHead([keys], torch.linalg.lstsq(basis, f(x)[:, None]).solution)


def fitted(
    direction: int, low: float, high: float, tokens: int, f: Callable[[torch.Tensor], torch.Tensor]
) -> LookupHead:
    return least_squares(axis(direction, low, high, tokens), low, high, f)


def saved(folder: Path, model: OneLayerTransformer, f: object, box: Box, eps: float | None, **options: object) -> Path:
    folder.mkdir(parents=True)
    certificate = certify(model, f, box, eps, **options)
    save_model(model, folder)
    write_proof(folder, certificate)
    return folder


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Honest proofs of several kinds."""
    root = tmp_path_factory.mktemp("proofs")
    tau = 2 * math.pi
    sines = lookup_model(2, (), [fitted(d, 0, tau, 10, torch.sin) for d in range(2)])
    one = lookup_model(1, (), [fitted(0, -1, 1, 12, lambda x: torch.exp(torch.sin(3 * x)))])
    ridge = Ridges(
        torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double(), torch.zeros(2).double(), torch.ones(2, 1).double()
    )
    kink = lookup_model(2, (), [], ridge, Affine(torch.zeros(1, 2).double(), torch.tensor([1e-3]).double()))
    narrow = lookup_model(1, (), [fitted(0, 0, 1, 4, torch.cos)], dtype=torch.float32)
    square, line = Box([0, 0], [tau, tau]), Box([-1.0], [1.0])
    unit = Box([0.0, 0.0], [1.0, 1.0])
    made = {
        "sines": saved(root / "sines", sines, "sin(x1) + sin(x2)", square, 0.0012),
        "real": saved(root / "real", sines, "sin(x1) + sin(x2)", square, None, execution="real"),
        "line": saved(root / "line", one, lambda x: torch.exp(torch.sin(3 * x[..., 0])), line, None),
        "refuted": saved(root / "refuted", one, "exp(sin(3*x))", line, 1e-12),
        "kink": saved(root / "kink", kink, "abs(x - y)", unit, 0.05),
        "float32": saved(root / "float32", narrow, "cos(x)", Box([0.0], [1.0]), None),
        "budget": saved(root / "budget", sines, "sin(x1) + sin(x2)", square, 1e-9, max_boxes=40),
    }
    return made


NAMES = ["sines", "real", "line", "refuted", "kink", "float32", "budget"]


@pytest.mark.parametrize("name", NAMES)
def test_honest_proofs_are_accepted(proofs: dict[str, Path], name: str) -> None:
    report = check(proofs[name])
    assert report.ok, report.reason
    assert "\n" not in str(report)
    record = read_proof(proofs[name])
    assert report.boxes_total == record.boxes
    assert report.fraction == 1.0 or not math.isfinite(record.upper)


def test_expected_outcomes(proofs: dict[str, Path]) -> None:
    statuses = {name: read_proof(folder).status for name, folder in proofs.items()}
    assert statuses["sines"] == statuses["real"] == statuses["line"] == statuses["float32"] == "proved"
    assert statuses["refuted"] == "refuted"
    assert "accepted: proved" in str(check(proofs["line"]))


def copied(proofs: dict[str, Path], name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(proofs[name], tmp_path / "copy"))


def rejected(folder: Path) -> bool:
    """Refused as a file, or found not to hold; in one line either way."""
    try:
        report = check(folder)
    except FileError as error:
        return "\n" not in str(error)
    return not report.ok and "\n" not in report.reason


FILES = ["model.safetensors", "certificate.json", "boxes.bin", "function.txt"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("where", [0.0, 0.1, 0.35, 0.6, 0.85, 1.0])
def test_a_flipped_bit_is_caught(proofs: dict[str, Path], tmp_path: Path, file: str, where: float) -> None:
    folder = copied(proofs, "sines", tmp_path)
    data = bytearray((folder / file).read_bytes())
    at = min(int(where * len(data)), len(data) - 1)
    data[at] ^= 1 << 2 if file != "model.safetensors" or where > 0 else 1
    (folder / file).write_bytes(data)
    assert rejected(folder)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", ["missing", "empty", "half", "longer", "swapped"])
def test_damaged_and_swapped_files_are_caught(proofs: dict[str, Path], tmp_path: Path, file: str, change: str) -> None:
    folder = copied(proofs, "sines", tmp_path)
    data = (folder / file).read_bytes()
    if change == "missing":
        (folder / file).unlink()
    elif change == "swapped":
        shutil.copy(proofs["kink"] / file, folder / file)
    else:
        damaged = {"empty": b"", "half": data[: len(data) // 2], "longer": data + b"\x00"}[change]
        (folder / file).write_bytes(damaged)
    assert rejected(folder)


def rewritten(folder: Path, **changes: object) -> None:
    """Rewrite the JSON fields with fresh digests, as somebody who knows the format would."""
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    del data["sha256"]
    data |= changes
    data["sha256"] = _digest(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "changes",
    [
        {"upper": 0.0005, "lower": 0.0, "witness": None},
        {"eps": 0.0001},
        {"eps": 0.0001, "upper": 0.0001, "lower": 0.0, "witness": None},
        {"status": "refuted"},
        {"status": "undecided"},
        {"status": "certain"},
        {"lower": 0.09},
        {"lower": 0.0008, "witness": [3.141592653589793, 3.141592653589793]},
        {"witness": [9.0, 9.0]},
        {"witness": None},
        {"domain": [[-1.0, 0.0], [6.283185307179586, 6.283185307179586]]},
        {"boxes": 7},
        {"shape": [1, 2]},
        {"shape": [3]},
        {"function": "sin(x1) + cos(x2)"},
        {"weights_sha256": "0" * 64},
        {"weights_sha256": ""},
        {"method": "lemma"},
        {"method": "trust me"},
        {"arithmetic": "decimal"},
        {"format_version": 2},
        {"upper": -1.0},
        {"upper": "nan"},
        {"eps": None, "upper": 1e-6, "lower": 0.0, "witness": None},
        {"files": {}},
        {"extra": 1},
    ],
    ids=str,
)  # fmt: skip
def test_rewritten_claims_are_caught(proofs: dict[str, Path], tmp_path: Path, changes: dict[str, object]) -> None:
    folder = copied(proofs, "sines", tmp_path)
    rewritten(folder, **changes)
    assert rejected(folder)


def rebuilt(folder: Path, tree: BoxTree | None = None, function: str | None = None, **changes: object) -> None:
    """A consistent forgery: every file and digest re-made around a changed proof."""
    proof = read_proof(folder)
    if function is not None:
        changes["function"] = function
    write_proof(folder, dataclasses.replace(proof, proof=tree or proof.proof, **changes))


def forged_weights(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change tensors and state the digest of the changed file."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    tensors = {name: value.copy() for name, value in safetensors.numpy.load(data).items()}
    change(tensors)
    path.write_bytes(safetensors.numpy.save(tensors, header["__metadata__"]))
    rebuilt(folder, weights_sha256=read_model(folder).sha256)


def scaled(name: str, factor: float) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda tensors: tensors[name].__imul__(factor)


def moved(name: str, by: float) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda tensors: tensors[name].flat.__setitem__(0, tensors[name].flat[0] + by)


FORGERIES: dict[str, Callable[[Path], None]] = {
    "tighter upper": lambda f: rebuilt(f, upper=read_proof(f).lower * 0.999, lower=0.0, witness=None),
    "half the upper bound": lambda f: rebuilt(f, upper=read_proof(f).upper / 2, lower=0.0, witness=None),
    "higher lower": lambda f: rebuilt(f, lower=read_proof(f).upper, upper=read_proof(f).upper),
    "other witness": lambda f: rebuilt(f, witness=(math.pi, math.pi)),
    "other function": lambda f: rebuilt(f, function="sin(x1) + cos(x2)"),
    "slightly other function": lambda f: rebuilt(f, function="sin(x1) + sin(x2) + 0.05"),
    "scaled function": lambda f: rebuilt(f, function="1.05 * sin(x1) + sin(x2)"),
    "two outputs": lambda f: rebuilt(f, function="sin(x1); sin(x2)"),
    "values": lambda f: forged_weights(f, scaled("memory.0.values", 1.1)),
    "one value": lambda f: forged_weights(f, moved("memory.1.values", 0.5)),
    "keys": lambda f: forged_weights(f, scaled("memory.1.axes.0", 1.02)),
    "query": lambda f: forged_weights(f, scaled("W_Q", 0.98)),
    "readout bias": lambda f: forged_weights(f, moved("b_R", 0.08)),
    "output": lambda f: forged_weights(f, scaled("W_O", 1.05)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_consistent_forgeries_are_caught(proofs: dict[str, Path], tmp_path: Path, name: str) -> None:
    """All digests are right here; only the mathematics is wrong."""
    folder = copied(proofs, "sines", tmp_path)
    FORGERIES[name](folder)
    report = check(folder)
    assert not report.ok
    assert "\n" not in report.reason


def test_a_larger_domain_is_caught(proofs: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(proofs, "sines", tmp_path)
    proof = read_proof(folder)
    assert proof.proof is not None
    low, high = proof.proof.lower - 2.0, proof.proof.upper + 2.0
    tree = BoxTree(low, high, proof.proof.tree)
    rebuilt(folder, tree, domain=Box(low, high))
    assert not check(folder).ok


def test_a_claim_about_coarser_execution_is_caught(proofs: dict[str, Path], tmp_path: Path) -> None:
    """A bound of 1e-8 in float64 says nothing about float32."""
    folder = tmp_path / "fine"
    m = torch.arange(10, dtype=torch.float64)
    choose = torch.lgamma(torch.tensor(10.0).double()) - torch.lgamma(m + 1) - torch.lgamma(10 - m)
    model = lookup_model(1, (), [least_squares(AxisKeys(0, m, choose), 0, 1, torch.cos)])
    saved(folder, model, "cos(x)", Box([0.0], [1.0]), 1e-8)
    assert check(folder).ok
    assert read_proof(folder).status == "proved"
    rebuilt(folder, arithmetic="float32 execution")
    assert not check(folder).ok


def test_reports_name_what_is_wrong(proofs: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(proofs, "line", tmp_path)
    rebuilt(folder, function="exp(sin(3 * x1)) + 1")
    assert "above the stated upper bound" in check(folder).reason


@pytest.mark.usefixtures("box_by_box")
def test_an_unfinished_check_accepts_nothing(proofs: dict[str, Path]) -> None:
    total = read_proof(proofs["real"]).boxes
    report = check(proofs["real"], observer=Patience(4))
    assert (report.verdict, report.ok, report.boxes_checked) == ("not contradicted", False, 4)
    assert report.fraction == 4 / total
    assert 0 < report.volume < 1
    assert f"4 of {total} boxes" in str(report)
    assert "% of the volume" in str(report)
    whole = check(proofs["real"], all=True, max_seconds=0.0)
    assert (whole.verdict, whole.fraction, whole.volume) == ("accepted", 1.0, 1.0)


@pytest.mark.usefixtures("box_by_box")
def test_processes_share_a_check(proofs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They prove the same, and a box that one of them rejects is a rejection."""
    monkeypatch.setattr(reproof, "START", -1.0)
    report = check(proofs["real"], all=True, jobs=2)
    assert (report.verdict, report.fraction, report.volume) == ("accepted", 1.0, 1.0)
    stopped = check(proofs["real"], jobs=2, observer=Patience(4))
    assert stopped.verdict == "not contradicted"
    assert 4 <= stopped.boxes_checked < stopped.boxes_total
    bad = claimed(tmp_path, identity(), "x1 + 0.001*x1**2", Box([0.0], [1.0]), [0] * 15 + [255] * 16, upper=9.9e-4)
    monkeypatch.setattr("onelayer.checker.check.contradiction", lambda *arguments: None)
    assert check(bad, all=True, jobs=2).verdict == "rejected"


@pytest.mark.usefixtures("box_by_box")
def test_checks_in_two_threads_keep_to_their_own_boxes(
    proofs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A false claim whose processes are forked when another check is about to fork its own is still a false claim."""
    begun, joined, forked = (threading.Event() for _ in range(3))

    class Pool(ProcessPoolExecutor):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.first = not begun.is_set()
            begun.set()
            if self.first:
                joined.wait(60)
            else:
                joined.set()
                forked.wait(60)

        def submit(self, *args: Any, **options: Any) -> Any:
            found = super().submit(*args, **options)
            if self.first:
                forked.set()
            return found

    monkeypatch.setattr(reproof, "START", -1.0)
    monkeypatch.setattr(reproof, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr("onelayer.checker.check.contradiction", lambda *arguments: None)
    bad = claimed(tmp_path, identity(), "x1 + 0.001*x1**2", Box([0.0], [1.0]), [0] * 15 + [255] * 16, upper=9.9e-4)
    with ThreadPoolExecutor(2) as threads:
        false = threads.submit(check, bad, all=True, jobs=2)
        assert begun.wait(60)
        true = threads.submit(check, proofs["real"], all=True, jobs=2)
        assert (false.result().verdict, true.result().verdict) == ("rejected", "accepted")


@pytest.mark.parametrize("name", ["sines", "kink", "float32"])
def test_without_time_nothing_is_accepted(proofs: dict[str, Path], name: str) -> None:
    report = check(proofs[name], max_seconds=0.0)
    assert report.verdict == "not contradicted"
    assert (report.fraction, report.volume, report.ok) == (0.0, 0.0, False)


def test_a_function_given_beside_a_recorded_one_must_be_that_one(proofs: dict[str, Path]) -> None:
    assert check(proofs["kink"], f="abs(x - y)").ok
    with pytest.raises(OnelayerError, match="names its function itself"):
        check(proofs["kink"], f="abs(x + y)")


def test_an_unrecorded_function_is_asked_for(proofs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "blackbox"
    model = lookup_model(1, (), [fitted(0, 0, 1, 4, torch.cos)])
    saved(folder, model, lambda x: np.cos(x[..., 0]), Box([0.0], [1.0]), 0.1, lipschitz=1.0)
    with pytest.raises(OnelayerError, match="give it as formula text"):
        check(folder)
    assert check(folder, f="cos(x)").ok
    assert not check(folder, f="cos(x) + 0.5").ok
