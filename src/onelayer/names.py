"""Names of the coordinates of a point, with units: what is called a good one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from onelayer.errors import OnelayerError

# Latin with accents, Greek and Cyrillic; the signs among them (product, quotient, thousand) are no letters.
LETTERS = r"A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0386\u0388-\u03f5\u03f7-\u0481\u048a-\u04ff"
IDENTIFIER = f"[{LETTERS}][{LETTERS}0-9]*"
# A name, and a unit of anything but brackets and control characters.
_LABEL = re.compile(rf"({IDENTIFIER})(?:\[([^\[\]\x00-\x1f\x7f]{{1,40}})\])?")
# Letters that look like others, and those: of Greek and Cyrillic the Latin ones, or Greek ones of Cyrillic.
_ALIKE = str.maketrans(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοϳϲϹ" + "АВЕЅІЈКМНОРСТУХҮаеорсухѕіјһѵ" + "ГПФɛɩɣʋɑɡ" + "ĐƉə",
    "ABEZHIKMNOPTYXojcC" + "ABESIJKMHOPCTYXYaeopcyxsijhv" + "ΓΠΦειγυag" + "ÐÐǝ",
)
_BEFORE_UNIT = re.compile(r"[ \t]+\[[ \t]*")
_NUMBERED = re.compile(r"x([0-9]+)")
MAX_NAME = 64  # characters, unit included


def without_unit(name: str) -> str:
    """v of v[m/s]."""
    return name.partition("[")[0]


def as_seen(text: str) -> str:
    """What a text looks like: a letter of one alphabet is not told from one of another that has its shape."""
    return text if text.isascii() else text.translate(_ALIKE)


def tidy(name: object) -> object:
    """A name as it is kept: no blanks around it or before its unit, so "v [m/s]" is v[m/s]."""
    if not isinstance(name, str):
        return name
    return _BEFORE_UNIT.sub("[", name.strip())


def _without_unit(name: object) -> str:
    """The name itself, or OnelayerError for what is none."""
    short = isinstance(name, str) and len(name) <= MAX_NAME
    match = _LABEL.fullmatch(str(name)) if short else None
    # A unit that steers a terminal, or turns the direction of writing, shows another line than it is.
    if match is None or not match[0].isprintable():
        raise OnelayerError(f"{str(name)[:MAX_NAME]!r} is no name; use letters, digits and _, with a unit as in h[m]")
    return match[1]


def check_names(names: Sequence[str], shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names if they are good ones for points of that shape: one per coordinate, different, none misleading."""
    try:
        found: tuple[Any, ...] = tuple(map(tidy, names))
    except TypeError as error:
        raise OnelayerError(f"names are a list of texts, got {repr(names)[:60]}") from error
    if not found:
        return ()
    if len(shape) != 1 or len(found) != shape[0]:
        raise OnelayerError(f"{len(found)} names for points of shape {shape}; give one per coordinate of a vector")
    plain = []
    for at, name in enumerate(found):
        # As it is seen: a Cyrillic letter must not make another name of what reads the same.
        plain.append(as_seen(_without_unit(name)))
        # x2 for the first coordinate would read as the second in a formula without names.
        numbered = _NUMBERED.fullmatch(plain[-1])
        if numbered and numbered[1] != str(at + 1):
            raise OnelayerError(f"coordinate {at + 1} cannot be called {plain[-1]}: that is the name of another one")
    if len(set(plain)) < len(plain):
        raise OnelayerError(f"a name is given to two coordinates: {', '.join(plain)}")
    return found
