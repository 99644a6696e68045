"""Natural intervals beside Taylor models, for functions given by a formula.

A Taylor model of log(x2 / x1) on a wide box may reach below zero although x2 / x1 does not, and then has no logarithm.
Plain interval arithmetic, node by node, keeps such signs: each node's interval [a, b] replaces a poorer model, and
afterwards narrows the range in which compositions and quotients look for singularities. On small boxes the models win
and the intervals cost little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula, Node
from onelayer.language.tree import float_value
from onelayer.taylor.compose import within_image
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import COS, EXP, LOG, SIN, increasing, integer_power
from onelayer.taylor.rounding import TINY
from onelayer.taylor.special import ATAN, ERF, SIGMOID, TAN, TANH

Interval = tuple[Tensor, Tensor]
Image = Callable[[Tensor, Tensor], Interval]

_WIDEN = 2.0**-50  # relative, four units: more than the one rounding of each end


def evaluate_hulled(formula: Formula, x: TaylorModel, low: Tensor, high: Tensor) -> Any:
    """The formula on the boxes of ``x`` (B, D) with corners ``low``, ``high``: (B, *output_shape)."""
    values = hulled_outputs(formula, x, low, high)
    return values[0] if formula.output_shape == () else torch.stack(values, dim=-1)


def hulled_outputs(formula: Formula, x: TaylorModel, low: Tensor, high: Tensor) -> list[Any]:
    """Each output of the formula, (B,), together with its interval; unbounded where any node may be undefined."""
    defined = torch.ones_like(low[:, 0], dtype=torch.bool)

    def narrowed(node: Node, args: list[Any], value: Any) -> Any:
        if not isinstance(value, TaylorModel):
            return value
        if node.op == "var":
            ends = low[:, int(node.value)], high[:, int(node.value)]
        else:
            ends, sure = interval(node, [_ends(arg, value.device) for arg in args], value)
            defined.logical_and_(sure | value.decided())
        # Whether the node is defined is kept apart: what reaches an output is the conjunction over all nodes.
        return within_image(value, *ends, torch.ones_like(value.rem, dtype=torch.bool)).with_hull(*ends)

    values = evaluate(formula.nodes, formula.outputs, x, narrowed)
    for value in values:
        value.rem = torch.where(defined, value.rem, torch.inf)
    return values


def surely_defined(formula: Formula, low: Tensor, high: Tensor) -> Tensor:
    """(B,): whether interval arithmetic alone shows every node of the formula to be defined on the box."""
    found: list[Interval] = []
    defined = torch.ones_like(low[:, 0], dtype=torch.bool)
    for node in formula.nodes:
        args = [found[at] for at in node.args]
        match node.op:
            case "var":
                found.append((low[:, int(node.value)], high[:, int(node.value)]))
            case "num" | "pi" | "e":
                number = torch.tensor(float_value(node, []), dtype=torch.float64, device=low.device)
                found.append((number, number) if node.op == "num" else _outward(number, number))
            case _:
                ends, sure = _ruled(node, args)
                found.append(ends)
                defined &= sure
    return defined


def interval(node: Node, args: list[Interval], value: TaylorModel) -> tuple[Interval, Tensor]:
    """Interval of one operation on intervals, rounded outward, everything where it may be undefined; and where not."""
    if not args:
        return value.range(), torch.ones_like(value.rem, dtype=torch.bool)
    (low, high), sure = _ruled(node, args)
    return (low.expand(value.shape), high.expand(value.shape)), sure.expand(value.shape)


def _ruled(node: Node, args: list[Interval]) -> tuple[Interval, Tensor]:
    low, high = _RULES[node.op](*args) if node.op != "pow" else _power(int(node.value))(*args[0])
    if not low.dtype == high.dtype == torch.float64:
        raise TypeError(f"interval of {node.op} in {low.dtype}: its rounding would not be covered")
    bad = torch.isnan(low) | torch.isnan(high)
    return (torch.where(bad, -torch.inf, low), torch.where(bad, torch.inf, high)), ~bad


def _ends(arg: Any, device: torch.device) -> Interval:
    if isinstance(arg, TaylorModel):
        return arg.hull or arg.range()
    number = torch.tensor(float(arg), dtype=torch.float64, device=device)
    return number, number


def _outward(low: Tensor, high: Tensor) -> Interval:
    return low - low.abs() * _WIDEN, high + high.abs() * _WIDEN


def _add(a: Interval, b: Interval) -> Interval:
    """Sums do not underflow: a computed zero is exact."""
    return _outward(a[0] + b[0], a[1] + b[1])


def _sub(a: Interval, b: Interval) -> Interval:
    return _outward(a[0] - b[1], a[1] - b[0])


def _mul(a: Interval, b: Interval) -> Interval:
    """The least and greatest of the four products; a product that underflowed to zero is not exact."""
    ends = torch.stack([_product(p, q) for p in a for q in b])
    tiny = TINY * torch.stack([(p != 0) & (q != 0) for p in a for q in b]).double()
    return (ends - ends.abs() * _WIDEN - tiny).amin(0), (ends + ends.abs() * _WIDEN + tiny).amax(0)


def _product(p: Tensor, q: Tensor) -> Tensor:
    """0 times anything in the interval is 0, also where the other end is infinite."""
    return torch.where((p == 0) | (q == 0), 0.0, p * q)


def _div(a: Interval, b: Interval) -> Interval:
    one = torch.ones_like(b[0])
    away = (b[0] > 0) | (b[1] < 0)
    low, high = _outward(one / b[1], one / b[0])
    low, high = low - TINY, high + TINY
    low = torch.where(b[0] > 0, low.clamp(min=0), low)
    high = torch.where(b[1] < 0, high.clamp(max=0), high)
    below, above = _mul(a, (low, high))
    return torch.where(away, below, torch.nan), torch.where(away, above, torch.nan)


def _power(exponent: int) -> Image:
    if exponent < 0:
        positive = _power(-exponent)
        return lambda low, high: _div((torch.ones_like(low), torch.ones_like(high)), positive(low, high))
    if exponent == 0:
        return lambda low, high: (torch.ones_like(low), torch.ones_like(high))
    if exponent % 2:
        return integer_power(exponent).image

    def even(low: Tensor, high: Tensor) -> Interval:
        least, most = torch.maximum(low, -high).clamp(min=0), torch.maximum(-low, high)
        below, above = increasing(lambda x: x**exponent)(least, most)
        return below.clamp(min=0), above

    return even


def _sqrt(low: Tensor, high: Tensor) -> Interval:
    """Defined from zero on; a lower end below zero leaves it undefined."""
    below, above = increasing(torch.sqrt)(low, high)
    return torch.where(low >= 0, below.clamp(min=0), torch.nan), above


def _log(low: Tensor, high: Tensor) -> Interval:
    below, above = LOG.image(low, high)
    return torch.where(low > 0, below, torch.nan), above


def _exp(low: Tensor, high: Tensor) -> Interval:
    below, above = EXP.image(low, high)
    return below.clamp(min=0), above


def _abs(low: Tensor, high: Tensor) -> Interval:
    return torch.maximum(low, -high).clamp(min=0), torch.maximum(-low, high)


_IMAGES: dict[str, Image] = {
    "neg": lambda low, high: (-high, -low),
    "abs": _abs,
    "relu": lambda low, high: (low.clamp(min=0), high.clamp(min=0)),
    "sqrt": _sqrt,
    "log": _log,
    "exp": _exp,
    "sin": SIN.image,
    "cos": COS.image,
    "tan": TAN.image,
    "tanh": TANH.image,
    "sigmoid": SIGMOID.image,
    "atan": ATAN.image,
    "erf": ERF.image,
}


def _unary(image: Image) -> Callable[[Interval], Interval]:
    return lambda ends: image(*ends)


_RULES: dict[str, Callable[..., Interval]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "min": lambda a, b: (torch.minimum(a[0], b[0]), torch.minimum(a[1], b[1])),
    "max": lambda a, b: (torch.maximum(a[0], b[0]), torch.maximum(a[1], b[1])),
    **{op: _unary(image) for op, image in _IMAGES.items()},
}
