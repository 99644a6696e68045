"""Options shared by the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soundness",
        choices=("quick", "long"),
        default="quick",
        help="size of the soundness suite: quick is part of every run, long checks ten times as much",
    )


@pytest.fixture(scope="session")
def long_run(request: pytest.FixtureRequest) -> bool:
    """Whether the long soundness suite was asked for."""
    return bool(request.config.getoption("--soundness") == "long")
