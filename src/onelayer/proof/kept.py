"""A model as it was when something was proved of it: a copy that nobody else holds, and a hash of all that it holds.

A claim speaks of one function. Whoever trains a module, or changes a number that a function reads, has another one, of
which nothing was proved; what is saved, and what a proof ends with, is therefore held against what it began with.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from onelayer.box import Box
from onelayer.errors import ModelAssumptionError
from onelayer.language.formula import Formula
from onelayer.layer.file import weights_sha256
from onelayer.network.file import network_sha256
from onelayer.network.network import RecordedNetwork
from onelayer.proof.fit import formats_held, refuse_unfit
from onelayer.proof.forward import execute
from onelayer.proof.own import is_own_layer, says_all
from onelayer.recording.target import Target

CHANGED = (
    "{name} is not what it was when the proof began: weights, or something else that it reads, changed; certify it "
    "again, and leave it as it is meanwhile"
)
INSTALLED = [Path(sysconfig.get_paths()[kind]) for kind in ("purelib", "platlib")]
OWN = __name__.partition(".")[0]
# What is its own text: two of the same type that print alike are the same.
PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, torch.dtype, torch.device)


@dataclass(frozen=True)
class Kept:
    """A model, and the hash of what it held when it was kept."""

    model: Any
    state: str
    name: str = "the model"

    def unchanged(self) -> Any:
        """The model, if it still is what it was; else ModelAssumptionError."""
        if state_of(self.model) != self.state:
            raise ModelAssumptionError(CHANGED.format(name=self.name))
        return self.model


def kept(model: Any, box: Box | None = None) -> Kept:
    """A private copy of a module; anything else as it is, and known by its state.

    It is run once on the centre of the ``box`` before its state is taken: what its code computes once and keeps, as
    masks and tables, is no change.
    """
    if isinstance(model, nn.Module):
        refuse_unfit(model)  # a copy would not be compiled
        # Some modules cannot be copied, as those that keep a tensor that torch computed.
        with suppress(Exception):
            model = copy.deepcopy(model)
    if box is not None and not says_all(model):
        with suppress(Exception), torch.no_grad():
            # Of a module a copy runs: what it keeps itself is kept by the copy, what its class keeps by the class.
            runs = copy.deepcopy(model) if isinstance(model, nn.Module) else model
            dtype = next(iter(formats_held(model)), torch.float64)
            execute(runs, box.center[None].to(dtype))
    return Kept(model, state_of(model))


def read_by(target: Target) -> Kept:
    """What an f without a formula reads: it is proved of what its code does, which must not change meanwhile."""
    unrecorded = target.formula is None and target.lipschitz is None
    read = target.function if unrecorded else None
    return Kept(read, state_of(read), "f")


def state_of(model: Any) -> str:
    """A hash of all that a model holds; "" for a formula, which never changes.

    Of code from elsewhere these are tensors, numbers and other plain data, reached through attributes, containers,
    closures, classes with their methods, and the global names that its functions read, in other modules of Python too.
    What installed libraries hold is not followed.
    """
    if type(model) is Formula:
        return ""
    if is_own_layer(model):
        return weights_sha256(model)
    if isinstance(model, RecordedNetwork) and says_all(model):
        return network_sha256(model)
    digest = hashlib.sha256()
    # Held until the end: a number of a thing that is gone may be that of another one.
    met: dict[int, tuple[int, Any]] = {}
    # Hooks of all modules are held by none of them.
    waiting = [model, dict(_global_forward_hooks), dict(_global_forward_pre_hooks)]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, PLAIN):
            digest.update(f"{type(thing).__name__} {_said(thing)}\n".encode())
            continue
        if id(thing) in met:
            digest.update(f"again {met[id(thing)][0]}\n".encode())
            continue
        met[id(thing)] = (len(met), thing)
        digest.update(f"{type(thing).__module__}.{type(thing).__qualname__}\n".encode())
        digest.update(_content(thing))
        inside = list(_inside(thing))
        digest.update(f"{len(inside)}\n".encode())
        waiting += inside
    return digest.hexdigest()


def _said(plain: Any) -> str:
    # Python refuses to print integers of thousands of digits in decimals.
    return hex(plain) if isinstance(plain, int) else repr(plain)


def _content(thing: Any) -> bytes:
    """What a thing holds itself."""
    if isinstance(thing, Tensor):
        return _numbers(thing)
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"{thing.dtype} {thing.shape} ".encode() + np.ascontiguousarray(thing).tobytes()
    if isinstance(thing, np.generic):
        return f"{thing.dtype} ".encode() + thing.tobytes()
    if isinstance(thing, types.CodeType):
        return thing.co_code + " ".join(thing.co_names).encode()
    if isinstance(thing, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing.__name__)}".encode()
    if isinstance(thing, set | frozenset):
        return repr(sorted(map(repr, thing))).encode()
    return b""


def _numbers(tensor: Tensor) -> bytes:
    """The bytes of a tensor; of one without a plain store, what torch prints of it."""
    try:
        kind = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
        flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().flatten()
        return kind + flat.view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError, NotImplementedError):
        return f"{tensor.dtype} {tensor!r}".encode()


def _inside(thing: Any) -> Iterator[Any]:
    """What a thing refers to, in an order that is always the same."""
    for kind, parts in _PARTS.items():
        if isinstance(thing, kind):
            yield from parts(thing)
    # Of a module of Python, code that reads it says what it reads.
    if isinstance(thing, types.ModuleType | types.FunctionType):
        return
    # The code of an instance is that of its class.
    classes = thing.__mro__ if isinstance(thing, type) else [type(thing)]
    for kind in classes:
        if not _of_library(kind):
            yield kind if kind is not thing else dict(vars(kind))
    if not isinstance(thing, type):
        yield from (getattr(thing, "__dict__", None), *_slots(thing))


def _of_library(code: Any) -> bool:
    """Whether a class, a function or a module of Python is of an installed library: what that holds is not followed."""
    name = code.__name__ if isinstance(code, types.ModuleType) else getattr(code, "__module__", None)
    package = str(name).partition(".")[0]
    if package in sys.stdlib_module_names or package == OWN:
        return True
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is not None and any(Path(file).is_relative_to(place) for place in INSTALLED)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    for cell in function.__closure__ or ():
        # A cell is empty until what it holds is defined.
        with suppress(ValueError):
            yield cell.cell_contents
    if not _of_library(function):
        yield from _looked_up(function)


def _looked_up(function: types.FunctionType) -> Iterator[Any]:
    """What may be meant by ``K``, ``settings.K`` and ``pack.settings.K`` in the code of a function."""
    names = sorted(_names(function.__code__))
    spaces = [function.__globals__]
    for held in spaces:  # which grows by the modules that are met
        for name in names:
            found = held.get(name)
            if isinstance(found, types.FunctionType | types.ModuleType) and _of_library(found):
                yield found.__name__
                continue
            yield found
            if isinstance(found, types.ModuleType) and not any(vars(found) is space for space in spaces):
                spaces.append(vars(found))


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside of it may look up among the globals."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _slots(thing: Any) -> Iterator[Any]:
    for kind in type(thing).__mro__:
        members = kind.__dict__.values() if "__slots__" in kind.__dict__ else ()
        for member in members:
            # One that was never set holds nothing.
            with suppress(AttributeError):
                if isinstance(member, types.MemberDescriptorType):
                    yield member.__get__(thing)


_PARTS: dict[Any, Callable[[Any], Iterable[Any]]] = {
    dict: lambda known: itertools.chain.from_iterable(known.items()),
    list | tuple: iter,
    np.ndarray: lambda array: array.flat if array.dtype.hasobject else (),
    types.FunctionType: _of_function,
    types.CodeType: lambda code: code.co_consts,
    staticmethod | classmethod: lambda method: (method.__func__,),
    property: lambda made: (made.fget,),
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.BuiltinFunctionType: lambda method: (method.__self__,),
    functools.partial: lambda made: (made.func, made.args, made.keywords),
    torch.jit.ScriptModule: lambda module: (dict(module.state_dict()),),
}
