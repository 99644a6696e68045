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
        tokens = x.reshape(len(x), -1, len(self.shift_in))
        return ((tokens - self.shift_in) / self.scale_in).reshape(x.shape)

    def outputs(self, y: Tensor) -> Tensor:
        """Raw outputs (B, *shape) in unit coordinates."""
        positions = y.reshape(len(y), -1, len(self.shift_out))
        return ((positions - self.shift_out) / self.scale_out).reshape(y.shape)

    def restore(self, y: Tensor) -> Tensor:
        """Inverse of :meth:`outputs`."""
        positions = y.reshape(len(y), -1, len(self.shift_out))
        return (positions * self.scale_out + self.shift_out).reshape(y.shape)

    def fold(self, model: nn.Module) -> None:
        """Change the ends of ``model`` in place, so that it takes raw inputs to raw outputs."""
        if isinstance(model, OneLayerTransformer):
            w_e, b_e, w_r, b_r = (_plain(model.own(name)) for name in ("W_E", "b_E", "W_R", "b_R"))
        elif isinstance(model, Stack):
            # nn.Linear keeps the transpose of what a layer of this package calls its weight.
            w_e, w_r = (_plain(end.weight.T) for end in (model.embed, model.readout))
            b_e, b_r = (_plain(end.bias) for end in (model.embed, model.readout))
        else:
            return
        # (x - shift) / scale W + b = x (W / scale) + (b - shift / scale W), so b is changed while W is the old one.
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
    zero_in, zero_out = (torch.zeros(width).double() for width in (token_width, readout_width))
    one_in, one_out = (torch.ones(width).double() for width in (token_width, readout_width))
    return Scaling(zero_in, one_in, zero_out, one_out)


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


def _plain(weight: Tensor) -> Tensor:
    """The numbers of a weight, to compute with."""
    return weight.detach().double().cpu()


def _nonzero(scale: Tensor) -> Tensor:
    """A number that never changes is shifted and not scaled."""
    return torch.where(scale > 0, scale, torch.ones_like(scale))
