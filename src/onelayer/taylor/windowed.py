"""Convolutions and poolings on Taylor models: entries are moved into windows, which are then reduced as any array is.

A convolution is enclosed as sums of products in any order; algorithms that transform windows first (Winograd, Fourier)
round otherwise and are not what a certificate of execution speaks of.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import call, implements
from onelayer.windows import BORDER, Places, windows, without_border

COVERED = "use ceil_mode=False, and no padding or count_include_pad=True"  # what a mean over windows is here


def _seen(x: TaylorModel, places: Places) -> TaylorModel:
    """(B, C, *spatial) -> (B, C, positions, entries of a window), zero on the border."""
    batch, channels, *spatial = x.shape
    size = math.prod(spatial)
    flat: Any = x.reshape(batch, channels, size)
    if bool((places == BORDER).any()):
        zero = torch.zeros(batch, channels, 1, dtype=torch.float64, device=x.device)
        flat = call("cat", [flat, zero], -1)
    index = torch.from_numpy(places % (size + 1)).to(x.device)  # BORDER is the zero at the end
    seen: TaylorModel = flat[:, :, index.flatten()].reshape(batch, channels, -1, places.shape[-1])
    return seen


def _convolved(
    x: TaylorModel, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> TaylorModel:
    outputs, channels, *kernel = weight.shape
    if x.ndim != len(kernel) + 2 or isinstance(weight, TaylorModel):
        raise UnsupportedOperation("a convolution", "it takes a batch of points with channels, and constant weights")
    places = windows(x.shape[2:], tuple(kernel), stride, padding, dilation)
    seen = _seen(x, places)  # (B, C, P, K)
    matrix = weight.reshape(groups, outputs // groups, -1)
    offset = [None] * groups if bias is None else bias.reshape(groups, -1)
    parts = []
    for at in range(groups):
        part: Any = seen[:, at * channels : (at + 1) * channels]
        rows = part.transpose(1, 2).reshape(x.shape[0], -1, matrix.shape[-1])  # (B, P, C K)
        parts.append(call("linear", rows, matrix[at], offset[at]))
    joined: Any = parts[0] if groups == 1 else call("cat", parts, -1)
    shaped: TaylorModel = joined.transpose(1, 2).reshape(x.shape[0], outputs, *places.shape[:-1])
    return shaped


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
    return _convolved(x, weight, bias, stride, padding, dilation, groups)


def _averaged(
    x: TaylorModel, axes: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, whole: bool, divisor: Any
) -> TaylorModel:
    places = windows(x.shape[x.ndim - axes :], kernel, stride, padding)
    if ceil_mode or divisor is not None or (not whole and bool((places == BORDER).any())) or x.ndim != axes + 2:
        raise UnsupportedOperation("an average pooling of this kind", COVERED)
    found: TaylorModel = call("mean", _seen(x, places), -1).reshape(*x.shape[:2], *places.shape[:-1])
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
    return _averaged(x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


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
    return _averaged(x, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _largest(x: TaylorModel, axes: int, places: Places, ceil_mode: bool, return_indices: bool) -> TaylorModel:
    if ceil_mode or return_indices or x.ndim != axes + 2:
        raise UnsupportedOperation("a maximum pooling of this kind", "use ceil_mode=False and return_indices=False")
    found: TaylorModel = call("amax", _seen(x, without_border(places)), -1)
    shaped: TaylorModel = found.reshape(*x.shape[:2], *places.shape[:-1])
    return shaped


@implements("max_pool1d")
def max_pool1d(
    x: TaylorModel,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> TaylorModel:
    """The largest entry of every window."""
    return _largest(x, 1, windows(x.shape[-1:], kernel_size, stride, padding, dilation), ceil_mode, return_indices)


@implements("max_pool2d")
def max_pool2d(
    x: TaylorModel,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> TaylorModel:
    """The largest entry of every window."""
    return _largest(x, 2, windows(x.shape[-2:], kernel_size, stride, padding, dilation), ceil_mode, return_indices)
