"""Masks, counts and choices between plain numbers: torch computes them in formats that may round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from spikes import Code, array, numpy_spike, refused, spike, understood_at_the_spike
from torch import Tensor


def two_bools(x: Tensor) -> Tensor:
    u = x[..., 0]
    return u + 1.0 * ((spike(u) > 0.5) + (spike(u) > 0.4))


def two_bools_of_numpy(x: Any) -> Any:
    u = x[..., 0]
    return u + 1.0 * ((numpy_spike(u) > 0.5) + (numpy_spike(u) > 0.4))


def whole_numbers_of_numpy(x: Any) -> Any:
    u = x[..., 0]
    return u + 1e-18 * (np.where(numpy_spike(u) > 0.5, 2**62, 0) * 4)


def narrow_numbers_of_numpy(x: Any) -> Any:
    u = x[..., 0]
    return u + 1.0 * (np.where(numpy_spike(u) > 0.5, np.float32(0.1), np.float32(0)) * 0.1)


def written_into_a_mask(x: Tensor) -> Tensor:
    mask = torch.where(spike(x) > 0.5, 1.0, 0.0)
    mask += spike(x) / 3
    return mask[..., 0] + x[..., 0]


def set_in_a_mask(x: Tensor) -> Tensor:
    mask = torch.where(spike(x) > 0.5, 1.0, 0.0)
    mask[..., 0] = spike(x[..., 0]) / 3
    return mask[..., 0] + x[..., 0]


def number_beside_a_vector(x: Tensor) -> Tensor:
    """A single float64 number and a float32 vector are multiplied in float32."""
    ones = torch.ones(1, dtype=torch.float32)
    return torch.stack([row[0] + ((spike(row[0]) / 3) * ones).double()[0] for row in x])


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (lambda x: x[..., 0] * torch.where(x[..., 0] > 0.5, 16777217.0, 1.0), "in float32"),
        (lambda x: x[..., 0] * (16777217.0 * (x[..., 0] > 0.5)), "in float32"),
        (lambda x: x[..., 0] + torch.where(x[..., 0] > 0.5, 1.0, 2.0) / 3, "in float32"),
        (lambda x: x[..., 0] + torch.where(x[..., 0] > 0.5, 1, 2) / 3, "in float32"),
        (lambda x: x[..., 0] * (torch.where(x[..., 0] > 0.5, 1.0, 2.0) > 1.1), "in float32"),
        (lambda x: x[..., 0] + spike(x[..., 0]) * (x[..., 0] > 2).new_full((1,), 0.3), "in bool"),
        (lambda x: x[..., 0] + torch.full_like(torch.where(x[..., 0] > 2, 1, 0), 0.5), "in int64"),
        (
            lambda x: x[..., 0] + 3 * torch.cat([torch.tensor([0.1], dtype=torch.float32) + 0 * (x[0] > 1)] * 3)[:1],
            "float32",
        ),
        (two_bools, "in bool"),
        (two_bools_of_numpy, "in bool"),
        (whole_numbers_of_numpy, "in int64"),
        (narrow_numbers_of_numpy, "in float32"),
        (written_into_a_mask, "in float32"),
        (set_in_a_mask, "in float32"),
        (number_beside_a_vector, "in float32"),
    ],
)
def test_numbers_that_another_format_may_round_are_refused(f: Code, says: str) -> None:
    assert says in refused(f)


def masks(x: Tensor) -> Tensor:
    u = x[..., 0]
    mask = torch.where(u > 0.5, 1.0, 0.0)
    count = (x > 0.25).sum(-1) + 2 * (u > 0.75)
    both = (u > 0.5) * (u < 0.9)
    return mask * torch.sin(u) + (1 - mask) * u + count * u / 3 + (u > 2).double() * 0.1 + both * u


def masks_in_numpy(x: Any) -> Any:
    u = x[..., 0]
    mask = np.where(u > 0.5, 0.1, 0.7)
    count = (x > 0.25).sum(-1) + np.where(u > 0.75, 2, 1)
    return (mask / 3) * np.sin(u) + (1 - mask) * u + count / 3 + (u > 2).astype(float) * 0.1


def test_masks_and_counts_that_no_format_rounds_are_recorded() -> None:
    for f, given in ((masks, Tensor.clone), (masks_in_numpy, array)):
        value, said = understood_at_the_spike(f, given)
        assert value == pytest.approx(said, abs=1e-12)
