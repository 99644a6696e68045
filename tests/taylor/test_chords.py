"""Lines beside S-shaped functions hold at every point, in fifty digits, and are as narrow as they can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import pytest
import torch

from onelayer.taylor import chords, variables
from onelayer.taylor.chords import Chord, SShape
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.special import SIGMOID, TANH

SHAPES: dict[str, tuple[Callable[..., Chord], Callable[[Any], Any]]] = {
    "tanh": (chords.TANH.chord, mpmath.tanh),
    "erf": (chords.ERF.chord, mpmath.erf),
    "atan": (chords.ATAN.chord, mpmath.atan),
    "sigmoid": (SIGMOID.chord, lambda x: 1 / (1 + mpmath.exp(-x))),  # type: ignore[dict-item]
}


def intervals(count: int = 60) -> list[tuple[float, float]]:
    """Around 0, on one side of it, wide, narrow, tiny, far out."""
    rng = torch.Generator().manual_seed(5)
    centre = torch.randn(count, generator=rng, dtype=torch.float64) * 3
    width = 10 ** (torch.rand(count, generator=rng, dtype=torch.float64) * 9 - 6)
    random = [(float(c - w), float(c + w)) for c, w in zip(centre, width, strict=True)]
    return [
        *random,
        (-3.0, 3.0),
        (0.0, 5.0),
        (-5.0, 0.0),
        (0.0, 1e-300),
        (-1e-9, 2e-9),
        (1.0, 1.0),
        (-40.0, 1e3),
        (20.0, 30.0),
    ]


def extremes(g: Callable[[Any], Any], slope: float, low: float, high: float) -> tuple[Any, Any]:
    """Least and largest g(x) - slope x in fifty digits: at the ends, at 0, and on grids that close in."""
    ends = [mpmath.mpf(low), mpmath.mpf(high)]
    points = [ends[0] + (ends[1] - ends[0]) * k / 64 for k in range(65)]
    points += [mpmath.mpf(0)] if low < 0 < high else []
    values = [g(x) - slope * x for x in points]
    for at in (values.index(min(values)), values.index(max(values))):  # closer to the extreme, by a finer grid twice
        left, right = points[max(at - 1, 0)], points[min(at + 1, len(points) - 1)]
        finer = [left + (right - left) * k / 64 for k in range(65)]
        values += [g(x) - slope * x for x in finer]
    return min(values), max(values)


@pytest.mark.parametrize("name", SHAPES)
def test_a_chord_holds_and_is_narrow(name: str) -> None:
    chord, g = SHAPES[name]
    ends = torch.tensor(intervals(), dtype=torch.float64)
    found = chord(ends[:, 0], ends[:, 1])
    below, above = found.low.tolist(), found.high.tolist()
    with mpmath.workdps(50):
        for at, (low, high) in enumerate(ends.tolist()):
            least, largest = extremes(g, float(found.slope[at]), low, high)
            assert below[at] <= least, (name, low, high)
            assert above[at] >= largest, (name, low, high)
            slack = 1e-3 * (largest - least) + 1e-12 * (1 + max(abs(low), abs(high)))
            assert above[at] - below[at] <= largest - least + slack, (name, low, high)


@pytest.mark.parametrize("place", [0.0, 0.2, 1.0, 50.0])
def test_a_tangent_at_any_point_holds(place: float) -> None:
    """The point of a slope makes a line narrow; that it is the wrong one makes none false."""
    g = SHAPES["tanh"][1]
    ends = torch.tensor(intervals(), dtype=torch.float64)
    found = replace(chords.TANH, point=lambda slope: torch.full_like(slope, place)).chord(ends[:, 0], ends[:, 1])
    with mpmath.workdps(50):
        for at, (low, high) in enumerate(ends.tolist()):
            least, largest = extremes(g, float(found.slope[at]), low, high)
            assert float(found.low[at]) <= least, (low, high)
            assert float(found.high[at]) >= largest, (low, high)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_has_no_ends_has_no_line(bad: float) -> None:
    low, high = torch.tensor([-1.0], dtype=torch.float64), torch.tensor([bad], dtype=torch.float64)
    found = chords.TANH.chord(low, high)
    assert not bool((found.high - found.low < torch.inf).any())


def test_a_planted_fault_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tangent taken without what it gains on the way to an end."""
    chord, g = SHAPES["tanh"]
    honest = SShape._above
    monkeypatch.setattr(SShape, "_above", lambda self, slope, low, high: honest(self, slope, low, high) * 0.999)
    found = chord(torch.tensor([-3.0], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64))
    with mpmath.workdps(50):
        assert float(found.high[0]) < extremes(g, float(found.slope[0]), -3.0, 3.0)[1]


def test_a_wide_enclosure_keeps_the_correlation() -> None:
    """|tanh(x) - 0.33 x| on [-3, 3] by one enclosure of order 1: the image alone would give 2."""
    x: TaylorModel = variables(
        torch.tensor([[-3.0]], dtype=torch.float64), torch.tensor([[3.0]], dtype=torch.float64), 1
    )[..., 0]
    gap = torch.tanh(x) - 0.33 * x
    assert float(torch.maximum(*(end.abs() for end in gap.range()))) < 0.46


@pytest.mark.parametrize("rule", [TANH, SIGMOID])
@pytest.mark.parametrize("order", [1, 3, 6])
def test_slopes_hold_on_boxes_of_every_width(rule: Any, order: int) -> None:
    """g' has an image of its own, so that no enclosure of it leaves [0, 1]."""
    truth = {"tanh": lambda x: 1 / mpmath.cosh(x) ** 2, "sigmoid": lambda x: 1 / (4 * mpmath.cosh(x / 2) ** 2)}[
        rule.name
    ]
    ends = torch.tensor(intervals(), dtype=torch.float64)
    x = variables(ends[:, :1], ends[:, 1:], order)[..., 0]
    found = rule.slope(x)
    low, high = found.range()
    with mpmath.workdps(50):
        for at, (left, right) in enumerate(ends.tolist()):
            for k in range(9):
                exact = truth(mpmath.mpf(left) + (mpmath.mpf(right) - mpmath.mpf(left)) * k / 8)
                assert float(low[at]) <= exact <= float(high[at])
    assert float(high.max()) <= 1.6
