"""The functions of the formula language: primitives of the syntax tree, and names that expand into primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from inspect import signature
from itertools import pairwise

from onelayer.errors import FormulaError
from onelayer.language.conditions import Not, Positive
from onelayer.language.operations import OPERATIONS
from onelayer.language.term import Term, applied
from onelayer.language.tree import Tape

MANY = 1000  # arguments of a function such as max
REFUSED = frozenset({"round", "trunc", "frac", "step", "heaviside", "fmod"})

exp, log, sqrt, sigmoid, tanh = map(applied, ("exp", "log", "sqrt", "sigmoid", "tanh"))
sin, cos, erf, lgamma, floor = map(applied, ("sin", "cos", "erf", "lgamma", "floor"))
sinrel, smaller, larger = map(applied, ("sinrel", "min", "max"))


@dataclass(frozen=True, slots=True)
class Function:
    """A function name: its number of arguments and how it is written on a tape."""

    build: Callable[[Tape, Sequence[int]], int]
    least: int = 1
    most: int = 1


def written(formula: Callable[..., Term]) -> Function:
    """A function of as many arguments as its formula has: ``written(lambda x: exp(x) - 1)``."""
    count = len(signature(formula).parameters)

    def build(tape: Tape, args: Sequence[int]) -> int:
        return formula(*(Term(tape, at) for at in args)).at

    return Function(build, count, count)


def _primitive(op: str) -> Function:
    return Function(lambda tape, args: tape.add(op, args[0]))


def _fold(op: str) -> Function:
    def build(tape: Tape, args: Sequence[int]) -> int:
        return reduce(lambda a, b: tape.add(op, a, b), args)

    return Function(build, 2, MANY)


def _pi(x: Term) -> Term:
    return Term(x.tape, x.tape.add("pi"))


def _hypot(tape: Tape, args: Sequence[int]) -> int:
    """sqrt(a**2 + b**2 + ...)"""
    squares = [Term(tape, arg) ** 2 for arg in args]
    return sqrt(reduce(Term.__add__, squares)).at


def _logarithm(base: float) -> Function:
    return written(lambda x: log(x) / log(x.number(base)))


def _cosh(x: Term) -> Term:
    return (exp(x) + exp(-x)) / 2


def _sinh(x: Term) -> Term:
    return (exp(x) - exp(-x)) / 2


def _sign(x: Term) -> Term:
    """Chosen as a text chooses, so that what is written of it reads back as the same tree."""
    zero = x.number(0)
    one = x.number(1)
    below = Positive((-x).at).choose(x.tape, (-one).at, zero.at)
    return Term(x.tape, Positive(x.at).choose(x.tape, one.at, below))


def _atan2(tape: Tape, args: Sequence[int]) -> int:
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
    # Left of the y axis: a half turn more above the cut, and on it, a half turn less below.
    further = tape.add("add", slope, pi)
    back = tape.add("sub", slope, pi)
    left = Not(Positive(minus_y)).choose(tape, further, back)
    beside = Positive(x).choose(tape, slope, left)
    below = Positive(tape.add("sub", minus_y, size))
    above = Positive(tape.add("sub", y, size))
    downward = tape.add("neg", tape.add("add", half, other))
    upright = below.choose(tape, downward, beside)
    return above.choose(tape, tape.add("sub", half, other), upright)


def _median(tape: Tape, args: Sequence[int]) -> int:
    """The middle value, the lower one of two, by exchanges (min, max) of neighbours"""
    # Bubble sort: which arguments are compared does not depend on their values, as a formula needs it.
    rows = list(args)
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            pair = rows[at], rows[at + 1]
            rows[at] = tape.add("min", *pair)
            rows[at + 1] = tape.add("max", *pair)
    return rows[(len(rows) - 1) // 2]


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
        rise = tape.add("sub", high, low)
        run = tape.add("sub", stop, start)
        slopes.append(tape.add("div", rise, run))
    # A line through one place is flat, and has a value where x has one.
    slopes = slopes or ([] if tape.total[x] else [tape.number(0)])
    # s_0 - 0, then s_k - s_{k-1}, then 0 - s_last.
    bends = slopes[:1]
    bends += [tape.add("sub", after, before) for before, after in pairwise(slopes)]
    bends += [tape.add("neg", slope) for slope in slopes[-1:]]
    total = values[0]
    for place, bend in zip(places, bends, strict=False):
        beyond = x if tape.exact[place] == 0 else tape.add("sub", x, place)
        ramp = tape.add("relu", beyond)
        total = tape.add("add", total, tape.add("mul", bend, ramp))
    return total


FUNCTIONS: dict[str, Function] = {
    **{row.name: _primitive(row.name) for row in OPERATIONS.values() if row.arity == 1 and row.name != "neg"},
    "min": _fold("min"),
    "max": _fold("max"),
    "hypot": Function(_hypot, 2, MANY),
    "clip": written(lambda x, low, high: smaller(larger(x, low), high)),
    "median": Function(_median, 2, MANY),
    "atan2": Function(_atan2, 2, 2),
    "erfc": written(lambda x: 1 - erf(x)),
    "sinc": written(lambda x: sinrel(_pi(x) * x)),  # what NumPy and torch call sinc: sin(pi x) / (pi x), 1 at 0
    "asinh": written(lambda x: log(x + sqrt(x**2 + 1))),  # x + sqrt(x**2 + 1) > 0 for every x
    "acosh": written(lambda x: log(x + sqrt(x - 1) * sqrt(x + 1))),  # the product of roots excludes x <= -1
    "atanh": written(lambda x: (log(1 + x) - log(1 - x)) / 2),
    "ceil": written(lambda x: -floor(-x)),
    "mod": written(lambda a, b: a - b * floor(a / b)),  # which has the sign of b
    "sign": written(_sign),
    "ln": _primitive("log"),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "log1p": written(lambda x: log(1 + x)),
    "expm1": written(lambda x: exp(x) - 1),
    "sinh": written(_sinh),
    "cosh": written(_cosh),
    "square": written(lambda x: x**2),
    "softplus": written(lambda x: log(1 + exp(x))),
    "silu": written(lambda x: x * sigmoid(x)),
    "gelu": written(lambda x: x / 2 * (1 + erf(x / sqrt(x.number(2))))),
}
# Names that a variable or a part may have instead: gamma is a function only where nothing else is called so.
SOFT: dict[str, Function] = {
    "gamma": written(lambda x: exp(lgamma(x))),  # for x > 0
    "factorial": written(lambda x: exp(lgamma(x + 1))),
    "beta": written(lambda a, b: exp(lgamma(a) + lgamma(b) - lgamma(a + b))),
    "sec": written(lambda x: 1 / cos(x)),
    "csc": written(lambda x: 1 / sin(x)),
    "cot": written(lambda x: cos(x) / sin(x)),
    "sech": written(lambda x: 1 / _cosh(x)),
    "csch": written(lambda x: 1 / _sinh(x)),
    "coth": written(lambda x: 1 / tanh(x)),
    "pow": Function(lambda tape, args: tape.power(*args), 2, 2),
    "sgn": written(_sign),
    **dict.fromkeys(("radians", "deg2rad"), written(lambda x: x * _pi(x) / 180)),
    **dict.fromkeys(("degrees", "rad2deg"), written(lambda x: x * 180 / _pi(x))),
    **{name: FUNCTIONS[row.name] for row in OPERATIONS.values() for name in row.spellings if name.startswith("arc")},
    **{f"arc{name[1:]}": FUNCTIONS[name] for name in ("atan2", "asinh", "acosh", "atanh")},
}
FUNCTIONS |= SOFT
