"""The table of operations: one row per operation of the formula language, with everything that is known of it.

A row says how an operation is written, what its value is (as a float, in torch, in balls, on intervals), where it has
none, where it bends or jumps, and under which name the Taylor arithmetic encloses it. All rooms read this table; only
the independent checker has its own. A new operation is a row here, its Taylor rule in taylor/ and its row there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from typing import Any

import torch
from flint import arb

from onelayer.errors import FormulaError
from onelayer.language import analytic, facets, intervals
from onelayer.language import spline as splines
from onelayer.language.intervals import Image, Interval, decreasing, increasing, of_one, where_defined
from onelayer.language.knots import Facets, Spline

POWER = "pow"  # an operation with a parameter: its exponent, an integer
SPLINE, FACETS = "spline", "facets"  # and two whose parameters are tables


class Need(Enum):
    """What a number must be for an operation to have a value."""

    NONZERO = "not zero"
    POSITIVE = "positive"
    NONNEGATIVE = "not negative"

    def met_by(self, margin: Any) -> Any:
        """Whether a number, or each of a tensor, is like that."""
        if self is Need.NONZERO:
            return margin != 0
        if self is Need.POSITIVE:
            return margin > 0
        return margin >= 0


@dataclass(frozen=True)
class Guard:
    """An operation has a value exactly where ``margin`` of its argument number ``argument`` meets ``need``.

    ``reason`` says in words what is wrong elsewhere. A ``rational`` margin of a rational number is computed exactly.
    """

    reason: str
    need: Need
    argument: int = 0
    margin: Callable[[Any], Any] = lambda x: x
    rational: bool = True

    def met_by(self, value: Any) -> Any:
        """Whether the operation has a value where its argument has this one."""
        return self.need.met_by(self.margin(value))


@dataclass(frozen=True)
class Beside:
    """A factor of f(u) / u where u vanishes: an operation of u, or of f(u) itself where ``own``, to a power."""

    op: str
    exponent: int
    own: bool = False


@dataclass(frozen=True)
class Infix:
    """An operation between its two arguments: its sign, and how strongly it binds."""

    sign: str
    level: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row. ``number``, ``torch``, ``ball`` and ``image`` take one value per argument, of their own kind.

    ``ball`` is not finite, and ``image`` NaN, where the operation may have no value; ``guard`` is the same as a test,
    None where there is always a value. ``taylor`` names its rule among those of taylor/, ``spellings`` are further
    names that torch has for it.

    kink      it is not differentiable where its argument, or the difference of its two, vanishes
    chooses   by the sign of its first argument it is the second or the third, and the other need not have a value
    rational  of rational numbers ``number`` gives the exact rational value
    beside    it vanishes with its argument, and is the argument times the product of these (language/removable.py)
    """

    name: str
    arity: int
    number: Callable[..., Any]
    torch: Callable[..., Any]
    ball: Callable[..., arb]
    image: Image
    taylor: str
    guard: Guard | None = None
    kink: bool = False
    chooses: bool = False
    rational: bool = False
    beside: tuple[Beside, ...] = ()
    infix: Infix | None = None
    spellings: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether it has a value at an end of its domain, but no slope there."""
        return self.guard is not None and self.guard.need is Need.NONNEGATIVE

    @property
    def within_one(self) -> bool:
        """Whether it has values on [-1, 1] alone."""
        return self.guard is _ONE_AWAY

    def total(self, exact: Sequence[Fraction | None]) -> bool:
        """Whether there is a value whatever the arguments are, but for those whose exact value is given."""
        if self.guard is None:
            return True
        known = exact[self.guard.argument]
        return known is not None and self.guard.rational and bool(self.guard.met_by(known))


def _arithmetic(name: str, sign: str, level: int, apply: Callable[..., Any], image: Image, **more: Any) -> Operation:
    """One of the four operations: Python's own on floats, tensors and balls alike."""
    return Operation(
        name=name,
        arity=2,
        number=apply,
        torch=apply,
        ball=apply,
        image=image,
        taylor=name,
        rational=True,
        infix=Infix(sign, level),
        **more,
    )


def _asin_image(low: torch.Tensor, high: torch.Tensor) -> Interval:
    """The inverse sine; NaN beyond -1 and 1."""
    return where_defined((low >= -1) & (high <= 1), increasing(torch.asin)(low, high))


def _acos_image(low: torch.Tensor, high: torch.Tensor) -> Interval:
    """Not negative: zero at 1."""
    below, above = decreasing(torch.acos)(low, high)
    return where_defined((low >= -1) & (high <= 1), (below.clamp(min=0), above))


def _function(name: str, image: intervals.Ends, *, number: Any = None, ball: Any = None, **more: Any) -> Operation:
    """A function of one variable that torch, math and Arb have under one name, unless told otherwise."""
    return Operation(
        name=name,
        arity=1,
        number=number or getattr(math, name),
        torch=getattr(analytic, name, None) or getattr(torch, name),
        ball=partial(_unless_nan, ball or getattr(arb, name)),
        image=of_one(image),
        taylor=name,
        **more,
    )


def _unless_nan(ball: Callable[[arb], arb], x: arb) -> arb:
    """What is no number has no value: Arb's asin of an exact NaN is a number, and so is its power by zero."""
    return x if x.is_nan() else ball(x)


def _ball_choice(u: arb, a: arb, b: arb) -> arb:
    """a where u > 0, else b; both where the ball of u does not tell."""
    if u > 0:
        return a
    if u <= 0:
        return b
    # Comparisons of balls are false where they are not sure, and so is every one with NaN.
    if u.is_nan():
        return u
    return a.union(b)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), by the exponential that does not overflow."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x))


def _minus(x: Any) -> Any:
    return -x


_DIVISION = "division by zero"
_ONE_AWAY = Guard("inverse sine or cosine of a number beyond 1", Need.NONNEGATIVE, margin=lambda x: 1 - abs(x))
# cos(x) vanishes at no float64, so the guard of tan tells the sides of a pole apart and never hits it.
_POLE = Guard("pole of tan", Need.NONZERO, margin=lambda x: torch.cos(x), rational=False)

_ROWS = (
    _arithmetic("add", "+", 1, lambda a, b: a + b, intervals.add),
    _arithmetic("sub", "-", 1, lambda a, b: a - b, intervals.sub),
    _arithmetic("mul", "*", 2, lambda a, b: a * b, intervals.mul),
    _arithmetic("div", "/", 2, lambda a, b: a / b, intervals.div, guard=Guard(_DIVISION, Need.NONZERO, argument=1)),
    Operation(
        name="neg",
        arity=1,
        number=_minus,
        torch=_minus,
        ball=_minus,
        image=intervals.neg,
        taylor="neg",
        rational=True,
    ),
    Operation(
        name="min",
        arity=2,
        number=min,
        torch=torch.minimum,
        ball=lambda a, b: a.min(b),
        image=intervals.minimum,
        taylor="minimum",
        kink=True,
    ),
    Operation(
        name="max",
        arity=2,
        number=max,
        torch=torch.maximum,
        ball=lambda a, b: a.max(b),
        image=intervals.maximum,
        taylor="maximum",
        kink=True,
    ),
    _function("abs", intervals.absolute, number=abs, ball=abs, kink=True, spellings=("absolute",)),
    _function(
        "relu",
        intervals.relu,
        number=lambda x: max(x, 0.0),
        ball=lambda x: x.max(arb(0)),
        kink=True,
    ),
    Operation(
        name="where",
        arity=3,
        number=lambda u, a, b: a if u > 0 else b,
        torch=lambda u, a, b: torch.where(u > 0, a, b),
        ball=_ball_choice,
        image=intervals.choice,
        taylor="where",
        chooses=True,
    ),
    _function("floor", intervals.floor),
    _function("exp", intervals.exp),
    _function(
        "log",
        intervals.log,
        guard=Guard("logarithm of a number that is not positive", Need.POSITIVE),
    ),
    _function("sqrt", intervals.sqrt, guard=Guard("square root of a negative number", Need.NONNEGATIVE)),
    _function("sin", intervals.wave(torch.sin), beside=(Beside("sinrel", 1),)),
    _function("cos", intervals.wave(torch.cos)),
    _function("tan", intervals.tan, guard=_POLE, beside=(Beside("sinrel", 1), Beside("cos", -1))),
    _function(
        "atan",
        increasing(torch.atan),
        beside=(Beside("cos", 1, own=True), Beside("sinrel", -1, own=True)),
        spellings=("arctan",),
    ),
    _function("asin", _asin_image, guard=_ONE_AWAY, beside=(Beside("sinrel", -1, own=True),), spellings=("arcsin",)),
    _function("acos", _acos_image, guard=_ONE_AWAY, spellings=("arccos",)),
    _function("tanh", increasing(torch.tanh)),
    _function("sigmoid", increasing(torch.sigmoid), number=sigmoid, ball=lambda x: 1 / (1 + (-x).exp())),
    _function("erf", increasing(torch.erf)),
    _function("cbrt", increasing(analytic.cbrt), ball=analytic.cbrt_ball),
    _function("sinrel", analytic.sinrel_image, number=analytic.sinrel_number, ball=analytic.sinrel_ball),
    _function("exprel", increasing(analytic.exprel), number=analytic.exprel_number, ball=analytic.exprel_ball),
    _function(
        "lgamma",
        analytic.lgamma_image,
        number=analytic.lgamma_number,
        ball=analytic.lgamma_ball,
        guard=Guard("log-gamma of a number that is not positive", Need.POSITIVE),
    ),
)

OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}


@cache
def power(exponent: int) -> Operation:
    """The row of x -> x**exponent. Negative exponents divide."""
    return Operation(
        name=POWER,
        arity=1,
        number=lambda x: x**exponent,
        torch=lambda x: x**exponent,
        ball=partial(_unless_nan, partial(_ball_power, exponent=exponent)),
        image=intervals.power(exponent),
        taylor="pow",
        guard=Guard(_DIVISION, Need.NONZERO) if exponent < 0 else None,
        rational=True,
    )


@cache
def table(data: Spline | Facets) -> Operation:
    """The row of a table of as many arguments as it has inputs."""
    name, room = (SPLINE, splines) if isinstance(data, Spline) else (FACETS, facets)
    return Operation(
        name=name,
        arity=data.dim,
        number=partial(room.number, data),
        torch=partial(getattr(room, name), data),
        ball=partial(room.ball, data),
        image=partial(room.image, data),
        taylor=name,
    )


def operation(op: str, value: float = 0) -> Operation:
    """The row of an operation; ``value`` is the exponent of a power, or the table."""
    if op == POWER:
        return power(int(value))
    if isinstance(value, Spline | Facets):
        return table(value)
    row = OPERATIONS.get(op)
    if row is None:
        raise FormulaError(f"unknown operation '{op}'; the formula language has {', '.join(sorted(OPERATIONS))}")
    return row


def _ball_power(base: arb, exponent: int) -> arb:
    """base ** exponent; of a ball around zero by products, where Arb's general power has no value."""
    if exponent < 0 or not base.contains(0):
        return base**exponent
    # Square and multiply along the bits of the exponent.
    result = arb(1)
    for bit in bin(exponent)[2:]:
        result = result * result
        if bit == "1":
            result = result * base
    return result
