"""What a box costs: counted in tensor elements, so that decisions do not depend on timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onelayer.proof.error import ErrorFunction
from onelayer.taylor.kernels import active, tallied

# Measured: from 512 boxes on a call costs little beside them, in 4 to 8 dimensions.
CPU_BYTES, CPU_CHUNK = 2**28, 4096
# Of the free memory; so many boxes that the kernels of an operation are no longer mostly launch.
CUDA_SHARE, CUDA_CHUNK = 0.25, 2**18
LIVE = 4  # large tensors alive at the same time
# Fitted to proofs in 2, 4, 6 and 8 dimensions, orders 2 to 8.
SECONDS_PER_ELEMENT, SECONDS_PER_OPERATION = 6e-10, 4e-6
# Enough that tables which do not grow with the boxes do not count as theirs.
PROBED_BOXES = 16
_PRODUCTS = ("matmul", "__matmul__", "bmm", "mm", "tensordot", "einsum", "linear")


class Meter(TorchFunctionMode):
    """Counts the elements that torch functions return, the multiplications of products, and the largest result."""

    def __init__(self) -> None:
        super().__init__()
        self.work = 0.0
        self.operations = 0
        self.largest = 0

    def tally(self, work: int, size: int) -> None:
        """Count one compiled kernel."""
        self.operations += 1
        self.work += work
        self.largest = max(self.largest, size)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if not issubclass(kind, Tensor):
                # A Taylor model's own operations are what is to be counted.
                with self:
                    return kind.__torch_function__(func, types, args, kwargs)
        result = func(*args, **kwargs)
        self.operations += 1
        factor = _factor(args) if getattr(func, "__name__", "") in _PRODUCTS else 1.0
        for out in result if isinstance(result, tuple | list) else (result,):
            if isinstance(out, Tensor):
                # An expanded view has more elements than memory, and costs what its memory does.
                stored = out.untyped_storage().nbytes() // out.element_size()
                elements = min(out.numel(), stored)
                self.work += elements * factor
                self.largest = max(self.largest, elements)
        return result


def _factor(args: tuple[Any, ...]) -> float:
    """What an element of a product costs, by the length of the sum that it is."""
    lengths = (a.shape[-1] for a in args if isinstance(a, Tensor) and a.ndim)
    return 1 + max(lengths, default=0) / 8


@dataclass(frozen=True)
class Cost:
    """Estimated seconds of one box inside a chunk of ``chunk`` boxes. A model of cost, not a measurement."""

    chunk: int
    seconds: float


def cost_of_box(error: ErrorFunction, order: int) -> Cost:
    """The cost of enclosing g on the whole domain."""
    low = error.box.lower.flatten().expand(PROBED_BOXES, -1).to(error.device)
    high = error.box.upper.flatten().expand(PROBED_BOXES, -1).to(error.device)
    return metered(lambda: error.bounded(low, high, order), PROBED_BOXES, error.device)


def sized(run: Callable[[], Any], boxes: int, device: torch.device) -> Cost:
    """A rough cost that is got nearly for nothing where kernels compute: from what they report of themselves."""
    # Where no compiled kernel reports its work, every torch function is counted.
    if device.type == "cuda" or not active():
        return metered(run, boxes, device)
    meter = Meter()
    with tallied(meter.tally):
        run()
    return _cost(meter, boxes, device, 1)


def metered(run: Callable[[], Any], boxes: int, device: torch.device, calls: int = 1) -> Cost:
    """Run boxes, in so many calls, under a meter; the chunk is the largest power of two whose tensors fit."""
    meter = Meter()
    with tallied(meter.tally), meter:
        run()
    return _cost(meter, boxes, device, calls)


def _cost(meter: Meter, boxes: int, device: torch.device, calls: int) -> Cost:
    largest = max(meter.largest, 1) * calls / boxes
    work = meter.work / boxes
    room, most = _room(device)
    fitting = int(room / (8 * LIVE * largest))
    power = 1 << max(0, fitting.bit_length() - 1)
    chunk = max(1, min(most, power))
    overhead = meter.operations / calls * SECONDS_PER_OPERATION / chunk
    return Cost(chunk, work * SECONDS_PER_ELEMENT + overhead)


def _room(device: torch.device) -> tuple[float, int]:
    """Bytes for the tensors of one chunk on this device, and its most boxes."""
    if device.type != "cuda":
        return CPU_BYTES, CPU_CHUNK
    free, _ = torch.cuda.mem_get_info(device)
    return CUDA_SHARE * free, CUDA_CHUNK
