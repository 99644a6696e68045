"""NumPy code may not find out that it is recorded.

Torch shows which operations it runs on plain tensors, so code that goes another way there is found (beside.py). NumPy
shows nobody what it computes of plain arrays. There a recorded array says that it is of the class of the numbers beside
it, and asking by any other way is refused: the name ``type``, which cannot be answered for another class, and an error
that the code itself catches, since numbers may not raise it.
"""

from __future__ import annotations

import dis
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

import numpy as np

from onelayer.errors import UnsupportedOperation, told
from onelayer.recording.symbolic import Recording

# Whose code is not asked about what it asks: it is the same for everybody.
LIBRARIES = sys.stdlib_module_names | {"numpy", "scipy", "torch", "onelayer"}
ASKED = "recorded numbers have no type of NumPy; leave it out, or ask isinstance(x, np.ndarray)"
CAUGHT = "numbers may not raise it, and then the code goes another way; leave the try out"
RAISED = "numbers may raise it, and then the code goes another way; leave np.errstate and warnings as errors out"
# What ends a loop over a generator.
ENDS = (StopIteration, GeneratorExit)
Trace = Callable[[FrameType, str, Any], Any]


@contextmanager
def unasked(tape: Recording) -> Iterator[None]:
    """Run code of NumPy; what it asks or catches is remembered as refused, and raised once it has returned."""
    before = sys.gettrace()
    tape.raising = _raising()
    sys.settrace(_watching(tape))
    try:
        yield
    finally:
        sys.settrace(before)


def refuse_raising(tape: Recording) -> None:
    """Refuse an operation on numbers that may raise an error, or call a function, at some of them alone."""
    if _raising() - tape.raising:
        tape.refuse("a floating-point error that is raised", RAISED)


def _raising() -> set[str]:
    """What NumPy, or Python, makes an error or a call of where a number overflows or has no value."""
    by_numpy = {f"{kind} {how}" for kind, how in np.geterr().items() if how in ("raise", "call", "print", "log")}
    return by_numpy | {repr(item) for item in warnings.filters if item[0] == "error"}


def _watching(tape: Recording) -> Trace:
    def watch(frame: FrameType, event: str, found: Any) -> Trace | None:
        if event == "call":
            if _is_library(frame) or _is_loaded(frame):
                return None
            frame.f_trace_lines = False
            if _names_type(frame.f_code):
                tape.refused = tape.refused or UnsupportedOperation("type(x)", ASKED)
        elif event == "exception" and not issubclass(found[0], ENDS):
            tape.refused = tape.refused or UnsupportedOperation(f"catching {told(found[1])}", CAUGHT)
        return watch

    return watch


def _is_library(frame: FrameType) -> bool:
    return _home(frame) in LIBRARIES


def _is_loaded(frame: FrameType) -> bool:
    """Whether code runs because a module is loaded, as libraries do at a first call: it is none of f."""
    above = frame.f_back
    # Up to the code of ours that calls f: what is above may be loading the module of the user.
    while above is not None and _home(above) != "onelayer":
        if _home(above) == "importlib":
            return True
        above = above.f_back
    return False


def _home(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]


@cache
def _names_type(code: CodeType) -> bool:
    """Whether code reads the name, not an attribute of it as in ``x.dtype.type``."""
    return any(step.argval == "type" and "ATTR" not in step.opname for step in dis.get_instructions(code))
