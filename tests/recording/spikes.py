"""Functions with a spike that no comparison at points sees, and what their code and their formula say in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.recording.target import as_target

LINE = Box([0.0], [1.0])
PLACE = 0.7313  # of the spike
Code = Callable[[Any], Any]


def spike(u: Any) -> Any:
    """1 at PLACE, nothing that a point sees beside it."""
    return 1 - torch.tanh(1e8 * (u - PLACE)) ** 2


def numpy_spike(u: Any) -> Any:
    return 1 - np.tanh(1e8 * (u - PLACE)) ** 2


def understood_at_the_spike(f: Code, given: Callable[[Tensor], Any] = Tensor.clone) -> tuple[float, float]:
    """What the code returns there, and what its formula says."""
    formula = as_target(f, LINE).formula
    assert formula is not None
    there = torch.tensor([[PLACE]], dtype=torch.float64)
    return float(np.asarray(f(given(there))).ravel()[0]), float(formula(there))


def array(there: Tensor) -> Any:
    return there.numpy()


def point(there: Tensor) -> Any:
    return there.numpy()[0]


def refused(f: Code) -> str:
    with pytest.raises(OnelayerError) as caught:
        as_target(f, LINE)
    assert "\n" not in str(caught.value)
    return str(caught.value)
