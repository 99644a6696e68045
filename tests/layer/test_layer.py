"""OneLayerTransformer as a module: shapes, dtypes, autograd, vmap, compile, symmetry, size and words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.layer.weights import memory_shapes, positional_encoding, weight_shapes

some = settings(max_examples=40, deadline=None, derandomize=True)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@some
@given(st.data())
def test_any_batch_shape(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    shape, out = model.config.input_shape, model.config.output_shape
    x = uniform(2, 3, *shape)
    y = model(x)
    assert y.shape == (2, 3, *out)
    assert torch.allclose(model(x[1]), y[1], rtol=1e-12, atol=1e-12)
    assert torch.allclose(model(x[1, 2]), y[1, 2], rtol=1e-12, atol=1e-12)
    assert model(x[:0]).shape == (0, 3, *out)


@some
@given(st.data())
def test_vmap_and_jacobian(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    x = uniform(4, *model.config.input_shape)
    assert torch.allclose(torch.vmap(model)(x), model(x), rtol=1e-12, atol=1e-12)
    jacobian = torch.func.jacrev(model)(x[0])
    assert jacobian.shape == (*model.config.output_shape, *model.config.input_shape)


@some
@given(st.data())
def test_float32_follows_float64(strategies: dict[str, Any], data: st.DataObject) -> None:
    """The result has the dtype of x; weights stored in float32 are used exactly in float64."""
    model = data.draw(strategies["layers"])
    if model.config.attention in ("hardmax", "topk"):
        return
    x = uniform(5, *model.config.input_shape)
    right = model(x)
    single = OneLayerTransformer(model.config, dtype=torch.float32)
    single.load_state_dict(model.state_dict())
    assert single.dtype == torch.float32
    scale = 1 + right.abs().max().item()
    for found, dtype in (
        (single(x.float()), torch.float32),
        (model(x.float()), torch.float32),
        (single(x), right.dtype),
    ):
        assert found.dtype == dtype
        # LayerNorm of nearly equal features magnifies rounding, by at most 1/sqrt(1e-5).
        assert (found.double() - right).abs().max() < 2e-3 * scale
    # Equal up to the order of summation, which may follow the memory layout of the converted weights.
    exact = OneLayerTransformer(model.config)
    exact.load_state_dict(single.state_dict())
    assert torch.allclose(single(x), exact(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["packed grid", "tokens", "packed plain"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiles_in_one_graph(kind: str) -> None:
    if kind == "tokens":
        model = OneLayerTransformer.tokens((4, 2), (4,), d_model=6, heads=2, hidden=5, residual=True, norm="pre")
    else:
        memory = GridMemory([uniform(3, 4), uniform(5, 4, seed=1)], uniform(3, 5, 2, seed=2))
        model = OneLayerTransformer.packed((2,), (3,), [memory, memory], hidden=4, residual=True)
        model = model if kind == "packed grid" else model.materialize()
    x = uniform(7, *model.config.input_shape).requires_grad_()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found, right = compiled(x), model(x)
    assert torch.allclose(found, right, rtol=1e-12, atol=1e-12)
    slope = torch.ones_like(right)
    ours, theirs = (torch.autograd.grad(out, x, slope)[0] for out in (found, right))
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("attention", [{}, {"attention": "linear"}, {"attention": "topk", "top_k": 2}])
def test_equivariant_under_permutation_without_positions(attention: dict[str, Any]) -> None:
    """The paper says invariant; it is equivariant: permuted tokens give permuted outputs. Positions break it."""
    memory = [PlainMemory(uniform(3, 2), uniform(3, 2, seed=1))] * 2
    options: dict[str, Any] = {"d_model": 6, "heads": 2, "hidden": 5, "residual": True, "norm": "post", **attention}
    model = OneLayerTransformer.tokens((5, 3), (5, 2), memory=memory, **options)
    x, order = uniform(4, 5, 3), torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(model(x[:, order]), model(x)[:, order], rtol=0, atol=1e-13)
    assert (model(x[:, order]) - model(x)).abs().max() > 1e-3
    pooled = OneLayerTransformer.tokens((5, 3), (), memory=memory, **options)
    assert torch.allclose(pooled(x[:, order]), pooled(x), rtol=0, atol=1e-13)
    for positions in ("one-hot", "sinusoidal", "learned"):
        ordered = OneLayerTransformer.tokens((5, 3), (5, 2), memory=memory, positions=positions, **options)
        assert (ordered(x[:, order]) - ordered(x)[:, order]).abs().max() > 1e-4


def test_positional_encodings() -> None:
    assert positional_encoding("one-hot", 2, 3).tolist() == [[0, 1, 0], [0, 0, 1]]
    sinusoidal = positional_encoding("sinusoidal", 4, 6)
    for i in range(4):
        for j in range(3):
            angle = torch.tensor(i / 10000 ** (2 * j / 6), dtype=torch.float64)
            assert torch.allclose(sinusoidal[i, 2 * j : 2 * j + 2], torch.stack([angle.sin(), angle.cos()]), atol=1e-15)
    trained = OneLayerTransformer.tokens((3,), (3,), d_model=4, positions="learned")
    fixed = OneLayerTransformer.tokens((3,), (3,), d_model=4, positions="sinusoidal")
    assert "position" in dict(trained.named_parameters())
    assert "position" in dict(fixed.named_buffers())


def test_piecewise_embedding_interpolates_a_table() -> None:
    """With steps of the table as weights, E(t_g) is row g of the table and E is linear between knots, flat outside."""
    table, knots = uniform(5, 3), torch.tensor([0.0, 0.1, 0.4, 0.5, 1.0], dtype=torch.float64)
    model = OneLayerTransformer.tokens(
        (5,),
        (5, 3),
        d_model=3,
        embedding="piecewise",
        ramps=4,
        residual=True,
        weights={
            "ramp_start": knots[None, :-1],
            "ramp_slope": 1 / knots.diff()[None],
            "W_E": table.diff(dim=0),
            "b_E": table[0],
            "W_O": torch.zeros(3, 3),
            "W_R": torch.eye(3),
        },
    )
    assert torch.allclose(model(knots), table, rtol=0, atol=1e-15)
    halfway = torch.tensor([-7.0, 0.05, 0.25, 0.75, 9.0], dtype=torch.float64)
    right = torch.stack([table[0], table[:2].mean(0), table[1:3].mean(0), table[3:].mean(0), table[4]])
    assert torch.allclose(model(halfway), right, rtol=0, atol=1e-15)


@some
@given(st.data())
def test_size_counts_the_plain_form(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    plain = model.materialize()
    assert model.size() == plain.size()
    assert model.size()["parameters"] == sum(value.numel() for value in plain.state_dict().values())
    shapes = weight_shapes(model.config) | memory_shapes(model.config)
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == shapes


def test_repr_says_what_it_is() -> None:
    memory = GridMemory([uniform(30, 4), uniform(40, 4)], uniform(30, 40, 1))
    model = OneLayerTransformer.packed((2,), (), [memory], hidden=7)
    assert repr(model) == (
        "OneLayerTransformer(packed (2,) -> (), 1 softmax head, 1,200 memory tokens, width 2, 7 hidden units, "
        "6,062 parameters, float64)"
    )


def test_models_are_seeded_and_own_their_memory() -> None:
    memory = PlainMemory(uniform(3, 2), uniform(3, 1))
    first, second, third = (OneLayerTransformer.packed((2,), (), [memory], seed=seed) for seed in (1, 1, 2))
    x = uniform(4, 2)
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first(x), third(x))
    with torch.no_grad():
        memory.values.zero_()
    assert torch.equal(first(x), second(x))
    assert first(x).abs().max() > 0


def head() -> HeadShape:
    return HeadShape(2, 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: OneLayerTransformer.tokens((3, 2), (3,), d_model=4)(torch.zeros(3, 3)), "does not end with"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=4)(torch.zeros(3, dtype=torch.int64)), "floating"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=4, weights={"W_X": torch.zeros(1)}), "no weight 'W_X'"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=4, weights={"W_O": torch.zeros(1)}), "must have shape"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, positions="one-hot"), "d_model >= 3"),
        (lambda: OneLayerTransformer.tokens((3, 2, 2), (3,), d_model=2), "input shape"),
        (lambda: OneLayerTransformer.tokens((3,), (2,), d_model=2, readout="each"), "starts with 3"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, attention="cosine"), "attention must be one of"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, attention="topk"), "top_k"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, attention="linear", order=3), "order must be"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, embedding="piecewise"), "ramps"),
        (lambda: OneLayerTransformer.tokens((0,), (3,), d_model=2), "input_shape"),
        (lambda: OneLayerTransformer.tokens((3,), (3,), d_model=2, hidden=-1), "hidden"),
        (lambda: OneLayerTransformer.packed((3,), (), []), "at least one head"),
        (lambda: Config("packed", (1,), (), 1, (head(),)), "needs memory tokens"),
        (lambda: Config("packed", (1,), (1,), 1, (HeadShape(1, 1, "plain", (2,)),), readout="each"), "one position"),
        (lambda: HeadShape(1, 1, "plain", (2, 2)), "cannot have token shape"),
        (lambda: OneLayerTransformer(Config("tokens", (3,), (3,), 2, (head(),)), [None, None]), "differ"),
    ],
)
def test_bad_layers_say_what_is_right(make: Any, says: str) -> None:
    with pytest.raises(OnelayerError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
