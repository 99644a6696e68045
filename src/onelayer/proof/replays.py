"""A call on many boxes of a GPU, recorded once as a CUDA graph and replayed: thousands of launches become one.

Taylor arithmetic looks at its numbers now and then: is any weight poor, which rows are zero? A graph cannot branch, so
every such look is written down when the call is recorded, and is computed again in each replay. Lemma: if all looks of
a replay give what they gave in the recording, the code would have taken the same way, so the replay computed what the
code computes. If one differs, the replay is thrown away and the call is made as it is written.

A look that goes unnoticed is impossible: reading from a GPU that is being recorded is an error, and then there is no
graph. Boxes are filled up to one of a few sizes by copies of the first, which change no look by more than themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onelayer.ground import foreign_modes

Call = Callable[[Tensor, Tensor, int], tuple[Tensor, ...]]

# Boxes of a graph, and how many times larger the next one is.
SMALLEST, LARGEST, STEP = 2**14, 2**18, 16
WAYS = 3  # graphs of one size and order: ways that the code took
# Calls of one size that are made as written before one is recorded: recording costs as much as three.
TRIALS = 1
ATEN = torch.ops.aten


class _LookedElsewhere(Exception):
    """The second run did not look where the first one did."""


class _Looks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down what a run reads from the GPU; with ``told`` it answers from there and keeps the tensors instead.

    A graph knows its operands by address. Those that were not made while it was recorded are kept in ``held``, so that
    nobody else gets their memory.
    """

    def __init__(self, told: list[Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.told = told
        self.seen: list[Tensor] = []
        self.held: dict[int, Tensor] = {}
        self.made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        scalar = func is ATEN._local_scalar_dense.default
        if not (scalar or _fetches(func, kwargs)) or not args[0].is_cuda:
            return self._watched(func, args, kwargs)
        # The first run: let it look, and write down what it saw.
        if self.told is None:
            answer = func(*args, **kwargs)
            self.seen.append(_kept(answer, args[0].dtype))
            return answer
        # The run that is recorded may not look: it is told, and the tensor itself is kept to be compared in replays.
        at = len(self.seen)
        if at >= len(self.told) or self.told[at].numel() != args[0].numel():
            raise _LookedElsewhere
        self.seen.append(args[0])
        if scalar:
            return self.told[at].item()
        return self.told[at].clone()

    def _watched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if self.told is not None:
            taken = {_address(x): x for x in _on_gpu((args, kwargs))}
            self.held.update((at, x) for at, x in taken.items() if at not in self.made)
            returned = map(_address, _on_gpu(result))
            self.made.update(at for at in returned if at not in self.held)
        return result


def _on_gpu(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.is_cuda]


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _kept(answer: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(answer, Tensor):
        return answer.clone()
    return torch.tensor(answer, dtype=dtype, device="cpu")


def _fetches(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation brings a tensor back from the GPU."""
    target = kwargs.get("device")
    return func is ATEN._to_copy.default and target is not None and torch.device(target).type == "cpu"


@dataclass(frozen=True)
class _RecordedWay:
    """One recorded way: its inputs, its outputs, and whether it is the way of the code for these inputs."""

    graph: Any
    low: Tensor
    high: Tensor
    outputs: tuple[Tensor, ...]
    same: Tensor
    held: tuple[Tensor, ...]  # what it reads beside its inputs

    def run(self, low: Tensor, high: Tensor) -> tuple[Tensor, ...] | None:
        """What the call returns on these boxes, or None where the code would have gone another way."""
        self.low.copy_(low)
        self.high.copy_(high)
        self.graph.replay()
        if bool(self.same):
            return tuple(part.clone() for part in self.outputs)
        return None


@dataclass
class _Ways:
    """The graphs of one size and order, the latest success first, and what calls went otherwise."""

    graphs: list[_RecordedWay] = field(default_factory=list)
    missed: int = 0


class Replays:
    """Makes a call on boxes of a GPU, by a graph where one fits; ``most`` boxes at a time, fewer if memory ran out."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.ways: dict[tuple[int, int], _Ways] = {}
        self.pool: Any = None
        self.most = LARGEST
        self.refused = False

    def __call__(self, low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        """``call(low, high, order)``, boxes first in every output.

        A mode that watches every operation sees them: then the call is made as it is written.
        """
        # It wants to see every operation, of which a replay has none.
        if foreign_modes():
            return self.call(low, high, order)
        if len(low) > self.most:
            pairs = zip(torch.split(low, self.most), torch.split(high, self.most), strict=True)
            parts = [self(*pair, order) for pair in pairs]
            return tuple(torch.cat(part) for part in zip(*parts, strict=True))
        if self.refused:
            return self.call(low, high, order)
        try:
            return self._one(low, high, order)
        except torch.OutOfMemoryError:
            # Not even the smallest graph fits: those who call have fewer boxes.
            self.refused = self.most == SMALLEST
        # Graphs hold their memory as long as they live: the large ones go, and the next ones are smaller.
        self.most = max(self.most // STEP, SMALLEST)
        self.ways = {key: ways for key, ways in self.ways.items() if key[0] <= self.most}
        self.pool = None
        torch.cuda.empty_cache()
        return self(low, high, order)

    def _one(self, low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        count = len(low)
        size = padded(len(low))
        ways = self.ways.setdefault((size, order), _Ways())
        full_low = _filled(low, size)
        full_high = _filled(high, size)
        for at, graph in enumerate(ways.graphs):
            found = graph.run(full_low, full_high)
            if found is not None:
                # Calls that follow mostly go the same way: it is tried first.
                ways.graphs.insert(0, ways.graphs.pop(at))
                return tuple(part[:count] for part in found)
        ways.missed += 1
        if ways.missed <= TRIALS:
            return self.call(low, high, order)
        return tuple(part[:count] for part in self._recorded(ways, full_low, full_high, order))

    def _recorded(self, ways: _Ways, low: Tensor, high: Tensor, order: int) -> tuple[Tensor, ...]:
        """The call as it is written, and the way it took as a graph for the next ones."""
        ways.missed = 0
        looks = _Looks()
        with looks:
            found = self.call(low, high, order)
        try:
            graph = self._captured(low.clone(), high.clone(), order, looks.seen)
        except (RuntimeError, _LookedElsewhere) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.refused = True  # something in the call cannot be recorded
            return found
        ways.graphs = [graph, *ways.graphs][:WAYS]
        return found

    def _captured(self, low: Tensor, high: Tensor, order: int, told: list[Tensor]) -> _RecordedWay:
        expected = [answer.to(low.device) for answer in told]
        graph = torch.cuda.CUDAGraph()
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        # Other threads may use the GPU meanwhile: what they do is no error of this recording.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            looks = _Looks(told)
            with looks:
                outputs = self.call(low, high, order)
            if len(looks.seen) != len(told):
                raise _LookedElsewhere
            pairs = zip(looks.seen, expected, strict=True)
            # NaN agrees with nothing, itself included: then the call is made as it is written.
            agree = [(seen.reshape(was.shape) == was).all() for seen, was in pairs]
            always = torch.ones((), dtype=torch.bool, device=low.device)
            same = torch.stack(agree).all() if agree else always
        held = (*looks.held.values(), *expected)
        return _RecordedWay(graph, low, high, outputs, same, held)


def padded(count: int) -> int:
    """The size of the graph for so many boxes; more than LARGEST have a graph of their own."""
    size = SMALLEST
    while size < count:
        size *= STEP
    return min(size, max(count, LARGEST))


def _filled(side: Tensor, size: int) -> Tensor:
    if len(side) < size:
        copies = side[:1].expand(size - len(side), -1)
        return torch.cat([side, copies])
    return side
