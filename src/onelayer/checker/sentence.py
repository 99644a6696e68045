"""The checker's own reader of formula text, written from docs/formula-language.md: it computes while it reads.

statements   name = number; ... number; ...
condition    or, and, not, comparisons (a < b < c), brackets
number       + -, then * /, then signs, then ** to the right, then names, numbers, calls, brackets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise

from flint import arb, ctx

from onelayer.checker import facets, splines
from onelayer.checker.meanings import MEANINGS, Point, Row, arithmetic, each, negative, power
from onelayer.errors import FormulaError
from onelayer.language.knots import Facets, Spline

CONSTANTS: dict[str, Callable[[], arb]] = {"pi": arb.pi, "π": arb.pi, "e": arb.const_e}
LETTERS = "xyz"
DIGITS = "0123456789"
TABLES = ("spline", "facets")
SIGNS = ("**", "<=", ">=", "==", "!=", *"+-*/(),;=<>[]")
SPELLED = {"−": "-", "–": "-", "·": "*", "×": "*", "⋅": "*", "÷": "/"}
Truth = bool | None  # None where a comparison is not decided


class Unread(Exception):
    """A text that this reader does not understand."""


@dataclass(frozen=True)
class Truths:
    """Whether it holds at each point."""

    values: tuple[Truth, ...]


Value = Row | Truths


def words(text: str) -> list[str]:
    """Numbers, names and signs, in their order."""
    text = "".join(SPELLED.get(letter, letter) for letter in text)
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end = _end(text, at)
        if end == at:
            raise Unread(f"{text[at]!r} is no part of a formula")
        found.append(text[at:end])
        at = end
    return found


def _end(text: str, at: int) -> int:
    """Where the word ends that begins here; here where none does."""
    sign = next((sign for sign in SIGNS if text.startswith(sign, at)), None)
    if sign is not None:
        return at + len(sign)
    return _number(text, at) if text[at] in f".{DIGITS}" else _name(text, at)


def _digits(text: str, at: int) -> int:
    while at < len(text) and text[at] in DIGITS:
        at += 1
    return at


def _number(text: str, at: int) -> int:
    """Where a number ends: digits, a point, digits, an exponent."""
    end = _digits(text, at)
    if text[end : end + 1] == ".":
        end = _digits(text, end + 1)
    if end == at + 1 and text[at] == ".":
        return at
    if text[end : end + 1] in ("e", "E"):
        first = end + 1 + (text[end + 1 : end + 2] in ("+", "-"))
        last = _digits(text, first)
        return last if last > first else end
    return end


def _name(text: str, at: int) -> int:
    end = at
    while end < len(text) and (text[end].isalpha() or text[end] == "_" or (end > at and text[end] in DIGITS)):
        end += 1
    return end


class Sentence:
    """One text at some points. ``names`` are those of the coordinates, beside x1 ... xD and x, y, z."""

    def __init__(self, text: str, points: Sequence[Sequence[float]], names: Sequence[str] = ()) -> None:
        self.words = words(text)
        self.at = 0
        self.count = len(points)
        rows = [Row(tuple(map(arb, column))) for column in zip(*points, strict=True)]
        self.known = dict(zip(names, rows, strict=False))
        self.coordinates = {f"x{at}": row for at, row in enumerate(rows, start=1)}
        if len(rows) <= len(LETTERS):
            self.coordinates |= dict(zip(LETTERS, rows, strict=False))

    def outputs(self) -> list[Row]:
        """The values of every output."""
        found = []
        while self.at < len(self.words):
            if self._ahead(1) == "=":
                name = self._take()
                self._need("=")
                self.known = self.known | {name: self._number()}
            else:
                found.append(self._number())
            if self.at < len(self.words):
                self._need(";")
        return found

    def condition(self) -> tuple[Truth, ...]:
        """Where a condition holds."""
        found = _as_condition(self._either())
        if self.at < len(self.words):
            raise Unread(f"{self._ahead()[:20]!r} follows the condition")
        return found.values

    def _ahead(self, places: int = 0) -> str:
        return self.words[self.at + places] if self.at + places < len(self.words) else ""

    def _take(self) -> str:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ""

    def _met(self, *wanted: str) -> str:
        """Take the next word if it is one of these."""
        return self._take() if self._ahead() in wanted else ""

    def _need(self, wanted: str) -> None:
        if not self._met(wanted):
            raise Unread(f"{wanted!r} was expected, not {self._ahead()[:20]!r}")

    def _number(self) -> Row:
        return _as_number(self._either())

    def _either(self) -> Value:
        value = self._both()
        while self._met("or"):
            value = _joined(value, self._both(), True)
        return value

    def _both(self) -> Value:
        value = self._compared()
        while self._met("and"):
            value = _joined(value, self._compared(), False)
        return value

    def _compared(self) -> Value:
        if self._met("not"):
            inner = _as_condition(self._compared())
            return Truths(tuple(None if v is None else not v for v in inner.values))
        left = self._sum()
        found: Value | None = None
        while sign := self._met(*_COMPARISONS):
            right = self._sum()
            one = self._truth(sign, _as_number(left), _as_number(right))
            found = one if found is None else _joined(found, one, False)
            left = right
        return left if found is None else found

    def _truth(self, sign: str, a: Row, b: Row) -> Truths:
        return Truths(tuple(_holds(sign, x, y) for x, y in zip(self._wide(a), self._wide(b), strict=True)))

    def _wide(self, row: Row) -> tuple[Point, ...]:
        return row.values if len(row.values) == self.count else row.values * self.count

    def _sum(self) -> Value:
        value = self._product()
        while sign := self._met("+", "-"):
            value = arithmetic(sign, _as_number(value), _as_number(self._product()))
        return value

    def _product(self) -> Value:
        value = self._signed()
        while sign := self._met("*", "/"):
            value = arithmetic(sign, _as_number(value), _as_number(self._signed()))
        return value

    def _signed(self) -> Value:
        minus = False
        while sign := self._met("+", "-"):
            minus ^= sign == "-"
        value = self._atom()
        if self._met("**"):
            value = power(_as_number(value), _as_number(self._signed()))
        return negative(_as_number(value)) if minus else value

    def _atom(self) -> Value:
        word = self._take()
        if word == "(":
            value = self._either()
            self._need(")")
            return value
        if word[:1] and word[0] in f".{DIGITS}":
            return _literal(float(word))
        if word in self.known:
            return self.known[word]
        if word in CONSTANTS:
            return Row((CONSTANTS[word](),))
        if word in self.coordinates:
            return self.coordinates[word]
        if self._met("("):
            return self._call(word)
        raise Unread(f"{word[:20]!r} has no meaning here")

    def _call(self, name: str) -> Row:
        if name == "where":
            condition = _as_condition(self._either())
            self._need(",")
            a, b = self._arguments()
            return self._chosen(condition, a, b)
        args = self._arguments()
        if name in (*TABLES, "interp"):
            lists = [self._list()]
            while self._met(","):
                lists.append(self._list())
            self._need(")")
            return _line(args, lists) if name == "interp" else _table(name, args, lists)
        if name not in MEANINGS:
            raise Unread(f"{name[:20]!r} is no function")
        return MEANINGS[name](*args)

    def _arguments(self) -> list[Row]:
        """Numbers up to the closing bracket, or up to the comma before a list."""
        found = [self._number()]
        while self._met(","):
            if self._ahead() == "[":
                return found
            found.append(self._number())
        self._need(")")
        return found

    def _list(self) -> list[Row]:
        self._need("[")
        found = [self._number()]
        while self._met(","):
            found.append(self._number())
        self._need("]")
        return found

    def _chosen(self, condition: Truths, a: Row, b: Row) -> Row:
        sides = zip(condition.values, self._wide(a), self._wide(b), strict=True)
        return Row(tuple(arb("nan") if held is None else first if held else second for held, first, second in sides))


def _as_number(value: Value) -> Row:
    if not isinstance(value, Row):
        raise Unread("a condition stands for a number")
    return value


def _as_condition(value: Value) -> Truths:
    if not isinstance(value, Truths):
        raise Unread("a number stands for a condition")
    return value


def _joined(first: Value, second: Value, either: bool) -> Truths:
    """By ``or`` where it is ``either``, else by ``and``: what decides alone decides, whatever the other one is."""
    pairs = zip(_as_condition(first).values, _as_condition(second).values, strict=True)
    found: list[Truth] = []
    for pair in pairs:
        found.append(either if either in pair else None if None in pair else not either)
    return Truths(tuple(found))


# Whether a comparison is sure to hold, and whether it is sure to fail: what Arb does not answer with yes is open.
_COMPARISONS: dict[str, tuple[Callable[[arb, arb], bool], Callable[[arb, arb], bool]]] = {
    "<": (lambda a, b: bool(a < b), lambda a, b: bool(a >= b)),
    "<=": (lambda a, b: bool(a <= b), lambda a, b: bool(a > b)),
    ">": (lambda a, b: bool(a > b), lambda a, b: bool(a <= b)),
    ">=": (lambda a, b: bool(a >= b), lambda a, b: bool(a < b)),
    "==": (lambda a, b: bool(a == b), lambda a, b: bool(a != b)),
    "!=": (lambda a, b: bool(a != b), lambda a, b: bool(a == b)),
}


def _holds(sign: str, a: Point, b: Point) -> Truth:
    """A comparison of two values; open where one of them is none or not known."""
    if a is None or b is None or a.is_nan() or b.is_nan():
        return None
    holds, fails = _COMPARISONS[sign]
    if holds(a, b):
        return True
    return False if fails(a, b) else None


def _literal(value: float) -> Row:
    """The float64 nearest to a decimal, exactly."""
    number = arb(value)
    if not number.is_finite():
        raise Unread("a number is too large")
    return Row((number,), Fraction(value))


def _rational(row: Row) -> Fraction:
    if row.exact is None:
        raise Unread("a list holds what is no number")
    return row.exact


def _table(name: str, args: Sequence[Row], lists: Sequence[Sequence[Row]]) -> Row:
    """A table of floats by the enclosures of the checker, on boxes that are points."""
    data = [[float(_rational(row)) for row in one] for one in lists]
    try:
        if name == "facets":
            image = partial(facets.image, Facets(len(args), *data), ctx.prec)
        else:
            degrees, *knots, coefficients = data
            image = partial(splines.image, Spline([int(degree) for degree in degrees], knots, coefficients))
    except (FormulaError, TypeError) as error:
        raise Unread(f"a table of {name}: {error}") from None

    def at(*point: arb) -> arb:
        low, high = image(*((x.lower(), x.upper()) for x in point))
        return low.union(high)

    return each(at, *args)


def _line(args: Sequence[Row], lists: Sequence[Sequence[Row]]) -> Row:
    """The broken line: the value on the segment that holds x, the first or the last one beyond them."""
    if len(args) != 1 or len(lists) != 2:
        raise Unread("interp takes a number, places and values")
    exact = [_rational(row) for row in lists[0]]
    places = [arb(place.numerator) / place.denominator for place in exact]

    def at(x: arb, *heights: arb) -> arb:
        if x <= places[0]:
            return heights[0]
        if x >= places[-1]:
            return heights[-1]
        for (low, start), (high, stop) in pairwise(zip(places, heights, strict=True)):
            if low <= x <= high:
                return start + (x - low) / (high - low) * (stop - start)
        return arb("nan")

    return each(at, args[0], *lists[1])
