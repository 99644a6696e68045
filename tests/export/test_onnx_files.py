"""ONNX: onnxruntime computes what the layer computes, for every model and every kind of attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.errors import FileError, OnelayerError
from onelayer.export.exporter import export
from onelayer.export.onnx import to_onnx
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

onnx = pytest.importorskip("onnx", reason="the extra onnxruntime/onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnxruntime/onnx is not installed")


def run(path: Path, x: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[0] == "batch"
    return torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0])


def test_onnxruntime_agrees(sample, tmp_path) -> None:
    path = to_onnx(sample.model, tmp_path / "model.onnx")
    assert path.stat().st_size < 5_000_000
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert sample.difference(run(path, sample.points)) <= sample.bar
    assert run(path, sample.points[:1]).shape == sample.expected()[:1].shape


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"attention": "topk", "top_k": 3},
        {"attention": "hardmax"},
        {"attention": "linear", "order": 4},
        {"attention": "linear", "feature": "elu"},
    ],
    ids=str,
)
def test_every_attention_kind(kind: dict[str, object], norm: str, tmp_path) -> None:
    generator = torch.Generator().manual_seed(0)
    memory = [
        PlainMemory(torch.randn(m, k, generator=generator), torch.randn(m, v, generator=generator))
        for m, k, v in ((7, 3, 2), (4, 2, 5))
    ]
    packed = OneLayerTransformer.packed((3,), (2,), memory, d_model=4, hidden=6, residual=True, norm=norm, **kind)
    tokens = OneLayerTransformer.tokens((5,), (), d_model=6, heads=2, norm=norm, positions="learned", **kind)
    for i, model in enumerate((packed, tokens)):
        x = torch.rand(33, *model.config.input_shape, generator=generator, dtype=torch.float64)
        values = run(to_onnx(model, tmp_path / f"{i}.onnx"), x)
        assert (values - model(x)).abs().max() < 1e-12


def test_large_grid_stays_small(tmp_path) -> None:
    """20,000 grid tokens are stored by their axes: values once, keys per axis."""
    from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model

    axes = [AxisKeys(a, torch.linspace(-9, 9, m).double(), torch.zeros(m).double()) for a, m in enumerate((200, 100))]
    model = lookup_model(2, (), [LookupHead(axes, torch.rand(200, 100, 1).double())])
    path = to_onnx(model, tmp_path / "grid.onnx")
    assert path.stat().st_size < 200_000
    x = torch.rand(50, 2, dtype=torch.float64)
    assert (run(path, x) - model(x)).abs().max() < 1e-13


def test_file_tells_what_was_proved(approximation, tmp_path) -> None:
    path = to_onnx(approximation, tmp_path / "deep" / "sin.onnx")
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert facts["certificate"] == str(approximation.certificate)
    assert facts["weights_sha256"] == approximation.certificate.weights_sha256
    assert facts["function"] == approximation.certificate.function
    assert facts["domain"] == "x1 in [0.0, 6.283185307179586], x2 in [0.0, 6.283185307179586]"
    assert "is not in the bound" in facts["covers"]
    assert [file.name for file in path.parent.iterdir()] == ["sin.onnx"]


def test_unwritable_path_is_one_line(plane, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        to_onnx(plane.model, tmp_path / "file" / "model.onnx")


def test_names_are_readable(plane, tmp_path) -> None:
    graph = onnx.load(to_onnx(plane.model, tmp_path / "m.onnx")).graph
    names = {node.name for node in graph.node}
    assert {"embedding", "head0.axis0.weights", "head1.axis0.weights", "attention", "y"} <= names
    stored = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    assert np.array_equal(stored["head0.values"], plane.model.memory_of(0).values.numpy())


@pytest.mark.parametrize("guard", [None, "clamp", "raise", "warn"])
def test_one_named_input_per_variable(guard: str | None, tmp_path: Path) -> None:
    """Variables called like tensors of the layer, x and y among them, keep their names."""
    a = approximate("y*sin(x)/heads", Box({"y[m]": (1, 2), "x": (0, 1), "heads": (1, 3)}), 0.05)
    path = to_onnx(a, tmp_path / "named.onnx", guard=guard, named=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == ["y", "x", "heads"]
    assert session.get_outputs()[0].name == "layer.y"
    described = onnx.load(path).graph.input[0].doc_string
    assert described == "y [m], from 1.0 to 2.0"
    x = a.box.sample(64)
    given = {name: x[:, at].numpy() for at, name in enumerate(("y", "x", "heads"))}
    values = session.run(None, given)[0]
    np.testing.assert_allclose(values, a.model(x).detach().numpy(), rtol=0, atol=1e-12)


def test_named_inputs_need_names(tmp_path: Path) -> None:
    a = approximate("x1*x2", Box([0, 0], [1, 1]), 0.1)
    with pytest.raises(OnelayerError, match="domain with names"):
        to_onnx(a, tmp_path / "f.onnx", named=True)
    with pytest.raises(OnelayerError, match="named inputs are for onnx"):
        export(a, to="c", out=tmp_path / "f.c", named=True)
    b = approximate("m*v", Box(m=(0, 1), v=(0, 1)), 0.1)
    assert export(b, to="onnx", out=tmp_path / "b.onnx", named=True).difference < 1e-12
    plain = onnx.load(to_onnx(b, tmp_path / "plain.onnx")).graph.input[0]
    assert (plain.name, plain.doc_string) == ("x", "columns: m, v")
