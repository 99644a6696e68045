"""How convolutions and poolings of torch.nn are written in the formula language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onelayer.recording.dispatch import operation
from onelayer.recording.symbolic import Recording, Symbolic, lift
from onelayer.windowed import averaged, convolved, largest


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
    found: Symbolic = convolved(x, weight, bias, stride, padding, dilation, groups)
    return found


def _average(axes: int) -> Callable[..., Symbolic]:
    """The mean of every window."""

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
        x = lift(tape, input)
        how = (ceil_mode, count_include_pad, divisor_override)
        found: Symbolic = averaged(x, axes, kernel_size, stride, padding, *how)
        return found

    return average


def _maximum(axes: int) -> Callable[..., Symbolic]:
    """The largest entry of every window."""

    def maximum(
        tape: Recording,
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Symbolic:
        x = lift(tape, input)
        found: Symbolic = largest(x, axes, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return found

    return maximum


for _axes in (1, 2):
    operation(f"avg_pool{_axes}d")(_average(_axes))
    operation(f"max_pool{_axes}d")(_maximum(_axes))
