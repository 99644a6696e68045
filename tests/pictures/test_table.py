"""Pictures of memorised tables, fresh and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onelayer.build.memorize import memorize
from onelayer.pictures.drawing import draw
from onelayer.pictures.table import table_figure
from onelayer.result import load


@pytest.mark.parametrize("labels", [True, False])
def test_a_table_is_drawn_fresh_and_loaded(labels: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 30) if labels else generator.random((30, 2))
    made = memorize(generator.random((30, 2)), y)
    first = draw(made, tmp_path / "fresh.png")
    made.save(tmp_path / "table")
    again = draw(load(tmp_path / "table"), tmp_path / "loaded.png")
    assert first.read_bytes() == again.read_bytes()
    assert len(first.read_bytes()) > 5_000


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_that_is_written_is_a_bound(seed: int) -> None:
    """Rounded to the nearest three digits it would lie below what was proved for some of these."""
    generator = np.random.default_rng(seed)
    made = memorize(generator.random((12, 3)), generator.normal(size=12), recipe="relu")
    _, errors = table_figure(made).axes
    _, (label,) = errors.get_legend_handles_labels()
    assert float(label.removeprefix("proved: ")) >= made.certificate.upper
