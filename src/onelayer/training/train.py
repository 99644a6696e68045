"""train: a function on a box, or a table, in; a trained one-layer Transformer out."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onelayer.certify.door import digest_of
from onelayer.domain import Box
from onelayer.errors import OnelayerError
from onelayer.model import OneLayerTransformer
from onelayer.training.checkpoint import FILE_NAME
from onelayer.training.loop import Loop
from onelayer.training.measure import Task
from onelayer.training.problem import Problem, as_problem, widths
from onelayer.training.progress import training_bar
from onelayer.training.recipe import Recipe, dtype_name
from onelayer.training.scaling import Scaling, no_scaling
from onelayer.training.start import fresh_model, suited_layout, warm_start
from onelayer.training.trained import Trained


def train(
    data: Any,
    domain: Box | None = None,
    *,
    model: Any = None,
    heads: int = 4,
    d_model: int = 32,
    hidden: int = 128,
    memory: int = 0,
    depth: int = 1,
    layer: Mapping[str, Any] | None = None,
    optimiser: str = "adam",
    lr: float | None = None,
    schedule: str = "cosine",
    steps: int = 3000,
    batch: int = 256,
    lbfgs_steps: int = 0,
    weight_decay: float = 0.0,
    loss: str | None = None,
    test: Any = None,
    target: str | None = None,
    patience: int | None = None,
    every: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str = torch.float64,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: bool = False,
) -> Trained:
    """Train a one-layer Transformer on a function over ``domain``, or on a table.

    data        formula text, torch callable or module, with ``domain``; or a pair (X, Y) of arrays; or a CSV or Parquet
                file with ``target``, the column to predict. Whole or text labels mean classification.
    model       where to start: an Approximation (a construction), a layer, any nn.Module, or None for random weights
    heads, d_model, hidden, memory (tokens per head), depth (more than 1: a stack of standard blocks)  shape when None
    layer       further fields of a fresh layer: layout, attention, top_k, feature, order, norm, residual, readout
    optimiser   sgd, momentum, adam or adamw, ``steps`` of them, then ``lbfgs_steps`` of L-BFGS on a fixed set
    test        pair (X, Y) to measure on, or a share of the rows to hold out; for a box, points of its own are used
    patience    stop after so many measurements (one per ``every`` steps) without improvement, keep the best weights
    dtype       float64, float32, or bfloat16 (computes in it; weights are float32)
    checkpoint  folder for a checkpoint after every measurement; the same call goes on from it, with the same result as
                an uninterrupted run, unless ``resume`` is False
    """
    recipe = Recipe(
        optimiser=optimiser,
        lr=lr or 0.0,
        schedule=schedule,
        steps=steps,
        batch=batch,
        lbfgs_steps=lbfgs_steps,
        weight_decay=weight_decay,
        loss=loss or "mse",
        every=every or 0,
        patience=patience or 0,
        seed=seed,
        dtype=dtype_name(dtype),
    )
    problem = as_problem(data, domain, recipe, loss=loss, test=test, column=target)
    recipe = problem.recipe
    if model is None:
        options = {"layout": suited_layout(domain, problem.input_shape, memory), **(layer or {})}
        options |= {"heads": heads, "d_model": d_model, "hidden": hidden, "memory": memory, "depth": depth}
        start = fresh_model(problem.input_shape, problem.output_shape, dtype=recipe.weight_dtype, seed=seed, **options)
        scaling = problem.scaling(start)
    else:
        start = warm_start(model, recipe.weight_dtype)
        scaling = no_scaling(*widths(start))
    return run_training(problem, start, scaling, device, checkpoint, resume=resume, progress=progress)


def run_training(
    problem: Problem,
    model: nn.Module,
    scaling: Scaling,
    device: str | torch.device,
    checkpoint: str | os.PathLike[str] | None,
    *,
    resume: bool = True,
    progress: bool = False,
) -> Trained:
    """Train ``model`` on a problem that is already understood; it comes back frozen, on the CPU, in raw coordinates."""
    place, folder = usable_device(device), None if checkpoint is None else Path(checkpoint)
    started = time.monotonic()
    if problem.recipe.dtype == "bfloat16" and not isinstance(model, OneLayerTransformer):
        raise OnelayerError("bfloat16 training is for the one-layer model; use dtype float32 for a stack or a module")
    fingerprint = _fingerprint(problem, model)
    model = model.to(place).train()
    task = Task(problem.recipe, scaling, place)
    if folder is not None and not resume:
        (folder / FILE_NAME).unlink(missing_ok=True)
    loop = Loop(model, problem.source, task, folder, fingerprint)
    resumed = loop.resume()
    with training_bar(progress) as report:
        loop.run(report)
    model.eval().requires_grad_(False)
    final = task.measure(model, problem.source.test(final=True))
    scaling.fold(model)
    seconds = loop.history[-1]["seconds"] if resumed and loop.history else time.monotonic() - started
    settings = problem.recipe.as_dict() | {"identity": problem.identity}
    return Trained(model.cpu(), loop.history, final, settings, seconds, problem.target, problem.box, problem.classes)


def usable_device(device: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise OnelayerError(f"device '{device}' cannot be used here: {str(error).splitlines()[0]}") from error
    return place


def _fingerprint(problem: Problem, model: nn.Module) -> str:
    """Of everything a trajectory depends on: recipe, examples, and the weights at the start."""
    document = {"recipe": problem.recipe.as_dict(), "data": problem.identity, "start": digest_of(model)}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
