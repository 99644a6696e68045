"""Calls replayed as CUDA graphs: the numbers of the call as it is written, and another way is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onelayer.proof.replays import Replays, padded

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def branching(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
    """Looks at its numbers twice: by a bool and by bringing rows back."""
    middle = (low + high).sum(1)
    if bool((middle > 100).any()):
        middle = torch.where(middle > 100, -1.0, middle)
    used = (low != 0).any(0).cpu().numpy()
    return middle * order + float(used.sum()), high


def boxes(count: int, top: float) -> tuple[Tensor, Tensor]:
    low = torch.rand(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(count)).cuda() + 0.1
    return low, low + top


def test_sizes_of_graphs() -> None:
    assert [padded(n) for n in (1, 2**14, 2**14 + 1, 2**18)] == [2**14, 2**14, 2**18, 2**18]


@pytest.mark.gpu
@needs_gpu
def test_a_replay_is_the_call() -> None:
    replay = Replays(branching)
    for count in (5, 2**14, 7, 300, 4000):
        low, high = boxes(count, 1.0)
        assert all(map(torch.equal, replay(low, high, 2), branching(low, high, 2)))
    (ways,) = replay.ways.values()
    assert len(ways.graphs) == 1
    assert not replay.refused


@pytest.mark.gpu
@needs_gpu
def test_another_way_is_noticed() -> None:
    replay = Replays(branching)
    for _ in range(4):
        replay(*boxes(100, 1.0), 1)
    for top in (200.0, 1.0, 200.0, 200.0, 200.0, 1.0):
        low, high = boxes(50, top)
        assert all(map(torch.equal, replay(low, high, 1), branching(low, high, 1)))
    low, high = boxes(50, 1.0)
    low[:, 1] = 0.0
    assert all(map(torch.equal, replay(low, high, 1), branching(low, high, 1)))
    assert len(replay.ways[padded(50), 1].graphs) == 2


@pytest.mark.gpu
@needs_gpu
def test_without_its_guard_a_replay_would_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: answers that are not compared."""
    replay = Replays(branching)
    for _ in range(4):
        replay(*boxes(100, 1.0), 1)
    (ways,) = replay.ways.values()
    ways.graphs = [replace(g, same=torch.ones_like(g.same)) for g in ways.graphs]
    low, high = boxes(50, 200.0)
    assert not torch.equal(replay(low, high, 1)[0], branching(low, high, 1)[0])


@pytest.mark.gpu
@needs_gpu
def test_what_cannot_be_recorded_is_called() -> None:
    def reading(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        return (low + float(len(low.nonzero()) > 0),)

    replay = Replays(reading)
    for count in range(10, 16):
        low, high = boxes(count, 1.0)
        assert torch.equal(replay(low, high, 1)[0], reading(low, high, 1)[0])
    assert replay.refused


@pytest.mark.gpu
@needs_gpu
def test_memory_that_runs_out_makes_smaller_calls() -> None:
    def hungry(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        if len(low) > 2**14:
            raise torch.OutOfMemoryError("no memory")
        return (low + high,)

    replay = Replays(hungry)
    low, high = boxes(2**16, 1.0)
    assert torch.equal(replay(low, high, 1)[0], low + high)
    assert replay.most == 2**14


@pytest.mark.gpu
@needs_gpu
def test_where_no_graph_fits_the_call_is_made_as_it_is() -> None:
    def hungry(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        if len(low) > 100:
            raise torch.OutOfMemoryError("no memory")
        return (low + high,)

    replay = Replays(hungry)
    for _ in range(6):
        low, high = boxes(50, 1.0)
        assert torch.equal(replay(low, high, 1)[0], low + high)
    assert replay.refused
    with pytest.raises(torch.OutOfMemoryError):  # the search takes fewer
        replay(*boxes(200, 1.0), 1)


def test_a_mode_that_watches_sees_every_operation() -> None:
    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    calls = []

    def noted(low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        calls.append(len(low))
        return (low,)

    low = torch.zeros(3, 1, dtype=torch.float64)
    with Watch():
        for _ in range(5):
            Replays(noted)(low, low, 1)
    assert calls == [3] * 5
