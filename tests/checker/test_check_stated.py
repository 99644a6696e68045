"""Folders whose digests are right and whose statements need not be: hidden boxes, wide rounding bounds, points."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from stated_folders import Patience, claimed, identity

from onelayer.box import Box
from onelayer.checker import points
from onelayer.checker.check import check
from onelayer.errors import FileError
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.files import read_proof


def even(depth: int) -> list[int]:
    return [255] if depth == 0 else [0, *even(depth - 1), *even(depth - 1)]


def test_a_wrong_half_of_the_domain_cannot_hide_among_small_boxes(tmp_path: Path) -> None:
    """T = f on [0, 1/2], cut into 2,048 boxes; on [1/2, 1], a single box, they differ by up to 1e-6."""
    unit, tree = Box([0.0], [1.0]), [0, *even(11), 255]
    claimed(tmp_path, identity(), "x1 + 2e-6*relu(x1 - 0.5)", unit, tree, eps=1e-9, upper=1e-9)
    late = 0
    for seed in range(20):
        report = check(tmp_path, seed=seed, observer=Patience(40))
        assert report.verdict != "accepted"
        late += report.verdict == "not contradicted"
    assert late <= 1
    assert check(tmp_path).verdict == "rejected"


@pytest.mark.usefixtures("box_by_box")
def test_the_order_of_the_boxes_is_fresh_each_time(tmp_path: Path) -> None:
    """Boxes of volumes 1/2, 1/4, ...: the volume after three of them says which they were."""
    claimed(tmp_path, identity(), "x1", Box([0.0], [1.0]), [0] * 15 + [255] * 16, upper=1e-9)
    assert len({check(tmp_path, observer=Patience(3)).volume for _ in range(20)}) > 1
    assert len({check(tmp_path, seed=3, observer=Patience(3)).volume for _ in range(3)}) == 1


def test_a_refutation_needs_more_than_a_wide_rounding_bound(tmp_path: Path) -> None:
    """T is exactly 1, but logits of 3e8 in float32 say nothing about the weights of two equal tokens."""
    ones = torch.ones(2, 1)
    weights = {"W_E": torch.full((1, 1), 3e8), "W_Q": torch.full((1, 1), 1.1), "W_O": ones[:1], "W_R": ones[:1]}
    weights |= {f"b_{k}": torch.zeros(1) for k in "EQOR"}
    model = OneLayerTransformer.packed(
        (1,), (), [PlainMemory(ones, ones)], d_model=1, hidden=0, dtype=torch.float32, weights=weights
    )
    claim = {"status": "refuted", "eps": 1.0, "lower": 1e300, "upper": math.inf, "witness": (1.0,)}
    claimed(tmp_path, model, "1", Box([0.0], [1.0]), [255], **claim)
    assert check(tmp_path).verdict == "rejected"


def test_a_true_refutation_is_confirmed_where_the_rounding_bound_is_wide(tmp_path: Path) -> None:
    """The numbers that a forward pass returns are a fact, whatever the analysis says of other passes."""
    wide = {"status": "refuted", "eps": 0.25, "lower": 0.5, "upper": math.inf, "witness": (1.0,)}
    claimed(tmp_path, identity(), "x1 + 0.5", Box([0.0], [1.0]), [255], **wide)
    report = check(tmp_path)
    assert report.verdict == "accepted"
    assert report.lower == 0.5


def test_a_lower_bound_of_pure_rounding_is_confirmed_as_far_as_it_goes(tmp_path: Path) -> None:
    """T = (3 x) (1/3): a forward pass may err by an ulp, one made here does not; a larger number is contradicted."""
    unit, tiny = Box([0.0], [1.0]), 2.0**-54
    at = next(x for x in (k / 100 for k in range(50, 100)) if (x * 3.0) * (1 / 3.0) == x)
    claimed(tmp_path / "a", identity(3.0), "x1", unit, [255], lower=tiny, upper=1e-14, witness=(at,))
    report = check(tmp_path / "a")
    assert report.verdict == "accepted"
    assert report.lower == 0.0
    assert f">= 0.0 confirmed at the witness of the stated {tiny!r}" in report.reason
    claimed(tmp_path / "b", identity(3.0), "x1", unit, [255], lower=1e-12, upper=1e-11, witness=(at,))
    assert check(tmp_path / "b").verdict == "rejected"


@pytest.mark.parametrize(("lower", "verdict"), [(0.1, "not contradicted"), (2.0**-10, "accepted")])
def test_the_pass_that_was_made_tells_of_a_layer_too_large_for_balls(
    lower: float, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower bound holds for every pass, and the layer is off by 2^-10 everywhere."""
    monkeypatch.setattr(points, "BALLS", 0)
    stated = {"lower": lower, "upper": 0.125, "eps": 0.125, "witness": (0.5,)}
    claimed(tmp_path, identity(), f"x1 + {2.0**-10!r}", Box([0.0], [1.0]), [255], **stated)
    assert check(tmp_path).verdict == verdict


def test_points_contradict_before_any_box_is_proved(tmp_path: Path) -> None:
    claimed(tmp_path, identity(), "x1 + 1e-3", Box([0.0], [1.0]), [255], eps=1e-4, upper=1e-4)
    report = check(tmp_path, max_seconds=0.0)
    assert report.verdict == "rejected"
    assert "as executed" in report.reason


@pytest.mark.parametrize(
    ("field", "stated", "written"),
    [
        ("lower", "0.0", "1e-400"),
        ("lower", "0.0", "0.1e-99999999999999999999"),
        ("upper", "0.5", "0.49999999999999999999"),
        ("eps", "0.5", "0.5000000000000000000001"),
        ("domain", "[[0.1], [1.0]]", "[[0.09999999999999999999], [1.0]]"),
    ],
)
def test_a_number_says_no_more_than_the_float_that_it_is_read_as(
    field: str, stated: str, written: str, tmp_path: Path
) -> None:
    """T is f: a lower bound above 0 is false, however small; and seals are of the floats alone."""
    claimed(tmp_path, identity(), "x1", Box([0.1], [1.0]), [255], eps=0.5, upper=0.5, witness=(0.5,))
    assert check(tmp_path).ok
    file = tmp_path / "certificate.json"
    text = file.read_text()
    assert f'"{field}": {stated}' in text
    file.write_text(text.replace(f'"{field}": {stated}', f'"{field}": {written}'))
    for read in (check, read_proof):
        with pytest.raises(FileError, match="no float64 number"):
            read(tmp_path)


def test_a_decimal_may_be_written_in_several_ways(tmp_path: Path) -> None:
    claimed(tmp_path, identity(), "x1", Box([0.1], [1.0]), [255], eps=0.5, upper=0.5)
    file = tmp_path / "certificate.json"
    file.write_text(
        file.read_text().replace('"upper": 0.5', '"upper": 5.0E-1').replace('"lower": 0.0', '"lower": 0.0e9')
    )
    assert check(tmp_path).ok
