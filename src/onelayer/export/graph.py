"""Graph: ONNX nodes and constants under readable names, written one operation at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.extras import require
from onelayer.layer.int8 import integers
from onelayer.narrow import ACCUMULATORS

# The first with LayerNormalization and ReduceMean by input, known to onnxruntime since 1.14.
OPSET = 18
IR_VERSION = 9  # that goes with the opset


class Graph:
    """A growing ONNX graph whose numbers all have one dtype; every operation returns the name of its result.

    Of a narrow format that dtype is float32: weights are stored in the narrow format and cast, and ``held`` rounds
    results to it. Weights of int8 are stored as such and multiplied by their scales.
    """

    def __init__(self, dtype: torch.dtype, *, int8: bool = False) -> None:
        self.onnx = require("onnx", "onnx")
        require("onnx.helper", "onnx")
        # Narrow formats are stored and rounded to, and computed in float32.
        self.dtype = ACCUMULATORS.get(dtype, dtype)
        self.narrow = dtype if dtype in ACCUMULATORS else None
        self.int8 = int8
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    @property
    def element(self) -> int:
        """The ONNX code of the dtype."""
        kind = self.onnx.TensorProto
        return int(kind.DOUBLE if self.dtype == torch.float64 else kind.FLOAT)

    def constant(self, name: str, value: Tensor | float) -> str:
        """A named constant in the graph's dtype; the same name is stored once."""
        number = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        array = number.detach().to(self.dtype).cpu().contiguous().numpy()
        return self._store(name, array)

    def weight(self, name: str, tensor: Tensor) -> str:
        """A stored weight: in the format of the layer, or as whole numbers with a scale per last index."""
        if self.narrow is not None:
            stored = f"{name}.stored"
            flat = tensor.detach().to(self.narrow).cpu().contiguous().flatten()
            # NumPy has no bfloat16: the bits go in as they are.
            raw = flat.view(torch.uint16).numpy().tobytes()
            sizes = list(tensor.shape)
            self.constants[stored] = self.onnx.helper.make_tensor(stored, self.stored_element, sizes, raw, raw=True)
            return self.apply("Cast", name, stored, to=self.element)
        if self.int8 and tensor.ndim >= 2:
            whole, scales = integers(tensor)
            self._store(f"{name}.whole", whole.numpy())
            self._store(f"{name}.scale", scales.numpy())
            # Not DequantizeLinear: onnxruntime fuses it with a product into one that rounds the other factor to 8 bits.
            plain = self.apply("Cast", f"{name}.plain", f"{name}.whole", to=self.element)
            return self.apply("Mul", name, plain, f"{name}.scale")
        return self.constant(name, tensor)

    @property
    def stored_element(self) -> int:
        """The ONNX code of the narrow format."""
        kind = self.onnx.TensorProto
        return int(kind.FLOAT16 if self.narrow == torch.float16 else kind.BFLOAT16)

    def held(self, x: str) -> str:
        """What an operation returns: rounded once to a narrow format."""
        if self.narrow is None:
            return x
        rounded = self.apply("Cast", f"{x}.rounded", x, to=self.stored_element)
        return self.apply("Cast", f"{x}.held", rounded, to=self.element)

    def shape(self, *sizes: int) -> str:
        """A constant list of whole numbers: sizes, axes or indices."""
        name = "sizes_" + "_".join(map(str, sizes))
        return self._store(name, np.array(sizes, dtype=np.int64))

    def apply(self, operation: str, name: str, *inputs: str, **attributes: Any) -> str:
        """One node with one output called ``name``."""
        node = self.onnx.helper.make_node(operation, list(inputs), [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def affine(self, name: str, x: str, weight: Tensor, bias: Tensor) -> str:
        """x W + b; a zero bias is left out."""
        matrix = self.weight(f"{name}.W", weight)
        if not bias.any():
            return self.held(self.apply("MatMul", name, x, matrix))
        product = self.apply("MatMul", f"{name}.product", x, matrix)
        offset = self.weight(f"{name}.b", bias)
        return self.held(self.apply("Add", name, product, offset))

    def reshape(self, name: str, x: str, *sizes: int) -> str:
        """The same numbers in another shape."""
        return self.apply("Reshape", name, x, self.shape(*sizes))

    def smallest_of_top(self, name: str, x: str, count: int) -> str:
        """The ``count``-th largest entry along the last dimension, which is kept with size one."""
        top = [f"{name}.values", f"{name}.places"]
        asked = [x, self.shape(count)]
        node = self.onnx.helper.make_node("TopK", asked, top, name=f"{name}.top", axis=-1)
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
        described = helper.make_tensor_value_info
        x = described("x", self.element, ["batch", *inputs])
        y = described("y", self.element, ["batch", *outputs])
        others = [described(name, kinds[kind], ["batch"]) for name, kind in more]
        constants = list(self.constants.values())
        graph = helper.make_graph(self.nodes, "onelayer", [x], [y, *others], constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        model.producer_name = "onelayer"
        helper.set_model_props(model, facts)
        # What is written is valid, or nothing is.
        self.onnx.checker.check_model(model, full_check=True)
        return model

    def _store(self, name: str, array: np.ndarray[Any, Any]) -> str:
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name
