"""Lipschitz: how fast a function that is known by its values alone may change, as its user declares it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError


@dataclass(frozen=True)
class Lipschitz:
    """|f(x) - f(y)| <= L max_i |x_i - y_i| for one constant L, or <= sum_i L_i |x_i - y_i| for one per coordinate.

    Coordinates in different units need constants of their own: one for all of them pays for the steepest everywhere.
    """

    constants: tuple[float, ...]
    per_coordinate: bool = False

    def __post_init__(self) -> None:
        if not all(0 <= constant < math.inf for constant in self.constants):
            raise OnelayerError(f"lipschitz must be a finite number >= 0, or several, got {self}")

    def over(self, reach: Tensor) -> Tensor:
        """The most that f changes over ``reach`` (..., D) >= 0, as float64 computes it: (...)."""
        if not self.per_coordinate:
            return self.constants[0] * reach.amax(-1)
        constants = torch.tensor(self.constants, dtype=torch.float64, device=reach.device)
        return (constants * reach).sum(-1)

    def __str__(self) -> str:
        return ", ".join(map(repr, self.constants))

    @property
    def statement(self) -> str:
        """The assumption as a formula."""
        if not self.per_coordinate:
            return f"|f(x) - f(y)| <= {self.constants[0]!r} max_i |x_i - y_i|"
        return f"|f(x) - f(y)| <= sum_i L_i |x_i - y_i| with L = ({self})"


def as_lipschitz(given: Any, box: Box) -> Lipschitz:
    """A number for the maximum norm, or one number per coordinate as a list or as a dict by name."""
    if isinstance(given, Lipschitz):
        return given
    if isinstance(given, Mapping):
        names = list(box.variables) or [f"x{at + 1}" for at in range(box.dim)]
        if set(given) != set(names):
            raise OnelayerError(f"lipschitz by name needs {', '.join(names)}, got {', '.join(map(str, given))}")
        given = [given[name] for name in names]
    several = isinstance(given, Sequence) and not isinstance(given, str)
    try:
        constants = tuple(float(constant) for constant in (given if several else [given]))
    except (TypeError, ValueError) as error:
        raise OnelayerError(f"lipschitz must be a number, a list of numbers or a dict by name, got {given}") from error
    if several and len(constants) != box.dim:
        raise OnelayerError(f"lipschitz has {len(constants)} constants for {box.dim} coordinates; give one for each")
    return Lipschitz(constants, per_coordinate=several)
