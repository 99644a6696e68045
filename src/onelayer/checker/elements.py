"""What a network is evaluated on: Taylor enclosures, or jets of them that carry derivatives along.

A :class:`Jet` holds a value and its derivatives along D directions (None: zero); its parts may be jets again, which
gives second derivatives. Both kinds know +, -, *, scaled and shifted; every function below is written in those, and so
is its own derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Union

from flint import arb

from onelayer.checker import chords
from onelayer.checker.analytic import differentiated, exprel_rule, sinrel_rule
from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.attention import centre, sum_of
from onelayer.checker.functions import FUNCTIONS, Ends, Kinks, apply, bounded, compose, narrowed
from onelayer.checker.functions import power as power_of
from onelayer.checker.many import Many
from onelayer.checker.outcome import Rejected

Element = Union[Taylor, "Jet"]
UNIT = arb(0.5, 0.5)  # [0, 1]


class Jet:
    """A value and one derivative per direction."""

    __slots__ = ("tangents", "value")

    def __init__(self, value: Element, tangents: Sequence[Element | None]) -> None:
        self.value = value
        self.tangents = list(tangents)

    @property
    def order(self) -> int:
        """That of the Taylor arithmetic."""
        return self.value.order

    def __add__(self, other: Element) -> Jet:
        if not isinstance(other, Jet):
            return Jet(plus(self.value, other), self.tangents)
        pairs = zip(self.tangents, other.tangents, strict=True)
        return Jet(plus(self.value, other.value), [_total(a, b) for a, b in pairs])

    def __neg__(self) -> Jet:
        return Jet(-self.value, [None if t is None else -t for t in self.tangents])

    def __sub__(self, other: Element) -> Jet:
        return self + -other

    def __mul__(self, other: Element) -> Jet:
        if not isinstance(other, Jet):
            return Jet(_product(self.value, other), [_times(t, other) for t in self.tangents])
        pairs = zip(self.tangents, other.tangents, strict=True)
        found = [_total(_times(a, other.value), _times(b, self.value)) for a, b in pairs]
        return Jet(_product(self.value, other.value), found)

    def scaled(self, factor: arb) -> Jet:
        """Times a number."""
        return Jet(self.value.scaled(factor), [None if t is None else t.scaled(factor) for t in self.tangents])

    def shifted(self, offset: arb) -> Jet:
        """Plus a number."""
        return Jet(self.value.shifted(offset), self.tangents)


def plus(a: Element, b: Element) -> Element:
    """The sum. A jet goes first: it knows what to do with a plain one."""
    if isinstance(b, Jet) and not isinstance(a, Jet):
        return b + a
    return a + b  # type: ignore[operator]


def _product(a: Element, b: Element) -> Element:
    if isinstance(b, Jet) and not isinstance(a, Jet):
        return b * a
    return a * b  # type: ignore[operator]


def _times(a: Element | None, b: Element) -> Element | None:
    return None if a is None else _product(a, b)


def _total(a: Element | None, b: Element | None) -> Element | None:
    """The sum of two derivatives, None being zero."""
    if a is None:
        return b
    return a if b is None else plus(a, b)


def times(a: Element, b: Element) -> Element:
    """The product; of an element with itself the square, which is never negative."""
    if a is b and isinstance(a, Taylor):
        return power_of(a, 2)
    return _product(a, b)


def seeded(x: Sequence[Taylor]) -> list[Jet]:
    """Coordinates as jets: the derivative of x_i by x_j is 1 or 0."""
    return _along_axes(x, constant(arb(1), x[0].order))


def twice_seeded(x: Sequence[Taylor]) -> list[Jet]:
    """Coordinates as jets of jets: first and second derivatives."""
    one = Jet(constant(arb(1), x[0].order), [None] * len(x))
    return _along_axes(seeded(x), one)


def _along_axes(items: Sequence[Element], one: Element) -> list[Jet]:
    """Elements as jets of which each moves along its own axis alone."""
    found = []
    for i, item in enumerate(items):
        tangents: list[Element | None] = [None] * len(items)
        tangents[i] = one
        found.append(Jet(item, tangents))
    return found


def underlying(u: Element) -> Taylor:
    """The value itself, below all derivatives."""
    while isinstance(u, Jet):
        u = u.value
    return u


def chained(u: Jet, value: Element, slope: Element) -> Jet:
    """phi(u) from phi and phi' at the value of u."""
    return Jet(value, [None if t is None else _product(slope, t) for t in u.tangents])


def smooth(name: str, u: Element, inside: Ends | None = None) -> Element:
    """A row of FUNCTIONS, with its derivative: its image where the expansion is mostly remainder.

    ``inside`` bounds the values of u.
    """
    if isinstance(u, Many):
        return apply(name, u, inside)
    if isinstance(u, Taylor):
        ends = u.ends()
        found = apply(name, u, inside)
        # An unbounded argument may be none, whatever the function makes of it.
        if not bounded(ends):
            return found
        if inside is not None and bounded(inside):  # a sum of squares in a ball around them may seem to be negative
            ends = ends[0].max(inside[0]), ends[1].min(inside[1])
        return narrowed(found, FUNCTIONS[name].interval(ends))
    if name not in SLOPES:
        raise Rejected(f"the slope of '{name}' cannot be re-proved")
    value = smooth(name, u.value, inside)
    return chained(u, value, SLOPES[name](u.value, value, inside))


def _arc(u: Element, sign: int) -> Element:
    inner = -times(u, u)
    return smooth("rsqrt", inner.shifted(arb(1))).scaled(arb(sign))


def _bell(shape: chords.Sigmoidal, u: Element, found: Element) -> Element:
    """The slope of an S-shaped function by its image on wide boxes."""
    plain = isinstance(u, Taylor) and isinstance(found, Taylor)
    return chords.within_bell(shape, u, found) if plain and not isinstance(u, Many) else found  # type: ignore[arg-type]


def _of_mean(name: str, u: Element, k: int = 1) -> Element:
    """The k-th derivative of sinrel or exprel: entire, and a mean whose bound is that of its own first coefficient."""
    if isinstance(u, Jet):
        return chained(u, _of_mean(name, u.value, k), _of_mean(name, u.value, k + 1))
    if isinstance(u, Many):
        raise Rejected(f"the slope of '{name}' is known on single boxes")
    rule = partial(MEANS[name], k=k)
    found = compose(differentiated(FUNCTIONS[name].series, k), u, None, rule)
    # An unbounded argument may be none.
    if not bounded(u.ends()):
        return found
    image = rule(u.range(), 0, ZERO, ZERO)
    return narrowed(found, (image.lower(), image.upper()))


MEANS = {"sinrel": sinrel_rule, "exprel": exprel_rule}
# phi'(u), given u, phi(u) and what bounds u.
SLOPES: dict[str, Callable[[Element, Element, Ends | None], Element]] = {
    "exp": lambda u, y, inside: y,
    "log": lambda u, y, inside: smooth("inv", u, inside),
    "sqrt": lambda u, y, inside: smooth("rsqrt", u, inside).scaled(arb(0.5)),
    "rsqrt": lambda u, y, inside: times(times(y, y), y).scaled(arb(-0.5)),
    "inv": lambda u, y, inside: -times(y, y),
    "sin": lambda u, y, inside: smooth("cos", u),
    "cos": lambda u, y, inside: -smooth("sin", u),
    "tan": lambda u, y, inside: times(y, y).shifted(arb(1)),
    "atan": lambda u, y, inside: smooth("inv", times(u, u).shifted(arb(1))),
    "asin": lambda u, y, inside: _arc(u, 1),
    "acos": lambda u, y, inside: _arc(u, -1),
    "tanh": lambda u, y, inside: _bell(chords.TANH, u, (-times(y, y)).shifted(arb(1))),
    "sigmoid": lambda u, y, inside: _bell(chords.SIGMOID, u, y - times(y, y)),  # type: ignore[operator]
    "erf": lambda u, y, inside: smooth("exp", -times(u, u)).scaled(2 / arb.pi().sqrt()),
    "cbrt": lambda u, y, inside: smooth("inv", times(y, y)).scaled(1 / arb(3)),
    "sinrel": lambda u, y, inside: _of_mean("sinrel", u),
    "exprel": lambda u, y, inside: _of_mean("exprel", u),
}


def relu(u: Element, kinks: Kinks) -> Element:
    """max(u, 0). Its slope is 0 or 1 where the sign of u is known, and anything between where it is not."""
    if isinstance(u, Taylor):
        return kinks.relu(u)
    share = _share(*underlying(u).ends(), twice=isinstance(u.value, Jet))
    return Jet(relu(u.value, kinks), [None if t is None else t.scaled(share) for t in u.tangents])


def _share(low: arb, high: arb, *, twice: bool) -> arb:
    """The slope of relu between two numbers: at 0 both sides count, as it has none of its own there.

    A side taken for the other would be a slope that no limit of slopes is: of relu(x) - relu(-x) = x it is 2 at 0.
    """
    if not (low.is_finite() and high.is_finite()):
        return arb("nan")
    if low > 0:
        return arb(1)
    if high < 0:
        return ZERO
    if twice:
        raise Rejected("a function that bends has no second derivative there")
    return UNIT


def absolute(u: Element, kinks: Kinks) -> Element:
    """|u| = 2 max(u, 0) - u."""
    return kinks.absolute(u) if isinstance(u, Taylor) else relu(u, kinks).scaled(arb(2)) - u  # type: ignore[operator]


def larger(a: Element, b: Element, kinks: Kinks) -> Element:
    """max(a, b)."""
    return plus(b, relu(plus(a, -b), kinks))


def smaller(a: Element, b: Element, kinks: Kinks) -> Element:
    """min(a, b)."""
    return plus(a, -relu(plus(a, -b), kinks))


def softmax(logits: Sequence[Element]) -> list[Element]:
    """Weights exp(l_i) / sum exp(l_j); ds_i = s_i (dl_i - sum_j s_j dl_j)."""
    count = next((len(item.tangents) for item in logits if isinstance(item, Jet)), None)
    if count is None:
        return list(_weights([underlying(item) for item in logits]))
    jets = _as_jets(logits, count)
    weights = softmax([item.value for item in jets])
    columns = [_moved(weights, slopes) for slopes in zip(*(item.tangents for item in jets), strict=True)]
    return [Jet(w, row) for w, row in zip(weights, zip(*columns, strict=True), strict=True)]


def _as_jets(items: Sequence[Element], count: int) -> list[Jet]:
    """Elements as jets of so many directions, along which those that are no jets do not move."""
    return [item if isinstance(item, Jet) else Jet(item, [None] * count) for item in items]


def _moved(weights: Sequence[Element], slopes: Sequence[Element | None]) -> list[Element | None]:
    """Derivatives of softmax weights along one direction, in which the logits have these slopes."""
    mean: Element | None = None
    for w, t in zip(weights, slopes, strict=True):
        mean = _total(mean, _times(t, w))
    if mean is None:
        return [None] * len(slopes)
    return [_times(_total(t, -mean), w) for w, t in zip(weights, slopes, strict=True)]


def _weights(logits: Sequence[Taylor]) -> list[Taylor]:
    """Whatever is taken from all logits alike leaves the weights as they are; weights lie in [0, 1]."""
    common = centre(logits, logits[0].order)
    moved = [item - common for item in logits]
    ranges = [item.range() for item in moved]
    e = [apply("exp", item) for item in moved]
    low = sum((r.lower().exp() for r in ranges), ZERO).lower()
    high = sum((r.upper().exp() for r in ranges), ZERO).upper()
    inverse = apply("inv", sum_of(e), (low, high))
    return [(item * inverse).unless_wider(UNIT) for item in e]
