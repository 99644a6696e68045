"""The functions of the formula language: primitives of the syntax tree, and names that expand into primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from onelayer.errors import FormulaError
from onelayer.language.conditions import Not, Positive
from onelayer.language.operations import OPERATIONS, POWER
from onelayer.language.tree import Tape

MANY = 1000  # arguments of a function such as max
REFUSED = frozenset({"round", "trunc", "frac", "step", "heaviside", "fmod"})


@dataclass(frozen=True, slots=True)
class Function:
    """A function name: its number of arguments and how it is written on a tape."""

    build: Callable[[Tape, Sequence[int]], int]
    least: int = 1
    most: int = 1


def _primitive(op: str) -> Function:
    return Function(lambda tape, args: tape.add(op, args[0]))


def _fold(op: str) -> Function:
    return Function(lambda tape, args: reduce(lambda a, b: tape.add(op, a, b), args), 2, MANY)


def hypot(tape: Tape, args: Sequence[int]) -> int:
    """sqrt(a**2 + b**2 + ...)"""
    squares = [tape.add(POWER, arg, value=2) for arg in args]
    return tape.add("sqrt", reduce(lambda a, b: tape.add("add", a, b), squares))


def logarithm(base: float) -> Callable[[Tape, Sequence[int]], int]:
    """log(x) / log(base)"""
    return lambda tape, args: tape.add("div", tape.add("log", args[0]), tape.add("log", tape.number(base)))


def log1p(tape: Tape, args: Sequence[int]) -> int:
    """log(1 + x)"""
    return tape.add("log", tape.add("add", tape.number(1), args[0]))


def expm1(tape: Tape, args: Sequence[int]) -> int:
    """exp(x) - 1"""
    return tape.add("sub", tape.add("exp", args[0]), tape.number(1))


def sinh(tape: Tape, args: Sequence[int]) -> int:
    """(exp(x) - exp(-x)) / 2"""
    plus = tape.add("exp", args[0])
    minus = tape.add("exp", tape.add("neg", args[0]))
    return tape.add("div", tape.add("sub", plus, minus), tape.number(2))


def cosh(tape: Tape, args: Sequence[int]) -> int:
    """(exp(x) + exp(-x)) / 2"""
    plus = tape.add("exp", args[0])
    minus = tape.add("exp", tape.add("neg", args[0]))
    return tape.add("div", tape.add("add", plus, minus), tape.number(2))


def softplus(tape: Tape, args: Sequence[int]) -> int:
    """log(1 + exp(x))"""
    return log1p(tape, [tape.add("exp", args[0])])


def silu(tape: Tape, args: Sequence[int]) -> int:
    """x sigmoid(x)"""
    return tape.add("mul", args[0], tape.add("sigmoid", args[0]))


def gelu(tape: Tape, args: Sequence[int]) -> int:
    """x/2 (1 + erf(x / sqrt 2))"""
    inner = tape.add("erf", tape.add("div", args[0], tape.add("sqrt", tape.number(2))))
    half = tape.add("div", args[0], tape.number(2))
    return tape.add("mul", half, tape.add("add", tape.number(1), inner))


def erfc(tape: Tape, args: Sequence[int]) -> int:
    """1 - erf(x)"""
    return tape.add("sub", tape.number(1), tape.add("erf", args[0]))


def sinc(tape: Tape, args: Sequence[int]) -> int:
    """sin(pi x) / (pi x), 1 at 0: what NumPy and torch call sinc"""
    return tape.add("sinrel", tape.add("mul", tape.add("pi"), args[0]))


def asinh(tape: Tape, args: Sequence[int]) -> int:
    """log(x + sqrt(x**2 + 1)), which is positive inside"""
    root = tape.add("sqrt", tape.add("add", tape.add(POWER, args[0], value=2), tape.number(1)))
    return tape.add("log", tape.add("add", args[0], root))


def acosh(tape: Tape, args: Sequence[int]) -> int:
    """log(x + sqrt(x - 1) sqrt(x + 1)), for x >= 1"""
    one = tape.number(1)
    roots = [tape.add("sqrt", tape.add(op, args[0], one)) for op in ("sub", "add")]
    return tape.add("log", tape.add("add", args[0], tape.add("mul", *roots)))


def atanh(tape: Tape, args: Sequence[int]) -> int:
    """(log(1 + x) - log(1 - x)) / 2"""
    one = tape.number(1)
    above, below = (tape.add("log", tape.add(op, one, args[0])) for op in ("add", "sub"))
    return tape.add("div", tape.add("sub", above, below), tape.number(2))


def atan2(tape: Tape, args: Sequence[int]) -> int:
    """The angle of the point (x, y), in (-pi, pi], from arguments y and x; undefined at the origin.

    Lemma: in each of the four sectors between the diagonals it is a constant plus the arctangent of a quotient whose
    denominator vanishes at the origin alone. On a diagonal, which belongs to the sector of the x axis, both quotients
    have values and agree; a box across it leaves that one choice open. Across the cut, the negative x axis, it jumps by
    2 pi.
    """
    y, x = args
    pi = tape.add("pi")
    minus_y = tape.add("neg", y)
    size = tape.add("abs", x)
    half = tape.add("div", pi, tape.number(2))
    slope = tape.add("atan", tape.add("div", y, x))
    other = tape.add("atan", tape.add("div", x, y))
    left = Not(Positive(minus_y)).choose(tape, tape.add("add", slope, pi), tape.add("sub", slope, pi))
    beside = Positive(x).choose(tape, slope, left)
    below = Positive(tape.add("sub", minus_y, size))
    above = Positive(tape.add("sub", y, size))
    upright = below.choose(tape, tape.add("neg", tape.add("add", half, other)), beside)
    return above.choose(tape, tape.add("sub", half, other), upright)


def _gamma(tape: Tape, args: Sequence[int]) -> int:
    """exp(lgamma(x)), for x > 0"""
    return tape.add("exp", tape.add("lgamma", args[0]))


def _factorial(tape: Tape, args: Sequence[int]) -> int:
    """x! = gamma(x + 1), for x > -1"""
    return _gamma(tape, [tape.add("add", args[0], tape.number(1))])


def _beta(tape: Tape, args: Sequence[int]) -> int:
    """gamma(a) gamma(b) / gamma(a + b), for a, b > 0"""
    a, b, both = (tape.add("lgamma", at) for at in (*args, tape.add("add", *args)))
    return tape.add("exp", tape.add("sub", tape.add("add", a, b), both))


def _inverse(build: Callable[[Tape, Sequence[int]], int]) -> Function:
    """1 / f"""
    return Function(lambda tape, args: tape.add("div", tape.number(1), build(tape, args)))


def _cotangent(tape: Tape, args: Sequence[int]) -> int:
    """cos(x) / sin(x)"""
    return tape.add("div", tape.add("cos", args[0]), tape.add("sin", args[0]))


def _radians(tape: Tape, args: Sequence[int]) -> int:
    """x pi / 180"""
    return tape.add("div", tape.add("mul", args[0], tape.add("pi")), tape.number(180))


def _degrees(tape: Tape, args: Sequence[int]) -> int:
    """x 180 / pi"""
    return tape.add("div", tape.add("mul", args[0], tape.number(180)), tape.add("pi"))


def clip(tape: Tape, args: Sequence[int]) -> int:
    """min(max(x, low), high)"""
    return tape.add("min", tape.add("max", args[0], args[1]), args[2])


def median(tape: Tape, args: Sequence[int]) -> int:
    """The middle value, the lower one of two, by exchanges (min, max) of neighbours"""
    rows = list(args)
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            pair = rows[at], rows[at + 1]
            rows[at] = tape.add("min", *pair)
            rows[at + 1] = tape.add("max", *pair)
    return rows[(len(rows) - 1) // 2]


def ceil(tape: Tape, args: Sequence[int]) -> int:
    """-floor(-x)"""
    return tape.add("neg", tape.add("floor", tape.add("neg", args[0])))


def _modulo(tape: Tape, args: Sequence[int]) -> int:
    """a - b floor(a / b), which has the sign of b"""
    a, b = args
    return tape.add("sub", a, tape.add("mul", b, tape.add("floor", tape.add("div", a, b))))


def sign(tape: Tape, args: Sequence[int]) -> int:
    """1, 0 or -1"""
    zero = tape.number(0)
    one = tape.number(1)
    below = tape.add("where", tape.add("neg", args[0]), tape.number(-1), zero)
    return tape.add("where", args[0], one, below)


def _need_places(tape: Tape, places: Sequence[int], values: Sequence[int]) -> None:
    """As many values as places, and places that are known numbers in order."""
    known = [tape.exact[at] for at in places]
    if len(places) != len(values) or not places:
        raise FormulaError(f"interp needs as many values as places, got {len(places)} and {len(values)}")
    if any(a is None or b is None or not a < b for a, b in pairwise(known)):
        raise FormulaError("the places of interp must be numbers that ascend, as in interp(x, [0, 1, 3], [5, 2, 4])")


def interpolate(tape: Tape, x: int, places: Sequence[int], values: Sequence[int]) -> int:
    """The broken line through (places, values), constant beyond its ends.

    Lemma: with slopes s_k from place k to the next and s = 0 beyond both ends it is
    values[0] + sum_k (s_k - s_{k-1}) relu(x - places[k]).
    """
    _need_places(tape, places, values)
    slopes: list[int] = []
    for (start, stop), (low, high) in zip(pairwise(places), pairwise(values), strict=True):
        slopes.append(tape.add("div", tape.add("sub", high, low), tape.add("sub", stop, start)))
    bends = [*slopes[:1], *(tape.add("sub", after, before) for before, after in pairwise(slopes))]
    bends += [tape.add("neg", slope) for slope in slopes[-1:]]
    total = values[0]
    for place, bend in zip(places, bends, strict=False):
        ramp = tape.add("relu", x if tape.exact[place] == 0 else tape.add("sub", x, place))
        total = tape.add("add", total, tape.add("mul", bend, ramp))
    return total


FUNCTIONS: dict[str, Function] = {
    **{row.name: _primitive(row.name) for row in OPERATIONS.values() if row.arity == 1 and row.name != "neg"},
    "min": _fold("min"),
    "max": _fold("max"),
    "hypot": Function(hypot, 2, MANY),
    "clip": Function(clip, 3, 3),
    "median": Function(median, 2, MANY),
    "atan2": Function(atan2, 2, 2),
    "erfc": Function(erfc),
    "sinc": Function(sinc),
    "asinh": Function(asinh),
    "acosh": Function(acosh),
    "atanh": Function(atanh),
    "ceil": Function(ceil),
    "mod": Function(_modulo, 2, 2),
    "sign": Function(sign),
    "ln": _primitive("log"),
    "log2": Function(logarithm(2.0)),
    "log10": Function(logarithm(10.0)),
    "log1p": Function(log1p),
    "expm1": Function(expm1),
    "sinh": Function(sinh),
    "cosh": Function(cosh),
    "square": Function(lambda tape, args: tape.add(POWER, args[0], value=2)),
    "softplus": Function(softplus),
    "silu": Function(silu),
    "gelu": Function(gelu),
}
# Names that a variable or a part may have instead: gamma is a function only where nothing else is called so.
SOFT: dict[str, Function] = {
    "gamma": Function(_gamma),
    "factorial": Function(_factorial),
    "beta": Function(_beta, 2, 2),
    "sec": _inverse(_primitive("cos").build),
    "csc": _inverse(_primitive("sin").build),
    "cot": Function(_cotangent),
    "sech": _inverse(cosh),
    "csch": _inverse(sinh),
    "coth": _inverse(_primitive("tanh").build),
    "pow": Function(lambda tape, args: tape.power(*args), 2, 2),
    "sgn": Function(sign),
    **dict.fromkeys(("radians", "deg2rad"), Function(_radians)),
    **dict.fromkeys(("degrees", "rad2deg"), Function(_degrees)),
    **{name: FUNCTIONS[row.name] for row in OPERATIONS.values() for name in row.spellings if name.startswith("arc")},
    **{f"arc{name[1:]}": FUNCTIONS[name] for name in ("atan2", "asinh", "acosh", "atanh")},
}
FUNCTIONS |= SOFT
