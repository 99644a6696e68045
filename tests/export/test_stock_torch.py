"""Stock PyTorch: parity on every model, proofs through LayerNorm, and a folder that runs without this package."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.export.exporter import export
from onelayer.export.stock import StockLayer
from onelayer.export.torch import to_torch
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_stock_layer_computes_the_same_function(sample, norm: str) -> None:
    layer = to_torch(sample.model, norm=norm, box=sample.box)
    assert sample.difference(layer(sample.points)) <= sample.bar
    with torch.inference_mode():  # the fused path of nn.TransformerEncoderLayer
        assert sample.difference(layer(sample.points)) <= sample.bar


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_only_torch_parts_hold_weights(plane, norm: str) -> None:
    layer = to_torch(plane.model, norm=norm, box=plane.box)
    assert not dict(layer.named_parameters(recurse=False))
    assert all(type(part).__module__.startswith("torch.nn.") for part in layer.modules() if part is not layer)
    assert any(isinstance(part, nn.TransformerEncoderLayer) for part in layer.modules()) == (norm != "none")


@pytest.mark.parametrize(("norm", "eps"), [("pre", 1e-4), ("post", 1e-5), ("none", 1e-5)])
def test_stock_layer_of_two_sines_is_proved(plane, norm: str, eps: float) -> None:
    layer = to_torch(plane.model, norm=norm, box=plane.box)
    certificate = certify(layer, "sin(x1) + sin(x2)", plane.box, eps, max_seconds=120)
    assert certificate.status == "proved"
    assert certificate.upper < eps
    assert certificate.arithmetic == "float64 execution"
    errors = (layer(plane.points) - torch.sin(plane.points).sum(-1)).abs()
    assert errors.max() <= certificate.upper


def test_wrong_stock_layer_is_refuted(plane) -> None:
    layer = to_torch(plane.model, box=plane.box)
    with torch.no_grad():
        layer.read.weight *= 1.001
    assert certify(layer, "sin(x1) + sin(x2)", plane.box, 1e-4, max_seconds=60).status == "refuted"


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_values_solved_through_a_small_anchor(norm: str) -> None:
    """A grid head bends back what LayerNorm bends, even where LayerNorm changes the query by a few percent."""
    from onelayer.build.lookup.blueprint import draw_up
    from onelayer.build.lookup.groups import FitBudget
    from onelayer.recording.target import as_target

    box = Box([-1, -1], [1, 1])
    model = draw_up(as_target("exp(x1*x2)", box), box, 1e-5, FitBudget(torch.float64, 500, 0, effort="fast")).build(
        torch.float64
    )
    x = box.sample(500)
    plain, solved = (
        float((to_torch(model, norm=norm, anchor=4, solve=solve, box=box)(x) - model(x)).abs().max())
        for solve in (False, True)
    )
    assert plain > 1e-3
    assert solved < 1e-4


def test_layers_with_a_norm_of_their_own() -> None:
    model = OneLayerTransformer.tokens((4, 2), (4, 3), d_model=6, heads=2, hidden=5, norm="pre", residual=True)
    x = torch.rand(9, 4, 2, dtype=torch.float64)
    assert (to_torch(model, norm="none")(x) - model(x)).abs().max() < 1e-14
    with pytest.raises(OnelayerError, match="norm='none'"):
        to_torch(model, box=Box(torch.zeros(4, 2), torch.ones(4, 2)))


def test_refusals_say_what_would_be_right(plane) -> None:
    with pytest.raises(OnelayerError, match="pass box="):
        to_torch(plane.model)
    with pytest.raises(OnelayerError, match="pre, post, none"):
        to_torch(plane.model, norm="rms", box=plane.box)
    with pytest.raises(OnelayerError, match="anchor must be a number > 1"):
        to_torch(plane.model, anchor=0.5, box=plane.box)
    with pytest.raises(OnelayerError, match="points of shape"):
        to_torch(plane.model, box=Box([0], [1]))
    with pytest.raises(OnelayerError, match="can be exported, not str"):
        to_torch("folder")  # type: ignore[arg-type]
    memory = PlainMemory(torch.zeros(3, 2), torch.zeros(3, 1))
    hard = OneLayerTransformer.packed((2,), (), [memory], attention="hardmax")
    with pytest.raises(OnelayerError, match="softmax attention only"):
        to_torch(hard, box=plane.box)
    long = OneLayerTransformer.packed((2,), (), [PlainMemory(torch.zeros(5000, 2), torch.zeros(5000, 1))])
    with pytest.raises(OnelayerError, match=r"5,001 tokens is too long"):
        to_torch(long, box=plane.box)


def test_exported_folder_needs_torch_alone(plane, tmp_path, approximation) -> None:
    exported = export(approximation, to="torch", out=tmp_path / "stock")
    assert exported.difference <= 1e-9
    assert sorted(file.name for file in exported.path.iterdir()) == ["config.json", "model.safetensors", "stock.py"]
    code = (
        "import sys, torch; from stock import load; layer = load('.'); "
        "print(layer(torch.tensor([[1.0, 2.0]], dtype=torch.float64)).item()); assert 'onelayer' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=exported.path, capture_output=True, text=True, check=True, timeout=120
    )
    assert abs(float(done.stdout) - float(approximation.model(torch.tensor([1.0, 2.0]).double()))) <= 1e-9
    assert isinstance(to_torch(approximation), StockLayer)


def test_a_head_without_memory_hears_the_sequence_alone_however_low_its_logits() -> None:
    """Logits of a million below zero, beside a head with memory tokens that it must not hear."""
    memory = PlainMemory(torch.ones(2, 1).double(), torch.ones(2, 1).double())
    model = OneLayerTransformer.tokens((2,), (2,), d_model=2, heads=2, d_k=1, d_v=1, memory=[memory, None])
    query = torch.tensor([[0.0, 0.0], [0.0, 0.0]]).double()
    model.set_weights({"W_Q": query, "b_Q": torch.tensor([1.0, -1e6]).double(), "b_K": torch.ones(2).double()})
    model.set_weights({"W_K": torch.zeros(2, 2).double()})
    model.requires_grad_(False)
    x = torch.tensor([[0.3, -0.7], [1.0, 2.0]], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        own = model.to(dtype)
        parts = to_torch(own, norm="none")
        assert torch.allclose(parts(x.to(dtype)), own(x.to(dtype)), rtol=0, atol=1e-6)
