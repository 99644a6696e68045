"""What a claim is about, as data: a kind and its settings, and the words that a certificate has for it.

Every claim is lower <= sup|G - f| <= upper for the function f of the certificate and a G made of the model T:

    (nothing)   T itself
    range       (y_k - centre_k) / radius_k for low_k, high_k = centre_k -+ radius_k, f = 0: upper <= 1 says it all
    difference  A - B for a second model, f = 0
    lipschitz   a norm of the Jacobian, f = 0
    slopes      dT/dx_i, compared with those of f
    monotone    s_i dT/dx_i with signs s_i, f = M: upper <= M says that none is negative
    convex      the principal minors of the Hessian, f = M likewise
    condition   the margins of a condition on outputs and inputs, f = M likewise
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onelayer.errors import OnelayerError

NORMS = ("inf", "1", "2")
MOST_NAMED = 8  # slopes that a claim spells out
MAX_TEXT = 4096  # characters of a condition
LIPSCHITZ = {
    "inf": "sup sum_i |dT/dx_i|",
    "1": "sup_i sum_k |dT_k/dx_i|",
    "2": "sup |dT/dx|_2",
}
_SETTINGS: dict[str, tuple[str, ...]] = {
    "range": ("low", "high"),
    "difference": (),
    "lipschitz": ("norm",),
    "slopes": (),
    "monotone": ("inputs", "signs"),
    "convex": (),
    "condition": ("text",),
}
MARGINS = ("monotone", "convex", "condition")  # kinds whose G must not be negative


def sound(about: Any) -> bool:
    """Whether these are the settings of a kind, each of its type."""
    if about == {}:
        return True
    if not isinstance(about, Mapping) or not isinstance(about.get("kind"), str) or about["kind"] not in _SETTINGS:
        return False
    wanted = _SETTINGS[about["kind"]]
    # No setting more: what is not read must not be there.
    if set(about) != {"kind", *wanted}:
        return False
    typed = all(_TYPES[name](about[name]) for name in wanted)
    return typed and _matching(about)


def _numbers(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(type(x) is float and math.isfinite(x) for x in value)


def _whole(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(type(x) is int for x in value)


def _inputs(value: Any) -> bool:
    """Numbers of inputs, each once."""
    return _whole(value) and min(value) >= 0 and len(set(value)) == len(value)


def _signs(value: Any) -> bool:
    return _whole(value) and set(value) <= {1, -1}


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT


_TYPES: dict[str, Callable[[Any], bool]] = {
    "low": _numbers,
    "high": _numbers,
    "norm": NORMS.__contains__,
    "inputs": _inputs,
    "signs": _signs,
    "text": _text,
}


def _matching(about: Mapping[str, Any]) -> bool:
    if about["kind"] == "range":
        low = about["low"]
        high = about["high"]
        # A range of no width has no radius to measure by.
        return len(low) == len(high) and all(map(operator.lt, low, high))
    if about["kind"] == "monotone":
        return len(about["inputs"]) == len(about["signs"])
    return True


def flat_inputs(low: Sequence[float], high: Sequence[float], inputs: Sequence[int]) -> list[int]:
    """Of some inputs those that have one value in a box: along them nothing rises, falls or bends."""
    return [at for at in inputs if low[at] == high[at]]


def has_width(about: Mapping[str, Any], low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether a claim about how T rises or bends is about inputs that have more than one value."""
    if not sound(about):  # another complaint
        return True
    every = range(len(low))
    kind = about.get("kind")
    asked = about["inputs"] if kind == "monotone" else every if kind == "convex" else ()
    # An input that the box does not have is another complaint.
    return not flat_inputs(low, high, [at for at in asked if at in every])


def norm_of(given: Any) -> str:
    """The name of a norm that a user gives as a number or as text."""
    kind = "inf" if isinstance(given, float) and given == math.inf else str(given)
    if kind not in NORMS:
        raise OnelayerError(f"norm must be 1, 2 or 'inf', got {repr(given)[:60]}")
    return kind


def words(about: Mapping[str, Any]) -> str:
    """The field ``claim`` of a certificate about this."""
    kind = about["kind"]
    if kind == "lipschitz":
        return LIPSCHITZ[about["norm"]]
    if kind == "monotone":
        pairs = zip(about["inputs"], about["signs"], strict=True)
        slopes = [f"{'+' if sign > 0 else '-'}dT/dx{at + 1}" for at, sign in pairs]
        named = ", ".join(slopes[:MOST_NAMED])
        more = ", ..." if len(slopes) > MOST_NAMED else ""
        return f"sup|M - ({named}{more})|"
    return {
        "range": "sup_k |y_k - centre_k| / radius_k",
        "difference": "sup|A - B|",
        "slopes": "sup|dT/dx_i - df/dx_i|",
        "convex": "sup|M - principal minors of the Hessian|",
        "condition": "sup|M - margins|",
    }[kind]
