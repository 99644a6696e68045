"""The syntax tree of the formula language: a flat list of nodes in which every argument comes before its use.

Equal subexpressions are one node (a directed acyclic graph), so a formula costs what it computes and no walk over it
needs recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from onelayer.errors import FormulaError

LEAVES = ("var", "num", "pi", "e")
BINARY = ("add", "sub", "mul", "div", "min", "max")
UNARY = ("neg", "sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh", "sigmoid", "relu", "atan", "erf")
POWER = "pow"  # value is the integer exponent
MAX_EXPONENT = 1024
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
    _known: dict[Node, int] = field(default_factory=dict)

    def add(self, op: str, *args: int, value: float = 0) -> int:
        node = Node(op, args, value)
        at = self._known.get(node)
        if at is not None:
            return at
        if len(self.nodes) >= self.limit:
            raise FormulaError(f"formula of more than {self.limit:,} operations; split the function into simpler parts")
        constant = self._constant(node)
        if constant is not None and not math.isfinite(constant):
            raise FormulaError(f"constant part '{op}' has no finite value; keep every constant below 1.8e308")
        self.nodes.append(node)
        self.constant.append(constant)
        self.exact.append(self._exact(node))
        self.total.append(self._total(node))
        self._known[node] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def variable(self, index: int) -> int:
        return self.add("var", value=index)

    def number(self, value: float) -> int:
        """The node of a finite float, negative ones as the negation of a positive literal."""
        if not math.isfinite(value):
            raise FormulaError(f"constant {value} is not a finite number; give a value below 1.8e308")
        at = self.add("num", value=abs(float(value)))
        return self.add("neg", at) if math.copysign(1.0, value) < 0 and value != 0 else at

    def power(self, base: int, exponent: int) -> int:
        """base ** exponent. Lemma: integer n is a power; n/2 is sqrt(base)**n; any other y is exp(y log base).

        The last two are defined for base >= 0 and base > 0 only.
        """
        exact = self.exact[exponent]
        if exact is not None and exact.denominator in (1, 2):
            if abs(exact.numerator) > MAX_EXPONENT:
                raise FormulaError(f"exponent {float(exact):g} is too large; use at most {MAX_EXPONENT}")
            if exact.denominator == 2:
                base = self.add("sqrt", base)
            return base if exact.numerator == 1 else self.add(POWER, base, value=exact.numerator)
        if self.nodes[base].op == "e":
            return self.add("exp", exponent)
        return self.add("exp", self.add("mul", exponent, self.add("log", base)))

    def _constant(self, node: Node) -> float | None:
        if node.op == "var":
            return None
        args = [self.constant[at] for at in node.args]
        known = [value for value in args if value is not None]
        return float_value(node, known) if len(known) == len(args) else None

    def _exact(self, node: Node) -> Fraction | None:
        if node.op == "num":
            return _small(Fraction(node.value)) if node.value < 2**EXACT_BITS else None
        args = [self.exact[at] for at in node.args]
        a, b = (*args, None, None)[:2]
        if a is None:
            return None
        if node.op == "neg":
            return -a
        if node.op == POWER:
            bits = max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(int(node.value))
            return _small(a ** int(node.value)) if bits <= EXACT_BITS and (a or node.value > 0) else None
        if b is None or node.op not in ("add", "sub", "mul", "div") or (node.op == "div" and not b):
            return None
        return _small({"add": a + b, "sub": a - b, "mul": a * b}[node.op] if node.op != "div" else a / b)

    def _total(self, node: Node) -> bool:
        if not all(self.total[at] for at in node.args):
            return False
        match node.op:
            case "tan":
                return False
            case "div":
                return bool(self.exact[node.args[1]])
            case "pow":
                return node.value >= 0 or bool(self.exact[node.args[0]])
            case "log" | "sqrt":
                known = self.exact[node.args[0]]
                return known is not None and (known > 0 or (known == 0 and node.op == "sqrt"))
            case _:
                return True


def float_value(node: Node, args: Sequence[float]) -> float:
    """Value of a constant node in float64; nan where it is undefined, inf where it overflows."""
    try:
        return _FLOAT[node.op](node, *args)
    except (ValueError, ZeroDivisionError):
        return math.nan
    except OverflowError:
        return math.inf


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _library(op: str, node: Node, x: float) -> float:
    return float(getattr(math, op)(x))


_FLOAT: dict[str, Callable[..., float]] = {
    "num": lambda n: float(n.value),
    "pi": lambda n: math.pi,
    "e": lambda n: math.e,
    "add": lambda n, a, b: a + b,
    "sub": lambda n, a, b: a - b,
    "mul": lambda n, a, b: a * b,
    "div": lambda n, a, b: a / b,
    "min": lambda n, a, b: min(a, b),
    "max": lambda n, a, b: max(a, b),
    "pow": lambda n, a: a ** int(n.value),
    "neg": lambda n, a: -a,
    "abs": lambda n, a: abs(a),
    "relu": lambda n, a: max(a, 0.0),
    "sigmoid": lambda n, a: sigmoid(a),
    **{op: partial(_library, op) for op in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "atan", "erf")},
}


def _small(value: Fraction) -> Fraction | None:
    return value if max(value.numerator.bit_length(), value.denominator.bit_length()) <= EXACT_BITS else None


def prune(nodes: Sequence[Node], outputs: Sequence[int]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes that ``outputs`` need, in depth-first order from the first output: one order for equal formulas."""
    place: dict[int, int] = {}
    kept: list[Node] = []
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
        kept.append(Node(node.op, tuple(place[arg] for arg in node.args), node.value))
    return tuple(kept), tuple(place[at] for at in outputs)
