"""What a certificate claims, as plain data: the statuses, which of them follows, and the JSON text of the fields."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onelayer.disk import strict_json
from onelayer.errors import FileError, OnelayerError
from onelayer.language.words import recorded
from onelayer.proof.about import sound

FORMAT = "onelayer certificate"
FORMAT_VERSION = 1  # of certificate.json
SUP = "sup|T - f|"  # the claim of a file that names none
STATUSES = ("proved", "refuted", "undecided", "estimated")
# What a proof about a black box is conditional on: how fast f changes, or how fast its gradient does.
CONDITIONAL, CURVED = "conditional on Lipschitz constant", "conditional on Lipschitz constant of the gradient"
ESTIMATED = "estimated Lipschitz constant"
METHODS = ("branch and bound", "lemma", "composition", "enumeration", CONDITIONAL, CURVED, ESTIMATED)
INLINE_FUNCTION = 4096  # characters of a function that certificate.json repeats
SHA256 = re.compile(r"[0-9a-f]{64}")
# Fields in the order in which they are written.
FIELDS = (
    *("status", "eps", "lower", "upper", "witness", "resisted", "boxes", "order", "arithmetic", "shape", "domain"),
    *("function", "weights_sha256", "seconds", "version", "method", "assumptions"),
)
# Fields that are left out of a file where they say no more than this: older files have none of them.
ABSENT: dict[str, Any] = {"names": (), "claim": SUP, "about": {}, "within": 0.0}
# What stands around the fields: what the text is, and what seals it.
FRAME = {"format", "format_version", "files", "sha256"}


def decide(eps: float | None, lower: float, upper: float, *, method: str, reached: bool = False) -> str:
    """The status that lower <= sup|T - f| <= upper gives; a NaN in either decides nothing.

    Without an eps there is nothing to refute, and a finite enclosure is proved iff it ``reached`` the gap asked for.
    What rests on an estimate is estimated, never proved.
    """
    shown = "estimated" if method == ESTIMATED else "proved"
    # With one of them NaN the comparison of the other could still hold.
    if math.isnan(lower) or math.isnan(upper):
        return "undecided"
    if eps is None:
        if reached and upper < math.inf:
            return shown
        return "undecided"
    if lower > eps:
        return "refuted"
    if upper <= eps < math.inf:
        return shown
    return "undecided"


def to_json(claim: Mapping[str, Any], files: Mapping[str, str] | None = None) -> str:
    """JSON text of the fields of a claim, one per line, with a sha256 over all of them.

    ``files`` maps the names of the files beside it to their sha256. Floats are written in their shortest exact form;
    an infinite upper bound is the string "inf".
    """
    data: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
    data |= {name: claim[name] for name in FIELDS}
    data |= {name: claim[name] for name in ABSENT if claim[name] != ABSENT[name]}
    data["upper"] = "inf" if math.isinf(claim["upper"]) else claim["upper"]
    # A long text stands in function.txt alone: the claim stays short enough to be read.
    if recorded(claim["function"]) and len(claim["function"]) > INLINE_FUNCTION:
        data["function"] = None
    data["files"] = dict(sorted((files or {}).items()))
    data["sha256"] = _digest(data)
    fields = [(json.dumps(key), json.dumps(value, allow_nan=False)) for key, value in data.items()]
    lines = [f"  {key}: {value}" for key, value in fields]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str, function: str | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of the claim in a JSON text, each of its type, and the sha256 of the files beside it.

    Raises FileError on anything irregular.

    ``function`` is the content of function.txt, needed when the text was too long to repeat in the JSON.
    """
    data = _parse(text)
    names = {*FIELDS, *(ABSENT.keys() & data.keys())}
    if set(data) != names | FRAME:
        odd = sorted(set(data) ^ (names | FRAME))
        listed = ", ".join(map(repr, odd[:5]))
        raise FileError(f"certificate.json has missing or unknown fields: {listed}")
    # The seal first: fields that do not match it are not worth reading.
    files = _sealed(data)
    if data["function"] is None:
        if function is None:
            raise FileError("certificate.json refers to function.txt, which is not there")
        data["function"] = function
    try:
        stated = {name: _typed(name, data[name]) for name in names}
        claim = ABSENT | stated
    except OnelayerError as error:
        raise FileError(f"certificate.json: {error}") from error
    if function is not None and claim["function"] != function:
        raise FileError("certificate.json states another function than function.txt")
    return claim, files


def _sealed(data: dict[str, Any]) -> dict[str, str]:
    """Take out the seal, which must be right, and the digests of the files, which are returned."""
    stated = data.pop("sha256")
    if not isinstance(stated, str) or stated != _digest(data):
        raise FileError("certificate.json was changed: its fields do not match its sha256")
    files = data.pop("files")
    if not isinstance(files, dict) or not all(map(_is_digest, files.values())):
        raise FileError("certificate.json: 'files' must map file names to sha256 digests")
    return files


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and SHA256.fullmatch(value) is not None


def _parse(text: str | bytes) -> dict[str, Any]:
    data = strict_json(text, "certificate.json", shortest=True)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"certificate.json is not a certificate: its 'format' must be {FORMAT!r}")
    # True counts as the integer 1 in Python, and is none here.
    if type(data.get("format_version")) is not int or data["format_version"] != FORMAT_VERSION:
        raise FileError(f"certificate.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    return data


def _typed(name: str, value: Any) -> Any:
    """``value`` as the type of field ``name``, or an error: JSON lists become tuples, integers become floats."""
    if value is None and name in _MAY_BE_MISSING:
        return None
    return _KINDS[name](name, value)


def _text(name: str, value: Any) -> Any:
    return _checked(isinstance(value, str), name, value)


def _count(name: str, value: Any) -> Any:
    # In Python True is an integer.
    whole = isinstance(value, int) and not isinstance(value, bool)
    return _checked(whole, name, value)


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
    pair = isinstance(value, list) and len(value) == 2
    _checked(pair, name, value)
    return tuple(_each(_real, name, side) for side in value)


def _settings(name: str, value: Any) -> Any:
    """What a claim is about, its settings checked."""
    return _checked(sound(value), name, value)


def _checked(holds: bool, name: str, value: Any) -> Any:
    if not holds:
        raise OnelayerError(f"field '{name}' has the wrong type")
    return value


def _real(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _checked(number, name, value)
    try:
        read = float(value)
    except OverflowError as error:
        raise OnelayerError(f"field '{name}' is too large") from error
    # An integer between two floats would be one claim in the file and another one here.
    if isinstance(value, int) and read != value:
        raise OnelayerError(f"field '{name}' is an integer that is no float64 number: {value}")
    return read


_MAY_BE_MISSING = ("eps", "witness", "resisted")
_KINDS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("status", "arithmetic", "function", "weights_sha256", "version", "method", "claim"), _text),
    **dict.fromkeys(("boxes", "order"), _count),
    **dict.fromkeys(("eps", "lower", "seconds", "within"), _real),
    **dict.fromkeys(("assumptions", "names"), partial(_each, _text)),
    **dict.fromkeys(("domain", "resisted"), _corners),
    "about": _settings,
    "upper": _bound,
    "shape": partial(_each, _count),
    "witness": partial(_each, _real),
}


def _digest(data: dict[str, Any]) -> str:
    """sha256 of the canonical JSON (sorted keys, no spaces, ASCII) of all fields but 'sha256' itself."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
