"""Files as long as a forger likes, and boxes of many coordinates: a check ends with its time, and fills no memory."""

from __future__ import annotations

import time
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest
import torch
from stated_folders import claimed

import onelayer as ol
from onelayer.box import Box
from onelayer.checker.arithmetic import ZERO, Taylor, coordinate, count, monomials
from onelayer.checker.check import check
from onelayer.checker.deadline import watched
from onelayer.checker.identity import Algebra
from onelayer.checker.outcome import Crowded
from onelayer.checker.univariate import Line, distance
from onelayer.language.formula import parse
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer, Stopped
from onelayer.proof.files import read_proof, write_proof

TERMS = 60


def waves(first: int) -> str:
    return "(" + "+".join(f"sin({k}*x{1 + k % 2})" for k in range(first, first + TERMS)) + ")"


def test_a_function_that_is_long_to_multiply_out_ends_with_the_time(tmp_path: Path) -> None:
    box = Box([-1.0, -1.0], [1.0, 1.0])
    ol.approximate("abs(max(x1, x2) - 0.3)", box, 1e-2, layout="pieces").save(tmp_path)
    honest = read_proof(tmp_path)
    assert honest.method == "composition"
    products = "+".join(f"{waves(100 * k)}*{waves(100 * k + 1000)}" for k in range(1, 20))
    write_proof(tmp_path, replace(honest, function=f"{honest.function} + ({products}) - ({products})"))
    started = time.monotonic()
    assert check(tmp_path, max_seconds=1.0).verdict == "not contradicted"
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("zero", ["0*", "0*sqrt(x1)**2*"])
def test_powers_of_powers_end_with_the_time_and_fill_no_memory(zero: str, tmp_path: Path) -> None:
    box = Box([0.1, 0.0], [0.3, 0.2])
    ol.approximate("max(x1 - 0.2, x2)", box, 1e-1, layout="pieces").save(tmp_path)
    honest = read_proof(tmp_path)
    for base in ("2*x1", "x1/3", "sqrt(x1*(x1 - 1)**2)"):
        powers = f"(((({base})**1000)**1000)**1000)**1000"
        write_proof(tmp_path, replace(honest, function=f"{honest.function} + {zero}{powers}"))
        started = time.process_time()
        assert check(tmp_path, max_seconds=1.0).verdict in ("not contradicted", "rejected")
        assert time.process_time() - started < 10


def test_loops_deep_inside_a_check_ask_for_the_time() -> None:
    x = parse("sin(x) + 1", 1)
    line = Line(0.0, 1.0, ZERO, ZERO, ZERO)
    with watched(Observer(0.0)):
        with pytest.raises(Stopped):
            Algebra([0.0], [1.0]).expand(x)
        with pytest.raises(Stopped):
            distance(x, [line])
    assert distance(x, [line]) < 2


def identity_of_sums(dim: int) -> OneLayerTransformer:
    """T(x) = x1 + ... + xD"""
    one = torch.ones(1, 1, dtype=torch.float64)
    weights = {"W_E": one.repeat(dim, 1), "W_Q": 0 * one, "W_O": 0 * one, "W_R": one}
    weights |= {f"b_{k}": torch.zeros(1, dtype=torch.float64) for k in "EQOR"}
    memory = [PlainMemory(0 * one, 0 * one)]
    options = {"d_model": 1, "residual": True, "hidden": 0}
    return OneLayerTransformer.packed((dim,), (), memory, weights=weights, **options)


@pytest.mark.parametrize(("dim", "upper", "verdict"), [(100, 1e-9, "accepted"), (100, 1e-18, "rejected")])
def test_high_orders_in_many_variables_ask_for_no_memory(dim: int, upper: float, verdict: str, tmp_path: Path) -> None:
    sums = "+".join(f"x{i}" for i in range(1, dim + 1))
    box = Box([0.0] * dim, [1.0] * dim)
    folder = claimed(tmp_path, identity_of_sums(dim), sums, box, [255], eps=upper, upper=upper)
    proof = read_proof(folder)
    write_proof(folder, replace(proof, order=8))
    assert check(folder, max_seconds=60.0, jobs=1).verdict == verdict


def test_coefficients_are_counted_before_they_are_made() -> None:
    assert count(1000, 8) == comb(1008, 8)
    assert [len(monomials(s, d)) for s, d in [(0, 3), (1, 4), (3, 5)]] == [count(0, 3), count(1, 4), count(3, 5)]
    with pytest.raises(Crowded, match="coefficients"):
        monomials(1000, 8)
    wide = [coordinate(i, 0.0, 1.0, 8) for i in range(60)]
    total: Taylor = wide[0]
    for item in wide[1:]:
        total = total + item
    with pytest.raises(Crowded):
        total * total * total * total * total


def test_a_function_that_is_long_to_compute_at_points_ends_with_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simplices that are all the same one: a text of 200 kB that took minutes at each point."""
    dim, count = 30, 2000
    points = [k % 7 + (k % (dim + 1) == 0) for k in range(dim * (dim + 1))]
    lists = f"{points}, {[1] * (dim + 1)}, {list(range(dim + 1)) * count}"
    variables = ", ".join(f"x{k + 1}" for k in range(dim))
    box = Box([0.0] * dim, [1.0] * dim)
    claimed(tmp_path, identity_of_sums(dim), f"facets({variables}, {lists})", box, [255], eps=50.0, upper=50.0)
    monkeypatch.setattr("onelayer.checker.check.AT_POINTS", 1.0)
    started = time.monotonic()
    assert check(tmp_path, max_seconds=1.0).verdict == "not contradicted"
    assert time.monotonic() - started < 20
