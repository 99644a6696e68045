"""A guard that an export carries lets no point pass that is outside, whatever the format of the point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.export import stock
from onelayer.export.exporter import export
from onelayer.layer.lookup import Affine, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation

# 0.1 is no float32, and the float32 number next to it lies outside.
BOX = Box([0.0, 0.5], [0.1, 2.5])
NEAR = torch.tensor([[0.1, 1.0]], dtype=torch.float32)
# Rounded towards zero, as a bound of whole numbers would be, 0.5 is 0.
WHOLE = torch.tensor([[0, 0]])


def summed() -> Approximation:
    """x1 + x2, the layer and its proof."""
    model = lookup_model(2, (), [], affine=Affine(torch.ones(1, 2).double(), torch.zeros(1).double()))
    return Approximation(model, certify(model, "x1 + x2", BOX, 0.1), as_target("x1 + x2", BOX))


def of_huggingface(guard: str) -> Callable[[Tensor], Tensor]:
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    from onelayer.export.huggingface import to_huggingface

    model = to_huggingface(summed(), guard=guard)
    return lambda x: model(x).logits


def of_lens(guard: str) -> Callable[[Tensor], Tensor]:
    pytest.importorskip("transformer_lens", reason="the extra lens is not installed")
    from onelayer.export.lens import to_lens

    model = OneLayerTransformer.tokens((2,), (), d_model=2, readout="first", seed=1).requires_grad_(False)
    return to_lens(model, box=BOX, guard=guard)


CARRIERS = [of_huggingface, of_lens]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("point", [NEAR, WHOLE], ids=["float32", "whole"])
def test_a_point_of_a_coarser_format_is_compared_with_the_bounds_themselves(
    carrier: Callable[[str], Callable[[Tensor], Tensor]], point: Tensor
) -> None:
    assert not bool(BOX.contains(point.double()))
    with pytest.raises(ValueError, match="1 of 1 points lie outside"):
        carrier("raise")(point)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_point_of_a_coarser_format_is_moved_into_the_box(
    carrier: Callable[[str], Callable[[Tensor], Tensor]],
) -> None:
    corner = torch.tensor([[0.1, 1.0]], dtype=torch.float64)
    assert torch.equal(carrier("clamp")(NEAR), carrier("clamp")(corner))


def folder(guard: str, path: Path) -> stock.StockLayer:
    return stock.load(export(summed(), to="torch", out=path, guard=guard).path)


def test_a_stock_layer_made_coarser_keeps_its_bounds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 of 1 points lie outside"):
        folder("raise", tmp_path).float()(NEAR)
    clamping = folder("clamp", tmp_path).float()
    inside = torch.nextafter(NEAR, torch.zeros(1, 2))
    inside[0, 1] = 1.0
    assert torch.equal(clamping(NEAR), clamping(inside))


@pytest.mark.parametrize("guard", ["warn", "raise", "clamp"])
def test_points_of_any_batch_shape_are_guarded(guard: str, tmp_path: Path) -> None:
    layer = folder(guard, tmp_path)
    points = BOX.sample(6)
    flat = layer(points)
    assert torch.equal(layer(points.reshape(2, 3, 2)), flat.reshape(2, 3))
    assert torch.equal(layer(points[0]), layer(points[:1])[0])
    assert layer(points[:0]).shape == (0,)
    with pytest.raises(ValueError, match="2 of 6 points lie outside"):
        folder("raise", tmp_path)(torch.cat([points[:4], points[4:] + 9]).reshape(2, 3, 2))


def test_a_guard_keeps_the_certified_box_of_a_larger_export() -> None:
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    from onelayer.export.huggingface import to_huggingface

    larger = to_huggingface(summed(), box=Box([-1.0, -1.0], [3.0, 3.0]), guard="raise")
    with pytest.raises(ValueError, match="1 of 1 points lie outside"):
        larger(torch.tensor([[2.0, 1.0]], dtype=torch.float64))
