"""Where examples come from: points drawn from a box, or the rows of a table. Both can stop and go on to the bit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.observer import Observer
from onelayer.recording.target import Target

# One point in this many is moved to a random corner: in several dimensions that is where trained networks err most.
CORNER_SHARE = 16
FIXED_POINTS = 4096  # of a full-batch method
TEST_POINTS = 1 << 10  # of each kind during training
FINAL_POINTS = 1 << 14  # of each kind at the end

Pairs = tuple[Tensor, Tensor]


class Examples(ABC):
    """An endless stream of minibatches, a fixed set for L-BFGS, and examples to measure on; all raw, on the CPU."""

    @abstractmethod
    def batch(self, size: int) -> Pairs:
        """The next ``size`` inputs and outputs."""

    @abstractmethod
    def fixed(self) -> Pairs:
        """The set on which a deterministic optimiser works."""

    @abstractmethod
    def test(self, *, final: bool = False) -> Pairs:
        """Examples for measuring, never drawn for training; more of them for the ``final`` measurement."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that the next batches depend on."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on where ``state`` was taken."""


class BoxSource(Examples):
    """Arcsine-distributed points of a box, crowded towards its faces, some of them on corners, with f's values."""

    def __init__(self, target: Target, box: Box, seed: int, observer: Observer | None = None) -> None:
        self.target = target
        self.box = box
        self.observer = observer or Observer()
        self.generator = torch.Generator().manual_seed(seed)
        self.seed = seed

    def batch(self, size: int) -> Pairs:
        """Random points, crowded to the faces, some of them corners."""
        draws = torch.rand(size, self.box.dim, generator=self.generator, dtype=torch.float64)
        unit = -torch.cos(math.pi * draws)
        corners = size // CORNER_SHARE
        unit[:corners] = torch.where(unit[:corners] < 0, -1.0, 1.0).double()
        middle = self.box.center.flatten()
        half = self.box.width.flatten() / 2
        return self._pairs((middle + half * unit).reshape(-1, *self.box.shape))

    def fixed(self) -> Pairs:
        """The points of a full-batch method."""
        inside = self.box.sample(FIXED_POINTS, seed=self.seed + 1, arcsine=True)
        return self._pairs(torch.cat([inside, self.box.corners(256)]))

    def test(self, *, final: bool = False) -> Pairs:
        """Points that training does not draw; more of them at the end."""
        count = FINAL_POINTS if final else TEST_POINTS
        evenly = self.box.sample(count, seed=11)
        crowded = self.box.sample(count, seed=12, arcsine=True)
        return self._pairs(torch.cat([evenly, crowded, self.box.corners(4096)]))

    def _pairs(self, x: Tensor) -> Pairs:
        """Points with f there; a black box is asked in parts, and Stopped where the observer ends that."""
        with torch.no_grad():
            if self.target.paid:
                return x, self.target.values(x, self.observer)
            return x, self.target.function(x)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs to go on with the same draws."""
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on where a checkpoint was."""
        self.generator.set_state(state["generator"])


@dataclass
class TableSource(Examples):
    """Rows in a fresh order every epoch; measured on ``held``, or on the rows themselves when none are held out."""

    inputs: Tensor
    outputs: Tensor
    held: Pairs | None
    seed: int

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self.order = torch.randperm(len(self.inputs), generator=self.generator)
        self.at = 0

    def batch(self, size: int) -> Pairs:
        """The next rows of a random order."""
        size = min(size, len(self.inputs))
        if self.at + size > len(self.order):
            self.order = torch.randperm(len(self.inputs), generator=self.generator)
            self.at = 0
        chosen = self.order[self.at : self.at + size]
        self.at += size
        return self.inputs[chosen], self.outputs[chosen]

    def fixed(self) -> Pairs:
        """All rows."""
        return self.inputs, self.outputs

    def test(self, *, final: bool = False) -> Pairs:
        """The rows held out, or all if none were."""
        if self.held is not None:
            return self.held
        return self.inputs, self.outputs

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs to go on with the same rows."""
        return {"generator": self.generator.get_state(), "order": self.order, "at": torch.tensor(self.at)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on where a checkpoint was."""
        self.generator.set_state(state["generator"])
        self.order = state["order"]
        self.at = int(state["at"])
