"""Kinks by sharp heads in one layer of pieces: proved by lemma, re-proved by the checker, refused where forged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.special import lambertw

from onelayer import Box, approximate, check, load
from onelayer.build.pieces.sharp import sharpener
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.argument import from_text
from onelayer.lemmas.pieces import Pieces
from onelayer.lemmas.sharp import pieces_error
from onelayer.lemmas.stated import states
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

CUBE = Box([-1.0] * 3, [2.0] * 3)


def relu_network() -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
    return torch.nn.Sequential(*layers).double().requires_grad_(False)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("max(x, y) - x", "relu(y - x)", True),
        ("min(x, y)", "(x + y - abs(x - y))/2", True),
        ("relu(relu(x - y) - z)", "max(x - y - z, -z, 0)", True),
        ("max(min(x, y), z)", "min(max(x, z), max(y, z))", True),
        ("abs(abs(x) - 1)", "max(abs(x) - 1, 1 - abs(x))", True),
        ("max(x, x - 5)", "x", True),
        ("max(x, y - 3)", "x", False),  # y - 3 stays below x on the box, but not by more than a point
        ("max(x, y)", "max(x, z)", False),
        ("median(x, y, z)", "max(min(x, y), min(max(x, y), z))", True),
        ("median(x, y, z)", "max(min(x, y), min(x, z))", False),
    ],
)
def test_kinks_have_one_normal_form(first: str, second: str, same: bool) -> None:
    if second == "x" and not same:
        same = bool(CUBE.upper[1] - 3 <= CUBE.lower[0])
    assert same_function(parse(first, 3), parse(second, 3), CUBE) is same


@pytest.mark.parametrize(
    ("f", "box", "eps"),
    [
        ("max(x, y, z)", CUBE, 3e-3),
        ("relu(relu(x - y) - z)", CUBE, 3e-3),
        ("abs(x)*y", Box([-1, -1], [1, 1]), 2e-3),
        ("median(x1, x2, x3, x4, x5)", Box([0] * 5, [1] * 5), 1e-3),
        ("min(max(x, y/3), 0.1*z) + abs(x - 0.3)", CUBE, 1e-3),
        ("max(x, y); sin(abs(x)) - max(y, z)", CUBE, 1e-2),
        (relu_network(), Box([-1, -1], [1, 1]), 4e-4),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kinks_are_proved_and_re_proved(f: Any, box: Box, eps: float, dtype: torch.dtype, tmp_path: Path) -> None:
    a = approximate(f, box, eps if dtype == torch.float64 else 10 * eps, layout="pieces", dtype=dtype)
    assert a.certificate.proved
    assert a.certificate.method == "composition"
    assert a.model.config.layout == "pieces"
    x = torch.cat([box.corners(32), box.sample(2000, seed=5)]).to(dtype)
    error = (a.model(x).double() - a.target.function(x.double())).abs().max()
    assert error <= a.certificate.upper
    a.save(tmp_path / "kinks")
    assert check(tmp_path / "kinks").ok
    assert torch.equal(load(tmp_path / "kinks").model(x), a.model(x))


def test_the_default_door_takes_sharp_heads() -> None:
    a = approximate(relu_network(), Box([-1, -1], [1, 1]), 4e-4, max_seconds=30)
    assert a.certificate.proved
    assert [attempt.way for attempt in a.history] == ["sharp heads"]
    assert a.size()["hidden_units"] <= 16


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_gap_of_a_sharp_head_is_reached(count: int) -> None:
    """max - T = W((M-1)/e) / beta where all but one are equal, at the distance that the lemma names."""
    gap = float(lambertw((count - 1) / math.e).real)
    logits = torch.zeros(count).double()
    logits[0] = 1 + gap
    average = torch.softmax(logits, 0) @ logits
    assert float(logits[0] - average) == pytest.approx(gap, rel=1e-12)


def test_a_smooth_function_is_not_for_pieces() -> None:
    box = Box([-1, -1], [1, 1])
    assert sharpener(understood("sin(x)*y", box), box, torch.float64) is None
    with pytest.raises(OnelayerError, match="kinks"):
        approximate("sin(x)*y", box, 1e-2, layout="pieces")


def argument_in(a: Approximation) -> Pieces:
    found = from_text(a.certificate.attachments[ARGUMENT])
    assert isinstance(found, Pieces)
    return found


def test_other_weights_are_counted_or_refused() -> None:
    box = Box([-1, -1], [1, 1])
    a = approximate("max(x, y) + abs(x + y)", box, 1e-2, layout="pieces")
    pieces, bound = argument_in(a), a.certificate.upper
    width = a.model.config.d_model
    with torch.no_grad():
        a.model.own("b_E")[width] += 1e-3  # a line, moved
    moved = pieces_error(a.model, pieces, box)
    assert bound + 0.9e-3 < moved < bound + 2.1e-3
    with torch.no_grad():
        a.model.own("b_E")[width] -= 1e-3
        a.model.own("W_Q")[0, 0] = 1e-9
    with pytest.raises(OnelayerError, match="form of sharp heads"):
        pieces_error(a.model, pieces, box)


def test_an_argument_about_another_function_is_refused() -> None:
    box = Box([-1, -1], [1, 1])
    pieces = argument_in(approximate("max(x, y)", box, 1e-2, layout="pieces"))
    assert states(pieces, parse("max(x, y)", 2), box)
    assert not states(pieces, parse("max(x, y + 1e-9)", 2), box)


def _blunter(data: dict[str, Any]) -> None:
    data["direct"][0]["weights"][0] = str(Fraction(data["direct"][0]["weights"][0]) * 2)


def _another_line(data: dict[str, Any]) -> None:
    data["heads"][0]["lines"][0][0] = "1/2"


def _no_number(data: dict[str, Any]) -> None:
    data["heads"][0]["lines"][0][0] = "1e9999999"


@pytest.mark.parametrize("forge", [_blunter, _another_line, _no_number])
def test_forged_arguments_are_not_accepted(forge: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    folder = tmp_path / "kinks"
    approximate("max(x, y, 0.5)", Box([0, 0], [1, 1]), 1e-2, layout="pieces").save(folder)
    path = folder / "argument.json"
    data = json.loads(path.read_text())
    forge(data)
    path.write_text(json.dumps(data))
    try:
        verdict = check(folder).verdict
    except OnelayerError:
        verdict = "a bad file"
    assert verdict in ("rejected", "a bad file")


def test_what_heads_and_units_are_in_words() -> None:
    a = approximate("abs(x)*y", Box([-1, -1], [1, 1]), 1e-1, layout="pieces")
    text = str(a.explain())
    assert "largest of" in text
    assert "curve" in text
    assert "**2" in text


def test_slopes_beyond_floats_are_refused() -> None:
    steep = "1e30*max(min(0.25*(x1/1e-300), 0.7 + 0.5*(x1/1e-300)), max(0.7 + 2.0*(x1/1e-300), 0.5*(x1/1e-300)))"
    with pytest.raises(OnelayerError, match=r"beyond 1\.8e308"):
        approximate(steep, Box([-1e-300], [1e-300]), 1e27, layout="pieces", jobs=1)


def test_looking_for_kinks_ends_with_its_time() -> None:
    # Exact fractions of a formula of hundreds of kinks grow without end.
    box = Box([0.0, 0.0], [1.0, 1.0])
    target = understood("max(x, y)", box)
    assert sharpener(target, box, torch.float64) is not None
    assert sharpener(target, box, torch.float64, Observer(0.0)) is None
