"""Grid memory on a GPU: one fused kernel per call, chosen where it computes the same thing, eager code elsewhere.

The kernel takes float32 queries over a grid of one or two axes. Its rounding is inside what a certificate of float32
execution allows (taylor/attention.py): logits are sums of products in some order; exponentials of differences to the
largest logit are within 20 ulp; e_1 is divided by its sum after the values are added up, not before, which changes no
relative error, and nothing overflows that the certificate does not call undecided, because its bound on what is added
up leaves a factor of MOST_KEYS to the largest number. What is not a number stays so.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from onelayer.ground import foreign_modes

Eager = Callable[[Tensor, Sequence[Tensor], Tensor], Tensor]

MOST_KEYS = 2**12  # of an axis: see above
# Of a query: the kernel writes out the sum over it.
MOST_WIDTH = 16
LARGEST = 2**31  # its indices are 32-bit
# Compute capability from which on it was written for: enough shared memory for its tiles.
SUPPORTED = (8, 0)
# Best of those measured on an H200: queries per program, its warps, keys in one turn of the inner loop.
BLOCK, WARPS, UNROLL = 128, 4, 16


def fused(query: Tensor, axes: Sequence[Tensor], values: Tensor, eager: Eager) -> Tensor | None:
    """The average over the grid by the kernel, or None where it does not apply; gradients are those of ``eager``."""
    if not _applies(query, axes, values):
        return None
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, values, *axes)):
        result: Tensor = _GridAverage.apply(eager, query, values, *axes)  # type: ignore[no-untyped-call]
        return result
    return _launched(query, axes, values)


@cache
def _program() -> Any:
    """Triton's side, or None where it is not installed or too old."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        return importlib.import_module("onelayer.layer.grid_triton")
    # An older Triton lacks Gluon, or parts of it.
    except (ImportError, AttributeError):
        return None


def _applies(query: Tensor, axes: Sequence[Tensor], values: Tensor) -> bool:
    if not all(map(_readable, (query, values, *axes))):
        return False
    return _fits(query, axes, values) and _plainly(query.device)


def _readable(x: Any) -> bool:
    # By type, not isinstance: a subclass may mean something else by every operation.
    plain = type(x) in (Tensor, nn.Parameter)
    return plain and x.is_cuda and x.dtype == torch.float32


def _fits(query: Tensor, axes: Sequence[Tensor], values: Tensor) -> bool:
    # What the kernel was written for; anything else is computed by torch.
    width = query.shape[-1]
    most = max(map(len, axes))
    if len(axes) > 2 or width > MOST_WIDTH or most > MOST_KEYS:
        return False
    outputs = query.numel() // width * values.shape[-1]
    largest = max(outputs, query.numel(), values.numel())
    return outputs > 0 and largest < LARGEST


def _plainly(device: torch.device) -> bool:
    """Whether torch runs without transforms, modes or compilers that want to see every operation."""
    watched = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    dual = forward_ad._current_level >= 0
    if watched or dual or foreign_modes():
        return False
    return torch.cuda.get_device_capability(device) >= SUPPORTED and _program() is not None


def _launched(query: Tensor, axes: Sequence[Tensor], values: Tensor) -> Tensor:
    """Run the kernel: queries (..., N, d_k), axes (M_a, d_k), values (M_1, [M_2,] d_v) -> (..., N, d_v)."""
    program = _program()
    side = program.SIDE.value
    flat = query.detach().reshape(-1, query.shape[-1])
    flat = flat.contiguous()
    # One axis is two of which the first has one key, zero: its softmax is one.
    if len(axes) == 1:
        axes = [torch.zeros_like(axes[0][:1]), axes[0]]
        values = values[None]
    first, second = (axis.detach().contiguous() for axis in axes)
    table = values.detach().movedim(-1, 0).contiguous()  # (d_v, M_1, M_2)
    out = torch.empty((len(flat), len(table)), dtype=flat.dtype, device=flat.device)
    blocks = -(-len(flat) // BLOCK)
    grid = (blocks, len(table))
    with torch.cuda.device(flat.device):
        program.grid_kernel[grid](
            flat,
            first,
            second,
            table,
            out,
            len(flat),
            len(first),
            len(second),
            len(table),
            WIDTH=flat.shape[1],
            BLOCK=BLOCK,
            LAYOUT=program.tiles(WARPS),
            UNROLL=UNROLL,
            EVEN=all(len(axis) % side == 0 for axis in axes),
            SMALL=all(len(axis) <= side for axis in axes),
            num_warps=WARPS,
        )
    return out.reshape(*query.shape[:-1], len(table))


class _GridAverage(torch.autograd.Function):
    """The kernel forwards, the eager form backwards."""

    @staticmethod
    def forward(ctx: Any, eager: Eager, query: Tensor, values: Tensor, *axes: Tensor) -> Tensor:
        """The average; what it was computed from is kept for the gradient."""
        ctx.eager = eager
        ctx.save_for_backward(query, values, *axes)
        return _launched(query, axes, values)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the eager form, computed again from the inputs; they can be differentiated once more."""
        # Whether somebody wants second derivatives: then this pass is recorded too.
        again = torch.is_grad_enabled()
        wanted = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            given = ctx.saved_tensors if again else [x.detach() for x in ctx.saved_tensors]
            sought = [x for x, want in zip(given, wanted, strict=True) if want]
            for x in sought:
                if not x.requires_grad:
                    x.requires_grad_()
            query, values, *axes = given
            average = ctx.eager(query, axes, values)
            slopes = torch.autograd.grad(average, sought, slope, create_graph=again, allow_unused=True)
        found = iter(slopes)
        # The first argument of ``forward`` is the eager function, which has no slope.
        return (None, *(next(found) if want else None for want in wanted))
