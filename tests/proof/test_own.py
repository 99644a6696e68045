"""A layer that was changed after it was built is foreign code: its weights no longer say what it computes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onelayer import Box, OnelayerError, approximate, check
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.network.record import record
from onelayer.proof.certify import certify
from onelayer.proof.crew import as_problem
from onelayer.proof.error import error_function
from onelayer.proof.own import is_own_layer
from onelayer.recording.target import as_target

BOX = Box([0.0], [3.0])


class Shifted(OneLayerTransformer):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1.0


def subclassed(layer: OneLayerTransformer) -> OneLayerTransformer:
    layer.__class__ = Shifted
    return layer


def hooked(layer: OneLayerTransformer) -> OneLayerTransformer:
    layer.register_forward_hook(lambda module, given, returned: returned + 1.0)
    return layer


@pytest.fixture(scope="module")
def layer() -> OneLayerTransformer:
    return approximate("sin(x1)", BOX, 1e-2).model


@pytest.mark.parametrize("change", [subclassed, hooked])
def test_what_is_saved_of_a_changed_layer_is_what_was_proved(
    change: Any, layer: OneLayerTransformer, tmp_path: Path
) -> None:
    """Its weights alone would be those of sin, not of sin + 1."""
    changed = change(copy.deepcopy(layer))
    found = certify(changed, "sin(x1) + 1", BOX, 1e-2)
    assert found.proved
    assert any("tested at" in assumption for assumption in found.assumptions)
    report = check(found.save(tmp_path / "claim"))
    assert report.ok, str(report)


@pytest.mark.parametrize("change", [subclassed, hooked])
def test_workers_never_take_a_changed_layer_for_the_one_with_its_weights(
    change: Any, layer: OneLayerTransformer
) -> None:
    target = as_target("sin(x1)", BOX)
    changed = change(copy.deepcopy(layer))
    assert is_own_layer(layer)
    assert not is_own_layer(changed)
    own = error_function(layer, target, BOX, torch.float64, torch.device("cpu"))
    foreign = error_function(changed, target, BOX, torch.float64, torch.device("cpu"))
    assert as_problem(own) is not None
    assert as_problem(foreign) is None


def test_a_hooked_network_is_recorded_with_its_hook(tmp_path: Path) -> None:
    """The program of the network alone would be tanh, not tanh + 1."""
    network = record(nn.Tanh(), (1,))
    network.register_forward_hook(lambda module, given, returned: returned + 1.0)
    found = certify(network, lambda x: torch.tanh(x) + 1.0, BOX, 1e-9)
    assert found.proved
    assert any("tested at" in assumption for assumption in found.assumptions)
    report = check(found.save(tmp_path / "claim"))
    assert report.ok, str(report)


def test_narrow_formats_are_for_untouched_layers(layer: OneLayerTransformer) -> None:
    changed = hooked(copy.deepcopy(layer))
    with pytest.raises(OnelayerError, match="only a layer of this package is certified in bfloat16"):
        certify(changed, "sin(x1) + 1", BOX, 0.5, execution="bfloat16")
