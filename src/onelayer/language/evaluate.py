"""Evaluate a syntax tree with torch functions, on tensors or on anything that answers to them (Taylor models)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onelayer.language.constants import CONSTANTS
from onelayer.language.operations import operation
from onelayer.language.tree import LEAVES, Node, float_value

After = Callable[[Node, list[Any], Any], Any]


def evaluate(nodes: Sequence[Node], outputs: Sequence[int], x: Any, after: After | None = None) -> list[Any]:
    """Values of ``outputs`` for ``x`` of shape (..., D); every node is computed once and freed after its last use.

    Constants are Python floats while they meet variables only. On a tensor, arithmetic between constants is ordinary
    float64; on a Taylor model it is done on constants of the model, so that pi and 1/3 are the enclosed real numbers.
    ``after(node, args, value)`` may replace the value of each node as soon as it is computed.
    """
    rigorous = not isinstance(x, Tensor)
    like = x[..., 0]
    # The node that uses a value last; outputs outlive all nodes. So a formula needs the memory of its width.
    last = {arg: at for at, node in enumerate(nodes) for arg in node.args}
    last.update(dict.fromkeys(outputs, len(nodes)))
    values: list[Any] = []
    for at, node in enumerate(nodes):
        args = [values[arg] for arg in node.args]
        value = _value(node, args, x, like, rigorous)
        values.append(value if after is None else after(node, args, value))
        for arg in node.args:
            if last[arg] == at:
                values[arg] = None
    return [_spread(values[at], like) for at in outputs]


def _number(node: Node, like: Any, rigorous: bool) -> Any:
    """A number, or a constant such as pi, which no float is: a rigorous one has a radius."""
    if node.op == "num":
        return node.value
    constant = CONSTANTS[node.op]
    if rigorous:
        return like.constant(constant.value, constant.radius)
    return constant.value


def _value(node: Node, args: list[Any], x: Any, like: Any, rigorous: bool) -> Any:
    if node.op == "var":
        return x[..., int(node.value)]
    if node.op in LEAVES:
        return _number(node, like, rigorous)
    row = operation(node.op, node.value)
    if all(isinstance(arg, float) for arg in args):
        # A negation rounds nothing, so it stays a number on models too.
        if not rigorous or node.op == "neg":
            return float_value(node, args)
        return row.torch(*_constants(args, like))
    # torch's functions of several tensors take no bare numbers.
    if row.arity > 1 and row.infix is None:
        args = [_spread(arg, like) for arg in args]
    return row.torch(*args)


def _constants(args: list[Any], like: Any) -> list[Any]:
    """Numbers as exact models, so that what is computed of them has its rounding enclosed."""
    return [like.constant(arg, 0.0) for arg in args]


def _spread(value: Any, like: Any) -> Any:
    """A constant as an object like one coordinate of x, of shape (...)."""
    if isinstance(like, Tensor):
        if isinstance(value, float):
            return torch.full_like(like, value)
        return value
    if isinstance(value, float) or tuple(value.shape) != tuple(like.shape):
        return like * 0.0 + value
    return value
