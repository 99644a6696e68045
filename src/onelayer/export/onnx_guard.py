"""What an ONNX file does with points outside its domain."""

from __future__ import annotations

from onelayer.export.graph import Graph
from onelayer.guard import CLAMP, inward
from onelayer.source import Source


def onnx_guard(graph: Graph, source: Source, guard: str | None) -> str:
    """The name of the guarded input: clamped, or ``x`` itself beside a node ``inside`` (batch,), false for nan."""
    if guard is None:
        return "x"
    box = source.domain
    dtype = source.model.dtype
    dim = source.domain.dim
    low = graph.constant("lower", inward(box.lower, dtype, up=True))
    high = graph.constant("upper", inward(box.upper, dtype, up=False))
    if guard == CLAMP:
        raised = graph.apply("Max", "x.raised", "x", low)
        return graph.apply("Min", "x.clamped", raised, high)
    above = graph.apply("GreaterOrEqual", "x.above", "x", low)
    below = graph.apply("LessOrEqual", "x.below", "x", high)
    each = graph.apply("And", "x.inside", above, below)
    # ONNX has no minimum of truth values.
    numbers = graph.apply("Cast", "x.inside.number", each, to=graph.element)
    rows = graph.reshape("x.inside.flat", numbers, -1, dim)
    least = graph.apply("ReduceMin", "x.inside.least", rows, graph.shape(1), keepdims=0)
    graph.apply("Cast", "inside", least, to=graph.onnx.TensorProto.BOOL)
    return "x"
