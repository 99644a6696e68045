"""Contractions of Taylor models without a common variable: every pair of monomials is a monomial of its own.

What lies above the highest degree is summed over the contraction first, where it may cancel, and bounded after.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from onelayer.taylor import basis, kernels, tables
from onelayer.taylor.arithmetic import Places
from onelayer.taylor.core import TaylorModel

Rows = tuple[Tensor, Tensor]


class Labels(NamedTuple):
    """Letters of a contraction by what becomes of them: kept of the left or of the right alone, summed, or shared."""

    left: str
    right: str
    summed: str
    shared: str

    @property
    def result(self) -> str:
        """The letters of the result as a kernel writes it."""
        return self.left + self.right + self.shared


def disjoint_rows(la: str, lb: str, out: str, a: TaylorModel, b: TaylorModel, places: Places, degree: int) -> Rows:
    """Coefficients of the contraction up to ``degree``, and a bound of the polynomial above it."""
    labels = _parted(la, lb, out)
    if labels is None or not kernels.ready(a.coef, b.coef) or not prod(a.shape) * prod(b.shape):
        return _plain(la, lb, out, a, b, places, degree)
    sizes = dict(zip(la, a.shape, strict=True))
    sizes |= {c: max(size, sizes.get(c, 1)) for c, size in zip(lb, b.shape, strict=True)}
    left = _arranged(a, la, (labels.left, labels.summed, labels.shared), sizes)
    right = _arranged(b, lb, (labels.right, labels.summed, labels.shared), sizes)
    targets = kernels.targets(*places, a.degree, b.degree, degree)
    coef, above = kernels.outer(left, right, targets)
    # From the order of the kernel to that of the equation.
    shape = [sizes[c] for c in labels.result]
    order = [labels.result.index(c) for c in out]
    coef = coef.reshape(len(coef), *shape)
    coef = coef.permute(0, *(i + 1 for i in order)).contiguous()
    return coef, above.reshape(shape).permute(order)


def _parted(la: str, lb: str, out: str) -> Labels | None:
    """The letters of a contraction, None where one comes twice in an operand or is summed over in one alone."""
    both = {*la} & {*lb}
    twice = len({*la}) < len(la) or len({*lb}) < len(lb)
    if twice or not {*la} ^ {*lb} <= {*out}:
        return None
    left = _among(la, {*la} - both)
    right = _among(lb, {*lb} - both)
    summed = _among(la, both - {*out})
    shared = _among(la, both & {*out})
    return Labels(left, right, summed, shared)


def _among(text: str, letters: set[str]) -> str:
    return "".join(filter(letters.__contains__, text))


def _arranged(x: TaylorModel, labels: str, parts: tuple[str, ...], sizes: dict[str, int]) -> Tensor:
    """Rows (P, ...) with the letters of each part as one dimension."""
    letters = "".join(parts)
    turned = x.coef.permute(0, *(labels.index(c) + 1 for c in letters))
    wide = turned.expand(len(turned), *(sizes[c] for c in letters))
    joined = [prod(sizes[c] for c in part) for part in parts]
    return wide.reshape(len(wide), *joined)


def _plain(la: str, lb: str, out: str, a: TaylorModel, b: TaylorModel, places: Places, degree: int) -> Rows:
    # Every pair of rows, then those within the degree to their places, the others in absolute value.
    full = torch.einsum(f"P{la},I{lb}->PI{out}", a.coef, b.coef).flatten(0, 1)
    kept, rows, above = basis.outer_rows(*places, a.degree, b.degree, degree)
    coef = full.new_zeros(basis.count(places[2], degree), *full.shape[1:])
    coef[tables.rows(rows, full.device)] = full[tables.rows(kept, full.device)]
    return coef, full[tables.rows(above, full.device)].abs().sum(0)
