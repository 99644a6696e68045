"""What the checker knows without balls over boxes: forward passes at points, and the leaves of a tree."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from onelayer.checker.cover import leaves, random_order, shares
from onelayer.checker.executed import Executed
from onelayer.checker.outcome import Rejected
from onelayer.checker.weights import read_model
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.file import save_model
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.tree import LEAF, BoxTree

PLAIN, GRID, NONE = HeadShape(2, 3, "plain", (5,)), HeadShape(4, 2, "grid", (3, 2, 4)), HeadShape(1, 2)
LAYERS = {
    "packed": Config("packed", (3,), (2,), 6, (PLAIN, GRID), hidden=4, residual=True, norm="pre"),
    "post": Config("packed", (2, 2), (), 5, (PLAIN, PLAIN), hidden=3, residual=True, norm="post"),
    "ramps": Config("packed", (2,), (), 5, (PLAIN,), embedding="piecewise", ramps=4),
    "each": Config("tokens", (3, 2), (3,), 6, (NONE, PLAIN), positions="one-hot", readout="each", hidden=4),
    "mean": Config("tokens", (4,), (2,), 6, (NONE, NONE), positions="sinusoidal", readout="mean", residual=True),
    "last": Config("tokens", (4,), (2,), 6, (NONE,), positions="learned", readout="last", norm="post"),
    "first": Config("tokens", (3, 2), (), 6, (PLAIN,), readout="first", hidden=2, norm="pre"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LAYERS)
def test_a_forward_pass_agrees_with_that_of_the_layer(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    config, generator = LAYERS[name], torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    memory = [
        None
        if head.memory == "none"
        else PlainMemory(normal(5, head.d_k), normal(5, head.d_v))
        if head.memory == "plain"
        else GridMemory([normal(m, head.d_k) for m in head.tokens], normal(*head.tokens, head.d_v))
        for head in config.heads
    ]
    model = OneLayerTransformer(config, memory, dtype=dtype)
    save_model(model, tmp_path)
    x = normal(9, *config.input_shape).to(dtype)
    wanted = model(x).detach().double().numpy().reshape(9, -1)
    found = Executed(read_model(tmp_path))(x.double().numpy().reshape(9, -1))
    assert np.abs(found - wanted).max() <= 200 * torch.finfo(dtype).eps * (1 + np.abs(wanted).max())


def proof_of(tree: BoxTree, boxes: int | None = None) -> SimpleNamespace:
    domain = (tuple(tree.lower.tolist()), tuple(tree.upper.tolist()))
    return SimpleNamespace(tree=tree, record=SimpleNamespace(domain=domain, boxes=boxes or tree.leaves))


def random_tree(cuts: int, dim: int, rng: random.Random) -> list[int]:
    """Preorder of a random tree."""
    if cuts == 0:
        return [LEAF]
    left = rng.randrange(cuts)
    return [rng.randrange(dim), *random_tree(left, dim, rng), *random_tree(cuts - 1 - left, dim, rng)]


@pytest.mark.parametrize("seed", range(20))
def test_leaves_are_those_of_the_tree_and_fill_the_domain(seed: int) -> None:
    rng = random.Random(seed)
    dim = rng.randrange(1, 5)
    code = np.array(random_tree(rng.randrange(40), dim, rng), dtype=np.uint8)
    tree = BoxTree(np.full(dim, -1.0), np.full(dim, 3.0), code)
    low, high = leaves(proof_of(tree))
    assert [low.tolist(), high.tolist()] == [side.tolist() for side in tree.boxes()]
    volumes = shares(low, high)
    assert np.allclose(volumes, np.prod(high - low, 1) / 4.0**dim, rtol=1e-12, atol=0)
    assert sorted(random_order(volumes, np.arange(0), np.random.default_rng(seed)).tolist()) == list(range(len(low)))


@pytest.mark.parametrize(
    "code", [[0], [LEAF, LEAF], [0, LEAF], [0, LEAF, LEAF, LEAF], [LEAF, 0, LEAF], [1, LEAF, LEAF]]
)
def test_what_is_not_one_tree_is_rejected(code: list[int]) -> None:
    tree = SimpleNamespace(tree=np.array(code, dtype=np.uint8), lower=np.zeros(1), upper=np.ones(1))
    with pytest.raises(Rejected):
        leaves(proof_of(tree, boxes=(len(code) + 1) // 2))


def test_a_million_boxes_are_walked_in_seconds() -> None:
    def even(depth: int) -> bytes:
        half = b"" if depth == 0 else even(depth - 1)
        return bytes([LEAF]) if depth == 0 else bytes([depth % 2]) + half + half

    started = time.monotonic()
    tree = BoxTree(np.zeros(2), np.ones(2), np.frombuffer(even(20), np.uint8))
    low, high = leaves(proof_of(tree))
    order = random_order(shares(low, high), np.arange(0), np.random.default_rng(0))
    assert len(order) == len(low) == 2**20
    assert time.monotonic() - started < 30


def test_boxes_without_width_have_equal_shares() -> None:
    point = np.zeros((4, 2))
    assert shares(point, point).tolist() == [0.25] * 4
    thin = shares(np.array([[0.0, 1.0], [0.5, 1.0]]), np.array([[0.5, 1.0], [1.0, 1.0]]))
    assert thin.tolist() == [0.5, 0.5]
    huge = shares(np.array([[-1.7e308], [0.0]]), np.array([[0.0], [1.7e308]]))
    assert huge.tolist() == [0.5, 0.5]
