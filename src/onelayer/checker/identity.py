"""The checker's own algebra: are two formulas one function on a box?

A formula is expanded into a sum of terms, each a rational number times rational powers of *symbols*. A symbol is a
text: a variable, a constant, a function of an expanded sum, a maximum, or a sum that is kept whole. Used are the laws
of powers, of exp, log and roots for symbols that intervals show to be positive, of common factors of a sum, of maxima
(kinks.py), and sin^2 = 1 - cos^2 where a sum has the term with cos^2 too. Where both formulas have a value on the whole
box, equal expansions mean equal functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import isqrt

from flint import arb

from onelayer.checker.deadline import need_time
from onelayer.checker.functions import FUNCTIONS
from onelayer.checker.intervals import image
from onelayer.checker.kinks import LONGEST, Expansion, Maxima, Powers, choices, minus, plus, power, scale, text
from onelayer.checker.outcome import Rejected
from onelayer.language.formula import Formula, Node

MOST_TERMS = 5000  # beyond, multiplying out costs more than the proof
MOST_FACTORS = 16  # whole powers of a sum up to this are multiplied out
MOST_DIVISORS = 12  # sums that a difference of two expansions is multiplied by
NOWHERE = arb("nan")
UNITY: Expansion = {(): Fraction(1)}


def one_function(first: Formula, second: Formula, low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether both have the same values wherever both have one, and the first has one all over the box.

    Shown is that their expansions agree, or do once multiplied by all that they are divided by; False shows nothing.
    """
    if not has_values(first, low, high):
        return False
    algebra = Algebra(low, high)
    try:
        ours = algebra.expand(first)
        theirs = algebra.expand(second)
        return all(a == b or algebra.cleared(minus(a, b)) == {} for a, b in zip(ours, theirs, strict=True))
    except (Rejected, OverflowError, ZeroDivisionError):
        return False


def has_values(formula: Formula, low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether intervals show the formula to have a value all over the box."""
    sides = [(arb(a), arb(b)) for a, b in zip(low, high, strict=True)]
    return all(a.is_finite() and b.is_finite() for a, b in image(formula, sides))


class Algebra:
    """Expansions over one box; the symbols met so far with their values and what they stand for."""

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        corners = list(zip(low, high, strict=True))
        self.maxima = Maxima([(Fraction(a), Fraction(b)) for a, b in corners])
        # Of every symbol, all over the box: laws of powers and logarithms are used only where these are positive.
        self.values = {"pi": arb.pi(), "e": arb.const_e()}
        for k, (a, b) in enumerate(corners):
            self.values[f"x{k}"] = arb(a).union(arb(b))
        self.whole: dict[str, Expansion] = {}  # sums kept whole, rational numbers under roots
        self.exponent: dict[str, Powers] = {}  # of symbols exp(...)
        self.argument: dict[str, str] = {}  # of symbols log(...): another symbol

    def expand(self, formula: Formula, variables: Sequence[Expansion] | None = None) -> list[Expansion]:
        """The outputs, with these expansions in the place of the variables where given."""
        done: list[Expansion] = []
        chosen: list[int | None] = [None] * len(formula.nodes)
        if variables is None:
            chosen = choices(formula, len(self.maxima.corners))
        for node, values in zip(formula.nodes, chosen, strict=True):
            need_time()
            if variables is not None and node.op == "var":
                done.append(variables[int(node.value)])
            elif values is not None and node.op != "var":
                done.append(self._valued(self.maxima.chosen(values)))
            else:
                args = [done[at] for at in _arguments(formula, node)]
                done.append(self._expanded(node, args))
        return [done[at] for at in formula.outputs]

    def cleared(self, a: Expansion) -> Expansion:
        """The expansion times the sums kept whole that it is divided by: where it has a value, none of them is zero."""
        for _ in range(MOST_DIVISORS):
            divisors = [(name, e) for powers in a for name, e in powers if name in self.whole and e < 0]
            if not divisors:
                break
            name = divisors[0][0]
            least = min(e for other, e in divisors if other == name)
            divisor = self._symbol(name, -least)
            a = _on_circles(self.product(a, divisor))
        return a

    def maximum(self, parts: Sequence[Expansion]) -> Expansion:
        """The maximum of expansions."""
        return self._valued(self.maxima.of(parts))

    def _valued(self, a: Expansion) -> Expansion:
        """The same, once its maxima have their values."""
        for powers in a:
            for name, _ in powers:
                if name in self.maxima.terms and name not in self.values:
                    ends = [self._ball(term) for term in self.maxima.terms[name]]
                    self.values[name] = reduce(arb.max, ends)
        return a

    def _expanded(self, node: Node, args: list[Expansion]) -> Expansion:
        rules = {
            "var": lambda: self._symbol(f"x{int(node.value)}"),
            "num": lambda: scale(UNITY, Fraction(node.value)),
            "pi": lambda: self._symbol("pi"),
            "e": lambda: self._symbol("e"),
            "add": lambda: plus(args[0], args[1]),
            "sub": lambda: plus(args[0], scale(args[1], Fraction(-1))),
            "neg": lambda: scale(args[0], Fraction(-1)),
            "mul": lambda: self.product(args[0], args[1]),
            "div": lambda: self.product(args[0], self.raised(args[1], Fraction(-1))),
            "pow": lambda: self.raised(args[0], Fraction(int(node.value))),
            "sqrt": lambda: self.raised(args[0], Fraction(1, 2)),
            "exp": lambda: self._exp(args[0]),
            "log": lambda: self._log(args[0]),
            "max": lambda: self.maximum(args),
            "min": lambda: minus({}, self.maximum([minus({}, one) for one in args])),
            "abs": lambda: self.maximum([args[0], minus({}, args[0])]),
            "relu": lambda: self.maximum([args[0], {}]),
        }
        if node.op in rules:
            return rules[node.op]()
        return self._function(node, args)

    def _symbol(self, name: str, exponent: Fraction = Fraction(1)) -> Expansion:
        if exponent:
            return {((name, exponent),): Fraction(1)}
        return UNITY

    def _function(self, node: Node, args: list[Expansion]) -> Expansion:
        """Any other operation is a symbol of its own."""
        arguments = " ; ".join(map(text, args))
        # The value tells tables apart that have the same operation: it is the digest of their numbers.
        name = f"{node.op}:{node.value!r}({arguments})"
        if name not in self.values:
            self.values[name] = NOWHERE
            if len(args) == 1 and node.op in FUNCTIONS:
                self.values[name] = FUNCTIONS[node.op].at(self._ball(args[0]))
        return self._symbol(name)

    def product(self, a: Expansion, b: Expansion) -> Expansion:
        if len(a) * len(b) > MOST_TERMS:
            raise Rejected("an expansion has too many terms")
        total: Expansion = {}
        for p, c in a.items():
            need_time()
            for q, d in b.items():
                total = plus(total, scale(self._joined(p, q), c * d))
        return total

    def _opens(self, name: str, e: Fraction) -> bool:
        """Whether a power is multiplied out: a whole power of a sum, or of a number."""
        whole = name in self.whole and e.denominator == 1
        single = whole and len(self.whole[name]) == 1 and abs(e) <= LONGEST
        return single or (whole and 0 < e <= MOST_FACTORS)

    def _joined(self, p: Powers, q: Powers) -> Expansion:
        """The product of two lists of powers; whole powers of sums and numbers are multiplied out."""
        exponents: dict[str, Fraction] = {}
        for name, e in (*p, *q):
            exponents[name] = exponents.get(name, Fraction(0)) + e
        open_ = [name for name, e in exponents.items() if self._opens(name, e)]
        closed = ((name, e) for name, e in exponents.items() if e and name not in open_)
        rest = tuple(sorted(closed))
        found: Expansion = {rest: Fraction(1)}
        for name in open_:
            content = self.whole[name]
            count = int(exponents[name])
            if count < 0:
                content = _inverse(content)
            for _ in range(abs(count)):
                found = self.product(found, content)
        return found

    def raised(self, a: Expansion, e: Fraction) -> Expansion:
        """a^e, wherever that is a number."""
        if not a:
            return _power_of_zero(e)
        if e.denominator == 1 and 0 <= e <= MOST_FACTORS:
            found = UNITY
            for _ in range(int(e)):
                found = self.product(found, a)
            return found
        a = _on_circles(a)
        if len(a) == 1:
            ((powers, c),) = a.items()
            # (u v)^e = u^e v^e needs a whole e or positive factors: the root of (-1)(-1) is no product of roots.
            if e.denominator == 1 or (c > 0 and self._all_positive(powers)):
                grown = tuple((name, power * e) for name, power in powers)
                return self.product(self._number(c, e), self._joined(grown, ()))
        return self._raised_sum(a, e)

    def _raised_sum(self, a: Expansion, e: Fraction) -> Expansion:
        """A power of a sum: what its terms share outside, the rest kept whole."""
        shared = self._shared(a, e)
        if shared:
            outside = self._joined(tuple((name, least * e) for name, least in shared), ())
            divisor = tuple((name, -least) for name, least in shared)
            inside = self.product(a, {divisor: Fraction(1)})
            return self.product(outside, self.raised(inside, e))
        factor, name = self._kept(a)
        kept = self._joined(((name, e),), ())
        return self.product(self._number(factor, e), kept)

    def _shared(self, a: Expansion, e: Fraction) -> Powers:
        """Symbols with the least exponent that any term has of them, zero where one is missing: (m b)^e = m^e b^e.

        For a power that is no whole number only of symbols that are positive.
        """
        terms = [dict(powers) for powers in a]
        found = []
        for name in sorted({name for term in terms for name in term}):
            least = min(term.get(name, Fraction(0)) for term in terms)
            if least and (e.denominator == 1 or self.values[name] > 0):
                found.append((name, least))
        return tuple(found)

    def _kept(self, a: Expansion) -> tuple[Fraction, str]:
        """A sum as a positive number times one symbol."""
        factor = max(abs(c) for c in a.values())
        content = scale(a, 1 / factor)
        name = "{" + text(content) + "}"
        self.whole.setdefault(name, content)
        self.values.setdefault(name, self._ball(content))
        return factor, name

    def _number(self, c: Fraction, e: Fraction) -> Expansion:
        """c^e, a rational number if it is one; c > 0 unless e is whole."""
        if e.denominator == 1:
            return scale(UNITY, power(c, int(e)))
        if e.denominator == 2:
            up = isqrt(c.numerator)
            down = isqrt(c.denominator)
            if (up * up, down * down) == (c.numerator, c.denominator):
                return scale(UNITY, power(Fraction(up, down), e.numerator))
        name = f"{{{c}}}"
        self.whole.setdefault(name, scale(UNITY, c))
        self.values.setdefault(name, _ball_of(c))
        return self._joined(((name, e),), ())

    def _exp(self, a: Expansion) -> Expansion:
        found = UNITY
        for powers, c in a.items():
            plain: Expansion = {powers: Fraction(1)}
            logarithm = len(powers) == 1 and powers[0][1] == 1 and powers[0][0] in self.argument
            if not powers:
                part = self._symbol("e", c)
            elif logarithm:
                # exp(c log u) = u^c: where the logarithm has a value u is positive.
                part = self._joined(((self.argument[powers[0][0]], c),), ())
            else:
                name = f"exp({text(plain)})"
                self.exponent.setdefault(name, powers)
                self.values.setdefault(name, self._ball(plain).exp())
                part = self._symbol(name, c)
            found = self.product(found, part)
        return found

    def _log(self, a: Expansion) -> Expansion:
        if not a:
            raise Rejected("the logarithm of zero")
        if len(a) == 1:
            ((powers, c),) = a.items()
            if c > 0 and self._all_positive(powers):
                found = self._log_of_number(c)
                for name, e in powers:
                    found = plus(found, scale(self._log_of(name), e))
                return found
        factor, name = self._kept(a)
        return plus(self._log_of_number(factor), self._log_of(name))

    def _log_of_number(self, c: Fraction) -> Expansion:
        if c == 1:
            return {}
        name = f"{{{c}}}"
        self.whole.setdefault(name, scale(UNITY, c))
        self.values.setdefault(name, _ball_of(c))
        return self._log_of(name)

    def _log_of(self, name: str) -> Expansion:
        if name in self.exponent:
            return {self.exponent[name]: Fraction(1)}
        if name == "e":
            return UNITY
        own = f"log({name})"
        self.argument.setdefault(own, name)
        self.values.setdefault(own, self.values[name].log())
        return self._symbol(own)

    def _all_positive(self, powers: Powers) -> bool:
        return all(bool(self.values[name] > 0) for name, _ in powers)

    def _ball(self, a: Expansion) -> arb:
        """The values of an expansion over the box."""
        total = arb(0)
        for powers, c in a.items():
            product = _ball_of(c)
            for name, e in powers:
                base = self.values[name]
                if e.denominator == 1 and abs(e) <= LONGEST:
                    # One by one: Arb has no powers of balls that reach below zero.
                    for _ in range(abs(int(e))):
                        product = product * base if e > 0 else product / base
                else:
                    product = product * (_ball_of(e) * base.log()).exp() if base > 0 else NOWHERE
            total = total + product
        return total


def _arguments(formula: Formula, node: Node) -> tuple[int, ...]:
    """Arguments of a node; u of asin(clip(u, -1, 1)), written as min(max(u, -1), 1), and of acos.

    A symbol asin(...) means asin continued by constants: the same where asin has a value, and nothing else is ever
    used of it than that equal arguments give equal values.
    """
    if node.op not in ("asin", "acos"):
        return node.args
    nodes = formula.nodes
    clip = formula.nodes[node.args[0]]
    if clip.op == "min" and nodes[clip.args[0]].op == "max" and _is_one(formula, clip.args[1]):
        u, low = nodes[clip.args[0]].args
        if nodes[low].op == "neg" and _is_one(formula, nodes[low].args[0]):
            return (u,)
    return node.args


def _is_one(formula: Formula, at: int) -> bool:
    return formula.nodes[at].op == "num" and formula.nodes[at].value == 1


def _on_circles(a: Expansion) -> Expansion:
    """The sum with c p sin^2 replaced by c p - c p cos^2 wherever it has another term in p cos^2."""
    for powers, c in a.items():
        for name, e in powers:
            if not name.startswith("sin:") or e < 2:
                continue
            p = _times_square(powers, name, -2)
            in_cosine = _times_square(p, "cos:" + name[4:], 2)
            if in_cosine in a:
                rest = {own: value for own, value in a.items() if own != powers}
                return _on_circles(plus(plus(rest, {p: c}), {in_cosine: -c}))
    return a


def _times_square(powers: Powers, name: str, e: int) -> Powers:
    """The powers times one symbol to a power."""
    exponents = dict(powers)
    exponents[name] = exponents.get(name, Fraction(0)) + e
    return tuple(sorted((own, power) for own, power in exponents.items() if power))


def _ball_of(c: Fraction) -> arb:
    return arb(c.numerator) / arb(c.denominator)


def _power_of_zero(e: Fraction) -> Expansion:
    """0^e: 0 for e > 0, roots among them, and 1 for e = 0."""
    if e < 0:
        raise Rejected("a power of zero")
    return UNITY if e == 0 else {}


def _inverse(content: Expansion) -> Expansion:
    """One over a single term."""
    ((powers, c),) = content.items()
    return {tuple((n, -x) for n, x in powers): 1 / c}
