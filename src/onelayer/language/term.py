"""Terms: nodes of a tape on which operators write further nodes, so that a formula is written as it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onelayer.language.operations import POWER
from onelayer.language.tree import Tape


@dataclass(frozen=True, slots=True)
class Term:
    """A node and its tape. A number beside it is the node of that number."""

    tape: Tape
    at: int

    def number(self, value: float) -> Term:
        """A number on the same tape."""
        return Term(self.tape, self.tape.number(value))

    def _joined(self, op: str, first: Term | float, second: Term | float) -> Term:
        left = first if isinstance(first, Term) else self.number(first)
        right = second if isinstance(second, Term) else self.number(second)
        return Term(self.tape, self.tape.add(op, left.at, right.at))

    def __add__(self, other: Term | float) -> Term:
        return self._joined("add", self, other)

    def __radd__(self, other: float) -> Term:
        return self._joined("add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return self._joined("sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return self._joined("sub", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self._joined("mul", self, other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._joined("div", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return self._joined("div", other, self)

    def __neg__(self) -> Term:
        return Term(self.tape, self.tape.add("neg", self.at))

    def __pow__(self, exponent: int) -> Term:
        return Term(self.tape, self.tape.add(POWER, self.at, value=exponent))


def applied(op: str) -> Callable[..., Term]:
    """An operation of the language as a function of terms."""

    def function(first: Term, *others: Term) -> Term:
        args = (term.at for term in (first, *others))
        return Term(first.tape, first.tape.add(op, *args))

    return function
