"""What a box costs: counted in tensor elements, so that decisions do not depend on timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from onelayer.certify.error import ErrorFunction

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**32}
MAX_CHUNK = 4096
LIVE = 4  # large tensors alive at the same time
SECONDS_PER_ELEMENT = 1e-9
SECONDS_PER_OPERATION = 2e-5
PROBED_BOXES = 4
_PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm, torch.ops.aten.baddbmm}


class Meter(TorchDispatchMode):
    """Counts the elements that operations write, the multiplications of matrix products, and the largest result."""

    def __init__(self) -> None:
        super().__init__()
        self.work = 0.0
        self.operations = 0
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for out in result if isinstance(result, tuple | list) else (result,):
            if isinstance(out, Tensor):
                elements = min(out.numel(), out.untyped_storage().nbytes() // out.element_size())
                inner = args[-1].shape[-2] if func.overloadpacket in _PRODUCTS else 0
                self.work += elements * (1 + inner / 8)
                self.largest = max(self.largest, elements)
        return result


@dataclass(frozen=True)
class Cost:
    """Estimated seconds of one box inside a chunk of ``chunk`` boxes. A model of cost, not a measurement."""

    chunk: int
    seconds: float


def cost_of_box(error: ErrorFunction, order: int) -> Cost:
    """Run a few boxes under a meter; the chunk is the largest power of two whose tensors stay inside the budget."""
    with Meter() as meter:
        low, high = (side.flatten().expand(PROBED_BOXES, -1) for side in (error.box.lower, error.box.upper))
        error.enclose(low, high, order)
    largest, work = meter.largest / PROBED_BOXES, meter.work / PROBED_BOXES
    room = CHUNK_BYTES.get(error.device.type, CHUNK_BYTES["cpu"]) / (8 * LIVE * largest)
    chunk = max(1, min(MAX_CHUNK, 1 << max(0, int(room).bit_length() - 1)))
    return Cost(chunk, work * SECONDS_PER_ELEMENT + meter.operations * SECONDS_PER_OPERATION / chunk)
