"""ONNX: our own forward pass as a graph of standard operations, grids kept factorised, batch size free."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from onelayer.disk import replace_file
from onelayer.export.graph import Graph
from onelayer.export.onnx_guard import onnx_guard
from onelayer.export.onnx_inputs import with_named_inputs
from onelayer.guard import RAISE, WARN, check_guard
from onelayer.layer.config import Config
from onelayer.layer.file import weights_sha256
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer
from onelayer.result import Approximation
from onelayer.source import Exportable, Source, source_of


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
        facts |= {"certificate": str(a.certificate), "domain": repr(a.box), "function": a.certificate.named_function}
        facts |= {"inputs": ", ".join(a.box.names)} if a.box.names else {}
    if guard is not None:
        facts["guard"] = guard
    graph = _layer(source, guard)
    more = [("inside", "bool")] if guard == WARN else []
    model = graph.model(config.input_shape, config.output_shape, facts, more)
    if source.box is not None and source.box.names:
        model.graph.input[0].doc_string = f"columns: {', '.join(source.box.names)}"
    return with_named_inputs(model, source.domain) if named else model


def _layer(source: Source, guard: str | None) -> Graph:
    """Node by node what OneLayerTransformer.forward does."""
    model = source.model
    config = source.model.config
    graph = Graph(model.dtype, int8=model.int8)
    own = dict(model.state_dict())
    x = graph.held(onnx_guard(graph, source, guard))
    e = _embed(graph, config, own, x)
    u = _norm(graph, own, "1", e) if config.norm == "pre" else e
    heads = [_head(graph, model, h, u) for h in range(len(config.heads))]
    z = heads[0] if len(heads) == 1 else graph.apply("Concat", "heads", *heads, axis=-1)
    r = graph.affine("attention", z, own["W_O"], own["b_O"])
    r = graph.held(graph.apply("Add", "residual", e, r)) if config.residual else r
    r = _norm(graph, own, "1", r) if config.norm == "post" else r
    y = _feed_forward(graph, config, own, r) if config.hidden else r
    y = _pooled(graph, config, y)
    read = graph.affine("read", y, own["W_R"], own["b_R"])
    if guard == RAISE:
        read = graph.reshape("read.shaped", read, -1, *config.output_shape)
        inside = graph.reshape("inside.shaped", "inside", -1, *(1 for _ in config.output_shape))
        graph.apply("Where", "y", inside, read, graph.constant("nan", math.nan))
    else:
        graph.reshape("y", read, -1, *config.output_shape)
    return graph


def _embed(graph: Graph, config: Config, own: dict[str, Tensor], x: str) -> str:
    x = graph.reshape("tokens", x, -1, config.rows, config.token_width)
    if config.embedding == "piecewise":
        x = graph.reshape("numbers", x, -1, config.length, config.token_width, 1)
        x = graph.apply("Sub", "past_start", x, graph.weight("ramp_start", own["ramp_start"]))
        x = graph.apply("Mul", "ramp", x, graph.weight("ramp_slope", own["ramp_slope"]))
        x = graph.apply("Clip", "ramp.clipped", x, graph.constant("zero", 0.0), graph.constant("one", 1.0))
        x = graph.held(x)
        x = graph.reshape("features", x, -1, config.length, config.features)
    e = graph.affine("embedding", x, own["W_E"], own["b_E"])
    if config.pieces:
        e = graph.reshape("embedding.tokens", e, -1, config.length, config.d_model)
    if config.positions != "none":
        e = graph.held(graph.apply("Add", "embedding.placed", e, graph.weight("position", own["position"])))
    return e


def _feed_forward(graph: Graph, config: Config, own: dict[str, Tensor], r: str) -> str:
    inner = _norm(graph, own, "2", r) if config.norm == "pre" else r
    hidden = graph.apply("Relu", "hidden.active", graph.affine("hidden", inner, own["W_1"], own["b_1"]))
    y = graph.affine("ffn", hidden, own["W_2"], own["b_2"])
    y = graph.held(graph.apply("Add", "ffn.residual", r, y)) if config.residual else y
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
    centred = graph.apply("Sub", f"{name}.centred", x, _mean(graph, f"{name}.mean", x))
    variance = _mean(graph, f"{name}.variance", graph.apply("Mul", f"{name}.squared", centred, centred))
    raised = graph.apply("Add", f"{name}.raised", variance, graph.constant("norm_eps", NORM_EPS))
    unit = graph.apply("Div", f"{name}.unit", centred, graph.apply("Sqrt", f"{name}.deviation", raised))
    gained = graph.apply("Mul", f"{name}.gained", unit, graph.weight(f"{name}.gain", own[f"gain_{which}"]))
    return graph.held(graph.apply("Add", name, gained, graph.weight(f"{name}.shift", own[f"shift_{which}"])))


def _mean(graph: Graph, name: str, x: str) -> str:
    return graph.apply("ReduceMean", name, x, graph.shape(-1), keepdims=1)


def _head(graph: Graph, model: OneLayerTransformer, h: int, u: str) -> str:
    """Z_h of eq (8), (batch, N, d_v)."""
    config = model.config
    shape = model.config.heads[h]
    name = f"head{h}"
    k, v = (sum(getattr(head, width) for head in config.heads[:h]) for width in ("d_k", "d_v"))
    own = dict(model.state_dict())
    scale = 1 / math.sqrt(shape.d_k)
    columns = slice(k, k + shape.d_k)
    query = _query(graph, name, u, (own["W_Q"][:, columns], own["b_Q"][columns]), scale)
    memory = model.memory_of(h)
    if isinstance(memory, GridMemory) and config.attention == "softmax" and not config.token_attention:
        return graph.held(_grid(graph, config, name, query, memory))
    blocks, values = [], []
    if config.token_attention:
        key = graph.affine(f"{name}.key", u, own["W_K"][:, columns], own["b_K"][columns])
        blocks.append(_scores(graph, config, f"{name}.tokens", query, key))
        rows = slice(v, v + shape.d_v)
        values.append(graph.affine(f"{name}.value", u, own["W_V"][:, rows], own["b_V"][rows]))
    if memory is not None:
        stored = memory.plain_tokens()
        key = graph.weight(f"{name}.memory.keys", stored[0][None])
        blocks.append(_scores(graph, config, f"{name}.memory", query, key))
        values.append(graph.weight(f"{name}.memory.values", stored[1][None]))
    scores = blocks[0] if len(blocks) == 1 else graph.apply("Concat", f"{name}.scores", *blocks, axis=-1)
    tokens = shape.token_count + (config.length if config.token_attention else 0)
    weights = _weights(graph, config, name, scores, tokens)
    return graph.held(_average(graph, config, name, weights, values, shape.token_count))


def _query(graph: Graph, name: str, u: str, own: tuple[Tensor, Tensor], scale: float) -> str:
    """The scaled query; the scale joins the weights unless the query is rounded before it is scaled."""
    weight, bias = own
    if graph.narrow is None:
        return graph.affine(f"{name}.query", u, weight * scale, bias * scale)
    plain = graph.affine(f"{name}.query", u, weight, bias)
    return graph.apply("Mul", f"{name}.query.scaled", plain, graph.constant(f"{name}.scale", scale))


def _grid(graph: Graph, config: Config, name: str, query: str, memory: GridMemory) -> str:
    """One softmax per axis, contracted one axis at a time."""
    rest, n = "", config.length
    # Numbers per token of the axes that are contracted.
    left = memory.values.numel()
    for a, axis in enumerate(memory.axes):
        turned = graph.apply("Transpose", f"{name}.axis{a}.keys.T", graph.weight(f"{name}.axis{a}.keys", axis))
        logits = graph.apply("MatMul", f"{name}.axis{a}.logits", query, turned)
        weights = graph.apply("Softmax", f"{name}.axis{a}.weights", logits, axis=-1)
        left //= len(axis)
        if a == 0:
            values = graph.weight(f"{name}.values", memory.values)
            rows = graph.reshape(f"{name}.values.rows", values, len(axis), left)
            rest = graph.apply("MatMul", f"{name}.axis0", weights, rows)
            continue
        rest = graph.reshape(f"{name}.axis{a}.rest", rest, -1, n, len(axis), left)
        weights = graph.reshape(f"{name}.axis{a}.row", weights, -1, n, 1, len(axis))
        product = graph.apply("MatMul", f"{name}.axis{a}.product", weights, rest)
        rest = graph.reshape(f"{name}.axis{a}", product, -1, n, left)
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
    low = graph.apply("Exp", f"{name}.exp", graph.apply("Min", f"{name}.min", u, zero))
    return graph.apply("Add", f"{name}.elu", graph.apply("Max", f"{name}.max", u, zero), low)


def _weights(graph: Graph, config: Config, name: str, scores: str, tokens: int) -> str:
    """Scores (batch, N, tokens) to weights that sum to one, for each kind of attention."""
    if config.attention == "softmax":
        return graph.apply("Softmax", f"{name}.weights", scores, axis=-1)
    if config.attention == "topk":
        threshold = graph.smallest_of_top(f"{name}.best", scores, min(config.top_k, tokens))
        small = graph.apply("Less", f"{name}.small", scores, threshold)
        masked = graph.apply("Where", f"{name}.kept", small, graph.constant("minus_inf", -math.inf), scores)
        return graph.apply("Softmax", f"{name}.weights", masked, axis=-1)
    if config.attention == "hardmax":
        best = graph.apply("ReduceMax", f"{name}.best", scores, graph.shape(-1), keepdims=1)
        # They share the weight equally.
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
        scaled = graph.apply("Mul", f"{name}.power{p}", logits, graph.constant(f"inverse_{p}", 1 / p))
        total = graph.apply("Add", f"{name}.horner{p}", graph.apply("Mul", f"{name}.term{p}", scaled, total), one)
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
