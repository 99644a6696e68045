"""A learned metric for scattered tokens: how far apart two rows are, feature by feature."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onelayer.training.estimators.tabular import AFFINE_PENALTY, Array, PointHead

STEPS = 40  # of the metric; it settles in about thirty
RATE = 0.1  # of its first step, in logarithms of the scales
LEAST_RELEVANCE = 0.01  # of a feature at the start: one without a part in an additive fit may still have one in others
COMPARED = 64  # centres to which distances are taken for the first scale: a median needs no more
FIRST_ALPHA = 1e-3  # penalty while the metric is learned
MOST_ROWS = 800  # that teach the metric: D scales need no more, and a step costs rows times tokens


def learn_points(u: Array, y: Array, relevance: Array, count: int, seed: int) -> PointHead:
    """Rows of the table as memory tokens, with the scale of every feature learned.

    The loss is the squared error of ridge regression on the tokens' weights and the inputs, fitted on one half of the
    rows and measured on the other, both ways; the solve is differentiable, so Adam moves the scales, and the penalty
    with them. It starts from the features' relevance in an additive fit, and returns the best scales it saw.

    u   standardised inputs (n, D), y outputs (n, K)
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(u), min(count, len(u)), replace=False)
    centres = u[np.sort(chosen)]
    metric = np.sqrt(np.maximum(relevance, LEAST_RELEVANCE))
    # The first scale makes the median distance of two centres one: neither all tokens alike nor one alone.
    differences = (centres[:, None] - centres[None, :COMPARED]) * metric
    distances = (differences**2).sum(-1)
    apart = distances[distances > 0]
    typical = float(np.median(apart)) if len(apart) else 1.0
    start = metric / np.sqrt(typical)
    taught = rng.permutation(len(u))[:MOST_ROWS]
    u = u[taught]
    y = y[taught]
    order = torch.arange(len(u))
    halves = order[: len(u) // 2], order[len(u) // 2 :]
    inputs = torch.tensor(u)
    points = torch.tensor(centres)
    outputs = torch.tensor(y - y.mean(0))
    scale = torch.tensor(np.log(start), requires_grad=True)
    alpha = torch.tensor(np.log(FIRST_ALPHA), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([scale, alpha], lr=RATE)
    best = start
    least = np.inf
    for _ in range(STEPS):
        loss = _loss(inputs, points, outputs, scale.exp(), alpha.exp(), halves)
        if loss.item() < least:
            best = scale.detach().exp().numpy().copy()
            least = loss.item()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    return PointHead(centres, best)


def _loss(
    inputs: Tensor, points: Tensor, outputs: Tensor, scale: Tensor, alpha: Tensor, halves: tuple[Tensor, Tensor]
) -> Tensor:
    # -|s(x - c)|^2 without |s x|^2, which is the same for all tokens.
    logits = 2 * (inputs * scale**2) @ points.T - ((points * scale) ** 2).sum(1)
    weights = torch.softmax(logits, dim=1)
    phi = torch.cat([weights, inputs], dim=1)
    size = torch.ones(phi.shape[1], dtype=torch.float64)
    size[weights.shape[1] :] = AFFINE_PENALTY
    total = torch.zeros((), dtype=torch.float64)
    for fitted, measured in (halves, halves[::-1]):
        centre = phi[fitted].mean(0)
        target = outputs[fitted].mean(0)
        rows = phi[fitted] - centre
        gram = rows.T @ rows / len(rows) + alpha * torch.diag(size)
        moments = rows.T @ (outputs[fitted] - target) / len(rows)
        values = torch.linalg.solve(gram, moments)
        error = (phi[measured] - centre) @ values + target - outputs[measured]
        total = total + error.square().mean()
    return total
