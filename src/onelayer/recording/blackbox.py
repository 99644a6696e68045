"""BlackBox: a simulator or any other function that is known by its values alone, with what is declared of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from onelayer.box import Box
from onelayer.disk import as_path
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.recording.evaluations import GRADIENTS, Array, Evaluations, Means
from onelayer.recording.separable import STRUCTURES


class BlackBox:
    """f by its values, each computed once: a repeated point is looked up, in memory and in the file ``cache``.

    f           takes one point (D,) as a NumPy array, or D numbers by the names of the box, and returns a number or
                an array
    lipschitz   how fast f may change: a number L for |f(x) - f(y)| <= L max_i |x_i - y_i|, or one number per
                coordinate (a list, or a dict by name) for sum_i L_i |x_i - y_i|; every pair of evaluated points is
                held against it (each new point against the first 4,096)
    gradient, curvature   instead of ``lipschitz``: the gradient of f, a function that takes one point and returns
                (*output_shape, D), and how fast that may change (recording/curvature.py); values and gradients are
                held against it, and a box needs its error to fall with the square of its side
    structure   "additive" or "product": f is a sum, or a product, of functions of one input each. It is then evaluated
                on lines parallel to the axes, and the certificate is conditional on it; some points off the lines are
                held against it. "estimate" looks whether it seems to be one of them: the result is estimated
    cache       a file that keeps every value (SQLite): work survives the end of the program, however it ends. Three of
                its values are computed again, unless max_evaluations= leaves no room; the others are believed, and the
                certificate names the file
    max_evaluations   how often f, and how often its gradient, may be called; what is in the cache is free
    jobs, executor    calls at a time in processes of this machine, or in any ``concurrent.futures.Executor``

    A point at which f raises, or returns what is not finite, is an error that names it; the values so far are kept.
    """

    @door
    def __init__(
        self,
        f: Callable[[Any], Any],
        lipschitz: Any = None,
        *,
        gradient: Callable[[Any], Any] | None = None,
        curvature: Any = None,
        structure: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        max_evaluations: int | None = None,
        jobs: int = 1,
        executor: Executor | None = None,
    ) -> None:
        for given in (f, gradient):
            if not (given is None or callable(given)) or f is None:
                raise OnelayerError(f"a black box needs a function, got {type(given).__name__}")
        # Without a declaration values say nothing between the points.
        _check_declared(lipschitz, gradient, curvature)
        if structure is not None and (gradient is not None or not _known(structure)):
            raise OnelayerError(
                f"structure must be one of {', '.join(map(repr, STRUCTURES))}, beside lipschitz=; got {structure!r}"
            )
        self.structure = structure
        self.lipschitz = lipschitz
        self.curvature = curvature
        self.name = getattr(f, "__name__", type(f).__name__).replace("<lambda>", "f")
        self.cache = None if cache is None else as_path(cache)
        means = Means(self.cache, max_evaluations, jobs, executor)
        self._values = Evaluations(f, self.name, means)
        named = f"the gradient of {self.name}"
        self.gradient = None if gradient is None else Evaluations(gradient, named, means, GRADIENTS)
        self.stored = len(self._values)

    @property
    def description(self) -> str:
        """Its name, and what is believed of it beside its code."""
        if self.cache is None or not self.stored:
            return self.name
        return f"{self.name}, {self.stored:,} values of it by {self.cache.name}"

    @property
    def evaluations(self) -> int:
        """How often f was called."""
        return self._values.calls

    @door
    def on(self, box: Box) -> BlackBox:
        """The same, called as its arguments ask for: with a point of the box, or with its coordinates by name."""
        for evaluations in (self._values, self.gradient):
            if evaluations is not None:
                evaluations.take(box)
        return self

    def __len__(self) -> int:
        """Points whose value is known."""
        return len(self._values)

    def __call__(self, points: Any) -> Array:
        """Values at points (C, D), (C, *output_shape)."""
        return self._values(points)


def _known(structure: Any) -> bool:
    """Whether this is the name of a structure."""
    return isinstance(structure, str) and structure in STRUCTURES


def _check_declared(lipschitz: Any, gradient: Any, curvature: Any) -> None:
    """One assumption, and whole."""
    if (gradient is None) != (curvature is None):
        raise OnelayerError(
            "gradient= and curvature= go together: the gradient of f, and how fast it may change "
            "(a number, one per coordinate, a matrix, or 'estimate')"
        )
    if (lipschitz is None) == (gradient is None):
        raise OnelayerError("a black box needs lipschitz=, or gradient= with curvature=, and not both")
