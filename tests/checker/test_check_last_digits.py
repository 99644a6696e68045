"""Steps of the checker that once held but for the last digit, numbers that are flushed to zero, or boxes of a point."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from stated_folders import claimed, identity

from onelayer.box import Box
from onelayer.build.sequences.superpose import superpose
from onelayer.checker import univariate
from onelayer.checker.arithmetic import ZERO, coordinate
from onelayer.checker.check import check
from onelayer.checker.composition import composition_bound
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.order import _least_gap, order_statistics_bound
from onelayer.checker.passes import NetworkPass
from onelayer.checker.precision import precise
from onelayer.checker.reader import ARGUMENT, CERTIFICATE, _digest
from onelayer.checker.recall import _path, _Rows
from onelayer.checker.rounding import Execution
from onelayer.checker.terms import FormedSum, TermUnits, term_distance
from onelayer.checker.univariate import Line, distance
from onelayer.checker.weights import Stored, read_model
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition, OrderStatistics, from_text


@pytest.fixture(autouse=True)
def balls() -> Iterator[None]:
    with precise():
        yield


def ramp_layer(start: float, slope: float) -> OneLayerTransformer:
    """T(x) = clip(slope (x - start), 0, 1) in float32."""
    zero = torch.zeros(1, 1)
    one = torch.ones(1, 1)
    weights = {"ramp_start": start * one, "ramp_slope": slope * one, "W_E": one, "W_Q": zero, "W_O": zero, "W_R": one}
    weights |= {f"b_{name}": zero[0] for name in "EQOR"}
    return OneLayerTransformer.packed(
        (1,),
        (),
        [PlainMemory(zero, zero)],
        d_model=1,
        dtype=torch.float32,
        residual=True,
        hidden=0,
        embedding="piecewise",
        ramps=1,
        weights=weights,
    )


def test_a_ramp_beyond_its_end_may_be_flushed_to_its_start(tmp_path: Path) -> None:
    """x - start is below the normal numbers: an execution may take zero for it, and the ramp is 0 then, not 1."""
    save_model(ramp_layer(1.2e-38, 3e38), tmp_path)
    stored = read_model(tmp_path)
    low, high = float(np.float32(2.2e-38)), float(np.float32(2.3e-38))
    layer = Layer(stored, Execution("float32 execution", stored, ((low,), (high,))))
    found = layer([coordinate(0, low, high, 2)], Kinks())
    assert found.items[0].range().contains(1)
    assert found.errors[0] >= 1


def test_positions_are_told_apart_by_exact_numbers() -> None:
    """Products of 2^74 that cancel: float64 may say that the queries are -4 and 4, and they are -1/2 and 1/2."""
    big, shift = 2.0**37, -8.0
    first = np.array([-(big + 0.5), -(big - 0.5)])
    zero = np.zeros(2)
    # Features: the ramp, the position, its code; columns: the uniform head, the position head.
    tensors = {
        "position": np.stack([zero, first, -first], 1),
        "W_Q": np.array([[0, 0], [0, big + shift + 1], [0, big + shift]]),
        "b_Q": np.array([0, big]),
        "W_K": np.array([[0, 0], [0, 1.0], [0, 0]]),
        "b_K": np.array([0, big]),
        "W_V": np.eye(3)[:, :2],
        "b_V": np.array([0, 1 - first[0]]),
        "W_O": np.eye(3)[:2],
        "b_O": np.zeros(3),
        "W_E": np.eye(1, 3),
        "b_E": np.zeros(3),
        "ramp_start": np.ones((1, 1)),
        "ramp_slope": -np.ones((1, 1)),
        "W_1": np.array([[-2.0, -2.0], [1.0, 1.0], [0.0, 0.0]]),
        "b_1": np.array([0.0, -1.0]),
        "W_2": np.array([[1.0, 0, 0], [-1.0, 0, 0]]),
        "b_2": np.zeros(3),
        "W_R": np.eye(3)[:, :1],
        "b_R": np.zeros(1),
    }
    heads = [{"d_k": 1, "d_v": 1, "memory": "none", "tokens": []}] * 2
    config = {"layout": "tokens", "input_shape": [2], "output_shape": [2], "d_model": 3, "heads": heads, "hidden": 2}
    config |= {"attention": "softmax", "norm": "none", "embedding": "piecewise", "ramps": 1, "positions": "learned"}
    stored = Stored(config | {"readout": "each", "residual": False}, tensors, "F64", "")
    domain = ((0.0, 0.0), (1.0, 1.0))
    execution = Execution("float64 execution", stored, domain)
    with pytest.raises(OnelayerError, match="exact"):
        order_statistics_bound(stored, OrderStatistics(2, "thresholds", None), domain, execution)


@pytest.mark.parametrize("width", [9, 25, 36])
def test_queries_over_a_root_that_is_no_power_of_two_are_not_exact(width: int) -> None:
    """1/3, 1/5 and 1/6 are no floats: a query times one of them is rounded."""
    code = np.array([[60] * width, [-60] * width], dtype=object)
    execution = NetworkPass("float64 execution")
    assert _least_gap(code[:, :4], code[:, :4], execution) > 1
    with pytest.raises(OnelayerError, match="power of two"):
        _least_gap(code, code, execution)


def test_the_worst_of_many_pieces_counts_beyond_the_digits_of_a_float() -> None:
    """Two lines miss f by 1 and by 1 + 2^-60: as floats both are 1."""
    more = 1 + arb(2) ** -60
    pieces = [Line(0.0, 1.0, arb(1), ZERO, ZERO), Line(1.0, 2.0, more, ZERO, ZERO)]
    assert distance(parse("0", 1), pieces) >= more
    assert distance(parse("0", 1), pieces[::-1]) >= more


def test_a_number_beyond_all_floats_is_not_rounded_like_a_small_one(tmp_path: Path) -> None:
    save_model(identity().to(torch.float16), tmp_path)
    stored = read_model(tmp_path)
    execution = Execution("float16 execution", stored, ((0.0,), (1.0,)))
    assert not execution.stored([arb(2) ** 2000], [ZERO], [False])[0].is_finite()


def test_a_knot_just_within_reach_of_a_sum_has_its_slope_counted() -> None:
    """The sum errs by a little more than the float next to 2^27: a unit that opens there is steep."""
    drift = arb(2.0**27) + arb(2) ** -27
    units = TermUnits([2.0**27], [arb(1e9)], ZERO)
    execution = Execution.__new__(Execution)
    execution.unit = execution.tiny = ZERO
    error, _ = term_distance(parse("0", 1), units, FormedSum(-1e-20, 0.0, drift, ZERO), execution)
    assert error >= arb(1e9) * arb(2) ** -27
    assert univariate.above(drift) >= drift >= univariate.below(drift)


def test_a_claim_about_a_layer_is_about_its_error_alone(tmp_path: Path) -> None:
    box = Box(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    folder = claimed(tmp_path / "claim", identity(), "x1", box, [255], upper=1e-9)
    assert check(folder).ok
    restate(folder, about={"kind": "convex"})
    assert "nothing else" in check(folder).reason


def restate(folder: Path, **fields: Any) -> None:
    """Fields of a certificate changed, and sealed anew."""
    stated = json.loads((folder / CERTIFICATE).read_text())
    del stated["sha256"]
    stated |= fields
    (folder / CERTIFICATE).write_text(json.dumps(stated | {"sha256": _digest(stated)}))


def test_bounds_that_cross_once_moved_by_an_assumption_are_rejected(tmp_path: Path) -> None:
    """f is within 1 of x by assumption: 1/2 <= |T - f| <= 2 needs 3/2 <= |T - x| <= 1."""
    box = Box(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    folder = claimed(tmp_path / "claim", identity(), "x1", box, [255], upper=2.0)
    restate(folder, within=1.0, assumptions=["f is close to x1"])
    assert check(folder).ok
    restate(folder, lower=0.5, witness=[0.0])
    report = check(folder)
    assert report.verdict == "rejected"
    assert "lower must not exceed upper" in report.reason


def test_a_ramp_at_one_point_is_compared_there(tmp_path: Path) -> None:
    """A box of one point has no pieces between its ends, and the embedding may miss its function all the same."""
    made = superpose("exp(sin(x1) + sin(x2))", Box([0.0, 0.0], [1.0, 1.0]), 0.1)
    with torch.no_grad():
        made.model.own("b_E").add_(0.3)
    save_model(made.model, tmp_path)
    stored = read_model(tmp_path)
    argument = from_text(made.certificate.attachments[ARGUMENT])
    assert isinstance(argument, Composition)
    point = (0.5, 0.5)
    true = abs(float(made.model(torch.tensor(point, dtype=torch.float64))) - math.exp(2 * math.sin(0.5)))
    execution = Execution("float64 execution", stored, (point, point))
    assert composition_bound(stored, argument, (point, point), execution) >= true > 1


def test_units_that_open_between_two_rows_of_one_float_are_shut_for_the_first() -> None:
    """Rows are ordered by floats, so of two that differ by less the right one may come first, as here."""
    execution = Execution.__new__(Execution)
    execution.unit = execution.tiny = ZERO
    rows = _Rows([arb(2) ** -53, -(arb(2) ** -53)], arb(2) ** -80, [0, 1])
    steep = 2.0**53
    # F is steep s for s > 0 and 0 below: 1 at the first row and 0, not -1, at the second.
    worst = _path(rows, [(0.0, 0)], np.array([steep]), ZERO, np.array([1.0, -1.0]), execution)
    assert worst >= 1
