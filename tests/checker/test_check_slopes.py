"""The checker's derivatives, operation by operation, against power series and differences of 400 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from flint import arb, arb_series, ctx

from onelayer.checker import elements
from onelayer.checker.arithmetic import Taylor, constant, coordinate
from onelayer.checker.elements import (
    SLOPES,
    Element,
    Jet,
    absolute,
    larger,
    plus,
    relu,
    seeded,
    smaller,
    smooth,
    softmax,
    times,
    twice_seeded,
    underlying,
)
from onelayer.checker.functions import FUNCTIONS, Kinks

POINTS = (0.15, 0.3, 0.62, 0.85)
STEP = arb(2) ** -100  # of differences: their error is about its square


@pytest.fixture(autouse=True)
def many_bits() -> Iterator[None]:
    bits = ctx.prec
    ctx.prec = 400
    yield
    ctx.prec = bits


def at_point(*point: float) -> list[Taylor]:
    return [constant(arb(v), 2) for v in point]


def slope_of(item: Element | None) -> arb:
    return arb(0) if item is None else underlying(item).range()


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_those_of_the_power_series(name: str) -> None:
    """Thirty digits: a rule that is off by any factor is seen, at points and, as an enclosure, on boxes."""
    for point in POINTS:
        series = FUNCTIONS[name].series
        true = elements_series(series, arb(point))
        (jet,) = seeded(at_point(point))
        found = smooth(name, jet)
        assert isinstance(found, Jet)
        assert abs(slope_of(found.tangents[0]) - true[1]) < arb(10) ** -30
        (twice,) = twice_seeded(at_point(point))
        second = smooth(name, twice)
        assert isinstance(second, Jet)
        (inner,) = second.tangents
        assert isinstance(inner, Jet)
        assert abs(slope_of(inner.tangents[0]) - 2 * true[2]) < arb(10) ** -30
        (wide,) = seeded([coordinate(0, point - 0.01, point + 0.01, 2)])
        around = smooth(name, wide)
        assert isinstance(around, Jet)
        assert slope_of(around.tangents[0]).contains(true[1].mid())


def elements_series(series: Callable[..., object], at: arb) -> list[arb]:
    return series(arb_series([at, 1], 3)).coeffs()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", SLOPES)
def test_a_slope_off_by_a_millionth_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SLOPES[name]
    monkeypatch.setitem(SLOPES, name, lambda u, y, inside: right(u, y, inside).scaled(1 + arb(10) ** -6))
    with pytest.raises(AssertionError):
        test_slopes_are_those_of_the_power_series(name)


def weights(x: Sequence[Element]) -> Element:
    """Softmax over logits of which one does not depend on the input."""
    a, b = x
    return softmax([times(a, b), constant(arb(0.7), 2), plus(a, a)])[1]


COMBINED: dict[str, Callable[[Sequence[Element]], Element]] = {
    "product": lambda x: times(times(x[0], x[1]), x[0]),
    "difference": lambda x: plus(times(x[0], x[0]), -x[1]),
    "softmax": lambda x: softmax([x[0], times(x[0], x[1]), x[1]])[0],
    "softmax with a constant": weights,
    "relu": lambda x: relu(plus(x[0], -x[1].scaled(arb(3))), Kinks()),
    "abs": lambda x: absolute(plus(x[0], -x[1].scaled(arb(3))), Kinks()),
    "max": lambda x: larger(times(x[0], x[0]), x[1], Kinks()),
    "min": lambda x: smaller(times(x[0], x[0]), x[1], Kinks()),
}


@pytest.mark.parametrize("name", COMBINED)
def test_slopes_of_combinations_are_differences(name: str) -> None:
    make = COMBINED[name]
    point = [arb(0.31), arb(0.77)]

    def value(moved: Sequence[arb]) -> arb:
        return underlying(make([constant(v, 2) for v in moved])).range()

    found = make(list(seeded([constant(v, 2) for v in point])))
    assert isinstance(found, Jet)
    assert abs(underlying(found).range() - value(point)) < arb(10) ** -50
    for at, tangent in enumerate(found.tangents):
        ends = [value([v + sign * STEP if i == at else v for i, v in enumerate(point)]) for sign in (1, -1)]
        assert abs(slope_of(tangent) - (ends[0] - ends[1]) / (2 * STEP)) < arb(10) ** -25


@pytest.mark.parametrize("name", elements.MEANS)
@pytest.mark.parametrize("order", [1, 3, 6])
def test_derivatives_of_means_are_enclosed_on_boxes_of_every_width(name: str, order: int) -> None:
    """Zero, where the quotient has no value, among them."""
    for low, high in ((-0.01, 0.01), (-1.0, 1.0), (-3.0, 5.0), (0.0, 40.0), (-30.0, -20.0), (0.3, 0.3)):
        (jet,) = seeded([coordinate(0, low, high, order)])
        found = smooth(name, jet)
        assert isinstance(found, Jet)
        around = slope_of(found.tangents[0])
        assert around.is_finite()
        for part in range(33):
            at = arb(low) + (arb(high) - arb(low)) * part / 32
            if not at.contains(0):
                other = at.cos() if name == "sinrel" else at.exp()
                value = at.sin() / at if name == "sinrel" else (at.exp() - 1) / at
                assert around.overlaps((other - value) / at), (low, high, part)


def test_functions_without_a_rule_are_refused() -> None:
    for name in set(FUNCTIONS) - set(SLOPES):
        (jet,) = seeded(at_point(0.5))
        with pytest.raises(elements.Rejected):
            smooth(name, jet)
