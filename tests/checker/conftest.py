"""What tests of the checker share."""

from __future__ import annotations

import pytest

from onelayer.checker import reproof


@pytest.fixture
def box_by_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk holds one box."""
    monkeypatch.setattr(reproof, "SMALLEST", 1)
    monkeypatch.setattr(reproof, "CHUNKS", 10**6)
