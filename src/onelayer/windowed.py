"""Convolutions and poolings of torch.nn on whatever torch functions apply to: windows are cut out, then reduced."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import linear

from onelayer.errors import UnsupportedOperation
from onelayer.windows import BORDER, Places, covering, windows, without_border


def _seen(x: Any, places: Places) -> Any:
    """(B, C, *spatial) -> (B, C, positions, entries of a window), zero on the border."""
    batch, channels, *spatial = x.shape
    size = math.prod(spatial)
    flat = x.reshape(batch, channels, size)
    # Only where there is padding: to append an entry copies the whole array.
    if bool((places == BORDER).any()):
        zero = torch.zeros(batch, channels, 1, dtype=torch.float64, device=x.device)
        flat = torch.cat([flat, zero], -1)
    # The remainder of BORDER, -1, is ``size``: the place of the zero at the end.
    index = torch.from_numpy(places % (size + 1)).to(x.device)
    seen = flat[:, :, index.flatten()]
    return seen.reshape(batch, channels, -1, places.shape[-1])


def convolved(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A linear map of every window, for each group of channels one."""
    outputs, channels, *kernel = weight.shape
    if x.ndim != len(kernel) + 2:
        raise UnsupportedOperation("a convolution", "it takes a batch of points with channels")
    places = windows(x.shape[2:], tuple(kernel), stride, padding, dilation)
    seen = _seen(x, places)
    each = outputs // groups
    parts = []
    for at in range(groups):
        read = slice(at * channels, (at + 1) * channels)
        written = slice(at * each, (at + 1) * each)
        part = seen[:, read].transpose(1, 2).flatten(2)  # (B, P, C K)
        own_bias = None if bias is None else bias[written]
        parts.append(linear(part, weight[written].flatten(1), own_bias))
    joined = parts[0] if groups == 1 else torch.cat(parts, -1)
    positions = places.shape[:-1]
    return joined.transpose(1, 2).reshape(x.shape[0], outputs, *positions)


def averaged(
    x: Any, axes: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, whole: bool, divisor: Any = None
) -> Any:
    """The mean of every window; ``whole``: what lies in the padding counts as zero."""
    _need(x, axes)
    places = windows(x.shape[2:], kernel, stride, padding)
    places = covering(places, ceil_mode, whole, divisor)
    means = torch.mean(_seen(x, places), -1)
    return means.reshape(*x.shape[:2], *places.shape[:-1])


def largest(
    x: Any, axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    """The largest entry of every window."""
    _need(x, axes)
    if ceil_mode or indices:
        raise UnsupportedOperation("a maximum pooling of this kind", "use ceil_mode=False and return_indices=False")
    places = windows(x.shape[2:], kernel, stride, padding, dilation)
    # The padding of a maximum is -inf, not the zero of a sum.
    places = without_border(places)
    maxima = torch.amax(_seen(x, places), -1)
    return maxima.reshape(*x.shape[:2], *places.shape[:-1])


def _need(x: Any, axes: int) -> None:
    if x.ndim != axes + 2:
        raise UnsupportedOperation("a pooling", "it takes a batch of points with channels")
