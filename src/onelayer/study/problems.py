"""The functions that studies use, and how far a model is from one on points that crowd faces and corners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.endpoints import parse_domain
from onelayer.language.formula import Formula, parse

POINTS = 1 << 14  # at which the largest error is looked for


@dataclass(frozen=True)
class StudyProblem:
    """A formula on a box."""

    name: str
    formula: str
    domain: str

    @property
    def box(self) -> Box:
        """The domain."""
        return parse_domain(self.domain)

    @property
    def function(self) -> Formula:
        """The function, in torch."""
        return parse(self.formula, self.box.dim)


PROBLEMS = {
    problem.name: problem
    for problem in (
        StudyProblem("waves", "sin(x1) + sin(x2)", "0:2*pi, 0:2*pi"),
        StudyProblem("unit waves", "sin(pi*x1) + sin(pi*x2)", "-1:1, -1:1"),
        StudyProblem("bend", "exp(sin(pi*x))", "-1:1"),
        StudyProblem("nested", "exp((sin(pi*(x1**2 + x2**2)) + sin(pi*(x3**2 + x4**2)))/2)", "-1:1, -1:1, -1:1, -1:1"),
    )
}


def seen_error(
    model: Callable[[Any], Any], problem: StudyProblem, dtype: torch.dtype = torch.float64
) -> dict[str, float]:
    """``sup`` and ``rmse`` of a model that computes in ``dtype``, against f in float64, on points of the box."""
    x = _test_points(problem.box)
    with torch.no_grad():
        # In parts: the attention weights of all points at once would fill the memory.
        parts = [model(part.to(dtype)).double() for part in torch.split(x, 4096)]
    out = torch.cat(parts)
    error = (out - problem.function(x)).abs()
    return {"sup": float(error.max()), "rmse": float(error.square().mean().sqrt())}


def _test_points(box: Box) -> Tensor:
    """Uniform and arcsine-distributed Sobol points and the corners."""
    uniform = box.sample(POINTS, seed=11)
    crowding = box.sample(POINTS, seed=12, arcsine=True)
    return torch.cat([uniform, crowding, box.corners(4096)])
