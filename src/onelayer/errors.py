"""The errors a user can meet. Each message is one line: what was wrong and what would be right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Characters, two or three lines of a terminal.
LONGEST_LINE = 300
# The same, of any error: a formula may stand in it.
LONGEST_MESSAGE = 1000
_THREAD = threading.local()  # what was refused in it, while refusals stand


class OnelayerError(ValueError):
    """Bad input of any kind. The command line prints the message alone and exits with status 2.

    Its message is one printable line, whatever of the input is repeated in it.
    """

    def __init__(self, *said: object) -> None:
        super().__init__(*(one_line(part, LONGEST_MESSAGE) for part in said))


class UnsupportedOperation(OnelayerError):
    """An operation outside the rigorous arithmetic (or the formula language). Never replaced by sampling."""

    def __init__(self, operation: str, hint: str = "") -> None:
        self.operation = operation
        self.hint = hint
        super().__init__(f"operation '{operation}' is not supported" + (f": {hint}" if hint else ""))
        # Kept where it is made, so that there is no way to refuse something that is not remembered.
        made = getattr(_THREAD, "refused", None)
        if made is not None:
            made.append(self)


@contextmanager
def refusals_stand() -> Iterator[None]:
    """Inside, what is refused stays refused: an operation whose error foreign code catches is raised at the end.

    On numbers nothing is refused; code that catches the error goes on by another path than it does there.
    """
    before = getattr(_THREAD, "refused", None)
    made: list[UnsupportedOperation] = []
    _THREAD.refused = made
    try:
        yield
    finally:
        _THREAD.refused = before
    if made:
        raise made[0]


class ModelAssumptionError(OnelayerError):
    """A model that is not what a proof assumes: points treated one by one, always alike, as its operations say."""


class FormulaError(OnelayerError):
    """Text outside the formula language; the message names the column."""


class MisleadingText(FormulaError):
    """Text that is one formula to a program and another one, or none, to whoever reads it."""


class FileError(OnelayerError):
    """A saved file that is missing, corrupt, of another version, or hostile.

    Its message is shorter, whatever the file put into it.
    """

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


def one_line(message: object, most: int = LONGEST_LINE) -> str:
    """``message`` in one line of printable characters, abridged when long: nothing in it can steer a terminal."""
    # Cut before the letters are looked at: a hostile file may have put millions of them there.
    text = " ".join(str(message).split())[: 2 * most]
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    if len(text) <= most:
        return text
    return text[: most - 3] + "..."


def first_line(error: BaseException, most: int = 160) -> str:
    """What another library says of an error, without the pages that may follow; at most so many characters."""
    return next(iter(str(error).splitlines()), "")[:most]


def told(error: BaseException) -> str:
    """A foreign error in one line: its kind, and the beginning of what it says."""
    return f"{type(error).__name__}: {first_line(error)}"
