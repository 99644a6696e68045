"""Recipe: how a layer is trained, as plain checked data that a checkpoint can compare with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from onelayer.door import door_to
from onelayer.errors import OnelayerError
from onelayer.formats import WIDE

# First learning rates that converge for each rule on layers of this size; no claim that they are optimal.
LEARNING_RATES = {"adam": 5e-3, "adamw": 5e-3, "momentum": 1e-2, "sgd": 5e-2}
SCHEDULES = ("cosine", "constant")
LOSSES = ("mse", "cross-entropy", "cosine")
HALF = "bfloat16"  # a format to train in, not to certify
DTYPES = {**{row.name: row.dtype for row in WIDE}, HALF: torch.bfloat16}
WARM_UP = 0.05  # share of the steps in which the rate rises
EVALUATIONS = 20  # measurements in one training


@door_to
@dataclass(frozen=True)
class Recipe:
    """First-order steps with a schedule, then an optional L-BFGS finish; checked at construction.

    ``every`` is the number of steps between two measurements (and checkpoints); ``patience`` the number of measurements
    without improvement after which training stops. ``dtype`` bfloat16 computes in bfloat16 on float32 weights.
    """

    optimiser: str = "adam"
    lr: float = 0.0
    schedule: str = "cosine"
    steps: int = 3000
    batch: int = 256
    lbfgs_steps: int = 0
    weight_decay: float = 0.0
    loss: str = "mse"
    every: int = 0
    patience: int = 0
    seed: int = 0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        _choice("optimiser", self.optimiser, LEARNING_RATES)
        _choice("schedule", self.schedule, SCHEDULES)
        _choice("loss", self.loss, LOSSES)
        _choice("dtype", self.dtype, DTYPES)
        for name, least in (("steps", 0), ("lbfgs_steps", 0), ("batch", 1), ("every", 0), ("patience", 0), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OnelayerError(f"{name} must be a whole number >= {least}, got {value!r}")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise OnelayerError(f"{name} must be a finite number >= 0, got {value!r}")

    @property
    def interval(self) -> int:
        """Steps between two measurements."""
        return self.every or max(1, self.steps // EVALUATIONS)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The format of a forward pass."""
        return DTYPES[self.dtype]

    @property
    def weight_dtype(self) -> torch.dtype:
        """The weights' own format: bfloat16 has too few digits to add small updates, so float32 holds them."""
        if self.dtype == HALF:
            return torch.float32
        return DTYPES[self.dtype]

    def rate(self, step: int) -> float:
        """Learning rate of a step: a short linear warm-up, then a half cosine down to zero, or constant."""
        peak = self.lr or LEARNING_RATES[self.optimiser]
        if self.schedule == "constant":
            return peak
        warm = max(1, round(WARM_UP * self.steps))
        if step < warm:
            return peak * (step + 1) / warm
        angle = math.pi * (step - warm) / max(1, self.steps - warm)
        return peak * 0.5 * (1 + math.cos(angle))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as a checkpoint keeps it."""
        return asdict(self)


def _choice(name: str, value: Any, allowed: Any) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise OnelayerError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
