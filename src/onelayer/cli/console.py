"""How every command speaks: results on stdout, one JSON object with --json, one line on stderr for bad input.

Exit status: 0 proved or succeeded, 1 refuted or undecided, 2 bad input, 130 interrupted. The first Ctrl-C asks a long
command for the best it has, which is saved where a folder was given, and says so in one line; the second ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.exceptions import TyperException

from onelayer.errors import OnelayerError, one_line
from onelayer.observer import Stopped

# Exit statuses; the last two are what shells give to an interrupt and to a reader that is gone.
SUCCESS, NOT_PROVED, BAD_INPUT, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
LONGEST = 600  # characters of what is said about bad input, which may be thousands of letters itself
DEBUG = "ONELAYER_DEBUG"  # set to anything: an unexpected error shows its traceback


class Interrupted(Stopped):
    """A command that was interrupted and has something to show for it; its message says what was kept."""

    def __init__(self, kept: str) -> None:
        super().__init__(kept, cancelled=True)


def show(text: str, data: Mapping[str, Any], *, as_json: bool) -> None:
    """Print ``text`` for people or ``data`` for programs."""
    if as_json:
        # Files are NumPy's business too, which no command needs that only says something.
        from onelayer.disk import spelled_out

        text = json.dumps(spelled_out(data), allow_nan=False)
    _written(text)


class Undelivered(Exception):
    """What was found could not be written where it was asked for; nobody may take the exit status for its receipt."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to stdout: {error.strerror or error}")
        self.unread = isinstance(error, BrokenPipeError)


def _written(text: str) -> None:
    """Print at once: what is left in a buffer would fail after the exit status is settled."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise Undelivered(error) from error


def run(app: typer.Typer, arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status. No traceback for anything a user can cause."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = typer.main.get_command(app)
    _settle_streams()
    return guarded(lambda: command.main(arguments, prog_name="onelayer", standalone_mode=False), "--json" in arguments)


def _settle_streams() -> None:
    """Streams that take every letter: one that a terminal lacks is spelled; a stream that is closed takes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def guarded(action: Callable[[], Any], as_json: bool) -> int:
    """Exit status of ``action``, with every failure turned into one line; an unexpected one asks to be reported."""
    try:
        status = _delivered(action())
    except Undelivered as error:
        return _undelivered(error)
    except TyperException as error:
        return _refuse(error.format_message(), as_json)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except Stopped as error:
        return _stopped(error, as_json)
    except (OnelayerError, OSError) as error:
        return _refuse(str(error), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted("nothing was written")
    except Exception as error:
        return _refuse(_unexpected(error), as_json)
    if status == INTERRUPTED:  # what typer makes of a KeyboardInterrupt
        return _interrupted("nothing was written")
    return status if isinstance(status, int) else SUCCESS


def _delivered(status: Any) -> Any:
    """The status of a command, once what it printed has left this process."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise Undelivered(error) from error
    return status


def _undelivered(error: Undelivered) -> int:
    """A reader that is gone, as of ``| head``, wants no words; a full disk is said."""
    _give_up(sys.stdout)
    if error.unread:
        return UNREAD
    return _refuse(str(error), as_json=False)


def _give_up(stream: Any) -> None:
    """Lead a stream that cannot be written nowhere; else the interpreter tries again when it ends, and fails."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(line: str) -> None:
    """A line on stderr; where that cannot be written, the exit status alone says what happened."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)


def _stopped(error: Stopped, as_json: bool) -> int:
    if isinstance(error, Interrupted):
        return _interrupted(str(error))
    nothing = "there was nothing to keep yet"
    said = f"{error}; {nothing}"
    if as_json:
        _written(json.dumps({"error": one_line(said, LONGEST)}))
    if error.cancelled:
        return _interrupted(nothing)
    _tell(said)
    return NOT_PROVED


def _interrupted(kept: str) -> int:
    _tell(f"interrupted; {kept}")
    return INTERRUPTED


def _unexpected(error: Exception) -> str:
    """One line about an error that is nobody's input: too little memory, or a fault of ours."""
    if _out_of_memory(error):
        return "not enough memory for this problem; lower max_tokens or loosen eps"
    if os.environ.get(DEBUG):
        traceback.print_exc()
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"internal error ({what}); please report it; {DEBUG}=1 shows where"


def _out_of_memory(error: Exception) -> bool:
    """Torch says it with an error of its own."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def _refuse(message: str, as_json: bool) -> int:
    message = one_line(message, LONGEST)
    _tell(f"onelayer: {message}")
    if as_json:
        with contextlib.suppress(Undelivered):  # the line above has said it
            _written(json.dumps({"error": message}))
    return BAD_INPUT
