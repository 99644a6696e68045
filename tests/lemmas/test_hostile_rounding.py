"""What every lemma adds for rounding, and the checker too, covers a pass that rounds as badly as it may.

A bound of the layer in float32, less the same bound of the same numbers in float64, is what rounding adds; the checker
is asked for an execution that does not round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from hostile_rounding import HostileRounding, hostile_pass

from onelayer import Box, approximate, memorize
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.build.ordering.subsets import subset_layer
from onelayer.build.ordering.thresholds import threshold_layer
from onelayer.build.ordering.witness import adversarial_sequences
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import _edges, _Wish
from onelayer.checker.composition import composition_bound
from onelayer.checker.nested import nested_bound
from onelayer.checker.order import order_statistics_bound
from onelayer.checker.pieces import pieces_bound
from onelayer.checker.precision import BITS
from onelayer.checker.recall import recall_bound
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Stored, read_model
from onelayer.ground import ball_precision
from onelayer.language.formula import parse
from onelayer.layer.file import save_model
from onelayer.lemmas.argument import Composition, Nested, OrderStatistics, Pieces, Recall, from_text
from onelayer.lemmas.composition import composition_error
from onelayer.lemmas.nesting import nested_error
from onelayer.lemmas.order import thresholds_error
from onelayer.lemmas.sharp import pieces_error
from onelayer.lemmas.subsets import subsets_error
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

F32 = torch.float32
SCALES = [-37, -36, -30, 0, 25]
PASSES = [0.0, 0.0, 0.0, 0.0, 1.0, -1.0]  # their directions, drawn each time or always the same


def strayed(model: Any, points: Any, seed: int) -> float:
    """How far hostile passes are from the real layer, at most."""
    rng = np.random.default_rng(seed)
    real = hostile_pass(model, points, HostileRounding(rng, 0.0, 0.0))
    passes = (hostile_pass(model, points, HostileRounding(rng, steady=steady)) for steady in PASSES)
    return max(float(np.abs(found - real).max()) for found in passes)


def added(bound: Callable[[Any], float], model: Any) -> float:
    """What rounding adds to a bound; infinite where there is none."""
    own = bound(model)
    return own - bound(copy.deepcopy(model).double()) if own < math.inf else math.inf


def added_by_checker(bound: Callable[[Stored, Execution], arb], model: Any, box: Box, folder: Path) -> float:
    """What rounding adds to a bound of the checker."""
    save_model(model, folder)
    stored = read_model(folder)
    domain = tuple(box.lower.flatten().tolist()), tuple(box.upper.flatten().tolist())
    own, exact = (Execution("float32 execution", stored, domain) for _ in range(2))
    exact.unit = exact.tiny = arb(0)
    with ball_precision(BITS):
        return float((bound(stored, own) - bound(stored, exact)).lower())


@pytest.mark.parametrize("power", SCALES)
@pytest.mark.parametrize("weights", [None, [0.0, 1.0, 0.0], [1.0, -3.0, 0.5]], ids=["sort", "median", "weights"])
def test_order_statistics_cover_hostile_rounding(power: int, weights: list[float] | None, tmp_path: Path) -> None:
    low, high = (float(np.float32(side * 10.0**power)) for side in (-0.5, 1.0))
    box, n = Box([low] * 3, [high] * 3), 3
    points = adversarial_sequences(n, low, high, 48, cells=5).float().double().numpy().clip(low, high)
    cells = threshold_layer(n, _edges(_Wish(n, low, high, 1.0, weights, F32), 5), weights, F32)
    domain = (low,) * n, (high,) * n

    def checked(kind: str) -> Callable[[Stored, Execution], arb]:
        argument = OrderStatistics(n, kind, None if weights is None else tuple(weights))
        return lambda stored, how: sum(order_statistics_bound(stored, argument, domain, how), arb(0))

    far = strayed(cells, points, 1)
    assert far <= added(lambda model: thresholds_error(model, weights, box), cells)
    assert far <= added_by_checker(checked("thresholds"), cells, box, tmp_path)
    for share in (1e-1, 1e-5):
        sharp = subset_layer(n, low, high, share * (high - low), weights, F32)
        far = strayed(sharp, points, 2)
        room = added(lambda model: subsets_error(model, weights, box), sharp)
        assert far <= room
        if room < math.inf:
            assert far <= added_by_checker(checked("subsets"), sharp, box, tmp_path)


@pytest.mark.parametrize("power", SCALES)
@pytest.mark.parametrize("recipe", ["softmax", "relu"])
def test_recall_covers_hostile_rounding(power: int, recipe: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(power + 50)
    for outputs in (-37, 0, 25):
        rows = rng.standard_normal((7, 2)) * 10.0**power
        values = rng.standard_normal(7) * 10.0**outputs
        made = memorize(rows, values, recipe=recipe, dtype=F32)
        kept, wanted = (part.astype(np.float32).astype(np.float64) for part in (rows, values))
        passes = [hostile_pass(made.model, kept, HostileRounding(rng, steady=steady)) for steady in PASSES]
        far = max(float(np.abs(found[:, 0] - wanted).max()) for found in passes)
        assert far <= made.certificate.upper
        if made.certificate.upper < math.inf:
            argument = from_text(made.certificate.attachments[ARGUMENT])
            assert isinstance(argument, Recall)
            save_model(made.model, tmp_path)
            stored = read_model(tmp_path)
            domain = tuple(kept.min(0).tolist()), tuple(kept.max(0).tolist())
            execution = Execution("float32 execution", stored, domain)
            assert far <= float(recall_bound(stored, argument, kept, wanted[:, None], execution).upper())


def nested(text: str, box: Box, eps: float) -> Approximation:
    found = composer(understood(parse(text, 2), box), box, F32)
    assert found is not None
    return compose(found, eps, Observer())


BUILT: dict[str, tuple[str, Callable[[str, Box, float], Approximation], Callable[..., float]]] = {
    "superpose": (
        "log(exp({0}) + exp({1}))",
        lambda text, box, eps: superpose(text, box, eps, dtype=F32),
        composition_error,
    ),
    "pieces": (
        "sin(abs({0} - {1})) - max({0}, 0.3)",
        lambda text, box, eps: approximate(text, box, eps, layout="pieces", dtype=F32),
        pieces_error,
    ),
    "nested": ("tanh({0}*{1} + {0})", nested, nested_error),
}


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 0), (-34, 0), (0, -35), (-34, -35), (20, -35), (-20, 10)])
@pytest.mark.parametrize("name", list(BUILT))
def test_compositions_cover_hostile_rounding(name: str, inputs: int, outputs: int, tmp_path: Path) -> None:
    text, build, bound = BUILT[name]
    variables = (f"(x{i}*1e{-inputs})" for i in (1, 2))
    side = 10.0**inputs
    box = Box([-side, 0.0], [side, 2 * side])
    made = build(f"1e{outputs}*({text.format(*variables)})", box, 0.05 * 10.0**outputs)
    argument = from_text(made.certificate.attachments[ARGUMENT])
    inside = np.clip(box.sample(12, seed=1).numpy(), *(side.numpy() for side in (box.lower, box.upper)))
    points = inside.astype(np.float32).astype(np.float64)
    far = strayed(made.model, points, 3)
    assert far <= added(lambda model: bound(model, argument, box), made.model)
    assert made.target is not None
    formula = made.target.formula
    domain = tuple(box.lower.tolist()), tuple(box.upper.tolist())

    def checked(stored: Stored, how: Execution) -> arb:
        if isinstance(argument, Nested):
            return nested_bound(stored, argument, formula, domain, how, Observer())
        if isinstance(argument, Pieces):
            return pieces_bound(stored, argument, formula, domain, how)
        assert isinstance(argument, Composition)
        return composition_bound(stored, argument, domain, how)

    assert far <= added_by_checker(checked, made.model, box, tmp_path)


MANY = 16  # inputs, so that a sum errs as often as it has terms
LONG = {
    "superpose": "log(" + " + ".join(f"exp(x{i})" for i in range(1, MANY + 1)) + ")",
    "pieces": "max(" + " + ".join(f"x{i}" for i in range(1, MANY + 1)) + ", 56 + x1 - x2)",
}


@pytest.mark.parametrize("name", list(LONG))
def test_long_sums_cover_hostile_rounding(name: str, tmp_path: Path) -> None:
    _, build, bound = BUILT[name]
    box = Box([3.0] * MANY, [4.0] * MANY)
    made = build(LONG[name], box, 0.2)
    argument = from_text(made.certificate.attachments[ARGUMENT])
    points = box.sample(8, seed=1).float().double().numpy().clip(3.0, 4.0)
    far = strayed(made.model, points, 3)
    assert far <= added(lambda model: bound(model, argument, box), made.model)
    assert made.target is not None
    formula, domain = made.target.formula, (tuple(box.lower.tolist()), tuple(box.upper.tolist()))

    def checked(stored: Stored, how: Execution) -> arb:
        if isinstance(argument, Pieces):
            return pieces_bound(stored, argument, formula, domain, how)
        assert isinstance(argument, Composition)
        return composition_bound(stored, argument, domain, how)

    assert far <= added_by_checker(checked, made.model, box, tmp_path)


def test_statistics_of_many_numbers_cover_hostile_rounding(tmp_path: Path) -> None:
    """The second largest of many numbers: one coefficient is nearly as large as all others together."""
    weights = [0.0] * (MANY - 2) + [1.0, 0.0]
    box = Box([3.0] * MANY, [4.0] * MANY)
    points = adversarial_sequences(MANY, 3.0, 4.0, 24, cells=5).float().double().numpy().clip(3.0, 4.0)
    model = subset_layer(MANY, 3.0, 4.0, 0.1, weights, F32)
    argument = OrderStatistics(MANY, "subsets", tuple(weights))
    domain = tuple(box.lower.tolist()), tuple(box.upper.tolist())
    far = strayed(model, points, 2)
    assert far <= added(lambda layer: subsets_error(layer, weights, box), model)

    def checked(stored: Stored, how: Execution) -> arb:
        return sum(order_statistics_bound(stored, argument, domain, how), arb(0))

    assert far <= added_by_checker(checked, model, box, tmp_path)


def test_recall_of_wide_rows_covers_hostile_rounding(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    rows = (rng.choice([-1.0, 1.0], (24, 24)) + rng.standard_normal((24, 24)) * 0.01).astype(np.float32)
    values = rng.standard_normal(24).astype(np.float32)
    for recipe in ("softmax", "relu"):
        made = memorize(rows.astype(np.float64), values.astype(np.float64), recipe=recipe, dtype=F32)
        argument = from_text(made.certificate.attachments[ARGUMENT])
        assert isinstance(argument, Recall)
        kept, wanted = rows.astype(np.float64), values.astype(np.float64)
        save_model(made.model, tmp_path)
        stored = read_model(tmp_path)
        domain = tuple(kept.min(0).tolist()), tuple(kept.max(0).tolist())
        said = recall_bound(stored, argument, kept, wanted[:, None], Execution("float32 execution", stored, domain))
        for steady in PASSES:
            found = hostile_pass(made.model, kept, HostileRounding(rng, steady=steady))[:, 0]
            far = float(np.abs(found - wanted).max())
            assert far <= made.certificate.upper
            assert far <= float(said.upper())
