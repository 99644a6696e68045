"""How every command speaks: results on stdout, one JSON object with --json, one line on stderr for bad input.

Exit status: 0 proved or succeeded, 1 refuted or undecided, 2 bad input, 130 interrupted. The first Ctrl-C asks a long
command for the best it has, which is saved where a folder was given, and says so in one line; the second ends it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.exceptions import TyperException

from onelayer.errors import OnelayerError
from onelayer.observer import Stopped

SUCCESS, NOT_PROVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130  # exit statuses; 130 is what shells give to an interrupt
DEBUG = "ONELAYER_DEBUG"  # set to anything: an unexpected error shows its traceback


class Interrupted(Stopped):
    """A command that was interrupted and has something to show for it; its message says what was kept."""

    def __init__(self, kept: str) -> None:
        super().__init__(kept, cancelled=True)


def show(text: str, data: Mapping[str, Any], *, as_json: bool) -> None:
    """Print ``text`` for people or ``data`` for programs."""
    print(json.dumps(plain(data)) if as_json else text)


def plain(value: Any) -> Any:
    """JSON has no infinity: infinite and undefined numbers become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def run(app: typer.Typer, arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status. No traceback for anything a user can cause."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = typer.main.get_command(app)
    return guarded(lambda: command.main(arguments, prog_name="onelayer", standalone_mode=False), "--json" in arguments)


def guarded(action: Callable[[], Any], as_json: bool) -> int:
    """Exit status of ``action``, with every failure turned into one line; an unexpected one asks to be reported."""
    try:
        status = action()
    except TyperException as error:
        return _refuse(" ".join(error.format_message().split()), as_json)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except Stopped as error:
        return _stopped(error)
    except (OnelayerError, OSError) as error:
        return _refuse(" ".join(str(error).split()), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted("nothing was written")
    except Exception as error:
        return _refuse(_unexpected(error), as_json)
    if status == INTERRUPTED:  # what typer makes of a KeyboardInterrupt
        return _interrupted("nothing was written")
    return status if isinstance(status, int) else SUCCESS


def _stopped(error: Stopped) -> int:
    if isinstance(error, Interrupted):
        return _interrupted(str(error))
    nothing = "there was nothing to keep yet"
    if error.cancelled:
        return _interrupted(nothing)
    print(f"{error}; {nothing}", file=sys.stderr)
    return NOT_PROVED


def _interrupted(kept: str) -> int:
    print(f"interrupted; {kept}", file=sys.stderr)
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
    print(f"onelayer: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message}))
    return BAD_INPUT
