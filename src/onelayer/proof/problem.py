"""What a checkpoint belongs to: everything on which the bounds in it depend, as one hash."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import onelayer
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.layer.file import weights_sha256
from onelayer.network.file import network_sha256
from onelayer.network.record import record
from onelayer.proof.error import ErrorFunction
from onelayer.proof.objectives import Wrapped
from onelayer.proof.own import is_own_layer
from onelayer.proof.units import Goal

NEEDED = "a checkpoint needs a model that can be recorded, an f with a formula, and the CPU; leave it out"
PACKAGE = Path(onelayer.__file__).parent


@cache
def code_of(folder: Path) -> str:
    """A hash of all code below a folder, by its places in it."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def problem_of(error: ErrorFunction, model: Any, goal: Goal, order: int | None) -> str:
    """The hash of a problem; OnelayerError where a part of it has no text that says all of it."""
    target = error.target
    box = error.box
    if target.formula is None or target.lipschitz is not None or error.device.type != "cpu":
        raise OnelayerError(NEEDED)
    domain = (box.lower.tolist(), box.upper.tolist())
    parts = (_said(model, tuple(box.shape)), target.formula, *domain)
    # Bounds that another version found, or other code under the same number, are not known to be right.
    proved_by = (onelayer.__version__, code_of(PACKAGE), torch.__version__)
    text = " ".join(map(str, (*parts, goal, order, error.execution, *proved_by)))
    return hashlib.sha256(text.encode()).hexdigest()


def _said(model: Any, shape: tuple[int, ...]) -> str:
    """A model as text or hash: of code, the operations that it does; values at points would miss a narrow spike."""
    if isinstance(model, Formula):
        return str(model)
    if is_own_layer(model):
        return weights_sha256(model)
    if isinstance(model, Wrapped):
        parts = [_said(part, shape) for part in model.models]
        return f"{type(model).__qualname__} {model.extra_repr()} {parts}"
    if not isinstance(model, nn.Module):
        raise OnelayerError(NEEDED)
    try:
        return network_sha256(record(model, shape))
    except OnelayerError as error:
        raise OnelayerError(f"{NEEDED} ({error})") from error
