"""What an attacker may change beside the numbers: the shape of the layer, the function, the method, the execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.ordering.subsets import subset_layer
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, minimum, sort
from onelayer.checker.check import check
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.file import save_model, weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import OrderStatistics, to_text
from onelayer.lemmas.subsets import subsets_error
from onelayer.proof.argued import argued_certificate
from onelayer.proof.certificate import Certificate
from onelayer.proof.files import ARGUMENT, write_proof
from onelayer.recording.sequences import order_statistics
from onelayer.result import Approximation, load


@pytest.fixture(autouse=True)
def by_argument_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the passes at points that a check begins with: an argument has to refuse by itself."""
    monkeypatch.setattr("onelayer.checker.check.contradiction", lambda *facts: None)


def named(model: OneLayerTransformer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if "memory" not in name}


def rebuilt(a: Approximation, config: Config, weights: dict[str, Tensor]) -> Approximation:
    """The certificate of ``a`` for a layer of another configuration, signed anew."""
    memory = [a.model.memory_of(h) if shape.memory != "none" else None for h, shape in enumerate(config.heads)]
    model = OneLayerTransformer(config, memory, dtype=a.model.dtype)
    model.set_weights(weights)
    return signed(a, model)


def signed(a: Approximation, model: OneLayerTransformer, **changes: object) -> Approximation:
    claim = replace(a.certificate, weights_sha256=weights_sha256(model), lower=0.0, witness=None, **changes)
    return Approximation(model, claim, a.target)


def with_positions() -> Approximation:
    """A table of positions added to the ramps of a statistic."""
    a = minimum(3, 0.0, 1.0, 0.1)
    config = a.model.config.replace(positions="learned")
    return rebuilt(a, config, named(a.model) | {"position": torch.full((3, config.d_model), 0.3).double()})


def with_hidden_units() -> Approximation:
    """A feed-forward network behind subset maxima that have none: without residual stream the output is its alone."""
    a = maximum(3, 0.0, 1.0, 0.1, kind="subsets")
    config = a.model.config.replace(hidden=2)
    zero = torch.zeros(config.d_model, 2).double()
    return rebuilt(a, config, named(a.model) | {"W_1": zero, "b_1": zero[0], "W_2": zero.T, "b_2": zero[:, 0]})


def with_a_wider_position_head() -> Approximation:
    """The position copied twice, and so counted twice."""
    a = sort(3, 0.0, 1.0, 0.1, kind="thresholds")
    old, config = named(a.model), a.model.config
    config = config.replace(heads=(config.heads[0], HeadShape(4, 2)))
    for name, dim in (("W_V", 1), ("b_V", 0), ("W_O", 0)):
        old[name] = torch.cat([old[name], old[name].narrow(dim, old[name].shape[dim] - 1, 1)], dim)
    return rebuilt(a, config, old)


def with_two_outputs() -> Approximation:
    """A second read-out whose bias nobody looks at."""
    a = sort(3, 0.0, 1.0, 0.1, kind="thresholds")
    old = named(a.model)
    config = a.model.config.replace(output_shape=(3, 2))
    return rebuilt(a, config, old | {"W_R": old["W_R"].repeat(1, 2), "b_R": torch.tensor([0.0, 5.0]).double()})


def with_overflowing_logits() -> Approximation:
    """The silent head of the relu recipe, made to divide infinity by infinity."""
    a = memorize([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], recipe="relu")
    with torch.no_grad():
        a.model.own("W_Q").fill_(1e300)
        a.model.memory_of(0).keys.fill_(1e300)  # type: ignore[union-attr]
    return signed(a, a.model)


def other_function(function: str) -> Approximation:
    a = sort(3, 0.0, 1.0, 0.1, kind="thresholds")
    return signed(a, a.model, function=function)


def other_argument() -> Approximation:
    """A layer for the smallest number whose certificate speaks of the largest."""
    a, b = maximum(3, 0.0, 1.0, 0.1), minimum(3, 0.0, 1.0, 0.1)
    return signed(a, b.model, attachments=b.certificate.attachments)


def argument_alone(a: Approximation) -> dict[str, bytes]:
    return {ARGUMENT: a.certificate.attachments[ARGUMENT]}


def rows_as_a_function() -> Approximation:
    """Three rows recalled, stated as a bound over the interval."""
    a = memorize([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], recipe="relu")
    return signed(a, a.model, function="sin(x1)", method="composition", attachments=argument_alone(a))


def rows_as_a_lemma() -> Approximation:
    a = memorize([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], recipe="relu")
    return signed(a, a.model, method="lemma", attachments=argument_alone(a))


def without_positions() -> Approximation:
    a = sort(3, 0.0, 1.0, 0.1, kind="thresholds")
    old = named(a.model)
    del old["position"]
    return rebuilt(a, a.model.config.replace(positions="none"), old)


def statistic_of_nothing() -> Approximation:
    """All weights zero: a layer without hidden units cannot have the form of the lemma."""
    a = median(3, 0.0, 1.0, 0.1)
    argument = OrderStatistics(3, "thresholds", (0.0, 0.0, 0.0))
    return signed(a, a.model, attachments={ARGUMENT: to_text(argument)})


FORGED: dict[str, Callable[[], Approximation]] = {
    "positions in a statistic": with_positions,
    "hidden units behind subset maxima": with_hidden_units,
    "a wider position head": with_a_wider_position_head,
    "two outputs": with_two_outputs,
    "overflowing logits": with_overflowing_logits,
    "a formula instead of sorting": lambda: other_function("x1; x2; x3"),
    "another text": lambda: other_function("not recorded: anything"),
    "another statistic": other_argument,
    "rows as a function": rows_as_a_function,
    "rows as a lemma": rows_as_a_lemma,
    "no positions": without_positions,
    "a statistic of nothing": statistic_of_nothing,
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_claim_is_rejected(name: str, tmp_path: Path) -> None:
    FORGED[name]().save(tmp_path / "forged")
    report = check(tmp_path / "forged")
    assert not report.ok, report
    assert "\n" not in report.reason


@pytest.mark.parametrize("name", ["thresholds", "ramps", "lookup"])
def test_a_claim_about_another_format_than_that_of_the_weights_is_refused(name: str, tmp_path: Path) -> None:
    """A result evaluates its weights in the format they are stored in; a claim about another one would stand beside
    numbers that it does not cover."""
    made = {
        "thresholds": lambda: sort(3, 0.0, 1.0, 0.1, kind="thresholds"),
        "ramps": lambda: superpose("exp(x1)+exp(x2)", Box([-1.0] * 2, [1.0] * 2), 1e-1),
        "lookup": lambda: approximate("sin(x1)", Box([0.0], [1.0]), 1e-3),
    }
    a = made[name]()
    a.save(tmp_path)
    claim = replace(a.certificate, arithmetic="float32 execution", lower=0.0, witness=None)
    write_proof(tmp_path, claim)
    assert not check(tmp_path).ok
    with pytest.raises(OnelayerError, match="float32 execution"):
        load(tmp_path)
    narrow = a.model.float()
    save_model(narrow, tmp_path)
    write_proof(tmp_path, replace(a.certificate, weights_sha256=weights_sha256(narrow)))
    assert not check(tmp_path).ok
    with pytest.raises(OnelayerError, match="float64 execution"):
        load(tmp_path)


@pytest.mark.parametrize("recipe", ["softmax", "relu"])
def test_a_false_lower_bound_of_recall_is_rejected(recipe: str, tmp_path: Path) -> None:
    """Recall claimed to be worse than it is: a refutation that the rows do not bear out."""
    x, y = np.random.default_rng(0).random((9, 2)), np.arange(9.0)
    a = memorize(x, y, recipe=recipe)
    worse: Certificate = replace(
        a.certificate, lower=0.5, upper=1.0, eps=0.1, status="refuted", witness=tuple(x[3].tolist())
    )
    replace(a, certificate=worse).save(tmp_path / "forged")
    assert not check(tmp_path / "forged").ok


def test_products_below_the_normal_numbers_are_lost_whatever_they_are_multiplied_with(tmp_path: Path) -> None:
    """The sum of eight numbers times 1e-312: each product is rounded by up to half of the least number of all."""
    n, weights, least = 8, [1e-312] * 8, 2.0**-1074
    model = subset_layer(n, 1.0, 1.5, 1e-3, weights, torch.float64)
    box = Box([1.0] * n, [1.5] * n)
    grains = int(weights[0] / least)
    x = torch.full((1, n), (int(1.2 * grains) + 0.499) / grains, dtype=torch.float64)
    exact = n * Fraction(weights[0]) * Fraction(float(x[0, 0]))
    error = abs(Fraction(float(model(x))) - exact)
    assert error > 3 * Fraction(least)
    assert subsets_error(model, weights, box) >= error
    argument = OrderStatistics(n, "subsets", tuple(weights))
    facts = {"function": argument.stated(), "method": "lemma", "seconds": 0.0}
    claim = argued_certificate(model, box, None, argument, 3 * least, None, **facts)
    Approximation(model, claim, order_statistics(n, weights)).save(tmp_path)
    assert not check(tmp_path, seed=0).ok
