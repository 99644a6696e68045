"""Enclosures of the executed T on boxes as plain numbers, and how they and values are held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import ModelAssumptionError
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import enclose
from onelayer.recording.target import place
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.dual import Dual

# Boxes enclosed at a time.
BATCH = 2048
# How often the domain is halved where enclosures of all of it are compared.
HALVINGS = 4
# The relative distance of ends that are one end.
SAME = 1e-9


@dataclass(frozen=True)
class Ends:
    """Enclosures [low, high] of all outputs at C points, (C, K); where they are not finite nothing is claimed."""

    low: Tensor
    high: Tensor

    @property
    def finite(self) -> bool:
        """Whether something is claimed of all outputs at all points."""
        return bool((torch.isfinite(self.low) & torch.isfinite(self.high)).all())

    def exclude(self, values: Tensor) -> Tensor:
        """(C,): whether some output lies outside, NaN included."""
        claimed = torch.isfinite(self.low) & torch.isfinite(self.high)
        inside = (values >= self.low) & (values <= self.high)
        return (claimed & ~inside).any(1)

    def __getitem__(self, index: Tensor | slice) -> Ends:
        return Ends(self.low[index], self.high[index])


def ends_of(y: Any) -> Ends:
    """The enclosures of a result for C boxes, (C, K), whatever derivatives it carries."""
    while isinstance(y, Dual):
        y = y.value
    pair = y.range() if isinstance(y, TaylorModel) else (y, y)
    low, high = (side.to("cpu", torch.float64).reshape(len(side), -1) for side in pair)
    return Ends(low, high)


def enclosures(error: ErrorFunction, low: Tensor, high: Tensor, batch: int = BATCH, order: int = 1) -> Ends:
    """Enclosures of the executed T on boxes (B, D), so many at a time."""
    found = []
    for part in zip(torch.split(low, batch), torch.split(high, batch), strict=True):
        error.observer.check()
        lower, upper = (on_device(error, side) for side in part)
        x = variables(lower, upper, order, execution=error.dtype)
        found.append(ends_of(enclose(error.model, x, tuple(error.target.output_shape))))
    return Ends(torch.cat([part.low for part in found]), torch.cat([part.high for part in found]))


def everywhere(error: ErrorFunction) -> tuple[Tensor, Tensor]:
    """Corners of the domain and of 16 parts that cover it, (17, D) each: no feature of T is too narrow to be in one."""
    whole = (error.box.lower.reshape(1, -1), error.box.upper.reshape(1, -1))
    low, high = whole
    for halving in range(HALVINGS):
        axis = halving % error.dim
        middle = low / 2 + high / 2
        end, start = high.clone(), low.clone()
        end[:, axis] = start[:, axis] = middle[:, axis]
        low, high = torch.cat([low, start]), torch.cat([end, high])
    return torch.cat([whole[0], low]), torch.cat([whole[1], high])


def shaped(error: ErrorFunction, points: Tensor) -> Tensor:
    """Points (C, D) as T takes them."""
    return on_device(error, points).to(error.dtype)


def on_device(error: ErrorFunction, points: Tensor) -> Tensor:
    """Points or corners (C, D) in the shape of the domain, where T is."""
    return points.to(error.device).reshape(-1, *error.box.shape)


def need_equal(error: ErrorFunction, usual: Ends, other: Ends, complaint: str) -> None:
    """Complain where an end of an enclosure moved by more than the rounding of sums in another order."""
    size = torch.maximum(usual.low.abs(), usual.high.abs()) * SAME
    low = _moved(usual.low, other.low, size)
    high = _moved(usual.high, other.high, size)
    wrong = low | high
    complain(error, error.box.center.reshape(1, -1), wrong.any(1).any().reshape(1), complaint)


def _moved(usual: Tensor, other: Tensor, most: Tensor) -> Tensor:
    """Where two numbers are farther apart; what is infinite, or none, on both sides is alike."""
    alike = (usual == other) | (usual.isnan() & other.isnan())
    apart = (usual - other).abs()
    return ~(alike | (torch.isfinite(apart) & (apart <= most)))


def complain(error: ErrorFunction, points: Tensor, wrong: Tensor, complaint: str) -> None:
    """Raise the complaint about the first of the points at which something is wrong."""
    if bool(wrong.any()):
        x = place(points[wrong][0].reshape(error.box.shape))
        raise ModelAssumptionError(f"the model {complaint.format(x=x)}")
