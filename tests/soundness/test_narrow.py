"""float16 and bfloat16: executions lie in their enclosures, at numbers chosen to hurt; planted faults are seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.checker.executed import Executed
from onelayer.checker.formats import narrowed
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.errors import OnelayerError
from onelayer.formats import BFLOAT16, FLOAT16, Format, format_of
from onelayer.layer.file import save_model
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.narrow import selects
from onelayer.proof import certify as certifying
from onelayer.proof.certify import certify
from onelayer.proof.forward import enclosed_at
from onelayer.recording.target import as_target
from onelayer.result import Approximation
from onelayer.taylor import attributes, variables

NARROW = (FLOAT16, BFLOAT16)
BOX = Box([-1.0, -1.0], [1.0, 1.0])
by_format = pytest.mark.parametrize("row", NARROW, ids=lambda row: row.name)


def hurting(row: Format) -> Tensor:
    """float32 numbers around ties, ends of binades, the normal range, zero and the largest number."""
    exponents = torch.arange(-24 if row is FLOAT16 else -40, 15, dtype=torch.float64)
    base = torch.exp2(exponents)[:, None]
    steps = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.5, 3.0], dtype=torch.float64) * 2 * row.unit
    around = torch.cat([base * (1 + steps), base * (2 - steps), base * (1 + steps) * (1 + 2.0**-22)]).flatten()
    numbers = torch.cat([around, torch.tensor([0.0, row.smallest, row.smallest / 2, row.normal, row.largest / 2])])
    return torch.cat([numbers, -numbers]).float()


@by_format
def test_a_cast_is_within_its_enclosure(row: Format) -> None:
    numbers = hurting(row).double()
    x = variables(numbers - 0.0, numbers, 1, execution=torch.float32)
    cast = x.to(row.dtype)
    low, high = cast.range()
    found = numbers.float().to(row.dtype).double()
    assert bool(((low <= found) & (found <= high)).all())
    assert cast.dtype == row.dtype


@by_format
def test_what_overflows_has_no_bound(row: Format) -> None:
    beyond = torch.tensor([row.largest * 1.01], dtype=torch.float64)
    x = variables(torch.zeros(1, dtype=torch.float64), beyond, 1, execution=torch.float32)
    assert not bool(torch.isfinite(x.to(row.dtype).range()[1]).any())


@by_format
def test_the_checker_rounds_as_torch_does(row: Format) -> None:
    numbers = hurting(row)
    own = narrowed(numbers.numpy(), row.tag)
    assert np.array_equal(own, numbers.to(row.dtype).float().numpy())


def layer(row: Format, norm: str, residual: bool, seed: int) -> OneLayerTransformer:
    made = OneLayerTransformer.tokens(
        (2,), (), d_model=4, heads=2, hidden=3, norm=norm, residual=residual, positions="one-hot", seed=seed
    )
    return made.to(row.dtype).requires_grad_(False)


def strays(model: OneLayerTransformer, points: Tensor) -> bool:
    """Whether some execution, alone or in a batch, leaves the enclosure of its point."""
    together = model(points).double()
    for at, point in enumerate(points):
        centre, radius = enclosed_at(model, point[None], (), model.dtype)[0][0]
        alone = float(model(point[None]))
        values = (alone, float(together[at]))
        if radius < torch.inf and any(not abs(value - centre) <= radius for value in values):
            return True
    return False


@by_format
@pytest.mark.parametrize(("norm", "residual"), list(product(("none", "pre", "post"), (False, True))))
def test_executions_stay_in_their_enclosures(row: Format, norm: str, residual: bool) -> None:
    points = torch.cat([BOX.sample(12), BOX.corners()]).to(row.dtype)
    for seed in range(2):
        assert not strays(layer(row, norm, residual, seed), points)


@by_format
def test_a_forgotten_rounding_is_seen(row: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "rounded_once", lambda radius, magnitude, dtype: radius)
    points = BOX.sample(12).to(row.dtype)
    assert strays(layer(row, "none", True, 0), points)


def lookup(row: Format) -> OneLayerTransformer:
    axes = [AxisKeys(a, torch.linspace(-4, 4, 5), torch.zeros(5)) for a in range(2)]
    values = torch.linspace(0.1, 1.9, 25).reshape(5, 5, 1)
    return lookup_model(2, (), [LookupHead(axes, values)], dtype=row.dtype)


@by_format
def test_a_bound_without_the_rounding_is_rejected(row: Format, tmp_path: Path) -> None:
    line, target = Box([-1.0], [1.0]), as_target("1 + 0*x", Box([-1.0], [1.0]))
    head = LookupHead([AxisKeys(0, torch.linspace(-4, 4, 5), torch.zeros(5))], torch.linspace(0.1, 1.9, 5)[:, None])
    model = lookup_model(1, (), [head], dtype=row.dtype)
    made = Approximation(model, certify(model, target, line, gap=0.1, max_boxes=50), target)
    made.save(tmp_path / "honest")
    judged = check(tmp_path / "honest", all=True)
    assert judged.ok, judged
    exact = certify(model, target, line, gap=1e-6, execution="real").upper
    assert exact < made.certificate.upper - row.unit / 2
    forged = replace(made.certificate, lower=0.0, witness=None, upper=exact)
    Approximation(model, forged, target).save(tmp_path / "forged")
    assert not check(tmp_path / "forged", all=True).ok


@by_format
def test_the_checkers_own_pass_is_one_that_it_bounds(row: Format, tmp_path: Path) -> None:
    save_model(lookup(row), tmp_path)
    stored = read_model(tmp_path)
    points = BOX.sample(64).to(row.dtype)
    found = Executed(stored)(points.double().numpy())
    own = lookup(row)(points).double().numpy()
    assert np.abs(found[:, 0] - own).max() <= 4 * row.unit  # sums in another order may round the last bit otherwise
    execution = Execution.of(row.execution, stored, ((-1.0, -1.0), (1.0, 1.0)))
    assert execution is not None
    assert execution.held == (row.unit, row.underflow, row.largest)


def test_float16_overflow_is_undecided_and_rejected(tmp_path: Path) -> None:
    model = lookup(FLOAT16)
    with torch.no_grad():
        model.own("W_R").fill_(60000.0)
    certificate = certify(model, as_target("0*x1 + 0*x2", BOX), BOX, 1.0, max_boxes=50)
    assert not certificate.proved
    assert certificate.upper == float("inf")


def test_a_selection_is_exact_and_nothing_else_is() -> None:
    w = torch.tensor([[2.0, 0.0, 0.0], [0.0, -0.5, 0.0]], dtype=torch.bfloat16)
    b = torch.tensor([0.0, 0.0, 3.0], dtype=torch.bfloat16)
    assert selects(w, b)
    assert not selects(w, b + 1)
    assert not selects(w * 1.5, b)
    assert not selects(torch.ones_like(w), torch.zeros_like(b))


def test_other_modules_and_materialized_grids_are_refused() -> None:
    plain = torch.nn.Linear(2, 1).to(torch.bfloat16)
    with pytest.raises(OnelayerError, match="only a layer of this package is certified in bfloat16"):
        certify(plain, "x1 + x2", BOX, 1.0)
    with pytest.raises(OnelayerError, match="has no plain form"):
        lookup(BFLOAT16).materialize()


def test_the_execution_model_is_among_the_assumptions() -> None:
    certificate = certify(lookup(BFLOAT16), "x1*0 + x2*0 + 1", BOX, 2.0)
    assert certificate.assumptions == (certifying.NARROW.format(name="bfloat16"),)
    assert certificate.arithmetic == format_of(torch.bfloat16).execution
