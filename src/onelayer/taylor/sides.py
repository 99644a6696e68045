"""Sides of kinks: where a box does not decide a kink, each side of it is enclosed on its own.

Lemma. On the points with q >= 0, let y = c q + r with |r| <= d. Then s y <= |y| <= s y + 2 d with s = sign(c): if
s y >= 0 then |y| = s y; otherwise s y >= -d, so |y| = -s y <= s y + 2 d.

The kinks of f and those that a layer built for it has lie on the same hyperplanes up to rounding. Assuming one side for
both, T - f is smooth and its polynomials cancel; enclosed each on its own, they would differ by the size of the box.

An enclosure under an assumption speaks of a part of the box. Its polynomial may leave the range of the values on the
other part, even in the middle of the box.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.taylor import basis
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.rounding import gamma, inflate


class Sides:
    """Assumptions q(t) >= 0, one affine polynomial per box each, and the first kink per box that they left open.

    ``assumed``: tensors (1 + D, B), constant term first. ``open``: (B,), where a plane was noted in ``plane``
    (1 + D, B). Compared by identity, as a part of the space of all models of one evaluation. The models must keep the
    boxes as their first dimension.
    """

    def __init__(self, assumed: list[Tensor], boxes: int, dim: int, device: torch.device, *, take_notes: bool) -> None:
        self.assumed = assumed
        self.take_notes = take_notes
        self.open = torch.zeros(boxes, dtype=torch.bool, device=device)
        self.plane = torch.zeros(1 + dim, boxes, dtype=torch.float64, device=device)

    def silent(self) -> Sides:
        """The same assumptions for the model's own kinks, of which no note is taken."""
        boxes = len(self.open)
        return Sides(self.assumed, boxes, len(self.plane) - 1, self.open.device, take_notes=False)

    def absolute(self, y: TaylorModel, enclosed: TaylorModel, box: Tensor) -> TaylorModel:
        """|y| for entries y (E,) of boxes ``box`` (E,): the better of ``enclosed`` and what the assumptions give."""
        affine = _affine_part(y)  # (1 + D, E)
        curved = torch.zeros_like(y.rem)
        if y.degree > 1:
            curved = y.coef[1 + len(y.support) :].abs().sum(0)
        coef = enclosed.coef
        rem = enclosed.rem
        settled = torch.zeros_like(box, dtype=torch.bool)
        for plane in self.assumed:
            q = plane[:, box]
            # The multiple of the plane that is nearest to y; any c is as true, d covers the rest.
            normal = q[1:]
            c = (affine[1:] * normal).sum(0) / (normal * normal).sum(0)
            rounding = gamma(4) * (affine.abs() + (c * q).abs()).sum(0)
            rest = (affine - c * q).abs().sum(0) + rounding
            d = inflate(rest + curved + y.rem)
            sign = torch.sign(c)
            better = (sign != 0) & (inflate(y.rem + d) < rem)  # false for NaN
            mine = sign * _basis_rows(y, enclosed)
            mine[0] = mine[0] + d
            slack = inflate(y.rem + d + gamma(2) * mine[0].abs())
            coef = torch.where(better, mine, coef)
            rem = torch.where(better, slack, rem)
            # A plane this near is the same kink: assuming it again would not help.
            same = d < affine[1:].abs().sum(0) / 2
            settled |= better | same
        if self.take_notes:
            self._note(affine, box, ~settled)
        return enclosed.with_(coef, rem)

    def _note(self, affine: Tensor, box: Tensor, wanted: Tensor) -> None:
        """Keep the first open kink of each box that has a direction."""
        size = affine[1:].abs().sum(0)
        wanted = wanted & (size > 0) & torch.isfinite(affine).all(0)
        for_box = box[wanted].flip(0)  # the last write wins
        fresh = torch.zeros_like(self.plane)
        fresh[:, for_box] = affine[:, wanted].flip(1)
        mark = torch.zeros_like(self.open)
        mark[for_box] = True
        mark &= ~self.open
        self.plane = torch.where(mark, fresh, self.plane)
        self.open = self.open | mark


def _affine_part(y: TaylorModel) -> Tensor:
    """Constant and linear coefficients over all D variables, (1 + D, *shape)."""
    full = torch.zeros(1 + y.space.dim, *y.shape, dtype=torch.float64, device=y.device)
    full[0] = y.coef[0]
    if y.degree >= 1:
        full[[1 + i for i in y.support]] = y.coef[1 : 1 + len(y.support)]
    return full


def _basis_rows(y: TaylorModel, like: TaylorModel) -> Tensor:
    """The coefficients of y in the basis of ``like``, whose support is the same and whose degree is no smaller."""
    rows = torch.zeros_like(like.coef)
    rows[: basis.count(len(y.support), y.degree)] = y.coef
    return rows
