"""Recognise sums of one-variable functions of sums of one-variable functions in a formula.

Everything is read off the syntax tree in exact rational arithmetic: a node is *separable* when it is a linear
combination of nodes of one variable each. f = sum_k g_k(s_k) is found when every term of f reaches its variables
through one separable node s_k. Products of two separable nodes are rewritten as a difference of squares, products of
several positive functions of one variable each as exp of a sum of logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from onelayer.box import Box
from onelayer.build.sequences.rational import add_to, affine_of, function_of, nonzero, opened_once, rounded
from onelayer.build.sequences.sums import Separable, Sum, common_scale
from onelayer.errors import OnelayerError
from onelayer.language.compose import inside
from onelayer.language.formula import Formula
from onelayer.language.operations import operation
from onelayer.language.tree import Node, Tape
from onelayer.lemmas.rational import is_short
from onelayer.lemmas.univariate import range_of

# Of rational numbers they are rational.
_RATIONAL = ("neg", "add", "sub", "mul", "div")


@dataclass(frozen=True)
class FormulaTerm:
    """g(s) as it is read off a formula: s = sum of weight phi(x_i), formulas phi of one variable, exact weights."""

    outer: Formula  # g
    inner: tuple[tuple[int, Formula, Fraction], ...]  # i, phi, weight


class Recogniser:
    """One formula taken apart on a box; ``affine`` admits only the variables themselves inside the sums.

    Written in one sum, a quotient may show a removable singularity that f does not have; ``cancels`` removes it.
    """

    def __init__(self, formula: Formula, box: Box, *, affine: bool, cancels: bool = True) -> None:
        self.formula = formula
        self.affine = affine
        self.cancels = cancels
        self.low = box.lower.flatten().tolist()
        self.high = box.upper.flatten().tolist()
        self.nodes = formula.nodes
        self.used: list[frozenset[int]] = []
        self.exact: list[Fraction | None] = []
        self.separable: list[Separable | None] = []
        for at, node in enumerate(self.nodes):
            own: frozenset[int] = frozenset({int(node.value)} if node.op == "var" else ())
            below = [self.used[arg] for arg in node.args]
            self.used.append(own.union(*below))
            self.exact.append(self._rational(node))
            self.separable.append(self._separable(at, node))

    def _tape(self) -> Tape:
        return Tape(cancels=self.cancels)

    def singles(self) -> list[tuple[int, Formula]]:
        """The largest parts of one variable each, written in x1, and their variables."""
        needed = set(self.formula.outputs)
        for at, node in enumerate(self.nodes):
            if len(self.used[at]) > 1:
                needed |= set(node.args)
        found = []
        for at in sorted(needed):
            if len(self.used[at]) == 1:
                (variable,) = self.used[at]
                tape = self._tape()
                found.append((variable, function_of(tape, self._single(tape, at))))
        return found

    def terms(self, output: int) -> tuple[list[FormulaTerm], list[tuple[Fraction, int]]]:
        """The terms of one output, and the summands (coefficient, node) that are of no such form."""
        made = []
        rest = []
        plain: Sum = {}
        constant = Fraction(0)
        for coefficient, at in self.summands(self.formula.outputs[output]):
            found = self.separable[at]
            value = self.exact[at]
            if value is not None:
                constant += coefficient * value
            elif found is not None:
                constant += coefficient * found.constant
                add_to(plain, found.parts, coefficient)
            else:
                own = self._gated(coefficient, at) or self._product(coefficient, at)
                made += own
                if not own:
                    rest.append((coefficient, at))
        plain = nonzero(plain)
        # A function that is zero still has a term.
        if plain or constant or not (made or rest):
            made.append(self._linear_term(plain, constant))
        return made, rest

    def summands(self, at: int) -> list[tuple[Fraction, int]]:
        """The summands of a node with rational factors, nested sums opened.

        One whose factors cancel is named with the factor 0: it may have no value somewhere.
        """
        found: list[tuple[Fraction, int]] = []

        def opened(here: int, factor: Fraction) -> list[tuple[int, Fraction]]:
            parts = self._opened(here, factor)
            if not parts:
                found.append((factor, here))
            return parts

        opened_once(at, opened)
        return found

    def _opened(self, at: int, factor: Fraction) -> list[tuple[int, Fraction]]:
        """The parts of a sum times a factor; none of what is no sum, or a separable one."""
        node = self.nodes[at]
        if self.separable[at] is not None or not self.used[at]:
            return []
        if node.op in ("add", "sub"):
            first, second = node.args
            return [(first, factor), (second, factor if node.op == "add" else -factor)]
        if node.op == "neg":
            return [(node.args[0], -factor)]
        scaled = self.scaled(node) if node.op in ("mul", "div") else None
        if scaled is None:
            return []
        own, other = scaled
        return [(other, factor * own)]

    def scaled(self, node: Node) -> tuple[Fraction, int] | None:
        """(factor, other node) of a product with a rational number, or a quotient by one."""
        first, second = node.args
        left = self.exact[first]
        right = self.exact[second]
        if node.op == "mul" and right is not None:
            return right, first
        if node.op == "mul" and left is not None:
            return left, second
        # A quotient by zero has no value, and is left as it is.
        if node.op == "div" and right:
            return 1 / right, first
        return None

    def _rational(self, node: Node) -> Fraction | None:
        if node.op == "num":
            return Fraction(node.value)
        values = [self.exact[arg] for arg in node.args]
        known = [value for value in values if value is not None]
        if node.op not in _RATIONAL or len(known) < len(values):
            return None
        if node.op == "div" and not known[1]:
            return None
        found = Fraction(operation(node.op).number(*known))
        return found if is_short(found) else None

    def _separable(self, at: int, node: Node) -> Separable | None:
        value = self.exact[at]
        if value is not None:
            return Separable({}, value)
        if node.op == "var" or (len(self.used[at]) == 1 and not self.affine):
            # Opened where it can be, so that equal parts of two sums are told.
            opened = self._combined(node) if node.op in _RATIONAL else None
            return opened or Separable({at: Fraction(1)}, Fraction(0))
        return self._combined(node)

    def _combined(self, node: Node) -> Separable | None:
        """Sums and rational multiples of separable nodes."""
        parts = [self.separable[arg] for arg in node.args]
        known = [part for part in parts if part is not None]
        if node.op in ("mul", "div"):
            return self._multiple(node)
        if node.op not in ("add", "sub", "neg") or len(known) < len(parts):
            return None
        if node.op == "neg":
            return known[0].scaled(Fraction(-1))
        first, second = known
        return first.plus(second if node.op == "add" else second.scaled(Fraction(-1)))

    def _multiple(self, node: Node) -> Separable | None:
        """A rational multiple of a separable node."""
        scaled = self.scaled(node)
        if scaled is None:
            return None
        factor, other = scaled
        inner = self.separable[other]
        return None if inner is None else inner.scaled(factor)

    def _gated(self, coefficient: Fraction, at: int) -> list[FormulaTerm]:
        """g(s) when every path from the term to its variables passes one separable node s, up to scale and shift."""
        gates = [(gate, self._known(gate)) for gate in self.gates(at)]
        if not gates:
            return [self._constant_term(coefficient, at)]
        _, base = gates[0]
        unit = common_scale(base.parts.values())
        tape = self._tape()
        s = tape.variable(0)
        replaced = {}
        for gate, found in gates:
            scale = found.proportion(base)
            if scale is None:
                return []
            replaced[gate] = affine_of(tape, scale * unit, s, found.constant)
        value = self.rewrite(tape, at, replaced)
        outer = affine_of(tape, coefficient, value, Fraction(0))
        return [FormulaTerm(function_of(tape, outer), self._inner(base.parts, unit))]

    def _known(self, at: int) -> Separable:
        """A node that is separable, as the sum that it is."""
        found = self.separable[at]
        if found is None:
            raise OnelayerError("a node that is no sum of functions of one variable each")
        return found

    def _constant_term(self, coefficient: Fraction, at: int) -> FormulaTerm:
        """A term without variables that is no rational number, such as pi: added to a sum of nothing."""
        tape = self._tape()
        constant = self.rewrite(tape, at, {})
        value = affine_of(tape, coefficient, constant, Fraction(0))
        outer = tape.add("add", tape.variable(0), value)
        return FormulaTerm(function_of(tape, outer), ())

    def gates(self, at: int) -> list[int]:
        """The separable nodes through which the term reaches its variables."""
        found: list[int] = []
        pending = [at]
        seen = set()
        while pending:
            here = pending.pop()
            if here in seen or not self.used[here]:
                continue
            seen.add(here)
            if self.separable[here] is not None:
                found.append(here)
            else:
                pending += self.nodes[here].args
        return sorted(found)

    def rewrite(self, tape: Tape, at: int, replaced: dict[int, int]) -> int:
        """The node written on another tape, with some nodes replaced."""
        places = dict(replaced)
        # Arguments stand before what they are arguments of.
        for k in sorted(self._needed(at, replaced)):
            node = self.nodes[k]
            args = [places[arg] for arg in node.args]
            places[k] = tape.add(node.op, *args, value=node.value)
        return places[at]

    def _needed(self, at: int, replaced: dict[int, int]) -> set[int]:
        pending = [at]
        found = set()
        while pending:
            here = pending.pop()
            if here not in found and here not in replaced:
                found.add(here)
                pending += self.nodes[here].args
        return found

    def _factors(self, at: int) -> list[tuple[int, Fraction]]:
        """What a product multiplies, down to functions of one variable, and how often."""
        factors: list[tuple[int, Fraction]] = []

        def opened(here: int, times: Fraction) -> list[tuple[int, Fraction]]:
            if self.nodes[here].op == "mul" and len(self.used[here]) > 1:
                return [(arg, times) for arg in self.nodes[here].args]
            factors.append((here, times))
            return []

        opened_once(at, opened)
        return factors

    def _product(self, coefficient: Fraction, at: int) -> list[FormulaTerm]:
        """a b as a difference of squares; a product of positive functions of one variable each as exp(sum of log)."""
        if self.nodes[at].op != "mul":
            return []
        factors = self._factors(at)
        if sum(times for _, times in factors) == 2:
            first, second = factors[0][0], factors[-1][0]
            squares = self._squares(coefficient, first, second)
            if squares:
                return squares
        if self.affine or not all(self._positive(k) for k, _ in factors):
            return []
        return [self._exponential(coefficient, factors)]

    def _exponential(self, coefficient: Fraction, factors: list[tuple[int, Fraction]]) -> FormulaTerm:
        """A product of positive functions of one variable each as exp of the sum of their logarithms."""
        tape = self._tape()
        product = tape.add("exp", tape.variable(0))
        outer = affine_of(tape, coefficient, product, Fraction(0))
        logarithms = tuple(self._logarithm(k, times) for k, times in factors)
        return FormulaTerm(function_of(tape, outer), logarithms)

    def _logarithm(self, at: int, times: Fraction) -> tuple[int, Formula, Fraction]:
        """log of a positive function of one variable, that variable, and how often it counts."""
        own = self._tape()
        value = own.add("log", self._single(own, at))
        # A factor without variables is a constant function of the first one.
        (variable,) = self.used[at] or {0}
        return variable, function_of(own, value), times

    def _positive(self, at: int) -> bool:
        """Whether a node depends on one variable at most, and is positive on the box."""
        if len(self.used[at]) > 1:
            return False
        tape = self._tape()
        (variable,) = self.used[at] or {0}
        formula = function_of(tape, self._single(tape, at))
        least, _ = range_of(formula, self.low[variable], self.high[variable])
        return least > 0

    def _squares(self, coefficient: Fraction, first: int, second: int) -> list[FormulaTerm]:
        """a b = ((r a + b/r)^2 - (r a - b/r)^2) / 4, with r a power of two that makes both summands alike in size."""
        a = self.separable[first]
        b = self.separable[second]
        if a is None or b is None:
            return []
        # Both factors are brought to one size, by a power of two, which is exact.
        ratio = max(self._size(b), 1e-300) / max(self._size(a), 1e-300)
        r = Fraction(2) ** round(math.log2(ratio) / 2)
        made = []
        for sign in (1, -1):
            both = a.scaled(r).plus(b.scaled(sign / r))
            factor = sign * coefficient / 4
            if not both.parts:
                made.append(self._linear_term({}, factor * both.constant * both.constant))
                continue
            unit = common_scale(both.parts.values())
            tape = self._tape()
            s = affine_of(tape, unit, tape.variable(0), both.constant)
            square = tape.add("pow", s, value=2)
            value = affine_of(tape, factor, square, Fraction(0))
            made.append(FormulaTerm(function_of(tape, value), self._inner(both.parts, unit)))
        return made

    def _size(self, part: Separable) -> float:
        """How far an affine node can vary; 1 for other separable nodes."""
        size = 0.0
        for at, weight in part.parts.items():
            node = self.nodes[at]
            width = 1.0
            if node.op == "var":
                variable = int(node.value)
                width = self.high[variable] - self.low[variable]
            size += abs(rounded(weight)) * width
        return size

    def _linear_term(self, parts: Sum, constant: Fraction) -> FormulaTerm:
        unit = common_scale(parts.values())
        tape = self._tape()
        outer = affine_of(tape, unit, tape.variable(0), constant)
        return FormulaTerm(function_of(tape, outer), self._inner(parts, unit))

    def _inner(self, parts: Sum, unit: Fraction) -> tuple[tuple[int, Formula, Fraction], ...]:
        found = []
        for at, weight in parts.items():
            (variable,) = self.used[at]
            tape = self._tape()
            atom = function_of(tape, self._single(tape, at))
            found.append((variable, atom, weight / unit))
        return tuple(found)

    def _single(self, tape: Tape, at: int) -> int:
        """A node of one variable, written in x1."""
        one = Formula.build(self.nodes, [at], self.formula.input_shape)
        return inside(tape, one, tape.variable(0))
