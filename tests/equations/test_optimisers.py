from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.equations import layer as reference_layer
from onelayer.equations.optimisers import Adam, GradientDescent, Momentum, minibatches
from onelayer.layer.transformer import OneLayerTransformer

Torch = Callable[[Any], torch.optim.Optimizer]
PAIRS: dict[str, tuple[Callable[[], Any], Torch]] = {
    "gradient descent": (lambda: GradientDescent(0.01), lambda p: torch.optim.SGD(p, lr=0.01)),
    "momentum": (lambda: Momentum(0.01, 0.9), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
    "adam": (lambda: Adam(0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    "adam, other moments": (
        lambda: Adam(0.003, 0.8, 0.95, 1e-6),
        lambda p: torch.optim.Adam(p, lr=0.003, betas=(0.8, 0.95), eps=1e-6),
    ),
}


def slope(theta: Any, rows: Any, labels: Any) -> Any:
    """Gradient of the mean of (row . theta - label)^2 + (row . theta)^4 / 10, in NumPy or torch alike."""
    value = rows @ theta
    return rows.T @ (2 * (value - labels) + 0.4 * value**3) / len(rows)


@pytest.mark.parametrize("stochastic", [False, True], ids=["full", "minibatches"])
@pytest.mark.parametrize("name", PAIRS)
def test_equals_torch_step_by_step(name: str, stochastic: bool) -> None:
    """100 steps, each side with its own gradients; with minibatches, gradient descent is SGD."""
    generator = np.random.default_rng(0)
    rows, labels = generator.standard_normal((32, 6)), generator.standard_normal(32)
    theta = generator.standard_normal(6)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    ours, theirs = PAIRS[name][0](), PAIRS[name][1]([parameter])
    batches = islice(minibatches(32, 8 if stochastic else 32, seed=1), 100)
    for index in batches:
        theta = ours.step(theta, slope(theta, rows[index], labels[index]))
        parameter.grad = slope(parameter.detach(), torch.from_numpy(rows[index]), torch.from_numpy(labels[index]))
        theirs.step()
        assert np.abs(theta - parameter.detach().numpy()).max() <= 1e-12


@pytest.mark.parametrize("name", PAIRS)
def test_trains_the_layer_as_torch_does(name: str) -> None:
    """Hand-written forward, backward and optimiser against autograd and torch.optim: the same loss for 100 steps."""
    model = OneLayerTransformer.tokens((3, 2), (3,), d_model=4, heads=2, hidden=5, residual=True, norm="pre", seed=3)
    generator = np.random.default_rng(2)
    x, y = generator.uniform(-1, 1, (16, 3, 2)), generator.uniform(-1, 1, (16, 3))
    weights = {key: value.detach().numpy().copy() for key, value in model.state_dict().items()}
    ours = {key: PAIRS[name][0]() for key in weights}
    theirs = PAIRS[name][1](model.parameters())
    first = last = 0.0
    for step in range(100):
        tape = reference_layer.forward(model.config, weights, x)
        last = float(((tape.out - y) ** 2).mean())
        first = last if step == 0 else first
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        assert abs(loss.item() - last) < 1e-9
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        gradients = reference_layer.backward(model.config, weights, tape, 2 * (tape.out - y) / tape.out.size)
        weights = {key: ours[key].step(value, gradients[key]) for key, value in weights.items()}
    assert last < 0.9 * first


def test_minibatches_visit_every_sample_once_per_epoch() -> None:
    batches = list(islice(minibatches(12, 4, seed=5), 6))
    for epoch in (batches[:3], batches[3:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(12))
    assert not np.array_equal(np.concatenate(batches[:3]), np.concatenate(batches[3:]))
