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
from onelayer.network.record import record

onnx = pytest.importorskip("onnx")
FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
Weights = dict[str, np.ndarray]


def node(op: str, inputs: list[str], output: str = "y", **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs, [output], **attributes)


def file(nodes: list[Any], weights: Weights, batch: Any = "b", kind: int = FLOAT, version: int = 18) -> bytes:
    """An ONNX file with the input x (batch, 3) and the output y."""
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    x = onnx.helper.make_tensor_value_info("x", kind, [batch, 3])
    y = onnx.helper.make_tensor_value_info("y", kind, None)
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], stored)
    opset = [onnx.helper.make_opsetid("", version)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


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


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


SIZE = node("Shape", ["x"], "n", start=0, end=1)
WHOLE = {"zero": whole(0), "one": whole(1), "two": whole(2), "three": whole(3), "end": whole(2**62)}
# Right for one point and for two: nothing that is compared at some sizes would tell.
FROM_THREE: dict[str, bytes] = {
    "(B - 1) (B - 2)": file(
        [
            SIZE,
            node("Sub", ["n", "one"], "p"),
            node("Sub", ["n", "two"], "q"),
            node("Mul", ["p", "q"], "r"),
            node("Cast", ["r"], "more", to=1),
            node("Add", ["x", "more"]),
        ],
        WHOLE,
    ),
    "whether B is 3": file(
        [
            SIZE,
            node("Equal", ["n", "three"], "is"),
            node("Where", ["is", "high", "low"], "more"),
            node("Add", ["x", "more"]),
        ],
        {**WHOLE, "high": numbers(1.0), "low": numbers(0.0)},
    ),
    "a table of B": file(
        [
            SIZE,
            node("Sub", ["n", "one"], "at"),
            node("Gather", ["table", "at"], "more"),
            node("Add", ["x", "more"]),
        ],
        {**WHOLE, "table": numbers(0, 0, 1, 2, 3)},
    ),
    "the end of a table": file(
        [
            SIZE,
            node("Mul", ["n", "n"], "square"),
            node("Slice", ["table", "square", "end", "zero"], "rest"),
            node("Slice", ["rest", "zero", "one", "zero"], "more"),
            node("Add", ["x", "more"]),
        ],
        {**WHOLE, "table": numbers(0, 0, 0, 0, 0, 0, 0, 0, 0, 1)},
    ),
    "the first two points": file(
        [node("Identity", ["x"], "z"), node("Tanh", ["z"], "t"), node("Slice", ["t", "zero", "two", "zero"])], WHOLE
    ),
    "a size that is left": file(
        [
            node("Reshape", ["x", "flat"], "f"),
            node("Slice", ["f", "zero", "six", "zero"], "g"),
            node("Reshape", ["g", "rows"], "h"),
            node("Tanh", ["h"]),
        ],
        {**WHOLE, "flat": whole(-1), "six": whole(6), "rows": whole(-1, 3)},
    ),
}


@pytest.mark.parametrize("name", FROM_THREE)
def test_what_depends_on_the_number_of_points_is_refused_at_any_number(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(FROM_THREE[name])
    with pytest.raises(OnelayerError, match="mixes the points"):
        read_network(tmp_path / "net.onnx")


LEFT = {"two": whole(2), "left": whole(-1), "three": whole(3)}
# What exporters write of sizes: a batch of any size goes through as such.
ANY_SIZE: dict[str, bytes] = {
    "heads beside the points": file(
        [
            SIZE,
            node("MatMul", ["x", "w"], "h"),
            node("Concat", ["n", "two", "three"], "heads", axis=0),
            node("Reshape", ["h", "heads"], "p"),
            node("Transpose", ["p"], "q", perm=[1, 0, 2]),
            node("Mul", ["n", "two"], "rows"),
            node("Concat", ["rows", "left"], "flat", axis=0),
            node("Transpose", ["q"], "r", perm=[1, 0, 2]),
            node("Reshape", ["r", "flat"], "s"),
            node("Softmax", ["s"], "t"),
            node("Div", ["rows", "two"], "again"),
            node("Concat", ["again", "left"], "back", axis=0),
            node("Reshape", ["t", "back"]),
        ],
        {**LEFT, "w": np.arange(18, dtype=np.float32).reshape(3, 6) / 7},
    ),
    "a token for every point": file(
        [
            SIZE,
            node("Concat", ["n", "left"], "asked", axis=0),
            node("Equal", ["asked", "left"], "free"),
            node("Where", ["free", "ones", "asked"], "sizes"),
            node("Expand", ["token", "sizes"], "tokens"),
            node("Concat", ["tokens", "x"], "y", axis=1),
        ],
        {**LEFT, "ones": whole(1, 1), "token": numbers(0.5, -1.0, 2.0).reshape(1, 3)},
    ),
    "all points": file(
        [
            SIZE,
            node("Slice", ["x", "zero", "n", "zero"], "all"),
            node("Flatten", ["all"], "flat", axis=-1),
            node("ConstantOfShape", ["n"], "column"),
            node("Unsqueeze", ["column", "one"], "zeros"),
            node("Add", ["flat", "zeros"]),
        ],
        {"zero": whole(0), "one": whole(1)},
    ),
}


@pytest.mark.parametrize("name", ANY_SIZE)
def test_sizes_of_a_batch_of_any_size_are_followed(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(ANY_SIZE[name])
    network = read_network(tmp_path / "net.onnx")
    session = runtime.InferenceSession(ANY_SIZE[name], providers=["CPUExecutionProvider"])
    for count in (1, 2, 3, 5):
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        wanted = session.run(None, {"x": x.numpy()})[0]
        assert network(x).numpy().shape == wanted.shape
        assert np.allclose(network(x).numpy(), wanted, rtol=1e-5, atol=1e-6)


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
