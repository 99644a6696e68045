"""The checker end to end: honest proofs are accepted, tampered ones are not, whether or not digests were re-made."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from onelayer.box import Box
from onelayer.checker import reproof
from onelayer.checker.check import check
from onelayer.checker.weights import read_model
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.file import save_model, weights_sha256
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer, Report
from onelayer.proof.certificate import Certificate
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


class Patience(Observer):
    """Cancels after a number of reports: one per chunk of boxes that was proved again."""

    def __init__(self, reports: int) -> None:
        super().__init__()
        self.left = reports

    def show(self, report: Report) -> None:
        self.left -= 1
        if not self.left:
            self.cancel()


@pytest.fixture
def box_by_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk holds one box."""
    monkeypatch.setattr(reproof, "SMALLEST", 1)
    monkeypatch.setattr(reproof, "CHUNKS", 10**6)


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


@pytest.mark.parametrize("name", ["sines", "kink", "float32"])
def test_without_time_nothing_is_accepted(proofs: dict[str, Path], name: str) -> None:
    report = check(proofs[name], max_seconds=0.0)
    assert report.verdict == "not contradicted"
    assert (report.fraction, report.volume, report.ok) == (0.0, 0.0, False)


def identity(factor: float = 1.0) -> OneLayerTransformer:
    """T(x) = (x factor) (1 / factor) on one number, in float64."""
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    weights = {"W_E": factor * one, "W_Q": zero, "W_O": zero, "W_R": one / factor}
    weights |= {f"b_{k}": zero[0] for k in "EQOR"}
    return OneLayerTransformer.packed(
        (1,), (), [PlainMemory(zero, zero)], d_model=1, residual=True, hidden=0, weights=weights
    )


def claimed(folder: Path, model: OneLayerTransformer, function: str, box: Box, tree: list[int], **claim: Any) -> Path:
    """A folder that states anything about a model; its digests are right."""
    low, high = box.lower.flatten().numpy(), box.upper.flatten().numpy()
    boxes = BoxTree(low, high, np.array(tree, dtype=np.uint8))
    dtype = str(model.dtype).removeprefix("torch.")
    stated: dict[str, Any] = {"status": "proved", "eps": None, "lower": 0.0, "witness": None, "resisted": None}
    certificate = Certificate(
        **{**stated, **claim},
        boxes=boxes.leaves,
        order=4,
        arithmetic=f"{dtype} execution",
        domain=box,
        function=function,
        weights_sha256=weights_sha256(model),
        seconds=0.0,
        version="",
        method="branch and bound",
        proof=boxes,
    )
    save_model(model, folder)
    write_proof(folder, certificate)
    return folder


def even(depth: int) -> list[int]:
    return [255] if depth == 0 else [0, *even(depth - 1), *even(depth - 1)]


def test_a_wrong_half_of_the_domain_cannot_hide_among_small_boxes(tmp_path: Path) -> None:
    """T = f on [0, 1/2], cut into 2,048 boxes; on [1/2, 1], a single box, they differ by up to 1e-6."""
    unit, tree = Box([0.0], [1.0]), [0, *even(11), 255]
    claimed(tmp_path, identity(), "x1 + 2e-6*relu(x1 - 0.5)", unit, tree, eps=1e-9, upper=1e-9)
    late = 0
    for seed in range(20):
        report = check(tmp_path, seed=seed, observer=Patience(40))
        assert report.verdict != "accepted"
        late += report.verdict == "not contradicted"
    assert late <= 1
    assert check(tmp_path).verdict == "rejected"


@pytest.mark.usefixtures("box_by_box")
def test_the_order_of_the_boxes_is_fresh_each_time(tmp_path: Path) -> None:
    """Boxes of volumes 1/2, 1/4, ...: the volume after three of them says which they were."""
    claimed(tmp_path, identity(), "x1", Box([0.0], [1.0]), [0] * 15 + [255] * 16, upper=1e-9)
    assert len({check(tmp_path, observer=Patience(3)).volume for _ in range(20)}) > 1
    assert len({check(tmp_path, seed=3, observer=Patience(3)).volume for _ in range(3)}) == 1


def test_a_refutation_needs_more_than_a_wide_rounding_bound(tmp_path: Path) -> None:
    """T is exactly 1, but logits of 3e8 in float32 say nothing about the weights of two equal tokens."""
    ones = torch.ones(2, 1)
    weights = {"W_E": torch.full((1, 1), 3e8), "W_Q": torch.full((1, 1), 1.1), "W_O": ones[:1], "W_R": ones[:1]}
    weights |= {f"b_{k}": torch.zeros(1) for k in "EQOR"}
    model = OneLayerTransformer.packed(
        (1,), (), [PlainMemory(ones, ones)], d_model=1, hidden=0, dtype=torch.float32, weights=weights
    )
    claim = {"status": "refuted", "eps": 1.0, "lower": 1e300, "upper": math.inf, "witness": (1.0,)}
    claimed(tmp_path, model, "1", Box([0.0], [1.0]), [255], **claim)
    assert check(tmp_path).verdict == "rejected"


def test_a_true_refutation_is_confirmed_where_the_rounding_bound_is_wide(tmp_path: Path) -> None:
    """The numbers that a forward pass returns are a fact, whatever the analysis says of other passes."""
    wide = {"status": "refuted", "eps": 0.25, "lower": 0.5, "upper": math.inf, "witness": (1.0,)}
    claimed(tmp_path, identity(), "x1 + 0.5", Box([0.0], [1.0]), [255], **wide)
    report = check(tmp_path)
    assert report.verdict == "accepted"
    assert report.lower == 0.5


def test_a_lower_bound_of_pure_rounding_is_confirmed_as_far_as_it_goes(tmp_path: Path) -> None:
    """T = (3 x) (1/3): a forward pass may err by an ulp, one made here does not; a larger number is contradicted."""
    unit, tiny = Box([0.0], [1.0]), 2.0**-54
    at = next(x for x in (k / 100 for k in range(50, 100)) if (x * 3.0) * (1 / 3.0) == x)
    claimed(tmp_path / "a", identity(3.0), "x1", unit, [255], lower=tiny, upper=1e-14, witness=(at,))
    report = check(tmp_path / "a")
    assert report.verdict == "accepted"
    assert report.lower == 0.0
    assert f">= 0.0 confirmed at the witness of the stated {tiny!r}" in report.reason
    claimed(tmp_path / "b", identity(3.0), "x1", unit, [255], lower=1e-12, upper=1e-11, witness=(at,))
    assert check(tmp_path / "b").verdict == "rejected"


def test_points_contradict_before_any_box_is_proved(tmp_path: Path) -> None:
    claimed(tmp_path, identity(), "x1 + 1e-3", Box([0.0], [1.0]), [255], eps=1e-4, upper=1e-4)
    report = check(tmp_path, max_seconds=0.0)
    assert report.verdict == "rejected"
    assert "as executed" in report.reason


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
