"""Rigorous Taylor models: the public face of the arithmetic in this folder.

x = variables(lower, upper, order=6)      # one model per coordinate, batched over boxes
g = difference(model(x), f(x))            # torch code runs unchanged
g.split_bound() <= eps                    # a proof, box by box
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.formats import are_formats, either

# Each of these registers its operations.
from onelayer.taylor import (  # noqa: F401
    attention,
    attributes,
    conditions,
    contraction,
    faceted,
    functions,
    modules,
    normalize,
    piecewise,
    recurrent,
    reductions,
    shapes,
    splined,
    tables,
    windowed,
)
from onelayer.taylor.arithmetic import combine
from onelayer.taylor.core import Space, TaylorModel, constant
from onelayer.taylor.rounding import middle_and_reach
from onelayer.taylor.sides import Sides


def variables(
    lower: Tensor, upper: Tensor, order: int, execution: torch.dtype | None = None, sides: Sides | None = None
) -> TaylorModel:
    """The coordinates of the boxes as models x = c + r t, |t| <= 1, one variable per coordinate.

    lower, upper: (B, *event). The radius is rounded up, so that c + r t covers the whole box.
    """
    if lower.shape != upper.shape or lower.ndim < 1:
        raise OnelayerError(f"boxes need bounds of one shape (B, *event), got {lower.shape} and {upper.shape}")
    if not 1 <= order <= 16:
        raise OnelayerError(f"order must be between 1 and 16, got {order}")
    if execution is not None and not are_formats([execution]):
        raise OnelayerError(f"only {either()} is executed, got {execution}")
    lower = lower.detach().double()
    upper = upper.detach().double()
    dim = prod(lower.shape[1:])
    center, radius = middle_and_reach(lower, upper)
    up = torch.nextafter(radius, torch.full_like(radius, torch.inf))
    radius = torch.where(radius > 0, up, radius)
    coef = torch.zeros(1 + dim, *lower.shape, dtype=torch.float64, device=lower.device)
    coef[0] = center
    flat = coef.view(1 + dim, len(lower), dim)
    each = torch.arange(dim, dtype=torch.int64, device=lower.device)
    flat[1 + each, :, each] = radius.reshape(len(lower), dim).T
    space = Space(order, dim, execution, sides)
    return TaylorModel(coef, torch.zeros_like(center), space, tuple(range(dim)), 1)


def difference(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """a - b in exact real arithmetic, whatever the operands were executed in."""
    b = b.untag() if isinstance(b, TaylorModel) else b
    return combine(a.untag(), b, -1)


def taylor_constant(like: TaylorModel, value: float, radius: float = 0.0) -> TaylorModel:
    """A real number known to lie in value +- radius, as a model that mixes with ``like``."""
    return constant(value, like, tables.number(abs(radius), like.device))


__all__ = ["Space", "TaylorModel", "difference", "taylor_constant", "variables"]
