"""SymPy expressions as formulas: the tree is walked, nothing is evaluated or printed and read again."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any

from onelayer.errors import FormulaError, UnsupportedOperation
from onelayer.language.conditions import COMPARISONS, Both, Condition, Known, Not, either
from onelayer.language.formula import Formula
from onelayer.language.functions import FUNCTIONS
from onelayer.language.tree import Tape

_NAMES = {
    "Abs": "abs",
    "Max": "max",
    "Min": "min",
    "ceiling": "ceil",
    "Mod": "mod",
    "sinc": "sinrel",
    "loggamma": "lgamma",
}
_LARGEST = 2**53  # integers beyond are not all floats
_FARTHEST = 2000  # exponents of two of a number that may be a float64


def is_sympy(f: Any) -> bool:
    """Whether f is an expression of SymPy, a matrix or a list of them; SymPy is not imported for the question."""
    sympy = sys.modules.get("sympy")
    # Who has an expression of SymPy has imported it.
    if sympy is None:
        return False
    if isinstance(f, list | tuple):
        return bool(f) and any(isinstance(item, sympy.Basic) for item in f)
    return isinstance(f, sympy.Basic | sympy.MatrixBase)


def from_sympy(expression: Any, dim: int, names: Sequence[str] = ()) -> Formula:
    """The formula of an expression, or of several as its outputs.

    Symbols are the names of the box, x1 ... xD, the arguments of a Lambda in their order, or D symbols in alphabetical
    order.
    """
    try:
        return _read(expression, dim, names)
    # SymPy walks trees by recursion, and so does the reader.
    except RecursionError:
        raise FormulaError("the expression is nested too deeply; write it with fewer calls in one another") from None


def _read(expression: Any, dim: int, names: Sequence[str]) -> Formula:
    sympy = sys.modules["sympy"]
    arguments: list[str] = []
    if isinstance(expression, sympy.Lambda):
        arguments = [str(symbol) for symbol in expression.variables]
        expression = expression.expr
    several = isinstance(expression, list | tuple | sympy.MatrixBase | sympy.Tuple)
    outputs = [sympy.sympify(item) for item in expression] if several else [expression]
    reader = _SympyReader(_places(_symbols(outputs), arguments, dim, names))
    nodes = [reader.number(item) for item in outputs]
    shape = (len(nodes),) if several else ()
    return Formula.build(reader.tape.nodes, nodes, (dim,), shape)


def _symbols(outputs: Sequence[Any]) -> list[str]:
    """The names of all symbols, in the order of the alphabet."""
    found = {symbol for item in outputs for symbol in item.free_symbols}
    symbols = sorted({str(symbol) for symbol in found})
    # Symbol("x") and Symbol("x", positive=True) are two to SymPy.
    if len(symbols) < len(found):
        raise FormulaError(f"two symbols of the expression have one name among {', '.join(symbols)}; use one symbol")
    return symbols


def _places(symbols: Sequence[str], arguments: Sequence[str], dim: int, names: Sequence[str]) -> dict[str, int]:
    """The coordinate of every symbol, by the first list that knows all of them."""
    # First by name, then by order: who named the symbols after the box means those names.
    for known in (names, [f"x{at + 1}" for at in range(dim)]):
        if set(symbols) <= set(known):
            return {name: at for at, name in enumerate(known)}
    if len(arguments) == dim:
        return {name: at for at, name in enumerate(arguments)}
    if len(symbols) == dim:
        # a10 comes before a2 in the alphabet, and B before a: what was meant is not known.
        if symbols != sorted(symbols, key=_as_people_sort):
            raise FormulaError(f"the order of {', '.join(symbols)} is not clear; name the coordinates of the box so")
        return {name: at for at, name in enumerate(symbols)}
    raise FormulaError(f"the expression has the symbols {', '.join(symbols)}; name the coordinates of the box so")


def _is_exactly(item: Any, value: float) -> bool:
    """Whether a Float of SymPy, (-1)**sign * mantissa * 2**exponent, is this float."""
    sign, mantissa, exponent, _ = item._mpf_
    # Of so small an exponent the power would be a number of millions of digits; no float64 is so small.
    if abs(int(exponent)) > _FARTHEST:
        return False
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return (-exact if sign else exact) == Fraction(value)


def _as_people_sort(name: str) -> list[tuple[str, int]]:
    """Numbers in a name by their size, letters whatever their case."""
    parts = re.findall(r"([^0-9]*)([0-9]*)", name.casefold())
    return [(letters, int(digits or -1)) for letters, digits in parts]


def _is_foreign(kind: type) -> bool:
    """Whether a class may mean anything by its name: one of the user's own, or with code of its own.

    An undefined function has no module, and no meaning but its name.
    """
    home: str = getattr(kind, "__module__", None) or "sympy"
    return home.split(".")[0] != "sympy" or hasattr(kind, "_imp_")  # as implemented_function makes it


class _SympyReader:
    """Writes an expression onto a tape, from its leaves to its root."""

    def __init__(self, places: dict[str, int]) -> None:
        self.tape = Tape()
        self.places = places

    def number(self, item: Any) -> int:
        """The node of a number."""
        kind = type(item).__name__
        args = item.args
        if item.is_Symbol:
            return self.tape.variable(self.places[str(item)])
        if item.is_Number or kind in ("Pi", "Exp1"):
            return self._constant(item, kind)
        if kind in _FOLDED:
            join = partial(self.tape.add, _FOLDED[kind])
            return reduce(join, map(self.number, args))
        if kind == "Pow":
            base, exponent = map(self.number, args)
            return self.tape.power(base, exponent)
        if kind == "Piecewise":
            return self._pieces(args)
        if kind == "Heaviside":
            return self._step(*args)
        if _is_foreign(type(item)):
            raise UnsupportedOperation(f"the class {kind}", "write it with functions of SymPy")
        return self._function(_NAMES.get(kind, kind), args)

    def _function(self, name: str, args: Sequence[Any]) -> int:
        function = FUNCTIONS.get(name)
        if function is None or not function.least <= len(args) <= function.most:
            raise UnsupportedOperation(
                f"SymPy's {name}",
                "evaluate it, as in expression.doit(), or write it with functions of the formula language",
            )
        return function.build(self.tape, [self.number(arg) for arg in args])

    def _constant(self, item: Any, kind: str) -> int:
        if kind in ("Pi", "Exp1"):
            return self.tape.add("pi" if kind == "Pi" else "e")
        if item.is_Rational:
            # Beyond, the float of an integer may be another number, and so another function.
            if max(abs(int(item.p)), int(item.q)) > _LARGEST:
                raise FormulaError(f"the number {str(item)[:40]} is no quotient of integers up to 2^53")
            top = self.tape.number(float(int(item.p)))
            if item.q == 1:
                return top
            bottom = self.tape.number(float(int(item.q)))
            return self.tape.add("div", top, bottom)
        value = float(item)
        # Of more digits than a float64 it is another number, as an integer beyond 2^53 is.
        if math.isfinite(value) and not _is_exactly(item, value):
            raise FormulaError(f"the number {str(item)[:40]} is no float64; write sympy.Float({value!r}) or a quotient")
        return self.tape.number(value)

    def _pieces(self, pieces: Sequence[Any]) -> int:
        """The first whose condition holds; the last one must hold everywhere."""
        *earlier, last = pieces
        # Where no condition holds the function would have no value.
        if not isinstance(self.condition(last.args[1]), Known):
            raise UnsupportedOperation("SymPy's Piecewise", "end it with (expression, True)")
        chosen = self.number(last.args[0])
        # From the last to the first: the first whose condition holds is asked last, and decides.
        for piece in reversed(earlier):
            value, condition = piece.args
            chosen = self.condition(condition).choose(self.tape, self.number(value), chosen)
        return chosen

    def _step(self, item: Any, at_zero: Any) -> int:
        """0 below zero, 1 above, and at zero what the second argument says, 1/2 unless told otherwise."""
        u = self.number(item)
        zero = self.tape.number(0)
        minus_u = self.tape.add("neg", u)
        not_above = self.tape.add("where", minus_u, zero, self.number(at_zero))
        return self.tape.add("where", u, self.tape.number(1), not_above)

    def condition(self, item: Any) -> Condition:
        """A comparison, or several joined."""
        kind = type(item).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return Known(kind == "BooleanTrue")
        if kind == "Not":
            return Not(self.condition(item.args[0]))
        if kind in _JOINED:
            return reduce(_JOINED[kind], map(self.condition, item.args))
        sign = getattr(item, "rel_op", "")
        if sign not in COMPARISONS:
            raise UnsupportedOperation(f"SymPy's condition {kind}", "use comparisons joined by And, Or, Not")
        left = self.number(item.lhs)
        right = self.number(item.rhs)
        return COMPARISONS[sign](self.tape, left, right)


_FOLDED = {"Add": "add", "Mul": "mul"}
_JOINED: dict[str, Callable[[Condition, Condition], Condition]] = {"And": Both, "Or": either}
