"""Fields of certificate.json in the types that a record has; anything else is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from onelayer.errors import OnelayerError


def typed(name: str, value: Any) -> Any:
    """``value`` as the type of field ``name``, or an error: JSON lists become tuples, integers become floats."""
    if value is None and name in _MAY_BE_MISSING:
        return None
    return _KINDS[name](name, value)


def _text(name: str, value: Any) -> Any:
    return _checked(isinstance(value, str), name, value)


def _count(name: str, value: Any) -> Any:
    return _checked(isinstance(value, int) and not isinstance(value, bool), name, value)


def _bound(name: str, value: Any) -> float:
    """JSON has no infinity: it is written as a word."""
    if value == "inf":
        return math.inf
    return _real(name, value)


def _each(kind: Callable[[str, Any], Any], name: str, value: Any) -> tuple[Any, ...]:
    _checked(isinstance(value, list), name, value)
    return tuple(kind(name, item) for item in value)


def _corners(name: str, value: Any) -> tuple[Any, ...]:
    """Two lists of numbers: the lower and the upper corner of a box."""
    _checked(isinstance(value, list) and len(value) == 2, name, value)
    return tuple(_each(_real, name, side) for side in value)


def _checked(holds: bool, name: str, value: Any) -> Any:
    if not holds:
        raise OnelayerError(f"field '{name}' has the wrong type")
    return value


def _real(name: str, value: Any) -> float:
    _checked(isinstance(value, int | float) and not isinstance(value, bool), name, value)
    try:
        number = float(value)
    except OverflowError as error:
        raise OnelayerError(f"field '{name}' is too large") from error
    # An integer between two floats would be one claim in the file and another one here.
    if isinstance(value, int) and number != value:
        raise OnelayerError(f"field '{name}' is an integer that is no float64 number: {value}")
    return number


def _object(name: str, value: Any) -> Any:
    return _checked(isinstance(value, dict), name, value)


_MAY_BE_MISSING = ("eps", "witness", "resisted")
_KINDS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("status", "arithmetic", "function", "weights_sha256", "version", "method", "claim"), _text),
    **dict.fromkeys(("boxes", "order"), _count),
    **dict.fromkeys(("eps", "lower", "seconds", "within"), _real),
    **dict.fromkeys(("assumptions", "names"), partial(_each, _text)),
    **dict.fromkeys(("domain", "resisted"), _corners),
    "about": _object,
    "upper": _bound,
    "shape": partial(_each, _count),
    "witness": partial(_each, _real),
}
