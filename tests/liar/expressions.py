"""Expressions with three faces: formula text for the package, torch code to run, balls for the truth.

The balls are evaluated from this tree, not from the package's: a mistake of its parser is found like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from flint import arb, ctx
from torch import Tensor

from onelayer.language.formula import parse

PRECISIONS = (400, 1600, 6400)  # bits; a value that no precision decides is left open
BESIDE = arb(2) ** -200  # far below any box, far above what the first precision loses


class Undefined(Exception):
    """The function certainly has no value at this point."""


class Unclear(Exception):
    """The balls are too wide to tell whether the function has a value at this point."""


@dataclass(frozen=True, eq=False)
class Expr:
    """One operation. ``value`` is the index of a "var", the float of a "num", the exponent of a "pow"."""

    op: str
    args: tuple[Expr, ...] = ()
    value: float = 0.0

    def __add__(self, other: Any) -> Expr:
        return Expr("add", (self, lift(other)))

    def __radd__(self, other: Any) -> Expr:
        return Expr("add", (lift(other), self))

    def __sub__(self, other: Any) -> Expr:
        return Expr("sub", (self, lift(other)))

    def __mul__(self, other: Any) -> Expr:
        return Expr("mul", (self, lift(other)))

    def __rmul__(self, other: Any) -> Expr:
        return Expr("mul", (lift(other), self))

    def __rsub__(self, other: Any) -> Expr:
        return Expr("sub", (lift(other), self))

    def __truediv__(self, other: Any) -> Expr:
        return Expr("div", (self, lift(other)))

    def __rtruediv__(self, other: Any) -> Expr:
        return Expr("div", (lift(other), self))

    def __neg__(self) -> Expr:
        return Expr("neg", (self,))

    def __pow__(self, exponent: float) -> Expr:
        return Expr("pow", (self,), exponent)

    def walk(self) -> Iterator[Expr]:
        """Every node once, arguments first."""
        seen: set[int] = set()

        def visit(node: Expr) -> Iterator[Expr]:
            if id(node) in seen:
                return
            seen.add(id(node))
            for arg in node.args:
                yield from visit(arg)
            yield node

        return visit(self)


def lift(value: Any) -> Expr:
    """A number as an expression; the formula language writes negative numbers as a negation."""
    if isinstance(value, Expr):
        return value
    return -Expr("num", value=-float(value)) if value < 0 else Expr("num", value=float(value))


def var(index: int) -> Expr:
    return Expr("var", value=index)


def call(name: str, *args: Any) -> Expr:
    return Expr(name, tuple(lift(arg) for arg in args))


def _log(x: arb) -> arb:
    if x <= 0:
        raise Undefined("log")
    return x.log()


def _sqrt(x: arb) -> arb:
    if x < 0:
        raise Undefined("sqrt")
    return x.sqrt()


def _arc(inverse: Callable[[arb], arb], x: arb) -> arb:
    if abs(x) > 1:
        raise Undefined("inverse sine or cosine")
    return inverse(x)


def _div(a: arb, b: arb) -> arb:
    if b == 0:
        raise Undefined("division by zero")
    return a / b


def _log1p(x: arb) -> arb:
    if x <= -1:
        raise Undefined("log")
    return x.log1p()


def _acosh(x: arb) -> arb:
    if x < 1:
        raise Undefined("inverse hyperbolic cosine")
    return x.acosh()


def _atanh(x: arb) -> arb:
    if abs(x) >= 1:
        raise Undefined("inverse hyperbolic tangent")
    return x.atanh()


def _lgamma(x: arb) -> arb:
    if x <= 0:
        raise Undefined("logarithm of gamma")
    return x.lgamma()


def _cbrt(x: arb) -> arb:
    """The real root, which increases: between those of the ends of the ball."""
    if x == 0:
        return x
    if x > 0:
        return x.root(3)
    if x < 0:
        return -(-x).root(3)
    size = arb(abs(x).upper()).root(3)
    return size.union(-size)


def _third_power(x: arb) -> arb:
    """sign(x) |x|^a for the float a next to 1/3: far from 1 its digits are others than those of the cube root."""
    if x == 0:
        return x
    if x > 0:
        return _power(x, 1 / 3)
    if x < 0:
        return -_power(-x, 1 / 3)
    size = _power(arb(abs(x).upper()), 1 / 3)
    return size.union(-size)


def _exprel(x: arb) -> arb:
    """(exp(x) - 1) / x, and 1 at 0."""
    return arb(1) if x == 0 else x.expm1() / x


def _choice(u: arb, a: arb, b: arb) -> arb:
    if u > 0:
        return a
    return b if u <= 0 else a.union(b)


def _power(x: arb, exponent: float) -> arb:
    """x^n for integers, sqrt(x)^(2p) for half-integers, exp(p log x) otherwise, as the formula language says."""
    if float(exponent).is_integer():
        if exponent < 0 and x == 0:
            raise Undefined("power")
        return _integer_power(x, int(exponent))
    if float(2 * exponent).is_integer():
        return _power(_sqrt(x), 2 * exponent)
    return (arb(exponent) * _log(x)).exp()


def _integer_power(x: arb, n: int) -> arb:
    """By squaring: python-flint's own power of a ball around zero is nan."""
    if n < 0:
        return 1 / _integer_power(x, -n)
    result, base = arb(1), x
    while n:
        result, base, n = (result * base if n & 1 else result), base * base, n >> 1
    return result


@dataclass(frozen=True)
class Rule:
    """How an operation is written, which torch calls mean it, and its ball."""

    text: str
    torch: tuple[Callable[..., Any], ...]
    ball: Callable[..., arb]


def _method(name: str) -> tuple[Callable[[Any], Any], ...]:
    """A function of torch by both of its spellings."""
    return (lambda x: getattr(torch, name)(x), lambda x: getattr(x, name)())


def _unary(name: str, ball: Callable[[arb], arb] | None = None) -> Rule:
    return Rule(f"{name}({{0}})", _method(name), ball or (lambda x: getattr(x, name)()))


NAMED_ALIKE = (  # in formulas, in torch and in balls
    *("sin", "cos", "tan", "exp", "tanh", "atan", "erf", "erfc", "expm1", "sinh", "cosh", "asinh", "floor", "ceil"),
)
RULES: dict[str, Rule] = {
    "add": Rule("({0} + {1})", (lambda a, b: a + b, lambda a, b: torch.add(a, b)), lambda a, b: a + b),
    "sub": Rule("({0} - {1})", (lambda a, b: a - b, lambda a, b: torch.sub(a, b)), lambda a, b: a - b),
    "mul": Rule("({0} * {1})", (lambda a, b: a * b, lambda a, b: torch.mul(a, b)), lambda a, b: a * b),
    "div": Rule("({0} / {1})", (lambda a, b: a / b, lambda a, b: torch.div(a, b)), _div),
    "neg": Rule("(-{0})", (lambda a: -a, torch.neg), lambda a: -a),
    "min": Rule("min({0}, {1})", (torch.minimum,), lambda a, b: a.min(b)),
    "max": Rule("max({0}, {1})", (torch.maximum,), lambda a, b: a.max(b)),
    "hypot": Rule("hypot({0}, {1})", (torch.hypot,), lambda a, b: (a * a + b * b).sqrt()),
    "relu": Rule("relu({0})", (torch.relu, F.relu), lambda x: x.max(arb(0))),
    "sigmoid": _unary("sigmoid", lambda x: 1 / (1 + (-x).exp())),
    "log": _unary("log", _log),
    "sqrt": _unary("sqrt", _sqrt),
    "log1p": _unary("log1p", _log1p),
    "log2": _unary("log2", lambda x: _log(x) / arb(2).log()),
    "log10": _unary("log10", lambda x: _log(x) / arb(10).log()),
    "abs": _unary("abs", abs),
    "square": _unary("square", lambda x: x * x),
    "softplus": Rule("softplus({0})", (lambda x: F.softplus(x, threshold=1e30),), lambda x: x.exp().log1p()),
    "silu": Rule("silu({0})", (F.silu,), lambda x: x / (1 + (-x).exp())),
    "gelu": Rule("gelu({0})", (F.gelu,), lambda x: x / 2 * (-x / arb(2).sqrt()).erfc()),
    "asin": _unary("asin", lambda x: _arc(arb.asin, x)),
    "acos": _unary("acos", lambda x: _arc(arb.acos, x)),
    "acosh": _unary("acosh", _acosh),
    "atanh": _unary("atanh", _atanh),
    "lgamma": _unary("lgamma", _lgamma),
    "sinc": _unary("sinc", arb.sinc_pi),
    "cbrt": Rule("cbrt({0})", (lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),), _cbrt),
    "third_power": Rule(
        "(where({0} > 0, 1, -1) * abs({0})**(1/3))", (lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),), _third_power
    ),
    "exprel": Rule("exprel({0})", (lambda x: torch.where(x == 0, 1.0, torch.expm1(x) / x),), _exprel),
    "where": Rule("where({0} > 0, {1}, {2})", (lambda u, a, b: torch.where(u > 0, a, b),), _choice),
    **{name: _unary(name) for name in NAMED_ALIKE},
}
ARITHMETIC = ("add", "sub", "mul", "div", "neg")
CONSTANTS = {"pi": (math.pi, arb.pi), "e": (math.e, lambda: arb(1).exp())}


def as_code(expression: Expr) -> Expr:
    """The tree that code means: pi, e and the exponent of a cube root are the floats next to them."""
    values = {"pi": math.pi, "e": math.e}
    if expression.op in values:
        return lift(values[expression.op])
    op = "third_power" if expression.op == "cbrt" else expression.op
    return Expr(op, tuple(map(as_code, expression.args)), expression.value)


def text(expression: Expr) -> str:
    """The expression in the formula language; constants in their shortest exact form."""
    match expression.op:
        case "var":
            return f"x{int(expression.value) + 1}"
        case "num":
            return repr(float(expression.value))
        case "pi" | "e":
            return expression.op
        case "pow":
            return f"({text(expression.args[0])})**({expression.value!r})"
    return RULES[expression.op].text.format(*map(text, expression.args))


def torch_code(expression: Expr, rng: Random | None = None) -> Callable[[Any], Any]:
    """The expression as torch code on (..., D); each operation in one of its spellings."""
    nodes = list(expression.walk())
    places = {id(node): at for at, node in enumerate(nodes)}
    chosen = [
        None if node.op not in RULES else (rng.choice(RULES[node.op].torch) if rng else RULES[node.op].torch[0])
        for node in nodes
    ]

    def run(x: Any) -> Any:
        values: list[Any] = []
        for node, code in zip(nodes, chosen, strict=True):
            args = [values[places[id(arg)]] for arg in node.args]
            match node.op:
                case "var":
                    values.append(x[..., int(node.value)])
                case "num":
                    values.append(float(node.value))
                case "pi" | "e":
                    values.append(CONSTANTS[node.op][0])
                case "pow":
                    base = args[0] if _varies(args[0]) else x[..., 0] * 0.0 + args[0]  # no power by Python alone
                    values.append(base ** (int(node.value) if float(node.value).is_integer() else node.value))
                case _:
                    values.append(_run(node.op, code, args, x))
        return values[-1] if _varies(values[-1]) else x[..., 0] * 0.0 + values[-1]

    return run


def _varies(value: Any) -> bool:
    return not isinstance(value, float | int)


def _run(op: str, code: Any, args: list[Any], x: Any) -> Any:
    """Operators take numbers as they are; torch functions, and operations of numbers alone, get them as tensors."""
    operator = op in ARITHMETIC and code is RULES[op].torch[0] and any(map(_varies, args))
    zero = None if operator or all(map(_varies, args)) else x[..., 0] * 0.0
    return code(*(arg if zero is None or _varies(arg) else zero + arg for arg in args))


def ball_values(expression: Expr, point: Sequence[float]) -> arb:
    """The value at one point in balls of the current precision; Undefined or Unclear where there is no finite one."""
    values: dict[int, arb] = {}
    for node in expression.walk():
        args = [values[id(arg)] for arg in node.args]
        match node.op:
            case "var":
                value = arb(point[int(node.value)])
            case "num":
                value = arb(node.value)
            case "pi" | "e":
                value = CONSTANTS[node.op][1]()
            case "pow":
                value = _power(args[0], node.value)
            case _:
                value = RULES[node.op].ball(*args)
        if not value.is_finite():
            raise Unclear(node.op)
        values[id(node)] = value
    return value


def read_values(expression: Expr, point: Sequence[float]) -> arb:
    """The value as formula text is read: quotients such as sin(u)/u are their limits where u vanishes.

    The package says so by writing them with sinrel and exprel; their value is that of points beside, where the text has
    one too, up to far less than any bound.
    """
    try:
        return ball_values(expression, point)
    except Undefined:
        if not _has_limits(expression):
            raise
        return ball_values(expression, [arb(x) + BESIDE for x in point])


def _has_limits(expression: Expr) -> bool:
    """Whether the package reads a quotient of the text as another one."""
    own = sum(node.op in ("sinc", "exprel") for node in expression.walk())
    read = parse(text(expression), 1 + max(_variables(expression))).nodes
    return sum(node.op in ("sinrel", "exprel") for node in read) > own


def _variables(expression: Expr) -> set[int]:
    return {0} | {int(node.value) for node in expression.walk() if node.op == "var"}


def exact(expression: Expr, point: Sequence[float], bits: int = PRECISIONS[0]) -> arb:
    """The value in balls of ``bits``."""
    with ctx.workprec(bits):
        return ball_values(expression, point)


def arguments_at_risk(expression: Expr) -> list[Expr]:
    """What is divided by, rooted, put into a logarithm or has a kink: where it is zero, claims are delicate."""
    found = []
    for node in expression.walk():
        if node.op == "div" or (node.op == "pow" and node.value < 0):
            found.append(node.args[-1])
        elif node.op in ("log", "sqrt", "log2", "log10", "abs", "relu", "where", "cbrt", "third_power", "lgamma"):
            found.append(node.args[0])
        elif node.op == "log1p":
            found.append(node.args[0] + 1.0)
        elif node.op in ("min", "max"):
            found.append(node.args[0] - node.args[1])
    return [item for item in found if any(node.op == "var" for node in item.walk())]


def float_values(expression: Expr, points: Tensor) -> Tensor:
    """Approximate values at points (C, D) in float64, nan where there is none."""
    with torch.no_grad():
        return torch_code(expression)(points.double())
