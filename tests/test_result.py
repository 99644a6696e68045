"""Approximation: what is saved is what is loaded, folders are never half-written, foreign weights are refused."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onelayer import Box, lipschitz, load_claim, pictures
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof import saved
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation, Attempt, load

BOX = Box([0.0, 0.0], [2.0, 2.0])


def f(x: Any) -> Any:
    return torch.sin(x[..., 0]) + torch.sin(x[..., 1])


def small_model(tokens: int = 5) -> OneLayerTransformer:
    """Bernstein heads, one per coordinate, values by least squares."""
    m = torch.arange(tokens, dtype=torch.float64)
    biases = torch.tensor([math.log(math.comb(tokens - 1, k)) for k in range(tokens)], dtype=torch.float64) - m
    x = torch.linspace(0, 2, 40, dtype=torch.float64)
    values = torch.linalg.lstsq(torch.softmax(x[:, None] * m + biases, -1), torch.sin(x)[:, None]).solution
    return lookup_model(2, (), [LookupHead([AxisKeys(a, m, biases)], values) for a in range(2)])


@pytest.fixture(scope="module")
def made() -> Approximation:
    model = small_model()
    return Approximation(model, certify(model, f, BOX, 1e-2, order=3), as_target(f, BOX))


def same_weights(a: OneLayerTransformer, b: OneLayerTransformer) -> bool:
    return all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())


def test_save_and_load(made: Approximation, tmp_path: Path) -> None:
    assert made.certificate.proved
    folder = made.save(tmp_path / "sub" / "sin")
    names = ["boxes.bin", "certificate.json", "function.txt", "model.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [path.name for path in folder.parent.iterdir()] == ["sin"]
    back = load(folder)
    assert back.certificate == made.certificate
    assert same_weights(back.model, made.model)
    assert back.box == BOX
    assert back.target is not None
    x = BOX.sample(64)
    assert torch.equal(back(x), made.model(x))
    assert torch.allclose(back.target.function(x), f(x), atol=1e-14)
    assert certify(back.model, back.target, back.box, 1e-2, order=3).upper == made.certificate.upper


def test_saving_again_replaces_and_forgets_old_files(made: Approximation, tmp_path: Path) -> None:
    made.save(tmp_path)
    unrecorded = replace(made.certificate, function="not recorded: a table", proof=None, boxes=0, method="lemma")
    Approximation(made.model, unrecorded).save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.json", "model.safetensors"]
    back = load(tmp_path)
    assert back.target is None
    assert back.certificate == unrecorded


def test_sequences_keep_their_shapes(tmp_path: Path) -> None:
    box = Box(torch.zeros(2, 1), torch.ones(2, 1))
    model = lookup_model(
        (2, 1), (2, 1), [LookupHead([AxisKeys(0, torch.tensor([0.0, 1.0]), torch.zeros(2))], torch.eye(2).double())]
    )

    def flipped(x: Any) -> Any:
        return x.flip(-2)

    certificate = certify(model, flipped, box, 1.5)
    Approximation(model, certificate, as_target(flipped, box)).save(tmp_path / "s")
    back = load(tmp_path / "s")
    assert back.certificate.domain.shape == (2, 1)
    assert back.target is not None
    assert back.target.output_shape == (2, 1)
    x = box.sample(8)
    assert torch.equal(back.target.function(x), x.flip(-2))


def test_other_weights_are_refused(made: Approximation, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="other weights"):
        Approximation(small_model(6), made.certificate)
    made.save(tmp_path)
    from onelayer.layer.file import save_model

    save_model(small_model(6), tmp_path)
    with pytest.raises(FileError, match="other weights"):
        load(tmp_path)


def test_an_interrupted_save_leaves_the_old_result(
    made: Approximation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.save(tmp_path / "a")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(saved, "write_proof", interrupted)
    for name in ("a", "b"):
        with pytest.raises(KeyboardInterrupt):
            made.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert load(tmp_path / "a").certificate == made.certificate


def test_unwritable_and_missing_folders_are_one_line(made: Approximation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError) as caught:
            made.save(folder)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"
    with pytest.raises(FileError, match="cannot read"):
        load(tmp_path / "nowhere")


def test_a_function_text_outside_the_language_is_refused(made: Approximation, tmp_path: Path) -> None:
    certificate = replace(made.certificate, function="__import__('os')")
    made.save(tmp_path)
    from onelayer.proof.files import write_proof

    write_proof(tmp_path, certificate)
    with pytest.raises(FileError):
        load(tmp_path)


def test_it_prints_its_size_and_claim(made: Approximation) -> None:
    assert repr(made).startswith("Approximation(2 heads, 10 tokens, Certificate(proved:")
    assert made.size() == made.model.size()


def test_ends_of_an_attempt_are_rounded_outward() -> None:
    tried = Attempt("by tokens", "undecided", 1.2349, 1.2341, 10, 0.1, "")
    low, high = (float(end) for end in re.findall(r"[0-9.]+e[+-][0-9]+", str(tried)))
    assert low <= 1.2349
    assert high >= 1.2341


def test_a_bound_that_was_reached_is_said_rounded_up(made: Approximation) -> None:
    said = replace(made, certificate=replace(made.certificate, status="proved", eps=1.0, upper=0.12341)).outcome()
    assert float(said.split("<=")[1]) >= 0.12341


def changed_in_place(kind: str) -> Approximation:
    """A result whose module is no longer what was certified."""
    model = small_model()
    a = Approximation(model, certify(model, f, BOX, 1e-2, order=3), as_target(f, BOX))
    if kind == "number":
        a.model.own("b_R").data += 1.0
    else:
        a.model.float()
    return a


@pytest.mark.parametrize("kind", ["number", "format"])
@pytest.mark.parametrize(
    "use",
    [
        *("save", "c", "torch", "coq", "guarded", "draw", "to_html", "explain", "report"),
        *("call", "outcome", "drawn", "boxes", "attention", "scene"),
    ],
)
def test_a_model_that_was_changed_in_place_states_no_bound(kind: str, use: str, tmp_path: Path) -> None:
    a = changed_in_place(kind)
    uses = {
        "save": lambda: a.save(tmp_path / "a"),
        "c": lambda: a.export("c", tmp_path / "wave.c"),
        "torch": lambda: a.export("torch", tmp_path / "t", guard="raise"),
        "coq": lambda: a.export("coq", tmp_path / "wave.v"),
        "guarded": a.guarded,
        "draw": a.draw,
        "to_html": lambda: a.to_html(tmp_path / "a.html"),
        "explain": a.explain,
        "report": lambda: a.report(tmp_path / "a.html"),
        "call": lambda: a(torch.zeros(1, 2, dtype=torch.float64)),
        "outcome": a.outcome,
        "drawn": lambda: pictures.draw(a, tmp_path / "a.png"),
        "boxes": lambda: pictures.draw_boxes(a, tmp_path / "a.png"),
        "attention": lambda: pictures.draw_attention(a, tmp_path / "a.png"),
        "scene": lambda: pictures.Scene.of(a),
    }
    with pytest.raises(OnelayerError, match="other weights than the model has"):
        uses[use]()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["number", "format"])
def test_what_is_shown_of_a_changed_model_says_so(kind: str) -> None:
    a = changed_in_place(kind)
    assert "other weights than the model has" in repr(a)
    assert "proved" not in repr(a)
    assert "NOT this model" in a._repr_html_()


def test_a_model_that_was_called_before_is_asked_again(made: Approximation) -> None:
    a = replace(made, model=copy.deepcopy(made.model))
    x = torch.zeros(1, 2, dtype=torch.float64)
    a(x)
    a.model.own("b_R").data += 1.0
    with pytest.raises(OnelayerError, match="other weights than the model has"):
        a(x)


def test_nothing_is_made_of_a_result_whose_model_was_hooked(made: Approximation, tmp_path: Path) -> None:
    """Its weights are those that were certified, and it computes something else."""
    hooked = replace(made, model=copy.deepcopy(made.model))
    hooked.model.register_forward_hook(lambda module, given, returned: 3.0 * returned)
    doors: list[Callable[[], Any]] = [
        lambda: hooked.save(tmp_path / "saved"),
        lambda: hooked.check(),
        lambda: hooked(torch.zeros(1, 2, dtype=torch.float64)),
        lambda: hooked.export("coq", tmp_path / "a.v"),
        lambda: replace(made, model=hooked.model),
    ]
    for door in doors:
        with pytest.raises(OnelayerError, match="certify it as it is"):
            door()
    assert list(tmp_path.iterdir()) == []


def test_a_loaded_claim_whose_model_was_changed_is_not_saved_again(made: Approximation, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    claimed = load_claim(lipschitz(network, BOX).save(tmp_path / "claim"))
    with torch.no_grad():
        next(claimed.model.parameters()).mul_(3.0)
    for save in (claimed.save, claimed.certificate.save):
        with pytest.raises(OnelayerError, match="certify it again"):
            save(tmp_path / "again")
    assert not (tmp_path / "again").exists()
