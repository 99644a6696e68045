"""Values of a graph in ball arithmetic, operator by operator: what a file means, by a reader of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flint import arb
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from liar.expressions import Undefined

Array = Any  # object arrays of balls, or arrays of numbers


def each(function: Callable[[arb], arb], x: Array) -> Array:
    return np.asarray(np.frompyfunc(function, 1, 1)(x), dtype=object)


def balls(x: Array) -> Array:
    return x if x.dtype == object else each(arb, x.astype(np.float64).astype(object))


def _root(x: arb) -> arb:
    if x < 0:
        raise Undefined("Sqrt")
    return x.sqrt()


def _quotient(a: arb, b: arb) -> arb:
    if b == 0:
        raise Undefined("Div")
    return a / b


def _softmax(x: Array, axis: int) -> Array:
    masses = each(lambda u: u.exp(), x)
    return masses / masses.sum(axis=axis, keepdims=True)


def _norm(x: Array, gain: Array, offset: Array | None, epsilon: float) -> Array:
    width = arb(x.shape[-1])
    centred = x - x.sum(-1, keepdims=True) / width
    spread = each(lambda u: (u + arb(epsilon)).sqrt(), (centred * centred).sum(-1, keepdims=True) / width)
    found = centred / spread * balls(gain)
    return found if offset is None else found + balls(offset)


def _reduced(x: Array, axes: Any, keep: bool, mean: bool) -> Array:
    chosen = tuple(int(a) for a in np.asarray(axes).reshape(-1)) if axes is not None and np.size(axes) else None
    chosen = tuple(range(x.ndim)) if chosen is None else chosen
    total = x.sum(axis=chosen, keepdims=keep)
    count = int(np.prod([x.shape[a] for a in chosen]))
    return np.asarray(total / arb(count) if mean else total, dtype=object)


def _clip(x: Array, low: Any, high: Any) -> Array:
    found = x if low is None else each(lambda u: u.max(arb(float(low))), x)
    return found if high is None else each(lambda u: u.min(arb(float(high))), found)


UNARY: dict[str, Callable[[arb], arb]] = {
    "Relu": lambda u: u.max(arb(0)),
    "Tanh": lambda u: u.tanh(),
    "Sigmoid": lambda u: 1 / (1 + (-u).exp()),
    "Sin": lambda u: u.sin(),
    "Cos": lambda u: u.cos(),
    "Exp": lambda u: u.exp(),
    "Atan": lambda u: u.atan(),
    "Erf": lambda u: u.erf(),
    "Abs": abs,
    "Neg": lambda u: -u,
    "Softplus": lambda u: (1 + u.exp()).log(),
    "Sqrt": _root,
}


def evaluated(model: Any, x: Array) -> Array:
    """The output of the graph for a batch of balls."""
    known: dict[str, Any] = {"": None, "x": x}
    known |= {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    for node in model.graph.node:
        args = [known[name] for name in node.input]
        given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        if any(isinstance(arg, np.ndarray) and arg.dtype == object for arg in args):
            found = _node(node.op_type, args, given, len(node.output))
        else:
            found = _of_constants(node, args, model)
        known |= dict(zip(node.output, found, strict=True))
    return known["y"]


def _of_constants(node: Any, args: list[Any], model: Any) -> list[Any]:
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in zip(node.input, args, strict=True) if a is not None]  # fmt: skip
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "part", inputs, outputs)
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    fed = {name: arg for name, arg in zip(node.input, args, strict=True) if arg is not None}
    return list(ReferenceEvaluator(part).run(None, fed))


def _node(op: str, args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    x = args[0]
    if op in UNARY:
        return [each(UNARY[op], x)]
    rest = [balls(arg) if isinstance(arg, np.ndarray) and arg.dtype.kind in "fO" else arg for arg in args]
    return _OTHERS[op](rest, given, outputs)


def _gemm(args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    a, b = args[0], args[1].T if given.get("transB") else args[1]
    found = a @ b
    return [found if len(args) < 3 else found + args[2]]


def _parts(args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    axis = given.get("axis", 0)
    return np.split(args[0], np.cumsum(args[1])[:-1], axis)


def _slice(args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    index = [slice(None)] * args[0].ndim
    for start, end, axis, step in zip(*(np.asarray(arg).tolist() for arg in args[1:5]), strict=True):
        size = args[0].shape[axis]
        index[axis] = slice(start, None if step < 0 and end < -size else end, step)
    return [args[0][tuple(index)]]


def _reshape(args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    wanted = [args[0].shape[at] if size == 0 else int(size) for at, size in enumerate(args[1].tolist())]
    return [args[0].reshape(wanted)]


def _power(args: list[Any], given: dict[str, Any], outputs: int) -> list[Any]:
    exponent = float(args[1].reshape(-1)[0].mid())
    return [each(lambda u: u * u if exponent == 2 else u * u * u, args[0])]


_OTHERS: dict[str, Callable[[list[Any], dict[str, Any], int], list[Any]]] = {
    "Add": lambda a, g, n: [a[0] + a[1]],
    "Sub": lambda a, g, n: [a[0] - a[1]],
    "Mul": lambda a, g, n: [a[0] * a[1]],
    "Div": lambda a, g, n: [np.frompyfunc(_quotient, 2, 1)(a[0], a[1])],
    "MatMul": lambda a, g, n: [a[0] @ a[1]],
    "Gemm": _gemm,
    "Pow": _power,
    "LeakyRelu": lambda a, g, n: [
        each(lambda u: u.max(arb(0)) + arb(float(np.float32(g.get("alpha", 0.01)))) * u.min(arb(0)), a[0])
    ],
    "Elu": lambda a, g, n: [
        each(lambda u: u.max(arb(0)) + arb(float(g.get("alpha", 1.0))) * (u.min(arb(0)).exp() - 1), a[0])
    ],
    "Clip": lambda a, g, n: [
        _clip(a[0], *(None if len(a) <= at or a[at] is None else a[at].reshape(-1)[0].mid() for at in (1, 2)))
    ],
    "Min": lambda a, g, n: [np.frompyfunc(lambda u, v: u.min(v), 2, 1)(a[0], a[1])],
    "Max": lambda a, g, n: [np.frompyfunc(lambda u, v: u.max(v), 2, 1)(a[0], a[1])],
    "Softmax": lambda a, g, n: [_softmax(a[0], g.get("axis", -1))],
    "LayerNormalization": lambda a, g, n: [
        _norm(a[0], a[1], a[2] if len(a) > 2 else None, float(np.float32(g.get("epsilon", 1e-5))))
    ],
    "ReduceSum": lambda a, g, n: [_reduced(a[0], a[1] if len(a) > 1 else None, bool(g.get("keepdims", 1)), False)],
    "ReduceMean": lambda a, g, n: [_reduced(a[0], a[1] if len(a) > 1 else None, bool(g.get("keepdims", 1)), True)],
    "Reshape": _reshape,
    "Transpose": lambda a, g, n: [np.transpose(a[0], g.get("perm"))],
    "Slice": _slice,
    "Gather": lambda a, g, n: [np.take(a[0], a[1], g.get("axis", 0))],
    "Concat": lambda a, g, n: [np.concatenate(a, g["axis"])],
    "Split": _parts,
    "Flatten": lambda a, g, n: [a[0].reshape(int(np.prod(a[0].shape[: g.get("axis", 1)])), -1)],
    "Unsqueeze": lambda a, g, n: [np.expand_dims(a[0], tuple(a[1].tolist()))],
    "Squeeze": lambda a, g, n: [np.squeeze(a[0], tuple(a[1].tolist()))],
    "Identity": lambda a, g, n: [a[0]],
    "Dropout": lambda a, g, n: [a[0]],
    "Cast": lambda a, g, n: [a[0]],
    "Shape": lambda a, g, n: [np.array(a[0].shape[g.get("start", 0) : g.get("end")], dtype=np.int64)],
    "Expand": lambda a, g, n: [np.broadcast_to(a[0], np.broadcast_shapes(a[0].shape, tuple(a[1].tolist())))],
}
