"""Graph: ONNX nodes and constants under readable names, written one operation at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.extras import require

OPSET = 18  # the first with LayerNormalization and ReduceMean by input, known to onnxruntime since 1.14
IR_VERSION = 9  # that goes with the opset


class Graph:
    """A growing ONNX graph whose numbers all have one dtype; every operation returns the name of its result."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.onnx = require("onnx", "onnx")
        require("onnx.helper", "onnx")
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    @property
    def element(self) -> int:
        """The ONNX code of the dtype."""
        kind = self.onnx.TensorProto
        return int(kind.DOUBLE if self.dtype == torch.float64 else kind.FLOAT)

    def constant(self, name: str, value: Tensor | float) -> str:
        """A named constant in the graph's dtype; the same name is stored once."""
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        array = tensor.detach().to(self.dtype).cpu().contiguous().numpy()
        return self._store(name, array)

    def shape(self, *sizes: int) -> str:
        """A constant list of whole numbers: sizes, axes or indices."""
        return self._store("sizes_" + "_".join(map(str, sizes)), np.array(sizes, dtype=np.int64))

    def apply(self, operation: str, name: str, *inputs: str, **attributes: Any) -> str:
        """One node with one output called ``name``."""
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [name], name=name, **attributes))
        return name

    def affine(self, name: str, x: str, weight: Tensor, bias: Tensor) -> str:
        """x W + b; a zero bias is left out."""
        product = self.apply(
            "MatMul", name if not bias.any() else f"{name}.product", x, self.constant(f"{name}.W", weight)
        )
        return self.apply("Add", name, product, self.constant(f"{name}.b", bias)) if bias.any() else product

    def reshape(self, name: str, x: str, *sizes: int) -> str:
        """The same numbers in another shape."""
        return self.apply("Reshape", name, x, self.shape(*sizes))

    def smallest_of_top(self, name: str, x: str, count: int) -> str:
        """The ``count``-th largest entry along the last dimension, which is kept with size one."""
        top = [f"{name}.values", f"{name}.places"]
        node = self.onnx.helper.make_node("TopK", [x, self.shape(count)], top, name=f"{name}.top", axis=-1)
        self.nodes.append(node)
        return self.apply("ReduceMin", name, top[0], self.shape(-1), keepdims=1)

    def model(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        facts: dict[str, str],
        more: Sequence[tuple[str, str]] = (),
    ) -> Any:
        """The checked ONNX model from input ``x`` (batch, *inputs) to output ``y`` (batch, *outputs).

        ``more`` names further outputs (batch,) with their types.
        """
        helper = self.onnx.helper
        kinds = {"bool": self.onnx.TensorProto.BOOL}
        graph = helper.make_graph(
            self.nodes,
            "onelayer",
            [helper.make_tensor_value_info("x", self.element, ["batch", *inputs])],
            [
                helper.make_tensor_value_info("y", self.element, ["batch", *outputs]),
                *(helper.make_tensor_value_info(name, kinds[kind], ["batch"]) for name, kind in more),
            ],
            list(self.constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        model.producer_name = "onelayer"
        helper.set_model_props(model, facts)
        self.onnx.checker.check_model(model, full_check=True)
        return model

    def _store(self, name: str, array: np.ndarray[Any, Any]) -> str:
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name
