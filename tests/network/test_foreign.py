"""Foreign files: read as the network they are, or refused in one line; nothing in them is ever run."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.errors import OnelayerError
from onelayer.network.architecture import EncoderNetwork
from onelayer.network.foreign import read_network

onnx = pytest.importorskip("onnx")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def graph(nodes: list[Any], weights: dict[str, np.ndarray] | None = None, **changes: Any) -> bytes:
    """An ONNX file with one input x (B, 2) and one output y."""
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    x = helper.make_tensor_value_info("x", changes.get("kind", FLOAT), changes.get("shape", ["b", 2]))
    y = helper.make_tensor_value_info("y", FLOAT, None)
    made = helper.make_graph(nodes, "g", [x, *changes.get("more", [])], [y], stored)
    opset = [helper.make_opsetid(changes.get("domain", ""), changes.get("version", 17))]
    return helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString()


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


W = np.array([[1.0, -2.0], [0.5, 3.0], [0.25, 1.0]], dtype=np.float32)
CASES: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "gemm": ([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], {"w": W, "b": W[:, 0]}),
    "matmul": ([node("MatMul", ["x", "w"], ["h"]), node("Elu", ["h"], ["y"])], {"w": W.T.copy()}),
    "softmax of a mask": (
        [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "m"], ["s"]), node("Softmax", ["s"], ["y"], axis=-1)],
        {"w": W.T.copy(), "m": np.array([0.0, -np.inf, 1.0], dtype=np.float32)},
    ),
    "shapes": (
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Reshape", ["h", "r"], ["p"]),
            node("Transpose", ["p"], ["q"], perm=[0, 2, 1]),
            node("Slice", ["q", "from", "to", "axes"], ["s"]),
            node("ReduceMean", ["s"], ["y"], axes=[1], keepdims=0),
        ],
        {
            "w": np.arange(12, dtype=np.float32).reshape(2, 6) / 7,
            "r": np.array([0, 3, -1]),
            "from": np.array([0]),
            "to": np.array([2]),
            "axes": np.array([2]),
        },
    ),
    "clip": (
        [node("Clip", ["x", "low", "high"], ["c"]), node("Pow", ["c", "two"], ["p"]), node("Div", ["p", "k"], ["y"])],
        {name: np.array(v, dtype=np.float32) for name, v in {"low": -0.5, "high": 0.7, "two": 2.0, "k": 3.0}.items()},
    ),
    "two masks": (
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Add", ["h", "m"], ["s"]),
            node("Add", ["s", "n"], ["t"]),
            node("Softmax", ["t"], ["y"], axis=-1),
        ],
        {
            "w": W.T.copy(),
            "m": np.array([0.0, -np.inf, 0.0], dtype=np.float32),
            "n": np.array([0.5, 0.0, -np.inf], dtype=np.float32),
        },
    ),
    "parts by their outputs": (
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Split", ["h"], ["p", "q", "r"], axis=1),
            node("ReduceSum", ["p", "axes"], ["y"], keepdims=1),
        ],
        {"w": np.arange(12, dtype=np.float32).reshape(2, 6) / 7, "axes": np.array([1])},
    ),
    "integers divided": (
        [node("Div", ["a", "b"], ["q"]), node("Cast", ["q"], ["k"], to=1), node("Mul", ["x", "k"], ["y"])],
        {"a": np.array([-7]), "b": np.array([2])},
    ),
    "the least integer divided": (
        [node("Div", ["a", "b"], ["q"]), node("Cast", ["q"], ["k"], to=1), node("Mul", ["x", "k"], ["y"])],
        {"a": np.array([-(2**63)]), "b": np.array([2])},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_onnx_file_is_what_onnxruntime_runs(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    data = graph(*CASES[name], version=13)
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    found = read_network(path)(x)
    wanted = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x.numpy()})[0]
    assert np.allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


BAD: dict[str, bytes] = {
    "noise": b"\x00\xff" * 100,
    "nothing": b"",
    "a cycle": graph([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]),
    "two writers": graph([node("Relu", ["x"], ["y"]), node("Tanh", ["x"], ["y"])]),
    "no writer": graph([node("Relu", ["x"], ["z"])]),
    "unknown operator": graph([node("Loop", ["x"], ["y"])]),
    "another domain": graph([node("Relu", ["x"], ["y"], domain="com.example")]),
    "unknown attribute": graph([node("Softmax", ["x"], ["y"], axis=-1, strange=3)]),
    "old": graph([node("Relu", ["x"], ["y"])], version=9),
    "a free size": graph([node("Relu", ["x"], ["y"])], shape=["b", "n"]),
    "no batch": graph([node("Relu", ["x"], ["y"])], shape=[2]),
    "integers": graph([node("Relu", ["x"], ["y"])], kind=onnx.TensorProto.INT64),
    "two inputs": graph([node("Add", ["x", "z"], ["y"])], more=[helper.make_tensor_value_info("z", FLOAT, ["b", 2])]),
    "a shape of its own": graph([node("Reshape", ["x", "r"], ["y"])], {"r": np.array([7, 7])}),
    "not a number": graph([node("Mul", ["x", "w"], ["y"])], {"w": np.array([np.nan, 1], dtype=np.float32)}),
    "infinite weights": graph([node("Mul", ["x", "w"], ["y"])], {"w": np.array([np.inf, 1], dtype=np.float32)}),
    "huge": graph([node("Expand", ["x", "r"], ["y"])], {"r": np.array([2**40, 2])}),
    "a constant": graph([node("Relu", ["w"], ["y"])], {"w": W}),
    "the largest of integers": graph(
        [
            node("Max", ["a", "b"], ["m"]),
            node("Div", ["m", "c"], ["q"]),
            node("Cast", ["q"], ["k"], to=1),
            node("Mul", ["x", "k"], ["y"]),
        ],
        {"a": np.array([7]), "b": np.array([5]), "c": np.array([2])},
    ),
    "a product of wide constants": graph(
        [node("MatMul", ["a", "b"], ["m"]), node("Cast", ["m"], ["k"], to=1), node("Mul", ["x", "k"], ["y"])],
        {"a": np.array([[100000001.0]]), "b": np.array([[1.0]])},
    ),
    "points mixed": graph([node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=0)]),
    "points weighed": graph([node("Softmax", ["x"], ["y"], axis=0)]),
    "points moved": graph([node("ReduceMean", ["x"], ["m"], axes=[0]), node("Sub", ["x", "m"], ["y"])]),
    "the first of the points": graph(
        [node("Gather", ["x", "at"], ["first"]), node("Add", ["x", "first"], ["y"])], {"at": np.array([0])}
    ),
    "points counted": graph(
        [
            node("Shape", ["x"], ["sizes"], start=0, end=1),
            node("Cast", ["sizes"], ["count"], to=1),
            node("Mul", ["x", "count"], ["y"]),
        ]
    ),
    "powers": graph([node("Pow", ["x", "n"], ["y"])], {"n": np.array([2, 3], dtype=np.float32)}),
    "parts of another axis": graph(
        [node("Split", ["x", "n"], ["p", "q"], axis=1), node("Relu", ["p"], ["y"])], {"n": np.array([1, 2])}
    ),
    "a mask for a result": graph([node("Add", ["x", "m"], ["y"])], {"m": np.array([0, -np.inf], dtype=np.float32)}),
    "a sum of a mask": graph(
        [node("Add", ["x", "m"], ["s"]), node("ReduceSum", ["s", "at"], ["y"])],
        {"m": np.array([0, -np.inf], dtype=np.float32), "at": np.array([1])},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_onnx_file_is_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(BAD[name])
    with pytest.raises(OnelayerError) as caught:
        read_network(path)
    assert "\n" not in str(caught.value)


def test_weights_outside_an_onnx_file_are_not_looked_for(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(graph([node("Mul", ["x", "w"], ["y"])], {"w": W[:, 0][:2]}))
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/passwd")
    (tmp_path / "out.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(OnelayerError, match="another file"):
        read_network(tmp_path / "out.onnx")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.GELU(), nn.Linear(5, 1)).eval()


def test_a_program_of_torch_export_is_read_without_its_pickle(tmp_path: Path) -> None:
    model, path = small(), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 2),)), path)
    bomb = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(bomb, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            new.writestr(item.filename, _bomb(tmp_path) if item.filename.endswith(".pt") else data)
    x = torch.randn(5, 2)
    with torch.no_grad():
        assert torch.equal(read_network(bomb)(x), model(x))
    assert not (tmp_path / "exploded").exists()


def _bomb(folder: Path) -> bytes:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (folder / "exploded",)

    return pickle.dumps(Bomb())


def test_what_would_have_to_be_unpickled_is_refused(tmp_path: Path) -> None:
    torch.save(small(), tmp_path / "model.pt")
    (tmp_path / "bomb.pt").write_bytes(_bomb(tmp_path))
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("m/models/model.json", json.dumps({"graph_module": {"graph": []}}))
    (tmp_path / "broken.pt2").write_bytes(broken.getvalue())
    for name in ("model.pt", "bomb.pt", "broken.pt2"):
        with pytest.raises(OnelayerError) as caught:
            read_network(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "exploded").exists()


def test_names_without_numbers_say_no_order(tmp_path: Path) -> None:
    """hidden, input, output in the order of the alphabet would be another network."""
    layers = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("input", "hidden", "output")})
    safetensors.torch.save_file(layers.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(OnelayerError, match="numbers"):
        read_network(tmp_path / "w.safetensors", "mlp:3,3,3,3:tanh")


def test_weights_with_a_named_architecture(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    x = torch.randn(5, 2)
    with torch.no_grad():
        assert torch.equal(read_network(path, "mlp:2,5,1:tanh")(x), model(x))
    encoder = EncoderNetwork([2, 4, 2, 6, 1], "gelu", True, torch.float32).eval()
    safetensors.torch.save_file(encoder.state_dict(), tmp_path / "e.safetensors")
    with torch.no_grad():
        found = read_network(tmp_path / "e.safetensors", "encoder:2,4,2,6,1:gelu:pre")(x)
        assert torch.allclose(found, encoder(x), atol=1e-6)
    for architecture in (
        None,
        "mlp",
        "mlp:2,6,1:tanh",
        "mlp:2,5,1:exec",
        "mlp:2,99999,1:tanh",
        "cnn:1,2:relu",
        "mlp:-1",
    ):
        with pytest.raises(OnelayerError) as caught:
            read_network(path, architecture)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("architecture", ["mlp:2,5,1:tanh", "encoder:2,4,2,6,1:gelu:pre"])
def test_weights_in_float64_stay_as_they_are(architecture: str, tmp_path: Path) -> None:
    """Read into a model of float32 they were rounded to it, and all that was proved was of another network."""
    kind = torch.float64
    dense = nn.Sequential(nn.Linear(2, 5, dtype=kind), nn.Tanh(), nn.Linear(5, 1, dtype=kind))
    model = dense if architecture.startswith("mlp") else EncoderNetwork([2, 4, 2, 6, 1], "gelu", True, kind).eval()
    state = {name: torch.rand_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(state, path)
    network = read_network(path, architecture)
    kept = {value.tobytes() for value in (network.tensor(name).numpy() for name in network.program.tensors)}
    assert {value.numpy().tobytes() for value in state.values() if value.ndim == 2} <= kept
    x = torch.randn(5, 2, dtype=kind)
    with torch.no_grad():
        assert torch.allclose(network(x), model(x), rtol=1e-13, atol=1e-13)


def test_weights_of_one_number_or_of_a_narrow_format_are_refused(tmp_path: Path) -> None:
    """layer1 and layer01 stand in no order."""
    path = tmp_path / "w.safetensors"
    names = {"l1": (2, 2), "l01": (2, 2)}
    stored = {f"{name}.weight": torch.ones(shape) for name, shape in names.items()}
    safetensors.torch.save_file(stored | {f"{name}.bias": torch.ones(2) for name in names}, path)
    with pytest.raises(OnelayerError, match="same numbers"):
        read_network(path, "mlp:2,2,2:tanh")
    safetensors.torch.save_file({"0.weight": torch.ones(1, 2).half(), "0.bias": torch.ones(1).half()}, path)
    with pytest.raises(OnelayerError, match="float64 or float32"):
        read_network(path, "mlp:2,1:tanh")


def test_a_foreign_file_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(graph([node("Tanh", ["x"], ["h"]), node("ReduceSum", ["h", "a"], ["y"])], {"a": np.array([1])}))
    place = ["--domain", "u=-1:1, v=0:1"]
    out = str(tmp_path / "claim")
    assert run(app, ["certify", str(path), "u + v", *place, "--out", out]) == 0
    assert run(app, ["check", out]) == 0
    assert run(app, ["certify", out, "--eps", "0.001"]) == 1
    assert run(app, ["monotone", str(path), "u +, v +", *place, "--out", out]) == 0
    assert run(app, ["check", out]) == 0
    assert run(app, ["lipschitz", out, "--norm", "2"]) == 0
    capfd.readouterr()
    for wrong in (["certify", str(path), "u + v"], ["certify", str(path), *place], ["bound", out, *place]):
        assert run(app, wrong) == 2
        assert len(capfd.readouterr().err.splitlines()) == 1
