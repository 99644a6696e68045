"""Structure is found by evaluation: inactive coordinates, additive groups, merged directions, kinks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.kinks import _zero_between, find_kinks
from onelayer.build.lookup.structure import FlatFunction, find_structure, simplest
from onelayer.conductor import approximate
from onelayer.language.formula import parse


def flat(text: str, dim: int) -> FlatFunction:
    formula = parse(text, dim)

    def f(points: Tensor) -> Tensor:
        return formula(points).reshape(len(points), -1)

    return f


def directions(text: str, box: Box) -> list[list[list[float]]]:
    return [group.directions.tolist() for group in find_structure(flat(text, box.dim), box, 1e-9).groups]


def test_additive_groups_and_inactive_coordinates() -> None:
    found = directions("sin(x1)*x4 + exp(x3)", Box([0] * 5, [1] * 5))
    assert found == [[[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]], [[0, 0, 1, 0, 0]]]


def test_coordinates_with_proportional_gradients_become_one_direction() -> None:
    box = Box([0, -1, 2, 5], [1, 1, 3, 9])
    assert directions("exp(x1 - 2*x3)*x2", box) == [[[-0.5, 0, 1, 0], [0, 1, 0, 0]]]
    (ridge,) = directions("cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)", Box([0] * 4, [1] * 4))
    assert ridge == [pytest.approx([0.4, 0.6, 0.8, 1.0])]


def test_constant_has_no_groups() -> None:
    assert find_structure(flat("3 + 0*x1", 2), Box([0, 0], [1, 1]), 1e-9).groups == []


def test_lift_stays_in_the_box_and_inverts_the_directions() -> None:
    box = Box([-1, 2, 0], [3, 2.5, 1])
    (group,) = find_structure(flat("sin(x1 - 3*x2)*x3", 3), box, 1e-9).groups
    u = group.lower + torch.rand(100, group.rank, dtype=torch.float64) * (group.upper - group.lower)
    points = group.lift(u)
    assert box.contains(points).all()
    assert torch.allclose(points @ group.directions.T, u)


def test_structure_of_vector_functions_is_joint() -> None:
    assert directions("x1*x2; x3", Box([0] * 3, [1] * 3)) == [[[1, 0, 0], [0, 1, 0]], [[0, 0, 1]]]


def test_simplest_snaps_noise_only() -> None:
    numbers = torch.tensor([1 / 3 + 1e-9, 0.123456789, 2.0], dtype=torch.float64)
    assert simplest(numbers).tolist() == [1 / 3, 0.123456789, 2.0]


@pytest.mark.parametrize(
    ("text", "lower", "upper", "normals", "coefficients"),
    [
        ("abs(x1 - x2)", [0, 0], [1, 1], [[1, -1]], [[2]]),
        ("sin(x) + 3*max(x, 2*y - 1)", [0, 0], [1, 1], [[-0.5, 1]], [[6]]),
        ("relu(x/3 - y/7)", [-1, -1], [1, 1], [[1, -3 / 7]], [[1 / 3]]),
        ("exp(abs(x)); -relu(x)", [-1], [1], [[1]], [[2, -1]]),
        ("abs(sin(x))", [0], [7], [[1], [1]], [[2], [2]]),
        ("max(x, y, z)", [0] * 3, [1] * 3, [], []),
        ("relu(x + y - 1)*x", [0] * 2, [1] * 2, [], []),
        ("abs(x + 5)", [0], [1], [], []),
        ("sqrt(x)", [0], [1], [], []),
    ],
)
def test_kinks(
    text: str, lower: list[float], upper: list[float], normals: list[list[float]], coefficients: list[list[float]]
) -> None:
    box = Box(lower, upper)
    kinks = find_kinks(parse(text, box.dim), flat(text, box.dim), box)
    assert len(kinks) == len(normals)
    for found, wanted in zip(kinks.normals.tolist(), normals, strict=True):
        assert found == pytest.approx(wanted, abs=1e-12)
    for found, wanted in zip(kinks.coefficients.tolist(), coefficients, strict=True):
        assert found == pytest.approx(wanted, abs=1e-12)


def test_kink_positions_of_a_curved_argument() -> None:
    kinks = find_kinks(parse("abs(sin(x))", 1), flat("abs(sin(x))", 1), Box([0], [7]))
    assert kinks.offsets.tolist() == pytest.approx([-math.pi, -2 * math.pi], abs=1e-12)


def test_a_zero_is_found_where_values_are_rounded_otherwise_alone() -> None:
    # In a batch the signs differ, alone they do not: SciPy refused the interval.
    def gap(position: Any) -> Any:
        return np.full(np.size(position), 1e-17)

    assert _zero_between(gap, (1.0, 2.0), (-1e-17, 1e-17)) == 1.0
    text = "((1-cos((where(x1 != x1, x1, 0.1))))/(exp((where(x1 != x1, x1, 0.1)))-1)) * where((x1 - x1) < "
    text += "where(x1 >= x1 < (pi - x1), .5, 1e-300), hypot(x1, 1e-10), atan2(x1, 1e-300))"
    made = approximate(text, Box([1e5], [1e5 + 1]), 1.0, layout="packed", max_seconds=3)
    assert made.certificate.lower <= made.certificate.upper
