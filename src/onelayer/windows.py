"""Windows of convolutions and poolings: which entries of an array each of them reads, as places counted row-major."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from onelayer.errors import UnsupportedOperation

Places = NDArray[np.int64]
# The place of an entry that lies outside the array.
BORDER = -1
COVERED = "use ceil_mode=False, and no padding or count_include_pad=True"  # what a mean over windows is here


def sides(value: Any, count: int) -> tuple[int, ...]:
    """One whole number per axis; one number, or a list of one, is meant for all."""
    numbers = tuple(value) if isinstance(value, Sequence) else (value,)
    if len(numbers) == 1:
        numbers = numbers * count
    return tuple(map(int, numbers))


def windows(shape: Sequence[int], kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Places:
    """(*positions, entries of a window) for an array of this shape; BORDER in the padding."""
    count = len(shape)
    size = sides(kernel, count)
    apart = sides(dilation, count)
    around = _around(padding, size, apart)
    # Torch's poolings step by their own size unless told otherwise, in any of these ways.
    unsaid = stride is None or stride == () or stride == []
    step = sides(size if unsaid else stride, count)
    places = np.arange(math.prod(shape), dtype=np.int64)
    places = places.reshape(tuple(shape))
    places = np.pad(places, around, constant_values=BORDER)
    span = tuple(reach + 1 for reach in _reaches(size, apart))
    if any(reach > length for reach, length in zip(span, places.shape, strict=True)):
        raise UnsupportedOperation("a window", f"it spans {span}, the padded input has {places.shape}")
    # All windows are a view, so that taking every step-th of them, and every apart-th entry, costs nothing.
    seen = sliding_window_view(places, span)
    positions = tuple(slice(None, None, by) for by in step)
    entries = tuple(slice(None, None, gap) for gap in apart)
    seen = seen[positions + entries]
    return np.ascontiguousarray(seen).reshape(*seen.shape[:count], -1)


def _reaches(size: tuple[int, ...], apart: tuple[int, ...]) -> list[int]:
    """How far the last entry of a window is from its first, by axis."""
    return [gap * (side - 1) for side, gap in zip(size, apart, strict=True)]


def _around(padding: Any, size: tuple[int, ...], apart: tuple[int, ...]) -> list[tuple[int, int]]:
    """Entries before and after each axis."""
    if padding == "valid":
        return [(0, 0)] * len(size)
    if padding == "same":
        # An odd one goes to the end, as in torch.
        return [(both // 2, both - both // 2) for both in _reaches(size, apart)]
    return [(both, both) for both in sides(padding, len(size))]


def covering(places: Places, ceil_mode: bool, whole: bool, divisor: Any) -> Places:
    """Windows of a mean that divides by their size; UnsupportedOperation for a mean of another kind."""
    if ceil_mode or divisor is not None or (not whole and bool((places == BORDER).any())):
        raise UnsupportedOperation("an average pooling of this kind", COVERED)
    return places


def without_border(places: Places) -> Places:
    """Windows with another entry of their own in the place of one that lies outside: no maximum changes."""
    inside = (places != BORDER).argmax(-1)
    first = np.take_along_axis(places, inside[..., None], -1)
    if bool((first == BORDER).any()):
        raise UnsupportedOperation("a window", "it lies in the padding alone")
    return np.where(places == BORDER, first, places)
