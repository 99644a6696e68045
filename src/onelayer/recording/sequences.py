"""Functions of sequences that the formula language has no room for: sorting, and weighted order statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onelayer.language.words import describe
from onelayer.recording.target import Target


def order_statistics(length: int, weights: Sequence[float] | None) -> Target:
    """x -> (x_(1), ..., x_(n)), the numbers in ascending order; with ``weights`` the number sum_k weights[k] x_(k)."""

    def function(x: Any) -> Any:
        ordered = torch.sort(x, dim=-1).values
        if weights is None:
            return ordered
        factors = torch.tensor(weights, dtype=x.dtype, device=x.device)
        return (ordered * factors).sum(-1)

    name = describe(length, weights)
    shape = (length,) if weights is None else ()
    return Target(function, (length,), shape, "callable", name, unrecorded=name)
