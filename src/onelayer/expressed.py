"""What code computes from its argument when it runs on numbers, as an expression of the argument.

Code may find out what it is given: numbers, or something that stands for numbers while it is enclosed, recorded or
exported. What it then computes on that is another function than it is on numbers, and no sample need show it: a factor
that vanishes but for one place in 10^8 hides it. So code is run on plain tensors, as torch executes it, and all memory
gets a fingerprint. Of what depends on the argument that is a hash of the operation that wrote it, of the numbers in
that, and of all that it read; of everything else, of its numbers.

Lemma: up to a collision of hashes, equal fingerprints of two results mean the same expression of the argument. What is
read is a piece of memory with the shape and strides in which it lies there, so views and writing into them are followed
without a rule for either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from onelayer.unfused import unfused

_FAST = torch.backends.mha


def expression(function: Callable[[Any], Any], x: Tensor, *, fused: bool = False, causal: bool = False) -> list[str]:
    """The fingerprints of all results of a function of one tensor, run on its numbers.

    Attention is run in its own operations: in one call it would be another expression. With ``fused`` it is called as
    torch likes to, and followed as what the call means (unfused.py); ``causal`` masks are then those with that hint.
    """
    given = x.clone()
    followed = Followed(given, causal=causal)
    with _calls_fused(fused), torch.no_grad(), followed:
        found = function(given)
    return followed.expressions(found)


@contextmanager
def _calls_fused(wanted: bool) -> Iterator[None]:
    """Whether torch's modules of attention make fused calls, as long as the block runs."""
    before = _FAST.get_fastpath_enabled()
    _FAST.set_fastpath_enabled(wanted)
    try:
        yield
    finally:
        _FAST.set_fastpath_enabled(before)


def expression_of_any(function: Callable[[Any], Any], x: Tensor) -> list[str] | None:
    """The same where it depends neither on the numbers in x nor on whether attention is fused, else None.

    Numbers that leave torch and come back, as an array of NumPy, are none that depend on the argument: they look like
    constants of the code. On an argument that holds no number they are others.
    """
    found = expression(function, x)
    fused = any(expression(function, x, fused=True, causal=hint) == found for hint in (False, True))
    return found if fused and expression(function, torch.full_like(x, torch.nan)) == found else None


class Followed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fingerprints of all memory that depends on the argument, by its address, while this mode is entered."""

    def __init__(self, argument: Tensor, *, causal: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Whether fused calls are taken for ones with the hint that their mask is causal.
        self.causal = causal
        self.outside: tuple[Any, ...] = ()
        self.prints = {_address(argument): "the argument"}
        # Held until the end: the address of memory that is free would be that of another piece.
        self.held: list[Any] = [argument]

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        # Where torch takes operations apart before this mode sees them; inside of it they would come as they are.
        self.outside = self.outside or _dispatched()
        return self

    def expressions(self, found: Any) -> list[str]:
        """The fingerprints of results, in order; of what is no tensor, what it looks like."""
        return [self.read(y) if isinstance(y, Tensor) else repr(y) for y in tree_leaves(found)]

    def read(self, x: Tensor) -> str:
        """The fingerprint of a tensor: of its memory and where it lies there, or of its numbers."""
        known = self.prints.get(_address(x))
        lies = (str(x.dtype), tuple(x.shape))
        if known is None:
            return _hashed(*lies, _numbers(x))
        # Along a side of one entry a stride says nothing.
        strides = [step for step, side in zip(x.stride(), x.shape, strict=True) if side > 1]
        return _hashed(*lies, known, strides, x.storage_offset())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler at the first operation, for seconds, to keep it out of what it never sees."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        before = {_address(x): x for x in _tensors(given)}
        # Constants of constants are their numbers.
        if not before.keys() & self.prints.keys():
            return func(*args, **(kwargs or {}))
        apart = unfused(func.name(), args, causal=self.causal)
        if apart is None:
            return self._run(func, given, before)
        with _calls_fused(False), self, torch._C._ForceDispatchKeyGuard(*self.outside):
            return apart()

    def _run(self, func: Any, given: tuple[Any, Any], before: dict[int, Tensor]) -> Any:
        """An operation on the tensors ``before``, by their addresses: its results have fingerprints from now on."""
        args, kwargs = given
        written = _hashed(func.name(), tree_map(self._said, given))
        # Which of its arguments it writes into is of no importance: it is the same for whoever runs it.
        changed = before if func._schema.is_mutable else {}
        after = {at: _hashed(self._whole(x), written) for at, x in changed.items()}
        found = func(*args, **kwargs)
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


def _dispatched() -> tuple[Any, Any]:
    """What torch asks of the thread when it looks for the code of an operation."""
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _numbers(x: Tensor) -> str:
    # A copy: a single number may lie in its memory with any stride.
    flat = torch.empty(x.numel(), dtype=x.dtype, device="cpu").copy_(x.detach().flatten())
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
