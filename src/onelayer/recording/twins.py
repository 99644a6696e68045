"""Tensors that may or may not share their memory, and writing into one of them.

A reshape is a view where the layout in memory allows it and a copy elsewhere, and layouts are nothing that a recording
has. Such a result is recorded as a copy that knows its original: its twin. Lemma: as long as neither is written into,
view and copy have the same entries. Where one is written into, the entries of the other that differ from it then are
unknown, and so are those of its own twins; whoever uses one of them is refused, and who writes over one knows it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation

# The position of an entry that is one number in a view and another in a copy.
UNKNOWN = -2
HINT = "whether it sees what is written hangs on the layout in memory; write into a clone, or use view"


class _Pair(NamedTuple):
    """Entry ``places[i]`` of ``first`` and entry i of ``second``, both counted in row-major order, may be one."""

    first: Tensor
    second: Tensor
    places: Tensor


class Twins:
    """All pairs of one recording."""

    def __init__(self) -> None:
        self.pairs: list[_Pair] = []
        self.torn = False  # whether any entry may be unknown

    def taken(self, ids: Tensor, move: Callable[[Tensor], Tensor]) -> Tensor:
        """The positions ``move(ids)``, which may or may not be a view of ``ids``."""
        numbered = torch.arange(ids.numel(), dtype=torch.int64, device=ids.device).reshape(ids.shape)
        places = move(numbered).reshape(-1)
        found = move(ids).clone(memory_format=torch.contiguous_format)
        self.pairs.append(_Pair(ids, found, places))
        return found

    def are(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors share their memory or are twins, directly or by others between them."""
        ends = [(_memory(pair.first), _memory(pair.second)) for pair in self.pairs]
        reached, waiting = set(), {_memory(one)}
        while waiting:
            reached |= waiting
            waiting = {b for pair in ends for a, b in (pair, pair[::-1]) if a in reached} - reached
        return _memory(other) in reached

    def written(self, ids: Tensor) -> None:
        """Something was written into ``ids``: what may see it, and may not, is unknown."""
        reached = {_memory(ids)}
        waiting = list(reached)
        while waiting:
            here = waiting.pop()
            for pair in self.pairs:
                ends = _memory(pair.first), _memory(pair.second)
                other = ends[1] if ends[0] == here else ends[0]
                # Not back to where the writing came from, whose entries are known.
                if here in ends and other not in reached and self._torn(pair, ends[0] == here):
                    reached.add(other)
                    waiting.append(other)

    def need_known(self, ids: Tensor) -> None:
        """Refuse positions of entries that are unknown."""
        if self.torn and bool((ids == UNKNOWN).any()):
            raise UnsupportedOperation("writing beside a reshape", HINT)

    def _torn(self, pair: _Pair, first_is_written: bool) -> bool:
        """Mark the entries of the other twin that differ; whether there are any."""
        flat = pair.first.reshape(-1)[pair.places]
        differ = (flat != pair.second.reshape(-1)).nonzero().flatten()
        if not len(differ):
            return False
        self.torn = True
        tensor = pair.second if first_is_written else pair.first
        marked = differ if first_is_written else pair.places[differ]
        tensor[torch.unravel_index(marked, tensor.shape)] = UNKNOWN
        return True


def _memory(ids: Tensor) -> int:
    return ids.untyped_storage().data_ptr()
