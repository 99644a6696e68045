"""Elementary functions and kinks of the checker's Taylor arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial

from flint import arb, arb_series

from onelayer.checker import analytic, chords, edges
from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant, union, whole_power
from onelayer.checker.expansions import EXPANSIONS, by_balls
from onelayer.checker.many import Many

SHARP = arb(2) ** -80
EVERYTHING = arb(0, arb.pos_inf())
Ends = tuple[arb, arb]  # numbers below and above
Series = Callable[[arb_series], arb_series]
# (range of u, n, c, a_n(c)) -> a ball that contains the factor of h^n in the remainder after n - 1 powers
Rule = Callable[[arb, int, arb, arb], arb]


def compose(series: Series, u: Taylor, inside: Ends | None = None, rule: Rule | None = None) -> Taylor:
    """phi(u) by Taylor's theorem.

    With u = c + h, c a number: phi(u) = sum_{n <= k} a_n(c) h^n + r h^{k+1}, a_n being the n-th Taylor coefficient of
    phi and r = a_{k+1}(xi) for some xi between c and a value of u. r is enclosed by evaluating the power series of phi
    in ball arithmetic on a ball that holds c and all values of u; ``rule`` may give a second enclosure, and the
    intersection counts. Where the series does not converge there, fewer powers are taken. ``inside`` are numbers below
    and above all values of u: they narrow the values, not c, which may lie elsewhere or be moved.
    """
    if not u.support:
        return constant(_coefficients(series, u.c[0], 1)[0], u.order)
    k = u.order
    values = u.range()
    if inside is not None:
        values = _narrowed(values, inside)
    # A constant term known to many digits stays one ball: the a_n then enclose all its values, and h(0) is exactly 0.
    c = u.c[0] if u.c[0].rad() < SHARP else u.c[0].mid()
    if not values.overlaps(c):
        c = values.mid()
    reached = values.union(c)
    h = Taylor(u.support, [ZERO if c is u.c[0] else u.c[0] - c, *u.c[1:]], k)
    a = _coefficients(series, c, k + 2)
    b = _coefficients(series, reached, k + 2)
    reach = h.range() if inside is None else values - c

    def remainder(n: int) -> arb:
        known = None if rule is None else rule(reached, n + 1, c, a[n + 1])
        return _meet(b[n + 1], known) * whole_power(reach, n + 1)

    rest = remainder(k)
    while k and not rest.abs_upper() < (before := remainder(k - 1)).abs_upper():
        k, rest = k - 1, before
    return _polynomial(a[: k + 1], h).shifted(rest)


def _meet(series: arb, known: arb | None) -> arb:
    """What two enclosures of one number say together; the second alone where the first says nothing."""
    if known is None:
        return series
    return series.intersection(known) if series.is_finite() and series.overlaps(known) else known


def _polynomial(a: Sequence[arb], h: Taylor) -> Taylor:
    """sum_n a_n h^n."""
    if len(h.support) == 1 and len(h.c) == 2 and h.c[0].is_zero():  # of a multiple of one variable
        powers = [arb(1)]
        for _ in a[1:]:
            powers.append(powers[-1] * h.c[1])
        scaled = (x * y for x, y in zip(a[1:], powers[1:], strict=True))
        return Taylor(h.support, [a[0], *scaled], h.order)
    result = constant(a[-1], h.order)
    for factor in reversed(a[:-1]):
        result = (h * result).shifted(factor)  # h is often sparse, and zeros of the left factor are skipped
    return result


def _narrowed(values: arb, inside: Ends) -> arb:
    """The part of a ball between two numbers; the ball itself where they say nothing."""
    between = inside[0].union(inside[1])
    if not between.is_finite():
        return values
    return values.intersection(between) if values.is_finite() and values.overlaps(between) else between


def _coefficients(series: Series, at: arb, length: int) -> list[arb]:
    """The first Taylor coefficients of phi at a ball; not finite where phi may be undefined, or flint keeps fewer."""
    try:
        found = series(arb_series([at, 1], length))
    except (ValueError, ZeroDivisionError):
        return [arb("nan")] * length
    known = found.coeffs()
    return [*known, *[ZERO if found.prec >= length else arb("nan")] * (length - len(known))]


def _sigmoid_series(x: arb_series) -> arb_series:
    """The power series of 1 / (1 + exp(-x))."""
    return 1 / (1 + (-x).exp())


def _tanh_series(x: arb_series) -> arb_series:
    """The power series of 1 - 2 / (1 + exp(2x))."""
    return 1 - 2 / (1 + (2 * x).exp())


def _atan_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """|a_n(x)| = |sin(n arccot x)| / (n (1 + x^2)^(n/2)) for the arctangent."""
    low = x.abs_lower()
    return UNIT_BALL / (n * (1 + low * low) ** (arb(n) / 2))


def _tanh_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """Cauchy: |tanh| <= max(1, tan rho) within distance rho < pi/2 of the real line, so |a_n| <= tan(rho) / rho^n."""
    rho = arb(1.25)
    return UNIT_BALL * rho.tan() / rho**n


def sigmoid_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """sigmoid(x) = (1 + tanh(x/2)) / 2."""
    return _tanh_rule(x, n, c, a) / arb(2) ** (n + 1)


def _erf_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """a_n = 2/sqrt(pi) exp(-x^2) H_{n-1}(x) (-1)^(n-1) / n!, and |H_m| exp(-x^2/2) <= 1.0865 sqrt(2^m m!) (Cramer)."""
    low = x.abs_lower()
    size = (arb(2) ** (n - 1) * math.factorial(n - 1)).sqrt() * (-low * low / 2).exp()
    return UNIT_BALL * size * arb("1.0865") * 2 / (arb.pi().sqrt() * math.factorial(n))


def _sine_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """Derivatives of sine and cosine are between -1 and 1."""
    return UNIT_BALL / math.factorial(n)


def _stieltjes_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """1/x, log x, sqrt x and 1/sqrt x are averages of 1/(x + s) over s >= 0 (up to a polynomial of degree one).

    The factor of h^n is the divided difference at n times c and u; for 1/(x + s) it is, up to sign,
    1/((c + s)^n (u + s)) <= max(1, c/u) / (c + s)^(n+1), whose average is max(1, c/u) |a_n(c)|. Negative arguments of
    1/x are the mirror image. For log and sqrt this needs n >= 2.
    """
    low = x.abs_lower()
    if n < 2 or not low > 0 or not c * x > 0:
        return EVERYTHING
    return UNIT_BALL * a.abs_upper() * (abs(c) / low).max(arb(1)).upper()


@cache
def _power_series(n: int) -> Series:
    """x**n by multiplication, so that n <= order gives a remainder of exactly zero; 1/x first for negative n."""

    def series(x: arb_series) -> arb_series:
        base = x if n >= 0 else x.inv()
        result = arb_series([1], x.prec)
        for bit in bin(abs(n))[2:]:
            result = result * result * (base if bit == "1" else 1)
        return result

    return series


class Trend(Enum):
    """How a function moves on every interval on which it is defined: its image is then that of the ends."""

    RISING = "rising"
    FALLING = "falling"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Analytic:
    """A function as a power series, as a map of balls, and an enclosure of its remainders if a sharp one is known.

    ``edge(u, low, high, found)`` may give a better enclosure of the function for u in [low, high], where ``found`` is
    the expansion: at an end of its domain a function may be continuous without being analytic.

    Every value is from ``least`` to ``most``: a ball around cos(0) holds numbers above 1, and 1 - cos has a root.
    """

    series: Series
    ball: Callable[[arb], arb]
    rule: Rule | None = None
    trend: Trend = Trend.UNKNOWN
    edge: edges.Edge | None = None
    least: float = -math.inf
    most: float = math.inf

    def interval(self, x: Ends) -> Ends:
        """Ends of an interval that holds all values; not finite where any may be missing."""
        low, high = self._reached(x)
        if not (low.is_finite() and high.is_finite()):
            return low, high
        return (low if low >= self.least else arb(self.least)), (high if high <= self.most else arb(self.most))

    def _reached(self, x: Ends) -> Ends:
        """What the values on balls say of the ends."""
        low, high = x
        if self.trend is Trend.RISING:
            return self.at(low), self.at(high)
        if self.trend is Trend.FALLING:
            return self.at(high), self.at(low)
        image = self.at(low.union(high))
        return image.lower(), image.upper()

    def over(self, x: arb) -> arb:
        """The values on a ball, by its ends where they tell: Arb's image of a wide one may be much wider."""
        if self.trend is Trend.UNKNOWN or x.is_exact():
            return self.at(x)
        low, high = self.interval((x.lower(), x.upper()))
        return low.union(high)

    def at(self, x: arb) -> arb:
        """The values on a ball. What is no number has none: Arb's asin of an exact NaN is a number."""
        return x if x.is_nan() else self.ball(x)


def _square_root(x: arb) -> arb:
    return ZERO if x.is_zero() else x.sqrt()


def _arc_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """asin and acos: (1 - x^2)^(-1/2) has nonnegative coefficients at every x >= 0, so |a_n| is largest at max|x|."""
    reach = x.abs_upper()
    if n < 1 or not reach < 1:
        return EVERYTHING
    return UNIT_BALL * _coefficients(arb_series.asin, arb(reach), n + 1)[n].abs_upper()


FUNCTIONS: dict[str, Analytic] = {
    "exp": Analytic(arb_series.exp, arb.exp, trend=Trend.RISING),
    "log": Analytic(arb_series.log, arb.log, _stieltjes_rule, Trend.RISING),
    "sqrt": Analytic(arb_series.sqrt, _square_root, _stieltjes_rule, Trend.RISING, edges.root_at_zero),
    "sin": Analytic(arb_series.sin, arb.sin, _sine_rule, least=-1, most=1),
    "cos": Analytic(arb_series.cos, arb.cos, _sine_rule, least=-1, most=1),
    "tan": Analytic(arb_series.tan, arb.tan),
    "atan": Analytic(arb_series.atan, arb.atan, _atan_rule, Trend.RISING, chords.ATAN),
    "asin": Analytic(arb_series.asin, arb.asin, _arc_rule, Trend.RISING, edges.arc_at_one(arb.asin)),
    "acos": Analytic(arb_series.acos, arb.acos, _arc_rule, Trend.FALLING, edges.arc_at_one(arb.acos)),
    "erf": Analytic(arb_series.erf, arb.erf, _erf_rule, Trend.RISING, chords.ERF, -1, 1),
    "tanh": Analytic(_tanh_series, arb.tanh, _tanh_rule, Trend.RISING, chords.TANH, -1, 1),
    "sigmoid": Analytic(_sigmoid_series, chords.logistic, sigmoid_rule, Trend.RISING, chords.SIGMOID, 0, 1),
    "sinrel": Analytic(analytic.mean_series((1, 0, -1, 0), arb_series.sin), analytic.sinrel_ball, analytic.sinrel_rule),
    "exprel": Analytic(
        analytic.mean_series((1, 1, 1, 1), arb_series.exp), analytic.exprel_end, analytic.exprel_rule, Trend.RISING
    ),
    "cbrt": Analytic(analytic.cbrt_series, analytic.cbrt_end, _stieltjes_rule, Trend.RISING, analytic.cbrt_at_zero),
    "lgamma": Analytic(analytic.lgamma_series, analytic.lgamma_ball, analytic.lgamma_rule),
    "inv": Analytic(arb_series.inv, lambda x: 1 / x, _stieltjes_rule),
    "rsqrt": Analytic(arb_series.rsqrt, arb.rsqrt, _stieltjes_rule),
}


def apply(name: str, u: Taylor, inside: Ends | None = None) -> Taylor:
    """A function of u; ``inside`` are numbers known to lie below and above all values of u."""
    function = FUNCTIONS[name]
    if isinstance(u, Many):
        general = partial(by_balls, partial(_coefficients, function.series), function.rule)
        return u.composed(EXPANSIONS.get(name, general), inside)
    if not u.support:
        return constant(function.over(u.c[0]), u.order)
    found = compose(function.series, u, inside, function.rule)
    if function.edge is None:
        return found
    low, high = u.ends()
    if inside is not None and bounded(inside):
        low = low.max(inside[0]).lower()
        high = high.min(inside[1]).upper()
    return function.edge(u, low, high, found)


def bounded(ends: Ends) -> bool:
    """Whether both ends are numbers."""
    return ends[0].is_finite() and ends[1].is_finite()


def narrowed(value: Taylor, ends: Ends, surely: bool = True) -> Taylor:
    """An interval that holds all values as a constant ball, where it is narrower than the remainder.

    What is not finite stays undefined, unless there is ``surely`` a value wherever the interval is bounded.
    """
    if not bounded(ends) or not (surely or value.is_finite()):
        return value
    low, high = ends
    remainder = sum((c.rad() for c in value.c), ZERO)
    narrower = not value.is_finite() or (high - low) / 2 < remainder
    return constant(low.union(high), value.order) if narrower else value


def power(u: Taylor, n: int) -> Taylor:
    """u**n for an integer n, exactly where the order allows."""
    if isinstance(u, Many):
        positive = u.raised(abs(n)) if n else constant(arb(1), u.order)
        return positive if n >= 0 else apply("inv", positive)
    return compose(_power_series(n), u)


class Kinks:
    """Which sides of its kinks a function is evaluated on.

    relu(u) is u or 0 where the range of u decides. Where it does not, ``cases`` may hold an assumption (v, sign): the
    evaluation then speaks only of points with sign * v >= 0. For u = a v + d with small d: where a v >= 0 and d >= -s,
    u <= relu(u) <= u + s; where a v <= 0 and d <= s, 0 <= relu(u) <= s, s >= 0. Otherwise relu(u) is enclosed by
    lines: for u in [l, h], l < 0 < h, it lies between a u and a u - a l with a = h / (h - l). Undecided arguments are
    collected in ``open`` for the caller to assume.
    """

    def __init__(self, cases: list[tuple[Taylor, int]] | None = None) -> None:
        self.cases = cases or []
        self.open: list[Taylor] = []

    def relu(self, u: Taylor) -> Taylor:
        """max(u, 0): u or 0 where the sign is known, by itself or by a case that is assumed; else the kink is noted."""
        if isinstance(u, Many):
            return u.rectified()
        low, high = u.ends()  # a kink on the edge of the box is none
        if low >= 0:
            return u
        if high <= 0:
            return constant(ZERO, u.order)
        if not (low.is_finite() and high.is_finite()):
            return constant(arb("nan"), u.order)
        slope = (high / (high - low)).mid()
        # relu(u) - slope u is convex in u: largest at the ends, smallest at 0.
        top = (-slope * low).max((1 - slope) * high)
        side = self._side(u, low, high, top)
        if side is not None:
            positive, slack = side
            return u.shifted(slack) if positive else constant(slack, u.order)
        return u.scaled(slope).shifted(top * arb(0.5, 0.5))

    def _side(self, u: Taylor, low: arb, high: arb, lines: arb) -> tuple[bool, arb] | None:
        """Whether u is positive in a case that is assumed, and by how much relu(u) may then leave u or 0.

        None where no case tells more than two lines with the distance ``lines``. Where the best case tells little, the
        kink is noted.
        """
        positive, beyond = True, arb.pos_inf()
        for v, sign in self.cases:
            ratio, rest = proportion(u, v)
            above = (ratio > 0) == (sign > 0)
            here = (-rest if above else rest).upper()
            if here < beyond:
                positive, beyond = above, here.max(ZERO)
        if not beyond < high.max(-low) / 1024:
            self.open.append(u)
        return (positive, beyond * arb(0.5, 0.5)) if beyond < lines else None

    def maximum(self, a: Taylor, b: Taylor) -> Taylor:
        """max(a, b) = b + relu(a - b); the larger one itself where that is known."""
        first = _larger(a, b)
        return b + self.relu(a - b) if first is None else a if first else b

    def minimum(self, a: Taylor, b: Taylor) -> Taylor:
        """min(a, b) = a - relu(a - b); the smaller one itself where that is known."""
        first = _larger(a, b)
        return a - self.relu(a - b) if first is None else b if first else a

    def absolute(self, u: Taylor) -> Taylor:
        """The absolute value; where the sign is open the kink is noted."""
        low, high = u.ends()
        if low >= 0:
            return u
        if high <= 0:
            return -u
        if isinstance(u, Many) or not (low.is_finite() and high.is_finite()):
            return self.relu(u).scaled(arb(2)) - u
        slope = ((high + low) / (high - low)).mid()
        # |u| - slope u is convex in u too.
        top = (-(1 + slope) * low).max((1 - slope) * high)
        side = self._side(u, low, high, top / 2)
        if side is not None:
            positive, slack = side
            return (u if positive else -u).shifted(2 * slack)
        return u.scaled(slope).shifted(top * arb(0.5, 0.5))


def _larger(a: Taylor, b: Taylor) -> bool | None:
    """Whether a >= b on the whole box, or b >= a; None where neither is known, or one of them is not."""
    if isinstance(a, Many) or isinstance(b, Many):
        return None
    low, high = (a - b).ends()
    if not (low.is_finite() and high.is_finite()):
        return None
    return True if low >= 0 else False if high <= 0 else None


def proportion(u: Taylor, v: Taylor) -> tuple[arb, arb]:
    """A number a and a ball that contains u - a v on the whole box; a variable of only one of them tells no a."""
    support = union(u.support, v.support)
    first, second = u.over(support), v.over(support)
    best = max(range(1, len(second)), key=lambda at: second[at].abs_lower().mid(), default=0)
    if not best or second[best].abs_lower() == 0:
        return arb(1), arb("nan")
    ratio = (first[best] / second[best]).mid() if best < len(first) else ZERO
    return ratio, (u - v.scaled(ratio)).range()
