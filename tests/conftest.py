"""Options shared by the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onelayer.taylor import kernels


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
