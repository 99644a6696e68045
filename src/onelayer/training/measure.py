"""What is measured while training: sup norm and RMSE of a regression, accuracy of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onelayer.training.examples import Pairs
from onelayer.training.recipe import Recipe
from onelayer.training.scaling import Scaling

CHUNK = 1 << 13  # points per call, a few megabytes of activations


@dataclass(frozen=True)
class TrainingTask:
    """The loss in unit coordinates and the measures in raw ones."""

    recipe: Recipe
    scaling: Scaling
    device: torch.device

    def prepared(self, pairs: Pairs) -> Pairs:
        """Raw examples as the model is to see them: unit coordinates, compute dtype, on the device."""
        x, y = pairs
        dtype = self.recipe.compute_dtype
        if x.is_floating_point():  # whole numbers are the names of tokens, not coordinates
            x = self.scaling.inputs(x.double()).to(dtype)
        x = x.to(self.device)
        if self.recipe.loss == "cross-entropy":
            return x, y.to(self.device)
        return x, self.scaling.outputs(y.double()).to(self.device, dtype)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Mean squared error, cross-entropy, eq (3), or one minus the cosine, averaged over the batch."""
        out: Tensor = model(x)
        if self.recipe.loss == "cross-entropy":
            return F.cross_entropy(out.float() if out.dtype == torch.bfloat16 else out, y)
        if self.recipe.loss == "cosine":
            return 1 - F.cosine_similarity(out, y, dim=-1).mean()
        return (out - y).square().mean()

    @torch.no_grad()
    def measure(self, model: nn.Module, pairs: Pairs) -> dict[str, float]:
        """``sup`` and ``rmse`` over all outputs, ``accuracy`` and ``cross_entropy``, or ``cosine``; as seen here."""
        y = pairs[1]
        prepared, _ = self.prepared(pairs)
        parts = [model(part).double().cpu() for part in torch.split(prepared, CHUNK)]
        out = torch.cat(parts)
        if self.recipe.loss == "cross-entropy":
            right = (out.argmax(-1) == y).double().mean()
            return {"accuracy": float(right), "cross_entropy": float(F.cross_entropy(out, y))}
        if self.recipe.loss == "cosine":
            cosines = F.cosine_similarity(self.scaling.restore(out), y.double(), dim=-1)
            return {"cosine": float(cosines.mean())}
        error = (self.scaling.restore(out) - y.double()).abs()
        return {"sup": float(error.max()), "rmse": float(error.square().mean().sqrt())}

    def merit(self, row: dict[str, Any]) -> float:
        """The number that early stopping watches: smaller is better."""
        if self.recipe.loss == "cosine":
            return 1 - float(row["cosine"])
        return float(row["cross_entropy"] if self.recipe.loss == "cross-entropy" else row["sup"])
