"""A bound by an argument holds for whatever layer it is asked of: weights are changed until another term of it leads.

Layers are built honestly, then entries of a few tensors are moved by anything between a millionth and several times
their size, or set where zeros were. Where the argument still says a bound, in the package or in the checker, the layer
as executed has to stay below it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from torch import Tensor

from onelayer import Box, approximate, memorize
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.build.ordering.witness import adversarial_sequences
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, sort
from onelayer.checker.composition import composition_bound
from onelayer.checker.nested import nested_bound
from onelayer.checker.order import order_statistics_bound
from onelayer.checker.pieces import pieces_bound
from onelayer.checker.precision import BITS
from onelayer.checker.reader import read_proof
from onelayer.checker.recall import read_rows, recall_bound
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.errors import OnelayerError
from onelayer.ground import ball_precision
from onelayer.language.formula import Formula, parse
from onelayer.layer.file import save_model
from onelayer.lemmas.argument import Argument, Composition, Nested, OrderStatistics, Pieces, Recall, from_text
from onelayer.lemmas.composition import composition_error
from onelayer.lemmas.nesting import nested_error
from onelayer.lemmas.order import thresholds_error
from onelayer.lemmas.sharp import pieces_error
from onelayer.lemmas.subsets import subsets_error
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

SQUARE = Box([-1.0] * 2, [1.0] * 2)
# Sums of its sides have other ends from one position to the next.
ASKEW = Box([-1.0, 0.25], [0.5, 1.5])
LAYERS = {Composition: 24, Nested: 40}  # of a case, of which those take longer to bound


@dataclass(frozen=True)
class Case:
    """An argument, the layer that it is about, and inputs with what belongs there."""

    model: Any
    argument: Argument
    formula: Formula | None
    box: Box
    x: Tensor
    y: Tensor
    table: tuple[np.ndarray, np.ndarray] | None = None


def built(made: Approximation) -> Case:
    argument = from_text(made.certificate.attachments[ARGUMENT])
    assert made.target is not None
    formula = None
    if isinstance(argument, OrderStatistics):
        n = made.model.config.length
        # Numbers that are about as far from each other as a softmax tells apart.
        largest, apart = (made.box.sample(300, seed=seed)[:, :1] for seed in (0, 1))
        near = (largest - 10.0 ** (-3 * apart) * made.box.sample(300)).abs()
        x = torch.cat([adversarial_sequences(n, 0.0, 1.0, 200, cells=5), near, made.box.corners(16)])
    else:
        x = torch.cat([made.box.sample(300), made.box.sample(100, arcsine=True), made.box.corners(4)])
        formula = made.target.formula
    return Case(made.model, argument, formula, made.box, x, made.target.function(x))


def recalled(x: np.ndarray, recipe: str) -> Case:
    y = np.random.default_rng(3).standard_normal((len(x), 2))
    made = memorize(x, y, recipe=recipe)
    argument = from_text(made.certificate.attachments[ARGUMENT])
    rows = x.reshape(len(x), -1)
    box = Box(rows.min(0).tolist(), rows.max(0).tolist())
    return Case(made.model, argument, None, box, torch.from_numpy(rows), torch.from_numpy(y), (rows, y))


def nested(text: str, eps: float) -> Approximation:
    found = composer(understood(parse(text, 2), ASKEW), ASKEW, torch.float64)
    assert found is not None
    return compose(found, eps, Observer())


CLOSE = np.concatenate([np.arange(6.0), 2 + 1e-7 * np.arange(1, 7)])
MADE: dict[str, Callable[[], Case]] = {
    "gather": lambda: built(gather("x1*x2; sin(x1)", ASKEW, 0.3)),
    "gather without residual": lambda: built(gather("exp(x1+x2)", SQUARE, 0.5, residual=False)),
    "gather pre-norm": lambda: built(gather("x1*x2", SQUARE, 0.3, norm="pre")),
    "gather post-norm": lambda: built(gather("x1*x2", SQUARE, 0.3, norm="post")),
    "superpose": lambda: built(superpose("log(exp(x1)+exp(x2)); x1*x2", SQUARE, 0.2)),
    "superpose two classes": lambda: built(superpose("exp(x1+2*x2)", SQUARE, 2.0)),
    "sort": lambda: built(sort(3, 0.0, 1.0, 0.2, kind="thresholds")),
    "sort by subsets": lambda: built(sort(3, 0.0, 1.0, 0.1, kind="subsets")),
    "median": lambda: built(median(3, 0.0, 1.0, 0.2, kind="thresholds")),
    "median by subsets": lambda: built(median(3, 0.0, 1.0, 0.1, kind="subsets")),
    "largest by subsets": lambda: built(maximum(3, 0.0, 1.0, 0.1, kind="subsets")),
    "pieces": lambda: built(approximate("max(x1, x2) + abs(x1 + x2); x2 - abs(x1)", SQUARE, 0.1, layout="pieces")),
    "pieces and curves": lambda: built(approximate("sin(abs(x1 - x2))", ASKEW, 0.2, layout="pieces")),
    "nested": lambda: built(nested("tanh(x1*x2 + x1); exp(x1 - x2)", 0.3)),
    "softmax": lambda: recalled(np.random.default_rng(0).random((9, 2)), "softmax"),
    "relu": lambda: recalled(np.random.default_rng(0).random((9, 2)), "relu"),
    "ranks": lambda: recalled(CLOSE, "softmax"),
}


def changed(model: Any, rng: np.random.Generator) -> Any:
    """The layer with numbers of a few tensors moved: one, some or all, those equal to one anywhere, or a unit."""
    other = copy.deepcopy(model)
    state = {name: value for name, value in other.state_dict().items() if value.any()}
    for name in rng.choice(sorted(state), int(rng.integers(1, 4))):
        value = state[name]
        live = value[value != 0]
        one = float(live[int(rng.integers(len(live)))]) if len(live) else 0.0
        manner = rng.choice(["one", "equal", "some", "factor", "scaled", "everywhere", "column", "unit"])
        if manner == "scaled":
            value *= 10.0 ** rng.uniform(-3, 1)
        elif manner == "everywhere":
            by = float(rng.choice([0.5, 10.0 ** rng.uniform(-3, 1)]))
            for each in state.values():
                each.copy_(torch.where(each.abs() == abs(one), each * by, each))
        elif manner == "column" and value.dim() == 2:
            here, there = rng.integers(value.shape[1], size=2)
            value[:, here] = value[:, there]
        elif manner == "unit" and other.config.hidden and state.keys() >= {"b_1", "W_2"}:
            # Units at the ends of a sum: one just beyond them, with a change of slope that is felt.
            biases = state["b_1"]
            unit = rng.choice([int(biases.argmin()), int(biases.argmax()), int(rng.integers(len(biases)))])
            biases[unit] += rng.standard_normal() * 10.0 ** rng.uniform(-3, 0)
            state["W_2"][unit] *= 10.0 ** rng.uniform(-1, 2)
        else:
            chosen = value == one if manner in ("one", "equal") else value != 0
            if manner in ("one", "some"):
                chosen &= torch.from_numpy(rng.random(value.shape) < 0.5)
            noise = rng.standard_normal(value.shape if manner == "some" else ())
            share = torch.as_tensor(noise * 10.0 ** rng.uniform(-6, 0.7), dtype=value.dtype)
            value.copy_(torch.where(chosen, value + share * value.abs().clamp(min=1e-3), value))
    return other


def filled(model: Any, rng: np.random.Generator) -> Any:
    """The layer with another number in the place of a zero."""
    other = copy.deepcopy(model)
    state = {name: value for name, value in other.state_dict().items() if (value == 0).any()}
    value = state[rng.choice(sorted(state))]
    zeros = torch.nonzero(value.view(-1) == 0)[:, 0]
    value.view(-1)[zeros[int(rng.integers(len(zeros)))]] = float(rng.choice([-3.0, -0.3, 0.3, 1.0, 20.0]))
    return other


def by_package(case: Case, model: Any) -> float:
    a = case.argument
    if isinstance(a, Composition):
        return composition_error(model, a, case.box) + a.gap
    if isinstance(a, OrderStatistics):
        prove = thresholds_error if a.construction == "thresholds" else subsets_error
        return prove(model, a.weights, case.box)
    if isinstance(a, Pieces):
        return pieces_error(model, a, case.box)
    assert isinstance(a, Nested)
    return nested_error(model, a, case.box)


def by_checker(case: Case, model: Any, folder: Path) -> float:
    a = case.argument
    save_model(model, folder)
    stored = read_model(folder)
    domain = tuple(case.box.lower.flatten().tolist()), tuple(case.box.upper.flatten().tolist())
    how = Execution("float64 execution", stored, domain)
    how.need_sure()
    with ball_precision(BITS):
        if isinstance(a, Composition):
            found = composition_bound(stored, a, domain, how) + arb(a.gap)
        elif isinstance(a, OrderStatistics):
            found = sum(order_statistics_bound(stored, a, domain, how), arb(0))
        elif isinstance(a, Pieces):
            found = pieces_bound(stored, a, case.formula, domain, how)
        elif isinstance(a, Nested):
            found = nested_bound(stored, a, case.formula, domain, how, Observer())
        else:
            assert isinstance(a, Recall)
            assert case.table is not None
            found = recall_bound(stored, a, *case.table, how)
        return float(found.upper())


@pytest.mark.parametrize("name", list(MADE))
def test_no_changed_layer_errs_by_more_than_is_said(name: str, tmp_path: Path) -> None:
    case = MADE[name]()
    rng = np.random.default_rng(len(name))
    said = 0
    for at in range(LAYERS.get(type(case.argument), 100)):
        model = (changed if at % 3 else filled)(case.model, rng)
        with torch.no_grad():
            error = float((model(case.x) - case.y).abs().max())
        for prove in (by_package, lambda one, other: by_checker(one, other, tmp_path)):
            if prove is by_package and case.table is not None:
                continue
            try:
                found = prove(case, model)
            except OnelayerError:
                continue
            if found < np.inf:
                said += 1
                assert error <= found
    assert said >= 5


def mixed(state: dict[str, Tensor]) -> None:
    """Every output reads two features with weights that add up to one: products of W_2 and W_R would be rounded."""
    read = state["W_R"]
    state["W_R"].copy_(0.75 * read + 0.25 * read.roll(1, 0))


def unread(state: dict[str, Tensor]) -> None:
    state["W_R"][:, 0] = 0.0


def written_beside(state: dict[str, Tensor]) -> None:
    state["b_2"][0] = 0.125
    state["W_R"][0] = 1.0


def twice(state: dict[str, Tensor]) -> None:
    """One subset of two numbers in the place of another."""
    masks = state["W_K"][-3:]
    first, second, *_ = torch.nonzero((masks == 0).sum(0) == 2)[:, 0].tolist()
    masks[:, second] = masks[:, first]


def empty(state: dict[str, Tensor]) -> None:
    """A head that looks at no number."""
    masks = state["W_K"][-3:]
    single = int(torch.nonzero((masks == 0).sum(0) == 1)[0, 0])
    masks[:, single] = masks.min()


REFUSED: list[tuple[str, Callable[[dict[str, Tensor]], Any]]] = [
    ("gather", mixed),
    ("gather", unread),
    ("gather pre-norm", written_beside),
    ("sort by subsets", twice),
    ("sort by subsets", empty),
    ("sort by subsets", lambda state: state["W_K"][0].neg_()),
    ("pieces", lambda state: state["W_K"].neg_()),
    ("softmax", lambda state: state["W_E"].mul_(3.0)),
    ("softmax", lambda state: state["memory.0.values"].mul_(1 + 2.0**-40)),
    ("relu", lambda state: state["W_1"].mul_(2.0)),
    ("ranks", lambda state: state["b_E"].add_(0.1)),
    ("ranks", lambda state: state["W_E"].mul_(1 + 2.0**-40)),
]


@pytest.mark.parametrize(("name", "edit"), REFUSED)
def test_a_layer_that_a_lemma_does_not_know_is_refused(
    name: str, edit: Callable[[dict[str, Tensor]], Any], tmp_path: Path
) -> None:
    case = MADE[name]()
    model = copy.deepcopy(case.model)
    edit(model.state_dict())
    with pytest.raises(OnelayerError):
        by_checker(case, model, tmp_path)
    if case.table is None:
        with pytest.raises(OnelayerError):
            by_package(case, model)


@pytest.mark.parametrize("name", ["median by subsets", "sort by subsets"])
def test_what_a_mask_lets_through_counts(name: str, tmp_path: Path) -> None:
    """Numbers beyond a subset weigh e^-margin beside those in it, and more where the mask is less than their lead."""
    case = MADE[name]()
    said = 0
    for margin in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0):
        model = copy.deepcopy(case.model)
        keys = model.state_dict()["W_K"]
        masks = keys[-3:]
        masks.copy_(torch.where(masks != 0, -float(keys[0, 0]) - margin, masks))
        with torch.no_grad():
            error = float((model(case.x) - case.y).abs().max())
        for prove in (by_package, lambda one, other: by_checker(one, other, tmp_path)):
            with suppress(OnelayerError):  # gates that no longer fit
                found = prove(case, model)
                assert error <= found
                said += found < 1
    assert said >= 4


def test_a_table_is_recalled_on_its_domain_alone(tmp_path: Path) -> None:
    """Beyond it nothing is known of the sizes that rows reach."""
    made = memorize(CLOSE, np.arange(12.0), recipe="softmax")
    made.save(tmp_path)
    proof, stored = read_proof(tmp_path), read_model(tmp_path)
    argument = from_text(made.certificate.attachments[ARGUMENT])
    assert isinstance(argument, Recall)
    assert len(read_rows(proof, argument, stored)[0]) == 12
    for domain in (((0.5,), (5.0,)), ((0.0,), (4.5,))):
        narrow = replace(proof.record, witness=None, lower=0.0, domain=domain)
        with pytest.raises(OnelayerError, match="outside"):
            read_rows(replace(proof, record=narrow), argument, stored)


def test_a_ramp_that_ends_too_late_is_seen_among_others(tmp_path: Path) -> None:
    """One rank is missed by half: rows beyond it are taken for others, whatever the other ramps do."""
    case = MADE["ranks"]()
    wrong = 0
    for ramp in range(len(CLOSE) - 1):
        model = copy.deepcopy(case.model)
        model.state_dict()["ramp_slope"][0, ramp] *= 0.4
        with torch.no_grad():
            error = float((model(case.x) - case.y).abs().max())
        with suppress(OnelayerError):
            assert error <= by_checker(case, model, tmp_path)
        wrong += error > 0.1
    assert wrong > 5
