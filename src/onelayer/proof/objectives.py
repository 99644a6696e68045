"""What a claim beyond |T - f| is about, as a module that runs on tensors and on Taylor models like any other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from onelayer.language.formula import Formula
from onelayer.taylor import derivatives, derived  # noqa: F401  (they register the rules)
from onelayer.taylor.dual import Dual, defined_with, seeded, zeros_like

Forward = Callable[[Any], Any]
# Inputs up to which convexity is asked: 2^D - 1 minors, the largest a sum of D! products.
MOST_CURVED = 4
# Inputs up to which sums of absolute slopes are taken sign by sign, 2^(D - 1) of them.
MOST_SIGNED = 4


class Wrapped(nn.Module):
    """A module around models. Those that are modules are registered, so that they move, convert and are copied too."""

    def __init__(self, *models: Forward) -> None:
        super().__init__()
        # A formula or a function is no module: it has no weights to move.
        self.held = nn.ModuleList([model for model in models if isinstance(model, nn.Module)])
        self.models = models

    def extra_repr(self) -> str:
        """What is asked of the models, which their weights do not say."""
        asked = {name: getattr(self, name, None) for name in ("at", "inputs", "signs", "norm", "margins")}
        settings = [f"{name}={value}" for name, value in asked.items() if value is not None]
        formulas = [str(model) for model in self.models if isinstance(model, Formula)]
        return ", ".join([*settings, *formulas])


def innermost(model: Forward) -> list[Forward]:
    """The models that a claim is about, whatever it makes of them; one that nothing is made of is itself."""
    if not isinstance(model, Wrapped):
        return [model]
    return [part for held in model.models for part in innermost(held)]


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

    Derivatives are exact (taylor/dual.py), and undecided where the value is: log x has none at -1, whatever 1 / x
    says. ``inputs`` chooses some of them.
    """

    def __init__(self, *models: Forward, inputs: Sequence[int] | None = None) -> None:
        super().__init__(*models)
        self.inputs = inputs

    def forward(self, x: Any) -> Any:
        """Derivatives along the coordinates, or their difference for two models."""
        slopes = self._of(self.models[0], x)
        if len(self.models) == 1:
            return slopes
        return slopes - self._of(self.models[1], x)

    def _of(self, model: Forward, x: Any) -> Any:
        y = model(seeded(x))
        if not isinstance(y, Dual):  # it ignores x
            zero = defined_with(zeros_like(y), y)
            return torch.stack([zero] * len(self._chosen(x)), -1)
        return torch.stack([self._filled(y, at) for at in self._chosen(x)], -1)

    def _chosen(self, x: Any) -> Sequence[int]:
        if self.inputs is None:
            return range(int(torch.Size(tuple(x.shape)[1:]).numel()))
        return self.inputs

    def _filled(self, y: Dual, at: int) -> Any:
        t = y.tangents[at]
        return defined_with(zeros_like(y.value) if t is None else t, y.value)


class Directed(Slopes):
    """s_i dT/dx_i for chosen inputs i with signs s_i, (B, *outputs, chosen)."""

    def __init__(self, model: Forward, inputs: Sequence[int], signs: Sequence[int]) -> None:
        super().__init__(model, inputs=inputs)
        self.signs = signs

    def forward(self, x: Any) -> Any:
        """Slopes with their signs."""
        slopes = super().forward(x)
        signs = torch.tensor(self.signs, dtype=torch.float64, device=slopes.device)
        return slopes * signs.to(slopes.dtype)


class Steepness(Slopes):
    """A norm of the Jacobian, as numbers of which the largest is the norm.

    Sums of absolute slopes are the largest of sums with signs, smooth where the slopes are; with more than a few terms
    the absolute values themselves are added.
    """

    def __init__(self, model: Forward, norm: str = "inf") -> None:
        super().__init__(model)
        self.norm = norm

    def forward(self, x: Any) -> Any:
        """(B, numbers)."""
        slopes = super().forward(x)  # (B, *outputs, D)
        table = slopes.reshape(len(slopes), -1, slopes.shape[-1])
        if self.norm == "2":
            return torch.linalg.vector_norm(table.reshape(len(table), -1), dim=-1)
        # Distances of points in the maximum norm add up over inputs, those in the 1-norm over outputs.
        rows = table if self.norm == "inf" else table.transpose(1, 2)
        return _absolute_sums(rows).reshape(len(slopes), -1)


def _absolute_sums(rows: Any) -> Any:
    """The sums of absolute values of the rows (B, R, n), by their signs where these are few."""
    count = rows.shape[-1]
    if count > MOST_SIGNED:
        return torch.abs(rows).sum(-1)
    # One sign is free: sup|g| takes both g and -g.
    signs = [(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=count - 1)]
    table = torch.tensor(signs, dtype=torch.float64, device=rows.device).to(rows.dtype)
    return torch.matmul(rows, table.T)


class Minors(Wrapped):
    """The principal minors of the Hessian of every output, (B, minors of all outputs).

    Second derivatives are derivatives of derivatives: duals whose parts are duals.
    """

    def forward(self, x: Any) -> Any:
        """Determinants of all square blocks along the diagonal."""
        count = int(torch.Size(tuple(x.shape)[1:]).numel())
        y = self.models[0](seeded(seeded(x)))
        # The Hessian is symmetric: its lower triangle is enough.
        lower = [[_second(y, i, j, x) for j in range(i + 1)] for i in range(count)]
        found = []
        for size in range(1, count + 1):
            for chosen in itertools.combinations(range(count), size):
                block = [[lower[max(i, j)][min(i, j)] for j in chosen] for i in chosen]
                found.append(_determinant(block))
        return torch.stack(found, -1).reshape(len(x), -1)


def _second(y: Any, i: int, j: int, x: Any) -> Any:
    """d2y/dx_i dx_j, (B, K), zero where y does not have it."""
    first = y.tangents[i] if isinstance(y, Dual) else None
    part = first.tangents[j] if isinstance(first, Dual) else None
    while isinstance(y, Dual):
        y = y.value
    second = zeros_like(y) if part is None else part
    return defined_with(second, y).reshape(len(x), -1)


def _determinant(block: list[list[Any]]) -> Any:
    """By the first row."""
    if len(block) == 1:
        return block[0][0]
    total = None
    for at, entry in enumerate(block[0]):
        minor = _determinant([[*row[:at], *row[at + 1 :]] for row in block[1:]])
        term = entry * minor
        signed = term if at % 2 == 0 else -term
        total = signed if total is None else total + signed
    return total
