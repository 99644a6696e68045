"""What a user's callable takes and returns: one array or D arguments, tensors or NumPy arrays, batches or points."""

from __future__ import annotations

import inspect
import linecache
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onelayer.box import Box
from onelayer.card import number_of
from onelayer.errors import OnelayerError, told
from onelayer.points import real_numbers

MOST_CODE = 60  # characters of the user's code in an error


def _required(f: Callable[..., Any]) -> list[str]:
    """The arguments that f must be given, by name; none where its signature is not known."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in positional if p.default is p.empty]


def of_one_array(f: Callable[..., Any], box: Box) -> Callable[[Any], Any]:
    """``f`` as a function of one array (..., D); one of D arguments gets the coordinates, by name where it uses those.

    A function with one required argument, or with a signature that is not known, is taken as it is.
    """
    names = _required(f)
    if len(box.shape) != 1 or len(names) < 2:
        return f
    taken = ", ".join(names[:8])
    if len(names) != box.dim:
        coordinates = number_of(box.dim, "coordinates")
        raise OnelayerError(
            f"f takes {len(names)} arguments ({taken}), and the box has {coordinates}; give one for each"
        )
    shared = set(names) & set(box.variables)
    # One misspelt name would otherwise permute the inputs without a word.
    if shared and len(shared) < box.dim:
        raise OnelayerError(f"f takes {taken} and the box names {', '.join(box.variables[:8])}; call them alike")
    by_name = [box.variables.index(name) for name in names] if shared else range(box.dim)
    return Spread(f, tuple(by_name))


@dataclass(frozen=True)
class Spread:
    """A function of several arguments as one of an array that holds them in its last dimension, in some order."""

    f: Callable[..., Any]
    order: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        arguments = [x[..., at] for at in self.order]
        return self.f(*arguments)


class InFloat64(TorchFunctionMode):
    """Torch with every float32 tensor among the arguments taken as the float64 tensor of the same numbers.

    A module with float32 weights is then the same function, evaluated more accurately.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*_widened(args), **_widened(kwargs or {}))


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.dtype == torch.float32:
            return value.double()
        return value
    if isinstance(value, dict):
        return {key: _widened(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_widened, value))
    return value


def in_float64(f: Callable[[Any], Any], points: Tensor) -> Callable[[Any], Any]:
    """f itself, or f with its float32 constants widened where that alone makes it take float64 points."""

    def widened(x: Any) -> Any:
        with InFloat64():
            return f(x)

    failure = _failure(f, points)
    # A RuntimeError is what torch raises for two formats in one product; anything else widening does not mend.
    if isinstance(failure, RuntimeError) and _failure(widened, points) is None:
        return widened
    return f


def _failure(f: Callable[[Any], Any], points: Tensor) -> Exception | None:
    """What f raises at these points, None where it answers; what it warns about concerns the call that counts."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            f(points.clone())
    except Exception as error:
        return error
    return None


def not_torch(f: Callable[[Any], Any], points: Tensor, if_it_fails: bool) -> str | None:
    """Why f is not a torch function: None when it answers points with a tensor, or fails for another reason.

    NumPy functions accept tensors too and warn about it; those are not torch functions.
    """
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            answer = f(points.clone())
        # What NumPy code raises on tensors.
        except (TypeError, AttributeError, ValueError, IndexError) as error:
            if isinstance(error, OnelayerError):
                return None if if_it_fails else told(error)
            return told(error)
        except Exception as error:
            return None if if_it_fails else told(error)
    if not isinstance(answer, Tensor):
        return f"it returned {type(answer).__name__}"
    if any("__array_wrap__" in str(warning.message) for warning in caught):
        return "NumPy"
    return None


def met_in(error: Exception) -> str:
    """The code of the user's in which an error arose, as "; met in math.sin(x[0])"; nothing where it is not known."""
    package = str(Path(__file__).parents[1])
    others = (package, sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"))
    frames = [at for at in traceback.extract_tb(error.__traceback__) if not at.filename.startswith(others)]
    if not frames:
        return ""
    last = frames[-1]
    code = last.line or ""
    # Where Python says which columns failed, and they lie in one line, that part is enough.
    columns = (getattr(last, "colno", None), getattr(last, "end_colno", None))
    if None not in columns and last.lineno == getattr(last, "end_lineno", None):
        whole = linecache.getline(last.filename, last.lineno or 0)
        code = whole.encode()[slice(*columns)].decode(errors="replace")  # columns count bytes
    shown = " ".join(code.split())[:MOST_CODE]
    return f"; met in {shown}" if shown else ""


def on_arrays(f: Callable[[Any], Any], points: Tensor) -> tuple[Callable[[Tensor], Tensor], bool]:
    """f on NumPy arrays as a torch function, and whether it takes batches; else it gets one point after another."""
    shape = tuple(points.shape[1:])
    try:
        # The call that counts says where f has no value.
        with np.errstate(all="ignore"):
            answer = f(points.numpy().copy())
            batched = np.shape(answer)[:1] == (points.shape[0],)
    except Exception:
        batched = False

    def function(x: Tensor) -> Tensor:
        flat = x.detach().cpu().double().reshape(-1, *shape).numpy()
        # Copies: code that writes into its argument must not write into the points.
        given = [f(flat.copy())] if batched else map(f, flat)
        answers = list(map(real_numbers, given))
        raw = answers[0] if batched else np.stack(answers)
        values = torch.from_numpy(np.ascontiguousarray(raw))
        values = values.double() if values.is_floating_point() else values
        batch = x.shape[: x.ndim - len(shape)]
        return values.reshape(*batch, *values.shape[1:])

    return function, batched
