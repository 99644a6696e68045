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


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """A first call loads what it needs; torch's optimisers import a compiler."""
    ol.approximate("x", ol.Box([0], [1]), 0.1)
    ol.train("x", ol.Box([0], [1]), steps=1)


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
    started = time.monotonic()
    found = DOORS[name](max_seconds=SECONDS)
    assert time.monotonic() - started <= ALLOWED
    certificate = found.certificate
    assert certificate.status in ("proved", "refuted", "undecided")
    assert 0 <= certificate.lower <= certificate.upper


class Slow(torch.nn.Module):
    """A function whose every evaluation takes a while, by its operations on enclosures too."""

    def forward(self, x: Any) -> Any:
        time.sleep(0.05)
        return torch.sin(x[..., 0]) * x[..., 1]


def network() -> torch.nn.Module:
    """Too wide for any proof in half a second."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inner = [torch.nn.Linear(4, 48), torch.nn.Tanh(), torch.nn.Linear(48, 48), torch.nn.Tanh()]
        return torch.nn.Sequential(*inner, torch.nn.Linear(48, 1)).double()


def table() -> ol.Table:
    axis = np.linspace(0.0, 1.0, 20)
    x, y, z = np.meshgrid(axis, axis, axis, indexing="ij")
    return ol.Table((axis,) * 3, np.sin(9 * x * y) + z**2, ("x", "y", "z"), interpolate="cubic")


WAVES = "sin(5*x1*x2) + exp(x1)"
FOUR = ol.Box([-1] * 4, [1] * 4)
HASTY = 0.5  # seconds, for doors that a test makes forget that they take a second and a half in any case
HASTY_DOORS: dict[str, Callable[..., Any]] = {
    "slopes": lambda **limit: ol.approximate(WAVES, SQUARE, 1e-7, gradient_eps=1e-6, **limit),
    "integers": lambda **limit: ol.approximate(WAVES, SQUARE, 1e-2, dtype="int8", **limit),
    "a table": lambda **limit: ol.approximate(table(), ol.Box([0] * 3, [1] * 3), 1e-6, **limit),
    "a module": lambda **limit: ol.approximate(Slow(), SQUARE, 1e-4, **limit),
    "bound": lambda **limit: ol.bound(Slow(), SQUARE, gap=1e-9, **limit),
    "lipschitz": lambda **limit: ol.lipschitz(Slow(), SQUARE, gap=1e-9, **limit),
    "gradient_error": lambda **limit: ol.gradient_error(Slow(), slow_call, SQUARE, **limit),
    "monotone": lambda **limit: ol.monotone(Slow(), SQUARE, {"x1": "+"}, **limit),
    "convex": lambda **limit: ol.convex(Slow(), SQUARE, **limit),
    "prove": lambda **limit: ol.prove(network(), FOUR, "y1 >= -0.2 and y1 <= 0.3", **limit),
    "equivalent": lambda **limit: ol.equivalent(network(), lambda x: x[..., :1] / 9, FOUR, gap=1e-9, **limit),
    "distill": lambda **limit: ol.distill(Slow(), SQUARE, 1e-5, **limit).approximation,
}


@pytest.mark.parametrize("name", HASTY_DOORS)
def test_every_other_door_keeps_its_deadline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in ("observer", "conductor", "proof.certify"):
        monkeypatch.setattr(f"onelayer.{home}.AT_LEAST", 0.0)
    started = time.monotonic()
    found = HASTY_DOORS[name](max_seconds=HASTY)
    assert time.monotonic() - started <= 1.1 * HASTY + 2
    claim = found.certificate if isinstance(found, ol.Approximation) else found
    assert claim.status in ("refuted", "undecided")


@pytest.mark.parametrize("settings", [{"steps": 10**7}, {"steps": 0, "lbfgs_steps": 10**6}])
def test_training_keeps_its_deadline(settings: dict[str, int]) -> None:
    started = time.monotonic()
    run = ol.train(Slow(), SQUARE, heads=1, d_model=4, hidden=4, max_seconds=HASTY, **settings)
    assert time.monotonic() - started <= 1.1 * HASTY + 2
    assert run.sup > 0


def test_training_on_slow_points_keeps_its_deadline() -> None:
    started = time.monotonic()
    with pytest.raises(Stopped, match="raise max_seconds"):
        ol.train(ol.BlackBox(slow_point, lipschitz=2.0), SQUARE, max_seconds=HASTY)
    assert time.monotonic() - started <= 1.1 * HASTY + 2


def test_distilling_from_data_keeps_its_deadline() -> None:
    started = time.monotonic()
    with pytest.raises(Stopped, match="raise max_seconds"):
        ol.distill(Slow(), data=torch.rand(2**14, 2), max_seconds=HASTY)
    assert time.monotonic() - started <= 1.1 * HASTY + 2


def test_a_check_keeps_its_deadline(tmp_path: Path) -> None:
    from onelayer.checker.check import NOT_CONTRADICTED

    made = ol.approximate("sin(3*x1)*x2", SQUARE, 1e-2)
    found = ol.certify(made.model, made.target, SQUARE, gap=1e-6, order=1, max_boxes=10_000)
    folder = ol.Approximation(made.model, found, made.target).save(tmp_path / "proof")
    started = time.monotonic()
    assert ol.check(folder, max_seconds=0.1, jobs=1).verdict == NOT_CONTRADICTED
    assert time.monotonic() - started <= 0.11 + 2


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
