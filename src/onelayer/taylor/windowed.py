"""Convolutions and poolings on Taylor models: entries are moved into windows, which are then reduced as any array is.

A convolution is enclosed as sums of products in any order; algorithms that transform windows first (Winograd, Fourier)
round otherwise and are not what a certificate of execution speaks of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import implements
from onelayer.windowed import averaged, convolved, largest


@implements("conv1d", "conv2d", "conv3d")
def convolution(
    x: TaylorModel,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> TaylorModel:
    """A linear map of every window."""
    if isinstance(weight, TaylorModel):
        raise UnsupportedOperation("a convolution", "it takes constant weights")
    found: TaylorModel = convolved(x, weight, bias, stride, padding, dilation, groups)
    return found


@implements("avg_pool1d")
def avg_pool1d(
    x: TaylorModel,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> TaylorModel:
    """The mean of every window."""
    found: TaylorModel = averaged(x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad)
    return found


@implements("avg_pool2d")
def avg_pool2d(
    x: TaylorModel,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> TaylorModel:
    """The mean of every window."""
    how = (ceil_mode, count_include_pad, divisor_override)
    found: TaylorModel = averaged(x, 2, kernel_size, stride, padding, *how)
    return found


def _maximum(axes: int) -> Callable[..., TaylorModel]:
    """The largest entry of every window."""

    def maximum(
        x: TaylorModel,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> TaylorModel:
        found: TaylorModel = largest(x, axes, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return found

    return maximum


for _axes in (1, 2):
    implements(f"max_pool{_axes}d")(_maximum(_axes))
