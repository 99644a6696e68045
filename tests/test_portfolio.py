"""layout="auto": ways race, any proof counts, looser is never harder, and the end says what was tried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from onelayer import Box, approximate
from onelayer.pictures.explanation import explain


def test_a_product_of_many_factors_through_the_default_door() -> None:
    result = approximate("x1*x2/(x3*x4)", Box([1.0] * 4, [5.0] * 4), 0.5, max_seconds=60)
    assert result.certificate.proved
    assert result.history[0].way == "composition"
    assert result.size()["parameters"] <= result.history[0].parameters


def test_distance_and_maximum_through_the_default_door() -> None:
    distance = approximate("sqrt((x2-x1)**2 + (x4-x3)**2)", Box([1.0] * 4, [5.0] * 4), 0.06, max_seconds=60)
    assert distance.certificate.proved
    largest = approximate("max(x1, x2, x3)", Box([-1.0] * 3, [1.0] * 3), 2e-3, max_seconds=60)
    assert largest.certificate.proved
    assert largest.size()["parameters"] < 1000


def test_few_variables_are_looked_up() -> None:
    result = approximate("sin(x1) + sin(x2)", Box([0.0, 0.0], [6.0, 6.0]), 1e-3)
    assert result.certificate.proved
    assert [attempt.way for attempt in result.history] == ["lookup"]
    assert "reached" in result.outcome()
    assert result.advice() == {}


def test_the_end_says_what_was_tried() -> None:
    result = approximate("sin(40*x1*x2)", Box([0.0, 0.0], [1.0, 1.0]), 1e-6, max_tokens=30, max_seconds=5)
    assert not result.certificate.proved
    text = result.outcome()
    assert "not reached in this budget" in text
    assert "tried lookup" in text
    assert "would probably do: max_seconds=" in text
    assert result.advice()["max_seconds"] >= 8 * 0.9 * sum(attempt.seconds for attempt in result.history)


def test_many_oscillations_take_a_plain_grid() -> None:
    result = approximate("sin(x1*x2)", Box([0.1, -5.0], [6.0, 5.0]), 5e-3, layout="packed", max_seconds=60)
    assert result.certificate.proved


@pytest.mark.parametrize("eps", [0.5, 0.1])
def test_looser_is_not_harder(eps: float) -> None:
    result = approximate("x1*x2*x3/x4", Box([1.0] * 4, [3.0] * 4), eps, max_seconds=60)
    assert result.certificate.proved


def test_after_a_proof_comes_a_smaller_layer() -> None:
    result = approximate("x1**2/(x2*x3)", Box([1.0] * 3, [5.0] * 3), 0.025)
    sizes = [attempt.parameters for attempt in result.history if attempt.status == "proved"]
    assert len(sizes) == 2
    assert result.size()["parameters"] == sizes[1] < sizes[0]


def test_a_product_with_kinks_in_its_factors_is_composed() -> None:
    result = approximate("abs(x)*abs(y)*z", Box([-1.0] * 3, [1.0] * 3), 0.02, max_seconds=30)
    assert result.certificate.method == "composition"
    assert result.certificate.proved
    assert result.check().ok
    assert not any(attempt.way == "tokens" for attempt in result.history)


def test_explanations_name_inner_and_outer_functions() -> None:
    result = approximate("x1*x2/(x3*x4)", Box([1.0] * 4, [5.0] * 4), 0.5, max_seconds=20)
    if result.certificate.method != "composition":
        pytest.skip("the lookup was smaller this time")
    found = explain(result)
    assert any("inner function" in head.purpose and "log" in head.purpose for head in found.heads)
    assert {unit.purpose for unit in found.units} == {"outer function exp(u)"}
    assert "u = " in found.algorithm
    assert all(torch.tensor(head.values).abs().max() > 0 for head in found.heads)  # what heads add to the sums


def test_an_executor_shares_the_proof_of_approximate() -> None:
    """The same certificate, whoever explores the boxes; a black box is proved here."""
    box = Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    alone = approximate("sin(3*x*y + z)", box, 1e-4, layout="packed", jobs=1)
    with ThreadPoolExecutor(2) as pool:
        shared = approximate("sin(3*x*y + z)", box, 1e-4, layout="packed", executor=pool)
    assert shared.certificate.proved
    assert replace(shared.certificate, seconds=0.0) == replace(alone.certificate, seconds=0.0)


def test_a_hurried_fit_gets_the_time_that_is_left() -> None:
    """Five interacting variables, no other way: a fit that had used up its share is not the end while time is left."""
    box = Box([1.0, 0.1, 0.1, 0.0, 0.5], [10.0, 10.0, 2.0, 5.0, 5.0])
    result = approximate("x1*x2/(x3*(1 + x4/x5) + x2)", box, 1e-6, max_seconds=3)
    assert not result.certificate.proved
    assert result.history[0].way == "lookup"
    assert result.history[-1].way.startswith("lookup, ")


def test_an_axis_that_misses_its_share_leaves_the_others_a_tolerance() -> None:
    domain = Box([-10.0, -10.0], [10.0, 10.0])
    text = "8*sin(5*pi*x1/2) + 10*cos(pi*x1/2) - exp(-(x2 - 0.5)**2/2)"
    result = approximate(text, domain, 1e-4, layout="packed", max_tokens=12, max_seconds=5)
    assert not result.certificate.proved
    assert result.advice()["max_tokens"] > 12
