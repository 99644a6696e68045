"""f for a Coq certificate: a sum of terms, each of one linear form of x where that is so; and its text in Coq."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd, lcm

from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.tree import Node

Form = tuple[tuple[Fraction, ...], Fraction]  # slopes . x + constant
# Coprime integers, the first that is not zero positive.
Direction = tuple[int, ...]
Leaf = Callable[[int], str | None]

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
FUNCTIONS = {"sin": "sin", "cos": "cos", "tan": "tan", "exp": "exp", "log": "ln", "sqrt": "sqrt", "abs": "Rabs"}
FUNCTIONS |= {"atan": "atan", "max": "Rmax", "min": "Rmin", "relu": "relu"}
PATTERNS = {"pi": "PI", "e": "(exp 1)", "neg": "(- {0})"}
PATTERNS |= {"tanh": "(1 - 2 / (exp (2 * {0}) + 1))", "sigmoid": "(/ (1 + exp (- {0})))"}
# Characters of a statement that Coq still parses in seconds.
LONGEST = 200_000


def direction_of(slopes: Sequence[Fraction]) -> Direction:
    """The direction of a vector that is not zero: equal for vectors that are multiples of each other."""
    scale = lcm(*(slope.denominator for slope in slopes))
    whole = [int(slope * scale) for slope in slopes]
    common = gcd(*whole)
    # One of two opposite vectors, so that they are one direction.
    sign = 1 if next(number for number in whole if number) > 0 else -1
    return tuple(sign * number // common for number in whole)


@dataclass
class Terms:
    """f = affine + sum of coefficient times node, for one output."""

    slopes: list[Fraction]
    constant: Fraction = Fraction(0)
    nodes: list[tuple[Fraction, int]] = field(default_factory=list)


class Expression:
    """A formula with max, min and relu written by abs: max(a, b) = (a + b + |a - b|) / 2, relu(a) = (a + |a|) / 2.

    ``nodes`` and ``outputs`` are as in Formula; ``forms[i]`` is the node as a rational affine form of x, or None.
    """

    def __init__(self, formula: Formula) -> None:
        self.dim = formula.dim
        self.nodes: list[Node] = []
        self.forms: list[Form | None] = []
        self._known: dict[Node, int] = {}
        place: list[int] = []
        for node in formula.nodes:
            args = [place[at] for at in node.args]
            place.append(self._rewrite(node, args))
        self.outputs = [place[at] for at in formula.outputs]

    def _add(self, op: str, *args: int, value: float = 0) -> int:
        node = Node(op, args, value)
        if node not in self._known:
            self.nodes.append(node)
            self.forms.append(self._form(node))
            self._known[node] = len(self.nodes) - 1
        return self._known[node]

    def _rewrite(self, node: Node, args: list[int]) -> int:
        if node.op not in ("max", "min", "relu"):
            return self._add(node.op, *args, value=node.value)
        a = args[0]
        # max(a, b) = (a + b + |a - b|) / 2, min(a, b) = (a + b - |a - b|) / 2, relu(a) = (a + |a|) / 2.
        if node.op == "relu":
            total = self._add("add", a, self._add("abs", a))
        else:
            distance = self._add("abs", self._add("sub", *args))
            sign = "add" if node.op == "max" else "sub"
            total = self._add(sign, self._add("add", *args), distance)
        return self._add("div", total, self._add("num", value=2.0))

    def _form(self, node: Node) -> Form | None:
        zero = (Fraction(0),) * self.dim
        if node.op == "var":
            own = [Fraction(int(i == int(node.value))) for i in range(self.dim)]
            return tuple(own), Fraction(0)
        if node.op == "num":
            return zero, Fraction(node.value)
        found = [self.forms[at] for at in node.args]
        forms = [form for form in found if form is not None]
        if not forms or len(forms) < len(found):
            return None
        return _affine(node.op, forms[0], forms[-1])

    def terms(self, output: int) -> Terms:
        """The summands of an output, found through sums, differences and rational factors."""
        found = Terms([Fraction(0)] * self.dim)
        stack = [(Fraction(1), self.outputs[output])]
        while stack:
            factor, at = stack.pop()
            form = self.forms[at]
            if form is not None:
                slopes, constant = form
                found.slopes = [a + factor * b for a, b in zip(found.slopes, slopes, strict=True)]
                found.constant += factor * constant
                continue
            summands = self._summands(self.nodes[at])
            # Reversed, so that terms come in the order in which they are written.
            stack += [(factor * scale, arg) for scale, arg in reversed(summands)]
            if not summands:
                found.nodes.append((factor, at))
        return found

    def _summands(self, node: Node) -> list[tuple[Fraction, int]]:
        """A node as a sum of multiples of its arguments; nothing where it is no such sum."""
        one = Fraction(1)
        numbers = [self._number(arg) for arg in node.args]
        match node.op:
            case "add" | "sub":
                first, second = node.args
                sign = one if node.op == "add" else -one
                return [(one, first), (sign, second)]
            case "neg":
                return [(-one, node.args[0])]
            case "mul" if numbers[0] is not None:
                return [(numbers[0], node.args[1])]
            case "mul" if numbers[1]:
                return [(numbers[1], node.args[0])]
            case "div" if numbers[1]:
                return [(1 / numbers[1], node.args[0])]
        return []

    def form(self, at: int) -> Form:
        """An affine node as a form."""
        form = self.forms[at]
        assert form is not None
        return form

    def _number(self, at: int) -> Fraction | None:
        form = self.forms[at]
        if form is not None and not any(form[0]):
            return form[1]
        return None

    def arguments(self, at: int) -> list[int]:
        """The largest affine parts below a node that depend on x: what the node is a function of."""
        found = []
        stack = [at]
        seen = set()
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            form = self.forms[here]
            if form is None:
                stack += self.nodes[here].args
            elif any(form[0]):
                found.append(here)
        return sorted(found)

    def directions(self, at: int) -> set[Direction]:
        """The linear forms that a node depends on."""
        return {direction_of(self.form(arg)[0]) for arg in self.arguments(at)}

    def variables(self, at: int) -> set[int]:
        """The coordinates that are written below a node, also where they cancel."""
        below = [self.nodes[here] for here in self._below(at)]
        return {int(node.value) for node in below if node.op == "var"}

    def kinks(self, at: int) -> list[int]:
        """The abs nodes of affine arguments below a node: where it has a kink at a rational place."""
        found = [here for here in self._below(at) if self.nodes[here].op == "abs"]
        return [here for here in found if self._bent(here)]

    def _below(self, at: int) -> list[int]:
        below = set()
        stack = [at]
        while stack:
            here = stack.pop()
            if here not in below:
                below.add(here)
                stack += self.nodes[here].args
        return sorted(below)

    def _bent(self, at: int) -> bool:
        form = self.forms[self.nodes[at].args[0]]
        return form is not None and any(form[0])

    def text(self, at: int, leaf: Leaf) -> str:
        """A node in Coq; ``leaf`` may give the text of a node itself, in other variables than x."""
        return formula_text(self.nodes, at, leaf)


def formula_text(nodes: Sequence[Node], at: int, leaf: Leaf, constant: Callable[[Fraction], str] | None = None) -> str:
    """Coq text of the node ``at``, numbers by ``constant``; tanh and sigmoid are written by exp, erf cannot be."""
    write = constant or number
    texts: dict[int, str] = {}
    stack = [at]
    # With a stack of its own: formulas are deeper than Python may call itself.
    while stack:
        here = stack[-1]
        own = leaf(here)
        arguments = nodes[here].args if own is None else ()
        waiting = [arg for arg in arguments if arg not in texts]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if own is None:
            own = _written(nodes[here], [texts[arg] for arg in arguments], write)
        texts[here] = own
        # A node that is used twice is written twice: texts may grow like 2^depth.
        if len(texts[here]) > LONGEST:
            raise OnelayerError("the formula of f is too long for a Coq certificate")
    return texts[at]


def _written(node: Node, args: list[str], write: Callable[[Fraction], str]) -> str:
    match node.op:
        case "var":
            return f"x{int(node.value) + 1}"
        case "num":
            return write(Fraction(node.value))
        case "pow":
            power = f"({args[0]} ^ {abs(int(node.value))})"
            if node.value >= 0:
                return power
            return f"(/ {power})"
        case op if op in PATTERNS:
            return PATTERNS[op].format(*args)
        case op if op in ARITHMETIC:
            return f"({args[0]} {ARITHMETIC[op]} {args[1]})"
        case op if op in FUNCTIONS:
            return f"({FUNCTIONS[op]} {' '.join(args)})"
    raise OnelayerError(f"a Coq certificate cannot state '{node.op}': the tactic interval does not know it")


def _affine(op: str, first: Form, second: Form) -> Form | None:
    """What an operation makes of affine forms, where that is one again."""
    (a, p), (b, q) = first, second
    one = Fraction(1)
    none = Fraction(0)
    match op:
        case "neg":
            return _combined(a, b, -one, none), -p
        case "add":
            return _combined(a, b, one, one), p + q
        case "sub":
            return _combined(a, b, one, -one), p - q
        case "mul" if not any(a) or not any(b):
            return _combined(a, b, q, p), p * q
        case "div" if q and not any(b):
            return _combined(a, b, 1 / q, none), p / q
    return None


def _combined(a: Sequence[Fraction], b: Sequence[Fraction], p: Fraction, q: Fraction) -> tuple[Fraction, ...]:
    """p a + q b."""
    pairs = zip(a, b, strict=True)
    return tuple(p * x + q * y for x, y in pairs)


def number(value: Fraction) -> str:
    """A rational in Coq: n, n / d, or n / 2 ^ k for the dyadic ones, which the stored numbers are."""
    n = value.numerator
    d = value.denominator
    if d == 1:
        if n >= 0:
            return str(n)
        return f"({n})"
    power = d.bit_length() - 1
    if d == 1 << power and power > 10:
        return f"({n} / 2 ^ {power})"
    return f"({n} / {d})"
