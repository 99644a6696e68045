"""Which torch functions have a rigorous Taylor version, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onelayer.errors import UnsupportedOperation

Handler = TypeVar("Handler", bound=Callable[..., Any])
_HANDLERS: dict[str, tuple[Callable[..., Any], bool]] = {}
_ALIASES = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "arctan": "atan",
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


class MissingOperation(UnsupportedOperation, AttributeError):
    """An attribute that a tensor may have and a Taylor model has not; ``hasattr`` answers no."""


def implements(*names: str, lazy: bool = False) -> Callable[[Handler], Handler]:
    """Register the Taylor version of the torch functions of these names; ``lazy`` ones accept pending quotients."""

    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, (handler, lazy)))
        return handler

    return register


def supported() -> list[str]:
    """Names of all registered operations."""
    return sorted(_HANDLERS)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Run the Taylor version of a torch function; an operation without one is refused by name."""
    if name not in _HANDLERS:
        raise UnsupportedOperation(name, _hint(name))
    if kwargs.get("inplace"):
        raise UnsupportedOperation(f"{name} with inplace=True", "say inplace=False; what it returns is the same")
    handler, lazy = _HANDLERS[name]
    if not lazy:
        args = tuple(arg.plain() if getattr(arg, "den", ()) else arg for arg in args)
        kwargs = {key: arg.plain() if getattr(arg, "den", ()) else arg for key, arg in kwargs.items()}
    return handler(*args, **kwargs)


def method(owner: Any, name: str) -> Callable[..., Any]:
    """The operation as a bound tensor method."""
    if _bare(name) not in _HANDLERS:
        raise MissingOperation(name, _hint(name))

    def bound(*args: Any, **kwargs: Any) -> Any:
        return call(_bare(name), owner, *args, **canonical_keywords(kwargs))

    return bound


def _hint(name: str) -> str:
    return _HINTS.get(name, "Taylor models have no rigorous version of it")


def canonical_name(func: Any) -> str:
    """The registry's name of a torch function: dunder, namespace and alias spellings removed."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", str(func))
    return _bare(name)


def _bare(name: str) -> str:
    bare = name.strip("_") if name.startswith("__") else name
    bare = bare.removeprefix("special_").replace("expit", "sigmoid")
    return _ALIASES.get(bare, bare)


def canonical_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """NumPy spellings to torch spellings."""
    names = {"axis": "dim", "keepdims": "keepdim"}
    return {names.get(key, key): value for key, value in kwargs.items()}
