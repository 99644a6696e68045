"""Anchoring: a plan's features inside the wide tokens of a layer with LayerNorm, which then leaves them alone.

Every feature is scaled to at most one and stored twice, as u and -u, so a token's mean is zero; two anchor features +A
and -A make its variance A^2 up to a factor 1 + 1/anchor^2. With the gain A LayerNorm is then the identity up to a
relative 1/(2 anchor^2). Reading (u - (-u))/2 cancels whatever rounding the mean of the anchors leaves. Memory tokens
have anchors that give them exactly the reference norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.plan import Plan

NORM_EPS = 1e-5  # torch's own
# Half the digits for the norm, half to spare: the warp 1/(2 anchor^2) stays below the accuracy of most fits, and bounds
# of rounding, which cannot know that errors of the mean cancel, stay of that size too.
ANCHORS = {torch.float64: 2.0**17, torch.float32: 2.0**12}


@dataclass(frozen=True)
class Anchoring:
    """F features in tokens of width d: ``up`` (d, F) stores, ``down`` (F, d) reads, down @ up = 1."""

    up: Tensor
    down: Tensor
    anchor: float

    @property
    def width(self) -> int:
        """Width of the stream with its anchors."""
        return len(self.up)

    @property
    def gain(self) -> float:
        """The LayerNorm gain that undoes the division by the reference norm."""
        return math.sqrt(2 * self.anchor**2 / self.width + NORM_EPS)

    def tokens(self, features: Tensor, *, exact: bool = False) -> Tensor:
        """Features (..., F) as tokens (..., d); ``exact`` shortens the anchors to give all tokens the same norm."""
        tokens = features @ self.up.T
        anchor = torch.full(tokens.shape[:-1], self.anchor, dtype=torch.float64)
        # Memory tokens are constants: their norm can be made exactly the reference norm.
        if exact:
            anchor = torch.sqrt(self.anchor**2 - tokens.square().sum(-1) / 2)
        first = 2 * self.up.shape[1]
        tokens[..., first] = anchor
        tokens[..., first + 1] = -anchor
        return tokens

    @classmethod
    def of(cls, plan: Plan, anchor: float) -> Anchoring:
        """The anchoring of width H w for a plan; ``anchor`` is the size of the anchors beside the largest token."""
        if not 1 < anchor < math.inf:
            raise OnelayerError(f"anchor must be a number > 1, got {anchor!r}")
        count = plan.features
        width = plan.heads * plan.width
        # Powers of two, so that scaling rounds nothing.
        positive = torch.where(plan.bound > 0, plan.bound, 1.0)
        scale = torch.exp2(torch.ceil(torch.log2(positive)))
        up = torch.zeros(width, count).double()
        down = torch.zeros(count, width).double()
        up[:count] = torch.diag(1 / scale)
        up[count : 2 * count] = torch.diag(-1 / scale)
        down[:, :count] = torch.diag(scale / 2)
        down[:, count : 2 * count] = torch.diag(-scale / 2)
        return cls(up, down, anchor * math.sqrt(count))
