"""Code that goes another way on numbers than recorded: by their class, by what they raise, by their digits."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from spikes import Code, array, numpy_spike, refused, spike, understood_at_the_spike
from torch import Tensor

from onelayer.errors import OnelayerError


class Shifted(np.ndarray):
    """An array whose products are larger by 1."""

    def __mul__(self, other: Any) -> Any:
        return np.asarray(self) * other + 1

    __rmul__ = __mul__


SHIFTED = np.ones(2).view(Shifted)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # NumPy advises against the class, and people use it
    MATRIX = np.matrix([[1.0, 2.0], [3.0, 4.0]])


def beside_a_matrix(p: Any) -> Any:
    return p[0] + numpy_spike(p[0]) * (np.stack([p[0], p[0]]) * MATRIX)[0, 0]


def times_a_matrix(p: Any) -> Any:
    row = np.stack([p[0], p[0]])[None] @ MATRIX
    return p[0] + numpy_spike(p[0]) * (row * row.T)[0, 0]


def beside_an_array_of_its_own(p: Any) -> Any:
    return p[0] + numpy_spike(p[0]) * (np.stack([p[0], p[0]]) * SHIFTED)[0]


@pytest.mark.parametrize("f", [beside_a_matrix, times_a_matrix, beside_an_array_of_its_own])
def test_arrays_with_operators_of_their_own_are_refused(f: Code) -> None:
    assert "an array of the class" in refused(f)


def test_code_is_watched_while_its_module_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "import numpy as np, onelayer as ol",
        "def f(p):",
        "    return np.sin(p[0]) + 5.0 * (type(p) is not np.ndarray)",
        "ol.approximate(f, ol.Box([0], [1]), 1e-2)",
    ]
    (tmp_path / "asks_while_loaded.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OnelayerError, match="no type of NumPy"):
        importlib.import_module("asks_while_loaded")


def by_its_digits(x: Tensor) -> Tensor:
    return torch.sin(x[..., 0]) + (5.0 if "1.0000" in repr(spike(x[..., 0])) else 0.0)


def by_its_digits_in_numpy(p: Any) -> Any:
    return np.sin(p[0]) + (5.0 if str(numpy_spike(p[0])) == "1.0" else 0.0)


def by_a_format(p: Any) -> Any:
    return np.sin(p[0]) + (5.0 if f"{numpy_spike(p[0])}" == "1.0" else 0.0)


def by_a_comparison(x: Tensor) -> Tensor:
    return torch.sin(x[..., 0]) + (5.0 if "True" in str(spike(x[..., 0]) > 0.5) else 0.0)


@pytest.mark.parametrize("f", [by_its_digits, by_its_digits_in_numpy, by_a_format, by_a_comparison])
def test_who_reads_the_digits_of_x_is_refused(f: Code) -> None:
    assert "by the digits of x" in refused(f)


def raised_by_numpy(x: Any) -> Any:
    """5 where the fourth power of what is left of 1 underflows: beside the spike, and at no point of a sample."""
    u = x[..., 0]
    try:
        with np.errstate(under="raise"):
            return np.sin(u) + 1e-300 * (1e-6 * numpy_spike(u)) ** 2
    except FloatingPointError:
        return 0 * u + 5.0


def raised_as_a_warning(x: Any) -> Any:
    u = x[..., 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return np.sin(u) + 0 * np.exp(1000 * numpy_spike(u))
        except RuntimeWarning:
            return 0 * u + 5.0


def called_by_numpy(x: Any) -> Any:
    u = x[..., 0]
    seen: list[str] = []
    with np.errstate(all="call", call=lambda kind, flag: seen.append(kind)):
        unseen = 0 * np.exp(1000 * numpy_spike(u))
    return np.sin(u) + unseen + 5.0 * len(seen)


@pytest.mark.parametrize("f", [raised_by_numpy, raised_as_a_warning, called_by_numpy])
def test_errors_that_numbers_alone_raise_are_refused(f: Code) -> None:
    assert "floating-point error" in refused(f)


def quiet(x: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.where(x[..., 0] > 0, np.sin(x[..., 0]), 0.0)


def test_code_that_ignores_such_errors_is_recorded() -> None:
    value, said = understood_at_the_spike(quiet, array)
    assert value == pytest.approx(said, abs=1e-12)
