"""Overflow is decided box by box where sizes alone leave it open: every number on the way counts, whatever hides it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flint import arb
from stated_folders import claimed

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.checker.arithmetic import ZERO
from onelayer.checker.check import check
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.result import Approximation

HUGE, ROOT = 1e308, 1.5e154  # two of them added, or multiplied, are no number
# By name: options, weights beside zeros, and the numbers that overflow beside (1, 1) and not beside (0.1, 0.1).
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a sum with a position": ({"positions": "learned"}, {"W_E": [[HUGE]], "position": [[HUGE], [0.0]]}),
    "a sum with what a token was": ({"residual": True}, {"W_E": [[HUGE]], "W_V": [[1.0]], "W_O": [[1.0]]}),
    "a query": ({}, {"W_E": [[1.0]], "W_Q": [[HUGE]], "b_Q": [HUGE]}),
    "a key": ({}, {"W_E": [[1.0]], "W_K": [[HUGE]], "b_K": [HUGE]}),
    "a value": ({}, {"W_E": [[1.0]], "W_V": [[HUGE]], "b_V": [HUGE]}),
    "a logit": ({}, {"W_E": [[1.0]], "W_Q": [[ROOT]], "W_K": [[ROOT]]}),
    "a hidden unit": ({"hidden": 1, "residual": True}, {"W_E": [[1.0]], "W_1": [[HUGE]], "b_1": [HUGE]}),
    "a sum over hidden units": (
        {"hidden": 2, "residual": True},
        {"W_E": [[1.0]], "W_1": [[1.0, 1.0]], "W_2": [[HUGE], [HUGE]]},
    ),
    "a mean": ({"readout": "mean", "residual": True}, {"W_E": [[HUGE]]}),
    "a square before the heads": ({"norm": "pre"}, {"W_E": [[ROOT]]}),
    "a square behind them": ({"norm": "post", "residual": True}, {"W_E": [[ROOT]]}),
    "a gain": (
        {"norm": "pre", "d_model": 2},
        {"W_E": [[1.0, 0.0]], "gain_1": [HUGE, HUGE], "shift_1": [HUGE, HUGE]},
    ),
    "a feature": ({"attention": "linear"}, {"W_E": [[1.0]], "W_K": [[ROOT]]}),
    "a moment": (
        {"attention": "linear"},
        {"W_E": [[1.0]], "W_K": [[1e150]], "W_V": [[HUGE]], "W_O": [[1.0]]},
    ),
    "a kernel": ({"attention": "linear"}, {"W_E": [[1.0]], "W_K": [[1e80]], "W_Q": [[1e80]]}),
}


def layer(options: dict[str, Any], weights: dict[str, Any]) -> OneLayerTransformer:
    """Two tokens of one number each, everything zero but these weights: it returns zero, or no number."""
    shape = {"d_model": 1, "heads": 1, "d_k": 1, "d_v": 1, "residual": False, "readout": "first", **options}
    model = OneLayerTransformer.tokens((2, 1), (), dtype=torch.float64, **shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.set_weights({name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()})
    return model.requires_grad_(False)


def accepted(model: OneLayerTransformer, low: float, high: float, folder: Path) -> bool:
    """Whether the checker accepts that the layer is zero on the square of an interval."""
    sides = (torch.full((2, 1), end, dtype=torch.float64) for end in (low, high))
    return check(claimed(folder, model, "0*x1", Box(*sides), [255], eps=0.5, upper=0.5), jobs=1).ok


Bound = Callable[[Execution, arb], Any]
# Every bound of the error of something computed, of numbers or errors as large as any of the format.
BOUNDS: dict[str, Bound] = {
    "affine": lambda ex, most: ex.affine(2, ZERO, ZERO, most),
    "selected": lambda ex, most: ex.selected(ZERO, most),
    "scaled": lambda ex, most: ex.scaled(2.0, [most], [ZERO])[0],
    "added": lambda ex, most: ex.added([most], [ZERO])[0],
    "summed": lambda ex, most: ex.summed([most / 2, most / 2], [ZERO, ZERO]),
    "dot": lambda ex, most: ex.dot([most, most], [ZERO] * 2, [arb(1)] * 2, [ZERO] * 2),
    "softmax": lambda ex, most: ex.softmax([-most, most], [ZERO] * 2, [arb(1)] * 2)[1],
    "within": lambda ex, most: ex.within(3, most, arb(1)),
    "norm": lambda ex, most: ex.norm([most] * 2, [ZERO] * 2, [arb(1)] * 2, [1.0] * 2, [0.0] * 2, arb(1))[0],
}
# Relative ones, those of numbers that are given, and those of averages, of which `within` asks too.
OTHERS = {"gamma", "cast", "fits", "stored", "average", "underflow", "of", "safe", "need_sure"}


def test_every_bound_is_listed() -> None:
    assert {name for name in vars(Execution) if callable(getattr(Execution, name)) and name[0] != "_"} == {
        *BOUNDS,
        *OTHERS,
    }


@pytest.mark.parametrize("format", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_asks_whether_a_number_overflows(name: str, format: str, tmp_path: Path) -> None:
    """It is infinite, and what any bound behind it says counts no more: the execution is open."""
    zero = torch.zeros(1, 1, dtype=getattr(torch, format))
    model = OneLayerTransformer.packed((1,), (), [PlainMemory(zero, zero)], dtype=zero.dtype)
    save_model(model, tmp_path)
    stored = read_model(tmp_path)
    for share, excluded in ((arb("0.001"), True), (arb(1), False)):
        ex = Execution(f"{format} execution", stored, ((0.0,), (1.0,)))
        ex.sure = False
        size = share * ex.most if name != "norm" else share * ex.most.sqrt()
        found = BOUNDS[name](ex, size)
        assert bool(found.is_finite()) == excluded or name in ("softmax", "norm")
        assert ex.open != excluded


@pytest.mark.parametrize("name", CASES)
def test_what_a_weight_of_zero_hides(name: str, tmp_path: Path) -> None:
    model = layer(*CASES[name])
    assert not accepted(model, 0.9, 1.0, tmp_path / "wild")
    assert not accepted(model, 0.0, 1.0, tmp_path / "wide")
    assert accepted(model, 0.0, 1e-200, tmp_path / "tame")


def test_a_difference_of_logits(tmp_path: Path) -> None:
    """1.5e308 - (-1.5e308) is none of float64, though each logit is one."""
    model = layer({}, {"W_E": [[1.0]], "W_Q": [[1.5e308]], "W_K": [[2.0]], "b_K": [-1.0]})
    for second, small in ((0.0, False), (1.0, True)):
        sides = (torch.tensor([[first], [second]], dtype=torch.float64) for first in (0.96875, 1.0))
        folder = claimed(tmp_path / str(small), model, "0*x1", Box(*sides), [255], eps=0.5, upper=0.5)
        assert check(folder, jobs=1).ok == small


def test_a_position_that_nothing_reads_may_overflow(tmp_path: Path) -> None:
    """The ramp of the first number is flat on the box; logits of the second are no numbers, and it is a value only."""
    weights = {"ramp_start": [[0.0]], "ramp_slope": [[1.0]], "W_E": [[1e30]], "W_Q": [[1.0]], "W_K": [[1.0]]}
    weights |= {"W_V": [[1.0]], "W_O": [[1.0]], "W_R": [[1e-30]]}
    plain = {"d_model": 1, "heads": 1, "d_k": 1, "d_v": 1, "embedding": "piecewise", "ramps": 1, "residual": False}
    model = OneLayerTransformer.tokens((2, 1), (), dtype=torch.float32, readout="first", **plain)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.set_weights({name: torch.tensor(value) for name, value in weights.items()})
    model = model.requires_grad_(False)
    sides = (torch.tensor([[a], [b]], dtype=torch.float64) for a, b in ((-1.0, 0.25), (-0.5, 1.0)))
    certificate = certify(model, "0.5*x2", Box(*sides), 1e-3)
    assert certificate.status == "proved"
    assert check(Approximation(model, certificate).save(tmp_path), jobs=1).ok


def test_large_weights_behind_small_averages(tmp_path: Path) -> None:
    """Averages of 1e-20 times 1e20, in float32: their squares are numbers, those of averages of size one are not."""
    weights = {"W_E": [[1e-20, 0.0]], "W_V": [[1.0], [0.0]], "W_O": [[1e20, 0.0]], "W_R": [[1.0], [0.0]]}
    shape = {"d_model": 2, "heads": 1, "d_k": 1, "d_v": 1, "norm": "post", "residual": False, "readout": "first"}
    model = OneLayerTransformer.tokens((2, 1), (), attention="linear", dtype=torch.float32, **shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.startswith("gain") else 0.0)
    model.set_weights({name: torch.tensor(value) for name, value in weights.items()})
    model = model.requires_grad_(False)
    sides = (torch.tensor([[a], [a]], dtype=torch.float64) for a in (0.5, 1.0))
    certificate = certify(model, "1 + 0*x1", Box(*sides), 1e-3)
    assert certificate.status == "proved"
    assert check(Approximation(model, certificate).save(tmp_path), jobs=1).ok


def test_a_refutation_needs_one_pass_alone(tmp_path: Path) -> None:
    """Squares behind the network overflow and the layer is flat: what it returns at the witness is far from f."""
    box = Box([1.5, -0.25], [3.5, 1.75])
    made = gather("1e150*exp(-(x2+x1)**2)", box, 3e148, residual=False, norm="post", max_seconds=20.0, jobs=1)
    assert made.certificate.status == "refuted"
    report = check(made.save(tmp_path), jobs=1)
    assert report.ok, report
    assert report.lower > 3e148
