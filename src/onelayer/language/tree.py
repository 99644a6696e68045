"""The syntax tree of the formula language: a flat list of nodes in which every argument comes before its use.

Equal subexpressions are one node (a directed acyclic graph), so a formula costs what it computes and no walk over it
needs recursion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from onelayer.errors import FormulaError
from onelayer.language.constants import CONSTANTS
from onelayer.language.operations import POWER, operation
from onelayer.language.removable import cancelled

LEAVES = ("var", "num", *CONSTANTS)
MAX_EXPONENT = 1024  # beyond, float64 numbers other than 1 overflow or vanish
# Square roots that the denominator of an exponent takes: roots reach down to base 0, where a logarithm does not.
ROOTS = {1: 0, 2: 1, 4: 2, 8: 3}
EXACT_BITS = 256  # exact rational values of constants are followed up to this size


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. ``args`` are positions of earlier nodes.

    ``value`` is the variable's index (from 0) of a "var", the non-negative float of a "num", the integer exponent of a
    "pow", and 0 otherwise. Negative constants are "neg" of a "num", so that text and tree correspond one to one.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float = 0


@dataclass
class Tape:
    """Builds a tree: each method appends a node, or finds the equal one, and returns its position.

    ``constant[i]`` is the float64 value of a node without variables (None otherwise), kept to refuse overflow early;
    ``exact[i]`` is its exact rational value where that is small, kept to recognise integer exponents. Neither replaces
    the node: the formula 1/3 is the real number one third, enclosed by whoever evaluates it. ``total[i]`` holds where
    the node is known to have a value whatever the variables are: only such a node may be dropped beside a factor 0.
    """

    limit: int = 10**6
    nodes: list[Node] = field(default_factory=list)
    constant: list[float | None] = field(default_factory=list)
    exact: list[Fraction | None] = field(default_factory=list)
    total: list[bool] = field(default_factory=list)
    cancels: bool = True  # whether removable singularities are removed
    apart: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # factors of sums, kept by removable.py
    depth: int = 0  # of the sum that it looks into
    _known: dict[Node, int] = field(default_factory=dict)

    def add(self, op: str, *args: int, value: float = 0) -> int:
        """The place of a node; an equal one that is there already is used again."""
        node = Node(op, args, value)
        at = self._known.get(node)
        if at is not None:
            return at
        # Before the node is made: where its singularity is removable, another node takes its place for good.
        if self.cancels and op in ("mul", "div"):
            known = cancelled(self, op, *args)
            if known is not None:
                return known
        if len(self.nodes) >= self.limit:
            raise FormulaError(f"formula of more than {self.limit:,} operations; split the function into simpler parts")
        # Refused here, where the column is known, and not in the middle of a proof.
        constant = self._constant(node)
        if constant is not None and not math.isfinite(constant):
            raise FormulaError(f"constant part '{op}' has no finite value; keep every constant below 1.8e308")
        exact = self._exact(node)
        total = self._total(node)
        self.nodes.append(node)
        self.constant.append(constant)
        self.exact.append(exact)
        self.total.append(total)
        self._known[node] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def found(self, op: str, *args: int) -> int | None:
        """The place of a node that is there already, or None."""
        return self._known.get(Node(op, args))

    def variable(self, index: int) -> int:
        """The place of a variable."""
        return self.add("var", value=index)

    def number(self, value: float) -> int:
        """The node of a finite float, negative ones as the negation of a positive literal."""
        if not math.isfinite(value):
            raise FormulaError(f"constant {value} is not a finite number; give a value below 1.8e308")
        at = self.add("num", value=abs(float(value)))
        if value < 0:
            return self.add("neg", at)
        return at

    def power(self, base: int, exponent: int) -> int:
        """base ** exponent. Lemma: integer n is a power; n/2, n/4, n/8 powers of roots; any other y is exp(y log base).

        The last two are defined for base >= 0 and base > 0 only.
        """
        # Exactly: x**(1/3*3) is x, and 0.1*10 is not 1.
        exact = self.exact[exponent]
        if exact is not None and exact.denominator in ROOTS:
            if abs(exact.numerator) > MAX_EXPONENT:
                raise FormulaError(f"exponent {float(exact):g} is too large; use at most {MAX_EXPONENT}")
            for _ in range(ROOTS[exact.denominator]):
                base = self.add("sqrt", base)
            if exact.numerator == 1:
                return base
            return self.add(POWER, base, value=exact.numerator)
        if self.nodes[base].op == "e":
            return self.add("exp", exponent)
        return self.add("exp", self.add("mul", exponent, self.add("log", base)))

    def _constant(self, node: Node) -> float | None:
        if node.op == "var":
            return None
        args = [self.constant[at] for at in node.args]
        known = [value for value in args if value is not None]
        if len(known) == len(args):
            return float_value(node, known)
        return None

    def _exact_args(self, args: Sequence[int]) -> list[Fraction]:
        """The exact values of those arguments that have one."""
        values = [self.exact[at] for at in args]
        return [value for value in values if value is not None]

    def _exact(self, node: Node) -> Fraction | None:
        if node.op == "num":
            if node.value < 2**EXACT_BITS:
                return _small(Fraction(node.value))
            return None
        args = self._exact_args(node.args)
        if node.op in LEAVES or len(args) < len(node.args):
            return None
        row = operation(node.op, node.value)
        # Asked before it is computed: a high power of a long number takes for ever.
        too_long = node.op == POWER and _bits(args[0]) * abs(int(node.value)) > EXACT_BITS
        if too_long or not row.rational or not row.total(args):
            return None
        return _small(Fraction(row.number(*args)))

    def _total(self, node: Node) -> bool:
        if not all(self.total[at] for at in node.args):
            return False
        if node.op in LEAVES:
            return True
        known = [self.exact[at] for at in node.args]
        return operation(node.op, node.value).total(known)


def float_value(node: Node, args: Sequence[float]) -> float:
    """Value of a constant node in float64; nan where it is undefined, inf where it overflows."""
    if node.op == "num":
        return float(node.value)
    if node.op in CONSTANTS:
        return CONSTANTS[node.op].value
    try:
        return float(operation(node.op, node.value).number(*args))
    except (ValueError, ZeroDivisionError):
        return math.nan
    except OverflowError:
        return math.inf


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _small(value: Fraction) -> Fraction | None:
    """The value, unless it is too long to be followed."""
    if _bits(value) <= EXACT_BITS:
        return value
    return None


def squared(nodes: Sequence[Node], at: int) -> int | None:
    """The node that a node is the square of, written as a power or as a product."""
    node = nodes[at]
    raised = node.op == POWER and node.value == 2
    doubled = node.op == "mul" and node.args[0] == node.args[1]
    if raised or doubled:
        return node.args[0]
    return None


def prune(nodes: Sequence[Node], outputs: Sequence[int]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes that ``outputs`` need, in depth-first order from the first output: one order for equal formulas."""
    place: dict[int, int] = {}
    kept: list[Node] = []
    # A stack of its own in place of recursion: formulas are deeper than Python's stack.
    stack = list(reversed(outputs))
    while stack:
        at = stack[-1]
        if at in place:
            stack.pop()
            continue
        waiting = [arg for arg in nodes[at].args if arg not in place]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        node = nodes[at]
        place[at] = len(kept)
        args = tuple(place[arg] for arg in node.args)
        kept.append(Node(node.op, args, node.value))
    return tuple(kept), tuple(place[at] for at in outputs)
