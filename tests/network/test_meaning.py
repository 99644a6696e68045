"""A file is read as what it means, or refused: each case here was once read as another network than the runtime's."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.network.foreign import read_network
from onelayer.network.onnx_rules import RULES
from onelayer.network.record import record

onnx = pytest.importorskip("onnx")
from onnx_graphs import DOUBLE, file, node, numbers, whole  # noqa: E402  (it needs onnx)

AXES = {"none": np.zeros(0, dtype=np.int64), "points": np.array([0])}
RIGHT: dict[str, bytes] = {
    "a sum over no axes is one over all": file([node("ReduceSum", ["x", "none"])], AXES, batch=1),
    "a mean over no axes is one over all": file([node("ReduceMean", ["x", "none"])], AXES, batch=1),
    "constants are folded in their own format": file(
        [
            node("Constant", [], "large", value_float=1e8),
            node("Constant", [], "one", value_floats=[1.0]),
            node("Add", ["large", "one"], "sum"),
            node("Sub", ["sum", "large"], "nothing"),
            node("Mul", ["x", "nothing"]),
        ],
        {},
    ),
    "a slope left out is the float32 number": file([node("LeakyRelu", ["x"])], {}, kind=DOUBLE),
    "a slice downwards from before the first entry has it": file(
        [
            node("Slice", ["k", "before", "far", "zero", "down"], "first"),
            node("Concat", ["k", "first"], "long", axis=0),
            node("Slice", ["long", "last", "end"], "turned"),
            node("Add", ["x", "turned"]),
        ],
        {
            "k": numbers(1, 2, 3),
            **{name: whole(at) for name, at in [("before", -10), ("far", -20), ("zero", 0), ("down", -1)]},
            **{name: whole(at) for name, at in [("last", -3), ("end", 2**31 - 1)]},
        },
    ),
    "a count that cancels": file(
        [node("Shape", ["x"], "s"), node("ConstantOfShape", ["s"], "zeros"), node("Add", ["x", "zeros"])], {}
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_an_onnx_file_means_what_onnxruntime_runs(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(RIGHT[name])
    network = read_network(tmp_path / "net.onnx")
    x = torch.tensor([[-1.0, 2.0, -4.0]], dtype=network.dtype)
    session = runtime.InferenceSession(RIGHT[name], providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x.numpy()})[0]
    assert np.allclose(network(x).numpy(), wanted, rtol=1e-6 if network.dtype == torch.float32 else 1e-14, atol=0)


def test_batch_norm_in_real_arithmetic_has_the_root_itself(tmp_path: Path) -> None:
    """The root rounded to float32 is 1 off at 7e7."""
    stored = {"s": numbers(1e8), "b": numbers(0.0), "m": numbers(0.0), "v": numbers(2.0)}
    nodes = [node("Slice", ["x", "zero", "one", "one"], "u"), node("BatchNormalization", ["u", "s", "b", "m", "v"])]
    whole = {"zero": np.array([0]), "one": np.array([1])}
    (tmp_path / "net.onnx").write_bytes(file(nodes, {**stored, **whole}))
    network = read_network(tmp_path / "net.onnx")
    found = ol.bound(network, ol.Box([1.0] * 3, [1.0] * 3), execution="real")
    with mpmath.workdps(50):
        true = 10**8 / mpmath.sqrt(2 + mpmath.mpf(float(np.float32(1e-5))))
        assert found.low.item() <= true <= found.high.item()
    assert abs(float(network(torch.ones(3, 3))[2]) - float(true)) < 64
    slope = ol.lipschitz(network, ol.Box([1.0] * 3, [2.0] * 3), 8e7)
    assert ol.check(slope.save(tmp_path / "claim")).verdict == "accepted"


ROOT = [node("Sub", ["x", "k"], "d"), node("Sqrt", ["d"], "s")]  # without a value below k
COUNT = [node("Shape", ["x"], "n", start=0, end=1), node("Cast", ["n"], "count", to=1)]
WRONG: dict[str, bytes] = {
    "points mixed where there is a value": file(
        [*ROOT, node("ReduceSum", ["s", "points"], "t"), node("Add", ["s", "t"])], {"k": numbers(0.9), **AXES}
    ),
    "points mixed a little": file(
        [node("ReduceSum", ["x", "points"], "t"), node("Mul", ["t", "k"], "u"), node("Add", ["x", "u"])],
        {"k": numbers(1e-6), **AXES},
    ),
    "points counted a little": file(
        [*COUNT, node("Mul", ["count", "k"], "u"), node("Add", ["x", "u"])], {"k": numbers(1e-4)}
    ),
    "an offset for each point": file(
        [node("Gemm", ["x", "w", "c"])], {"w": np.ones((3, 2), dtype=np.float32), "c": np.float32([[1], [5]])}
    ),
    "three to add": file([node("Add", ["x", "k", "k"])], {"k": numbers(1.0)}),
    "a weight without a name": file([node("Clip", ["x", "", "high"])], {"": numbers(3)[0], "high": numbers(8)[0]}),
    "formats mixed": file([node("Add", ["x", "k"])], {"k": np.array([0.1], dtype=np.float16)}),
    "operators of the future": file([node("Relu", ["x"])], {}, version=999),
    "a norm of float64 inside float32": file([node("LayerNormalization", ["x", "g"])], {"g": np.ones(3)}, kind=DOUBLE),
    "a norm of float32 inside float16": file(
        [node("LayerNormalization", ["x", "g"], stash_type=onnx.TensorProto.FLOAT16)], {"g": np.float32([1, 1, 1])}
    ),
}


def onnx_split() -> bytes:
    parts = onnx.helper.make_node("Split", ["x"], ["p", "q"], axis=1, num_outputs=3)
    return file([parts, node("Relu", ["p"])], {})


def onnx_training() -> bytes:
    """By the number of its results: operator set 13 has no other word for it."""
    names = ["y", "mean", "var", "saved mean", "saved var"]
    norm = onnx.helper.make_node("BatchNormalization", ["x", "s", "s", "s", "s"], names)
    return file([norm], {"s": numbers(1, 1, 1)}, version=13)


def quotient(a: Any, b: Any, op: str = "Div") -> bytes:
    nodes = [node(op, ["a", "b"], "q"), node("Cast", ["q"], "k", to=1), node("Add", ["x", "k"])]
    return file(nodes, {"a": np.array([a]), "b": np.array([b])})


def through_integers(value: float) -> bytes:
    nodes = [node("Cast", ["a"], "q", to=6), node("Cast", ["q"], "k", to=1), node("Add", ["x", "k"])]
    return file(nodes, {"a": numbers(value)})


WRONG |= {
    "an infinite factor": file([node("Mul", ["x", "k"])], {"k": numbers(np.inf)}),
    "no number to add": file([node("Add", ["x", "k"])], {"k": numbers(np.nan)}),
    "infinity taken away": file([node("Sub", ["x", "k"])], {"k": numbers(np.inf)}),
    "more parts than outputs": onnx_split(),
    "a batch normalised by itself": onnx_training(),
    "a mean in float64": file(
        [node("BatchNormalization", ["x", "s", "s", "m", "m"])], {"s": numbers(1, 1, 1), "m": np.full(3, 0.1)}
    ),
    "divided by zero": quotient(2, 0),
    "a remainder of zero": quotient(2, 0, "Mod"),
    "the least integer turned": quotient(-(2**63), -1),
    "cast beyond integers": through_integers(3e9),
    "not a number cast": through_integers(np.nan),
    "squeezed along no axes": file([node("Squeeze", ["x", "none"], "s"), node("Relu", ["s"])], AXES, batch=1),
    "another gelu": file([node("Gelu", ["x"], approximate="some")], {}, version=20),
    "filled with two": file(
        [
            node("ConstantOfShape", ["n"], "k", value=onnx.numpy_helper.from_array(numbers(5, 7))),
            node("Add", ["x", "k"]),
        ],
        {"n": np.array([3])},
    ),
    "an input with a default": file([node("Add", ["x", "k"])], {"k": numbers(1.0)}, more=["k"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_onnx_file_that_means_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(WRONG[name])
    with pytest.raises(OnelayerError) as caught:
        read_network(tmp_path / "net.onnx")
    assert "\n" not in str(caught.value)


class Program(nn.Module):
    """Code with a dense layer and a buffer."""

    def __init__(self, code: Callable[[Any, Tensor], Tensor], buffer: Tensor) -> None:
        super().__init__()
        self.code, self.dense = code, nn.Linear(3, 3)
        self.register_buffer("held", buffer)

    def forward(self, x: Tensor) -> Tensor:
        return self.code(self, x)


def by_a_view(model: Any, x: Tensor) -> Tensor:
    y = model.dense(x)
    y[:, 0].mul_(5.0)
    return y


def by_another_shape(model: Any, x: Tensor) -> Tensor:
    y = x * 2
    y.view(3, 1).add_(1.0)
    return y


def by_the_copy(model: Any, x: Tensor) -> Tensor:
    y = x * 2
    part = y[:, :2]
    y.add_(1.0)
    return part


def own_buffer(model: Any, x: Tensor) -> Tensor:
    model.held.add_(1.0)
    return x * model.held


REFUSED: dict[str, tuple[Callable[[Any, Tensor], Tensor], torch.dtype]] = {
    "changed through a view": (by_a_view, torch.float32),
    "changed through another shape": (by_another_shape, torch.float32),
    "a view of what is changed": (by_the_copy, torch.float32),
    "a buffer changed": (own_buffer, torch.float32),
    "rounded by example": (lambda model, x: (0.7 * x).type_as(model.held) * 1.0, torch.float16),
    "rounded like another": (lambda model, x: (0.7 * x).to(model.held) * 1.0, torch.float16),
    "computed in a wider format": (lambda model, x: x * (model.held + 0.1), torch.float64),
    "drawn at every call": (lambda model, x: x + torch.rand(3), torch.float32),
    "drawn into a tensor": (lambda model, x: x + torch.zeros(3).normal_(), torch.float32),
    "memory as it was found": (lambda model, x: x + torch.empty(3), torch.float32),
    "another shape": (lambda model, x: x.clamp(torch.zeros(1, 1, 1)), torch.float32),
}
READ: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "changed in place and read as changed": lambda model, x: F.relu(model.dense(x), inplace=True) + x,
    "a mean over no axes": lambda model, x: x.mean(dim=(), keepdim=True) * 2,
    "a constant changed in place": lambda model, x: x * model.held.clone().add_(1.0),
    "memory that is written": lambda model, x: x + torch.empty(3).fill_(2.0),
    "arguments by their names": lambda model, x: torch.softmax(input=x, dim=-1),
}


def exported(model: nn.Module, folder: Path) -> Path:
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3),)), path)
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_a_network_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    code, kind = REFUSED[name]
    model = Program(code, torch.zeros(3, dtype=kind)).eval()
    with pytest.raises(OnelayerError):
        record(model, (3,))
    with pytest.raises(OnelayerError):
        read_network(exported(model, tmp_path))


@pytest.mark.parametrize("name", READ)
def test_code_in_place_is_what_it_returns(name: str) -> None:
    model = Program(READ[name], torch.zeros(3)).eval()
    x = torch.tensor([[1.0, -2.0, 4.0]])
    with torch.no_grad():
        assert torch.allclose(record(model, (3,))(x), model(x))


def test_arguments_of_a_program_are_told_by_their_names(tmp_path: Path) -> None:
    """Torch goes by the names: x - 2 with its arguments the other way round is still x - 2, and was read as 2 - x."""
    model = Program(lambda model, x: x - model.held, torch.full((3,), 2.0))
    with zipfile.ZipFile(exported(model, tmp_path)) as old, zipfile.ZipFile(tmp_path / "turned.pt2", "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith("models/model.json"):
                document = json.loads(data)
                document["graph_module"]["graph"]["nodes"][0]["inputs"].reverse()
                data = json.dumps(document).encode()
            new.writestr(item.filename, data)
    x = torch.tensor([[1.0, -2.0, 4.0]])
    with torch.no_grad():
        assert torch.equal(torch.export.load(tmp_path / "turned.pt2").module()(x), x - 2)
        assert torch.equal(read_network(tmp_path / "net.pt2")(x), x - 2)
    with pytest.raises(OnelayerError, match="order"):
        read_network(tmp_path / "turned.pt2")


def test_recording_leaves_the_model_as_it_was() -> None:
    model = Program(own_buffer, torch.zeros(3)).eval()
    with pytest.raises(OnelayerError, match="changed in place"):
        record(model, (3,))
    assert float(model.held.sum()) == 0.0


CONSTANTS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "integers divided": lambda model, x: x + model.held / 3,
    "integers divided, then multiplied": lambda model, x: (x + (model.held / 3) * 3)[:, :1],
    "the larger of two": lambda model, x: x + torch.maximum(model.held, 9 - model.held).reshape(1, 3),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_constants_of_a_program_are_what_torch_makes_of_them(name: str, batch: int, tmp_path: Path) -> None:
    """In their own formats, the quotient of two integers in float32; and the same for every point of a batch."""
    model = Program(CONSTANTS[name], torch.tensor([16777217, 2**30 + 1, 5])).double().eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3).double(),)), path)
    x = torch.tensor([[0.5, -2.0, 4.0]]).double()
    with torch.no_grad():
        wanted = model(x)
        found = read_network(path)(x.expand(batch, 3))
    assert torch.equal(found, wanted.expand(batch, -1))


def test_what_a_rule_writes_has_the_shape_that_onnx_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "Slice", lambda write, args, settings: args[0])
    places = {"zero": whole(0), "one": whole(1), "two": whole(2)}
    nodes = [node("Slice", ["x", "zero", "two", "one"], "u"), node("ReduceSum", ["u", "one"])]
    (tmp_path / "net.onnx").write_bytes(file(nodes, places))
    with pytest.raises(OnelayerError, match="its shape is"):
        read_network(tmp_path / "net.onnx")
