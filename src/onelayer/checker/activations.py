"""Activations of networks in the checker's arithmetic: real values, and how far an execution strays from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb

from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant, whole_power
from onelayer.checker.elements import UNIT, Element, absolute, plus, relu, smaller, smooth, times, underlying
from onelayer.checker.functions import Kinks
from onelayer.checker.softplus import at as softplus_at
from onelayer.checker.softplus import softplus

INFINITE = arb.pos_inf()
KERNEL = 32  # roundings of |x|: more than any order of a kernel's operations needs
LOGISTIC = 16  # likewise of 1 / (1 + e^-x) itself, times x or not
SOFTPLUS = 24  # likewise of log(1 + e^x) itself
SINGLE = 8  # roundings that 4 units in the last place are
SWITCH = arb(20)  # above, torch's softplus returns its argument
LEFT_OUT = (-SWITCH).exp().upper()  # and so less than it is, by this at most


@dataclass(frozen=True)
class Activation:
    """``real`` on elements; ``steep`` bounds the slope between two numbers; ``roundings`` of one executed call.

    ``rounded`` bounds, for arguments between two numbers, the numbers that are rounded: the results where it is None.
    ``lost`` is what results below the normal range err by besides. ``jump`` is what the function may leap by between
    two numbers: an argument that errs may be executed on the other side. ``image`` holds all values.

    Lemma, exp, erf, tanh, expm1 and log1p being within 8 roundings of themselves: 1 / (1 + e^-x) is within 10 of
    itself, and 11 times x; log1p(e^x) is within 17 of itself, as t / ((1 + t) log(1 + t)) <= 1. What is rounded as |x|
    is x g with 0 <= g <= 1, where g is (1 + erf) / 2, (1 + tanh) / 2 or the tanh of a softplus. An argument z of erf or
    tanh within 6 roundings moves them by less than 6, as |z| tanh' and |z| erf' are below 1, and a softplus moves tanh
    by less than 9, as |z| tanh'(z) < 0.5. So g is within 24 roundings of 1, and x g within 28 of |x|.

    Where e^-x overflows or its inverse underflows, x / (1 + e^-x) is lost: less than |x| times the smallest normal
    number at the least such |x|, which is below 710 in every format, and falling beyond.
    """

    real: Callable[[Element, Kinks], Element]
    steep: Callable[[arb, arb], arb]
    roundings: int = SINGLE
    rounded: Callable[[arb, arb], arb] | None = None
    lost: int = 0
    jump: Callable[[arb, arb], arb] = lambda low, high: ZERO
    image: arb | None = None


def _once(name: str) -> Callable[[Element, Kinks], Element]:
    return lambda u, kinks: smooth(name, u)


def _at_most(number: float) -> Callable[[arb, arb], arb]:
    return lambda low, high: arb(number)


def _falling(steep: Callable[[arb], arb]) -> Callable[[arb, arb], arb]:
    """Steepest nearest to zero, and the less steep the farther."""
    return lambda low, high: steep(low.max(-high).max(ZERO))


def _above_zero(steep: Callable[[arb], arb]) -> Callable[[arb, arb], arb]:
    """Steepest at the lower end, which must be above zero."""
    return lambda low, high: steep(low) if low > 0 else INFINITE


def _gated(most: float, middle: float = 0.5) -> Callable[[arb, arb], arb]:
    """x g(x): nowhere steeper than ``most``, and than ``middle`` at 0, from where its slope moves by less than 0.8 |x|.

    Below zero g and g' are at most e^x, and e^x (1 + |x|) rises.
    """

    def steep(low: arb, high: arb) -> arb:
        found = (arb(middle) + arb("0.8") * _larger(low, high)).min(arb(most))
        return found.min(high.exp() * (1 - high)) if high < 0 else found

    return steep


def _rising(low: arb, high: arb) -> arb:
    """The slope of log(1 + e^x) is at most e^x and 1."""
    return high.exp() if high < 0 else arb(1)


def _gelu(u: Element, kinks: Kinks) -> Element:
    """x (1 + erf(x / sqrt 2)) / 2"""
    return times(u.scaled(arb(0.5)), smooth("erf", u.scaled(1 / arb(2).sqrt())).shifted(arb(1)))


def _gelu_tanh(u: Element, kinks: Kinks) -> Element:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""
    cube = times(times(u, u), u)
    inner = plus(u, cube.scaled(arb("0.044715"))).scaled((2 / arb.pi()).sqrt())
    return times(u.scaled(arb(0.5)), smooth("tanh", inner).shifted(arb(1)))


def _softplus(u: Element, kinks: Kinks) -> Element:
    """log(1 + e^x), or x above 20, which is less by at most e^-20."""
    low, high = underlying(u).ends()
    if high <= SWITCH:
        return softplus(u)
    if not isinstance(u, Taylor):  # there is a jump between the two
        return softplus(u).shifted(arb("nan"))
    if low > SWITCH:
        return u
    return softplus(u).shifted(-LEFT_OUT * arb(0.5, 0.5))


def _softplus_rounded(low: arb, high: arb) -> arb:
    """What is returned as it came is not rounded."""
    return ZERO if low > SWITCH else softplus_at(high.min(SWITCH))


def _reciprocal(low: arb, high: arb) -> arb:
    near = low if low > 0 else -high if high < 0 else ZERO
    if near > 0:
        return 1 / (near * near)
    return INFINITE


def _larger(low: arb, high: arb) -> arb:
    return abs(low).max(abs(high))


ACTIVATIONS: dict[str, Activation] = {
    "neg": Activation(lambda u, kinks: -u, _at_most(1), 0),
    "abs": Activation(absolute, _at_most(1), 0),
    "relu": Activation(relu, lambda low, high: ZERO if high <= 0 else arb(1), 0),
    "exp": Activation(_once("exp"), lambda low, high: high.exp()),
    "log": Activation(_once("log"), _above_zero(lambda low: 1 / low)),
    "sqrt": Activation(_once("sqrt"), _above_zero(lambda low: 1 / (2 * low.sqrt()))),
    "rsqrt": Activation(_once("rsqrt"), _above_zero(lambda low: 1 / (2 * low * low.sqrt()))),
    "reciprocal": Activation(_once("inv"), _reciprocal),
    "square": Activation(lambda u, kinks: times(u, u), lambda low, high: 2 * _larger(low, high), 1),
    "sin": Activation(_once("sin"), _at_most(1), image=UNIT_BALL),
    "cos": Activation(_once("cos"), _at_most(1), image=UNIT_BALL),
    "tan": Activation(_once("tan"), lambda low, high: 1 + whole_power(low.union(high).tan(), 2)),
    "atan": Activation(_once("atan"), _falling(lambda r: 1 / (1 + r * r)), image=2 * UNIT_BALL),
    "tanh": Activation(_once("tanh"), _falling(lambda r: (4 * (-2 * r).exp()).min(arb(1))), image=UNIT_BALL),
    "sigmoid": Activation(_once("sigmoid"), _falling(lambda r: (-r).exp().min(arb(0.25))), LOGISTIC, image=UNIT),
    "erf": Activation(_once("erf"), _falling(lambda r: arb("1.1284") * (-r * r).exp()), image=UNIT_BALL),
    "gelu": Activation(_gelu, _gated(1.13), KERNEL, _larger),
    "gelu_tanh": Activation(_gelu_tanh, _gated(1.14), KERNEL, _larger),
    "silu": Activation(lambda u, kinks: times(u, smooth("sigmoid", u)), _gated(1.1), LOGISTIC, lost=1024),
    "softplus": Activation(
        _softplus,
        _rising,
        SOFTPLUS,
        _softplus_rounded,
        jump=lambda low, high: LEFT_OUT if low <= SWITCH and not high <= SWITCH else ZERO,
    ),
    "mish": Activation(lambda u, kinks: times(u, smooth("tanh", softplus(u))), _gated(1.1, 0.6), KERNEL, _larger),
}


def _leaky_relu(u: Element, slope: float, kinks: Kinks) -> Element:
    """slope x + (1 - slope) max(x, 0)"""
    number = arb(slope)
    low, high = underlying(u).ends()
    if low > 0 and high.is_finite():
        return u
    return plus(u.scaled(number), relu(u, kinks).scaled(1 - number))


def _elu(u: Element, alpha: float, kinks: Kinks) -> Element:
    """max(x, 0) + alpha (e^min(x, 0) - 1)"""
    zero = constant(ZERO, u.order)
    curved = smooth("exp", -relu(-u, kinks)) if not isinstance(u, Taylor) else smooth("exp", smaller(u, zero, kinks))
    return plus(relu(u, kinks), curved.shifted(arb(-1)).scaled(arb(alpha)))


@dataclass(frozen=True)
class Bent:
    """x above zero, returned as it came, and below it a number times a function that rises to 0 there.

    ``size`` bounds that function from a number on, ``slope`` its slope up to one.
    """

    real: Callable[[Element, float, Kinks], Element]
    size: Callable[[arb], arb]
    slope: Callable[[arb], arb]
    roundings: int

    def row(self, number: float, cast: arb) -> Activation:
        """The activation with a number that its execution has within ``cast``."""
        factor = abs(arb(number)) + cast

        def steep(low: arb, high: arb) -> arb:
            below = factor * self.slope(high.min(ZERO))
            return below if high <= 0 else arb(1) if low >= 0 else below.max(arb(1))

        return Activation(
            lambda u, kinks: self.real(u, number, kinks),
            steep,
            self.roundings,
            lambda low, high: factor * self.size(low),
        )


BENT = {
    "leaky_relu": Bent(_leaky_relu, lambda low: -low.min(ZERO), lambda high: arb(1), 1),
    "elu": Bent(_elu, lambda low: -low.min(ZERO).expm1(), arb.exp, SINGLE + 2),
}
