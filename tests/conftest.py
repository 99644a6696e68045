"""Options shared by the whole suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from onelayer.taylor import kernels

SECONDS = 40  # of work, whatever else the machine does


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soundness",
        choices=("quick", "long"),
        default="quick",
        help="size of the soundness suite: quick is part of every run, long checks ten times as much",
    )
    parser.addoption(
        "--arithmetic",
        choices=("compiled", "plain"),
        default="compiled",
        help="Taylor arithmetic by compiled kernels, where numba is installed, or the plain way",
    )
    parser.addoption(
        "--hostile", action="store_true", help="every test of the soundness suite in each state of soundness/hostile.py"
    )


@pytest.fixture(autouse=True, scope="session")
def arithmetic(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test, and what it is compared with, runs on the backend asked for; without numba that is the plain one."""
    with kernels.backend(request.config.getoption("--arithmetic") == "compiled" and kernels.INSTALLED):
        yield


@pytest.fixture(scope="session")
def long_run(request: pytest.FixtureRequest) -> bool:
    """Whether the long soundness suite was asked for."""
    return bool(request.config.getoption("--soundness") == "long")


@pytest.fixture
def in_time() -> Iterator[None]:
    """The test fails where it works longer than anything that ends: nothing else would end it."""

    def failed(*_: Any) -> None:
        pytest.fail(f"more than {SECONDS} s of work")

    before = signal.signal(signal.SIGVTALRM, failed)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)
