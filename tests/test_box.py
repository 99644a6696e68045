from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from onelayer import Box
from onelayer.box import as_box
from onelayer.errors import OnelayerError


def test_shapes_and_points() -> None:
    box = Box([[0, 1], [2, 3]], [[1, 1], [4, 5]])
    assert box.shape == (2, 2)
    assert box.dim == 4
    points = box.sample(100, seed=1, arcsine=True)
    assert points.shape == (100, 2, 2)
    assert box.contains(points).all()
    assert box.contains(box.corners()).all()
    assert box.corners().shape == (16, 2, 2)
    assert not box.contains(box.upper + 1e-9)
    assert not box.contains(torch.full((2, 2), torch.nan))
    assert box == Box(box.lower, box.upper)


def test_sampling_is_seeded() -> None:
    box = Box([0.0], [1.0])
    assert torch.equal(box.sample(7, seed=3), box.sample(7, seed=3))


@pytest.mark.parametrize(
    ("lower", "upper", "says"),
    [
        ([1, 0], [0, 1], "empty box: coordinate 1"),
        ([0.0], [float("inf")], "finite"),
        ([float("nan")], [1.0], "finite"),
        ([0.0], [1.0, 2.0], "differ in shape"),
        ([], [], "at least one"),
        (0.0, 1.0, "at least one"),
        ("a", [1.0], "must be numbers"),
        ([[0], [1, 2]], [1], "must be numbers"),
    ],
)
def test_bad_boxes_say_what_is_wrong(lower: object, upper: object, says: str) -> None:
    with pytest.raises(OnelayerError, match=says) as caught:
        Box(lower, upper)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_one_pair_of_numbers_is_one_interval() -> None:
    for pair in ((0, 1), [0.0, 1.0], np.array([0, 1]), torch.tensor([0.0, 1.0])):
        assert as_box(pair) == Box([0.0], [1.0])  # type: ignore[arg-type]
    with pytest.raises(OnelayerError, match="empty box"):
        as_box((1, 0))


def test_what_a_box_shows_of_itself_is_the_box() -> None:
    """2 pi to six digits, 6.28319, lies outside; a claim on the shown box would be one on a larger set."""
    box = Box([0, -1e-7], [2 * math.pi, 2.5])
    assert repr(box) == "Box([0, 6.283185307179586] x [-1e-07, 2.5])"
    assert box.sides == ["[0.0, 6.283185307179586]", "[-1e-07, 2.5]"]
    assert repr(Box([[0.1]], [[math.pi]])) == "Box(shape=(1, 1), in [0.1, 3.141592653589793])"
    assert repr(Box({"v[m/s]": (0, 1 / 3)})) == "Box(v[m/s] in [0, 0.3333333333333333])"


@pytest.mark.parametrize(
    "bound", [2**53 + 1, np.array([2**53 + 1]), torch.tensor([2**53 + 1])], ids=["int", "numpy", "torch"]
)
def test_a_whole_number_that_would_be_rounded_is_no_bound(bound: object) -> None:
    """Rounded to 2^53 it would leave a point of the domain out."""
    upper = [bound] if isinstance(bound, int) else bound
    with pytest.raises(OnelayerError, match="would be rounded"):
        Box([0], upper)
    assert Box([0], [2**53 + 2]).upper.tolist() == [2.0**53 + 2]


@pytest.mark.parametrize(
    "ends", [(0.0, 2 * math.pi), (-1 / 3, 1 / 3), (1e-7, 1.00000049), (1 / 3, 1 / 3), (0.0, 5e-324)]
)
def test_a_printed_domain_holds_no_point_that_the_box_does_not(ends: tuple[float, float]) -> None:
    from onelayer.pictures.written import written_domain

    low, high = ends
    box = Box([low], [high])
    for text in (repr(box), written_domain(box)):
        a, b = (float(part) for part in text[text.index("[") + 1 : text.index("]")].split(","))
        assert low <= a <= b <= high
