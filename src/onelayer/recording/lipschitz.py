"""Lipschitz: how fast a function that is known by its values alone may change, as its user declares it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import at_most, indices

ESTIMATE = "estimate"  # instead of a constant: guess one from values
# No claim that these are optimal: no number of values makes a guess a bound.
SCATTERED, STEP, SAFETY = 64, 1 / 64, 2.0


@dataclass(frozen=True)
class Lipschitz:
    """|f(x) - f(y)| <= L max_i |x_i - y_i| for one constant L, or <= sum_i L_i |x_i - y_i| for one per coordinate.

    Coordinates in different units need constants of their own: one for all of them pays for the steepest everywhere.
    An estimated constant proves nothing: what follows from it is called estimated.
    """

    constants: tuple[float, ...]
    per_coordinate: bool = False
    # Values that it was guessed from; 0 for a constant that was declared.
    estimated_from: int = 0

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

    @property
    def source(self) -> str:
        """Where the assumption comes from."""
        if self.estimated_from:
            return f"estimated from {self.estimated_from:,} values, not proved"
        return "as declared"


def estimate(values: Callable[[Tensor], Tensor], box: Box) -> Lipschitz:
    """A guess at the constants: twice the steepest change seen over a 64th of each side, at 64 scattered points."""
    change, count = scattered(lambda x: values(x).reshape(len(x), -1, 1), box)
    return Lipschitz(tuple(change[:, 0].tolist()), per_coordinate=True, estimated_from=count)


def scattered(values: Callable[[Tensor], Tensor], box: Box) -> tuple[Tensor, int]:
    """Twice the largest rates of change (D, E) of values (C, K, E) over K, along each axis, and how many were seen."""
    start = box.sample(SCATTERED).reshape(-1, box.dim)
    width = box.width.flatten()
    step = width * STEP
    # From the last points a step would leave the box.
    start = torch.minimum(start, box.upper.flatten() - step)
    moved = [start + step * _axis(at, box.dim) for at in range(box.dim)]
    points = torch.cat([start, *moved]).reshape(-1, *box.shape)
    found = values(points).double()
    found = found.reshape(box.dim + 1, SCATTERED, *found.shape[1:])
    change = (found[1:] - found[0]).abs().amax(dim=(1, 2))
    # An axis of no width changes nothing.
    steps = torch.where(width > 0, step, torch.inf)
    return SAFETY * change / steps[:, None], found.shape[0] * found.shape[1]


def _axis(at: int, dim: int) -> Tensor:
    return (indices(dim) == at).double()


def by_name(given: Mapping[str, Any], box: Box, what: str) -> list[Any]:
    """Constants by name, in the order of the coordinates."""
    names = list(box.variables)
    if not names:
        names = [f"x{at + 1}" for at in range(box.dim)]
    if set(given) != set(names):
        wanted = ", ".join(names)
        raise OnelayerError(f"{what} by name needs {wanted}, got {', '.join(map(str, given))}")
    return [given[name] for name in names]


def _no_less(constant: Any) -> float:
    """The float of a constant that is not below it: what is stated must follow from what was declared."""
    # Of text, which has no order, it is the number that is read.
    return -at_most(-constant) if isinstance(constant, Real) else float(constant)


def _numbers(given: Sequence[Any]) -> tuple[float, ...]:
    try:
        return tuple(_no_less(constant) for constant in given)
    # A number beyond all floats; a tensor with an imaginary part.
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        shown = ", ".join(map(str, given))
        raise OnelayerError(f"lipschitz must be a number, a list, a dict by name or 'estimate', got {shown}") from error


def as_lipschitz(given: Any, box: Box, values: Callable[[Tensor], Tensor]) -> Lipschitz:
    """A number for the maximum norm, one number per coordinate as a list or as a dict by name, or an estimate."""
    if isinstance(given, Lipschitz):
        return given
    if isinstance(given, str) and given == ESTIMATE:
        return estimate(values, box)
    if isinstance(given, Mapping):
        given = by_name(given, box, "lipschitz")
    # Text is a sequence too, of letters.
    several = isinstance(given, Sequence) and not isinstance(given, str)
    constants = _numbers(given if several else [given])
    if several and len(constants) != box.dim:
        raise OnelayerError(f"lipschitz has {len(constants)} constants for {box.dim} coordinates; give one for each")
    return Lipschitz(constants, per_coordinate=several)
