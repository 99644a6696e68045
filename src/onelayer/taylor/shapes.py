"""Structural operations: they move entries about and round nothing.

A coefficient tensor carries the polynomial index in front, so a dimension d >= 0 of the model is d + 1 of the
coefficients, and a negative dimension is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import operand
from onelayer.taylor.core import Space, TaylorModel, joint_space, lift, spread
from onelayer.taylor.dimensions import axes, axis
from onelayer.taylor.registry import implements


def _sizes(sizes: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """Integers given one by one, as one sequence, or by keyword."""
    given = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes
    given = tuple(named) if not sizes and named is not None else given
    twice = bool(sizes) and named is not None
    if twice or not all(isinstance(size, int) for size in given):
        raise UnsupportedOperation("sizes that are no integers", "give integers, one by one or as one sequence")
    return given


def _map(x: TaylorModel, op: Callable[[Tensor, int], Tensor]) -> TaylorModel:
    """Apply a rearrangement to coefficients (offset 1), remainder (offset 0) and denominators alike."""
    den = tuple(_map(factor, op) for factor in x.den)
    coef = op(x.coef, 1)
    return x.with_(coef, op(x.rem, 0), den)


@implements("getitem", lazy=True)
def getitem(x: TaylorModel, index: Any) -> TaylorModel:
    """Ints, slices, None, Ellipsis, index lists and index or boolean tensors, as for a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    if all(_basic(part) for part in parts):
        den = tuple(_index_factor(factor, x.shape, parts) for factor in x.den)
        coef = x.coef[(slice(None), *parts)]
        return x.with_(coef, x.rem[parts], den)
    if not all(_basic(part) or isinstance(part, Tensor | list) for part in parts):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise UnsupportedOperation(f"indexing by {kinds}", "use constant integers, slices and tensors")
    # Advanced indices may move dimensions: where an entry comes from is asked of torch itself.
    x = x.plain()
    numbered = torch.arange(x.rem.numel(), dtype=torch.int64, device=x.device)
    places = numbered.reshape(x.shape)[parts]
    coef = x.coef.reshape(len(x.coef), -1)
    return x.with_(coef[:, places], x.rem.flatten()[places])


def _basic(part: Any) -> bool:
    """An index that keeps the order of dimensions; a bool makes one of its own."""
    if isinstance(part, bool):
        return False
    return part is None or part is Ellipsis or isinstance(part, int | slice)


def _of_length(part: Any, size: int) -> Any:
    """The index of a dimension, for a factor that may have one entry there in the place of all."""
    if size != 1:
        return part
    return 0 if isinstance(part, int) else slice(None)


def _index_factor(factor: TaylorModel, shape: torch.Size, parts: tuple[Any, ...]) -> TaylorModel:
    """The denominator of an indexed quotient: dimensions in which it does not vary keep their one entry."""
    # The ellipsis, written or meant at the end, stands for all dimensions that no other part reads.
    used = sum(part is not None and part is not Ellipsis for part in parts)
    fill = [slice(None)] * (len(shape) - used)
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    full = [*parts[:at], *fill, *parts[at + 1 :]]
    sizes = iter(factor.shape)
    mapped: list[Any] = []
    for part in full:
        # None makes a dimension and reads none.
        mapped.append(None if part is None else _of_length(part, next(sizes)))
    if all(part == slice(None) for part in mapped):
        return factor
    coef = factor.coef[(slice(None), *mapped)]
    return factor.with_(coef, factor.rem[tuple(mapped)])


@implements("reshape", lazy=True)
def reshape(x: TaylorModel, *sizes: Any, shape: Any = None) -> TaylorModel:
    """The same entries in another shape."""
    return _reshaped(x, _sizes(sizes, shape))


@implements("view", lazy=True)
def view(x: TaylorModel, *sizes: Any, size: Any = None, dtype: Any = None) -> TaylorModel:
    """Another shape; bits read as another type are no function of the numbers."""
    if dtype is not None or (sizes and isinstance(sizes[0], torch.dtype)):
        raise UnsupportedOperation("view(dtype)", "it reads the same bits as other numbers")
    return _reshaped(x, _sizes(sizes, size))


def _reshaped(x: TaylorModel, shape: tuple[int, ...]) -> TaylorModel:
    rem = x.rem.reshape(shape)
    lead = 0
    if x.den:
        # Denominators follow when the dimensions in which they vary stay where they are, in front.
        varying = (i for factor in x.den for i, n in enumerate(factor.shape) if n > 1)
        lead = max(varying, default=-1) + 1
        if rem.shape[:lead] != x.shape[:lead]:
            return _reshaped(x.plain(), shape)
    den = tuple(_reshape_factor(factor, rem.ndim, lead) for factor in x.den)
    return x.with_(x.coef.reshape(len(x.coef), *rem.shape), rem, den)


def _reshape_factor(factor: TaylorModel, ndim: int, lead: int) -> TaylorModel:
    shape = (*factor.shape[:lead], *[1] * (ndim - lead))
    coef = factor.coef.reshape(len(factor.coef), *shape)
    return factor.with_(coef, factor.rem.reshape(shape))


@implements("flatten", lazy=True)
def flatten(x: TaylorModel, start_dim: int = 0, end_dim: int = -1) -> TaylorModel:
    """Some dimensions as one."""
    return _reshaped(x, tuple(x.rem.flatten(start_dim, end_dim).shape))


@implements("ravel", lazy=True)
def ravel(x: TaylorModel) -> TaylorModel:
    """All dimensions as one."""
    return flatten(x)


@implements("unflatten")
def unflatten(x: TaylorModel, dim: int, sizes: Sequence[int]) -> TaylorModel:
    """One dimension as several."""
    at = axis(x, dim)
    known = -prod(sizes) if -1 in sizes else 1  # the other sizes: the -1 among them turns the sign
    rest = x.shape[at] // known
    whole = (rest if size == -1 else size for size in sizes)
    return _reshaped(x, (*x.shape[:at], *whole, *x.shape[at + 1 :]))


@implements("squeeze", lazy=True)
def squeeze(x: TaylorModel, dim: Any = None) -> TaylorModel:
    """Without a dimension of one entry, or without all of them."""
    # An empty list names no dimension here, where reductions take it for all of them.
    dims = axes(x, dim) if dim is None or isinstance(dim, int) else [axis(x, d) for d in dim]
    single = [d for d in dims if x.shape[d] == 1]
    return _map(x, lambda t, offset: t.squeeze([d + offset for d in single]) if single else t)


@implements("unsqueeze", lazy=True)
def unsqueeze(x: TaylorModel, dim: int) -> TaylorModel:
    """With one more dimension of one entry."""
    at = axis(x, dim, extra=1)
    return _map(x, lambda t, offset: t.unsqueeze(at + offset))


@implements("transpose", lazy=True)
def transpose(x: TaylorModel, dim0: int, dim1: int) -> TaylorModel:
    """Two dimensions exchanged."""
    first = axis(x, dim0)
    second = axis(x, dim1)
    return _map(x, lambda t, offset: t.transpose(first + offset, second + offset))


@implements("t", lazy=True)
def t(x: TaylorModel) -> TaylorModel:
    """A matrix transposed."""
    if x.ndim == 2:
        return transpose(x, 0, 1)
    # A number or a vector stays as it is, and torch refuses the rest: the remainder asks it.
    return _map(x, lambda tensor, offset: tensor if offset else tensor.t())


@implements("permute", lazy=True)
def permute(x: TaylorModel, *order: Any, dims: Any = None) -> TaylorModel:
    """The dimensions in another order."""
    places = [axis(x, d) for d in _sizes(order, dims)]
    return _map(x, lambda t, offset: t.permute(*range(offset), *[d + offset for d in places]))


@implements("movedim", lazy=True)
def movedim(x: TaylorModel, source: Any, destination: Any) -> TaylorModel:
    """Dimensions moved elsewhere."""
    first = axes(x, source)
    second = axes(x, destination)

    def moved(t: Tensor, offset: int) -> Tensor:
        return t.movedim([d + offset for d in first], [d + offset for d in second])

    return _map(x, moved)


@implements("expand", lazy=True)
def expand(x: TaylorModel, *sizes: Any, size: Any = None, implicit: bool = False) -> TaylorModel:
    """Entries repeated along dimensions of one."""
    rem = x.rem.expand(_sizes(sizes, size))
    # New dimensions come in front, where denominators have none.
    if x.den and rem.ndim > x.ndim:
        x = x.plain()
    coef = spread(x.coef, rem.ndim).expand(len(x.coef), *rem.shape)
    return x.with_(coef, rem, x.den)


@implements("broadcast_to", lazy=True)
def broadcast_to(x: TaylorModel, size: Sequence[int]) -> TaylorModel:
    """Entries repeated up to a shape."""
    return expand(x, tuple(size))


@implements("repeat")
def repeat(x: TaylorModel, *sizes: Any, repeats: Any = None) -> TaylorModel:
    """Copies side by side, as many as the sizes say."""
    counts = _sizes(sizes, repeats)
    coef = spread(x.coef, len(counts)).repeat(1, *counts)
    return x.with_(coef, x.rem.repeat(*counts))


@implements("flip")
def flip(x: TaylorModel, *order: Any, dims: Any = None) -> TaylorModel:
    """Entries in the opposite order."""
    places = [axis(x, d) for d in _sizes(order, dims)]
    return _map(x, lambda t, offset: t.flip([d + offset for d in places]))


@implements("roll")
def roll(x: TaylorModel, shifts: Any, dims: Any = None) -> TaylorModel:
    """Along given dimensions; without them torch rolls all entries as one line."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        rolled = roll(_reshaped(x, (-1,)), shifts, 0)
        return _reshaped(rolled, tuple(x.shape))
    places = axes(x, dims)
    return _map(x, lambda t, offset: t.roll(shifts, [d + offset for d in places]))


@implements("index_select")
def index_select(x: TaylorModel, dim: int, index: Tensor) -> TaylorModel:
    """The entries at given places of a dimension."""
    at = axis(x, dim)
    return _map(x, lambda t, offset: t.index_select(at + offset, index))


@implements("select")
def select(x: TaylorModel, dim: int, index: int) -> TaylorModel:
    """One entry of a dimension."""
    at = axis(x, dim)
    return _map(x, lambda t, offset: t.select(at + offset, index))


@implements("narrow")
def narrow(x: TaylorModel, dim: int, start: int, length: int) -> TaylorModel:
    """Some consecutive entries of a dimension."""
    at = axis(x, dim)
    return _map(x, lambda t, offset: t.narrow(at + offset, start, length))


@implements("unbind")
def unbind(x: TaylorModel, dim: int = 0) -> tuple[TaylorModel, ...]:
    """The entries of a dimension, one by one."""
    count = x.shape[axis(x, dim)]
    return tuple(select(x, dim, i) for i in range(count))


@implements("split")
def split(
    x: TaylorModel, split_size: Any = None, dim: int = 0, *, split_size_or_sections: Any = None
) -> tuple[TaylorModel, ...]:
    """Consecutive parts of given sizes."""
    size = split_size if split_size is not None else split_size_or_sections
    return _pieces(x, torch.split(x.rem, size, dim), dim)


@implements("chunk")
def chunk(x: TaylorModel, chunks: int, dim: int = 0) -> tuple[TaylorModel, ...]:
    """A number of consecutive parts."""
    return _pieces(x, x.rem.chunk(chunks, dim), dim)


def _pieces(x: TaylorModel, pieces: Sequence[Tensor], dim: int) -> tuple[TaylorModel, ...]:
    """Parts as long as torch makes those of the remainder."""
    lengths = [piece.shape[dim] for piece in pieces]
    starts = accumulate(lengths[:-1], initial=0)
    places = zip(starts, lengths, strict=True)
    return tuple(narrow(x, dim, start, length) for start, length in places)


def _space_of_all(models: Sequence[TaylorModel], like: TaylorModel) -> Space:
    """The space of an operation that joins them all: executed in the coarsest of their formats."""
    space = like.space
    for model in models:
        so_far = TaylorModel(like.coef, like.rem, space, like.support, like.degree)
        space = joint_space(model, so_far)
    return space


def _joint_support(models: Sequence[TaylorModel]) -> tuple[int, ...]:
    """The variables of several models, in order."""
    return tuple(sorted({v for m in models for v in m.support}))


def common(models: Sequence[Any]) -> list[TaylorModel]:
    """Models and constants over one support and one degree, ready to be put side by side."""
    models = [m.plain() if isinstance(m, TaylorModel) else m for m in models]
    like = next(m for m in models if isinstance(m, TaylorModel))
    # A constant is rounded to the executing type, as torch would round it when it joins the others.
    converted = [operand(m, like) for m in models]
    space = _space_of_all(converted, like)
    support = _joint_support(converted)
    highest = max(m.degree for m in converted)
    degree = min(highest, space.cap(len(support)))
    lifted = [lift(m, support, degree) for m in converted]
    rows = max(len(m.coef) for m in lifted)
    return [TaylorModel(_pad(m.coef, rows), m.rem, space, support, degree) for m in lifted]


def _pad(coef: Tensor, rows: int) -> Tensor:
    """Coefficients with zeros for the degrees that they lack."""
    if len(coef) == rows:
        return coef
    zeros = coef.new_zeros(rows - len(coef), *coef.shape[1:])
    return torch.cat([coef, zeros])


@implements("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> TaylorModel:
    """Models and constants one after the other."""
    models = common(tensors)
    at = axis(models[0], dim)
    coef = torch.cat([m.coef for m in models], at + 1)
    return models[0].with_(coef, torch.cat([m.rem for m in models], at))


@implements("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> TaylorModel:
    """Models and constants along a new dimension."""
    models = common(tensors)
    at = axis(models[0], dim, extra=1)
    coef = torch.stack([m.coef for m in models], at + 1)
    return models[0].with_(coef, torch.stack([m.rem for m in models], at))
