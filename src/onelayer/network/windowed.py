"""ATen convolutions and poolings as steps of a network: entries arranged in windows, then mapped or reduced."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from onelayer.errors import UnsupportedOperation
from onelayer.network.aten import known_constant, rule
from onelayer.network.builder import Known, NetworkWriter, Value, moved
from onelayer.windows import BORDER, Places, covering, windows, without_border


def _seen(build: NetworkWriter, x: Known, places: Places) -> Known:
    """(1, C, *spatial) -> (1, C, *positions, entries of a window), zero on the border."""
    flat = moved(x, lambda v: v.reshape(*v.shape[:2], -1))
    end = flat.shape[-1]
    # One zero for all of the border: places are cheap, entries are not.
    if bool((places == BORDER).any()):
        border = np.zeros((*flat.shape[:2], 1))
        flat = build.join([flat, border], 2)
    # BORDER is the zero at the end.
    return moved(flat, lambda v: v[:, :, places % (end + 1)])


@rule("conv1d", "conv2d", "conv3d")
def convolution(
    build: NetworkWriter,
    x: Value,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Known:
    """A linear map of every window."""
    rows = known_constant(weight)
    outputs, channels, *kernel = rows.shape
    offset = None if bias is None else known_constant(bias)
    places = windows(x.shape[2:], tuple(kernel), stride, padding, dilation)
    seen = _seen(build, x, places)
    each = outputs // groups
    parts: list[Known] = []
    for at in range(groups):
        own = slice(at * each, (at + 1) * each)
        part = _rows(seen, slice(at * channels, (at + 1) * channels))
        shift = None if offset is None else offset[own]
        matrix = rows[own].reshape(each, -1)
        parts.append(build.affine(part, matrix, shift))
    joined = parts[0] if groups == 1 else build.join(parts, -1)
    return moved(joined, lambda v: np.moveaxis(v, -1, 1))


def _rows(seen: Known, channels: slice) -> Value:
    """Windows of some channels, (1, *positions, C K)."""

    def arranged(v: Any) -> Any:
        last = np.moveaxis(v[:, channels], 1, -2)
        return last.reshape(*last.shape[:-2], -1)

    found = moved(seen, arranged)
    if not isinstance(found, Value):
        raise UnsupportedOperation("a convolution of a constant", "it is to be folded by the reader")
    return found


@rule("avg_pool1d", "avg_pool2d")
def average(
    build: NetworkWriter,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Known:
    """The mean of every window."""
    seen_at = windows(x.shape[2:], kernel_size, stride, padding)
    places = covering(seen_at, ceil_mode, count_include_pad, divisor_override)
    seen = _seen(build, x, places)
    if not isinstance(seen, Value):
        raise UnsupportedOperation("a pooling of a constant", "it is to be folded by the reader")
    return build.reduced("mean", seen, [-1], False)


@rule("max_pool1d", "max_pool2d")
def largest(
    build: NetworkWriter,
    x: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Known:
    """The largest entry of every window, one after the other."""
    if ceil_mode:
        raise UnsupportedOperation("a maximum pooling of this kind", "use ceil_mode=False")
    seen_at = windows(x.shape[2:], kernel_size, stride, padding, dilation)
    places = without_border(seen_at)
    seen = _seen(build, x, places)
    found = moved(seen, lambda v: v[..., 0])
    for at in range(1, places.shape[-1]):
        found = build.combine("maximum", found, moved(seen, partial(_entry, at=at)))
    return found


def _entry(v: Any, at: int) -> Any:
    return v[..., at]
