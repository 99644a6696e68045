"""What the functions of the formula language mean at points, by Arb's own functions wherever Arb has them.

The language writes most of its functions in terms of a few; here each is the function that it is called after. A value
is None where a function surely has none, and not finite where nothing is known, as at a division by zero, whose
singularity may be removable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce

from flint import arb

Point = arb | None  # a value at a point
MOST_BITS = 4096  # of the exact rational value of a constant
LARGEST = 1024  # exponent that is a repeated product
ROOTS = {1: 0, 2: 1, 4: 2, 8: 3}  # denominators of exponents that are repeated square roots
HALF_ANGLE = 180  # degrees


@dataclass(frozen=True)
class Row:
    """Values at the points, a single one where they are constant; ``exact`` is the rational value of a constant."""

    values: tuple[Point, ...]
    exact: Fraction | None = None


def each(function: Callable[..., Point], *rows: Row) -> Row:
    """A function point by point: without a value where an argument has none, unknown where one is unknown."""
    count = max(len(row.values) for row in rows)
    columns = [row.values if len(row.values) == count else row.values * count for row in rows]
    return Row(tuple(_applied(function, args) for args in zip(*columns, strict=True)))


def _applied(function: Callable[..., Point], args: Sequence[Point]) -> Point:
    if any(arg is None for arg in args):
        return None
    return function(*args) if all(arg.is_finite() for arg in args if arg is not None) else arb("nan")


def arithmetic(sign: str, a: Row, b: Row) -> Row:
    """One of the four operations."""
    found = each(_ARITHMETIC[sign], a, b)
    if a.exact is None or b.exact is None or (sign == "/" and not b.exact):
        return found
    exact = _exactly(sign, a.exact, b.exact)
    return Row(found.values, _short(exact))


def _exactly(sign: str, a: Fraction, b: Fraction) -> Fraction:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    return a / b


def negative(a: Row) -> Row:
    """-a"""
    return Row(each(lambda x: -x, a).values, None if a.exact is None else -a.exact)


def power(base: Row, exponent: Row) -> Row:
    """Lemma: integers are repeated products; halves, quarters, eighths those of roots; y is exp(y log base) else."""
    y = exponent.exact
    if y is None or y.denominator not in ROOTS or abs(y.numerator) > LARGEST:
        return each(_general_power, base, exponent)
    for _ in range(ROOTS[y.denominator]):
        base = each(_root, base)
    found = each(lambda x: _repeated(x, y.numerator), base)
    exact = None
    if base.exact is not None and (base.exact or y >= 0) and _bits(base.exact) * abs(y.numerator) <= MOST_BITS:
        exact = base.exact**y.numerator
    return Row(found.values, exact)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _short(value: Fraction) -> Fraction | None:
    return value if _bits(value) <= MOST_BITS else None


def _general_power(x: arb, y: arb) -> Point:
    # Of a base that is not positive nothing is said: the exponent may be an integer that is not known to be one.
    return (y * x.log()).exp() if x > 0 else arb("nan")


def _repeated(x: arb, n: int) -> arb:
    result = arb(1)
    for bit in bin(abs(n))[2:]:
        result = result * result
        result = result * x if bit == "1" else result
    return result if n >= 0 else 1 / result


def _root(x: arb) -> Point:
    return None if x < 0 else x.sqrt()


def _cube_root(x: arb) -> arb:
    if x > 0:
        return x.root(3)
    if x < 0:
        return -(-x).root(3)
    return arb(0) if x == 0 else arb("nan")


def _positive(function: Callable[[arb], arb]) -> Callable[[arb], Point]:
    """A function of positive numbers alone."""
    return lambda x: None if x <= 0 else function(x)


def _within_one(function: Callable[[arb], arb]) -> Callable[[arb], Point]:
    return lambda x: None if abs(x) > 1 else function(x)


def _beta(a: arb, b: arb) -> Point:
    return None if a <= 0 or b <= 0 else a.gamma() * b.gamma() / (a + b).gamma()


def _angle(y: arb, x: arb) -> Point:
    return None if x == 0 and y == 0 else arb.atan2(y, x)


def _sign(x: arb) -> arb:
    if x == 0:
        return arb(0)
    return x.sgn() if x > 0 or x < 0 else arb("nan")


def _exprel(x: arb) -> arb:
    return arb(1) if x == 0 else x.expm1() / x


def _middle(*values: arb) -> arb:
    """The middle value, the lower one of two. Lemma: its ends are the middle ones of all lower and all upper ends."""
    at = (len(values) - 1) // 2
    low, high = (_ordered(ends)[at] for ends in ([x.lower() for x in values], [x.upper() for x in values]))
    return low.union(high)


def _ordered(exact: list[arb]) -> list[arb]:
    """Numbers without a radius in their order, which balls as such do not have."""
    found: list[arb] = []
    for x in exact:
        found.insert(sum(bool(y < x) for y in found), x)
    return found


_ARITHMETIC: dict[str, Callable[..., arb]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
_ONE: dict[str, Callable[[arb], Point]] = {
    "sin": arb.sin,
    "cos": arb.cos,
    "tan": arb.tan,
    "asin": _within_one(arb.asin),
    "acos": _within_one(arb.acos),
    "atan": arb.atan,
    "exp": arb.exp,
    "log": _positive(arb.log),
    "sqrt": _root,
    "cbrt": _cube_root,
    "abs": abs,
    "tanh": arb.tanh,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "relu": lambda x: x.max(arb(0)),
    "erf": arb.erf,
    "lgamma": _positive(arb.lgamma),
    "floor": arb.floor,
    "ceil": arb.ceil,
    "sign": _sign,
    "sinrel": arb.sinc,
    "exprel": _exprel,
    "log2": _positive(lambda x: x.log() / arb(2).log()),
    "log10": _positive(lambda x: x.log() / arb(10).log()),
    "log1p": lambda x: None if x <= -1 else x.log1p(),
    "expm1": arb.expm1,
    "sinh": arb.sinh,
    "cosh": arb.cosh,
    "asinh": arb.asinh,
    "acosh": lambda x: None if x < 1 else x.acosh(),
    "atanh": lambda x: None if abs(x) >= 1 else x.atanh(),
    "erfc": arb.erfc,
    "sinc": arb.sinc_pi,
    "square": lambda x: x * x,
    "softplus": lambda x: x.exp().log1p(),
    "silu": lambda x: x / (1 + (-x).exp()),
    "gelu": lambda x: x * (-x / arb(2).sqrt()).erfc() / 2,
    "gamma": _positive(arb.gamma),
    "factorial": lambda x: None if x <= -1 else (x + 1).gamma(),
    "sec": arb.sec,
    "csc": arb.csc,
    "cot": arb.cot,
    "sech": arb.sech,
    "csch": arb.csch,
    "coth": arb.coth,
    "radians": lambda x: x * arb.pi() / HALF_ANGLE,
    "degrees": lambda x: x * HALF_ANGLE / arb.pi(),
}
_SAME = {
    "ln": "log",
    "sgn": "sign",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    **{f"arc{name[1:]}": name for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
}
MEANINGS: dict[str, Callable[..., Row]] = {
    **{name: partial(each, own) for name, own in _ONE.items()},
    **{name: partial(each, _ONE[same]) for name, same in _SAME.items()},
    "min": partial(each, lambda *values: reduce(arb.min, values)),
    "max": partial(each, lambda *values: reduce(arb.max, values)),
    "hypot": partial(each, lambda *values: sum((x * x for x in values), arb(0)).sqrt()),
    "median": partial(each, _middle),
    "clip": partial(each, lambda x, low, high: x.max(low).min(high)),
    "mod": partial(each, lambda a, b: a - b * (a / b).floor()),
    "atan2": partial(each, _angle),
    "arctan2": partial(each, _angle),
    "beta": partial(each, _beta),
    "pow": power,
}
