"""A one-layer Transformer trained on sin x1 + sin x2, the kind of model that nobody built to be proved."""

from __future__ import annotations

import math

import torch

from onelayer import Box
from onelayer.model import OneLayerTransformer

BOX = Box([0.0, 0.0], [2 * math.pi] * 2)


def trained_layer(steps: int = 6000, *, seed: int = 0) -> OneLayerTransformer:
    """Two tokens, d_model 32, 2 heads, post-norm, 64 ReLU units; Adam on arcsine-distributed points, float64."""
    model = OneLayerTransformer.tokens((2,), (), d_model=32, heads=2, hidden=64, norm="post", positions="learned", seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.05)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        unit = torch.rand(256, 2, generator=generator, dtype=torch.float64)
        x = math.pi * (1 - torch.cos(math.pi * unit))
        loss = (model(x) - torch.sin(x).sum(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.requires_grad_(False).eval()
