"""What is to be learned: a function on a box or a table, as a source of examples with shapes and an identity."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.build.tables.table import as_table, read_table
from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer
from onelayer.recording.target import Target, as_target
from onelayer.training.examples import BoxSource, Examples, Pairs, TableSource
from onelayer.training.recipe import Recipe
from onelayer.training.scaling import Scaling, fitted_scaling
from onelayer.training.stack import Stack


@dataclass(frozen=True)
class TrainingProblem:
    """What is to be learned: a source of examples, their shapes, and a text that identifies them."""

    source: Examples
    recipe: Recipe
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    identity: str
    target: Target | None = None
    box: Box | None = None
    classes: tuple[Any, ...] | None = None

    def scaling(self, model: nn.Module) -> Scaling:
        """Unit coordinates for a fresh model."""
        x, y = self.source.fixed()
        outputs = None if self.classes else y.double()
        return fitted_scaling(x.double(), outputs, *widths(model), ends=self.box is not None)


def as_problem(
    data: Any,
    domain: Box | None,
    recipe: Recipe,
    *,
    loss: str | None,
    test: Any,
    column: str | None,
    observer: Observer | None = None,
) -> TrainingProblem:
    """Understand ``data``: a function where ``domain`` is given, else a table; labels choose the ``loss`` if None.

    The ``observer`` ends the evaluation of a black box, with Stopped.
    """
    if domain is not None:
        if loss == "cross-entropy":
            raise OnelayerError("cross-entropy needs labels: give a table (X, labels) instead of a function on a box")
        target = as_target(data, domain, observer=observer)
        identity = f"{target.formula if target.formula is not None else target.description} on {domain!r}"
        source = BoxSource(target, domain, recipe.seed, observer)
        return TrainingProblem(source, recipe, target.input_shape, target.output_shape, identity, target, domain)
    return _table_problem(_arrays(data, column), recipe, loss, test)


def _arrays(data: Any, column: str | None) -> tuple[Any, Any]:
    if isinstance(data, str | os.PathLike):
        if column is None:
            raise OnelayerError(
                "training on a function needs domain=, for example Box([0], [1]); on a file it needs target=, a column"
            )
        return read_table(Path(data), column)
    if isinstance(data, tuple | list) and len(data) == 2:
        return data[0], data[1]
    raise OnelayerError("give a function with domain=, a pair (X, Y), or a CSV file with target=")


def _table_problem(arrays: tuple[Any, Any], recipe: Recipe, loss: str | None, test: Any) -> TrainingProblem:
    """The table as tensors; labels become class numbers; the test share is drawn by the seed."""
    table = as_table(*arrays)
    labels = table.classes is not None if loss is None else loss == "cross-entropy"
    if labels and table.classes is None:
        raise OnelayerError("cross-entropy needs whole or text labels, one per row; got real numbers")
    classes = table.classes if labels else None
    y = torch.from_numpy(table.outputs)
    if table.classes is not None and not labels:
        # Whole numbers that are to be learned as numbers: the table holds their places among the classes.
        y = torch.tensor([float(table.classes[int(k)]) for k in table.outputs], dtype=torch.float64)
    pairs = _pair(torch.from_numpy(table.inputs), y, classes)
    (x, y), held = _split(*pairs, test, recipe.seed, classes)
    kind = replace(recipe, loss="cross-entropy" if labels else "mse")
    output_shape = (len(classes),) if classes is not None else tuple(y.shape[1:])
    source = TableSource(x, y, held, recipe.seed)
    identity = f"table of {len(x)} rows, sha256 {digest(x, y)}"
    return TrainingProblem(source, kind, tuple(x.shape[1:]), output_shape, identity, classes=classes)


def _split(x: Tensor, y: Tensor, test: Any, seed: int, classes: tuple[Any, ...] | None) -> tuple[Pairs, Pairs | None]:
    """Rows to learn from, and rows to measure on: given ones, or a share drawn by the seed."""
    if test is None:
        return (x, y), None
    if isinstance(test, tuple | list):
        return (x, y), _held(test, x, classes)
    if not 0 < float(test) < 1:
        raise OnelayerError(f"test must be a pair (X, Y) or a share between 0 and 1, got {test!r}")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    count = max(1, round(float(test) * len(x)))
    rest = order[count:]
    drawn = order[:count]
    return (x[rest], y[rest]), (x[drawn], y[drawn])


def digest(*tensors: Tensor) -> str:
    """Sixteen hexadecimal digits that identify the numbers of some tensors."""
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def _pair(x: Tensor, y: Tensor, classes: tuple[Any, ...] | None) -> Pairs:
    return x.contiguous(), (y.long() if classes is not None else y.double()).contiguous()


def _held(test: Any, x: Tensor, classes: tuple[Any, ...] | None) -> Pairs:
    inputs = torch.as_tensor(test[0], dtype=torch.float64)
    if inputs.shape[1:] != x.shape[1:] or len(inputs) != len(test[1]):
        raise OnelayerError(
            f"test rows must have shape {tuple(x.shape[1:])}, one output each, got {tuple(inputs.shape)}"
        )
    if classes is None:
        return inputs, torch.as_tensor(test[1], dtype=torch.float64)
    number = {name: k for k, name in enumerate(classes)}
    try:
        codes = [number[item.item() if hasattr(item, "item") else item] for item in test[1]]
    except KeyError as error:
        raise OnelayerError(f"test label {error.args[0]!r} does not occur among the training labels") from error
    return inputs, torch.tensor(codes)


def widths(model: nn.Module) -> tuple[int, int]:
    """Numbers in one token and in one position of the output; 1 and 1 for a model that is not scaled."""
    if isinstance(model, OneLayerTransformer):
        return model.config.token_width, model.config.readout_width
    if isinstance(model, Stack):
        return model.embed.in_features, model.readout.out_features
    return 1, 1
