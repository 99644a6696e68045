"""A task: what is to be built and within what limits; the proof of a layer that was built for it."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import torch

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint
from onelayer.build.lookup.storage import Integers, Storage
from onelayer.observer import Observer
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.recording.jumps import Jump
from onelayer.recording.target import Target
from onelayer.result import Approximation

# Share of eps given to the fit; the rest is room for the proof, which pays for tightness with boxes, more so in more
# dimensions. No claim that the numbers are optimal.
FIT_SHARE = {1: 0.97, 2: 0.9, 3: 0.8, 4: 0.7}
# Of eps for the fit where FIT_SHARE has no row; the proof needs the rest.
HIGH_DIMENSION_SHARE = 0.5
# Share of the time after which a fit has to do with what it found.
FIT_TIME = 0.5


@dataclass(frozen=True)
class Task:
    """What is to be built, and within what limits."""

    target: Target
    domain: Box
    eps: float
    dtype: torch.dtype
    max_tokens: int
    max_boxes: int
    seed: int
    jobs: int
    device: str | torch.device = "cpu"  # where proofs are computed
    # Who shares long proofs, instead of processes of this machine.
    executor: Executor | None = None
    # Of the weights, where it is coarser than what the layer computes in.
    storage: Storage | None = None
    # Of f by more than 2 eps: no layer comes that close.
    jump: Jump | None = None

    @property
    def fit_share(self) -> float:
        """Share of eps for the fit, by the number of coordinates."""
        return FIT_SHARE.get(self.domain.dim, HIGH_DIMENSION_SHARE)


def proved(blueprint: Blueprint, task: Task, watch: Observer) -> Approximation:
    """The layer of a blueprint with its certificate."""
    model = blueprint.build(task.dtype)
    model.integers = isinstance(task.storage, Integers)
    made = concluded(model, task, watch)
    # No number of tokens is wanted for what is proved, nor would any do where eps is out of reach.
    if made.certificate.proved or made.unreachable:
        return made
    return replace(made, wanted_tokens=blueprint.wanted or None)


def concluded(model: Any, task: Task, watch: Observer) -> Approximation:
    """A layer with its certificate, and the jump that keeps it from eps where there is one."""
    unreachable = "" if task.jump is None else str(task.jump)
    certificate = certified(model, task, watch)
    return Approximation(model, certificate, task.target, unreachable=unreachable)


def certified(model: Any, task: Task, watch: Observer) -> Certificate:
    """The certificate of a layer; a formula travels to whoever shares the proof, code from elsewhere does not."""
    travels = task.target.formula is not None and task.target.lipschitz is None
    return certify(
        model,
        task.target,
        task.domain,
        task.eps,
        max_boxes=task.max_boxes,
        jobs=task.jobs,
        executor=task.executor if travels else None,
        device=task.device,
        observer=watch,
    )
