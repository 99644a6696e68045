"""Planted unsoundness: each mistake a branch and bound could make is made here, and none yields a false proof."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from onelayer import Box, OnelayerError
from onelayer.proof import frontier as branch
from onelayer.proof.bounded import Enclosure
from onelayer.proof.boxes import Boxes, cut
from onelayer.proof.certify import certify
from onelayer.proof.error import ErrorFunction

BOX = Box([0.0, 0.0], [3.0, 3.0])


def f(x: Any) -> Any:
    return torch.sin(x[..., 0]) + torch.sin(x[..., 1])


def model(x: Any) -> Any:
    return 0.0 * x[..., 0] + 1.0


SUP = 1.0  # |sin x1 + sin x2 - 1| on the square: 1 at the corner (0, 0) and at the centre of the hill


def run(eps: float | None = 1.05) -> Any:
    return certify(model, f, BOX, eps, order=2)


def test_the_unspoiled_search_proves_it() -> None:
    assert run().proved


def test_a_box_lost_in_splitting_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(boxes: Boxes, *rest: Any) -> Boxes:
        pieces = cut(boxes, *rest)
        return pieces[torch.arange(len(pieces)) > 0]

    monkeypatch.setattr(branch, "cut", losing)
    found = run()
    assert not found.proved
    assert math.isinf(found.upper)


def test_a_box_lost_when_chosen_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    pick = branch.Frontier.pick

    def losing(self: branch.Frontier) -> tuple[Boxes, Boxes]:
        group, rest = pick(self)
        return (group[:-1] if len(group) > 1 else group), rest

    monkeypatch.setattr(branch.Frontier, "pick", losing)
    found = run()
    assert not found.proved
    assert found.upper > 1.05


def nan_at(place: Tensor) -> Any:
    enclose = ErrorFunction.enclose

    def spoiled(self: ErrorFunction, low: Tensor, high: Tensor, order: int, *rest: float) -> Enclosure:
        found = enclose(self, low, high, order, *rest)
        hit = ((low <= place) & (place <= high)).all(1)
        return Enclosure(torch.where(hit, torch.nan, found.bound), found.sensitivity)

    return spoiled


def test_nan_is_never_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ErrorFunction, "enclose", nan_at(torch.tensor([1.0, 2.0])))
    found = certify(model, f, BOX, 5.0, order=2, max_boxes=500)
    assert found.status == "undecided"
    assert found.resisted is not None


def test_nan_taken_for_small_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search closes NaN boxes as if proved; the certificate reads the leaves again and is not deceived."""

    def careless(self: branch.Frontier) -> None:
        self.open = self.open[self.open.bound > self.threshold]

    monkeypatch.setattr(ErrorFunction, "enclose", nan_at(torch.tensor([1.0, 2.0])))
    monkeypatch.setattr(branch.Frontier, "close", careless)
    found = certify(model, f, BOX, 5.0, order=2, max_boxes=500)
    assert not found.proved
    assert math.isinf(found.upper)


def test_a_reversed_comparison_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_(self: branch.Frontier) -> None:
        self.open = self.open[self.open.bound <= self.threshold]

    monkeypatch.setattr(branch.Frontier, "close", reversed_)
    assert not run().proved


def test_a_lax_threshold_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch.Frontier, "threshold", property(lambda self: 10.0))
    found = run()
    assert not found.proved
    assert found.upper > 1.05


def test_bounds_that_are_too_small_are_contradicted_by_the_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    enclose = ErrorFunction.enclose

    def tenth(self: ErrorFunction, low: Tensor, high: Tensor, order: int, *rest: float) -> Enclosure:
        found = enclose(self, low, high, order, *rest)
        return Enclosure(found.bound / 10, found.sensitivity)

    monkeypatch.setattr(ErrorFunction, "enclose", tenth)
    with pytest.raises(OnelayerError, match="below the error"):
        run()


def test_an_invented_witness_cannot_refute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled values alone refute nothing: the verified value decides."""
    values = ErrorFunction.values
    monkeypatch.setattr(ErrorFunction, "values", lambda self, *points: values(self, *points) * 100)
    found = run()
    assert found.proved
    assert found.lower <= SUP


def test_an_exception_is_never_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: ErrorFunction, low: Tensor, high: Tensor, order: int, *rest: float) -> Enclosure:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ErrorFunction, "enclose", failing)
    with pytest.raises(RuntimeError):
        run()
