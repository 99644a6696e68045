"""Structural operations: they move entries about and round nothing.

A coefficient tensor carries the polynomial index in front, so a dimension d >= 0 of the model is d + 1 of the
coefficients, and a negative dimension is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onelayer.certify.core import TaylorModel, constant, implements, joint_space, lift, spread


def _later(dim: int) -> int:
    return dim + 1 if dim >= 0 else dim


def _sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else tuple(sizes)


@implements("getitem")
def getitem(x: TaylorModel, index: Any) -> TaylorModel:
    """Ints, slices, None, Ellipsis, index lists and index or boolean tensors, as for a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return x.with_(x.coef[(slice(None), *parts)], x.rem[index])


@implements("dim", "ndimension")
def dim(x: TaylorModel) -> int:
    return x.ndim


@implements("size")
def size(x: TaylorModel, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


@implements("numel")
def numel(x: TaylorModel) -> int:
    return x.rem.numel()


@implements("is_floating_point")
def is_floating_point(x: TaylorModel) -> bool:
    return True


@implements("to", "type", "type_as", "double", "contiguous", "clone", "detach", "cpu", "requires_grad_")
def same(x: TaylorModel, *args: Any, **kwargs: Any) -> TaylorModel:
    """Copies and casts are the identity: the enclosure is float64, executed types are a property of the space."""
    return x


@implements("reshape", "view")
def reshape(x: TaylorModel, *shape: Any) -> TaylorModel:
    rem = x.rem.reshape(_sizes(shape))
    return x.with_(x.coef.reshape(len(x.coef), *rem.shape), rem)


@implements("reshape_as", "view_as")
def reshape_as(x: TaylorModel, other: Any) -> TaylorModel:
    return reshape(x, tuple(other.shape))


@implements("flatten", "ravel")
def flatten(x: TaylorModel, start_dim: int = 0, end_dim: int = -1) -> TaylorModel:
    return reshape(x, tuple(x.rem.flatten(start_dim, end_dim).shape))


@implements("unflatten")
def unflatten(x: TaylorModel, dim: int, sizes: Sequence[int]) -> TaylorModel:
    return reshape(x, tuple(x.rem.unflatten(dim, tuple(sizes)).shape))


@implements("squeeze")
def squeeze(x: TaylorModel, dim: Any = None) -> TaylorModel:
    rem = x.rem.squeeze() if dim is None else x.rem.squeeze(dim)
    return x.with_(x.coef.reshape(len(x.coef), *rem.shape), rem)


@implements("unsqueeze")
def unsqueeze(x: TaylorModel, dim: int) -> TaylorModel:
    return x.with_(x.coef.unsqueeze(_later(dim)), x.rem.unsqueeze(dim))


@implements("transpose")
def transpose(x: TaylorModel, dim0: int, dim1: int) -> TaylorModel:
    return x.with_(x.coef.transpose(_later(dim0), _later(dim1)), x.rem.transpose(dim0, dim1))


@implements("mT")
def matrix_transpose(x: TaylorModel) -> TaylorModel:
    return transpose(x, -2, -1)


@implements("permute")
def permute(x: TaylorModel, *dims: Any) -> TaylorModel:
    order = [d % x.ndim for d in _sizes(dims)]
    return x.with_(x.coef.permute(0, *[d + 1 for d in order]), x.rem.permute(order))


@implements("movedim")
def movedim(x: TaylorModel, source: Any, destination: Any) -> TaylorModel:
    shift = (lambda d: [_later(i) for i in d]) if isinstance(source, Sequence) else _later
    return x.with_(x.coef.movedim(shift(source), shift(destination)), x.rem.movedim(source, destination))


@implements("expand")
def expand(x: TaylorModel, *sizes: Any) -> TaylorModel:
    rem = x.rem.expand(_sizes(sizes))
    return x.with_(spread(x.coef, rem.ndim).expand(len(x.coef), *rem.shape), rem)


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


@implements("iter")
def iterate(x: TaylorModel) -> Any:
    return iter(unbind(x))


@implements("split", "split_with_sizes")
def split(x: TaylorModel, split_size: Any, dim: int = 0) -> tuple[TaylorModel, ...]:
    return _pieces(x, [len_.shape[dim] for len_ in x.rem.split(split_size, dim)], dim)


@implements("chunk")
def chunk(x: TaylorModel, chunks: int, dim: int = 0) -> tuple[TaylorModel, ...]:
    return _pieces(x, [piece.shape[dim] for piece in x.rem.chunk(chunks, dim)], dim)


def _pieces(x: TaylorModel, lengths: list[int], dim: int) -> tuple[TaylorModel, ...]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return tuple(narrow(x, dim, start, length) for start, length in zip(starts, lengths, strict=True))


def common(models: Sequence[Any]) -> list[TaylorModel]:
    """Models and constants over one support and one degree, ready to be put side by side."""
    like = next(m for m in models if isinstance(m, TaylorModel))
    converted = [constant(m, like) for m in models]
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
