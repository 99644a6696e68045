"""A formula taken apart into outer functions of sums of inner functions, each of one direction.

A node is an *inner function* when it depends on one linear form d . x; a *sum* is a linear combination of those.
Products of inner functions that keep their signs become exp of a sum of logarithms. What reaches the variables through
a few sums is an outer function of these. Nothing here is trusted: algebra.py compares the result with the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from onelayer.box import Box
from onelayer.build.nested.directions import Direction, Parts, normalised, span
from onelayer.build.nested.terms import TermWriter, merged
from onelayer.build.sequences.rational import add_to, affine_of, function_of, nonzero, opened_once, rounded, times
from onelayer.build.sequences.recognise import Recogniser
from onelayer.errors import OnelayerError
from onelayer.language.compose import inside
from onelayer.language.formula import Formula
from onelayer.language.tree import Node, Tape
from onelayer.lemmas.nested import Inner
from onelayer.lemmas.univariate import range_of

_SIGNS = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}
ZERO = Fraction(0)


@dataclass(frozen=True)
class Summand:
    """A multiple of an inner function: the function alone, and the factor."""

    inner: Inner  # with the factor
    base: str  # text of the function without it
    factor: float


@dataclass(frozen=True)
class OuterGroup:
    """outer(u_1, ..., u_r) for one output, u_i the sum of the inner functions of ``sums[i]``."""

    output: int
    outer: Formula
    sums: tuple[tuple[Summand, ...], ...]


@dataclass(frozen=True)
class Apart:
    """f_o = sum of inner functions of ``direct[o]`` + sum of the groups of that output."""

    direct: tuple[tuple[Summand, ...], ...]
    groups: tuple[OuterGroup, ...]

    @property
    def rank(self) -> int:
        """The most sums that an outer function has."""
        return max((len(group.sums) for group in self.groups), default=0)

    @property
    def multiplies(self) -> bool:
        """Whether an inner function is a product of several."""
        return any(summand.inner.more for one in self.sums for summand in one)

    @property
    def sums(self) -> tuple[tuple[Summand, ...], ...]:
        """All sums of inner functions, those of the outputs first."""
        inside = [one for group in self.groups for one in group.sums]
        return (*self.direct, *inside)


def take_apart(formula: Formula, box: Box) -> Apart:
    """The structure of f on a box; OnelayerError where a weight is no float or a group is its own best form."""
    return Reader(formula, box).apart()


class Reader:
    """What is known of every node of a formula: linear forms, directions, sums of inner functions."""

    def __init__(self, formula: Formula, box: Box) -> None:
        self.formula = formula
        self.nodes = formula.nodes
        self.affine = Recogniser(formula, box, affine=True)
        self.low = box.lower.flatten().tolist()
        self.high = box.upper.flatten().tolist()
        self.linear: list[dict[int, Fraction] | None] = []
        self.directions: list[Direction | None] = []
        self.sums: list[Parts | None] = []
        self.constants: list[Fraction] = []
        self.signs: dict[int, int] = {}
        for at in range(len(self.nodes)):
            self.linear.append(self._linear(at))
            self.directions.append(self._direction(at))
            parts, constant = self._sum(at)
            self.sums.append(parts)
            self.constants.append(constant)

    def apart(self) -> Apart:
        """The whole structure."""
        direct = []
        groups = []
        for o, root in enumerate(self.formula.outputs):
            parts: Parts = {}
            shift = Fraction(0)
            terms = []
            for factor, at in self.affine.summands(root):
                own = self.sums[at]
                if own is None:
                    terms.append((factor, at))
                    continue
                shift += factor * self.constants[at]
                add_to(parts, own, factor)
            written = [self._term(factor, at) for factor, at in terms]
            for outer, gates in merged(written):
                if not gates:
                    raise OnelayerError("a constant that is no rational number stands alone")
                groups.append(OuterGroup(o, outer, tuple(map(self._summands, gates))))
            direct.append(self.shifted(nonzero(parts), shift))
        return Apart(tuple(direct), tuple(groups))

    def shifted(self, parts: Parts, shift: Fraction) -> tuple[Summand, ...]:
        """The direct part of an output; its constant joins the first inner function, or is one of its own."""
        found = list(self._summands(parts))
        if shift:
            tape = Tape()
            s = tape.variable(0)
            if found:
                first = found.pop(0)
                s = inside(tape, first.inner.formula, s)
                direction = first.inner.direction
            else:
                direction = (1.0, *[0.0] * (len(self.low) - 1))
                s = tape.add("mul", tape.number(0.0), s)
            text = str(function_of(tape, affine_of(tape, Fraction(1), s, shift)))
            found.insert(0, Summand(Inner(direction, text), text, 1.0))
        return tuple(found)

    def _linear(self, at: int) -> dict[int, Fraction] | None:
        """Coefficients of a node that is a linear form plus a constant, such as pi; None for other nodes."""
        node = self.nodes[at]
        own = self.affine.separable[at]
        if own is not None:
            return {int(self.nodes[var].value): w for var, w in own.parts.items()}
        if not self.affine.used[at]:
            return {}
        scaled = self.affine.scaled(node) if node.op in ("mul", "div") else None
        if scaled is not None:
            factor, other = scaled
            inner = self.linear[other]
            return None if inner is None else times(inner, factor)
        if node.op not in _SIGNS:
            return None
        total: dict[int, Fraction] = {}
        for arg, sign in zip(node.args, _SIGNS[node.op], strict=True):
            part = self.linear[arg]
            if part is None:
                return None
            add_to(total, part, Fraction(sign))
        return nonzero(total)

    def _direction(self, at: int) -> Direction | None:
        own = self.linear[at]
        if own is not None:
            return normalised(own.items())
        # Arguments without variables have no direction, and do not count.
        varying = [arg for arg in self.nodes[at].args if self.affine.used[arg]]
        found = {self.directions[arg] for arg in varying}
        if len(found) == 1:
            return found.pop()
        return None

    def _sum(self, at: int) -> tuple[Parts | None, Fraction]:
        """Coefficients by inner function, and a constant; None when the node is no sum of inner functions."""
        own = self.affine.separable[at]
        node = self.nodes[at]
        if own is not None:
            parts = {("node", var): w for var, w in own.parts.items()}
            return parts, own.constant
        if self.directions[at] is not None:
            return {("node", at): Fraction(1)}, Fraction(0)
        if node.op in ("mul", "div"):
            return self._multiple(node)
        if node.op == "log":
            return self._logarithms(node.args[0]), Fraction(0)
        if node.op not in _SIGNS:
            return None, Fraction(0)
        total: Parts = {}
        constant = Fraction(0)
        for arg, sign in zip(node.args, _SIGNS[node.op], strict=True):
            summed = self.sums[arg]
            if summed is None:
                return None, Fraction(0)
            constant += sign * self.constants[arg]
            add_to(total, summed, Fraction(sign))
        return nonzero(total), constant

    def _logarithms(self, at: int) -> Parts | None:
        """The logarithm of a product of positive inner functions and their powers; None of anything else."""
        found: Parts = {}
        others = []

        def opened(here: int, e: Fraction) -> list[tuple[int, Fraction]]:
            node = self.nodes[here]
            if self.directions[here] is not None and self.sign(here) > 0:
                found[("log", here)] = e
            elif node.op in ("mul", "div"):
                first, second = node.args
                return [(first, e), (second, e if node.op == "mul" else -e)]
            elif node.op == "pow":
                return [(node.args[0], e * int(node.value))]
            elif self.affine.exact[here] != 1:
                others.append(here)
            return []

        opened_once(at, opened)
        return None if others else nonzero(found) or None

    def _multiple(self, node: Node) -> tuple[Parts | None, Fraction]:
        """A rational multiple of a sum of inner functions."""
        scaled = self.affine.scaled(node)
        if scaled is None:
            return None, Fraction(0)
        factor, other = scaled
        parts = self.sums[other]
        if parts is None:
            return None, Fraction(0)
        return times(parts, factor), factor * self.constants[other]

    def _term(self, factor: Fraction, at: int) -> tuple[Formula, list[Parts]]:
        """A term as a formula of its gates; inner functions of one direction that stand alone share its linear form."""
        # Written twice: only the first time shows which directions stand alone more than once.
        writer = TermWriter(self, frozenset())
        writer.write(at)
        single = [next(iter(gate)) for gate in writer.gates if len(gate) == 1]
        alone = [self.directions[node] for _, node in single]
        twice = frozenset(direction for direction in alone if direction and alone.count(direction) > 1)
        writer = TermWriter(self, twice)
        value = affine_of(writer.tape, factor, writer.write(at), Fraction(0))
        return function_of(writer.tape, value, len(writer.gates)), writer.gates

    def sign(self, at: int) -> int:
        """+1 or -1 where an inner function keeps its sign, else 0."""
        if at not in self.signs:
            low, high = self._values(at)
            # Rigorous ends: a logarithm is taken where the sign is known, never where it was only seen.
            self.signs[at] = int(low > 0) - int(high < 0)
        return self.signs[at]

    def _values(self, at: int) -> tuple[float, float]:
        inner = self.inner("node", at, Fraction(1)).inner
        ends = span(inner.direction, self.low, self.high)
        return range_of(inner.formula, *ends)

    def _summands(self, parts: Parts) -> tuple[Summand, ...]:
        """Inner functions of a sum; its linear part becomes one of them."""
        linear = {}
        found = []
        for (kind, at), w in parts.items():
            if self._is_variable(kind, at):
                linear[int(self.nodes[at].value)] = w
            else:
                found.append(self.inner(kind, at, w))
        if linear:
            direction = normalised(linear.items(), scale=False)
            if direction is None:
                raise OnelayerError("the weights of a linear form are no floats")
            found.append(Summand(Inner(self.vector(direction), "x1"), "x1", 1.0))
        return tuple(found)

    def _is_variable(self, kind: str, at: int) -> bool:
        return kind == "node" and self.nodes[at].op == "var"

    def vector(self, direction: Direction) -> tuple[float, ...]:
        """A direction as one number per input."""
        weights = dict(direction)
        return tuple(float(weights.get(j, 0)) for j in range(len(self.low)))

    def variable(self, index: int) -> int:
        """The node of a variable."""
        return next(at for at, node in enumerate(self.nodes) if node.op == "var" and node.value == index)

    def along(self, tape: Tape, at: int, direction: Direction) -> int:
        """A node of one direction as a function of s = direction . x."""
        s = tape.variable(0)
        replaced = {}
        for k in range(at + 1):
            own = self.linear[k]
            exact = self.affine.separable[k]
            if own:
                constant = exact.constant if exact is not None else ZERO
                first, weight = direction[0]
                replaced[k] = affine_of(tape, own.get(first, ZERO) / weight, s, constant)
                # A constant that is no rational number is what is left of the form at zero.
                if exact is None:
                    zeros = {j: tape.number(0.0) for j in range(k) if self._is_zero(j)}
                    rest = self.affine.rewrite(tape, k, zeros)
                    replaced[k] = tape.add("add", replaced[k], rest)
        if at in replaced:
            return replaced[at]
        return self.affine.rewrite(tape, at, replaced)

    def _is_zero(self, at: int) -> bool:
        """Whether a node is a linear form without a constant."""
        own = self.affine.separable[at]
        return own is not None and bool(own.parts) and not own.constant

    def inner(self, kind: str, at: int, factor: Fraction) -> Summand:
        """factor * node, or factor * log |node|, as a function of its linear form."""
        direction = self.directions[at]
        if direction is None:
            raise OnelayerError("a node of several directions is no inner function")
        tape = Tape()
        value = self.along(tape, at, direction)
        if kind == "log":
            size = tape.add("neg", value) if self.sign(at) < 0 else value
            value = tape.add("log", size)
        base = str(function_of(tape, value))
        scaled = affine_of(tape, factor, value, Fraction(0))
        text = str(function_of(tape, scaled))
        return Summand(Inner(self.vector(direction), text), base, rounded(factor))
