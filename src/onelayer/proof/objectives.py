"""What a claim beyond |T - f| is about, as a module that runs on tensors and on Taylor models like any other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from onelayer.language.formula import Formula
from onelayer.taylor import derivatives  # noqa: F401  (registers the rules)
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.dual import Dual, seeded, zeros_like

Forward = Callable[[Any], Any]
MOST_SIGNED = 4  # inputs up to which sums of absolute slopes are taken sign by sign, 2^(D - 1) of them


class Wrapped(nn.Module):
    """A module around models. Those that are modules are registered, so that they move, convert and are copied too."""

    def __init__(self, *models: Forward) -> None:
        super().__init__()
        self.held = nn.ModuleList([model for model in models if isinstance(model, nn.Module)])
        self.models = models


class Output(Wrapped):
    """One output of a model, by its number in row-major order."""

    def __init__(self, model: Forward, at: int) -> None:
        super().__init__(model)
        self.at = at

    def forward(self, x: Any) -> Any:
        """One output."""
        y = self.models[0](x)
        return y.reshape(len(y), -1)[:, self.at]


class Difference(Wrapped):
    """A(x) - B(x): an enclosure of the executed difference holds the exact one as well."""

    def forward(self, x: Any) -> Any:
        """The first model minus the second."""
        return self.models[0](x) - self.models[1](x)


class Margins(Wrapped):
    """The margins of a requirement on the outputs and inputs of a model, (B, margins)."""

    def __init__(self, model: Forward, margins: Formula) -> None:
        super().__init__(model)
        self.margins = margins

    def forward(self, x: Any) -> Any:
        """Margins of the requirement, from outputs and inputs side by side."""
        y = self.models[0](x)
        both = torch.cat([y.reshape(len(y), -1), x.reshape(len(x), -1)], -1)
        return self.margins(both)


class Slopes(Wrapped):
    """dT/dx_i of all outputs, (B, *outputs, D); with a second model the difference of its slopes to those of the first.

    Derivatives are exact (taylor/dual.py). ``inputs`` chooses some of them.
    """

    def __init__(self, *models: Forward, inputs: Sequence[int] | None = None) -> None:
        super().__init__(*models)
        self.inputs = inputs

    def forward(self, x: Any) -> Any:
        """Derivatives along the coordinates, or their difference for two models."""
        slopes = self._of(self.models[0], x)
        return slopes if len(self.models) == 1 else slopes - self._of(self.models[1], x)

    def _of(self, model: Forward, x: Any) -> Any:
        y = model(seeded(x))
        if not isinstance(y, Dual):  # it ignores x
            return torch.stack([zeros_like(y)] * len(self._chosen(x)), -1)
        return torch.stack([self._filled(y, at) for at in self._chosen(x)], -1)

    def _chosen(self, x: Any) -> Sequence[int]:
        return range(int(torch.Size(tuple(x.shape)[1:]).numel())) if self.inputs is None else self.inputs

    def _filled(self, y: Dual, at: int) -> Any:
        t = y.tangents[at]
        if t is None:
            return zeros_like(y.value)
        return t.plain() if isinstance(t, TaylorModel) else t


class Steepness(Slopes):
    """sum_i |dT/dx_i| as the largest of sums with signs, (B, *outputs, 2^(D - 1)): smooth where the slopes are.

    With more than a few inputs the absolute values themselves are added.
    """

    def forward(self, x: Any) -> Any:
        """The sum of absolute slopes, by their signs where these are few."""
        slopes = super().forward(x)
        count = slopes.shape[-1]
        if count > MOST_SIGNED:
            return torch.abs(slopes).sum(-1)
        signs = [(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=count - 1)]
        table = torch.tensor(signs, dtype=torch.float64, device=slopes.device).to(slopes.dtype)
        return torch.matmul(slopes, table.T)
