"""Rounding is bounded around as many boxes as leave something of the limit: their errors differ with their places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onelayer as ol
from onelayer.checker.layer import Layer
from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution
from onelayer.checker.sweep import Sweep
from onelayer.checker.weights import read_model
from onelayer.language.formula import parse
from onelayer.observer import Observer


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_boxes_of_coarse_formats_are_proved_many_at_a_time(dtype: str, tmp_path: Path) -> None:
    text, box = "exp(sin(pi*x1) + x2**2)", ol.Box([-1, -1], [1, 1])
    made = ol.approximate(text, box, 0.1 if dtype == "float16" else 1e-4, dtype=dtype, max_boxes=3000)
    place = made.save(tmp_path / "p")
    stored, domain = read_model(place), ((-1.0, -1.0), (1.0, 1.0))
    assert made.certificate.proof is not None
    low, high = (side[:64] for side in made.certificate.proof.boxes())
    with precise():
        execution = Execution.of(f"{dtype} execution", stored, domain)
        upper = made.certificate.upper
        sweep = Sweep(Layer(stored, execution), parse(text, 2), upper, 6, Observer())
        assert float(np.mean(sweep(low, high))) > 0.9
        limits = sweep._limits(low, high)
        assert limits.shape == (1, len(low))
        # What is taken off is the rounding around a box, or around more than it.
        for at in range(0, len(low), 9):
            assert limits[0, at] <= sweep._left(low[at : at + 1], high[at : at + 1])[0]
