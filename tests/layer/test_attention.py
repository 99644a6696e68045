"""Attention kinds: rows sum to one, and the limits in which sparse and linear attention are softmax."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onelayer.layer.attention import Attention, Hardmax, Linear, Softmax, TopK

KINDS = [Softmax(), TopK(1), TopK(3), Hardmax(), Linear("taylor", 2), Linear("taylor", 6), Linear("elu", 2)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_sum_to_one_and_average_the_values(kind: Attention) -> None:
    query, blocks = normal(2, 5, 3), [normal(2, 4, 3, seed=1), normal(6, 3, seed=2)]
    values = [normal(2, 4, 2, seed=3), normal(6, 2, seed=4)]
    weights = kind.weights(query, blocks)
    assert weights.shape == (2, 5, 10)
    assert (weights >= 0).all()
    assert (weights.sum(-1) - 1).abs().max() < 1e-14
    right = weights[..., :4] @ values[0] + weights[..., 4:] @ values[1]
    found = kind.average(query, list(zip(blocks, values, strict=True)))
    assert (found - right).abs().max() < 1e-13


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_rows_of_every_layer_sum_to_one(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    x = torch.rand(3, *model.config.input_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = model.attention_weights(x)
    assert len(rows) == len(model.config.heads)
    for weights, shape in zip(rows, model.config.heads, strict=True):
        own = model.config.length if model.config.token_attention else 0
        assert weights.shape == (3, model.config.length, own + shape.token_count)
        assert (weights.sum(-1) - 1).abs().max() < 1e-13


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 99))
def test_top_k_of_all_keys_is_softmax(count: int, width: int, seed: int) -> None:
    query, keys = normal(3, width, seed=seed), normal(count, width, seed=seed + 1)
    right = Softmax().weights(query, [keys])
    for k in (count, count + 5):
        assert torch.equal(TopK(k).weights(query, [keys]), right)


def test_top_k_keeps_k_and_renormalises() -> None:
    query, keys = normal(4, 3), normal(9, 3, seed=1)
    soft = Softmax().weights(query, [keys])
    sparse = TopK(4).weights(query, [keys])
    assert ((sparse > 0).sum(-1) == 4).all()
    kept = torch.where(sparse > 0, soft, 0.0)
    assert (sparse - kept / kept.sum(-1, keepdim=True)).abs().max() < 1e-15


def test_hardmax_is_the_limit_of_softmax_and_top_1() -> None:
    """The distance to softmax(beta q . k) is at most (S - 1) exp(-beta gap), gap between best and second logit."""
    query, keys = normal(6, 3), normal(5, 3, seed=1)
    hard = Hardmax().weights(query, [keys])
    assert torch.equal(hard, TopK(1).weights(query, [keys]))
    best = torch.topk(query @ keys.T, 2).values
    gap = (best[:, 0] - best[:, 1]).min().item()
    for beta in (1.0, 10.0, 100.0, 1000.0):
        distance = (Softmax().weights(beta * query, [keys]) - hard).abs().max().item()
        assert distance <= 4 * math.exp(-beta * gap) + 1e-15


def test_hardmax_shares_ties_equally_as_softmax_does() -> None:
    keys = torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.float64)
    query = torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64)
    hard = Hardmax().weights(query, [keys])
    assert hard.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3]]
    assert (Softmax().weights(1e3 * query, [keys]) - hard).abs().max() < 1e-15


def test_linear_attention_tends_to_softmax_with_the_order() -> None:
    """|exp(t) - sum_{p <= order} t^p/p!| <= |t|^{order+1}/(order+1)! exp(|t|); weights err by twice that / exp(t)."""
    query, keys, values = normal(6, 2), normal(5, 2, seed=1), normal(5, 3, seed=2)
    logits = query @ keys.T
    t = logits.abs().max().item()
    right, average = Softmax().weights(query, [keys]), Softmax().average(query, [(keys, values)])
    for order in (2, 4, 8, 12):
        relative = t ** (order + 1) / math.factorial(order + 1) * math.exp(2 * t)
        linear = Linear("taylor", order)
        assert (linear.weights(query, [keys]) / right - 1).abs().max() <= 2 * relative / max(1 - relative, 0.1) + 1e-13
    linear = Linear("taylor", 16)
    assert (linear.weights(query, [keys]) - right).abs().max() < 1e-5
    assert (linear.average(query, [(keys, values)]) - average).abs().max() < 1e-4


@pytest.mark.parametrize("order", [2, 4])
def test_linear_attention_tends_to_softmax_for_small_logits(order: int) -> None:
    """Halving the logits divides the distance by 2^(order + 1)."""
    query, keys = normal(8, 3), normal(7, 3, seed=1)

    def distance(scale: float) -> float:
        soft, linear = Softmax(), Linear("taylor", order)
        return (soft.weights(scale * query, [keys]) - linear.weights(scale * query, [keys])).abs().max().item()

    for scale in (0.05, 0.025, 0.0125):
        assert distance(scale / 2) <= distance(scale) / 2 ** (order + 0.9) + 1e-15


def test_linear_attention_never_forms_the_weights() -> None:
    """10^5 queries against 10^5 keys: 80 GB of weights, were they formed."""
    query, keys, values = normal(10**5, 2), normal(10**5, 2, seed=1), normal(10**5, 1, seed=2)
    out = Linear("taylor", 2).average(query, [(keys, values)])
    right = Linear("taylor", 2).weights(query[:3], [keys]) @ values
    assert (out[:3] - right).abs().max() < 1e-12
