"""What a module holds, and whether a proof can speak of it: numbers that can be read, in a format that is executed.

A proof runs a private copy of a module. Where its weights are in the format that is executed, nothing of it is
converted: a buffer in another format takes part as it does in the pass of the caller. Numbers are converted where that
is what is asked for, weights to another format, or everything for exact arithmetic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from onelayer.errors import OnelayerError, told
from onelayer.formats import NAMES, are_formats


def refuse_unfit(model: nn.Module) -> None:
    """OnelayerError for a module that runs other code than its own, or holds what is no plain tensor of numbers."""
    if any(part._compiled_call_impl is not None for part in model.modules()):
        raise OnelayerError("the model was compiled in place, and other code than its own runs; certify it before that")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        lack = _lack(tensor)
        if lack:
            raise OnelayerError(f"the model cannot be certified: {name[:60]!r} {lack}")
    for name, weight in model.named_parameters():
        number = weight.is_floating_point() or weight.is_complex()
        if number and not are_formats([weight.dtype]):
            raise OnelayerError(f"the weight {name[:60]!r} is in {weight.dtype}; the formats are {', '.join(NAMES)}")


def _lack(tensor: Tensor) -> str:
    """What keeps a proof from reading a tensor; nothing if it may be read."""
    if is_lazy(tensor):
        return "is not initialised; run the model once"
    if tensor.is_meta:
        return "is on the device 'meta', where there are no numbers"
    if tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        return "is no dense tensor"
    return ""


def formats_held(model: Any) -> list[torch.dtype]:
    """The formats of the weights of a module, each once, the first one first; without weights those of its buffers."""
    if not isinstance(model, nn.Module):
        return []
    weights, buffers = (_formats(held) for held in (model.parameters(), model.buffers()))
    return weights or buffers


def _formats(tensors: Iterable[Tensor]) -> list[torch.dtype]:
    return list(dict.fromkeys(tensor.dtype for tensor in tensors if tensor.is_floating_point()))


def format_held(model: Any) -> torch.dtype:
    """The one format of the weights; float64 of a model without any."""
    found = formats_held(model) or [torch.float64]
    if len(found) > 1 or not are_formats(found):
        raise OnelayerError(f"a certified model has all its weights in {' or all in '.join(NAMES)}; use model.double()")
    return found[0]


def converted(model: nn.Module, execution: torch.dtype | None) -> bool:
    """Whether its weights are in another format than the one that is executed.

    For exact arithmetic, None: whether any of its numbers is no float64, which is where that is computed.
    """
    if execution is not None:
        return any(kind != execution for kind in formats_held(model))
    return any(kind != torch.float64 for kind in _formats((*model.parameters(), *model.buffers())))


def moved(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A private copy in eval mode on a device, all of its numbers in this format; OnelayerError where none can be."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_complex():
            raise OnelayerError(f"{name[:60]!r} is in {tensor.dtype}, and a conversion would drop its imaginary parts")
    return copied(model).to(device, dtype).eval()


def copied(model: nn.Module) -> nn.Module:
    """A private copy, or OnelayerError where there can be none."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # of whatever the module holds
        raise OnelayerError(
            f"the model cannot be copied ({told(error)}); give it in eval mode, and in the format that is executed"
        ) from error
