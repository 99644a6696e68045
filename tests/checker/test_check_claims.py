"""Claims about networks: every kind is saved and proved again from its files; planted faults and forgeries are not."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from flint import arb
from safetensors.torch import load, save
from torch import nn

import onelayer as ol
from liar import holes
from onelayer.checker import elements, network
from onelayer.checker.activations import ACTIVATIONS
from onelayer.checker.arithmetic import constant, coordinate
from onelayer.checker.functions import Kinks
from onelayer.errors import FileError
from onelayer.network import program
from onelayer.network.network import RecordedNetwork
from onelayer.proof.files import read_proof, write_proof
from onelayer.proof.tree import BoxTree

BOX = ol.Box([-1.0, -0.5], [1.0, 0.5])


def mlp(middle: nn.Module | None = None, outputs: int = 2, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 6), middle or nn.Tanh(), nn.Linear(6, outputs)).eval()


def rounded(model: nn.Module) -> nn.Module:
    found = copy.deepcopy(model)
    with torch.no_grad():
        for weight in found.parameters():
            weight.copy_(weight.bfloat16().float())
    return found


def stretched(model: nn.Module) -> nn.Module:
    """Every kink moves by a thousandth."""
    found = copy.deepcopy(model)
    with torch.no_grad():
        next(found.parameters()).mul_(1.001)
    return found


def positive(middle: nn.Module) -> nn.Module:
    """No negative weight: rising in both inputs, and convex if the middle is."""
    model = mlp(middle, 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "weight" in name:
                weight.abs_().add_(0.1)
    return model


MAKERS: dict[str, Any] = {
    "error": lambda: ol.certify(mlp(), "x1; sin(x2)", BOX, gap=0.2),
    "range": lambda: ol.bound(mlp(), BOX, gap=0.1).certificate,
    "range of relu": lambda: ol.bound(mlp(nn.ReLU()), BOX, gap=0.1).certificate,
    "difference": lambda: ol.equivalent(mlp(), rounded(mlp()), BOX, gap=0.2),
    "difference of kinks": lambda: ol.equivalent(mlp(nn.ReLU()), stretched(mlp(nn.ReLU())), BOX, gap=0.8),
    "difference of gates": lambda: ol.equivalent(mlp(nn.SiLU()), stretched(mlp(nn.SiLU())), BOX, gap=0.2),
    "lipschitz of kinks": lambda: ol.lipschitz(mlp(nn.ReLU()), BOX, gap=0.5),
    "lipschitz inf": lambda: ol.lipschitz(mlp(), BOX, gap=0.2),
    "lipschitz 1": lambda: ol.lipschitz(mlp(), BOX, norm=1, gap=0.2),
    "lipschitz 2": lambda: ol.lipschitz(mlp(nn.GELU()), BOX, norm=2, gap=0.2),
    "slopes": lambda: ol.gradient_error(mlp(nn.SiLU()), "x1*x2; exp(x1)/(2 + x2)", BOX, gap=0.2),
    "monotone": lambda: ol.monotone(positive(nn.Tanh()), BOX, {"x1": "+", "x2": "+"}).certificate,
    "condition": lambda: ol.prove(mlp(), BOX, "y1 <= y2 + 3 and y1 > x1 - 5").certificate,
    "convex": lambda: ol.convex(positive(nn.Softplus()), BOX).certificate,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("claims")
    return {kind: make().save(place / kind.replace(" ", "-")) for kind, make in MAKERS.items()}


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_is_proved_again_from_its_files(kind: str, folders: dict[str, Path]) -> None:
    found = ol.load_claim(folders[kind])
    assert found.certificate.about.get("kind", "error") == kind.split()[0]
    assert ol.check(folders[kind]).verdict == "accepted"


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if not kind.startswith("range")])
def test_an_upper_bound_below_the_truth_is_rejected(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders[kind], tmp_path / "forged")
    proof = read_proof(folder)
    low = 0.97 * proof.lower
    planted = replace(proof, status="proved", upper=low, lower=0.0, witness=None, eps=low if proof.eps else None)
    write_proof(folder, planted)
    assert ol.check(folder).verdict == "rejected"


@pytest.mark.parametrize("kind", ["range", "range of relu"])
def test_a_range_that_is_too_narrow_is_rejected(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders[kind], tmp_path / "forged")
    proof = read_proof(folder)
    low, high = proof.about["low"], proof.about["high"]
    narrow = [a + 0.1 * (b - a) for a, b in zip(low, high, strict=True)]
    write_proof(folder, replace(proof, about={**proof.about, "low": narrow}))
    assert ol.check(folder).verdict == "rejected"


def about_changed(folder: Path, about: dict[str, Any], **more: Any) -> str:
    """The verdict after a claim is said to be about something else, every digest right again."""
    from onelayer.proof.about import words

    proof = read_proof(folder)
    write_proof(folder, replace(proof, about=about, claim=words(about), **more))
    return ol.check(folder).verdict


def test_a_claim_is_not_taken_for_another(folders: dict[str, Path], tmp_path: Path) -> None:
    swapped = copied(folders["monotone"], tmp_path / "swapped")
    assert about_changed(swapped, {"kind": "monotone", "inputs": [0, 1], "signs": [-1, 1]}) == "rejected"
    absent = copied(folders["monotone"], tmp_path / "absent")
    assert about_changed(absent, {"kind": "monotone", "inputs": [7], "signs": [1]}) == "rejected"
    other = copied(folders["condition"], tmp_path / "other")
    assert about_changed(other, {"kind": "condition", "text": "y1 >= 100"}) == "rejected"
    norm = copied(folders["lipschitz 2"], tmp_path / "norm")
    assert about_changed(norm, {"kind": "lipschitz", "norm": "inf"}) == "rejected"


def test_an_input_cannot_be_called_like_an_output(folders: dict[str, Path], tmp_path: Path) -> None:
    """y1 <= 1 would be read as a condition on the first input, which is at most 1, and be accepted."""
    from onelayer.checker.reader import _digest

    folder = copied(folders["condition"], tmp_path / "names")
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    data.pop("sha256")
    data |= {"about": {"kind": "condition", "text": "y1 <= 1"}, "names": ["y1", "b"], "upper": data["eps"]}
    data |= {"lower": 0.0, "witness": None, "status": "proved"}
    path.write_text(json.dumps({**data, "sha256": _digest(data)}))
    report = ol.check(folder)
    assert report.verdict == "rejected"
    assert "the name of an output and of an input" in report.reason
    with pytest.raises(ol.OnelayerError, match="the name of an output"):
        ol.prove(mlp(), BOX.named(("y1", "b")), "y1 <= 1")


def test_a_margin_is_claimed_by_its_own_number_alone(folders: dict[str, Path], tmp_path: Path) -> None:
    """|M - g| <= 2 M says nothing of the sign of g."""
    folder = copied(folders["monotone"], tmp_path / "wide")
    proof = read_proof(folder)
    assert proof.eps is not None
    eps = 4 * proof.eps
    write_proof(folder, replace(proof, status="proved", eps=eps, upper=eps, lower=0.0, witness=None))
    assert ol.check(folder).verdict == "rejected"


def test_words_that_say_something_else_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["lipschitz inf"], tmp_path / "words")
    text = json.loads((folder / "certificate.json").read_text())
    from onelayer.checker.reader import _digest

    for about in (
        {"kind": "lipschitz", "norm": "7"},
        {"kind": "x"},
        {"kind": "range", "low": [1.0], "high": [0.0]},
        [1],
    ):
        text.pop("sha256", None)
        text["about"] = about
        text["sha256"] = _digest(text)
        (folder / "certificate.json").write_text(json.dumps(text))
        with pytest.raises(FileError):
            ol.check(folder)
        with pytest.raises(FileError):
            ol.load_claim(folder)


def test_other_weights_and_other_steps_are_rejected(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["range"], tmp_path / "weights")
    path = folder / "model.safetensors"
    header = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])
    tensors, text = load(path.read_bytes()), header["__metadata__"]["network"]
    moved = {name: tensor * 2 for name, tensor in tensors.items()}
    path.write_bytes(save(moved, {"network": text}))
    assert ol.check(folder).verdict == "rejected"
    path.write_bytes(save(tensors, {"network": text.replace("tanh", "relu")}))
    assert ol.check(folder).verdict == "rejected"
    path.write_bytes(save(tensors, {"network": text.replace('"args":[1,', '"args":[9,')}))
    with pytest.raises(FileError, match="does not fit"):
        ol.check(folder)


def test_the_second_model_belongs_to_the_claim(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["difference"], tmp_path / "two")
    (folder / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(FileError, match="other"):
        ol.check(folder)


def test_both_tables_of_operations_agree() -> None:
    """The checker reads the file format by itself; it must know no more and no less."""
    known = {*network.UNARY, *network.BINARY, *network.NUMBERED, *network._RULES}
    assert known == program.OPERATIONS
    assert set(ACTIVATIONS) == set(program.UNARY) == set(network.UNARY)


POINTS = [-3.0, -1.3, -0.2, 0.4, 1.7]
REFERENCE: dict[str, Any] = {
    "neg": lambda x: -x,
    "abs": abs,
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "square": lambda x: x * x,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "mish": lambda x: x * mpmath.tanh(mpmath.log(1 + mpmath.exp(x))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_slopes_hold_mpmath_values(name: str) -> None:
    """On boxes around points, values, first and second derivatives."""
    mpmath.mp.dps = 40
    reference = REFERENCE.get(name) or getattr(mpmath, name)
    for at in POINTS if name not in ("log", "sqrt", "rsqrt") else [0.3, 1.7]:
        low, high = at - 0.05, at + 0.05
        x = elements.twice_seeded([coordinate(0, low, high, 4)])
        y = ACTIVATIONS[name].real(x[0], Kinks())
        assert isinstance(y, elements.Jet)
        for place in (low, at, high):
            exact = mpmath.mpf(place)
            steps = [reference(exact), mpmath.diff(reference, exact), mpmath.diff(reference, exact, 2)]
            zero = constant(arb(0), 4)
            first = y.tangents[0]
            second = first.tangents[0] if isinstance(first, elements.Jet) else None
            for wanted, found in zip(steps, (y.value, first, second), strict=True):
                ball = elements.underlying(zero if found is None else found).range()
                assert (
                    ball.contains(arb(str(wanted), 1e-12))
                    or abs(float(wanted) - float(ball.mid())) <= float(ball.rad()) + 1e-9
                ), (name, place)


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -torch.log(x[..., 0])


@pytest.mark.parametrize("text", ["sin(x1)/x1", "tanh(x1)/x1", "cbrt(x1 + 2)"])
def test_slopes_of_quotients_and_roots_are_proved_again(text: str, tmp_path: Path) -> None:
    made = ol.approximate(text, ol.Box([0.2], [0.9]), 0.05, gradient_eps=0.5)
    assert ol.check(made.save(tmp_path / "p") / "gradient").ok


SLOPES_OF_LOG: dict[str, Any] = {
    "lipschitz": lambda model, box: ol.lipschitz(model, box),
    "slopes": lambda model, box: ol.gradient_error(model, "0*x", box),
    "convex": lambda model, box: ol.convex(model, box).certificate,
}


@pytest.mark.parametrize("kind", SLOPES_OF_LOG)
def test_slopes_where_there_is_no_value_are_rejected(kind: str, tmp_path: Path) -> None:
    """The slopes of log x are numbers on [-2, -1] too, of the same sizes as on [1, 2]; the model is nan there."""
    folder = SLOPES_OF_LOG[kind](Logarithm(), ol.Box([1.0], [2.0])).save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    proof = read_proof(folder)
    tree = BoxTree(np.array([-2.0]), np.array([-1.0]), np.array([255], dtype=np.uint8))
    forged = {"domain": ol.Box([-2.0], [-1.0]), "proof": tree, "boxes": 1, "lower": 0.0, "witness": None}
    write_proof(folder, replace(proof, **forged, upper=proof.eps or 9.0))
    assert ol.check(folder).verdict == "rejected"


@pytest.mark.parametrize("outer", holes.OUTER)
def test_bounded_functions_of_what_has_no_value_are_rejected(outer: str, tmp_path: Path) -> None:
    """A softmax is between 0 and 1, and a weight of zero leaves nothing over, but only of numbers."""
    folder = holes.KINDS["error"](holes.Hole("log", outer), ol.Box([1.5], [1.75])).save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    write_proof(folder, holes.moved(read_proof(folder), -2.0, -1.0))
    assert ol.check(folder).verdict == "rejected"


def test_what_a_softmax_hides_is_nan_where_the_rest_overflows(tmp_path: Path) -> None:
    """A weight of an entry that takes no part is zero beside numbers, and nan beside an infinity."""
    steps = (
        program.Step("exp", (0,), (2,)),
        program.Step("softmax", (1,), (2,), places=(0,)),
        program.Step("arrange", (2,), (), places=(1,)),
    )
    model = RecordedNetwork(program.NetworkProgram((2,), steps), {})
    box = ol.Box([1.5, 1.5], [1.75, 1.75])
    folder = ol.certify(model, "0*x1", box, 1e-3).save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    assert model(torch.full((1, 2), 800.0).double()).isnan().all()
    tree = BoxTree(np.full(2, 800.0), np.full(2, 801.0), np.array([255], dtype=np.uint8))
    forged = {"domain": ol.Box([800.0] * 2, [801.0] * 2), "proof": tree, "boxes": 1, "resisted": None}
    write_proof(folder, replace(read_proof(folder), **forged, lower=0.0, witness=None))
    assert ol.check(folder).verdict == "rejected"


def test_slopes_of_a_formula_without_values_are_rejected(tmp_path: Path) -> None:
    folder = ol.gradient_error(Logarithm(), "-x", ol.Box([1.0], [2.0])).save(tmp_path / "claim")
    proof = read_proof(folder)
    write_proof(folder, replace(proof, function="log(x - 3)**0 - x"))
    assert ol.check(folder).verdict == "rejected"


class BelowLarge(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(1e150 + 0 * x[..., 0], x[..., 0] * 0.001)


class Steep(nn.Module):
    def __init__(self, function: Any, offset: float) -> None:
        super().__init__()
        self.function, self.offset = function, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x[..., 0] + x[..., 0]) + self.offset


def test_a_range_far_below_a_number_on_the_way(tmp_path: Path) -> None:
    """The smaller of two is itself, whatever the larger one errs by; and a tiny range is saved as tiny."""
    found = ol.bound(BelowLarge(), ol.Box([1e-200], [2e-200])).certificate
    folder = found.save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    saved = read_proof(folder)
    assert 0 < saved.about["low"][0] < saved.about["high"][0] < 2.1e-203
    write_proof(folder, replace(saved, about={**saved.about, "low": [1.05e-203]}))
    assert ol.check(folder).verdict == "rejected"


@pytest.mark.parametrize("function", [torch.erf, torch.tanh, torch.sigmoid, torch.atan])
def test_flat_ends_pass_no_error_on(function: Any, tmp_path: Path) -> None:
    """A number near 1e150 errs by 1e134, and its image by nothing."""
    found = ol.equivalent(Steep(function, 0.0), Steep(function, 1e-9), ol.Box([1e150], [2e150]))
    assert found.upper < 1.1e-9
    assert ol.check(found.save(tmp_path / "claim")).verdict == "accepted"


class Beyond(nn.Module):
    """softplus(x + 31.7 - 12.2): at 0.5 the real sum is below 20, the executed one above, where torch returns it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(x[..., 0] + 31.7 - 12.2)


def test_an_argument_that_errs_may_be_executed_beyond_a_jump(tmp_path: Path) -> None:
    here = ol.Box([0.5], [0.5])
    true = "log(1 + exp(20))"
    found = ol.certify(Beyond(), true, here)
    with mpmath.workdps(30):
        missed = mpmath.log1p(mpmath.exp(20)) - float(Beyond()(here.lower[None]))
    assert 2e-9 < missed <= found.upper
    folder = found.save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    write_proof(folder, replace(read_proof(folder), upper=1e-12, lower=0.0, witness=None))
    refused = ol.check(folder)
    assert refused.verdict == "rejected"
    assert "only |T - f| <= 2.06e-09 could be proved" in refused.reason  # the rounding of an execution included


def logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid", "atan"])
def test_slopes_between_two_numbers_are_bounded(name: str) -> None:
    steep = ACTIVATIONS[name].steep
    for low, high in [(-0.5, 0.25), (0.3, 0.4), (-3.0, -2.5), (5.0, 1e3), (-700.0, -20.0), (0.0, 0.0)]:
        for at in range(9):
            point = low + (high - low) * at / 8
            with mpmath.workdps(400):
                slope = mpmath.diff(logistic if name == "sigmoid" else getattr(mpmath, name), point)
            assert steep(arb(low), arb(high)).abs_upper() >= arb(float(abs(slope)) * (1 - 1e-12))
