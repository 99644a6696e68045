"""Doors: what a user calls. An argument of another kind than the signature says is told in one line.

Each door does its own checks of what its arguments may say. That they are numbers, texts or boxes at all is written in
its annotations, and there is one way to hold them to it: when a call fails with an error that is not ours, the
arguments are compared with their annotations, and the first that is of another kind is named. So nothing is refused
that worked, and an error of a user's function, whose arguments fit, stays what it is.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from onelayer.errors import OnelayerError

P = ParamSpec("P")
R = TypeVar("R")
# What counts as one of these; NumPy's scalars are registered, and a bool is a whole number.
NUMBERS: dict[Any, type] = {int: Integral, float: Real}


def door(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, in which an argument of a wrong kind ends in an OnelayerError that names it."""

    @wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OnelayerError:
            raise
        except Exception as error:
            wrong = _misfit(function, args, kwargs)
            if wrong is None:
                raise
            raise OnelayerError(wrong) from error

    entered.is_door = True  # type: ignore[attr-defined]
    return entered


def door_to(record: type[R]) -> type[R]:
    """A class whose ``__init__`` is a door: of a dataclass, which has no line of its own for it."""
    record.__init__ = door(record.__init__)  # type: ignore[method-assign]
    return record


def need_kinds(record: Any) -> None:
    """OnelayerError unless every field of a dataclass is of the kind that its annotation says."""
    for name, hint in _hints(type(record), sys.modules[type(record).__module__].__dict__).items():
        if not _is(getattr(record, name), hint):
            kind = type(record).__annotations__[name]
            raise OnelayerError(f"{name} must be {kind}, not {type(getattr(record, name)).__name__}")


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """What to say of the first argument that is of another kind than its annotation; None where all fit."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    # Too many, too few, or a name that is none: Python says that itself.
    except TypeError:
        return None
    hints = _hints(function, inspect.unwrap(function).__globals__)
    for name, value in given.items():
        item = signature.parameters[name]
        several = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        if not several and not _is(value, hints.get(name, Any)):
            return f"{name} must be {item.annotation}, not {type(value).__name__}"
    return None


def _hints(annotated: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Kinds by name, as far as the names of the module tell them."""
    return get_type_hints(annotated, localns=_NamesOfModule(names))


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of this kind, as far as that can be seen without looking into it."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_is(value, part) for part in get_args(hint))
    if hint is bool:
        # NumPy's has the same name and is another type.
        return type(value).__name__ in ("bool", "bool_")
    kind = NUMBERS.get(hint, origin or hint)
    # Any, and what only type checkers know, is anything.
    return not isinstance(kind, type) or kind is Any or isinstance(value, kind)


class _NamesOfModule(dict[str, Any]):
    """The names of a module; one that only type checkers know stands for anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, UNKNOWN)


class _Anything:
    """A kind that is anything, whatever is made of it in an annotation."""

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, parts: Any) -> _Anything:
        return self

    def __or__(self, other: Any) -> _Anything:
        return self

    __ror__ = __or__

    def __call__(self) -> None:
        """Kinds can be called; typing asks for that."""


UNKNOWN = _Anything()
