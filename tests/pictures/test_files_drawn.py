"""Paths, suffixes and inputs that cannot work are refused in one line; what is written is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onelayer.box import Box
from onelayer.errors import FileError, OnelayerError
from onelayer.pictures.drawing import draw, draw_boxes
from onelayer.pictures.panels import draw_attention
from onelayer.pictures.rate import draw_rate
from onelayer.pictures.scene import Scene
from onelayer.recording.target import as_target
from onelayer.result import Approximation

Proved = Callable[[str], Approximation]
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_formats(kind: str, proved: Proved, tmp_path: Path) -> None:
    path = draw_boxes(proved("one"), tmp_path / f"picture.{kind}")
    data = path.read_bytes()
    assert data.startswith(STARTS[kind])
    assert 5_000 < len(data) < 2_000_000


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "picture.png.txt", ""])
def test_other_suffixes_are_refused(name: str, proved: Proved, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match=r"must end in \.png, \.svg, \.pdf") as caught:
        draw(proved("one"), tmp_path / name)
    assert "\n" not in str(caught.value)


def test_missing_folder(proved: Proved, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write") as caught:
        draw(proved("one"), tmp_path / "nowhere" / "picture.png")
    assert "\n" not in str(caught.value)


def test_path_that_is_a_folder(proved: Proved, tmp_path: Path) -> None:
    (tmp_path / "picture.png").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        draw(proved("one"), tmp_path / "picture.png")
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(proved: Proved, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot write"):
        draw(proved("one"), tmp_path / "picture.png")


def test_same_picture_same_bytes(proved: Proved, tmp_path: Path) -> None:
    first, second = (draw_boxes(proved("one"), tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second


def test_attention_input_must_be_in_the_domain(proved: Proved, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="must have 2 numbers, got 3"):
        draw_attention(proved("sum"), tmp_path / "a.png", [0.0, 0.0, 0.0])
    with pytest.raises(OnelayerError, match="outside the domain"):
        draw_attention(proved("sum"), tmp_path / "a.png", [0.0, 7.0])


def test_nothing_to_draw(proved: Proved, kinked: Scene, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="no boxes to draw"):
        draw_boxes(kinked, tmp_path / "a.png")
    point = Box([0.5, 0.5], [0.5, 0.5])
    with pytest.raises(OnelayerError, match="single point"):
        draw(Scene(kinked.model, as_target("x + y", point), point), tmp_path / "a.png")
    with pytest.raises(OnelayerError, match="packed"):
        draw_attention(Scene(lambda x: x[..., 0], kinked.target, kinked.box), tmp_path / "a.png")
    with pytest.raises(OnelayerError, match="at least one series"):
        draw_rate({}, tmp_path / "a.png")


def test_unrecorded_function_is_asked_for(proved: Proved, tmp_path: Path) -> None:
    result = proved("one")
    without = Approximation(result.model, result.certificate, None)
    with pytest.raises(OnelayerError, match="give it as f="):
        draw(without, tmp_path / "a.png")
    assert draw(without, tmp_path / "a.png", f="exp(sin(pi*x))").exists()


def test_another_function_is_not_drawn_under_a_certificate(proved: Proved, tmp_path: Path) -> None:
    """Its title says how far T is from the function that was proved."""
    result = proved("one")
    for given in (result, Approximation(result.model, result.certificate, None)):
        for other in ("exp(sin(pi*x)) + 0.1", "cos(x)"):
            with pytest.raises(OnelayerError, match="not the function of this proof"):
                draw(given, tmp_path / "a.png", f=other)
    assert list(tmp_path.iterdir()) == []
