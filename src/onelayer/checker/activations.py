"""Activations of networks in the checker's arithmetic: real values, and how far an execution strays from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.elements import Element, absolute, plus, relu, smaller, smooth, times, underlying
from onelayer.checker.functions import Kinks

INFINITE = arb.pos_inf()
KERNEL = 32  # roundings of numbers as large as any on the way: more than any order of a kernel's operations needs
SOFTPLUS = 24  # likewise, of its two functions
SINGLE = 8  # roundings that 4 units in the last place are
SWITCH = arb(20)  # above, torch's softplus returns its argument
LEFT_OUT = (-SWITCH).exp().upper()  # and so less than it is, by this at most


@dataclass(frozen=True)
class Activation:
    """``real`` on elements; ``steep`` bounds the slope between two numbers; ``roundings`` of one executed call.

    ``level`` is added to the size of the result: it bounds the other numbers on the way. ``jump`` is what the function
    may leap by up to a number: an argument that errs may be executed on the other side.

    Lemma, exp, erf, tanh and log being within 8 roundings: a sigmoid is within 18 of numbers up to 1, by any of
    1 / (1 + e^-x), e^x / (1 + e^x) and (1 + tanh(x / 2)) / 2; log(1 + e^x) is within 10 of 1 and itself. What is
    ``gated`` is x g with 0 <= g <= 1, where g is such a sigmoid, (1 + erf) / 2, (1 + tanh) / 2 or the tanh of a
    softplus. An argument z of erf or tanh within 6 roundings moves them by less than 6, as |z| tanh' and |z| erf' are
    below 1; a softplus z moves tanh by less than 12, as (1 + z) tanh'(z) <= 1.2. So g is within 24 roundings of 1, and
    x g within 28 of |x|.
    """

    real: Callable[[Element, Kinks], Element]
    steep: Callable[[arb, arb], arb]
    roundings: int = SINGLE
    level: float = 0.0
    gated: bool = False
    jump: Callable[[arb], arb] = lambda high: ZERO


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
    found = smooth("log", smooth("exp", u).shifted(arb(1)))
    if underlying(u).ends()[1] <= SWITCH:
        return found
    if not isinstance(u, Taylor):  # there is a jump between the two
        return found.shifted(arb("nan"))
    return found.shifted(-LEFT_OUT * arb(0.5, 0.5))


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
    "relu": Activation(relu, _at_most(1), 0),
    "exp": Activation(_once("exp"), lambda low, high: high.exp()),
    "log": Activation(_once("log"), _above_zero(lambda low: 1 / low)),
    "sqrt": Activation(_once("sqrt"), _above_zero(lambda low: 1 / (2 * low.sqrt()))),
    "rsqrt": Activation(_once("rsqrt"), _above_zero(lambda low: 1 / (2 * low * low.sqrt()))),
    "reciprocal": Activation(_once("inv"), _reciprocal),
    "square": Activation(lambda u, kinks: times(u, u), lambda low, high: 2 * _larger(low, high)),
    "sin": Activation(_once("sin"), _at_most(1)),
    "cos": Activation(_once("cos"), _at_most(1)),
    "tan": Activation(_once("tan"), lambda low, high: 1 + low.union(high).tan() ** 2),
    "atan": Activation(_once("atan"), _falling(lambda r: 1 / (1 + r * r))),
    "tanh": Activation(_once("tanh"), _falling(lambda r: (4 * (-2 * r).exp()).min(arb(1)))),
    "sigmoid": Activation(_once("sigmoid"), _falling(lambda r: (-r).exp().min(arb(0.25))), KERNEL, 1.0),
    "erf": Activation(_once("erf"), _falling(lambda r: arb("1.1284") * (-r * r).exp())),
    "gelu": Activation(_gelu, _at_most(1.13), KERNEL, gated=True),
    "gelu_tanh": Activation(_gelu_tanh, _at_most(1.14), KERNEL, gated=True),
    "silu": Activation(lambda u, kinks: times(u, smooth("sigmoid", u)), _at_most(1.1), KERNEL, gated=True),
    "softplus": Activation(
        _softplus, _at_most(1), SOFTPLUS, 1.0, jump=lambda high: ZERO if high <= SWITCH else LEFT_OUT
    ),
    "mish": Activation(
        lambda u, kinks: times(u, smooth("tanh", _softplus(u, kinks))), _at_most(1.1), KERNEL, gated=True
    ),
}


def leaky_relu(u: Element, slope: float, kinks: Kinks) -> Element:
    """slope x + (1 - slope) max(x, 0)"""
    number = arb(slope)
    return plus(u.scaled(number), relu(u, kinks).scaled(1 - number))


def elu(u: Element, alpha: float, kinks: Kinks) -> Element:
    """max(x, 0) + alpha (e^min(x, 0) - 1)"""
    zero = constant(ZERO, u.order)
    curved = smooth("exp", -relu(-u, kinks)) if not isinstance(u, Taylor) else smooth("exp", smaller(u, zero, kinks))
    return plus(relu(u, kinks), curved.shifted(arb(-1)).scaled(arb(alpha)))
