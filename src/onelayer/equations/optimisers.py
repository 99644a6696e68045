"""The optimisers the paper names, in NumPy float64: gradient descent, its stochastic form, momentum and Adam."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from onelayer.equations.functions import Array, gradient_descent_step


class GradientDescent:
    """Eq (4). Stochastic gradient descent is the same rule with the gradient of a batch from ``minibatches``."""

    def __init__(self, eta: float) -> None:
        self.eta = eta

    def step(self, theta: Array, gradient: Array) -> Array:
        """The next parameters."""
        return gradient_descent_step(theta, gradient, self.eta)


class Momentum:
    """v <- mu v + grad, theta <- theta - eta v (Polyak's heavy ball), starting from v = 0."""

    def __init__(self, eta: float, mu: float = 0.9) -> None:
        self.eta = eta
        self.mu = mu
        self.velocity: Array | float = 0.0

    def step(self, theta: Array, gradient: Array) -> Array:
        """The next parameters; the velocity is kept."""
        self.velocity = self.mu * self.velocity + gradient
        return gradient_descent_step(theta, self.velocity, self.eta)


class Adam:
    """Kingma and Ba: first and second moments m, v of the gradient with their start-up bias divided out.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2,
    theta <- theta - eta (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
    """

    def __init__(self, eta: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> None:
        self.eta = eta
        self.b1 = b1
        self.b2 = b2
        self.eps = eps
        self.first: Array | float = 0.0
        self.second: Array | float = 0.0
        self.count = 0

    def step(self, theta: Array, gradient: Array) -> Array:
        """The next parameters; both moments are kept."""
        self.count += 1
        self.first = self.b1 * self.first + (1 - self.b1) * gradient
        self.second = self.b2 * self.second + (1 - self.b2) * gradient**2
        # Both start at zero and are too small at first, by the weight that the start still has.
        mean = self.first / (1 - self.b1**self.count)
        square = self.second / (1 - self.b2**self.count)
        scale = np.sqrt(square) + self.eps
        return gradient_descent_step(theta, mean / scale, self.eta)


def minibatches(count: int, size: int, *, seed: int = 0) -> Iterator[NDArray[np.int64]]:
    """Endless index batches of ``size`` out of ``count`` samples; each epoch is a fresh permutation."""
    generator = np.random.default_rng(seed)
    size = min(size, count)  # a batch of more than all samples would never be full
    while True:
        order = generator.permutation(count)
        # What is left of an epoch and fills no batch is skipped; the next permutation takes it up.
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]
