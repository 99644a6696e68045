"""What a module runs at a point, as an expression of the point: a recorded program must run the same.

torch.export runs a module on tensors without numbers, while torch says that it exports. Code may ask for either and go
another way than it goes on numbers; what is recorded is then another function, and no sample need show it. So both are
run at one point, as torch executes them, and all memory gets a fingerprint. Of what depends on the point that is a hash
of the operation that wrote it, of the numbers in that, and of all that it read; of everything else, of its numbers.

Lemma: up to a collision of hashes, equal fingerprints of two results mean the same expression of the point. What is
read is a piece of memory with the shape and strides in which it lies there, so views and writing into them are followed
without a rule for either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from onelayer.errors import OnelayerError

_FAST = torch.backends.mha


def need_same(module: Callable[[Any], Any], program: Callable[[Any], Any], point: Tensor) -> None:
    """Refuse a program that runs other operations than the module; ``point`` is a batch of one."""
    fast = _FAST.get_fastpath_enabled()
    # Attention in one call is none that a program may have.
    _FAST.set_fastpath_enabled(False)
    try:
        if _expression(module, point) != _expression(program, point):
            raise OnelayerError("the model runs other operations while it is recorded than it runs on numbers")
    finally:
        _FAST.set_fastpath_enabled(fast)


def _expression(function: Callable[[Any], Any], point: Tensor) -> list[str]:
    x = point.clone()
    followed = _Followed(x)
    with torch.no_grad(), followed:
        found = function(x)
    return [followed.read(y) if isinstance(y, Tensor) else repr(y) for y in tree_leaves(found)]


class _Followed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fingerprints of all memory that depends on the point, by its address."""

    def __init__(self, point: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prints = {_address(point): "the point"}
        # Held until the end: the address of memory that is free would be that of another piece.
        self.held: list[Any] = [point]

    def read(self, x: Tensor) -> str:
        """The fingerprint of a tensor: of its memory and where it lies there, or of its numbers."""
        known = self.prints.get(_address(x))
        lies = (str(x.dtype), tuple(x.shape))
        if known is None:
            return _hashed(*lies, _numbers(x))
        return _hashed(*lies, known, x.stride(), x.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        before = {_address(x): x for x in _tensors(given)}
        # Constants of constants are their numbers.
        if not before.keys() & self.prints.keys():
            return func(*args, **(kwargs or {}))
        written = _hashed(func.name(), tree_map(self._said, given))
        # Which of its arguments it writes into is of no importance: it is the same for whoever runs it.
        changed = before if func._schema.is_mutable else {}
        after = {at: _hashed(self._whole(x), written) for at, x in changed.items()}
        found = func(*args, **(kwargs or {}))
        self.prints.update(after)
        for at, y in enumerate(_tensors(found)):
            self.held.append(y)
            # Memory of its own; a view is read where it lies.
            if _address(y) not in before:
                self.prints[_address(y)] = _hashed(written, at)
        return found

    def _said(self, argument: Any) -> str:
        return self.read(argument) if isinstance(argument, Tensor) else repr(argument)

    def _whole(self, x: Tensor) -> str:
        """The fingerprint of all the memory of which a tensor is a piece."""
        known = self.prints.get(_address(x))
        if known is not None:
            return known
        everything = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
        return _numbers(everything)


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _numbers(x: Tensor) -> str:
    flat = x.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
