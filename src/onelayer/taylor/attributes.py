"""What a tensor says of itself, copies and casts of it, and constants made in its likeness."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import operand
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import implements, unhandled
from onelayer.taylor.rounding import check_cast, narrows, rounded_once, widens


@implements("dim", lazy=True)
def dim(x: TaylorModel) -> int:
    """Number of dimensions."""
    return x.ndim


@implements("size", lazy=True)
def size(x: TaylorModel, dim: int | None = None) -> Any:
    """The shape, or one side of it."""
    if dim is None:
        return x.shape
    return x.shape[dim]


@implements("numel", lazy=True)
def numel(x: TaylorModel) -> int:
    """Number of entries."""
    return x.rem.numel()


@implements("is_floating_point", lazy=True)
def is_floating_point(x: TaylorModel) -> bool:
    """It stands for floating numbers."""
    return True


@implements("contiguous", "clone", lazy=True)
def clone(x: TaylorModel, *, memory_format: Any = None) -> TaylorModel:
    """A copy is the same: nothing is ever written into a model."""
    return x


@implements("detach", lazy=True)
def detach(x: TaylorModel) -> TaylorModel:
    """The model itself: it has no gradient."""
    return x


@implements("to", lazy=True)
def to(
    x: TaylorModel,
    *target: Any,
    dtype: Any = None,
    device: Any = None,
    tensor: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> TaylorModel:
    """The same numbers, wherever they lie, for the casts that ``check_cast`` allows."""
    for value in (*target, tensor, dtype):
        kind = value.dtype if isinstance(value, Tensor | TaylorModel) else value
        if isinstance(kind, torch.dtype):
            x = _cast(x, kind)
        elif not isinstance(kind, torch.device | str | bool | None):
            raise UnsupportedOperation(f"to({value})", "use torch.float64")
    return x


def _cast(x: TaylorModel, dtype: torch.dtype) -> TaylorModel:
    """What is executed in float32 goes on in float64 after a cast to it; a cast to a narrow format is a rounding."""
    if narrows(x.execution, dtype):
        x = x.plain()
        rounded = rounded_once(x.rem, _reach(x), dtype)
        return x.with_(x.coef, rounded).tagged(dtype)
    if not widens(x.execution, dtype):
        check_cast(x.execution, dtype)
    if x.execution in (None, dtype):
        return x
    return x.tagged(dtype)


def _reach(x: TaylorModel) -> Tensor:
    """A bound of |x| on every box."""
    low, high = x.range()
    return torch.maximum(low.abs(), high.abs())


@implements("double", lazy=True)
def double(x: TaylorModel, *, memory_format: Any = None) -> TaylorModel:
    """A cast to float64, which changes nothing."""
    return _cast(x, torch.float64)


@implements("float", lazy=True)
def float_(x: TaylorModel, *, memory_format: Any = None) -> TaylorModel:
    """A cast to float32, where that is executed."""
    return _cast(x, torch.float32)


def _like(name: str, value: float) -> None:
    """One number in the shape of a model, as torch's function of this name has it."""

    @implements(name)
    def filled(
        x: TaylorModel,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> TaylorModel:
        unhandled(name, layout=layout, pin_memory=pin_memory, requires_grad=requires_grad)
        return _filled(x, value, dtype)


_like("zeros_like", 0.0)
_like("ones_like", 1.0)


@implements("full_like")
def full_like(
    x: TaylorModel,
    fill_value: float,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> TaylorModel:
    """One value in the shape of a model."""
    unhandled("full_like", layout=layout, pin_memory=pin_memory, requires_grad=requires_grad)
    return _filled(x, fill_value, dtype)


def _filled(x: TaylorModel, value: Any, dtype: Any) -> TaylorModel:
    """A constant model, whose further operations are executed like those of any other."""
    check_cast(x.execution, dtype)
    number = operand(value, x)
    if number.support or number.ndim:
        raise UnsupportedOperation("full_like with more than a number")
    return number.with_(number.coef.expand(1, *x.shape), number.rem.expand(x.shape))
