"""Training after the fit: Adam on all weights of a built layer, stopped early on held-out rows."""

from __future__ import annotations

import sys
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.export.tabular import Array
from onelayer.model import OneLayerTransformer

CHECK_EVERY = 20


def polish(
    model: OneLayerTransformer, x: Array, y: Array, steps: int, seed: int, *, classes: bool, verbose: bool = False
) -> None:
    """Improve ``model`` in place on squared error or log loss; keep the weights that did best on a tenth of the rows.

    The weights it starts from count too, so held-out loss never grows. With fewer than 20 rows nothing is done.
    """
    if len(x) < 20:
        return
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    inputs, targets = torch.tensor(x)[order], torch.tensor(y)[order]
    held = len(x) // 10
    unit = 1.0 if classes else float(targets.std()) or 1.0

    def loss(rows: slice) -> Tensor:
        outputs: Tensor = model(inputs[rows])
        if classes:
            return F.cross_entropy(outputs, targets[rows])
        return ((outputs - targets[rows]) / unit).square().mean()

    model.requires_grad_(True)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, kept = float(loss(slice(0, held)).detach()), deepcopy(model.state_dict())
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        torch.autograd.backward(loss(slice(held, None)))
        optimiser.step()
        if step % CHECK_EVERY == 0 or step == steps:
            with torch.no_grad():
                now = float(loss(slice(0, held)))
            if verbose:
                print(f"[onelayer] step {step}: held-out loss {now:.4g}", file=sys.stderr)
            if now < best:
                best, kept = now, deepcopy(model.state_dict())
    model.load_state_dict(kept)
