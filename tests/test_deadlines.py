"""Every door returns in time with the best it has: cancelled, or at most a tenth and two seconds after its deadline."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.observer import Observer, Report, Stopped

SQUARE = ol.Box([0.0, 0.0], [1.0, 1.0])
SECONDS = 1.5
ALLOWED = 1.1 * SECONDS + 2


def slow_call(x: Any) -> Any:
    time.sleep(0.1)
    return torch.sin(x[..., 0]) * x[..., 1]


def slow_point(x: Any) -> float:
    time.sleep(0.002)
    return float(np.sin(x[0]) * x[1])


def pendulum(x: Any) -> float:
    from scipy.integrate import solve_ivp

    found = solve_ivp(lambda _, y: [y[1], -np.sin(y[0])], (0, 2.0), [x[0], x[1]], rtol=1e-8, atol=1e-10)
    return float(found.y[0, -1])


def largest(x: Any) -> Any:
    return x.amax((-1, -2))


def layer() -> Any:
    return ol.approximate("sin(x)", ol.Box([0], [1]), 1e-3).model


TOKENS = ol.Box([[0.0, 0.0]] * 4, [[1.0, 1.0]] * 4)
HARD = "exp(sin(3*x1*x2*x3) + x4)"
DOORS: dict[str, Callable[..., Any]] = {
    "a slow call": lambda **limit: ol.approximate(slow_call, SQUARE, 1e-4, **limit),
    "slow points": lambda **limit: ol.approximate(slow_point, SQUARE, 1e-2, lipschitz=2.0, **limit),
    "an equation of motion": lambda **limit: ol.approximate(pendulum, SQUARE, 0.3, lipschitz=8.0, **limit),
    "packed": lambda **limit: ol.approximate(HARD, ol.Box([-1] * 4, [1] * 4), 1e-7, **limit),
    "tokens": lambda **limit: ol.approximate(largest, TOKENS, 0.05, layout="tokens", **limit),
    "gather": lambda **limit: ol.gather("sin(x1*x2*x3) + cos(x1*x4)", ol.Box([-1] * 4, [1] * 4), 1e-4, **limit),
    "superpose": lambda **limit: ol.superpose("exp(sin(x1) + sin(x2))", SQUARE, 1e-5, **limit),
    "sort": lambda **limit: ol.sort(64, 0.0, 1.0, 1e-3, **limit),
    "memorize": lambda **limit: ol.memorize(
        np.random.default_rng(0).random((20_000, 20)), np.arange(20_000.0), recipe="softmax", **limit
    ),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_deadline_is_kept_and_something_returned(name: str) -> None:
    ol.approximate("x", ol.Box([0], [1]), 0.1)  # loads what it needs
    started = time.monotonic()
    found = DOORS[name](max_seconds=SECONDS)
    assert time.monotonic() - started <= ALLOWED
    certificate = found.certificate
    assert certificate.status in ("proved", "refuted", "undecided")
    assert 0 <= certificate.lower <= certificate.upper


def test_certify_keeps_its_deadline() -> None:
    started = time.monotonic()
    box = ol.Box([-1] * 3, [1] * 3)
    found = ol.certify(
        lambda x: torch.sin(9 * x[..., 0] * x[..., 1]), "sin(9.01*x1*x2) + x3/100", box, gap=1e-9, max_seconds=1
    )
    assert time.monotonic() - started <= 1.1 + 2
    assert found.status == "undecided"
    assert 0 < found.lower <= found.upper


class Impatient(Observer):
    """Cancels at the first report of a stage."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage
        self.reports: list[Report] = []

    def show(self, report: Report) -> None:
        self.reports.append(report)
        if report.stage == self.stage:
            self.cancel()


def test_tokens_without_time_to_understand_f_are_an_affine_layer() -> None:
    found = ol.approximate(largest, TOKENS, 0.05, layout="tokens", observer=Impatient("reading f"))
    assert not found.certificate.proved
    assert tuple(found.model(TOKENS.center[None]).shape) == (1,)


@pytest.mark.parametrize("stage", ["fitting", "proving"])
def test_a_cancelled_call_returns_the_best_it_has(stage: str) -> None:
    observer = Impatient(stage)
    found = ol.approximate("sin(3*x1)*x2", SQUARE, 1e-4, observer=observer)
    assert found.certificate.status == "undecided"
    assert found.certificate.upper == float("inf")
    assert stage in [report.stage for report in observer.reports]
    assert tuple(found.model(SQUARE.center[None]).shape) == (1,)


def test_before_anything_is_known_of_f_there_is_nothing_to_return() -> None:
    def point(x: Any) -> float:
        time.sleep(0.05)
        return float(x[0])

    with pytest.raises(Stopped, match="raise max_seconds"):
        ol.approximate(point, SQUARE, 1e-2, lipschitz=2.0, max_seconds=0.5)


def test_certify_cancelled_before_it_begins_claims_nothing() -> None:
    observer = Observer()
    observer.cancel()
    found = ol.certify(layer(), "sin(x)", ol.Box([0], [1]), 1e-3, observer=observer)
    assert (found.status, found.lower, found.upper, found.boxes) == ("undecided", 0.0, float("inf"), 1)


def test_stages_and_the_enclosure_are_told() -> None:
    observer = Impatient("never")
    ol.approximate("sin(x)", ol.Box([0], [3]), 1e-4, observer=observer)
    stages = [report.stage for report in observer.reports]
    assert [stages.index(stage) for stage in ("reading f", "fitting", "proving")] == sorted(
        stages.index(stage) for stage in ("reading f", "fitting", "proving")
    )
    last = observer.reports[-1]
    assert last.share == 1.0
    assert last.lower is not None
    assert last.upper is not None
    assert 0 < last.lower <= last.upper <= 1e-4


@pytest.mark.slow
def test_interrupted_the_command_line_keeps_the_best(tmp_path: Path) -> None:
    formula, domain = "exp(sin(7*x1*x2*x3) + x4*x5)", ", ".join(["-1:1"] * 5)
    command = [sys.executable, "-m", "onelayer", "approximate", formula, "--domain", domain, "--eps", "1e-8"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "kept")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(8.0)  # importing takes most of it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == f"interrupted; the best result so far is in {tmp_path / 'kept'}"
    assert "undecided" in out or "refuted" in out
    kept = ol.load(tmp_path / "kept")
    assert not kept.certificate.proved
