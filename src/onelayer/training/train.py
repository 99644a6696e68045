"""train: a function on a box, or a table, in; a trained one-layer Transformer out."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onelayer.box import Domain, as_box
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.formats import spelled
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer, Stopped, observing
from onelayer.proof.certify import digest_of
from onelayer.training.checkpoint import FILE_NAME
from onelayer.training.loop import Loop
from onelayer.training.measure import TrainingTask
from onelayer.training.problem import TrainingProblem, as_problem, widths
from onelayer.training.recipe import Recipe
from onelayer.training.scaling import Scaling, no_scaling
from onelayer.training.start import Shape, fresh_model, suited_layout, warm_start
from onelayer.training.trained import Trained


@door
def train(
    data: Any,
    domain: Domain | None = None,
    *,
    model: Any = None,
    recipe: Recipe | None = None,
    shape: Shape | None = None,
    loss: str | None = None,
    test: Any = None,
    target: str | None = None,
    device: str | torch.device = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
    **settings: Any,
) -> Trained:
    """Train a one-layer Transformer on a function over ``domain``, or on a table.

    data        formula text, torch callable or module, with ``domain``; or a pair (X, Y) of arrays; or a CSV or Parquet
                file with ``target``, the column to predict. Whole or text labels mean classification.
    model       where to start: an Approximation (a construction), a layer, any nn.Module, or None for random weights
    recipe      how to train; ``shape`` of a fresh model. Their fields may be given by name instead: steps=100, heads=2
    test        pair (X, Y) to measure on, or a share of the rows to hold out; for a box, points of its own are used
    checkpoint  folder for a checkpoint after every measurement; the same call goes on from it, with the same result as
                an uninterrupted run, unless ``resume`` is False
    max_seconds training that is stopped by it, or by ``observer``, returns the weights it has
    """
    watch = observing(observer, max_seconds)
    recipe, shape = _settled(recipe or Recipe(), shape or Shape(), settings)
    if loss is not None:
        recipe = replace(recipe, loss=loss)
    domain = None if domain is None else as_box(domain)
    problem = as_problem(data, domain, recipe, loss=loss, test=test, column=target, observer=watch)
    dtype = problem.recipe.weight_dtype
    if model is None:
        layout = suited_layout(domain, problem.input_shape, shape.memory)
        start = fresh_model(problem.input_shape, problem.output_shape, shape, layout, dtype, problem.recipe.seed)
        scaling = problem.scaling(start)
    else:
        start = warm_start(model, dtype)
        scaling = no_scaling(*widths(start))
    return run_training(problem, start, scaling, device, checkpoint, watch, resume=resume)


def _settled(recipe: Recipe, shape: Shape, settings: Mapping[str, Any]) -> tuple[Recipe, Shape]:
    """Recipe and shape with single fields changed by name."""
    steps = {field.name for field in fields(Recipe)}
    sizes = {field.name for field in fields(Shape)}
    unknown = sorted(set(settings) - steps - sizes)
    if unknown:
        known = ", ".join(sorted(steps | sizes))
        raise OnelayerError(f"train has no setting {', '.join(map(repr, unknown))}; the settings are {known}")
    # None asks for the default, as a command line leaves it.
    given = {name: value for name, value in settings.items() if value is not None}
    if "dtype" in given:
        given["dtype"] = spelled(given["dtype"])
    return _changed(recipe, given), _changed(shape, given)


def _changed(record: Any, given: Mapping[str, Any]) -> Any:
    """A record with those of its fields that are given."""
    own = {field.name for field in fields(record)}
    changes = {name: value for name, value in given.items() if name in own}
    return replace(record, **changes)


def run_training(
    problem: TrainingProblem,
    model: nn.Module,
    scaling: Scaling,
    device: str | torch.device,
    checkpoint: str | os.PathLike[str] | None,
    observer: Observer,
    *,
    resume: bool = True,
) -> Trained:
    """Train ``model`` on a problem that is already understood; it comes back frozen, on the CPU, in raw coordinates."""
    place = _usable_device(device)
    folder = None if checkpoint is None else Path(checkpoint)
    started = time.monotonic()
    if problem.recipe.dtype == "bfloat16" and not isinstance(model, OneLayerTransformer):
        raise OnelayerError("bfloat16 training is for the one-layer model; use dtype float32 for a stack or a module")
    fingerprint = _fingerprint(problem, model)
    model = model.to(place).train()
    task = TrainingTask(problem.recipe, scaling, place)
    if folder is not None and not resume:
        (folder / FILE_NAME).unlink(missing_ok=True)
    loop = Loop(model, problem.source, task, folder, fingerprint)
    resumed = loop.resume()
    with observer:
        loop.run(observer)
    # Measured before the scaling is folded in: the task still speaks of unit coordinates.
    model.eval().requires_grad_(False)
    try:
        pairs = problem.source.test(final=True)
    except Stopped:  # f is a black box and the time over: the points of the other measurements have to do
        pairs = loop.test
    final = task.measure(model, pairs)
    scaling.fold(model)
    # Of a run that went on, the seconds of its earlier parts count too; its history has them.
    seconds = loop.history[-1]["seconds"] if resumed and loop.history else time.monotonic() - started
    settings = problem.recipe.as_dict() | {"identity": problem.identity}
    return Trained(model.cpu(), loop.history, final, settings, seconds, problem.target, problem.box, problem.classes)


def _usable_device(device: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise OnelayerError(f"device '{device}' cannot be used here: {str(error).splitlines()[0]}") from error
    return place


def _fingerprint(problem: TrainingProblem, model: nn.Module) -> str:
    """Of everything a trajectory depends on: recipe, examples, and the weights at the start."""
    document = {"recipe": problem.recipe.as_dict(), "data": problem.identity, "start": digest_of(model)}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
