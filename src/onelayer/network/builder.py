"""NetworkWriter: what readers of foreign programs write steps with.

Moving entries around (reshape, transpose, slice, concatenate, broadcast) costs no step: a :class:`Value` is an array of
places among the entries of one step, and NumPy moves the places. Only where an operation needs its argument in one
piece an ``arrange`` is written. A value that does not depend on the point is an array of numbers, and stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import NetworkProgram, Step

Moved = Callable[[NDArray[Any]], NDArray[Any]]
Constant = NDArray[Any]


class Value:
    """Entries of the result of one step: ``places`` (*shape) among them, row-major.

    ``shown`` (*shape) says which of them a mask has left: minus infinity was added to the others, for a softmax.
    """

    def __init__(self, step: int, places: NDArray[np.int64], shown: NDArray[np.bool_] | None = None) -> None:
        self.step = step
        self.places = places
        self.shown = shown

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, the batch of one point included where the foreign program has it."""
        return tuple(self.places.shape)


Known = Value | Constant


def moved(x: Known, how: Moved) -> Known:
    """Entries moved, copied or left out by a NumPy function."""
    if not isinstance(x, Value):
        return how(x)
    return Value(x.step, how(x.places), None if x.shown is None else how(x.shown))


class NetworkWriter:
    """Collects steps and tensors of a network in one format."""

    def __init__(self, input_shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.input_shape = input_shape
        self.dtype = dtype
        self.steps: list[Step] = []
        self.shapes: list[tuple[int, ...]] = [input_shape]
        self.tensors: dict[str, Tensor] = {}
        # Steps whose entries a program has changed in place since.
        self.spent: set[int] = set()
        self._known: dict[tuple[tuple[int, ...], bytes], str] = {}

    @property
    def point(self) -> Value:
        """The point, as a batch of one."""
        size = int(np.prod(self.input_shape, dtype=np.int64))
        return Value(0, np.arange(size, dtype=np.int64).reshape(1, *self.input_shape))

    def tensor(self, values: Constant, name: str = "") -> str:
        """The name under which a constant is stored; equal ones are stored once."""
        exact = torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(self.dtype)
        if not bool(torch.isfinite(exact).all()):
            raise UnsupportedOperation("a constant of the network", "it is not finite")
        key = tuple(exact.shape), exact.numpy().tobytes()
        if key not in self._known:
            free = name if name and name not in self.tensors else f"constant.{len(self.tensors)}"
            self._known[key] = free
            self.tensors[free] = exact
        return self._known[key]

    def _written(
        self,
        op: str,
        args: tuple[int | str, ...],
        shape: tuple[int, ...],
        number: float | None = None,
        places: tuple[int, ...] | None = None,
    ) -> Value:
        self.steps.append(Step(op, args, shape, number, places))
        self.shapes.append(shape)
        return Value(len(self.steps), np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape))

    def need_unchanged(self, x: Value) -> None:
        """Refuse a value that was changed by way of another one that shares its entries."""
        if x.step in self.spent:
            raise UnsupportedOperation("a value that is changed in place and read again", "write it without in-place")

    def _whole(self, x: Known) -> int | str:
        """The value as one step has it, in its shape; a constant as a tensor."""
        if not isinstance(x, Value):
            return self.tensor(x)
        if x.shown is not None:
            raise UnsupportedOperation("a mask of minus infinity", "it goes straight into a softmax")
        there = self.shapes[x.step]
        size = int(np.prod(there, dtype=np.int64))
        flat = x.places.reshape(-1)
        # All entries in their order: at most another shape, which lists no places.
        if len(flat) == size and bool((flat == np.arange(size)).all()):
            if there == x.shape:
                return x.step
            return self._written("arrange", (x.step,), x.shape).step
        return self._written("arrange", (x.step,), x.shape, places=tuple(flat.tolist())).step

    def apply(self, op: str, x: Known, number: float | None = None) -> Known:
        """A function of each entry."""
        if not isinstance(x, Value):
            raise UnsupportedOperation(f"{op} of a constant", "it is to be folded by the reader")
        return self._written(op, (self._whole(x),), x.shape, number)

    def combine(self, op: str, a: Known, b: Known) -> Known:
        """Two values entry by entry, broadcast as NumPy does."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        if not isinstance(a, Value) and op in ("add", "mul"):
            a, b = b, a  # the value first
        if isinstance(a, Value) and not isinstance(b, Value) and op in ("add", "sub", "mul"):
            return self._with_constant(op, a, b, tuple(shape))
        return self._both(op, a, b, tuple(shape))

    def _both(self, op: str, a: Known, b: Known, shape: tuple[int, ...]) -> Value:
        args = [self._whole(moved(x, lambda v: np.broadcast_to(v, shape))) for x in (a, b)]
        return self._written(op, tuple(args), shape)

    def _with_constant(self, op: str, a: Value, b: Constant, shape: tuple[int, ...]) -> Known:
        """One number is a number of the step; minus infinity is a mask."""
        if op == "add" and bool(np.isneginf(b).any()):
            return self._masked(a, b)
        if b.size != 1:
            return self._both(op, a, b, shape)
        one = float(b.reshape(-1)[0])
        wide = moved(a, lambda v: np.broadcast_to(v, shape))
        return self.apply("scale" if op == "mul" else "shift", wide, -one if op == "sub" else one)

    def _masked(self, x: Value, mask: Constant) -> Value:
        """Numbers added, and minus infinity noted beside what an earlier mask hides."""
        shown = ~np.isneginf(mask)
        rest = np.where(shown, mask, 0.0)
        bare = Value(x.step, x.places)
        moved_on = self.combine("add", bare, rest) if bool(rest.any()) else bare
        if not isinstance(moved_on, Value):
            raise UnsupportedOperation("a mask of a constant", "mask logits")
        shown = shown if x.shown is None else shown & x.shown
        shape = np.broadcast_shapes(moved_on.shape, shown.shape)
        return Value(moved_on.step, np.broadcast_to(moved_on.places, shape), np.broadcast_to(shown, shape))

    def join(self, parts: list[Known], axis: int) -> Known:
        """Values one beside the other along an axis."""
        constants = [part for part in parts if not isinstance(part, Value)]
        if len(constants) == len(parts):
            return np.concatenate(constants, axis)
        places = []
        offset = 0
        args = []
        for part in parts:
            args.append(self._whole(part))
            size = int(np.prod(part.shape, dtype=np.int64))
            places.append(np.arange(offset, offset + size, dtype=np.int64).reshape(part.shape))
            offset += size
        index = np.concatenate(places, axis)
        flat = tuple(index.reshape(-1).tolist())
        return self._written("arrange", tuple(args), tuple(index.shape), places=flat)

    def affine(self, x: Value, weight: Constant, bias: Constant | None, names: tuple[str, str] = ("", "")) -> Value:
        """x W^T + b along the last axis, W (m, n)."""
        args: list[int | str] = [self._whole(x), self.tensor(weight, names[0])]
        if bias is not None:
            args.append(self.tensor(bias, names[1]))
        return self._written("affine", tuple(args), (*x.shape[:-1], weight.shape[0]))

    def matmul(self, a: Known, b: Known) -> Known:
        """A product of matrices, batched as NumPy does; by a constant matrix it is affine."""
        if isinstance(a, Value) and not isinstance(b, Value) and b.ndim == 2:
            return self.affine(a, b.T, None)
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise UnsupportedOperation("a product of vectors", "give both operands two axes or more")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        flat = [
            self._whole(moved(x, lambda v: np.broadcast_to(v, (*batch, *v.shape[-2:])).reshape(-1, *v.shape[-2:])))
            for x in (a, b)
        ]
        groups = int(np.prod(batch, dtype=np.int64))
        found = self._written("matmul", tuple(flat), (groups, a.shape[-2], b.shape[-1]))
        return moved(found, lambda v: v.reshape(*batch, *v.shape[-2:]))

    def along(self, op: str, x: Value, axis: int) -> Known:
        """An operation of one axis; entries that a mask hides take no part in a softmax."""
        shown = x.shown if op == "softmax" else None
        hidden = None if op == "softmax" else x.shown
        last = moved(Value(x.step, x.places, hidden), lambda v: np.moveaxis(v, axis, -1))
        taking = None
        if shown is not None and not bool(shown.all()):
            taking = tuple(np.flatnonzero(np.moveaxis(shown, axis, -1).reshape(-1)).tolist())
        shape = last.shape if op == "softmax" else last.shape[:-1]
        found = self._written(op, (self._whole(last),), shape, places=taking)
        if op == "softmax":
            return moved(found, lambda v: np.moveaxis(v, -1, axis))
        return found

    def reduced(self, op: str, x: Value, axes: Sequence[int] | None, keepdim: bool) -> Known:
        """A sum or mean over some axes; over all where none are named, as ONNX and torch have it."""
        count = len(x.shape)
        chosen = sorted(axis % count for axis in (axes or range(count)))
        rest = [axis for axis in range(count) if axis not in chosen]
        sizes = [x.shape[axis] for axis in rest]
        flat = moved(x, lambda v: np.transpose(v, [*rest, *chosen]).reshape(*sizes, -1))
        found = self.along(op, flat, -1)  # type: ignore[arg-type]
        kept = [1 if at in chosen else x.shape[at] for at in range(count)]
        if keepdim:
            return moved(found, lambda v: v.reshape(kept))
        return found

    def normalise(self, x: Value, gain: Constant | None, shift: Constant | None, eps: float) -> Value:
        """Layer normalisation of the last axis."""
        width = x.shape[-1]
        first = self.tensor(np.ones(width) if gain is None else gain)
        second = self.tensor(np.zeros(width) if shift is None else shift)
        return self._written("layer_norm", (self._whole(x), first, second), x.shape, float(eps))

    def network(self, result: Known) -> RecordedNetwork:
        """The network whose value at a point is the only row of ``result``."""
        if not isinstance(result, Value):
            raise UnsupportedOperation("a network without an input", "its result does not depend on the point")
        self.need_unchanged(result)
        if not result.shape or result.shape[0] != 1:
            raise UnsupportedOperation("a network that mixes points", f"one point gives the shape {result.shape}")
        last = self._whole(moved(result, lambda v: v[0]))
        if last != len(self.steps):  # a network ends with its result
            self._written("arrange", (last,), tuple(result.shape[1:]))
        if not self.tensors and self.dtype != torch.float64:
            # No weight says it.
            self.tensors["format"] = torch.zeros(1, dtype=self.dtype, device="cpu")
        shapes = {name: tuple(value.shape) for name, value in self.tensors.items()}
        return RecordedNetwork(NetworkProgram(self.input_shape, tuple(self.steps), shapes), self.tensors)
