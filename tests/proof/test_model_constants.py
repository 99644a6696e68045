"""What a model makes of constants alone is part of its forward pass: its rounding counts, or it is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelayer import Box
from onelayer.errors import UnsupportedOperation
from onelayer.proof.certify import certify

ROW = torch.tensor([1e16, 1.0, -1e16, 1.0], dtype=torch.float64)
ONES = torch.ones(4, dtype=torch.float64)
SUMS: dict[str, Callable[[], Tensor]] = {
    "dot": lambda: torch.dot(ROW, ONES),
    "mv": lambda: torch.mv(ROW[None], ONES)[0],
    "inner": lambda: torch.inner(ROW, ONES),
    "tensordot": lambda: torch.tensordot(ROW, ONES, 1),
    "baddbmm": lambda: torch.baddbmm(ONES[:1].reshape(1, 1, 1), ROW[None, None], ONES[None, :, None]).sum(),
    "conv1d": lambda: nn.functional.conv1d(ROW[None, None], ONES[None, None])[0, 0, 0],
    "avg_pool1d": lambda: nn.functional.avg_pool1d(ROW[None, None], 4)[0, 0, 0],
    "trace": lambda: torch.trace(torch.diag(ROW)),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_constants_is_not_the_one_number_that_it_is_here(name: str) -> None:
    here = float(SUMS[name]())

    def model(x: Any) -> Any:
        return (1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2) * (SUMS[name]() - here)

    try:
        found = certify(model, "0*x", Box([0.5], [1.0]), 0.1, max_boxes=64)
    except UnsupportedOperation:
        return
    assert found.upper >= 0.5  # orders of the sum differ by as much
