"""Small results of every kind, built once, and a test that a file is a picture with something on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.build.lookup.blueprint import draw_up
from onelayer.build.lookup.groups import FitBudget
from onelayer.conductor import approximate
from onelayer.pictures.scene import Scene
from onelayer.recording.target import as_target
from onelayer.result import Approximation

TWO_PI = 2 * math.pi
PROVED = {
    "one": ("exp(sin(pi*x))", Box([-1], [1]), 1e-2),
    "sum": ("sin(x1) + sin(x2)", Box([0, 0], [TWO_PI] * 2), 1e-1),
    "coupled": ("exp(sin(2*x)*y)", Box([0, 0], [1, 3]), 1e-1),
    "four": ("cos(x1 + 1.5*x2 + 2*x3 + x4)", Box([0] * 4, [1] * 4), 3e-1),
    "vector": ("sin(x)*y; x + 2*y; cos(y)", Box([0, 0], [1, 1]), 1e-2),
    "constant": ("7 + 0*x", Box([0], [1]), 1e-3),
    "flat": ("x - y", Box([0, 0], [1, 1]), 1e-3),
}


@pytest.fixture(scope="session")
def proved() -> Callable[[str], Approximation]:
    """Results by name, each built on first use."""
    built: dict[str, Approximation] = {}

    def get(name: str) -> Approximation:
        if name not in built:
            built[name] = approximate(*PROVED[name])
        return built[name]

    return get


@pytest.fixture(scope="session")
def kinked() -> Scene:
    """|x - y| + sin x with its ReLU units, and nothing proved about it."""
    box = Box([-1, -1], [1, 1])
    target = as_target("abs(x - y) + sin(x)", box)
    model = draw_up(target, box, 1e-2, FitBudget(torch.float64, 1000, 0)).build(torch.float64)
    assert model.config.hidden > 0
    return Scene(model, target, box)


@pytest.fixture(scope="session")
def grid_head() -> Scene:
    """A head over three axes: f = sin(x y z)."""
    box = Box([0, 0, 0], [1, 1, 1])
    target = as_target("sin(3*x*y*z)", box)
    blueprint = draw_up(target, box, 1e-1, FitBudget(torch.float64, 1000, 0))
    return Scene(blueprint.build(torch.float64), target, box)


@pytest.fixture
def is_picture() -> Callable[[Path], bool]:
    """Whether a PNG decodes, is of a readable size, and is not blank."""

    def check(path: Path) -> bool:
        pixels = np.asarray(matplotlib.image.imread(path))[..., :3]
        ink = float((np.abs(pixels - 1.0).max(-1) > 0.1).mean())
        return pixels.shape[0] > 300 and pixels.shape[1] > 500 and float(pixels.var()) > 1e-3 and ink > 0.01

    return check
