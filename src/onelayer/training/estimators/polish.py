"""Training after the fit: Adam on all weights of a built layer, for as many steps as held-out rows approve."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.layer.transformer import OneLayerTransformer
from onelayer.training.estimators.tabular import Array

CHECK_EVERY = 10  # steps between two looks at the rows held out
RATE = 2e-3  # of Adam, small because it starts at a fit
FEW_ROWS = 20  # below which nothing is held out and nothing is polished


def polish(
    model: OneLayerTransformer,
    x: Array,
    y: Array,
    steps: int,
    *,
    classes: bool,
    held: tuple[Array, Array] | None = None,
    verbose: bool = False,
) -> int:
    """Train ``model`` in place on squared error or log loss; returns the step at which the ``held`` rows fared best.

    y   outputs of size about one (N, K), or indicators of classes
    """
    inputs = torch.tensor(x)
    targets = torch.tensor(y)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        outputs: Tensor = model(inputs)
        if classes:
            return F.cross_entropy(outputs, targets)
        return F.mse_loss(outputs, targets)

    def held_loss() -> float:
        assert held is not None
        with torch.no_grad():
            return float(loss(torch.tensor(held[0]), torch.tensor(held[1])))

    model.requires_grad_(True)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    best = 0
    least = held_loss() if held else 0.0
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        torch.autograd.backward(loss(inputs, targets))
        optimiser.step()
        if held and (step % CHECK_EVERY == 0 or step == steps):
            now = held_loss()
            if now < least:
                best, least = step, now
            if verbose:
                print(f"[onelayer] step {step}: held-out loss {now:.4g}, best {least:.4g}", file=sys.stderr)
    model.requires_grad_(False)
    return best
