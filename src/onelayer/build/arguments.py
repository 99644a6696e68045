"""What every construction asks of its arguments, and the sizes within which its arithmetic stays clear of overflow.

Each check ends in one line: what was wrong, and what would be right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.formats import WIDE, are_formats, either, format_of
from onelayer.narrow import ACCUMULATORS
from onelayer.proof.tree import MAX_DIM
from onelayer.seeds import MAX_SEED

# Share of the largest number of a format that inputs and outputs may reach: sums need the rest.
ROOM = 2.0**-24
# The same for a narrow format, whose sums are taken in float32.
NARROW_ROOM = 2.0**-6
# The same for values of tokens: a proof adds them up in absolute value.
VALUES = 2.0**-20
# Slopes of keys on an interval of width 1, at most.
KEYS = 2.0**10
# Sizes up to this, and down to its inverse, are fitted as they are.
MODERATE = 2.0**64


def check_eps(eps: Any, name: str = "eps") -> None:
    """An error that can be asked for."""
    # An integer beyond all floats is below infinity for Python; NumPy would round the largest float to its own format.
    value = eps.item() if isinstance(eps, np.generic) else eps
    if not (_is(eps, Real) and 0 < value <= sys.float_info.max):
        raise OnelayerError(f"{name} must be a finite number > 0, got {_shown(eps)}")


def check_dtype(dtype: Any) -> None:
    """A wide float format of the table in ``formats``."""
    if not are_formats([dtype]) or format_of(dtype) not in WIDE:
        raise OnelayerError(f"dtype must be {either('torch.', WIDE)}, got {dtype}")


def check_seed(seed: Any) -> int:
    """A seed that every generator takes, as Python's own number: torch's take no other."""
    if not (_is(seed, Integral) and 0 <= seed <= MAX_SEED):
        raise OnelayerError(f"seed must be a whole number between 0 and 2^62, got {_shown(seed)}")
    return int(seed)


def check_choice(name: str, given: Any, allowed: Iterable[str]) -> None:
    """One of some words."""
    words = list(allowed)
    if not isinstance(given, str) or given not in words:
        raise OnelayerError(f"{name} must be one of {', '.join(words)}; got {_shown(given)}")


def check_ends(low: Any, high: Any) -> None:
    """The ends of an interval of some width."""
    real = _is(low, Real) and _is(high, Real)
    most = sys.float_info.max
    if not (real and -most <= low < high <= most):
        raise OnelayerError(f"the interval needs lo < hi, both finite, got lo = {_shown(low)}, hi = {_shown(high)}")


def check_budget(max_seconds: float, jobs: int = 1, **counts: int) -> None:
    """``max_seconds`` > 0, workers, and counts of at least one."""
    for name, count in counts.items():
        if not (_is(count, Integral) and count >= 1):
            raise OnelayerError(f"{name} must be a whole number >= 1, got {_shown(count)}")
    if not (_is(max_seconds, Real) and max_seconds > 0):
        raise OnelayerError(f"max_seconds must be a number > 0, got {_shown(max_seconds)}")
    if not (_is(jobs, Integral) and (jobs == -1 or jobs >= 1)):
        raise OnelayerError(f"jobs must be a number of workers, 1 or more, or -1 for one per core, got {_shown(jobs)}")


def check_dimension(box: Box) -> None:
    """A box whose coordinates a proof by boxes can count."""
    if box.dim > MAX_DIM:
        raise OnelayerError(f"a proof by boxes has at most {MAX_DIM} coordinates, the box has {box.dim:,}")


def check_box(box: Any, dtype: torch.dtype) -> None:
    """A box whose numbers leave room for sums in ``dtype``, each side holding a number of that format."""
    if not isinstance(box, Box):
        raise OnelayerError(f"the domain must be a Box, for example Box([0, 0], [1, 1]); got {type(box).__name__}")
    farthest = torch.maximum(box.lower.abs(), box.upper.abs())
    largest = float(farthest.max())
    name = format_of(dtype).name
    limit = reach(dtype)
    if largest > limit:
        raise OnelayerError(f"the box reaches {largest:.3g}; keep it within +-{limit:.1g} for {name}, in other units")
    first_inside = _next_number(box.lower, dtype)
    empty = torch.nonzero((first_inside > box.upper).flatten())
    if len(empty):
        at = int(empty[0, 0])
        low = float(box.lower.flatten()[at])
        high = float(box.upper.flatten()[at])
        raise OnelayerError(
            f"coordinate {at + 1} of the box, [{low!r}, {high!r}], holds no {name} number: no {name} execution is "
            "there to certify; widen it, or use float64"
        )


def check_size(largest: float, dtype: torch.dtype, what: str) -> None:
    """Values that leave room for sums in ``dtype``."""
    limit = reach(dtype)
    # Written so that nan is refused too.
    if not largest <= limit:
        name = format_of(dtype).name
        raise OnelayerError(f"{what} reaches {largest:.3g}; keep it within +-{limit:.1g} for {name}")


def reach(dtype: torch.dtype) -> float:
    """The largest size of inputs and outputs in a format."""
    share = NARROW_ROOM if dtype in ACCUMULATORS else ROOM
    return format_of(dtype).largest * share


def reach_of_values(dtype: torch.dtype) -> float:
    """The largest size of values of tokens in a format."""
    return format_of(dtype).largest * VALUES


def narrowest(dtype: torch.dtype) -> float:
    """The least width of an interval whose inverse, times what keys need, is a number of the format."""
    row = format_of(dtype)
    if dtype in ACCUMULATORS:
        return KEYS / row.largest
    return row.normal / ROOM


def _next_number(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The least numbers of ``dtype`` that are not below these float64 values, as float64."""
    near = values.to(dtype)
    above = torch.nextafter(near, torch.full_like(near, torch.inf))
    return torch.where(near.double() < values, above, near).double()


def scale_of(size: float) -> float:
    """A power of two near ``size``, by which a fit divides very large or very small values; 1 in between."""
    usable = size > 0 and math.isfinite(size)
    if not usable or 1 / MODERATE <= size <= MODERATE:
        return 1.0
    _, exponent = math.frexp(size)
    # Not below 2^-1000: what is divided by a smaller scale might overflow.
    return math.ldexp(1.0, max(-1000, exponent))


def relative(tolerance: float, scale: float) -> float:
    """A tolerance in units of ``scale``, kept where its square exists: below, rounding decides anyway."""
    share = tolerance / scale
    return min(max(share, 2.0**-200), 2.0**200)


def _is(value: Any, kind: type) -> bool:
    # Truth values count as whole numbers in Python, and are never meant as one here.
    return isinstance(value, kind) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= 40:
        return text
    return text[:37] + "..."
