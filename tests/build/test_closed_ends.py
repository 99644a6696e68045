"""asin up to 1 and beyond by rounding: inner and outer functions, intervals and boxes at the end of its domain."""

from __future__ import annotations

from pathlib import Path

import torch

from onelayer import Box, approximate, check
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.language.formula import parse
from onelayer.language.intervals import div, mul
from onelayer.lemmas.algebra import same_function
from onelayer.observer import Observer
from onelayer.proof.axes import balanced
from onelayer.proof.recorded import understood


def interval(low: float, high: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)


def test_products_and_quotients_with_powers_of_two_round_nothing() -> None:
    assert [float(end) for end in mul(interval(0.25, 1), interval(0.5, 1))] == [0.125, 1.0]
    assert [float(end) for end in div(interval(1, 2), interval(2, 4))] == [0.25, 1.0]
    low, high = (float(end) for end in mul(interval(0.1, 0.1), interval(0.1, 0.1)))
    assert low < 0.1 * 0.1 < high


def test_asin_of_products_and_quotients_up_to_one(tmp_path: Path) -> None:
    box = Box([1, 2, 1], [2, 5, 5])
    found = composer(understood("asin(x1/(x3*x2))", box), box, torch.float64)
    assert found is not None
    a = compose(found, 0.015, Observer())
    assert a.certificate.proved
    a.save(tmp_path / "arc")
    assert check(tmp_path / "arc").ok
    assert approximate("asin(x*y)", Box([0, 0], [1, 1]), 0.1, max_seconds=30).certificate.proved


def test_clipped_arguments_are_no_licence() -> None:
    """asin(clip(u)) is asin(u) where that has a value; a square root of relu is not the root of its argument."""
    box, wide = Box([0, 0], [1, 1]), Box([-1, -1], [1, 1])
    assert same_function(parse("asin(x*y)", 2), parse("asin(clip(x*y, -1, 1))", 2), box)
    assert not same_function(parse("asin(x*y)", 2), parse("asin(clip(x*y, -1, 0.5))", 2), box)
    assert not same_function(parse("sqrt(relu(x))**2", 2), parse("x", 2), wide)


def test_a_long_side_has_its_turn() -> None:
    low, high = torch.zeros(2, 2).double(), torch.tensor([[1e-4, 1.0], [0.1, 1.0]]).double()
    first = torch.tensor([[1.0, 0.5], [1.0, 0.5]]).double()
    assert balanced(first, low, high, torch.ones(2).double()).argmax(1).tolist() == [1, 0]
