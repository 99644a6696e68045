"""Structural operations: they move entries about and round nothing.

A coefficient tensor carries the polynomial index in front, so a dimension d >= 0 of the model is d + 1 of the
coefficients, and a negative dimension is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onelayer.certify.taylor.arithmetic import operand
from onelayer.certify.taylor.core import TaylorModel, joint_space, lift, spread
from onelayer.certify.taylor.registry import implements
from onelayer.certify.taylor.rounding import check_cast


def _later(dim: int) -> int:
    return dim + 1 if dim >= 0 else dim


def _sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else tuple(sizes)


def _map(x: TaylorModel, op: Callable[[Tensor, int], Tensor]) -> TaylorModel:
    """Apply a rearrangement to coefficients (offset 1), remainder (offset 0) and denominators alike."""
    den = tuple(_map(factor, op) for factor in x.den)
    return x.with_(op(x.coef, 1), op(x.rem, 0), den)


@implements("getitem", lazy=True)
def getitem(x: TaylorModel, index: Any) -> TaylorModel:
    """Ints, slices, None, Ellipsis, index lists and index or boolean tensors, as for a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    if x.den and not all(part is None or part is Ellipsis or isinstance(part, int | slice) for part in parts):
        x = x.plain()
    den = tuple(_index_factor(factor, x.shape, parts) for factor in x.den)
    return x.with_(x.coef[(slice(None), *parts)], x.rem[parts], den)


def _index_factor(factor: TaylorModel, shape: torch.Size, parts: tuple[Any, ...]) -> TaylorModel:
    """The denominator of an indexed quotient: dimensions in which it does not vary keep their one entry."""
    used = sum(part is not None and part is not Ellipsis for part in parts)
    fill = [slice(None)] * (len(shape) - used)
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    full = [*parts[:at], *fill, *parts[at + 1 :]]
    mapped: list[Any] = []
    dim = 0
    for part in full:
        if part is None:
            mapped.append(None)
            continue
        single = factor.shape[dim] == 1
        mapped.append((0 if isinstance(part, int) else slice(None)) if single else part)
        dim += 1
    if all(part == slice(None) for part in mapped):
        return factor
    return factor.with_(factor.coef[(slice(None), *mapped)], factor.rem[tuple(mapped)])


@implements("dim", "ndimension", lazy=True)
def dim(x: TaylorModel) -> int:
    return x.ndim


@implements("size", lazy=True)
def size(x: TaylorModel, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


@implements("numel")
def numel(x: TaylorModel) -> int:
    return x.rem.numel()


@implements("is_floating_point")
def is_floating_point(x: TaylorModel) -> bool:
    return True


@implements("contiguous", "clone", "detach", "cpu", "cuda", "requires_grad_", lazy=True)
def same(x: TaylorModel, *args: Any, **kwargs: Any) -> TaylorModel:
    """Copies are the identity."""
    return x


@implements("to", "type", "type_as", lazy=True)
def to(x: TaylorModel, *args: Any, **kwargs: Any) -> TaylorModel:
    """A cast is the identity where the executing type, if any, is no finer than the one cast to."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.dtype):
            check_cast(x.execution, value)
        elif isinstance(value, Tensor):
            check_cast(x.execution, value.dtype)
    return x


@implements("double", lazy=True)
def double(x: TaylorModel) -> TaylorModel:
    return x


@implements("float", lazy=True)
def float_(x: TaylorModel) -> TaylorModel:
    return to(x, torch.float32)


@implements("reshape", "view", lazy=True)
def reshape(x: TaylorModel, *shape: Any) -> TaylorModel:
    rem = x.rem.reshape(_sizes(shape))
    if x.den:
        # Denominators follow when the dimensions in which they vary stay where they are, in front.
        lead = max((i + 1 for factor in x.den for i, n in enumerate(factor.shape) if n > 1), default=0)
        if rem.shape[:lead] != x.shape[:lead]:
            return reshape(x.plain(), *shape)
    den = tuple(_reshape_factor(factor, rem.ndim, lead) for factor in x.den)
    return x.with_(x.coef.reshape(len(x.coef), *rem.shape), rem, den)


def _reshape_factor(factor: TaylorModel, ndim: int, lead: int) -> TaylorModel:
    shape = (*factor.shape[:lead], *[1] * (ndim - lead))
    return factor.with_(factor.coef.reshape(len(factor.coef), *shape), factor.rem.reshape(shape))


@implements("reshape_as", "view_as")
def reshape_as(x: TaylorModel, other: Any) -> TaylorModel:
    return reshape(x, tuple(other.shape))


@implements("flatten", "ravel", lazy=True)
def flatten(x: TaylorModel, start_dim: int = 0, end_dim: int = -1) -> TaylorModel:
    return reshape(x, tuple(x.rem.flatten(start_dim, end_dim).shape))


@implements("unflatten")
def unflatten(x: TaylorModel, dim: int, sizes: Sequence[int]) -> TaylorModel:
    at = dim % x.ndim
    return reshape(x, (*x.shape[:at], *sizes, *x.shape[at + 1 :]))


@implements("squeeze", lazy=True)
def squeeze(x: TaylorModel, dim: Any = None) -> TaylorModel:
    dims = list(range(x.ndim)) if dim is None else [d % x.ndim for d in (dim if isinstance(dim, Sequence) else [dim])]
    single = [d for d in dims if x.shape[d] == 1]
    return _map(x, lambda t, offset: t.squeeze([d + offset for d in single]) if single else t)


@implements("unsqueeze", lazy=True)
def unsqueeze(x: TaylorModel, dim: int) -> TaylorModel:
    return _map(x, lambda t, offset: t.unsqueeze(dim + offset if dim >= 0 else dim))


@implements("transpose", lazy=True)
def transpose(x: TaylorModel, dim0: int, dim1: int) -> TaylorModel:
    first, second = dim0 % x.ndim, dim1 % x.ndim
    return _map(x, lambda t, offset: t.transpose(first + offset, second + offset))


@implements("t")
def t(x: TaylorModel) -> TaylorModel:
    return transpose(x, 0, 1) if x.ndim == 2 else x


@implements("permute", lazy=True)
def permute(x: TaylorModel, *dims: Any) -> TaylorModel:
    order = [d % x.ndim for d in _sizes(dims)]
    return _map(x, lambda t, offset: t.permute(*range(offset), *[d + offset for d in order]))


@implements("movedim", lazy=True)
def movedim(x: TaylorModel, source: Any, destination: Any) -> TaylorModel:
    first = [d % x.ndim for d in (source if isinstance(source, Sequence) else [source])]
    second = [d % x.ndim for d in (destination if isinstance(destination, Sequence) else [destination])]
    return _map(x, lambda t, offset: t.movedim([d + offset for d in first], [d + offset for d in second]))


@implements("expand", lazy=True)
def expand(x: TaylorModel, *sizes: Any) -> TaylorModel:
    rem = x.rem.expand(_sizes(sizes))
    if x.den and rem.ndim > x.ndim:
        return expand(x.plain(), *sizes)
    return x.with_(spread(x.coef, rem.ndim).expand(len(x.coef), *rem.shape), rem, x.den)


@implements("broadcast_to")
def broadcast_to(x: TaylorModel, size: Sequence[int]) -> TaylorModel:
    return expand(x, tuple(size))


@implements("expand_as")
def expand_as(x: TaylorModel, other: Any) -> TaylorModel:
    return expand(x, tuple(other.shape))


@implements("flip")
def flip(x: TaylorModel, *dims: Any) -> TaylorModel:
    axes = [d % x.ndim for d in _sizes(dims)]
    return x.with_(x.coef.flip([d + 1 for d in axes]), x.rem.flip(axes))


@implements("roll")
def roll(x: TaylorModel, shifts: Any, dim: int = -1) -> TaylorModel:
    return x.with_(x.coef.roll(shifts, _later(dim)), x.rem.roll(shifts, dim))


@implements("index_select")
def index_select(x: TaylorModel, dim: int, index: Tensor) -> TaylorModel:
    return x.with_(x.coef.index_select(_later(dim), index), x.rem.index_select(dim, index))


@implements("select")
def select(x: TaylorModel, dim: int, index: int) -> TaylorModel:
    return x.with_(x.coef.select(_later(dim), index), x.rem.select(dim, index))


@implements("narrow")
def narrow(x: TaylorModel, dim: int, start: int, length: int) -> TaylorModel:
    return x.with_(x.coef.narrow(_later(dim), start, length), x.rem.narrow(dim, start, length))


@implements("unbind")
def unbind(x: TaylorModel, dim: int = 0) -> tuple[TaylorModel, ...]:
    return tuple(select(x, dim, i) for i in range(x.shape[dim]))


@implements("split", "split_with_sizes")
def split(x: TaylorModel, split_size: Any, dim: int = 0) -> tuple[TaylorModel, ...]:
    return _pieces(x, [piece.shape[dim] for piece in torch.split(x.rem, split_size, dim)], dim)


@implements("chunk")
def chunk(x: TaylorModel, chunks: int, dim: int = 0) -> tuple[TaylorModel, ...]:
    return _pieces(x, [piece.shape[dim] for piece in x.rem.chunk(chunks, dim)], dim)


def _pieces(x: TaylorModel, lengths: list[int], dim: int) -> tuple[TaylorModel, ...]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return tuple(narrow(x, dim, start, length) for start, length in zip(starts, lengths, strict=True))


def common(models: Sequence[Any]) -> list[TaylorModel]:
    """Models and constants over one support and one degree, ready to be put side by side."""
    models = [m.plain() if isinstance(m, TaylorModel) else m for m in models]
    like = next(m for m in models if isinstance(m, TaylorModel))
    converted = [operand(m, like) for m in models]
    space = like.space
    for model in converted:
        space = joint_space(model, TaylorModel(like.coef, like.rem, space, like.support, like.degree))
    support = tuple(sorted({v for m in converted for v in m.support}))
    degree = min(max(m.degree for m in converted), space.cap(len(support)))
    lifted = [lift(m, support, degree) for m in converted]
    rows = max(len(m.coef) for m in lifted)
    return [TaylorModel(_pad(m.coef, rows), m.rem, space, support, degree) for m in lifted]


def _pad(coef: Tensor, rows: int) -> Tensor:
    if len(coef) == rows:
        return coef
    return torch.cat([coef, coef.new_zeros(rows - len(coef), *coef.shape[1:])])


@implements("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> TaylorModel:
    models = common(tensors)
    coef = torch.cat([m.coef for m in models], _later(dim))
    return models[0].with_(coef, torch.cat([m.rem for m in models], dim))


@implements("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> TaylorModel:
    models = common(tensors)
    coef = torch.stack([m.coef for m in models], _later(dim))
    return models[0].with_(coef, torch.stack([m.rem for m in models], dim))


@implements("zeros_like")
def zeros_like(x: TaylorModel, **kwargs: Any) -> Tensor:
    return torch.zeros_like(x.rem)


@implements("ones_like")
def ones_like(x: TaylorModel, **kwargs: Any) -> Tensor:
    return torch.ones_like(x.rem)


@implements("full_like")
def full_like(x: TaylorModel, fill_value: float, **kwargs: Any) -> Tensor:
    return torch.full_like(x.rem, fill_value)


@implements("new_tensor")
def new_tensor(x: TaylorModel, data: Any, **kwargs: Any) -> Tensor:
    return x.rem.new_tensor(data)


@implements("new_zeros")
def new_zeros(x: TaylorModel, *size: Any, **kwargs: Any) -> Tensor:
    return x.rem.new_zeros(_sizes(size))


@implements("new_ones")
def new_ones(x: TaylorModel, *size: Any, **kwargs: Any) -> Tensor:
    return x.rem.new_ones(_sizes(size))
