"""The soundness tests share helper modules that lie beside them, and can all be run in six hostile states."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onelayer.ground import pinned

sys.path.insert(0, str(Path(__file__).parent))

from hostile import HOSTILE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --hostile every test once per state; test_hostile.py enters them by itself."""
    if metafunc.config.getoption("--hostile") and metafunc.definition.path.stem != "test_hostile":
        metafunc.parametrize("setting", HOSTILE, indirect=True)


@pytest.fixture(autouse=True)
def setting(request: pytest.FixtureRequest) -> Iterator[None]:
    """The hostile state that was asked for, and pinned ground inside it, as behind every door of the package."""
    name = getattr(request, "param", None)
    if name is None:
        yield
        return
    with HOSTILE[name](), pinned():
        yield
