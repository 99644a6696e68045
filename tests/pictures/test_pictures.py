"""Every kind of result gives a picture with something on it, and no warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.attention import head_views
from onelayer.pictures.drawing import draw, draw_boxes, picture
from onelayer.pictures.panels import attention_figure, draw_attention
from onelayer.pictures.scene import Scene
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation, load

Proved = Callable[[str], Approximation]
IsPicture = Callable[[Path], bool]


@pytest.mark.parametrize("name", ["one", "coupled", "four", "vector", "constant", "flat"])
def test_main_picture(name: str, proved: Proved, is_picture: IsPicture, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    assert draw(proved(name), path) == path
    assert is_picture(path)
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]


@pytest.mark.parametrize("name", ["one", "four"])
def test_boxes(name: str, proved: Proved, is_picture: IsPicture, tmp_path: Path) -> None:
    assert is_picture(draw_boxes(proved(name), tmp_path / "boxes.png"))


@pytest.mark.parametrize("name", ["sum", "coupled", "four", "constant"])
def test_attention(name: str, proved: Proved, is_picture: IsPicture, tmp_path: Path) -> None:
    assert is_picture(draw_attention(proved(name), tmp_path / "attention.png"))


def test_kinked_and_unproved(kinked: Scene, is_picture: IsPicture, tmp_path: Path) -> None:
    assert is_picture(draw(kinked, tmp_path / "kinked.png"))
    assert "nothing proved" in kinked.headline
    assert "hidden unit" in kinked.subline
    assert is_picture(draw_attention(kinked, tmp_path / "attention.png", [0.5, -0.5]))


def test_three_axes(grid_head: Scene, is_picture: IsPicture, tmp_path: Path) -> None:
    assert is_picture(draw_attention(grid_head, tmp_path / "attention.png", [0.5, 0.5, 0.2]))


def test_title_is_the_certificates_sentence(proved: Proved) -> None:
    result = proved("one")
    title = picture(Scene.of(result)).get_suptitle()
    assert str(result.certificate).removeprefix("Certificate(").removesuffix(")") in title
    assert "exp(sin(pi*x))" in title


def test_worst_output_is_chosen_and_named(proved: Proved) -> None:
    result = proved("vector")
    scene = Scene.of(result)
    assert result.certificate.witness is not None
    point = torch.tensor([result.certificate.witness])
    assert result.target is not None
    error = (result.model(point) - result.target.function(point)).abs()[0]
    assert scene.output == int(error.argmax())
    assert f"output [{scene.output + 1}] of 3" in scene.subline


def test_leaves_tile_the_plane(proved: Proved) -> None:
    """The boxes drawn over an error map cover it exactly once."""
    for name in ("coupled", "four"):
        scene = Scene.of(proved(name))
        plane = scene.free[:2]
        leaves = scene.leaves(plane)
        assert leaves is not None
        low, high = leaves
        width = scene.box.width.flatten().numpy()[plane]
        others = [i for i in scene.free if i not in plane]
        assert all(float(scene.base[i]) % 0.25 for i in others)  # not on a face between two boxes
        assert float(np.prod(high - low, axis=1).sum()) == pytest.approx(float(np.prod(width)))


def test_attention_views_add_up_to_the_model(proved: Proved) -> None:
    """Sum over heads of sum alpha v, plus the constant part, is T(x): the picture shows the live model."""
    scene = Scene.of(proved("sum"))
    model = scene.model
    assert isinstance(model, OneLayerTransformer)
    for x in scene.box.sample(5, seed=3):
        views = head_views(scene, x)
        assert all(abs(view.weights.sum() - 1) < 1e-12 for view in views)
        for view in views:
            product = np.ones(())
            for axis in view.axes:
                product = np.multiply.outer(product, axis.weights)
            assert np.allclose(product, view.weights, atol=1e-12)
        constant = float(model.own("b_R"))
        assert sum(view.sum for view in views) + constant == pytest.approx(float(model(x[None])[0]), abs=1e-9)


def test_sequence_layer_shows_its_matrix(is_picture: IsPicture, tmp_path: Path) -> None:
    box = Box(torch.zeros(3, 2), torch.ones(3, 2))
    model = OneLayerTransformer.tokens((3, 2), (3, 2), d_model=4, heads=2)
    target = as_target(lambda x: 0.5 * x, box)
    scene = Scene(model, target, box)
    assert is_picture(draw_attention(scene, tmp_path / "attention.png"))
    assert (
        len(attention_figure(scene, box.center.flatten()).axes) == 8
    )  # two matrices, stream, their colour bars; units; outputs
    assert "x[3,2]" in scene.names


def test_loaded_result_and_thin_box(proved: Proved, is_picture: IsPicture, tmp_path: Path) -> None:
    proved("one").save(tmp_path / "saved")
    assert is_picture(draw(load(tmp_path / "saved"), tmp_path / "loaded.png"))
    model = proved("coupled").model
    thin = Box([0.0, 1.0], [1.0, 1.0])  # the second coordinate is a point: one curve remains
    certificate = certify(model, "exp(sin(2*x)*y)", thin, 0.5)
    target = as_target("exp(sin(2*x)*y)", thin)
    assert is_picture(draw(Approximation(model, certificate, target), tmp_path / "thin.png"))


def test_refuted_and_undecided(proved: Proved, is_picture: IsPicture, tmp_path: Path) -> None:
    """An honest picture also when the bound is exceeded, or infinite."""
    result = proved("one")
    assert result.target is not None
    refuted = certify(result.model, result.target, result.box, 1e-9)
    undecided = certify(result.model, result.target, result.box, max_boxes=1)
    for status, certificate in (("refuted", refuted), ("undecided", undecided)):
        assert certificate.status == status
        again = Approximation(result.model, certificate, result.target)
        assert is_picture(draw(again, tmp_path / f"{status}.png"))
