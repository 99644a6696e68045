"""Every NumPy function that can be recorded, with every argument by name: equal to NumPy, or refused in one line."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from numpy_rows import ENTRIES, FUNCTIONS, VALUES

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.recording.dispatch import IDENTITY, JOINING, OPERATIONS, STRUCTURAL
from onelayer.recording.numpy_code import _OWN, _TORCH, recordable
from onelayer.recording.recorder import record

OF_UFUNCS = ("where", "dtype", "casting", "order", "subok", "out")
BY_POSITION = {("cumsum", "axis"), *(("clip", word) for word in ("a_min", "a_max", "min", "max"))}  # in their rows
# What signatures do not name.
OTHERS = {"einsum": ("dtype", "order", "casting"), "clip": OF_UFUNCS, "pad": ("constant_values",)}
POINTS = torch.randn(5, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
GIVEN = POINTS / (1 + POINTS.abs())


def known(library: Any) -> list[str]:
    """The names under which a library has functions that are recorded."""
    recorded = set(OPERATIONS) | STRUCTURAL | JOINING | IDENTITY
    named = [name for name in dir(library) if name in _OWN or _TORCH.get(name, name) in recorded]
    return [name for name in named if type(getattr(library, name)) in (np.ufunc, type(np.sum))]


NAMES = [*(("np", name) for name in known(np)), *(("special", name) for name in known(scipy.special))]


def arguments(home: str, name: str) -> list[str]:
    """The arguments by position of every call of a row, or those of a function of entries."""
    function = getattr(np if home == "np" else scipy.special, name)
    plain = "p, 0.3 * p" if getattr(function, "nin", 1) == 2 else "p"
    row = ENTRIES.get(name) or (plain if isinstance(function, np.ufunc) else FUNCTIONS[name])
    return row.split("; ")


def keywords(home: str, name: str) -> list[str]:
    """The names of all arguments that may be left out."""
    function = getattr(np if home == "np" else scipy.special, name)
    if isinstance(function, np.ufunc):
        # SciPy's own write into memory that is not theirs where they are told to leave entries out.
        return [name for name in OF_UFUNCS if name != "where" or home == "np"]
    known = inspect.signature(function).parameters.values()
    named = [one.name for one in known if one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY]
    return [*named, *OTHERS.get(name, ())]


def run(call: str, p: Any) -> Any:
    constants = {"m": np.array([[True, False, True], [False, True, True]]), "w": np.arange(6.0).reshape(2, 3) / 7}
    found = eval(call, {"np": np, "special": scipy.special, "p": p, "q": p / 4, **constants})
    found = [np.sum(part * 1.0) for part in found] if isinstance(found, (list, tuple)) else found
    # Conditions become numbers.
    return np.stack(found) if isinstance(found, list) else np.where(found, 1.0, 2.0) if found.dtype == bool else found


def truth(call: str) -> Any:
    """What NumPy returns at every point, or None where it refuses the call or returns no number."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = np.stack([run(call, point.numpy().copy()) for point in GIVEN])
        except Exception:
            return None
    return found if np.isfinite(found).all() else None


def formula_of(call: str) -> Any:
    """What is recorded of a call; raises where it is refused."""
    box = Box(torch.full((2, 3), -0.99, dtype=torch.float64), torch.full((2, 3), 0.99, dtype=torch.float64))
    return record(recordable(lambda p: run(call, p), batched=False), (2, 3), box=box, of_tensors=False)


def refusal(call: str) -> str:
    """Why a call is not recorded; nothing where it is, and equals NumPy."""
    try:
        formula = formula_of(call)
    except OnelayerError as error:
        return str(error)
    found, wanted = formula(GIVEN).numpy(), truth(call)
    assert found.shape == wanted.shape, call
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12, err_msg=call)
    return ""


@pytest.mark.parametrize(("home", "name"), NAMES)
def test_recorded_calls_equal_numpy(home: str, name: str) -> None:
    for given in arguments(home, name):
        call = f"{home}.{name}({given})"
        assert truth(call) is not None, call
        assert refusal(call) == "", call


@pytest.mark.parametrize(("home", "name"), NAMES)
def test_every_argument_by_name_is_recorded_or_refused(home: str, name: str) -> None:
    given = arguments(home, name)[0]
    shape = str(truth(f"{home}.{name}({given})").shape[1:])
    for keyword in keywords(home, name):
        calls = [f"{home}.{name}({given}, {keyword}={value.replace('SHAPE', shape)})" for value in VALUES[keyword]]
        taken = [call for call in calls if truth(call) is not None]
        assert taken or name in ENTRIES or (name, keyword) in BY_POSITION, (name, keyword)
        for call in taken:
            assert "\n" not in refusal(call), call
