"""One input per variable of an ONNX file, by its name in the domain."""

from __future__ import annotations

from typing import Any

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.extras import require

# Begins the names of the layer's own tensors where a variable has theirs.
OWN = "layer."


def with_named_inputs(model: Any, box: Box) -> Any:
    """The model with an input (batch,) for each variable in the place of ``x``, its unit and range as documentation.

    A tensor of the layer that a variable is called like gets another name: the output ``y`` beside a variable y is
    ``layer.y``.
    """
    if not box.names:
        raise OnelayerError("named inputs need a domain with names, as in m0=1:5, v=1:2; or leave out named")
    onnx = require("onnx", "onnx")
    graph = model.graph
    element = model.graph.input[0].type.tensor_type.elem_type
    _rename(graph, {*box.variables, "x"})
    del graph.input[:]
    columns = []
    nodes = []
    last = f"{OWN}last"
    sides = zip(box.variables, box.labels, box.lower.tolist(), box.upper.tolist(), strict=True)
    for name, label, low, high in sides:
        given = onnx.helper.make_tensor_value_info(name, element, ["batch"])
        given.doc_string = f"{label}, from {low!r} to {high!r}"
        graph.input.append(given)
        column = f"{OWN}column.{name}"
        nodes.append(onnx.helper.make_node("Unsqueeze", [name, last], [column], name=column))
        columns.append(column)
    joined = f"{OWN}x"
    nodes.append(onnx.helper.make_node("Concat", columns, [joined], name=joined, axis=1))
    graph.initializer.append(onnx.helper.make_tensor(last, onnx.TensorProto.INT64, [1], [1]))
    # In front: a node reads what stands before it.
    for at, node in enumerate(nodes):
        graph.node.insert(at, node)
    onnx.checker.check_model(model, full_check=True)
    return model


def _rename(graph: Any, taken: set[str]) -> None:
    """Give the layer's own tensors other names than those that are taken."""

    def own(name: str) -> str:
        if name in taken:
            return OWN + name
        return name

    for node in graph.node:
        node.input[:] = [own(name) for name in node.input]
        node.output[:] = [own(name) for name in node.output]
    for tensor in (*graph.initializer, *graph.output):
        tensor.name = own(tensor.name)
