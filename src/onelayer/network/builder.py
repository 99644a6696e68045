"""NetworkWriter: what readers of foreign programs write steps with.

Moving entries around (reshape, transpose, slice, concatenate, broadcast) costs no step: a :class:`Value` is an array of
places among the entries of one step, and NumPy moves the places. Only where an operation needs its argument in one
piece an ``arrange`` is written. A value that does not depend on the point is an array of numbers, and stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.lib.array_utils import normalize_axis_tuple
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
    shown = None if x.shown is None else how(x.shown)
    return Value(x.step, how(x.places), shown)


def parts_of(x: Known, ends: Any, axis: int) -> list[Known]:
    """The parts of an axis between these ends, as NumPy splits it."""
    return [moved(x, partial(_part, ends, axis, at)) for at in range(len(ends) + 1)]


def _part(ends: Any, axis: int, at: int, v: NDArray[Any]) -> NDArray[Any]:
    return np.split(v, ends, axis)[at]


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
        return Value(0, _in_order((1, *self.input_shape)))

    def tensor(self, values: Constant, name: str = "") -> str:
        """The name under which a constant is stored; equal ones are stored once."""
        numbers = np.array(values, dtype=np.float64, order="C")
        exact = torch.from_numpy(numbers).to(self.dtype)
        if not bool(torch.isfinite(exact).all()):
            raise UnsupportedOperation("a constant of the network", "it is not finite")
        # By their bytes: 0.0 and -0.0 are equal numbers and different weights.
        key = tuple(exact.shape), exact.numpy().tobytes()
        if key not in self._known:
            taken = not name or name in self.tensors
            free = f"constant.{len(self.tensors)}" if taken else name
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
        if number is not None and not math.isfinite(number):
            raise UnsupportedOperation(f"{op} by {number}", "a number of a network is finite")
        self.steps.append(Step(op, args, shape, number, places))
        self.shapes.append(shape)
        return Value(len(self.steps), _in_order(shape))

    def held(self, x: Constant) -> Value:
        """A constant as the value of a step, for operations that are to be done as a network does them."""
        return self._written("arrange", (self.tensor(x),), tuple(x.shape))

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
        places = tuple(flat.tolist())
        return self._written("arrange", (x.step,), x.shape, places=places).step

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
        first = self._whole(moved(a, lambda v: np.broadcast_to(v, shape)))
        second = self._whole(moved(b, lambda v: np.broadcast_to(v, shape)))
        return self._written(op, (first, second), shape)

    def _with_constant(self, op: str, a: Value, b: Constant, shape: tuple[int, ...]) -> Known:
        """One number is a number of the step; minus infinity is a mask."""
        if op == "add" and bool(np.isneginf(b).any()):
            return self._masked(a, b)
        if b.size != 1:
            return self._both(op, a, b, shape)
        one = float(b.reshape(-1)[0])
        wide = moved(a, lambda v: np.broadcast_to(v, shape))
        if op == "mul":
            return self.apply("scale", wide, one)
        return self.apply("shift", wide, -one if op == "sub" else one)

    def _masked(self, x: Value, mask: Constant) -> Value:
        """Numbers added, and minus infinity noted beside what an earlier mask hides."""
        shown = ~np.isneginf(mask)
        rest = np.where(shown, mask, 0.0)
        bare = Value(x.step, x.places)
        moved_on = self.combine("add", bare, rest) if bool(rest.any()) else bare
        # The type of a sum; that of a value and numbers is a value.
        if not isinstance(moved_on, Value):
            raise UnsupportedOperation("a mask of a constant", "mask logits")
        shown = shown if x.shown is None else shown & x.shown
        shape = np.broadcast_shapes(moved_on.shape, shown.shape)
        places = np.broadcast_to(moved_on.places, shape)
        return Value(moved_on.step, places, np.broadcast_to(shown, shape))

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
            places.append(_in_order(part.shape) + offset)
            size = math.prod(part.shape)
            offset += size
        # Places in all parts one after another, moved as the parts are.
        index = np.concatenate(places, axis)
        flat = tuple(index.reshape(-1).tolist())
        return self._written("arrange", tuple(args), tuple(index.shape), places=flat)

    def affine(self, x: Value, weight: Constant, bias: Constant | None, names: tuple[str, str] = ("", "")) -> Value:
        """x W^T + b along the last axis, W (m, n)."""
        args = [self._whole(x), self.tensor(weight, names[0])]
        if bias is not None:
            args.append(self.tensor(bias, names[1]))
        shape = (*x.shape[:-1], weight.shape[0])
        return self._written("affine", tuple(args), shape)

    def matmul(self, a: Known, b: Known) -> Known:
        """A product of matrices, batched as NumPy does; by a constant matrix it is affine."""
        if isinstance(a, Value) and not isinstance(b, Value) and b.ndim == 2:
            return self.affine(a, b.T, None)
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise UnsupportedOperation("a product of vectors", "give both operands two axes or more")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        # A step multiplies one list of matrices by another: all batch axes become one.
        first = self._whole(_flattened(a, batch))
        second = self._whole(_flattened(b, batch))
        groups = math.prod(batch)
        found = self._written("matmul", (first, second), (groups, a.shape[-2], b.shape[-1]))
        shape = (*batch, *found.shape[-2:])
        return moved(found, lambda v: v.reshape(shape))

    def along(self, op: str, x: Value, axis: int) -> Known:
        """An operation of one axis; entries that a mask hides take no part in a softmax."""
        shown = x.shown if op == "softmax" else None
        # A sum of masked entries would be minus infinity: what is still hidden is refused below.
        hidden = None if op == "softmax" else x.shown
        bare = Value(x.step, x.places, hidden)
        last = moved(bare, lambda v: np.moveaxis(v, axis, -1))
        taking = None
        if shown is not None and not bool(shown.all()):
            rows = np.moveaxis(shown, axis, -1)
            taking = tuple(np.flatnonzero(rows.reshape(-1)).tolist())
        shape = last.shape if op == "softmax" else last.shape[:-1]
        found = self._written(op, (self._whole(last),), shape, places=taking)
        if op == "softmax":
            return moved(found, lambda v: np.moveaxis(v, -1, axis))
        return found

    def reduced(self, op: str, x: Value, axes: Sequence[int] | None, keepdim: bool) -> Known:
        """A sum or mean over some axes; over all where none are named, as ONNX and torch have it."""
        count = len(x.shape)
        chosen = sorted(normalize_axis_tuple(tuple(axes or range(count)), count))
        rest = [axis for axis in range(count) if axis not in chosen]
        sizes = [x.shape[axis] for axis in rest]
        order = [*rest, *chosen]
        flat = moved(x, lambda v: np.transpose(v, order).reshape(*sizes, -1))
        found = self.along(op, flat, -1)  # type: ignore[arg-type]
        kept = [1 if at in chosen else x.shape[at] for at in range(count)]
        if keepdim:
            return moved(found, lambda v: v.reshape(kept))
        return found

    def normalise(self, x: Value, gain: Constant | None, shift: Constant | None, eps: float) -> Value:
        """Layer normalisation of the last axis."""
        width = x.shape[-1]
        # A step always has both: a gain of one and an offset of zero change no number.
        first = self.tensor(np.ones(width) if gain is None else gain)
        second = self.tensor(np.zeros(width) if shift is None else shift)
        args = (self._whole(x), first, second)
        return self._written("layer_norm", args, x.shape, float(eps))

    def network(self, result: Known) -> RecordedNetwork:
        """The network whose value at a point is the only row of ``result``."""
        if not isinstance(result, Value):
            raise UnsupportedOperation("a network without an input", "its result does not depend on the point")
        self.need_unchanged(result)
        if not result.shape or result.shape[0] != 1:
            raise UnsupportedOperation("a network that mixes points", f"one point gives the shape {result.shape}")
        last = self._whole(moved(result, lambda v: v[0]))
        # A network ends with its result.
        if last != len(self.steps):
            self._written("arrange", (last,), tuple(result.shape[1:]))
        if not self.tensors and self.dtype != torch.float64:
            # No weight says which format it computes in.
            self.tensors["format"] = torch.zeros(1, dtype=self.dtype, device="cpu")
        shapes = {name: tuple(value.shape) for name, value in self.tensors.items()}
        program = NetworkProgram(self.input_shape, tuple(self.steps), shapes)
        return RecordedNetwork(program, self.tensors)


def _in_order(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """The places 0, 1, 2, ... in that shape."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def _flattened(x: Known, batch: tuple[int, ...]) -> Known:
    """Matrices (*batch, a, b) as (groups, a, b), those without a batch repeated."""
    matrix = x.shape[-2:]
    return moved(x, lambda v: np.broadcast_to(v, (*batch, *matrix)).reshape(-1, *matrix))
