"""Grid memory: factorised evaluation equals the plain softmax over the written-out tokens, in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onelayer.errors import OnelayerError
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import CHUNK, OneLayerTransformer


def grid(counts: tuple[int, ...], d_k: int, d_v: int, generator: torch.Generator, scale: float = 1.0) -> GridMemory:
    def normal(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    return GridMemory([normal(count, d_k) for count in counts], normal(*counts, d_v))


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_factorised_equals_plain(dim: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
    heads = []
    for _ in range(data.draw(st.integers(1, 3))):
        counts = tuple(data.draw(st.integers(1, 5)) for _ in range(dim))
        heads.append(grid(counts, data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), generator, 2.0))
    model = OneLayerTransformer.packed((dim,), (2,), heads, hidden=3, residual=True)
    plain = model.materialize()
    assert plain.size() == model.size()
    assert all(isinstance(memory, PlainMemory) for memory in plain.memory.values())
    x = torch.randn(*data.draw(st.lists(st.integers(0, 4), max_size=2)), dim, generator=generator, dtype=torch.float64)
    found, right = model(x), plain(x)
    assert found.shape == right.shape
    assert torch.allclose(found, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("counts", [(4,), (3, 2), (2, 3, 2)])
def test_grid_beside_sequence_tokens(counts: tuple[int, ...]) -> None:
    """In the tokens layout one softmax runs over the sequence and the grid; the grid still factorises."""
    generator = torch.Generator().manual_seed(0)
    memory = [grid(counts, 3, 2, generator, 2.0), None]
    model = OneLayerTransformer.tokens((5, 2), (5,), d_model=4, heads=2, d_k=3, d_v=2, memory=memory)
    x = torch.randn(7, 5, 2, generator=generator, dtype=torch.float64)
    assert torch.allclose(model(x), model.materialize()(x), rtol=1e-12, atol=1e-12)
    assert [rows.shape[-1] for rows in model.attention_weights(x)] == [5 + torch.Size(counts).numel(), 5]


def test_gradients_reach_axes_and_values() -> None:
    generator = torch.Generator().manual_seed(1)
    model = OneLayerTransformer.packed((2,), (), [grid((3, 4), 2, 1, generator)])
    plain = model.materialize()
    x = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    model(x).sum().backward()
    plain(x).sum().backward()
    memory, written = model.memory_of(0), plain.memory_of(0)
    assert isinstance(memory, GridMemory)
    assert isinstance(written, PlainMemory)
    assert torch.allclose(memory.values.grad.flatten(), written.values.grad.flatten(), atol=1e-14)  # type: ignore[union-attr]
    keys = written.keys.grad.reshape(3, 4, 2)  # type: ignore[union-attr]
    assert torch.allclose(memory.axes[0].grad, keys.sum(1), atol=1e-14)
    assert torch.allclose(memory.axes[1].grad, keys.sum(0), atol=1e-14)


def test_sharp_logits_do_not_overflow() -> None:
    head = LookupHead(
        [AxisKeys(0, torch.tensor([-1e4, 0.0, 1e4]), torch.zeros(3))], torch.tensor([[1.0], [2.0], [3.0]])
    )
    model = lookup_model(1, (), [head])
    assert model(torch.tensor([[-1.0], [1.0]], dtype=torch.float64)).tolist() == [1.0, 3.0]


class LargestArray(TorchDispatchMode):
    """Records the number of elements of the largest array any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out


@pytest.mark.parametrize(("counts", "queries"), [((100, 100, 100), 2000), ((1000, 1000), 4000), ((4, 4), 10**6)])
def test_memory_stays_bounded(counts: tuple[int, ...], queries: int) -> None:
    """No array grows with queries x tokens: chunks of CHUNK elements, whatever the batch."""
    generator = torch.Generator().manual_seed(2)
    model = OneLayerTransformer.packed((len(counts),), (), [grid(counts, 4, 1, generator)], dtype=torch.float32)
    model.requires_grad_(False)
    x = torch.randn(queries, len(counts), generator=generator)
    with LargestArray() as seen:
        out = model(x)
    assert out.shape == (queries,)
    assert seen.elements <= max(2 * CHUNK, x.numel())
    part = model(x[-5:])
    assert torch.allclose(out[-5:], part, atol=1e-5)


def test_plain_memory_runs_in_chunks_too() -> None:
    generator = torch.Generator().manual_seed(3)
    model = OneLayerTransformer.packed((2,), (3,), [grid((40, 40), 4, 1, generator)]).materialize()
    x = torch.randn(20, 300, 2, generator=generator, dtype=torch.float64)
    with LargestArray() as seen:
        out = model(x)
    assert out.shape == (20, 300, 3)
    assert seen.elements <= 2 * CHUNK
    assert torch.allclose(out[7, 11], model(x[7, 11]), atol=1e-13)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainMemory(torch.zeros(3, 2), torch.zeros(4, 1)),
        lambda: PlainMemory(torch.zeros(0, 2), torch.zeros(0, 1)),
        lambda: GridMemory([], torch.zeros(1)),
        lambda: GridMemory([torch.zeros(3, 2), torch.zeros(3, 1)], torch.zeros(3, 3, 1)),
        lambda: GridMemory([torch.zeros(3, 2)], torch.zeros(4, 1)),
        lambda: GridMemory([torch.zeros(3)], torch.zeros(3, 1)),
    ],
)
def test_bad_memory_says_what_is_right(make: Any) -> None:
    with pytest.raises(OnelayerError, match="memory needs") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_grid_too_large_to_write_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelayer.layer.memory.MAX_TOKENS", 11)
    memory = grid((3, 4), 2, 1, torch.Generator().manual_seed(4))
    with pytest.raises(OnelayerError, match="a grid of 12 tokens is too large to write out"):
        memory.plain_tokens()
