"""A formula as outer functions of a few gates, each a sum of products of inner functions or the log of a product.

Terms are written in their gates first, as many as it takes; scalings then take gates away (scaling.py). Tried are the
formula as it is written and as a quotient, sums multiplied out or kept: the way with the fewest gates is taken.
Nothing here is trusted: algebra.py compares the result with the formula.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from onelayer.box import Box
from onelayer.build.nested.apart import Apart, OuterGroup, Summand
from onelayer.build.nested.products import ONE, Form, Monomial, Products, raised, times
from onelayer.build.nested.scaling import eliminations, scalings
from onelayer.build.sequences.rational import add_to, affine_of, function_of, nonzero
from onelayer.errors import OnelayerError
from onelayer.language.compose import substituted
from onelayer.language.formula import Formula
from onelayer.language.quotient import as_quotient
from onelayer.language.third_side import as_squares
from onelayer.language.tree import Tape
from onelayer.lemmas.cone import homogeneous

# The fewer the better: gates of the worst group, groups that are no cones, tokens.
Judgement = tuple[int, int, int]
# Of an axis, as a rule: to compare the sizes of products.
TOKENS = 3


@dataclass(frozen=True)
class Gate:
    """A form as an argument of an outer function; ``positive`` if it is one monomial of positive factors."""

    form: tuple[tuple[Monomial, Fraction], ...]
    positive: bool

    @property
    def monomial(self) -> Monomial:
        """The one monomial of a positive gate."""
        return self.form[0][0]

    def times(self, monomial: Monomial) -> Gate:
        """The gate times a positive monomial."""
        scaled = [(times(own, monomial), c) for own, c in self.form]
        return replace(self, form=tuple(scaled))


def take_apart_widely(formula: Formula, box: Box) -> list[Apart]:
    """Structures, those with the fewest gates first; OnelayerError where none is found."""
    found: list[tuple[Judgement, Apart]] = []
    for written in _spellings(formula):
        for expand, whole in ((False, False), (True, False), (False, True)):
            try:
                products = Products(written, box, expand=expand, whole=whole)
                found.append(_Wide(products, written).apart())
            except OnelayerError:
                continue
    if not found:
        raise OnelayerError("no outer functions of sums of products were found")
    found.sort(key=lambda one: one[0])
    return [apart for _, apart in found]


def _spellings(formula: Formula) -> list[Formula]:
    """The formula, the same with squared sides of triangles as sums of squares, and the same as one quotient."""
    squares = as_squares(formula)
    found = [formula] if squares is None else [formula, squares]
    quotient = as_quotient(formula)
    if quotient is None:
        return found
    tape = Tape()
    places: list[int] = []
    for node in quotient.formula.nodes:
        args = [places[at] for at in node.args]
        places.append(tape.add(node.op, *args, value=node.value))
    # Numerators first, then the factors of all denominators.
    parts = [places[at] for at in quotient.formula.outputs]
    outputs = []
    for o in range(len(formula.outputs)):
        value = parts[o]
        for factor, n in quotient.denominators[o]:
            power = raised(tape, parts[factor], Fraction(n))
            value = tape.add("div", value, power)
        outputs.append(value)
    return [*found, Formula.build(tape.nodes, outputs, formula.input_shape, formula.output_shape)]


class _Wide:
    """One formula in gates."""

    def __init__(self, products: Products, formula: Formula) -> None:
        self.products = products
        self.formula = formula

    def apart(self) -> tuple[Judgement, Apart]:
        """The structure, and what it is judged by."""
        direct: list[tuple[Summand, ...]] = []
        groups: list[OuterGroup] = []
        rank = 0
        tokens = 0
        for o, root in enumerate(self.formula.outputs):
            own: Form = {}
            for factor, at in self.products.reader.affine.summands(root):
                form = self.products.forms[at]
                if form is not None:
                    add_to(own, form, factor)
                    continue
                outer, gates, cost = self._term(factor, at)
                groups.append(OuterGroup(o, outer, tuple(map(self._sums, gates))))
                rank = max(rank, len(gates))
                tokens += cost
            direct.append(self._direct(own))
        smooth = sum(not homogeneous(group.outer) for group in groups)
        return (rank, smooth, tokens), Apart(tuple(direct), tuple(groups))

    def _direct(self, form: Form) -> tuple[Summand, ...]:
        """The part of an output that is a sum of products; its constant is an inner function that is constant."""
        varying = [(monomial, c) for monomial, c in form.items() if monomial and c]
        found = [self.products.summand(monomial, c) for monomial, c in varying]
        constant = form.get(ONE, Fraction(0))
        return (*found, *self.products.reader.shifted({}, constant))

    def _term(self, factor: Fraction, at: int) -> tuple[Formula, list[Gate], int]:
        """A term as an outer function of the fewest gates, and about how many tokens they take."""
        writer = _GateWriter(self.products)
        value = affine_of(writer.tape, factor, writer.write(at), Fraction(0))
        outer = function_of(writer.tape, value, len(writer.gates))
        allowed = [i for i, gate in enumerate(writer.gates) if gate.positive]
        choices = eliminations(scalings(outer), allowed)
        ways = [self._without(outer, writer.gates, taken) for taken in choices]
        ways.append((outer, writer.gates))
        judged = []
        for i, (_, gates) in enumerate(ways):
            tokens = sum(map(self._tokens, gates))
            judged.append((len(gates), tokens, i))
        _, fewest, best = min(judged)
        found, kept = ways[best]
        return self._in_logarithms(found, kept), kept, fewest

    def _tokens(self, gate: Gate) -> int:
        # The logarithm of a product is a sum of axes; a product itself is a grid of them.
        if gate.positive:
            return TOKENS * len(gate.monomial)
        return sum(TOKENS ** self.products.spread(monomial) for monomial, _ in gate.form)

    def _without(
        self, outer: Formula, gates: list[Gate], taken: dict[int, list[Fraction]]
    ) -> tuple[Formula, list[Gate]]:
        """The outer function without the gates that scalings take away; a gate that becomes constant goes too."""
        tape = Tape()
        kept: list[Gate] = []
        arguments = []
        for i, gate in enumerate(gates):
            scale: Monomial = ONE
            for p, weights in taken.items():
                scale = times(scale, gates[p].monomial, -weights[i])
            moved = gate.times(scale)
            (monomial, c), *others = moved.form
            constant = monomial == ONE and not others
            if i in taken:
                arguments.append(tape.number(1.0))
            elif constant:
                arguments.append(affine_of(tape, c, tape.number(1.0), Fraction(0)))
            else:
                arguments.append(tape.variable(len(kept)))
                kept.append(moved)
        value = substituted(tape, outer, arguments)
        return function_of(tape, value, len(kept)), kept

    def _in_logarithms(self, outer: Formula, gates: list[Gate]) -> Formula:
        """The outer function of gates of which a positive product of several directions is given by its logarithm."""
        tape = Tape()
        arguments = []
        for i, gate in enumerate(gates):
            variable = tape.variable(i)
            arguments.append(tape.add("exp", variable) if self._logarithmic(gate) else variable)
        value = substituted(tape, outer, arguments)
        return function_of(tape, value, len(gates))

    def _logarithmic(self, gate: Gate) -> bool:
        return gate.positive and self.products.spread(gate.monomial) > 1

    def _sums(self, gate: Gate) -> tuple[Summand, ...]:
        if self._logarithmic(gate):
            return self.products.logarithms(gate.monomial)
        return tuple(self.products.summand(monomial, c) for monomial, c in gate.form)


class _GateWriter:
    """A node written in gates."""

    def __init__(self, products: Products) -> None:
        self.products = products
        self.tape = Tape()
        self.gates: list[Gate] = []
        self.known: dict[int, int] = {}

    def write(self, at: int) -> int:
        """The place of a node on the tape."""
        if at not in self.known:
            form = self.products.forms[at]
            node = self.products.nodes[at]
            if form is not None:
                self.known[at] = self._gated(form)
            else:
                args = [self.write(arg) for arg in node.args]
                self.known[at] = self.tape.add(node.op, *args, value=node.value)
        return self.known[at]

    def _gated(self, form: Form) -> int:
        """A form as a number times a positive monomial times what is left."""
        constant = form.get(ONE, Fraction(0))
        rest = {monomial: c for monomial, c in form.items() if monomial}
        if not rest:
            return affine_of(self.tape, constant, self.tape.number(1.0), Fraction(0))
        if constant:
            return affine_of(self.tape, Fraction(1), self._gated(rest), constant)
        content = self._content(rest)
        # In a fixed order and with a first coefficient of one, so that equal gates are told.
        lead = rest[min(rest, key=sorted)]
        divided = [(times(m, content, Fraction(-1)), c / lead) for m, c in rest.items()]
        left = tuple(sorted(divided, key=_order))
        value = self._powers(content)
        if left != ((ONE, Fraction(1)),):
            gate = self._gate(Gate(left, positive=False))
            value = gate if value is None else self.tape.add("mul", value, gate)
        if value is None:
            raise OnelayerError("a form without factors")
        return affine_of(self.tape, lead, value, Fraction(0))

    def _content(self, form: Form) -> Monomial:
        """What all monomials share of positive factors: of each the smallest exponent; nothing of sums kept whole."""
        if self.products.whole and len(form) > 1:
            return ONE
        exponents = [dict(monomial) for monomial in form]
        factors = {factor for own in exponents for factor in own if self.products.sign(factor) > 0}
        shared = {factor: min(own.get(factor, Fraction(0)) for own in exponents) for factor in factors}
        return frozenset(nonzero(shared).items())

    def _powers(self, monomial: Monomial) -> int | None:
        """A positive monomial: numbers as they are, the rest as one gate."""
        numbers = [(f, e) for f, e in sorted(monomial) if self.products.direction(f) is None]
        varying = monomial - frozenset(numbers)
        value = None
        if varying:
            value = self._gate(Gate(((varying, Fraction(1)),), positive=True))
        for (_, at), e in numbers:
            constant = self.products.constant(self.tape, at)
            number = raised(self.tape, constant, e)
            value = number if value is None else self.tape.add("mul", number, value)
        return value

    def _gate(self, gate: Gate) -> int:
        if gate not in self.gates:
            self.gates.append(gate)
        return self.tape.variable(self.gates.index(gate))


def _order(item: tuple[Monomial, Fraction]) -> list[object]:
    return [sorted(item[0]), item[1]]
