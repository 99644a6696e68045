"""ATen operations as steps of a network, by their names: what torch.export lists of a module, or a .pt2 file holds.

In-place operations are written as what they return. What shares entries with the value they change is refused from then
on: a view, or the value under its old name, would be read as it was before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.network.builder import Constant, Known, NetworkWriter, Value, moved, parts_of
from onelayer.network.program import UNARY

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
SAME = ("clone", "contiguous", "detach", "alias", "dropout", "feature_dropout", "lift_fresh_copy")
CASTS = ("to", "_to_copy", "type_as")  # the same where the format stays


def written_as(build: NetworkWriter, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The ATen operation of this name as steps: one of its arguments depends on the point."""
    _need_fit(build, (*args, *kwargs.values()))
    in_place = name.endswith("_") and not name.endswith("__")
    name = name.removesuffix("_") if in_place else name
    # Whoever reads the old value later would read what torch has already changed.
    if in_place and name not in SAME:
        _spend(build, args[0])
    if name in SAME or name in CASTS:
        return _same(build, name, args, kwargs)
    if name not in RULES:
        raise UnsupportedOperation(name[:60], "a saved network has no such operation")
    return RULES[name](build, *args, **kwargs)


def _need_fit(build: NetworkWriter, items: Any) -> None:
    """Values are as they were written, and no tensor makes torch compute in a wider format than the network's."""
    for x in items:
        if isinstance(x, Value):
            build.need_unchanged(x)
        elif isinstance(x, list | tuple):
            _need_fit(build, x)
        elif isinstance(x, Tensor) and x.ndim and torch.promote_types(x.dtype, build.dtype) != build.dtype:
            raise UnsupportedOperation(f"a tensor in {x.dtype}", f"the network computes in {build.dtype}")


def _spend(build: NetworkWriter, x: Any) -> None:
    """An operation changes x: whatever shares its entries is not to be read any more, only what it returns."""
    if not isinstance(x, Value):
        raise UnsupportedOperation("a constant that is changed in place", "write it without in-place")
    build.spent.add(x.step)


def _same(build: NetworkWriter, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The value itself: a cast to its own format, a dropout of nothing."""
    given = (*args[1:], *kwargs.values())
    formats = [x for x in given if isinstance(x, torch.dtype)]
    formats += [x.dtype for x in given if isinstance(x, Tensor)]
    if any(kind != build.dtype for kind in formats):
        raise UnsupportedOperation("a cast", "a network has one format")
    # Its third argument says whether the model is training.
    if "dropout" in name and args[2:3] != (False,) and args[2:3] != [False]:
        raise UnsupportedOperation("dropout", "call model.eval() first")
    return args[0]


def holds_value(items: Any) -> bool:
    """Whether a value that depends on the point is among these, lists included."""
    inside = (x for x in items if isinstance(x, list | tuple))
    return any(isinstance(x, Value) for x in items) or any(map(holds_value, inside))


def known_of(x: Any) -> Known:
    """A tensor or number among values as an array."""
    if isinstance(x, Value):
        return x
    if isinstance(x, Tensor):
        return x.double().numpy()
    return np.asarray(x, dtype=np.float64)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how ATen operations of these names are written."""

    def register(written: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, written))
        return written

    return register


def _places(how: Callable[..., Any]) -> Rule:
    """A movement of entries as NumPy does it."""
    return lambda build, x, *args, **kwargs: moved(x, lambda v: how(v, *args, **kwargs))


def _sliced(v: Any, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    before = [slice(None)] * (axis % v.ndim)
    return v[(*before, slice(start, end, step))]


def _squeezed(v: Any, axes: Any = None) -> Any:
    asked = range(v.ndim) if axes is None else axes
    chosen = [asked] if isinstance(asked, int) else asked
    # Like torch: an axis that is longer than one stays, named or not.
    short = [axis % v.ndim for axis in chosen if v.shape[axis] == 1]
    return np.squeeze(v, tuple(short))


def _flattened(v: Any, start: int = 0, end: int = -1) -> Any:
    start = start % v.ndim
    end = end % v.ndim
    before = v.shape[:start]
    behind = v.shape[end + 1 :]
    return v.reshape(*before, -1, *behind)


def _unflattened(v: Any, axis: int, sizes: Any) -> Any:
    axis %= v.ndim
    before = v.shape[:axis]
    behind = v.shape[axis + 1 :]
    return v.reshape(*before, *sizes, *behind)


def _expanded(v: Any, sizes: Any, implicit: bool = False) -> Any:
    own = (1,) * (len(sizes) - v.ndim) + v.shape
    wanted = [a if b == -1 else b for a, b in zip(own, sizes, strict=True)]
    return np.broadcast_to(v, wanted)


_MOVES: dict[tuple[str, ...], Callable[..., Any]] = {
    ("view", "reshape", "_unsafe_view"): lambda v, shape: v.reshape(shape),
    ("permute",): lambda v, axes: np.transpose(v, axes),
    ("transpose",): np.swapaxes,
    ("t", "numpy_T"): lambda v: v.T,
    ("unsqueeze",): np.expand_dims,
    ("squeeze",): _squeezed,
    ("slice",): _sliced,
    ("select",): lambda v, axis, at: np.take(v, at, axis),
    ("flatten",): _flattened,
    ("unflatten",): _unflattened,
    ("expand",): _expanded,
    ("flip",): lambda v, axes: np.flip(v, axes),
    ("movedim",): np.moveaxis,
}
for _names, _how in _MOVES.items():
    RULES.update(dict.fromkeys(_names, _places(_how)))
# The name as a default argument: a closure would see the last name of the loop.
for _name in UNARY:
    RULES[_name] = lambda build, x, _op=_name: build.apply(_op, x)
for _name in ("minimum", "maximum"):
    RULES[_name] = lambda build, a, b, _op=_name: build.combine(_op, known_of(a), known_of(b))


def _split(build: NetworkWriter, x: Value, size: Any, axis: int = 0) -> list[Known]:
    several = isinstance(size, list | tuple)
    ends = np.cumsum(size)[:-1] if several else np.arange(size, x.shape[axis], size)
    return parts_of(x, ends, axis)


def _chunk(build: NetworkWriter, x: Value, count: int, axis: int = 0) -> list[Known]:
    each = -(-x.shape[axis] // count)
    return _split(build, x, each, axis)


def _unbind(build: NetworkWriter, x: Value, axis: int = 0) -> list[Known]:
    return [_taken(x, at, axis) for at in range(x.shape[axis])]


def _taken(x: Known, at: int, axis: int) -> Known:
    return moved(x, lambda v: np.take(v, at, axis))


RULES |= {"split": _split, "split_with_sizes": _split, "chunk": _chunk, "unbind": _unbind}


def _combined(op: str) -> Rule:
    def written(build: NetworkWriter, a: Any, b: Any, alpha: Any = 1, rounding_mode: Any = None) -> Known:
        if alpha != 1 or rounding_mode is not None:
            raise UnsupportedOperation(f"{op} with a factor or a rounding", "write it out")
        return build.combine(op, known_of(a), known_of(b))

    return written


RULES |= {op: _combined(op) for op in ("add", "sub", "mul", "div")}


@rule("rsub")
def reversed_difference(build: NetworkWriter, a: Any, b: Any, alpha: Any = 1) -> Known:
    """b - a."""
    found: Known = _combined("sub")(build, b, a, alpha)
    return found


@rule("pow")
def power(build: NetworkWriter, x: Any, exponent: Any) -> Known:
    """Squares, roots and inverses."""
    names = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if isinstance(x, Value) and isinstance(exponent, int | float):
        if exponent in names:
            return build.apply(names[exponent], x)
        if exponent == 3:
            return build.combine("mul", build.apply("square", x), x)
    raise UnsupportedOperation("pow", "a saved network has exponents 2, 3, 1/2, -1/2 and -1")


@rule("cat", "concat")
def joined(build: NetworkWriter, parts: Any, axis: int = 0) -> Known:
    """Values side by side."""
    return build.join([known_of(part) for part in parts], axis)


@rule("stack")
def stacked(build: NetworkWriter, parts: Any, axis: int = 0) -> Known:
    """Values side by side along an axis of their own."""
    spread = [moved(known_of(part), lambda v: np.expand_dims(v, axis)) for part in parts]
    return build.join(spread, axis)


@rule("linear")
def linear(build: NetworkWriter, x: Value, weight: Tensor, bias: Tensor | None = None) -> Known:
    """x W^T + b with constant weights."""
    if isinstance(weight, Value) or isinstance(bias, Value):
        raise UnsupportedOperation("linear with weights that depend on the point", "use matmul")
    offset = None if bias is None else known_constant(bias)
    return build.affine(x, known_constant(weight), offset)


@rule("addmm")
def added_product(build: NetworkWriter, bias: Any, a: Any, b: Any) -> Known:
    """bias + a b."""
    constant = not isinstance(b, Value) and not isinstance(bias, Value)
    if isinstance(a, Value) and constant and bias.ndim == 1:
        return build.affine(a, known_constant(b).T, known_constant(bias))
    product = build.matmul(known_of(a), known_of(b))
    return build.combine("add", product, known_of(bias))


@rule("matmul", "mm", "bmm")
def product(build: NetworkWriter, a: Any, b: Any) -> Known:
    """A product of matrices."""
    return build.matmul(known_of(a), known_of(b))


def known_constant(x: Any) -> Constant:
    """A tensor of weights as an array."""
    found = known_of(x)
    if isinstance(found, Value):
        raise UnsupportedOperation("weights that depend on the point", "a saved network has constant weights")
    return found


@rule("gelu")
def gelu(build: NetworkWriter, x: Value, approximate: str = "none") -> Known:
    """Either form."""
    return build.apply("gelu" if approximate == "none" else "gelu_tanh", x)


@rule("softplus")
def softplus(build: NetworkWriter, x: Value, beta: float = 1, threshold: float = 20) -> Known:
    """log(1 + e^x), as torch has it by default."""
    if beta != 1 or threshold != 20:
        raise UnsupportedOperation("softplus with parameters", "use beta=1 and threshold=20")
    return build.apply("softplus", x)


@rule("leaky_relu")
def leaky_relu(build: NetworkWriter, x: Value, slope: float = 0.01) -> Known:
    """x, or slope x below zero."""
    return build.apply("leaky_relu", x, float(slope))


@rule("elu")
def elu(build: NetworkWriter, x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Known:
    """x, or alpha (e^x - 1) below zero."""
    if scale != 1 or inner != 1:
        raise UnsupportedOperation("elu with scales", "use elu with alpha alone")
    return build.apply("elu", x, float(alpha))


@rule("hardtanh")
def hardtanh(build: NetworkWriter, x: Value, low: float = -1.0, high: float = 1.0) -> Known:
    """Between -1 and 1, or two other numbers."""
    found: Known = clamped(build, x, low, high)
    return found


@rule("clamp")
def clamped(build: NetworkWriter, x: Value, low: float | None = None, high: float | None = None) -> Known:
    """Not below, not above."""
    found: Known = x
    for op, end in (("maximum", low), ("minimum", high)):
        if end is not None:
            ends = np.full(x.shape, float(end))
            found = build.combine(op, found, ends)
    return found


@rule("softmax", "_softmax")
def softmax(build: NetworkWriter, x: Value, axis: int, dtype: Any = None) -> Known:
    """Along one axis."""
    if dtype not in (None, False, build.dtype):
        raise UnsupportedOperation("softmax with a dtype", "cast before it")
    return build.along("softmax", x, axis)


@rule("layer_norm")
def layer_norm(
    build: NetworkWriter,
    x: Value,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Known:
    """Of the last axis."""
    if len(shape) != 1:
        raise UnsupportedOperation("layer_norm over several axes", "normalise the last one")
    gain = None if weight is None else known_constant(weight)
    offset = None if bias is None else known_constant(bias)
    return build.normalise(x, gain, offset, eps)


def _reduction(op: str) -> Rule:
    def written(build: NetworkWriter, x: Value, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Known:
        if dtype not in (None, build.dtype):
            raise UnsupportedOperation(f"{op} with a dtype", "a network has one format")
        chosen = [axes] if isinstance(axes, int) else axes
        return build.reduced(op, x, chosen, keepdim)

    return written


RULES |= {op: _reduction(op) for op in ("sum", "mean")}


@rule("scaled_dot_product_attention")
def attention(
    build: NetworkWriter,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Known:
    """softmax(q k^T / sqrt(d)) v; a mask hides tokens or adds numbers to the logits."""
    if dropout or enable_gqa:
        raise UnsupportedOperation("attention with dropout or shared keys", "use plain attention in eval mode")
    q = known_of(query)
    k = known_of(key)
    v = known_of(value)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    keys = moved(k, lambda entries: np.swapaxes(entries, -1, -2))
    products = build.matmul(q, keys)
    logits = build.combine("mul", products, np.asarray(factor))
    if is_causal:
        size = logits.shape[-2:]
        mask = torch.ones(size, dtype=torch.bool, device="cpu").tril()
    if isinstance(mask, Value):
        raise UnsupportedOperation("a mask that depends on the point", "use a constant mask")
    if mask is not None:
        table = mask.numpy()
        # A mask of truth values shows tokens, one of numbers is added.
        hides = table.dtype == bool
        added = np.where(table, 0.0, -np.inf) if hides else table.astype(np.float64)
        logits = build.combine("add", logits, added)
    return build.matmul(build.along("softmax", logits, -1), v)  # type: ignore[arg-type]
