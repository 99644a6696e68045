"""Small ONNX files for tests: one input x, one output y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
Weights = dict[str, np.ndarray]


def node(op: str, inputs: list[str], output: str = "y", **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs, [output], **attributes)


def file(
    nodes: list[Any],
    weights: Weights,
    batch: Any = "b",
    kind: int = FLOAT,
    version: int = 18,
    more: Sequence[str] = (),
) -> bytes:
    """An ONNX file with the input x (batch, 3) and the output y; ``more`` inputs are numbers."""
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    x = onnx.helper.make_tensor_value_info("x", kind, [batch, 3])
    y = onnx.helper.make_tensor_value_info("y", kind, None)
    others = [onnx.helper.make_tensor_value_info(name, kind, [1]) for name in more]
    graph = onnx.helper.make_graph(nodes, "g", [x, *others], [y], stored)
    opset = [onnx.helper.make_opsetid("", version)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)
