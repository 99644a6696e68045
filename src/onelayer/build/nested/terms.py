"""Terms of a formula written in their gates: the sums of inner functions through which they reach the variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from onelayer.build.nested.directions import Direction, Parts
from onelayer.build.sequences.rational import add_to, affine_of, as_float, function_of, nonzero, opened_once
from onelayer.language.compose import inside, substituted, total
from onelayer.language.formula import Formula
from onelayer.language.tree import Node, Tape
from onelayer.lemmas.rational import raised, short

if TYPE_CHECKING:
    from onelayer.build.nested.apart import Reader

ZERO = Fraction(0)


class TermWriter:
    """One term written in its gates: sums of inner functions, up to a factor and a constant."""

    def __init__(self, reader: Reader, linear: frozenset[Direction]) -> None:
        self.reader = reader
        self.tape = Tape()
        self.linear = linear  # directions that are gates themselves
        self.gates: list[Parts] = []
        self.known: dict[int, int] = {}

    def write(self, at: int) -> int:
        if at not in self.known:
            self.known[at] = self._written(at)
        return self.known[at]

    def _written(self, at: int) -> int:
        reader = self.reader
        node = self.reader.nodes[at]
        parts = reader.sums[at]
        direction = reader.directions[at]
        # The order matters: a node that is a gate itself is not to be opened further.
        if direction in self.linear and direction is not None:
            form = {("node", reader.variable(j)): w for j, w in direction}
            alone = reader.inner("node", at, Fraction(1)).inner
            argument = self.gate(form, ZERO)
            return inside(self.tape, alone.formula, argument)
        if parts is not None and parts:
            return self.gate(parts, reader.constants[at])
        if node.op in ("mul", "div", "pow", "sqrt", "neg"):
            product = _FactoredNode(reader, at)
            if len(product.logs) > 1:
                return self._product(product)
        if node.op == "var":
            return self.gate({("node", at): Fraction(1)}, Fraction(0))
        args = [self.write(arg) for arg in node.args]
        return self.tape.add(node.op, *args, value=node.value)

    def gate(self, parts: Parts, constant: Fraction) -> int:
        """The node of a sum: a multiple of a known gate, or of a new one."""
        for i, known in enumerate(self.gates):
            if parts.keys() != known.keys():
                continue
            ratios = {parts[p] / w for p, w in known.items()}
            if len(ratios) == 1:
                return affine_of(self.tape, ratios.pop(), self.tape.variable(i), constant)
        # Divided by the first weight, so that multiples are told, unless that leaves weights that are no floats.
        lead = abs(next(iter(parts.values())))
        floats = all(as_float(w / lead) is not None for w in parts.values())
        unit = lead if floats else Fraction(1)
        new = len(self.gates)
        self.gates.append({p: w / unit for p, w in parts.items()})
        return affine_of(self.tape, unit, self.tape.variable(new), constant)

    def _product(self, product: _FactoredNode) -> int:
        """exp of the sum of logarithms, times what has none."""
        value = self.tape.add("exp", self.gate(product.logs, Fraction(0)))
        for at, exponent in product.others:
            factor = self.write(at)
            value = self.tape.add("mul", value, self._power(factor, exponent))
        return affine_of(self.tape, product.factor, value, Fraction(0))

    def _power(self, at: int, exponent: Fraction) -> int:
        if exponent.denominator == 2:
            at = self.tape.add("sqrt", at)
            exponent = 2 * exponent
        if exponent == 1:
            return at
        return self.tape.add("pow", at, value=int(exponent))


class _FactoredNode:
    """A node as factor * exp(sum of logarithms) * powers of other nodes.

    Only halves of whole exponents are followed, and roots are opened where what is under them is one inner function.
    """

    def __init__(self, reader: Reader, at: int) -> None:
        self.reader = reader
        self.factor = Fraction(1)
        self.logs: Parts = {}
        self.others: list[tuple[int, Fraction]] = []
        opened_once(at, self._opened)
        self.logs = nonzero(self.logs)

    def _opened(self, at: int, e: Fraction) -> Iterable[tuple[int, Fraction]]:
        """The factors of a node, or nothing once it has been taken in."""
        node = self.reader.nodes[at]
        exact = self.reader.affine.exact[at]
        whole = e.denominator == 1
        if exact and whole:
            self.factor = short(self.factor * raised(exact, int(e)))
            return []
        if node.op in ("neg", "pow") and whole:
            return [self._base(node, e)]
        if self.reader.directions[at] is not None and self._taken(at, e):
            return []
        factors = self._factors(node, e)
        if not factors and not self._exponent(node, e):
            self.others.append((at, e))
        return factors

    def _base(self, node: Node, e: Fraction) -> tuple[int, Fraction]:
        """What a power or a negation is of, with its exponent; the sign joins the factor."""
        if node.op == "pow":
            return node.args[0], e * int(node.value)
        self.factor *= Fraction(-1) ** int(e)
        return node.args[0], e

    def _factors(self, node: Node, e: Fraction) -> list[tuple[int, Fraction]]:
        """The factors of a product, quotient or root; none where it is not to be opened."""
        whole = e.denominator == 1
        if node.op in ("mul", "div") and (whole or self._signed(node.args)):
            first, second = node.args
            return [(first, e), (second, e if node.op == "mul" else -e)]
        if node.op == "sqrt" and whole:
            return [(node.args[0], e / 2)]
        return []

    def _exponent(self, node: Node, e: Fraction) -> bool:
        """Whether the node is exp of a sum of inner functions, which then joined the logarithms."""
        if node.op != "exp":
            return False
        parts = self.reader.sums[node.args[0]]
        if parts is None or self.reader.constants[node.args[0]] != 0:
            return False
        add_to(self.logs, parts, e)
        return True

    def _taken(self, at: int, e: Fraction) -> bool:
        """Whether an inner function of one sign joined the logarithms; rational factors of it are taken apart first."""
        reader = self.reader
        node = self.reader.nodes[at]
        factor = Fraction(1)
        while node.op in ("mul", "div") and (scaled := reader.affine.scaled(node)) is not None and scaled[0]:
            factor = factor * scaled[0]
            at = scaled[1]
            node = reader.nodes[at]
        sign = reader.sign(at)
        root = e.denominator > 1
        # Of a root only the function itself is taken: roots of rational numbers and of signs are no factors.
        if not sign or (root and not (sign > 0 and factor == 1)):
            return False
        if not root:
            self.factor = short(self.factor * raised(factor * sign, int(e)))
        add_to(self.logs, {("log", at): Fraction(1)}, e)
        return True

    def _signed(self, nodes: Sequence[int]) -> bool:
        """Whether all factors below are positive inner functions: then a root of the product is one of the factors."""
        pending = list(nodes)
        seen = set()
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            node = self.reader.nodes[at]
            exact = self.reader.affine.exact[at]
            if exact is not None and exact > 0:
                continue
            if self.reader.directions[at] is not None and self.reader.sign(at) > 0:
                continue
            if node.op not in ("mul", "div", "pow"):
                return False
            pending += node.args
        return True


def merged(terms: Sequence[tuple[Formula, list[Parts]]]) -> list[tuple[Formula, list[Parts]]]:
    """Terms whose gates are all among those of another term join it."""
    found: list[tuple[list[Formula], list[list[int]], list[Parts]]] = []
    # Those with the most gates first, so that others find them.
    for formula, gates in sorted(terms, key=lambda term: -len(term[1])):
        for formulas, places, known in found:
            if all(gate in known for gate in gates):
                formulas.append(formula)
                places.append([known.index(gate) for gate in gates])
                break
        else:
            own = list(range(len(gates)))
            found.append(([formula], [own], gates))
    return [(_added(formulas, places, max(1, len(known))), known) for formulas, places, known in found]


def _added(formulas: Sequence[Formula], places: Sequence[Sequence[int]], count: int) -> Formula:
    tape = Tape()
    variables = [tape.variable(i) for i in range(count)]
    parts = []
    for formula, place in zip(formulas, places, strict=True):
        # A term without gates has a variable that it does not use.
        arguments = [variables[i] for i in place] or variables
        parts.append(substituted(tape, formula, arguments))
    return function_of(tape, total(tape, parts), count)
