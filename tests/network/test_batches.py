"""Graphs for batches of any size: each point alone whatever their number is, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.errors import OnelayerError
from onelayer.network.foreign import read_network

onnx = pytest.importorskip("onnx")
from onnx_graphs import file, node, numbers, whole  # noqa: E402  (it needs onnx)

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
