"""ONNX: our own forward pass as a graph of standard operations, grids kept factorised, batch size free."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from onelayer.disk import replace_file
from onelayer.door import door
from onelayer.export.graph import Graph
from onelayer.export.onnx_guard import onnx_guard
from onelayer.export.onnx_inputs import with_named_inputs
from onelayer.ground import pinned
from onelayer.guard import RAISE, WARN, check_guard
from onelayer.layer.config import Config
from onelayer.layer.file import weights_sha256
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer
from onelayer.result import Approximation
from onelayer.source import Exportable, Source, source_of

# Whoever runs the file chooses how: a runtime has an exponential and an order of sums of its own.
COVERS = (
    "onelayer's own forward pass of these weights; a runtime rounds at places of its own, with elementary functions of "
    "its own, and that rounding is not in the bound"
)


@door
@pinned()
def to_onnx(a: Exportable, path: str | os.PathLike[str], *, guard: str | None = None, named: bool = False) -> Path:
    """Write ``a`` as an ONNX file in its own dtype; returns the path. Of a narrow format x and y are float32 numbers.

    Input ``x`` is (batch, *input_shape), output ``y`` (batch, *output_shape). The file passes the ONNX checker and
    holds domain, certificate and the hash of our weights as metadata. It appears complete or not at all.

    ``guard`` decides about points outside the domain: "clamp" moves them to the nearest point inside, "raise" makes
    their values nan (ONNX has no errors), "warn" adds a second output ``inside``, one boolean per point.

    ``named`` makes one input (batch,) per variable of a domain with names in the place of ``x``.
    """
    model = onnx_model(a, guard=guard, named=named)
    target = Path(path)
    replace_file(target, model.SerializeToString())
    return target


def onnx_model(a: Exportable, *, guard: str | None = None, named: bool = False) -> Any:
    """The checked onnx.ModelProto of ``a``."""
    source = source_of(a)
    check_guard(guard)
    config = source.model.config
    facts = {"weights_sha256": weights_sha256(source.model)}
    if isinstance(a, Approximation):
        certificate = a.certificate
        facts |= {"certificate": str(certificate), "function": certificate.named_function, "covers": COVERS}
        facts["domain"] = ", ".join(map(" in ".join, zip(a.box.labels, a.box.sides, strict=True)))
        facts |= {"inputs": ", ".join(a.box.names)} if a.box.names else {}
    if guard is not None:
        facts["guard"] = guard
    graph = _layer(source, guard)
    more = [("inside", "bool")] if guard == WARN else []
    model = graph.model(config.input_shape, config.output_shape, facts, more)
    if source.box is not None and source.box.names:
        columns = ", ".join(source.box.names)
        model.graph.input[0].doc_string = f"columns: {columns}"
    return with_named_inputs(model, source.domain) if named else model


def _layer(source: Source, guard: str | None) -> Graph:
    """Node by node what OneLayerTransformer.forward does."""
    model = source.model
    config = source.model.config
    graph = Graph(model.dtype, int8=model.int8)
    own = dict(model.state_dict())
    # The layer rounds its argument to a narrow format before anything else.
    x = graph.held(onnx_guard(graph, source, guard))
    e = _embed(graph, config, own, x)
    u = _norm(graph, own, "1", e) if config.norm == "pre" else e
    heads = [_head(graph, model, h, u) for h in range(len(config.heads))]
    z = _joined(graph, "heads", heads)
    r = graph.affine("attention", z, own["W_O"], own["b_O"])
    if config.residual:
        r = graph.held(graph.apply("Add", "residual", e, r))
    r = _norm(graph, own, "1", r) if config.norm == "post" else r
    y = _feed_forward(graph, config, own, r) if config.hidden else r
    y = _pooled(graph, config, y)
    read = graph.affine("read", y, own["W_R"], own["b_R"])
    # ONNX has no errors: nan says that the point was outside.
    if guard == RAISE:
        read = graph.reshape("read.shaped", read, -1, *config.output_shape)
        inside = graph.reshape("inside.shaped", "inside", -1, *(1 for _ in config.output_shape))
        graph.apply("Where", "y", inside, read, graph.constant("nan", math.nan))
    else:
        graph.reshape("y", read, -1, *config.output_shape)
    return graph


def _joined(graph: Graph, name: str, parts: list[str]) -> str:
    """Parts side by side along the last axis; a single one is itself."""
    if len(parts) == 1:
        return parts[0]
    return graph.apply("Concat", name, *parts, axis=-1)


def _embed(graph: Graph, config: Config, own: dict[str, Tensor], x: str) -> str:
    x = graph.reshape("tokens", x, -1, config.rows, config.token_width)
    if config.embedding == "piecewise":
        x = graph.reshape("numbers", x, -1, config.length, config.token_width, 1)
        x = graph.apply("Sub", "past_start", x, graph.weight("ramp_start", own["ramp_start"]))
        x = graph.apply("Mul", "ramp", x, graph.weight("ramp_slope", own["ramp_slope"]))
        zero = graph.constant("zero", 0.0)
        one = graph.constant("one", 1.0)
        x = graph.apply("Clip", "ramp.clipped", x, zero, one)
        x = graph.held(x)
        x = graph.reshape("features", x, -1, config.length, config.features)
    e = graph.affine("embedding", x, own["W_E"], own["b_E"])
    if config.pieces:
        # One affine map has made all tokens in one row.
        e = graph.reshape("embedding.tokens", e, -1, config.length, config.d_model)
    if config.positions != "none":
        position = graph.weight("position", own["position"])
        e = graph.held(graph.apply("Add", "embedding.placed", e, position))
    return e


def _feed_forward(graph: Graph, config: Config, own: dict[str, Tensor], r: str) -> str:
    inner = _norm(graph, own, "2", r) if config.norm == "pre" else r
    seen = graph.affine("hidden", inner, own["W_1"], own["b_1"])
    hidden = graph.apply("Relu", "hidden.active", seen)
    y = graph.affine("ffn", hidden, own["W_2"], own["b_2"])
    if config.residual:
        y = graph.held(graph.apply("Add", "ffn.residual", r, y))
    if config.norm == "post":
        return _norm(graph, own, "2", y)
    return y


def _pooled(graph: Graph, config: Config, y: str) -> str:
    """The rows that are read: all, their mean, or one."""
    if config.readout == "each":
        return y
    if config.readout == "mean":
        return graph.held(graph.apply("ReduceMean", "pooled", y, graph.shape(1), keepdims=0))
    last = graph.shape(0 if config.readout == "first" else config.length - 1)
    return graph.apply("Gather", "pooled", y, last, axis=1)


def _norm(graph: Graph, own: dict[str, Tensor], which: str, x: str) -> str:
    """LayerNorm written out: the attribute epsilon of the ready-made operation is a float32, ours may be a float64."""
    name = f"norm_{which}"
    mean = _mean(graph, f"{name}.mean", x)
    centred = graph.apply("Sub", f"{name}.centred", x, mean)
    squared = graph.apply("Mul", f"{name}.squared", centred, centred)
    variance = _mean(graph, f"{name}.variance", squared)
    raised = graph.apply("Add", f"{name}.raised", variance, graph.constant("norm_eps", NORM_EPS))
    deviation = graph.apply("Sqrt", f"{name}.deviation", raised)
    unit = graph.apply("Div", f"{name}.unit", centred, deviation)
    gain = graph.weight(f"{name}.gain", own[f"gain_{which}"])
    gained = graph.apply("Mul", f"{name}.gained", unit, gain)
    shift = graph.weight(f"{name}.shift", own[f"shift_{which}"])
    return graph.held(graph.apply("Add", name, gained, shift))


def _mean(graph: Graph, name: str, x: str) -> str:
    return graph.apply("ReduceMean", name, x, graph.shape(-1), keepdims=1)


def _head(graph: Graph, model: OneLayerTransformer, h: int, u: str) -> str:
    """Z_h of eq (8), (batch, N, d_v)."""
    config = model.config
    shape = model.config.heads[h]
    name = f"head{h}"
    k = sum(head.d_k for head in config.heads[:h])
    v = sum(head.d_v for head in config.heads[:h])
    own = dict(model.state_dict())
    scale = 1 / math.sqrt(shape.d_k)
    columns = slice(k, k + shape.d_k)
    projection = (own["W_Q"][:, columns], own["b_Q"][columns])
    query = _query(graph, name, u, projection, scale)
    memory = model.memory_of(h)
    # A softmax over a grid is a product of softmaxes over its axes; other kinds of attention do not factorise.
    if isinstance(memory, GridMemory) and config.attention == "softmax" and not config.token_attention:
        return graph.held(_grid(graph, config, name, query, memory))
    blocks, values = [], []
    if config.token_attention:
        key = graph.affine(f"{name}.key", u, own["W_K"][:, columns], own["b_K"][columns])
        blocks.append(_scores(graph, config, f"{name}.tokens", query, key))
        rows = slice(v, v + shape.d_v)
        value = graph.affine(f"{name}.value", u, own["W_V"][:, rows], own["b_V"][rows])
        values.append(value)
    if memory is not None:
        stored = memory.plain_tokens()
        key = graph.weight(f"{name}.memory.keys", stored[0][None])
        blocks.append(_scores(graph, config, f"{name}.memory", query, key))
        values.append(graph.weight(f"{name}.memory.values", stored[1][None]))
    scores = _joined(graph, f"{name}.scores", blocks)
    tokens = shape.token_count + (config.length if config.token_attention else 0)
    weights = _weights(graph, config, name, scores, tokens)
    return graph.held(_average(graph, config, name, weights, values, shape.token_count))


def _query(graph: Graph, name: str, u: str, own: tuple[Tensor, Tensor], scale: float) -> str:
    """The scaled query; the scale joins the weights unless the query is rounded before it is scaled."""
    weight, bias = own
    if graph.narrow is None:
        return graph.affine(f"{name}.query", u, weight * scale, bias * scale)
    plain = graph.affine(f"{name}.query", u, weight, bias)
    factor = graph.constant(f"{name}.scale", scale)
    return graph.apply("Mul", f"{name}.query.scaled", plain, factor)


def _grid(graph: Graph, config: Config, name: str, query: str, memory: GridMemory) -> str:
    """One softmax per axis, contracted one axis at a time."""
    rest = ""
    n = config.length
    left = memory.values.numel()  # numbers of the table that are not contracted yet, per token
    for a, axis in enumerate(memory.axes):
        here = f"{name}.axis{a}"
        keys = graph.weight(f"{here}.keys", axis)
        turned = graph.apply("Transpose", f"{here}.keys.T", keys)
        logits = graph.apply("MatMul", f"{here}.logits", query, turned)
        weights = graph.apply("Softmax", f"{here}.weights", logits, axis=-1)
        left //= len(axis)
        if a == 0:
            values = graph.weight(f"{name}.values", memory.values)
            rows = graph.reshape(f"{name}.values.rows", values, len(axis), left)
            rest = graph.apply("MatMul", f"{name}.axis0", weights, rows)
            continue
        rest = graph.reshape(f"{here}.rest", rest, -1, n, len(axis), left)
        weights = graph.reshape(f"{here}.row", weights, -1, n, 1, len(axis))
        product = graph.apply("MatMul", f"{here}.product", weights, rest)
        rest = graph.reshape(here, product, -1, n, left)
    return rest


def _scores(graph: Graph, config: Config, name: str, query: str, key: str) -> str:
    """q . k per token (batch, N, S), or phi(q) . phi(k) with phi = elu + 1."""
    if config.attention == "linear" and config.feature == "elu":
        query = _elu(graph, f"{name}.query", query)
        key = _elu(graph, f"{name}.key", key)
    turned = graph.apply("Transpose", f"{name}.keys.T", key, perm=[0, 2, 1])
    return graph.apply("MatMul", f"{name}.scores", query, turned)


def _elu(graph: Graph, name: str, u: str) -> str:
    """elu(u) + 1 = max(u, 0) + exp(min(u, 0))."""
    zero = graph.constant("zero", 0.0)
    smaller = graph.apply("Min", f"{name}.min", u, zero)
    low = graph.apply("Exp", f"{name}.exp", smaller)
    larger = graph.apply("Max", f"{name}.max", u, zero)
    return graph.apply("Add", f"{name}.elu", larger, low)


def _weights(graph: Graph, config: Config, name: str, scores: str, tokens: int) -> str:
    """Scores (batch, N, tokens) to weights that sum to one, for each kind of attention."""
    if config.attention == "softmax":
        return graph.apply("Softmax", f"{name}.weights", scores, axis=-1)
    if config.attention == "topk":
        threshold = graph.smallest_of_top(f"{name}.best", scores, min(config.top_k, tokens))
        small = graph.apply("Less", f"{name}.small", scores, threshold)
        minus_infinity = graph.constant("minus_inf", -math.inf)
        # What is not among the best weighs exp(-inf) = 0.
        masked = graph.apply("Where", f"{name}.kept", small, minus_infinity, scores)
        return graph.apply("Softmax", f"{name}.weights", masked, axis=-1)
    if config.attention == "hardmax":
        best = graph.apply("ReduceMax", f"{name}.best", scores, graph.shape(-1), keepdims=1)
        # Tokens with the same best score share the weight equally.
        ties = graph.apply("Equal", f"{name}.ties", scores, best)
        scores = graph.apply("Cast", f"{name}.kernel", ties, to=graph.element)
    elif config.feature == "taylor":
        scores = _exponential_sum(graph, name, scores, config.order)
    total = graph.apply("ReduceSum", f"{name}.mass", scores, graph.shape(-1), keepdims=1)
    return graph.apply("Div", f"{name}.weights", scores, total)


def _exponential_sum(graph: Graph, name: str, logits: str, order: int) -> str:
    """sum_{p <= order} l^p / p! by Horner's rule: the kernel of the Taylor features, evaluated on the logits."""
    total = one = graph.constant("one", 1.0)
    for p in range(order, 0, -1):
        inverse = graph.constant(f"inverse_{p}", 1 / p)
        scaled = graph.apply("Mul", f"{name}.power{p}", logits, inverse)
        term = graph.apply("Mul", f"{name}.term{p}", scaled, total)
        total = graph.apply("Add", f"{name}.horner{p}", term, one)
    return total


def _average(graph: Graph, config: Config, name: str, weights: str, values: list[str], memory_tokens: int) -> str:
    """sum_j alpha_ij v_j, tokens of the sequence first, then the memory."""
    if len(values) == 1:
        return graph.apply("MatMul", f"{name}.out", weights, values[0])
    n = config.length
    slices = {"own": (0, n), "memory": (n, n + memory_tokens)}
    parts = []
    for (which, (start, end)), value in zip(slices.items(), values, strict=True):
        ends = graph.shape(start), graph.shape(end), graph.shape(-1)
        share = graph.apply("Slice", f"{name}.weights.{which}", weights, *ends)
        parts.append(graph.apply("MatMul", f"{name}.from.{which}", share, value))
    return graph.apply("Add", f"{name}.out", *parts)
