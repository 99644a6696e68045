"""lookup_model computes what its dataclasses say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model


def direct(x: Tensor, heads: list[LookupHead], ridges: Ridges | None, affine: Affine | None, width: int) -> Tensor:
    """The formula of the docstring, term by term."""
    total = torch.zeros(*x.shape[:-1], width, dtype=torch.float64)
    for head in heads:
        part = head.values.expand(*x.shape[:-1], *head.values.shape)
        for axis in head.axes:
            along = x @ axis.direction if isinstance(axis.direction, Tensor) else x[..., axis.direction]
            weights = torch.softmax(along[..., None] * axis.slopes + axis.biases, -1)
            part = (weights.reshape(*weights.shape, *[1] * (part.ndim - weights.ndim)) * part).sum(x.ndim - 1)
        total = total + head.coefficient * part
    if ridges is not None:
        total = total + torch.relu(x @ ridges.weight.T + ridges.bias) @ ridges.coefficient
    if affine is not None:
        total = total + x @ affine.matrix.T + affine.offset
    return total


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_equals_its_formula(data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    dim, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    heads = []
    for _ in range(data.draw(st.integers(0, 3))):
        axes = []
        for _ in range(data.draw(st.integers(1, 5))):
            count = data.draw(st.integers(1, 4))
            direction = normal(dim) if data.draw(st.booleans()) else data.draw(st.integers(0, dim - 1))
            axes.append(AxisKeys(direction, 3 * normal(count), normal(count)))
        heads.append(LookupHead(axes, normal(*(len(axis.slopes) for axis in axes), width), 1 / 3))
    ridges = Ridges(normal(4, dim), normal(4), normal(4, width)) if data.draw(st.booleans()) else None
    affine = Affine(normal(width, dim), normal(width)) if data.draw(st.booleans()) else None
    model = lookup_model(dim, (width,), heads, ridges, affine)
    x = normal(3, 5, dim)
    right = direct(x, heads, ridges, affine, width)
    assert torch.allclose(model(x), right, rtol=1e-12, atol=1e-12)
    assert torch.allclose(model.materialize()(x), right, rtol=1e-12, atol=1e-12)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    tokens = sum(head.values[..., 0].numel() for head in heads) if heads else 1
    assert model.size()["tokens"] == tokens
    assert model.size()["hidden_units"] == (4 if ridges else 0)
    assert model.config.residual == (ridges is not None or affine is not None)


def test_logits_are_exact_up_to_three_axes() -> None:
    """The factors that undo 1/sqrt(d_k) are powers of two: logits are the rounded products of AxisKeys, bit by bit."""
    generator = torch.Generator().manual_seed(0)
    slopes = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(3)]
    axes = [AxisKeys(a, s, torch.zeros(5)) for a, s in enumerate(slopes)]
    model = lookup_model(3, (), [LookupHead(axes, torch.randn(5, 5, 5, 1, generator=generator, dtype=torch.float64))])
    x = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    scaled = (x[:, None] @ model.own("W_Q") + model.own("b_Q")) * 0.5
    memory = model.memory_of(0)
    for a, s in enumerate(slopes):
        assert torch.equal((scaled @ memory.axes[a].T).squeeze(1), x[:, a, None] * s)  # type: ignore[union-attr]


def test_event_shapes_and_dtype() -> None:
    head = LookupHead([AxisKeys(3, torch.ones(2), torch.zeros(2))], torch.ones(2, 6))
    model = lookup_model((2, 2), (2, 3), [head], dtype=torch.float32)
    assert model.dtype == torch.float32
    assert model(torch.zeros(5, 2, 2)).shape == (5, 2, 3)
    sizes = {"heads": 1, "tokens": 2, "hidden_units": 0, "parameters": 30 + 28 + 42 + 42 + 20}
    assert model.size() == sizes | {"nonzeros": 32}


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (LookupHead([AxisKeys(2, torch.zeros(2), torch.zeros(2))], torch.zeros(2, 1)), "outside an input of 2"),
        (LookupHead([AxisKeys(0, torch.zeros(2), torch.zeros(2))], torch.zeros(2, 3)), "1 axes and 1 outputs"),
        (LookupHead([AxisKeys(0, torch.zeros(2), torch.zeros(2))], torch.zeros(3, 1)), "grid memory needs"),
    ],
)
def test_bad_heads_say_what_is_wrong(head: Any, says: str) -> None:
    with pytest.raises(OnelayerError, match=says):
        lookup_model(2, (), [head])
