"""The inside of a layer on Taylor models: what the ReLU units see as affine functions of the embedded atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.float64 import eye, indices
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.atoms import Atoms
from onelayer.lemmas.forward import in_float64
from onelayer.taylor import variables
from onelayer.taylor.rounding import inflate

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Forms:
    """z = const + linear . t + something within rem, t in [-1, 1]^V, for every position and unit, as executed.

    ``center`` and ``radius`` (V,) give the embedded atoms, center + radius t. ``leak`` bounds what the outputs take
    from the stream beside the units.
    """

    const: Floats  # (n, U)
    linear: Floats  # (V, n, U)
    rem: Floats  # (n, U)
    center: Floats
    radius: Floats
    leak: float


def unit_forms(model: OneLayerTransformer, atoms: Atoms) -> Forms:
    """Run embedding, attention and normalisation on one box of atoms, with the rounding of the execution."""
    low, high = (torch.from_numpy(side.copy())[None] for side in (atoms.low, atoms.high))  # (1, n, C)
    # Without a norm the stream is affine in the atoms; with one, second order keeps the remainder small.
    order = 1 if model.config.norm == "none" else 2
    x: Any = variables(low, high, order, execution=model.dtype)
    wide = in_float64(model)
    middle = x.coef[0]
    center = (middle + 0).reshape(-1)
    radius = torch.maximum(high - middle, middle - low).reshape(-1)
    with torch.no_grad():
        e: Any = wide.embed(x) if atoms.linear else _embedded(wide, x, atoms)
        r: Any = wide.stream(e)
        z: Any = wide.preactivations(r)
        read: Any = F.linear(r, wide.own("W_R").T)
    coef, rem = z.polynomial_and_remainder()
    count = 1 + low.numel()
    # |t| <= 1, so what is of higher order is at most the sum of its coefficients, and joins the remainder.
    above = inflate(coef[count:].abs().sum(0)) if len(coef) > count else torch.zeros_like(rem)
    rest = inflate(rem + above)
    leak = float(read.bound().max()) if model.config.residual else 0.0
    # A model without variables has no rows for them: its units are constant.
    linear = coef.new_zeros(count - 1, *coef.shape[2:])
    if len(coef) > 1:
        linear = coef[1:count, 0]
    return Forms(coef[0, 0].numpy(), linear.numpy(), rest[0].numpy(), center.numpy(), radius.numpy(), leak)


def last_norm_error(model: OneLayerTransformer, atoms: Atoms, reach: Floats) -> float:
    """What the normalisation after the feed-forward network changes of outputs of size at most ``reach`` (outputs,).

    The outputs are variables of their own beside the atoms, so the sizes of both enter, and their relation is dropped.
    """
    wide = in_float64(model)
    outer, _ = outer_coefficients(model)
    spread = _written(wide, outer)
    low = torch.from_numpy(np.concatenate([atoms.low.reshape(-1), -reach]))
    high = torch.from_numpy(np.concatenate([atoms.high.reshape(-1), reach]))
    x: Any = variables(low[None], high[None], 2, execution=model.dtype)
    count = atoms.low.size
    tokens = x[:, :count].reshape(1, *atoms.low.shape)
    outputs = x[:, count:]
    positions = model.config.length if model.config.readout == "each" else 1
    with torch.no_grad():
        e: Any = wide.embed(tokens) if atoms.linear else _embedded(wide, tokens, atoms)
        r: Any = wide.stream(e)
        bounds = []
        for position in range(positions):
            y = F.linear(outputs, spread.T, wide.own("b_2"))
            y = r[:, position] + y if model.config.residual else y
            found: Any = wide.finish(y) - (outputs + wide.own("b_R"))
            bounds.append(found.bound().max())
    # max of torch and not of Python: nan stays nan, and is stated as inf.
    return float(torch.stack(bounds).max())


def _written(model: OneLayerTransformer, outer: Floats) -> Tensor:
    """How an output is written into the stream, (outputs, d_model): W_2 must be the coefficients times it."""
    second = model.own("W_2").detach().double()
    coefficients = torch.from_numpy(outer)
    # Of each output the unit that writes it most: no division by a coefficient that is zero.
    unit = torch.from_numpy(np.abs(outer).argmax(0))
    own = coefficients[unit, indices(outer.shape[1])]
    spread: Tensor = second[unit] / own[:, None]
    if not torch.equal(coefficients @ spread, second):
        raise OnelayerError("the feed-forward network of this layer writes more than its outputs")
    return spread


def _embedded(model: OneLayerTransformer, x: Any, atoms: Atoms) -> Any:
    """Column c of the embedding is atom c, bias included, with the rounding of its sum of ramps."""
    error = torch.from_numpy(atoms.rounding).expand(x.shape)
    x = x.with_(x.coef, inflate(x.rem + error))
    select = eye(x.shape[-1], model.config.d_model)
    # The constants of the atoms are in their ranges already; those of other features remain.
    bias = model.own("b_E").clone()
    bias[: x.shape[-1]] = 0
    e: Any = F.linear(x, select.T, bias)
    if model.config.positions == "none":
        return e
    return e + model.own("position")


def outer_coefficients(model: OneLayerTransformer) -> tuple[Floats, Floats]:
    """Coefficients (U, outputs) of the units in the read-out, and the constant part (outputs,)."""
    second = model.own("W_2").detach().double()
    read = model.own("W_R").detach().double()
    inner = model.own("b_2").detach().double()
    zeros_and_ones = bool(((read == 0) | (read == 1)).all())
    picks = zeros_and_ones and bool((read.sum(0) == 1).all())
    if not picks or bool((inner @ read).any()):
        raise OnelayerError("the read-out of a composition picks single features, without a bias of their own")
    if model.config.readout not in ("each", "first"):
        raise OnelayerError("a composition is read at each position or at the first")
    bias: Tensor = model.own("b_R").detach().double()
    return (second @ read).numpy(), bias.numpy()
