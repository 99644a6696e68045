"""Models and points that claims are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import onelayer as ol

SQUARE = ol.Box([-1.0, -1.0], [1.0, 1.0])
Model = Callable[[Any], Any]


def network(*middle: nn.Module, seed: int = 0, outputs: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    parts = [nn.Linear(2, 5), *middle, nn.Linear(5, outputs)]
    return nn.Sequential(*parts).double().eval()


def jacobian(model: Model, points: torch.Tensor) -> torch.Tensor:
    """Slopes (S, K, D) by torch's own automatic differentiation."""

    def one(x: torch.Tensor) -> torch.Tensor:
        return model(x[None])[0].reshape(-1)

    return torch.stack([torch.autograd.functional.jacobian(one, x) for x in points])


def hard(box: ol.Box, count: int = 200) -> torch.Tensor:
    return torch.cat([box.corners(16), box.center[None], box.sample(count, seed=3), box.sample(count, arcsine=True)])
