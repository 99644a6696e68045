"""The checker's lines beside S-shaped functions, against fifty digits; claims on wide boxes go through it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from flint import arb
from torch import nn

import onelayer as ol
from onelayer.checker import chords
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.chords import Sigmoidal
from onelayer.checker.functions import Kinks, apply
from onelayer.checker.precision import precise

TRUTH: dict[str, Callable[[Any], Any]] = {
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "atan": mpmath.atan,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
}
INTERVALS = [(-3.0, 3.0), (-0.4, 9.0), (-12.0, 0.1), (0.0, 5.0), (-5.0, 0.0), (1.5, 40.0), (-60.0, -0.7), (-1e-9, 2e-9)]


def value(element: Any, t: float) -> tuple[Any, Any]:
    """Least and largest value of an enclosure at t of [-1, 1]."""
    total = sum((c * arb(t) ** n for n, c in enumerate(element.c)), arb(0))
    return total.lower(), total.upper()


def holds(name: str, low: float, high: float, order: int) -> bool:
    """Whether the enclosure of the function holds at 65 points."""
    with precise(), mpmath.workdps(50):
        x = coordinate(0, low, high, order)
        found = apply(name, x)
        for k in range(65):
            t = k / 32 - 1
            inner = x.c[0] + x.c[1] * arb(t)
            exact = TRUTH[name](mpmath.mpf(inner.mid().str(40, radius=False)))
            below, above = value(found, t)
            slack = arb(2) ** -60  # of the decimal digits
            if not (below - slack <= arb(str(exact)) <= above + slack):
                return False
    return True


@pytest.mark.parametrize("name", TRUTH)
@pytest.mark.parametrize("order", [1, 4])
def test_enclosures_hold_on_intervals_of_every_width(name: str, order: int) -> None:
    assert all(holds(name, low, high, order) for low, high in INTERVALS)


def test_a_planted_fault_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Sigmoidal._above
    monkeypatch.setattr(Sigmoidal, "_above", lambda self, s, low, high: honest(self, s, low, high) - arb("0.01"))
    assert not holds("tanh", -3.0, 3.0, 1)


def test_a_wide_enclosure_keeps_the_correlation() -> None:
    with precise():
        x = coordinate(0, -3.0, 3.0, 2)
        assert (apply("tanh", x) - x.scaled(arb("0.33"))).range().abs_upper() < arb("0.46")
        assert apply("tanh", x).c[0].rad() < chords.TANH.value(arb(3)) / 2


def test_the_absolute_value_of_a_remainder_is_no_wider_than_it() -> None:
    """|u| of a u that is all remainder: its line and its rest are taken together, not one by one."""
    with precise():
        u = coordinate(0, -1e-9, 1e-9, 2).shifted(arb(0, 1))
        assert Kinks().absolute(u).range().abs_upper() < arb("1.51")


def test_claims_proved_on_wide_boxes_are_accepted(tmp_path: Path) -> None:
    """Range and slopes of a network in six dimensions, proved on boxes on which no Taylor series would converge."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))
    box = ol.Box([-1.0] * 6, [1.0] * 6)
    found = ol.bound(model, box, gap=0.3)
    assert found.status == "proved"
    found.certificate.save(tmp_path / "range")
    assert ol.check(tmp_path / "range").verdict == "accepted"
    slope = ol.lipschitz(model, box, gap=2.0)
    assert slope.status == "proved"
    slope.save(tmp_path / "slope")
    assert ol.check(tmp_path / "slope").verdict == "accepted"
