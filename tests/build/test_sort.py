"""Sorting layers: bounds hold on hard sequences, the lemma is sharp, files check, forgeries do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.build.ordering.witness import adversarial_sequences
from onelayer.build.sort import maximum, median, minimum, order_statistic, sort, top_k_sum
from onelayer.checker.check import check
from onelayer.errors import OnelayerError
from onelayer.lemmas.order import thresholds_error
from onelayer.lemmas.subsets import subsets_error
from onelayer.proof.certify import certify
from onelayer.result import Approximation, load


def measured(a: Approximation, count: int = 4000) -> float:
    """Largest error over hard sequences."""
    n = a.model.config.length
    low, high = float(a.box.lower.min()), float(a.box.upper.max())
    x = adversarial_sequences(n, low, high, count, cells=max(1, a.model.config.ramps), seed=3)
    x = x.to(a.model.dtype).double().clamp(low, high)
    assert a.target is not None
    return float((a.model(x.to(a.model.dtype)).double() - a.target.function(x)).abs().max())


@pytest.mark.parametrize(("n", "lo", "hi", "eps"), [(1, 0.0, 1.0, 0.1), (2, 0.0, 1.0, 0.01), (5, -3.0, 2.0, 0.05)])
@pytest.mark.parametrize("kind", ["thresholds", "subsets"])
def test_sorting_is_proved_and_holds(n: int, lo: float, hi: float, eps: float, kind: str) -> None:
    a = sort(n, lo, hi, eps, kind=kind)
    assert a.certificate.proved
    assert a.certificate.method == "lemma"
    assert max(a.certificate.lower, measured(a, 1600)) <= a.certificate.upper <= eps


def test_the_lemma_is_sharp_and_size_does_not_grow_with_length() -> None:
    """All numbers tied at height 1 - 1/n of a cell: the error is the bound."""
    for n in (2, 16, 64):
        a = sort(n, 0.0, 1.0, 0.02, kind="thresholds")
        assert a.certificate.lower > 0.999 * a.certificate.upper
        assert a.size()["hidden_units"] <= 100
        assert measured(a, 400) <= a.certificate.upper


@pytest.mark.parametrize("kind", ["thresholds", "subsets"])
def test_statistics_agree_with_sorting(kind: str) -> None:
    n, x = 6, torch.rand(200, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    ordered = x.sort(-1).values
    made = {
        "min": (minimum(n, -1.0, 1.0, 0.01, kind=kind), ordered[:, 0]),
        "max": (maximum(n, -1.0, 1.0, 0.01, kind=kind), ordered[:, -1]),
        "median": (median(n, -1.0, 1.0, 0.01, kind=kind), ordered[:, 2:4].mean(-1)),
        "4th": (order_statistic(n, 4, -1.0, 1.0, 0.01, kind=kind), ordered[:, 3]),
        "top3": (top_k_sum(n, 3, -1.0, 1.0, 0.03, kind=kind), ordered[:, 3:].sum(-1)),
    }
    for name, (a, truth) in made.items():
        assert a.certificate.proved, name
        assert a.model.config.output_shape == ()
        assert float((a.model(x) - truth).abs().max()) <= a.certificate.upper, name
        assert measured(a, 160) <= a.certificate.upper, name


def test_subset_maxima_reach_small_errors() -> None:
    a = sort(8, 0.0, 1.0, 1e-6, kind="subsets")
    assert a.certificate.proved
    assert a.size()["heads"] == 255
    assert measured(a, 240) <= a.certificate.upper <= 1e-6


def test_the_smaller_layer_that_is_proved_is_taken() -> None:
    """Subsets for few numbers and a small eps, thresholds for many numbers, a large eps, or where rounding forbids."""
    small = sort(8, 0.0, 1.0, 1e-3)
    assert small.certificate.proved
    assert small.size()["parameters"] < 5_414_634 / 10
    assert small.size()["nonzeros"] < small.size()["parameters"] / 4
    assert sort(8, 0.0, 1.0, 0.1).size()["heads"] == 2
    assert sort(13, 0.0, 1.0, 0.1).size()["heads"] == 2
    assert sort(8, 0.0, 1.0, 0.01, dtype=torch.float32).certificate.proved


def test_subsets_that_add_nothing_have_no_head(tmp_path: Path) -> None:
    a = maximum(40, 0.0, 1.0, 1e-6)
    assert a.certificate.proved
    assert a.size()["heads"] == 1
    assert measured(a, 400) <= a.certificate.upper
    a.save(tmp_path / "max")
    assert check(tmp_path / "max").ok
    assert order_statistic(8, 7, 0.0, 1.0, 1e-6).size()["heads"] == 9
    with pytest.raises(OnelayerError, match="every subset once"):
        subsets_error(a.model, [0.0] * 38 + [1.0, 0.0], a.box)


@pytest.mark.parametrize(
    ("n", "eps", "kind"),
    [
        (2, 0.25, "thresholds"),
        pytest.param(2, 0.2, "subsets", marks=pytest.mark.slow),
        pytest.param(3, 0.3, "thresholds", marks=pytest.mark.slow),
        pytest.param(4, 0.4, "thresholds", marks=pytest.mark.slow),
        pytest.param(3, 0.5, "subsets", marks=pytest.mark.slow),
    ],
)
def test_branch_and_bound_agrees_with_the_lemma(n: int, eps: float, kind: str) -> None:
    """The same model with a sorting network as f: boxes prove what the lemma says."""

    def network(x: torch.Tensor) -> torch.Tensor:
        columns = [x[..., i] for i in range(n)]
        for last in range(n - 1, 0, -1):
            for i in range(last):
                low, high = torch.minimum(columns[i], columns[i + 1]), torch.maximum(columns[i], columns[i + 1])
                columns[i], columns[i + 1] = low, high
        return torch.stack(columns, -1)

    a = sort(n, 0.0, 1.0, eps, kind=kind)
    assert certify(a.model, network, a.box, 1.05 * a.certificate.upper, max_boxes=100_000).proved


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["thresholds", "subsets"])
def test_saved_proofs_load_and_check(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    for name, a in {
        "sort": sort(4, 0.0, 1.0, 0.05, kind=kind, dtype=dtype),
        "median": median(4, -1.0, 2.0, 0.05, kind=kind, dtype=dtype),
    }.items():
        assert a.certificate.proved
        assert measured(a, 240) <= a.certificate.upper
        a.save(tmp_path / name)
        b = load(tmp_path / name)
        x = torch.rand(7, 4, dtype=dtype)
        assert torch.equal(a.model(x), b.model(x))
        assert b.target is not None
        assert torch.equal(b.target.function(x), a.target.function(x))  # type: ignore[union-attr]
        report = check(tmp_path / name)
        assert report.ok, report


@pytest.mark.parametrize("kind", ["thresholds", "subsets"])
def test_the_checker_rejects_smaller_bounds(tmp_path: Path, kind: str) -> None:
    a = sort(3, 0.0, 1.0, 0.05, kind=kind)
    tight = replace(a.certificate, upper=a.certificate.upper * 0.9, lower=0.0, witness=None)
    replace(a, certificate=tight).save(tmp_path / "tight")
    assert "follows" in check(tmp_path / "tight").reason


def test_a_lemma_does_not_speak_of_other_layers() -> None:
    a = sort(3, 0.0, 1.0, 0.2, kind="thresholds")
    assert thresholds_error(a.model, None, Box([0.0] * 3, [1.0] * 3)) <= 0.2
    with pytest.raises(OnelayerError, match="cover"):
        thresholds_error(a.model, None, Box([0.0] * 3, [1.5] * 3))
    with torch.no_grad():
        a.model.own("W_1")[0, 0] += 1e-9
    with pytest.raises(OnelayerError, match="form"):
        thresholds_error(a.model, None, Box([0.0] * 3, [1.0] * 3))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 0.0, 1.0, 0.1), {}, "length"),
        ((3, 1.0, 0.0, 0.1), {}, "lo < hi"),
        ((3, 0.0, 1.0, 0.0), {}, "eps"),
        ((13, 0.0, 1.0, 0.1), {"kind": "subsets"}, "one head per subset of 13 numbers"),
        ((3, 0.0, 1.0, 0.1), {"kind": "bubble"}, "one of"),
        ((3, 0.0, 1.0, 1e-9), {"kind": "thresholds"}, "thresholds"),
        ((3, 0.0, float("nan"), 0.1), {}, "finite"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(OnelayerError, match=message) as caught:
        sort(*arguments, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n", [2.5, "3", 0])
def test_every_door_refuses_a_length_that_is_none(n: object) -> None:
    for door in (minimum, maximum, median):
        with pytest.raises(OnelayerError, match="length must be a whole number"):
            door(n, 0.0, 1.0, 0.1)
    for door in (order_statistic, top_k_sum):
        with pytest.raises(OnelayerError, match="length must be a whole number"):
            door(n, 1, 0.0, 1.0, 0.1)
