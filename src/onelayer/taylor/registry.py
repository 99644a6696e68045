"""Which torch functions have a rigorous Taylor version, by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch.overrides import _get_current_function_mode, _pop_mode, _push_mode

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language.operations import OPERATIONS
from onelayer.taylor.opaque import IN_PLACE, IN_PLACE_HINT, MissingOperation, Opaque

Handler = TypeVar("Handler", bound=Callable[..., Any])
_HANDLERS: dict[str, tuple[Callable[..., Any], bool]] = {}
_TAKES_OPAQUE: set[str] = set()
_MAY_OVERWRITE: set[str] = set()  # torch's version has an argument ``inplace``
_STATE = threading.local()
_ALIASES = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    **{spelling: row.taylor for row in OPERATIONS.values() for spelling in row.spellings},
    "_threshold": "threshold",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "moveaxis": "movedim",
    "concat": "cat",
    "power": "pow",
    "concatenate": "cat",
    "clip": "clamp",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
    "invert": "logical_not",
    "gammaln": "lgamma",
    "and": "logical_and",
    "or": "logical_or",
}
_HINTS = {
    "setitem": "build the result with torch.stack or torch.cat instead of writing into a tensor",
    "bool": "a branch on the value of a Taylor model is not a function of the box; use torch.where",
    "item": "a Taylor model is a set of functions, not a number",
    "tolist": "a Taylor model is a set of functions, not numbers",
    "numpy": "write the function with torch operations",
    "array": "write the function with torch operations",
}


def implements(*names: str, lazy: bool = False, opaque: bool = False) -> Callable[[Handler], Handler]:
    """Register the Taylor version of the torch functions of these names.

    ``lazy`` ones accept pending quotients, ``opaque`` ones accept comparisons.
    """

    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, (handler, lazy)))
        if opaque:
            _TAKES_OPAQUE.update(names)
        if "inplace" in inspect.signature(handler).parameters:
            _MAY_OVERWRITE.update(names)
        return handler

    return register


def supported() -> list[str]:
    """Names of all registered operations."""
    return sorted(_HANDLERS)


def handler_of(name: str) -> Callable[..., Any]:
    """The Taylor version of a registered operation, whose signature holds every argument of torch's."""
    return _HANDLERS[name][0]


def _multiplied_out(arg: Any) -> Any:
    """A model without a pending denominator; anything else as it is."""
    if getattr(arg, "den", ()):
        return arg.plain()
    return arg


def _refuse_in_place(name: str, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name not in _MAY_OVERWRITE:
        return
    given = inspect.signature(handler).bind(*args, **kwargs)
    if given.arguments.get("inplace"):
        raise UnsupportedOperation(f"{name}(inplace)", IN_PLACE_HINT)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Run the Taylor version of a torch function.

    What it does not model is refused by name: an operation without a version, an argument that the version does not
    declare, a buffer for the result, a change in place (whoever else holds the operand would see it).
    """
    if name not in _HANDLERS:
        raise UnsupportedOperation(name, _hint(name))
    handler, lazy = _HANDLERS[name]
    if "input" in kwargs:
        kwargs = _named_first(handler, kwargs)
    if kwargs.pop("out", None) is not None:
        raise UnsupportedOperation(f"{name}(out)", IN_PLACE_HINT)
    if name not in _TAKES_OPAQUE:
        _refuse_opaque(name, (*args, *kwargs.values()))
    if not lazy:
        args = tuple(map(_multiplied_out, args))
        kwargs = dict(zip(kwargs, map(_multiplied_out, kwargs.values()), strict=True))
    # Nested calls stay inside; only the outermost one takes the watcher off, and puts it back.
    outside = inside()
    _STATE.inside = True
    watcher = None if outside else _dismissed()
    try:
        _refuse_in_place(name, handler, args, kwargs)
        return handler(*args, **kwargs)
    except (OnelayerError, torch.OutOfMemoryError):
        raise
    # What goes wrong inside becomes a refusal by name: it never falls through to torch on plain numbers.
    except (TypeError, AttributeError, IndexError, ValueError, RuntimeError) as error:
        raise UnsupportedOperation(*_why(name, handler, args, kwargs, error)) from error
    finally:
        _STATE.inside = outside
        if watcher is not None:
            _push_mode(watcher)  # type: ignore[no-untyped-call]


def _dismissed() -> Any:
    """The mode that watches the code under proof, taken off: enclosures are not its business, and it is slow."""
    mode = _get_current_function_mode()  # type: ignore[no-untyped-call]
    if getattr(mode, "watches_outside", False):
        return _pop_mode()  # type: ignore[no-untyped-call]
    return None


@contextmanager
def enclosing() -> Iterator[None]:
    """Inside, this thread computes enclosures: for arithmetic of bounds that no operation of ``call`` is around."""
    outside = inside()
    _STATE.inside = True
    watcher = None if outside else _dismissed()
    try:
        yield
    finally:
        _STATE.inside = outside
        if watcher is not None:
            _push_mode(watcher)  # type: ignore[no-untyped-call]


def inside() -> bool:
    """Whether this thread is computing enclosures, rather than running the code that is enclosed."""
    return getattr(_STATE, "inside", False)


def _named_first(handler: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword ``input`` under the name of the handler's first parameter, unless it has one of that name."""
    names = list(inspect.signature(handler).parameters)
    if "input" in names:
        return kwargs
    return {names[0] if key == "input" else key: v for key, v in kwargs.items()}


def _refuse_opaque(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, Opaque):
            value.refuse(name)
        if isinstance(value, tuple | list):
            _refuse_opaque(name, value)


def _why(name: str, handler: Callable[..., Any], args: Any, kwargs: Any, error: Exception) -> tuple[str, str]:
    """Operation and hint: the argument that the signature does not hold, or what went wrong inside."""
    signature = inspect.signature(handler)
    for key in kwargs:
        if key not in signature.parameters:
            return f"{name}({key})", "this argument is not modelled"
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return name, str(mismatch)
    said = str(error).splitlines()
    return f"{name} with these arguments", said[0] if said else type(error).__name__


def unhandled(operation: str, **arguments: Any) -> None:
    """Refuse, by name, arguments that are given and not modelled; None and False mean not given."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise UnsupportedOperation(f"{operation}({name})", "this argument is not modelled")


def method(owner: Any, name: str) -> Callable[..., Any]:
    """The operation as a bound tensor method."""
    if bare(name) not in _HANDLERS:
        raise MissingOperation(name, _hint(name))

    def bound(*args: Any, **kwargs: Any) -> Any:
        return call(bare(name), owner, *args, **canonical_keywords(kwargs))

    return bound


def _hint(name: str) -> str:
    if name.endswith("_") or f"__{name}__" in IN_PLACE:
        return IN_PLACE_HINT
    return _HINTS.get(name, "Taylor models have no rigorous version of it")


def canonical_name(func: Any) -> str:
    """The registry's name of a torch function: dunder, namespace and alias spellings removed."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", str(func))
    return bare(name)


@cache
def bare(name: str) -> str:
    """The registry's name of an operation under any of its spellings."""
    bare = name.strip("_") if name.startswith("__") else name
    bare = bare.removeprefix("special_").replace("expit", "sigmoid")
    return _ALIASES.get(bare, bare)


def canonical_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """NumPy spellings to torch spellings."""
    names = {"axis": "dim", "keepdims": "keepdim"}
    return {names.get(key, key): value for key, value in kwargs.items()}
