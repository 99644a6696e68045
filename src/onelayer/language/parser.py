"""From text to syntax tree: a precedence-climbing parser over a whitelist. Nothing is ever evaluated.

Grammar, loosest first: statements separated by ``;`` (``name = expression`` or an output), ``or``, ``and``, ``not``,
comparisons, ``+ -``, ``* /``, unary minus, ``**`` (to the right), and names, numbers, calls and parentheses. A
condition is no number: it may stand as the first argument of ``where`` and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from onelayer.errors import FormulaError
from onelayer.language.conditions import COMPARISONS, Both, Condition, Not, either
from onelayer.language.constants import SPELLED
from onelayer.language.functions import FUNCTIONS, REFUSED, SOFT, interpolate
from onelayer.language.hints import of_name
from onelayer.language.knots import DEGREES, Facets, Spline
from onelayer.language.lexemes import MAX_CHARACTERS, Cursor, Lexeme, tokenize
from onelayer.language.operations import FACETS, OPERATIONS, SPLINE
from onelayer.language.tree import Tape

MAX_DEPTH = 64  # of brackets, well below Python's own recursion limit
MAX_VARIABLES = 4096  # x1 to x4096

_VARIABLE = re.compile(r"x([1-9][0-9]*)")
_LETTERS = {"x": 0, "y": 1, "z": 2}
_INFIX = [(row.infix, row.name) for row in OPERATIONS.values() if row.infix is not None]
_LOOSE = {infix.sign: (infix.level, name) for infix, name in _INFIX}
SPECIAL = {
    "where": "where(x > 0, a, b)",
    "interp": "interp(x, [0, 1, 3], [5, 2, 4])",
    SPLINE: "spline(x, [1], [-1, 0, 1, 2], [5, 4])",
    FACETS: "facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3], [0, 1, 2])",
}
_MEANT = {*FUNCTIONS, *SPECIAL, *REFUSED, *SPELLED, "and", "or", "not"}
RESERVED = frozenset(_MEANT - {*SOFT})
Value = int | Condition  # a node, or a condition


class Parser(Cursor):
    """Reads one text onto a tape. ``dim`` is the number of variables, None to take it from the text.

    ``names`` are names of the variables, in their order; x1 ... xD are always understood too.
    """

    def __init__(
        self, text: str, dim: int | None = None, limit: int = MAX_CHARACTERS, names: Sequence[str] = ()
    ) -> None:
        super().__init__(tokenize(text, limit))
        self.depth = 0
        self.dim = dim
        self.names = {name: at for at, name in enumerate(names)}
        for name in self.names:
            if name in RESERVED:
                raise FormulaError(f"a variable cannot be called '{name}', which has a meaning; call it {name}1")
        self.tape = Tape()
        self.bound: dict[str, int] = {}
        self.used: dict[int, Lexeme] = {}
        self.letters: Lexeme | None = None
        self.numbered: Lexeme | None = None

    def statements(self) -> list[int]:
        """All statements to the end of the text; returns the outputs' nodes."""
        outputs: list[int] = []
        while self.next.kind != "end":
            if not self._binding():
                outputs.append(self.number())
            if self.next.kind != "end" and not self.accept(";"):
                raise self._misplaced(self.next)
        if not outputs:
            raise self.error("no output expression; write for example sin(x1) + x2")
        return outputs

    def _binding(self) -> bool:
        """``name = expression``, which is no output but gives the name a meaning."""
        name = self.accept_binding()
        if name is None:
            return False
        if self._reserved(name.text) or name.text in self.bound:
            raise self.error(f"'{name.text}' already has a meaning; choose another name such as t1", name)
        self.bound[name.text] = self.number()
        return True

    def _reserved(self, name: str) -> bool:
        known = name in RESERVED or name in _LETTERS or name in self.names
        return known or _VARIABLE.fullmatch(name) is not None

    def number(self) -> int:
        """An expression that is no condition."""
        start = self.next
        return self._numeric(self.expression(), start)

    def _numeric(self, value: Value, token: Lexeme) -> int:
        if not isinstance(value, int):
            raise self.error("a comparison is no number; choose by it, as in where(x > 0, x, 0)", token)
        return value

    def _logical(self, value: Value, token: Lexeme) -> Condition:
        if isinstance(value, int):
            raise self.error("a comparison such as x > 0 was expected here", token)
        return value

    def expression(self) -> Value:
        """A number or a condition: comparisons joined by ``and`` and ``or``."""
        start = self.next
        value = self._conjunction()
        while self.accept_word("or"):
            other = self.next
            left = self._logical(value, start)
            right = self._logical(self._conjunction(), other)
            value = either(left, right)
        return value

    def _conjunction(self) -> Value:
        start = self.next
        value = self._comparison()
        while self.accept_word("and"):
            other = self.next
            left = self._logical(value, start)
            right = self._logical(self._comparison(), other)
            value = Both(left, right)
        return value

    def _comparison(self) -> Value:
        token = self.next
        if self.accept_word("not"):
            self._enter(token)
            following = self.next
            inner = self._logical(self._comparison(), following)
            self.depth -= 1
            return Not(inner)
        left: Value = self._sum()
        found: Condition | None = None
        while self.next.kind == "op" and self.next.text in COMPARISONS:
            sign = self.take()
            here = self.next
            a = self._numeric(left, token)
            right = self._sum()
            b = self._numeric(right, here)
            # a < b <= c holds where both comparisons do, as in Python.
            new = COMPARISONS[sign.text](self.tape, a, b)
            found = new if found is None else Both(found, new)
            left = right
        return left if found is None else found

    def _sum(self, level: int = 1) -> Value:
        """Precedence climbing: operators of at least ``level`` bind here."""
        first = self.next
        left = self._signed()
        while self.next.kind == "op" and self.next.text in _LOOSE:
            strength, op = _LOOSE[self.next.text]
            if strength < level:
                break
            token = self.take()
            here = self.next
            # Nothing looser than a sign binds inside a product, so its right side takes no level of recursion.
            tighter = self._sum(strength + 1) if strength < 2 else self._signed()
            right = self._numeric(tighter, here)
            left = self._guard(token, partial(self.tape.add, op, self._numeric(left, first), right))
        return left

    def _signed(self) -> Value:
        """Signs bind less than powers: -x**2 is -(x**2)."""
        negative = False
        first = self.next
        # In a loop: a row of a thousand signs must not recurse.
        while self.next.kind == "op" and self.next.text in "+-":
            negative ^= self.take().text == "-"
        value = self._power()
        if negative:
            return self._guard(first, partial(self.tape.add, "neg", self._numeric(value, first)))
        return value

    def _power(self) -> Value:
        first = self.next
        base = self._atom()
        token = self.next
        if not self.accept("**"):
            return base
        # To the right: a**b**c is a**(b**c), and a sign may stand before an exponent.
        self._enter(token)
        exponent = self._numeric(self._signed(), token)
        self.depth -= 1
        return self._guard(token, partial(self.tape.power, self._numeric(base, first), exponent))

    def _atom(self) -> Value:
        token = self.take()
        if token.kind == "number":
            return self._guard(token, lambda: self.tape.number(float(token.text)))
        if token.kind == "name":
            return self._name(token)
        if (token.kind, token.text) == ("op", "("):
            self._enter(token)
            value = self.expression()
            self._close(token)
            return value
        raise self._misplaced(token)

    def _name(self, token: Lexeme) -> int:
        """What a name means: first what the formula or the domain calls so, then what the language does."""
        name = token.text
        if name in self.bound:
            return self.bound[name]
        if name in self.names:
            self.used.setdefault(self.names[name], token)
            return self.tape.variable(self.names[name])
        if name in SPELLED:
            return self.tape.add(SPELLED[name])
        if name in _LETTERS or _VARIABLE.fullmatch(name):
            return self._variable(token)
        if name in REFUSED:
            raise self.error(f"{name} is not in the language; write it with floor, ceil, sign, mod or where", token)
        if name in FUNCTIONS or name in SPECIAL:
            return self._call(token)
        raise self._unknown(token)

    def _unknown(self, token: Lexeme) -> FormulaError:
        known = [*FUNCTIONS, *SPECIAL]
        return self.error(of_name(token.text, list(self.names), known), token)

    def _call(self, token: Lexeme) -> int:
        opening = self.next
        if not self.accept("("):
            raise self.error(f"{token.text} needs its argument in parentheses, as in {token.text}(x1)")
        self._enter(opening)
        if token.text in SPECIAL:
            return self._special(token, opening)
        function = FUNCTIONS[token.text]
        args = [self.number()]
        while self.accept(","):
            args.append(self.number())
        self._close(opening)
        if not function.least <= len(args) <= function.most:
            wanted = f"at least {function.least} arguments"
            if function.least == function.most:
                wanted = "one argument" if function.most == 1 else f"{function.most} arguments"
            raise self.error(f"{token.text} takes {wanted}, got {len(args)}", token)
        return self._guard(token, lambda: function.build(self.tape, args))

    def _special(self, token: Lexeme, opening: Lexeme) -> int:
        """where(condition, a, b), interp(x, [places], [values]), spline(...); the opening parenthesis is behind."""
        first = self.next
        what = SPECIAL[token.text]
        if token.text in (SPLINE, FACETS):
            return self._table(token, opening, what)
        if token.text == "where":
            condition = self._logical(self.expression(), first)
            a = self._after_comma(what)
            b = self._after_comma(what)
            build = partial(condition.choose, self.tape, a, b)
        else:
            x = self.number()
            places = self._list(what)
            values = self._list(what)
            build = partial(interpolate, self.tape, x, places, values)
        self._close(opening)
        return self._guard(token, build)

    def _table(self, token: Lexeme, opening: Lexeme, what: str) -> int:
        """spline(x, y, [degrees], [knots], [knots], [coefficients]), facets(x, y, [points], [values], [simplices])"""
        args = [self.number()]
        while self.following.text != "[" and self.accept(","):
            args.append(self.number())
        # Degrees, knots per axis, coefficients; or points, values, simplices.
        count = len(args) + 2 if token.text == SPLINE else 3
        lists = [self._literals(what) for _ in range(count)]
        self._close(opening)

        def build() -> int:
            if token.text == FACETS:
                facets = Facets(len(args), *lists)
                return self.tape.add(FACETS, *args, value=facets)
            degrees, *knots, coefficients = lists
            spline = Spline(_whole(degrees), knots, coefficients)
            return self.tape.add(SPLINE, *args, value=spline)

        return self._guard(token, build)

    def _literals(self, what: str) -> list[float]:
        """, [number, number, ...]: plain numbers, with a sign or without."""
        if not (self.accept(",") and self.accept("[")):
            raise self.error(f"write {what}")
        # No expressions: a table has thousands of numbers, and each would be a node.
        found: list[float] = []
        while not found or self.accept(","):
            negative = self.accept("-")
            if self.next.kind != "number":
                raise self.error(f"a plain number was expected; write {what}")
            value = float(self.take().text)
            found.append(-value if negative else value)
        if not self.accept("]"):
            raise self.error(f"write {what}")
        return found

    def _after_comma(self, what: str) -> int:
        if not self.accept(","):
            raise self.error(f"write {what}")
        return self.number()

    def _list(self, what: str) -> list[int]:
        """, [number, number, ...]"""
        if not (self.accept(",") and self.accept("[")):
            raise self.error(f"write {what}")
        found = [self.number()]
        while self.accept(","):
            found.append(self.number())
        if not self.accept("]"):
            raise self.error(f"write {what}")
        return found

    def _index(self, token: Lexeme) -> int:
        """The number of a variable, and which of the two styles names it."""
        if token.text in _LETTERS:
            self.letters = token
            return _LETTERS[token.text]
        digits = token.text[1:]
        self.numbered = token
        # A number of thousands of digits is not worth reading: it is beyond the last variable.
        if len(digits) <= 6:
            return int(digits) - 1
        return MAX_VARIABLES

    def _variable(self, token: Lexeme) -> int:
        index = self._index(token)
        if index >= MAX_VARIABLES:
            raise self.error(f"variable {token.text[:12]} is beyond x{MAX_VARIABLES}", token)
        if self.letters and self.numbered:
            raise self.error("x, y, z and x1, x2, ... are two names for the same variables; use one style", token)
        if self.dim is not None and self.letters and self.dim > 3:
            raise self.error(f"x, y, z are for at most 3 variables; write x1..x{self.dim}", token)
        if self.dim is not None and index >= self.dim:
            sides = "1 interval" if self.dim == 1 else f"{self.dim} intervals"
            raise self.error(f"variable {token.text}, but the domain has {sides}: it takes one per variable", token)
        self.used.setdefault(index, token)
        return self.tape.variable(index)

    def _enter(self, token: Lexeme) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nesting deeper than {MAX_DEPTH}; name the inner part first, as in t1 = ...;", token)

    def _close(self, opening: Lexeme) -> None:
        self.depth -= 1
        if not self.accept(")"):
            if self.next.kind == "end":
                raise self.error("this ( is never closed", opening)
            raise self._misplaced(self.next)

    def _misplaced(self, token: Lexeme) -> FormulaError:
        if token.kind == "end":
            return self.error("the formula ends where a value was expected", token)
        if token.text in ("[", "]"):
            return self.error("brackets are for the lists of interp; write x1, x2 for coordinates", token)
        hint = ""
        if token.text in ("if", "else"):
            return self.error("a choice is written where(x > 0, a, b)", token)
        if token.kind in ("name", "number") or token.text == "(":
            hint = "; write * between factors and an operator between terms"
        return self.error(f"unexpected '{token.text[:40]}'{hint}", token)

    def _guard(self, token: Lexeme, build: Callable[[], int]) -> int:
        """Name the column of what the tape refuses (overflow, huge exponents)."""
        try:
            return build()
        except FormulaError as error:
            raise self.error(str(error), token) from None


def _whole(degrees: Sequence[float]) -> list[int]:
    """The degrees of a spline; what is no whole number becomes one that is refused."""
    return [int(degree) if degree in DEGREES else 0 for degree in degrees]
