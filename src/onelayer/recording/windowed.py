"""How convolutions and poolings of torch.nn are written in the formula language: entries in windows, then reduced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.recording.dispatch import operation
from onelayer.recording.network import linear
from onelayer.recording.reductions import amax, mean
from onelayer.recording.symbolic import Recording, Symbolic, lift
from onelayer.windows import BORDER, Places, windows, without_border

COVERED = "use ceil_mode=False, and no padding or count_include_pad=True"  # what a mean over windows is here


def _seen(tape: Recording, x: Symbolic, places: Places) -> Tensor:
    """Entries (B, C, positions, entries of a window), zero on the border."""
    batch, channels = x.ids.shape[:2]
    flat = x.ids.reshape(batch, channels, -1)
    zero = lift(tape, 0.0).ids.reshape(1, 1, 1).expand(batch, channels, 1)
    index = torch.from_numpy(places % (flat.shape[-1] + 1))  # BORDER is the zero at the end
    return torch.cat([flat, zero], -1)[:, :, index.flatten()].reshape(batch, channels, -1, places.shape[-1])


@operation("conv1d", "conv2d", "conv3d")
def convolution(
    tape: Recording,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Symbolic:
    """A linear map of every window."""
    x = lift(tape, input)
    rows = lift(tape, weight).ids
    outputs, channels, *kernel = rows.shape
    if x.ndim != len(kernel) + 2:
        raise UnsupportedOperation("a convolution", "it takes a batch of points with channels")
    places = windows(x.ids.shape[2:], tuple(kernel), stride, padding, dilation)
    seen = _seen(tape, x, places)
    each = outputs // groups
    parts = []
    for at in range(groups):
        part = seen[:, at * channels : (at + 1) * channels].transpose(1, 2).flatten(2)  # (B, P, C K)
        own = slice(at * each, (at + 1) * each)
        offset = None if bias is None else Symbolic(tape, lift(tape, bias).ids[own])
        parts.append(linear(tape, Symbolic(tape, part), Symbolic(tape, rows[own].flatten(1)), offset).ids)
    joined = torch.cat(parts, -1).transpose(1, 2)
    return Symbolic(tape, joined.reshape(len(x.ids), outputs, *places.shape[:-1]))


@operation("avg_pool1d", "avg_pool2d")
def average(
    tape: Recording,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Symbolic:
    """The mean of every window."""
    x = lift(tape, input)
    places = windows(x.ids.shape[2:], kernel_size, stride, padding)
    short = not count_include_pad and bool((places == BORDER).any())
    if ceil_mode or divisor_override is not None or short:
        raise UnsupportedOperation("an average pooling of this kind", COVERED)
    found = mean(tape, Symbolic(tape, _seen(tape, x, places)), -1)
    return Symbolic(tape, found.ids.reshape(*x.ids.shape[:2], *places.shape[:-1]))


@operation("max_pool1d", "max_pool2d")
def largest(
    tape: Recording,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Symbolic:
    """The largest entry of every window."""
    if ceil_mode or return_indices:
        raise UnsupportedOperation("a maximum pooling of this kind", "use ceil_mode=False and return_indices=False")
    x = lift(tape, input)
    places = windows(x.ids.shape[2:], kernel_size, stride, padding, dilation)
    found = amax(tape, Symbolic(tape, _seen(tape, x, without_border(places))), -1)
    return Symbolic(tape, found.ids.reshape(*x.ids.shape[:2], *places.shape[:-1]))
