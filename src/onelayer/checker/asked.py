"""What a check is asked for, looked at before any file is: other kinds of arguments end in one line."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula


class Asked(OnelayerError):
    """The checker was asked for something it cannot do, whatever the files say."""


def need_arguments(every: Any, seed: Any, f: Any, jobs: Any) -> None:
    """OnelayerError for what no argument of a check can be; comparisons are written so that nan fails them."""
    if not isinstance(every, bool | np.bool_):
        raise OnelayerError(f"all must be True or False, got {repr(every)[:60]}")
    if seed is not None and not (isinstance(seed, Integral) and int(seed) >= 0):
        raise OnelayerError(f"seed must be a whole number >= 0 or None, got {repr(seed)[:60]}")
    if f is not None and not isinstance(f, str | Formula):
        raise OnelayerError(f"f must be formula text, got {repr(f)[:60]}")
    if not (isinstance(jobs, Integral) and (int(jobs) == -1 or int(jobs) >= 1)):
        raise OnelayerError(f"jobs must be a number of processes >= 1, or -1 for one per core, got {repr(jobs)[:60]}")
