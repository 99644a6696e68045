"""Every row of the table with its derivatives: those of torch, or the operation is refused by name."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import pytest
import torch
from operation_rows import ROWS
from test_operations import boxes, evaluate, points_in
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.proof.claims import lipschitz
from onelayer.taylor import variables
from onelayer.taylor.dual import RULES, Dual, seeded

DOUBLE = torch.float64


# Torch is told to take no derivative of the first, and the second is no cast in float64.
OTHERWISE = ("detach", "float")


def slopes(text: str, x: Tensor) -> Tensor:
    """Of every entry of a row's value by every entry of its own point, (6, *value), by torch's own differentiation.

    NaN where there is no value.
    """
    given = x.clone().requires_grad_(True)
    value = evaluate(text, given)
    if not value.requires_grad:
        return torch.zeros(x[0].numel(), *value.shape, dtype=DOUBLE)
    flat = value.reshape(-1)
    rows = [torch.autograd.grad(entry, given, retain_graph=True, allow_unused=True)[0] for entry in flat]
    found = torch.stack([torch.zeros_like(x) if row is None else row for row in rows])  # (entries, B, 2, 3)
    # A point is alone in its row of the batch: what others pass on is zero.
    own = found.flatten(2).sum(1).T.reshape(-1, *value.shape)
    return torch.where(value.isfinite(), own, torch.nan)


def followed(text: str, x: Any) -> Any:
    """The row on numbers or enclosures with tangents; None where it is refused."""
    with suppress(OnelayerError):
        return evaluate(text, seeded(x))
    return None


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OTHERWISE])
def test_derivatives_are_those_of_torch(name: str) -> None:
    met = 0
    for text in ROWS[name]:
        point = boxes(0.0)[0]
        found = followed(text, point)
        if found is None:
            continue
        wanted = slopes(text, point)
        tangents = found.tangents if isinstance(found, Dual) else [None] * len(wanted)
        for tangent, row in zip(tangents, wanted, strict=True):
            got = torch.zeros_like(row) if tangent is None else tangent.expand(row.shape)
            there = torch.isfinite(row) & ~torch.isnan(got)  # NaN is undecided
            assert torch.allclose(got[there], row[there], rtol=1e-10, atol=1e-10), text
            met += int(there.sum())
    assert met or name not in RULES, f"the derivative of {name} has no row"


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OTHERWISE])
def test_derivatives_on_boxes_hold_those_of_torch(name: str) -> None:
    """At corners and at random points of boxes of two widths."""
    for text in ROWS[name]:
        for width in (2.0**-20, 2.0**-6):
            lower, upper = boxes(width)
            found = followed(text, variables(lower, upper, 2))
            if not isinstance(found, Dual):
                continue
            ranges = [None if tangent is None else tangent.range() for tangent in found.tangents]
            for x in points_in(lower, upper, 4, DOUBLE):
                for known, row in zip(ranges, slopes(text, x), strict=True):
                    low, high = (torch.zeros_like(row),) * 2 if known is None else known
                    claimed = torch.isfinite(low) & torch.isfinite(high) & torch.isfinite(row)
                    room = 1e-11 * (1 + row.abs())  # torch itself rounds
                    held = (low - room <= row) & (row <= high + room)
                    assert bool((~claimed | held).all()), (text, width)


FACTS = (bool, int, float, str, torch.dtype, torch.device, torch.Size, type(None))


def answer(asked: Any, name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = getattr(asked, name)
        return told() if callable(told) else told


def facts() -> dict[str, object]:
    """What a tensor of points says of itself, by the attribute or the method without arguments that says it."""
    found = {}
    for name in dir(Tensor):
        with suppress(Exception):
            if not name.startswith("_"):
                found[name] = answer(boxes(0.0)[0], name)
    return {name: told for name, told in found.items() if isinstance(told, FACTS)}


@pytest.mark.parametrize("execution", [None, torch.float64])
@pytest.mark.parametrize("kind", ["enclosures", "derivatives", "derivatives of enclosures"])
def test_what_a_tensor_says_of_itself_is_said_or_refused(kind: str, execution: torch.dtype | None) -> None:
    """Code may ask, and must take the same way as with numbers, which a spike would hide."""
    points, upper = boxes(0.0)
    asked = points if kind == "derivatives" else variables(points, upper, 2, execution)
    if kind != "enclosures":
        asked = seeded(asked)
    known = facts()
    assert {"is_cuda", "is_sparse", "dtype", "numel", "dim", "shape", "requires_grad"} <= set(known)
    for name, told in known.items():
        try:
            found = answer(asked, name)
        except (OnelayerError, AttributeError):
            continue
        assert type(found) is type(told), name
        assert found == told, name


def test_a_model_that_asks_where_it_runs_has_the_slopes_that_it_has_there() -> None:
    """The slope is 8e7 beside one point; a value with its derivatives once said yes to whatever it was asked."""

    def model(x: Any) -> Any:
        return (1 - torch.tanh(1e8 * (x[..., 0] - 0.3712)) ** 2) * (0.0 if x.is_cuda else 1.0)

    assert not lipschitz(model, Box([0.1], [0.9]), max_boxes=64).upper < 1e7
