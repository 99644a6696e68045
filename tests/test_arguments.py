"""Whatever is given for an argument of a public door, it is taken rightly or ends in one line of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.observer import Observer

BOX = ol.Box([0.0], [1.0])
# None of them is a path, a number of seconds, a seed, a norm or an observer.
NOTHING: tuple[Any, ...] = (
    *(math.nan, -1.5, [], {}, object(), 1j, b"x", Decimal(-2), lambda: 1),
    *(torch.tensor([1.0, 2.0]), np.array([1.0, 2.0]), np.float32("nan"), Fraction(-1, 3)),
)


def sine(x: Any) -> Any:
    return torch.sin(x[..., 0])


COLUMNS = {"a": [0.0, 1.0], "b": [1.0, 2.0]}
DOORS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "certify": (
        lambda **given: ol.certify(**{"model": sine, "f": "sin(x)", "box": BOX, "eps": 1e-3, **given}),
        ("model", "box", "max_seconds", "observer", "checkpoint", "resume", "executor"),
    ),
    "bound": (lambda **given: ol.bound(**{"model": sine, "box": BOX, **given}), ("model", "max_seconds", "observer")),
    "lipschitz": (
        lambda **given: ol.lipschitz(**{"model": sine, "box": BOX, **given}),
        ("model", "max_seconds", "observer", "norm", "execution"),
    ),
    "equivalent": (
        lambda **given: ol.equivalent(**{"a": sine, "b": sine, "box": BOX, "eps": 1e-3, **given}),
        ("max_seconds", "observer"),
    ),
    "prove": (
        lambda **given: ol.prove(**{"model": sine, "box": BOX, "condition": "y1 <= 1", **given}),
        ("max_seconds", "observer", "condition"),
    ),
    "approximate": (
        lambda **given: ol.approximate(**{"f": "x", "domain": BOX, "eps": 1e-3, **given}),
        ("max_seconds", "observer", "domain"),
    ),
    "check": (
        lambda **given: ol.check(**{"folder": "nowhere", **given}),
        ("folder", "seed", "max_seconds", "f", "all"),
    ),
    "load": (lambda **given: ol.load(**given), ("folder",)),
    "load_claim": (lambda **given: ol.load_claim(**given), ("folder",)),
    "Box": (lambda **given: ol.Box(**{"lower": [0.0], "upper": [1.0], **given}), ("lower", "upper")),
    "BlackBox": (lambda **given: ol.BlackBox(**{"f": sine, "lipschitz": 1.0, **given}), ("cache", "structure")),
    "sort": (
        lambda **given: ol.sort(**{"n": 2, "lo": 0.0, "hi": 1.0, "eps": 0.1, **given}),
        ("n", "hi", "eps", "kind", "dtype", "max_seconds", "observer"),
    ),
    "memorize": (
        lambda **given: ol.memorize(**{"X": [[0.0], [1.0]], "Y": [0.0, 1.0], **given}),
        ("recipe", "eps", "dtype", "device", "seed", "max_seconds", "observer"),
    ),
    "Table.read": (
        lambda **given: ol.Table.read(**{"source": COLUMNS, "inputs": "a", "output": "b", **given}),
        ("inputs", "output", "interpolate"),
    ),
    "Recipe": (lambda **given: ol.Recipe(**given), ("lr", "weight_decay", "optimiser", "loss", "steps", "dtype")),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_no_argument_can_be_ends_in_one_line(door: str) -> None:
    call, names = DOORS[door]
    for name in names:
        for given in NOTHING:
            # A function is a model, two numbers are an interval, and a list of nothing is no name.
            taken = (name == "model" and callable(given)) or (name in ("box", "domain") and np.shape(given) == (2,))
            if not taken and not (name == "lower" and np.shape(given) == (2,)):
                with pytest.raises(OnelayerError) as raised:
                    call(**{name: given})
                assert "\n" not in str(raised.value), (name, given)


def test_numbers_beyond_all_floats_are_no_bounds() -> None:
    for given in ({"lo": -(10**400)}, {"lo": "0"}, {"lo": None}, {"hi": 10**400}, {"eps": 10**400}):
        with pytest.raises(OnelayerError):
            ol.sort(**{"n": 2, "lo": 0.0, "hi": 1.0, "eps": 0.1, **given})
    with pytest.raises(OnelayerError, match="one row"):
        ol.memorize([[0.0], [1.0]], 5)


def test_names_that_are_no_list_are_refused() -> None:
    for given in (5, None, math.nan, object()):
        with pytest.raises(OnelayerError, match="names are"):
            ol.Box([0.0], [1.0], names=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [np.float64(3.0), np.int64(3), np.float32(3), True, 3, Fraction(7, 2), 10**400])
def test_every_kind_of_number_is_a_number_of_seconds(seconds: Any) -> None:
    assert 0 < Observer(seconds).seconds_left <= float("inf")
    found = ol.lipschitz(sine, BOX, max_seconds=seconds, gap=0.5)
    assert found.lower <= 1.0 <= found.upper


def test_nothing_is_saved_to_what_is_no_path(tmp_path: Path) -> None:
    made = ol.approximate("x", BOX, 1e-3)
    claimed = ol.load_claim(ol.lipschitz(sine, BOX, gap=0.5).save(tmp_path / "claim"))
    for save in (made.save, claimed.save, claimed.certificate.save):
        with pytest.raises(OnelayerError, match="a path is text or a Path"):
            save(5)  # type: ignore[arg-type]
