"""Activations of networks in the checker: what their kernels return is within what it counts, and hardly less is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from flint import arb

import onelayer as ol
from onelayer.checker.activations import ACTIVATIONS, BENT
from onelayer.checker.arithmetic import constant, coordinate, whole_power
from onelayer.checker.elements import underlying
from onelayer.checker.entries import within
from onelayer.checker.functions import Kinks
from onelayer.checker.network import StoredNetwork, StoredStep
from onelayer.checker.passes import NetworkPass
from onelayer.checker.precision import precise
from onelayer.checker.softplus import softplus
from onelayer.checker.steps import Evaluation
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import NetworkProgram, Step
from onelayer.proof.files import read_proof, write_proof

GATED = ["gelu", "gelu_tanh", "silu", "mish"]
KERNELS = [*((name, None) for name in ["sigmoid", "softplus", *GATED]), ("elu", -1.5), ("leaky_relu", 0.3)]
Called = tuple[str, float | None]  # an operation and its number


def logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def real(name: str, x: Any, number: float | None = None) -> Any:
    """The function in mpmath, by forms that do not cancel."""
    if name in BENT and x < 0:
        return number * (mpmath.expm1(x) if name == "elu" else x)
    if name in BENT or (name == "softplus" and x > 20):
        return x
    gates = {
        "gelu": lambda: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
        "gelu_tanh": lambda: logistic(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)),
        "silu": lambda: logistic(x),
        "mish": lambda: mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    }
    if name in gates:
        return x * gates[name]()
    return logistic(x) if name == "sigmoid" else mpmath.log1p(mpmath.exp(x))


def chained(calls: Sequence[Called], width: int, dtype: torch.dtype) -> RecordedNetwork:
    """One operation after another, entry by entry."""
    steps = tuple(Step(name, (at,), (width,), number) for at, (name, number) in enumerate(calls))
    # The format of a network is that of its tensors.
    return RecordedNetwork(NetworkProgram((width,), steps, {"format": (1,)}), {"format": torch.zeros(1, dtype=dtype)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "number"), KERNELS)
def test_kernels_stray_less_than_is_counted(name: str, number: float | None, dtype: torch.dtype) -> None:
    """torch against 50 digits, where exponentials underflow and overflow too."""
    far = -math.log(torch.finfo(dtype).tiny)
    near = torch.cat([torch.logspace(-36, 0, 100), torch.linspace(0, 24, 150), torch.linspace(0.9, 1.1, 100) * far])
    points = torch.cat([near, -near, torch.tensor([1e9, -1e9])]).to(dtype)
    returned = chained([(name, number)], len(points), dtype)(points[None])[0]
    stored = StoredNetwork((len(points),), (StoredStep(name, (0,), (len(points),), number, None),), {}, "", "")
    arithmetic = "float32 execution" if dtype is torch.float32 else "float64 execution"
    with precise(), mpmath.workdps(50):
        found = Evaluation(stored, NetworkPass(arithmetic))([constant(arb(x), 2) for x in points.tolist()], Kinks())
        for x, y, item, error in zip(points.tolist(), returned.tolist(), found.items, found.errors, strict=True):
            exact = real(name, mpmath.mpf(x), number)
            assert abs(mpmath.mpf(y) - exact) <= float(error)
            assert underlying(item).c[0].overlaps(arb(str(exact)))


@pytest.mark.parametrize("name", [*GATED, "softplus", "sigmoid"])
def test_slopes_between_two_numbers_are_bounded(name: str) -> None:
    steep = ACTIVATIONS[name].steep
    with mpmath.workdps(40):
        for at in range(-120, 60):
            slope = abs(mpmath.diff(lambda x: real(name, x), mpmath.mpf(at) / 10))
            for width in (0, 3):
                found = steep(arb(at - width) / 10, arb(at) / 10).abs_upper()
                assert found >= arb(str(slope * (1 - mpmath.mpf(10) ** -9)))


@pytest.mark.parametrize(
    ("low", "high"), [(-3.0, 2.0), (9.0, 31.0), (-700.0, 900.0), (9.8e18, 1.02e19), (-1e300, 1e300)]
)
def test_a_softplus_is_enclosed_on_wide_boxes(low: float, high: float) -> None:
    with precise(), mpmath.workdps(60):
        u = coordinate(0, low, high, 4)
        found = softplus(u)
        assert found.range().rad() < arb(0.6) * (arb(high) - low) + 1
        for share in range(-8, 9):
            t = arb(share) / 8
            value = sum((c * whole_power(t, n) for n, c in enumerate(found.c)), arb(0))
            x = mpmath.mpf((u.c[0] + u.c[1] * t).mid().str(40, radius=False))
            exact = max(x, 0) + mpmath.log1p(mpmath.exp(-abs(x)))
            assert value.overlaps(arb(str(exact), str(abs(x) * mpmath.mpf(10) ** -30)))


def test_an_entry_is_known_by_its_image_where_that_says_more() -> None:
    one = coordinate(0, 0.0, 1.0, 2)
    known, strayed = arb(0.5, 0.5), arb(1e-6)
    assert within((one, arb(1e-9)), known, strayed) == (one, arb(1e-9))
    item, error = within((one, arb(0.25)), known, strayed)
    assert (item.c[0].contains(known), error == strayed) == (True, True)


CLAIMS: list[tuple[list[Called], torch.dtype, float, float]] = [
    ([("mish", None), ("scale", -0.5)], torch.float64, 9.8e18, 1.02e19),
    ([("mish", None)], torch.float64, 9.0, 31.0),
    ([("softplus", None)], torch.float32, -9.01, -9.0),
    ([("softplus", None), ("sin", None)], torch.float32, 5705.0, 14294.0),
    ([("leaky_relu", 1e-46)], torch.float64, -9.0, -8.9),
    ([("scale", 1e10), ("silu", None)], torch.float64, -17.1, -17.0),
    ([("sigmoid", None)], torch.float32, -21.0, -20.0),
    ([("scale", 1e-50), ("elu", -1.0)], torch.float32, -17.1, -17.0),
    ([("elu", 0.0)], torch.float32, -104.0, -103.0),
    ([("relu", None), ("elu", 1e10), ("softplus", None)], torch.float32, 0.5, 12.0),
    ([("scale", 1e-50), ("tan", None)], torch.float32, 0.5, 0.6),
    ([("square", None), ("sin", None), ("tanh", None)], torch.float64, 0.8, 3.7),
    ([("square", None), ("sin", None), ("square", None)], torch.float32, -17.0004, -16.9996),
    ([("softmax", None), ("tanh", None)], torch.float64, 9.9997e18, 1.00003e19),
]


@pytest.mark.parametrize(("calls", "dtype", "low", "high"), CLAIMS)
def test_what_is_proved_is_accepted_and_less_is_not(
    calls: list[Called], dtype: torch.dtype, low: float, high: float, tmp_path: Path
) -> None:
    box = ol.Box([low] * 2, [high] * 2)
    model = chained(calls, 2, dtype)
    found = ol.certify(model, "0*x1; 0*x1", box, max_boxes=4)
    folder = found.save(tmp_path / "claim")
    assert ol.check(folder).verdict == "accepted"
    seen = float(model(torch.cat([box.corners(4), box.center[None]]).to(dtype)).abs().max())
    for share in (0.5, 0.9, 0.999) if seen else ():
        write_proof(folder, replace(read_proof(folder), upper=seen * share, lower=0.0, witness=None, resisted=None))
        assert ol.check(folder).verdict == "rejected"
