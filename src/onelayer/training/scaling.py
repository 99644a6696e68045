"""Scaling: training sees inputs and outputs of unit size; the affine maps between are folded into the weights after.

A layer begins and ends with affine maps, so x -> scale_out T((x - shift_in) / scale_in) + shift_out is again a layer
of the same shape: only W_E, b_E, W_R and b_R change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onelayer.layer.transformer import OneLayerTransformer
from onelayer.training.stack import Stack


@dataclass(frozen=True)
class Scaling:
    """Shift and scale of the numbers of one token (w,) and of one position of the output (k,), float64."""

    shift_in: Tensor
    scale_in: Tensor
    shift_out: Tensor
    scale_out: Tensor

    def inputs(self, x: Tensor) -> Tensor:
        """Raw inputs (B, *shape) in unit coordinates."""
        return ((x.reshape(len(x), -1, len(self.shift_in)) - self.shift_in) / self.scale_in).reshape(x.shape)

    def outputs(self, y: Tensor) -> Tensor:
        """Raw outputs (B, *shape) in unit coordinates."""
        return ((y.reshape(len(y), -1, len(self.shift_out)) - self.shift_out) / self.scale_out).reshape(y.shape)

    def restore(self, y: Tensor) -> Tensor:
        """Inverse of :meth:`outputs`."""
        return (y.reshape(len(y), -1, len(self.shift_out)) * self.scale_out + self.shift_out).reshape(y.shape)

    def fold(self, model: nn.Module) -> None:
        """Change the ends of ``model`` in place, so that it takes raw inputs to raw outputs."""
        if isinstance(model, OneLayerTransformer):
            w_e, b_e, w_r, b_r = (model.own(name).detach().double().cpu() for name in ("W_E", "b_E", "W_R", "b_R"))
        elif isinstance(model, Stack):
            ends = (model.embed, model.readout)
            (w_e, b_e), (w_r, b_r) = (
                (end.weight.detach().T.double().cpu(), end.bias.detach().double().cpu()) for end in ends
            )
        else:
            return
        b_e = b_e - (self.shift_in / self.scale_in) @ w_e
        w_e = w_e / self.scale_in[:, None]
        w_r = w_r * self.scale_out
        b_r = b_r * self.scale_out + self.shift_out
        with torch.no_grad():
            if isinstance(model, OneLayerTransformer):
                model.set_weights({"W_E": w_e, "b_E": b_e, "W_R": w_r, "b_R": b_r})
            else:
                for end, weight, bias in ((model.embed, w_e, b_e), (model.readout, w_r, b_r)):
                    end.weight.copy_(weight.T)
                    end.bias.copy_(bias)


def no_scaling(token_width: int, readout_width: int) -> Scaling:
    """The identity, for models that come with weights of their own."""
    zero = torch.zeros(token_width).double()
    one = torch.ones(token_width).double()
    return Scaling(zero, one, torch.zeros(readout_width).double(), torch.ones(readout_width).double())


def fitted_scaling(x: Tensor, y: Tensor | None, token_width: int, readout_width: int, *, ends: bool) -> Scaling:
    """Unit inputs and outputs for sample inputs ``x`` and outputs ``y`` (None leaves the outputs alone).

    Inputs are mapped by their ends (a box) or by mean and standard deviation (a table); numbers at the same place of
    every token share one map. Outputs get mean 0 and variance 1.
    """
    tokens = x.reshape(-1, token_width)
    if ends:
        low = tokens.amin(0)
        high = tokens.amax(0)
        shift = (low + high) / 2
        scale = (high - low) / 2
    else:
        shift = tokens.mean(0)
        scale = tokens.std(0, correction=0)
    plain = no_scaling(token_width, readout_width)
    out: Sequence[Tensor] = (plain.shift_out, plain.scale_out)
    if y is not None:
        values = y.reshape(-1, readout_width)
        out = (values.mean(0), _nonzero(values.std(0, correction=0)))
    return Scaling(shift, _nonzero(scale), *out)


def _nonzero(scale: Tensor) -> Tensor:
    return torch.where(scale > 0, scale, torch.ones_like(scale))
