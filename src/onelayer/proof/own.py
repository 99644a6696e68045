"""Which models are layers of this package as they stand: what is known of its code is known of them alone."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook

from onelayer.language.formula import Formula
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.network.network import RecordedNetwork

OWN_PARTS = {OneLayerTransformer, PlainMemory, GridMemory, torch.nn.ModuleDict, torch.nn.ParameterList}


def is_own_layer(model: Any) -> TypeGuard[OneLayerTransformer]:
    """Whether T is a layer of this package as it stands: its weights say what it computes, each point alone.

    A subclass, a hook or a method put in place of another may do anything: such a model is foreign code.
    """
    everywhere = _has_any_global_hook()  # type: ignore[no-untyped-call]
    return stands_as_built(model) and not everywhere


def stands_as_built(model: Any) -> TypeGuard[OneLayerTransformer]:
    """The same of the model by itself, whatever hooks there are on all modules."""
    if type(model) is not OneLayerTransformer:
        return False
    # A subclass of Parameter or of Tensor may answer torch functions itself.
    if any(type(weight) is not torch.nn.Parameter for weight in model.parameters()):
        return False
    if any(type(held) is not Tensor for held in model.buffers()):
        return False
    parts = list(model.modules())
    return all(type(part) in OWN_PARTS for part in parts) and all(map(_untouched, parts))


def says_all(model: Any) -> bool:
    """Whether a model is what it is stored as: a formula, a layer of this package or a network as they stand."""
    if isinstance(model, RecordedNetwork):
        return model.untouched
    return type(model) is Formula or is_own_layer(model)


def _untouched(part: torch.nn.Module) -> bool:
    """Whether a module has no hook, and no attribute of its own in place of a method."""
    methods = (getattr(type(part), name, None) for name in vars(part))
    patched = any(map(callable, methods))
    return not (patched or part._forward_hooks or part._forward_pre_hooks)
