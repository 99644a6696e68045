"""Source: the model and the box that a picture, an explanation or an export starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.formats import spelled
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.narrow import ACCUMULATORS
from onelayer.result import Approximation


@runtime_checkable
class Fitted(Protocol):
    """A fitted estimator: its layer, and the box around the rows it was fitted to."""

    model_: OneLayerTransformer
    box_: Box


Exportable = Approximation | OneLayerTransformer | Fitted


@dataclass(frozen=True)
class Source:
    """A layer and, where known, the box on which it is used."""

    model: OneLayerTransformer
    box: Box | None

    @property
    def domain(self) -> Box:
        """The box, for exports that have to know how large activations become."""
        if self.box is None:
            raise OnelayerError("this export needs the domain of a bare model; pass box=Box(lower, upper)")
        return self.box


def source_of(a: Exportable, box: Box | None = None) -> Source:
    """Model and box of an approximation or a fitted estimator, or a bare model with a given box.

    OnelayerError for an approximation whose model has other weights than were certified.
    """
    if isinstance(a, Approximation):
        a.need_certified()
        return Source(a.model, _fitting(a.model, box) or a.box)
    if isinstance(a, OneLayerTransformer):
        return Source(a, _fitting(a, box))
    # Estimators are known by what they have, so that this room imports none of them.
    given: object = a
    if isinstance(given, Fitted):
        return Source(given.model_, _fitting(given.model_, box) or given.box_)
    kinds = "an Approximation, a OneLayerTransformer or a fitted estimator"
    raise OnelayerError(f"{kinds} can be exported, not {type(given).__name__}")


def guarded_box(a: Exportable, source: Source) -> Box:
    """The box that a guard of ``a`` keeps: what was certified, however large the export was laid out."""
    if isinstance(a, Approximation):
        return a.box
    return source.domain


def _fitting(model: OneLayerTransformer, box: Box | None) -> Box | None:
    """The box, if its points are those of the model."""
    if box is not None and tuple(box.shape) != model.config.input_shape:
        raise OnelayerError(f"the model takes points of shape {model.config.input_shape}, the box {tuple(box.shape)}")
    return box


def plain_heads(model: OneLayerTransformer) -> list[tuple[Tensor, Tensor]]:
    """Keys (M_h, d_k) and values (M_h, d_v) of every head's memory tokens in float64, grids written out."""
    heads = []
    for h, shape in enumerate(model.config.heads):
        memory = model.memory_of(h)
        if memory is None:
            keys = torch.zeros(0, shape.d_k).double()
            values = torch.zeros(0, shape.d_v).double()
        else:
            keys, values = memory.plain_tokens(torch.float64)
        heads.append((keys.detach(), values.detach()))
    return heads


def need_softmax(model: OneLayerTransformer, library: str) -> None:
    """Foreign layers know softmax attention alone, and round numbers of narrow formats at places of their own."""
    # What a foreign library computes with narrow numbers is not what was certified.
    if model.dtype in ACCUMULATORS:
        kind = spelled(model.dtype)
        raise OnelayerError(f"{library} rounds {kind} at places of its own; export to onnx or c, or model.float()")
    if model.config.attention != "softmax":
        raise OnelayerError(
            f"{library} has softmax attention only; this model uses '{model.config.attention}', which ONNX can hold"
        )
