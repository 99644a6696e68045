"""The derivative of every operation, written in operations that Taylor models know."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch

from onelayer.errors import UnsupportedOperation
from onelayer.taylor import elementary, inverse, means, roots, special
from onelayer.taylor.conditions import Comparison
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.dual import RULES, Dual, chained, derivative, directions, tangent, total, value_of, zeros_like

# Linear in their first argument, everything else constant: the tangents go the way of the value.
LINEAR = (
    *("broadcast_to", "chunk", "clone", "contiguous", "cumsum", "detach", "double", "dropout", "expand", "flatten"),
    *("flip", "float", "getitem", "index_select", "mean", "movedim", "narrow", "neg", "permute", "pos", "positive"),
    *("ravel", "reshape", "roll", "select", "split", "squeeze", "sum", "t", "to", "transpose", "unbind", "unflatten"),
    *("unsqueeze", "view"),
)
CONSTANT = ("full_like", "ones_like", "zeros_like")
FACTS = ("dim", "size", "numel", "is_floating_point")


@derivative(*LINEAR)
def linear_map(function: Callable[..., Any], x: Dual, *args: Any, **kwargs: Any) -> Any:
    """The derivative of a linear map is the map itself."""
    value = function(x.value, *args, **kwargs)
    tangents = [None if t is None else function(t, *args, **kwargs) for t in x.tangents]
    if not isinstance(value, tuple | list):
        return Dual(value, tangents)
    own = ([None if t is None else t[at] for t in tangents] for at in range(len(value)))
    return type(value)(map(Dual, value, own))


@derivative(*CONSTANT)
def without_slope(function: Callable[..., Any], x: Dual, *args: Any, **kwargs: Any) -> Dual:
    """A function that is constant almost everywhere."""
    return Dual(function(x.value, *args, **kwargs), [None] * len(x.tangents))


@derivative(*FACTS)
def of_the_value(function: Callable[..., Any], x: Dual, *args: Any, **kwargs: Any) -> Any:
    """What is no number of the function has no derivative."""
    return function(x.value, *args, **kwargs)


@derivative("cat", "stack")
def joined(function: Callable[..., Any], parts: Any, *args: Any, **kwargs: Any) -> Dual:
    """Parts side by side, and their derivatives likewise."""
    values = [value_of(part) for part in parts]

    def along(at: int) -> Any:
        found = [tangent(part, at) for part in parts]
        if all(item is None for item in found):
            return None
        filled = [zeros_like(v) if t is None else t for v, t in zip(values, found, strict=True)]
        return function(filled, *args, **kwargs)

    return Dual(function(values, *args, **kwargs), [along(at) for at in range(directions(parts))])


def _sum_rule(sign: int) -> Callable[..., Dual]:
    def rule(function: Callable[..., Any], a: Any, b: Any, *, alpha: float = 1.0) -> Dual:
        # Operators of Python take no alpha, and 1 is what they mean.
        words = {} if alpha == 1.0 else {"alpha": alpha}
        value = function(value_of(a), value_of(b), **words)

        def along(at: int) -> Any:
            left = tangent(a, at)
            right = tangent(b, at)
            right = None if right is None else right * (sign * alpha)
            found = total(left, right)
            return None if found is None else _shaped(found, value)

        return Dual(value, [along(at) for at in range(directions(a, b))])

    return rule


RULES["add"], RULES["sub"] = _sum_rule(1), _sum_rule(-1)


def _shaped(found: Any, value: Any) -> Any:
    """A tangent in the shape of its value, which broadcasting may have made larger."""
    if tuple(found.shape) == tuple(value.shape):
        return found
    return found.expand(tuple(value.shape))


@derivative("mul", "matmul", "einsum")
def bilinear(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Dual:
    """d(a b) = da b + a db, for every product of two."""
    words = args[:-2]
    pair = args[-2:]
    if len(words) == 1 and isinstance(pair[-1], list | tuple):
        raise UnsupportedOperation("the derivative of einsum of a list", "give the operands one by one")
    a, b = pair
    value = function(*words, value_of(a), value_of(b), **kwargs)

    def along(at: int) -> Any:
        left = tangent(a, at)
        right = tangent(b, at)
        left = None if left is None else function(*words, left, value_of(b), **kwargs)
        right = None if right is None else function(*words, value_of(a), right, **kwargs)
        return total(left, right)

    return Dual(value, [along(at) for at in range(directions(a, b))])


@derivative("linear")
def affine(function: Callable[..., Any], x: Dual, weight: Any, bias: Any = None) -> Dual:
    """x W^T + b with constant weights."""
    if isinstance(weight, Dual) or isinstance(bias, Dual):
        raise UnsupportedOperation("the derivative of linear by its weights", "the weights must be constants")
    value = function(x.value, weight, bias)
    return x.moved(value, lambda t: function(t, weight))


@derivative("addmm")
def added_product(function: Callable[..., Any], bias: Any, a: Any, b: Any) -> Any:
    """b + a c."""
    return torch.matmul(a, b) + bias


@derivative("div")
def quotient(function: Callable[..., Any], a: Any, b: Any) -> Dual:
    """d(a / b) = (da - (a / b) db) / b."""
    value = function(value_of(a), value_of(b))

    def along(at: int) -> Any:
        left = tangent(a, at)
        right = tangent(b, at)
        found = total(left, None if right is None else -(value * right))
        if found is None:
            return None
        return _shaped(found / value_of(b), value)

    return Dual(value, [along(at) for at in range(directions(a, b))])


@derivative("pow")
def power(function: Callable[..., Any], x: Any, exponent: Any) -> Dual:
    """n x^(n-1) for a constant exponent."""
    if isinstance(exponent, Dual) or not isinstance(exponent, int | float):
        raise UnsupportedOperation("the derivative of pow by its exponent", "the exponent must be a number")
    if exponent == 0:
        return Dual(function(x.value, exponent), [None] * len(x.tangents))
    if exponent == 1:
        return Dual(x.value, x.tangents)

    def slope(v: Any) -> Any:
        # n - 1 may be no float; then x^n / x is the same, where x is not zero.
        if Fraction(exponent) - 1 == Fraction(exponent - 1):
            return exponent * function(v, exponent - 1)
        return exponent * function(v, exponent) / v

    return chained(lambda v: function(v, exponent), x, slope)


def _refuse_cast(dtype: Any) -> None:
    if dtype is not None:
        raise UnsupportedOperation("the derivative of a softmax with a dtype", "cast before it")


@derivative("softmax")
def softmax(function: Callable[..., Any], x: Dual, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Dual:
    """ds = s (dl - sum s dl). Where s = N / Z is a pending quotient, so is ds = N (dl Z - sum N dl) / Z^2.

    Sums over tokens then still happen before the divisions, where large values cancel.
    """
    _refuse_cast(dtype)
    s = function(x.value, dim)
    if not (isinstance(s, TaylorModel) and len(s.den) == 1):
        s = s.plain() if isinstance(s, TaylorModel) else s
        return x.moved(s, lambda t: s * (t - (s * t).sum(dim, keepdim=True)))
    # N and Z apart, as models of their own.
    top = TaylorModel(s.coef, s.rem, s.space, s.support, s.degree)
    bottom = s.den[0]

    def along(t: Any) -> Any:
        inner = top * (t * bottom - (top * t).sum(dim, keepdim=True))
        return TaylorModel(inner.coef, inner.rem, inner.space, inner.support, inner.degree, (bottom, bottom))

    return x.moved(s, along)


@derivative("logsumexp")
def logsumexp(function: Callable[..., Any], x: Dual, dim: int, keepdim: bool = False) -> Dual:
    """Softmax is its derivative."""
    s = torch.softmax(x.value, dim)
    value = function(x.value, dim, keepdim)
    return x.moved(value, lambda t: (s * t).sum(dim, keepdim))


@derivative("log_softmax")
def log_softmax(function: Callable[..., Any], x: Dual, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Dual:
    """x minus logsumexp, likewise."""
    _refuse_cast(dtype)
    s = torch.softmax(x.value, dim)
    value = function(x.value, dim)
    return x.moved(value, lambda t: t - (s * t).sum(dim, True))


@derivative("layer_norm")
def layer_norm(
    function: Callable[..., Any],
    x: Dual,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Any:
    """(x - mean) / sqrt(var + eps), in its own operations."""
    axes = tuple(range(-len(tuple(shape)), 0))
    gap = x - x.mean(axes, keepdim=True)
    variance = (gap * gap).mean(axes, keepdim=True)
    y = gap / torch.sqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@derivative("where")
def where(function: Callable[..., Any], condition: Any, a: Any, b: Any) -> Dual:
    """By a constant mask. By a comparison with x the value may jump, and no slope tells of a jump."""
    if isinstance(condition, Comparison):
        raise UnsupportedOperation("the derivative of where by a comparison", "use relu, abs, maximum or clamp")
    value = function(condition, value_of(a), value_of(b))

    def along(at: int) -> Any:
        left = tangent(a, at)
        right = tangent(b, at)
        if left is None and right is None:
            return None
        left = zeros_like(right) if left is None else left
        right = zeros_like(left) if right is None else right
        return function(condition, left, right)

    return Dual(value, [along(at) for at in range(directions(a, b))])


def _step(x: Any) -> Any:
    """1 where x > 0, 0 where x < 0, both sides where neither is sure: the slope of relu, which has none itself."""
    if isinstance(x, Dual):
        raise UnsupportedOperation("the second derivative of a function that bends", "use a smooth one")
    one = zeros_like(x) + 1.0
    return torch.where(x > 0, one, one * 0.0)


def _clamp(function: Callable[..., Any], x: Dual, low: Any = None, high: Any = None, **ends: Any) -> Dual:
    low = ends.get("min", low)
    high = ends.get("max", high)

    def slope(v: Any) -> Any:
        inside = zeros_like(v) + 1.0
        inside = inside if low is None else inside * _step(v - low)
        if high is None:
            return inside
        return inside * _step(high - v)

    return chained(lambda v: function(v, low, high), x, slope)


RULES["clamp"] = _clamp


@derivative("hardtanh")
def hardtanh(
    function: Callable[..., Any], x: Dual, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Dual:
    if inplace:
        raise UnsupportedOperation("the derivative of hardtanh in place", "use inplace=False")
    return _clamp(torch.clamp, x, min_val, max_val)


@derivative("maximum", "max")
def larger(function: Callable[..., Any], a: Any, b: Any = None, *rest: Any, **kwargs: Any) -> Any:
    """The derivative of the larger of two."""
    if b is None or isinstance(b, int) or rest or kwargs:
        raise UnsupportedOperation("the derivative of max along a dimension", "use torch.maximum of two")
    return _of_pair(torch.maximum, a, b, a + torch.relu(b - a))


@derivative("minimum", "min")
def smaller(function: Callable[..., Any], a: Any, b: Any = None, *rest: Any, **kwargs: Any) -> Any:
    """The derivative of the smaller of two."""
    if b is None or isinstance(b, int) or rest or kwargs:
        raise UnsupportedOperation("the derivative of min along a dimension", "use torch.minimum of two")
    return _of_pair(torch.minimum, a, b, a - torch.relu(a - b))


def _of_pair(function: Callable[..., Any], a: Any, b: Any, written: Dual) -> Dual:
    """The function as it stands, with the tangents of what is the same but for rounding."""
    return Dual(function(value_of(a), value_of(b)), written.tangents)


def real_number(value: float, like: Any) -> Any:
    """A real number of which ``value`` is a rounding, two units in the last place at most."""
    if isinstance(like, TaylorModel):
        return like.constant(value, 2 * math.ulp(value))
    return value


def _normal(x: Any) -> Any:
    """The density of the normal distribution."""
    height = real_number(1 / math.sqrt(2 * math.pi), x)
    return torch.exp(x * x * -0.5) * height


def _gelu(x: Any) -> Any:
    """Phi(x) + x phi(x)."""
    root_half = real_number(math.sqrt(0.5), x)
    distribution = 0.5 * (1.0 + torch.erf(x * root_half))
    return distribution + x * _normal(x)


@derivative("softplus")
def softplus(function: Callable[..., Any], x: Dual, beta: float = 1, threshold: float = 20) -> Dual:
    """The logistic function up to 20. Above, torch returns x itself; between the two lies a jump, without a slope."""
    if beta != 1 or threshold != 20:
        raise UnsupportedOperation("the derivative of softplus with parameters", "use beta=1 and threshold=20")

    def slope(v: Any) -> Any:
        inner = v
        while isinstance(inner, Dual):
            inner = inner.value
        # Infinite where the box may reach the jump: no slope bounds what happens there.
        none = zeros_like(inner)
        jump = torch.where(inner > 20.0, none + torch.inf, none)
        return torch.sigmoid(v) + jump

    return chained(function, x, slope)


# f'(x) of functions of one variable: those that Taylor models have a rule of their own for say it there.
SLOPES: dict[str, Callable[[Any], Any]] = {
    "abs": lambda x: 2.0 * _step(x) - 1.0,
    "cosh": torch.sinh,
    "erf": lambda x: torch.exp(-(x * x)) * real_number(2 / math.sqrt(math.pi), x),
    "expm1": torch.exp,
    "gelu": _gelu,
    "log1p": lambda x: 1.0 / (1.0 + x),
    "reciprocal": lambda x: -1.0 / (x * x),
    "relu": _step,
    "silu": lambda x: torch.sigmoid(x) * (1.0 + x * (1.0 - torch.sigmoid(x))),
    "sinh": torch.cosh,
    "square": lambda x: 2.0 * x,
}
OWN = (*elementary.RULES, *special.RULES, special.SIGMOID, *inverse.RULES, *means.RULES, *roots.RULES)
SLOPES |= {row.name: row.slope for row in OWN if row.slope is not None}
for _name, _slope in SLOPES.items():

    def _rule(function: Callable[..., Any], x: Dual, *args: Any, _of: Any = _slope, **kwargs: Any) -> Dual:
        approximate = kwargs.pop("approximate", "none")
        if args or approximate != "none" or any(kwargs.values()):
            raise UnsupportedOperation("the derivative of a function with parameters", "use its plain form")
        return chained(function, x, _of)

    RULES[_name] = _rule
