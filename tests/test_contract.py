"""Every attention kind, norm, residual and format through every door: certify, check, save and load, ONNX, picture.

What a door does not hold ends in one line, written here beside the kind that it refuses.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.errors import UnsupportedOperation
from onelayer.export.onnx import to_onnx
from onelayer.formats import FORMATS, format_of
from onelayer.layer.config import ATTENTIONS, FEATURES, NORMS
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.narrow import widened
from onelayer.pictures.drawing import draw
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation, load

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

BOX = Box([-0.25], [0.25])
EPS = 1.0  # far above the error of these layers, so that one box suffices
KINDS: dict[str, dict[str, object]] = {
    "softmax": {},
    "topk": {"attention": "topk", "top_k": 2},
    "hardmax": {"attention": "hardmax"},
    "linear taylor": {"attention": "linear", "feature": "taylor", "order": 2},
    "linear elu": {"attention": "linear", "feature": "elu"},
}
CASES = [(kind, row.name) for kind in KINDS for row in FORMATS]
JUMPING = ("topk", "hardmax")
DRAWN = ("none", True)  # norm and residual of the layers that are drawn: a picture asks the model for values alone


def layer(kind: str, norm: str, residual: bool, dtype: torch.dtype) -> OneLayerTransformer:
    """One head of three memory tokens and two hidden units, with all weights from one seed."""
    generator = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(3, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    memory = [PlainMemory(keys, values)]
    made = OneLayerTransformer.packed(
        (1,), (), memory, d_model=3, hidden=2, residual=residual, norm=norm, seed=1, **KINDS[kind]
    )
    return made.to(dtype).requires_grad_(False)


def test_every_kind_of_attention_is_here() -> None:
    named = {str(options.get("attention", "softmax")) for options in KINDS.values()}
    assert named == set(ATTENTIONS)
    assert {kind.removeprefix("linear ") for kind in KINDS if kind.startswith("linear")} == set(FEATURES)


@pytest.mark.parametrize(("norm", "residual"), list(product(NORMS, (False, True))))
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_layer_through_every_door(kind: str, norm: str, residual: bool, name: str, tmp_path: Path) -> None:
    model = layer(kind, norm, residual, getattr(torch, name))
    points = BOX.sample(9).to(model.dtype)
    session = onnxruntime.InferenceSession(str(to_onnx(model, tmp_path / "model.onnx")))
    values = torch.from_numpy(session.run(["y"], {"x": widened(points).numpy()})[0])
    assert (values - model(points)).abs().max() <= 64 * format_of(model.dtype).unit * 4

    target = as_target("x/10", BOX)
    if kind in JUMPING:
        with pytest.raises(UnsupportedOperation, match=f"'{kind} attention of enclosures' is not supported: its"):
            certify(model, target, BOX, EPS)
        return
    certificate = certify(model, target, BOX, EPS, order=2)
    assert certificate.proved
    assert (model(points).double() - points.double().squeeze(-1) / 10).abs().max() <= certificate.upper
    assert certificate.arithmetic == format_of(model.dtype).execution

    made = Approximation(model, certificate, target)
    made.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert torch.equal(again.model(points), model(points))
    assert again.certificate.to_json() == certificate.to_json()

    judged = check(tmp_path / "saved")
    assert judged.ok, judged
    if (norm, residual) == DRAWN:
        draw(again, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 1000
