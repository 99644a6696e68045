"""Attention at one input: query, memory tokens, weighted sum, drawn from the weights of the live model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.scene import Array, Scene

LINE = 401  # points of a drawn line
ROUNDING = 1e-9  # singular values below this share of the first are rounding


@dataclass(frozen=True)
class AxisView:
    """One axis of a head's memory: softmax ``weights`` (M_a,) at the query and, if the logits depend on x through one
    number u = direction . x, its ``name``, the ``query`` position and the weights (P, M_a) along ``line`` (P,)."""

    weights: Array
    name: str = ""
    query: float = np.nan
    line: Array | None = None
    along: Array | None = None


@dataclass(frozen=True)
class HeadView:
    """One head at one input. ``weights`` and ``values`` have the shape of the memory, (M,) or (M_1, ..., M_r).

    ``values`` are what each token adds to the drawn output: v_m through W^O and the read-out.
    """

    index: int
    weights: Array
    values: Array
    axes: list[AxisView]

    @property
    def sum(self) -> float:
        """What the head adds to the output."""
        return float((self.weights * self.values).sum())


def head_views(scene: Scene, x: Tensor) -> list[HeadView]:
    """All heads of a packed layer at the point x (D,), the strongest contribution first."""
    model = packed_model(scene)
    rows = model.attention_weights(x.reshape(1, *scene.box.shape))
    views = []
    for h, row in enumerate(rows):
        memory = model.memory_of(h)
        assert memory is not None
        shape = tuple(memory.values.shape[:-1])
        weights = row.detach().numpy().reshape(shape)
        values = _read_out(model, h, memory.values.detach().double(), scene.output).numpy()
        keys = list(memory.axes) if isinstance(memory, GridMemory) else [memory.keys]
        axes = [_axis_view(scene, model, h, key.detach().double(), x) for key in keys]
        views.append(HeadView(h, weights, values, axes))
    return sorted(views, key=lambda view: -abs(view.sum))


def unit_adds(model: OneLayerTransformer, points: Tensor, output: int) -> Array:
    """What every hidden unit adds to one output of a position at points (S, D), (S, N, U)."""
    config = model.config
    with torch.no_grad():
        tokens = points.to(model.dtype).reshape(len(points), -1, config.token_width)
        units = torch.relu(model.preactivations(model.stream(model.embed(tokens))))
        through = model.own("W_2") @ model.own("W_R")[:, output % config.readout_width]
        adds: Array = (units * through).double().cpu().numpy()
    return adds


def packed_model(scene: Scene) -> OneLayerTransformer:
    """The model, if it is a layer whose one query attends to memory tokens."""
    model = scene.model
    if not isinstance(model, OneLayerTransformer) or model.config.layout != "packed":
        raise OnelayerError("this picture needs a packed OneLayerTransformer: one query over memory tokens")
    return model


def _read_out(model: OneLayerTransformer, h: int, values: Tensor, output: int) -> Tensor:
    """v W^O_h W_R in the chosen output, (M_1, ..., M_r)."""
    heads = model.config.heads
    # W_O has the rows of all heads one below the other.
    row = sum(head.d_v for head in heads[:h])
    own_rows = model.own("W_O").detach().double()[row : row + heads[h].d_v]
    through = own_rows @ model.own("W_R").detach().double()
    result: Tensor = values @ through[:, output]
    return result


def _axis_view(scene: Scene, model: OneLayerTransformer, h: int, keys: Tensor, x: Tensor) -> AxisView:
    weight, bias = _query_map(model, h)  # q / sqrt(d_k) = x weight + bias
    logits = weight @ keys.T  # (D, M)
    offsets = bias @ keys.T  # (M,)

    def softmax(points: Tensor) -> Array:
        result: Array = torch.softmax(points @ logits + offsets, -1).numpy()
        return result

    at = softmax(x[None])[0]
    direction = _one_direction(logits)
    # Another embedding, or a norm before the query, bends the logits: they are no lines in x.
    if direction is None or model.config.embedding != "linear" or model.config.norm == "pre":
        return AxisView(at)
    low = scene.box.lower.flatten()
    high = scene.box.upper.flatten()
    # From the corner where u is smallest to the one where it is largest; what u does not read stays at x.
    start = torch.where(direction >= 0, low, high)
    end = torch.where(direction >= 0, high, low)
    steps = torch.linspace(0, 1, LINE, dtype=torch.float64)[:, None]
    points = torch.where(direction != 0, start + steps * (end - start), x)
    name = _direction_name(scene, direction)
    line = (points @ direction).numpy()
    return AxisView(at, name, float(x @ direction), line, softmax(points))


def _query_map(model: OneLayerTransformer, h: int) -> tuple[Tensor, Tensor]:
    heads = model.config.heads
    start = sum(head.d_k for head in heads[:h])
    columns = slice(start, start + heads[h].d_k)
    w_e, b_e, w_q, b_q = (model.own(name).detach().double() for name in ("W_E", "b_E", "W_Q", "b_Q"))
    own = w_q[:, columns]
    scale = heads[h].d_k ** -0.5
    weight = w_e @ own * scale
    bias = (b_e @ own + b_q[columns]) * scale
    return weight, bias


def _one_direction(logits: Tensor) -> Tensor | None:
    """The direction (D,) along which logit differences vary, largest entry 1; None when there is more than one."""
    # What all logits share a softmax does not see.
    differences = logits - logits.mean(1, keepdim=True)
    left, singular, _ = torch.linalg.svd(differences, full_matrices=False)
    if singular[0] == 0:
        return None
    if len(singular) > 1 and singular[1] > ROUNDING * singular[0]:
        return None
    direction = torch.where(left[:, 0].abs() > ROUNDING, left[:, 0], 0.0)
    scaled: Tensor = direction / direction[direction.abs().argmax()]
    return scaled


def _direction_name(scene: Scene, direction: Tensor) -> str:
    terms = []
    for name, factor in zip(scene.names, direction.tolist(), strict=True):
        if factor:
            sign = " - " if factor < 0 else " + "
            size = "" if abs(factor) == 1 else f"{abs(factor):.3g} "
            terms.append(f"{sign}{size}{name}")
    # An axis label has room for five terms.
    rest = " + ..." if len(terms) > 5 else ""
    text = "".join(terms[:5]).removeprefix(" + ")
    return f"{text}{rest}".strip()
