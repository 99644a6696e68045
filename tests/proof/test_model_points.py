"""The points at which T is tried: of every kind, in every batch, and left by T as they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from onelayer import Box
from onelayer.errors import ModelAssumptionError
from onelayer.proof.certify import certify
from onelayer.proof.claims import bound, convex, lipschitz, monotone
from onelayer.proof.contract import POINTS
from onelayer.proof.error import ErrorFunction
from onelayer.proof.points import hard_points, rounded_into
from onelayer.recording.target import as_target

SIDE = Box([-1.0], [1.0])


def repeats(x: Tensor) -> bool:
    return len(x.unique(dim=0)) < len(x)


BATCHES: dict[str, Callable[[Tensor], bool]] = {
    "alone": lambda x: len(x) == 1,
    "in another order": lambda x: bool(x[0, 0] > x[-1, 0]),
    "repeated": repeats,
    "beside a larger one": lambda x: bool(x[0, 0] < x.max()),
    "in a batch of three": lambda x: len(x) == 3,
    "in a large batch": lambda x: len(x) > 1000,
    "in a small batch": lambda x: len(x) < 100,
}


@pytest.mark.parametrize("execution", ["float64", "float32", "real"])
@pytest.mark.parametrize("name", BATCHES)
def test_every_point_has_one_value_in_every_batch(name: str, execution: str) -> None:
    """Alone, permuted, repeated and inside other batches: what differs in one of them is refused."""

    def model(x: Any) -> Any:
        other = isinstance(x, Tensor) and BATCHES[name](x)
        return x[..., 0] + (1e-6 if other else 0.0)

    with pytest.raises(ModelAssumptionError, match=r"treat every point of a batch alone|on enclosures"):
        certify(model, "x", SIDE, 5.0, execution=execution)


def scribbles(write: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    """x / 2, with an effect on whoever holds x."""

    def model(x: Any) -> Any:
        y = 0.5 * x[..., 0]
        if isinstance(x, Tensor):
            write(x)
        return y

    return model


WRITING: dict[str, Callable[[Tensor], Any]] = {
    "another number": lambda x: x.fill_(7.0),
    "past the count of versions": lambda x: x.data.mul_(3.0),
    "one entry alone": lambda x: x[-1].zero_(),
    "no number": lambda x: x.fill_(torch.nan),
    "a shape": lambda x: x.unsqueeze_(0),
}


@pytest.mark.parametrize("execution", ["float64", "float32", "real"])
@pytest.mark.parametrize("name", WRITING)
def test_a_model_that_writes_into_its_input_is_refused(name: str, execution: str) -> None:
    """Whoever calls it again with the same points gets the value at others; its enclosure writes nowhere."""
    with pytest.raises(ModelAssumptionError, match="must leave its input as it is"):
        certify(scribbles(WRITING[name]), "0.5*x", SIDE, 1e-3, execution=execution)


@pytest.mark.parametrize("claim", [lipschitz, convex, bound, partial(monotone, directions={"x1": "+"})])
def test_claims_refuse_a_model_that_writes_into_its_input(claim: Callable[..., Any]) -> None:
    for write in WRITING.values():
        with pytest.raises(ModelAssumptionError, match="must leave its input as it is"):
            claim(scribbles(write), SIDE)


def test_a_model_that_writes_into_what_it_made_itself_is_fine() -> None:
    def model(x: Any) -> Any:
        if isinstance(x, Tensor):
            x.clone().fill_(7.0)
        return 0.5 * x[..., 0]

    assert certify(model, "0.5*x", SIDE, 1e-3).proved


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    "box",
    [
        SIDE,
        Box([0.0, -3.0, 1e-3], [1.0, 1e6, 1e-3]),
        Box([1.1], [1.1]),
        Box([-1.7e308], [1.7e308]),
        Box([0.0], [5e-324]),
        Box([0.1], [0.1 + 1e-16]),
    ],
    ids=str,
)
def test_hard_points_are_finite_representable_and_inside(box: Box, dtype: torch.dtype) -> None:
    g = ErrorFunction(lambda x: x[..., 0], as_target("0*x1", box), box, dtype, torch.device("cpu"))
    raw = hard_points(box, POINTS, dtype)
    assert torch.equal(raw, hard_points(box, POINTS, dtype))
    points = g.representable(raw)
    assert bool(box.contains(points.reshape(-1, *box.shape)).all())
    assert torch.equal(points.to(dtype).double(), points)
    wide = bool(((box.lower.to(dtype) > box.lower) | (box.upper.to(dtype) < box.upper)).any()) is False
    assert not wide or len(points) > POINTS // 2


def test_hard_points_hold_what_sampling_misses() -> None:
    points = hard_points(Box([-2.0], [3.0]), POINTS, torch.float64).flatten()
    for wanted in (
        0.0,
        1.0,
        -2.0,
        3.0,
        0.5,
        math.nextafter(1.0, 2.0),
        math.nextafter(-1.0, 0.0),
        math.nextafter(3.0, 0.0),
    ):
        assert bool((points == wanted).any()), wanted
    assert float(points[points != 0].abs().min()) < 1e-200


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("box", [Box([0.0], [1e10]), Box([-1e30], [1e30]), Box([0.0, -1.0], [1e25, 1e-20])], ids=str)
def test_hard_points_are_of_every_kind(box: Box, dtype: torch.dtype) -> None:
    """Random ones, corners, dyadic numbers, numbers of every size up to the ends, and whole ones with neighbours."""
    raw = hard_points(box, POINTS, dtype)
    assert len(raw) == POINTS
    points = rounded_into(box, raw, dtype)
    for corner in rounded_into(box, box.corners().reshape(-1, box.dim), dtype):
        assert bool((points == corner).all(1).any())
    for column, end in zip(points.T, box.upper.flatten().tolist(), strict=True):
        sizes = column[column != 0].abs().log10()
        # Sizes between the smallest number and the end: in each part of eight powers of ten there are some.
        bottom, top = (-40, math.log10(end)) if dtype == torch.float32 else (-300, math.log10(end))
        parts = torch.arange(bottom, top, 8, dtype=torch.float64)
        assert bool(((sizes[:, None] >= parts) & (sizes[:, None] < parts + 8)).any(0).all())
        if end > 4:
            for number in (1.0, 2.0, 3.0, 4.0):
                exactly = torch.tensor(number, dtype=dtype)
                for beside in (0.0, math.inf):
                    near = torch.nextafter(exactly, torch.tensor(beside, dtype=dtype)).item()
                    assert bool((column == near).any()), near
                assert bool((column == number).any()), number
            scale = 64 * column[column.abs() < 2**20]
            assert int((scale == scale.round()).sum()) > 16
    assert int((box.contains(points.reshape(-1, *box.shape))).sum()) == POINTS
