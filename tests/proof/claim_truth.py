"""Whether a claim about a network is true, as far as points can tell: values and slopes by torch's own differentiation.

The claim is lower <= sup|G - f| <= upper, for a G that its kind says. Slopes and second derivatives are real numbers,
known here to ten digits; so are executed values, up to the rounding that the bound includes.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from onelayer.language.formula import parse
from onelayer.language.requirement import parse_requirement
from onelayer.proof.certificate import Certificate
from onelayer.proof.saved import Claimed

DOUBLE = torch.float64
ROOM = 1e-9


def falsehood_of_claim(found: Claimed) -> str | None:
    """What contradicts the claim at a point, if anything does."""
    claim = found.certificate
    points = torch.cat([found.box.sample(40, seed=3), found.box.corners(16)]).to(found.model.dtype).double()
    points = points[found.box.contains(points)].reshape(-1, *found.box.shape)
    if not len(points) or not math.isfinite(claim.upper):
        return None
    values = measured(found, points)
    f = wanted(claim, points)
    error = (values - f).abs().amax(1)
    worst = int(error.nan_to_num(math.inf).argmax())
    room = ROOM * (1 + values.abs().amax() + f.abs().amax())
    if not bool(error[worst] <= claim.upper + room):
        return f"{float(error[worst])!r} above {claim.upper!r} at {points[worst].flatten().tolist()}"
    return None


def measured(found: Claimed, points: Tensor) -> Tensor:
    """G at points, (C, numbers)."""
    about = found.certificate.about
    kind = about.get("kind", "error")
    if kind in OF_VALUES:
        with torch.no_grad():
            y = found.model(points.to(found.model.dtype)).double().reshape(len(points), -1)
            return OF_VALUES[kind](found, about, points, y)
    # Claims about slopes are about real arithmetic.
    model = copy.deepcopy(found.model).double()
    one = lambda x: model(x[None])[0].reshape(-1)  # noqa: E731
    if kind == "convex":
        return torch.stack([minors(one, x) for x in points])
    slopes = torch.stack([torch.autograd.functional.jacobian(one, x) for x in points])
    return OF_SLOPES[kind](about, slopes.reshape(len(points), slopes.shape[1], -1))


def wanted(claim: Certificate, points: Tensor) -> Tensor:
    """f at points, or its slopes; (C, 1) where it is one number however many G has."""
    flat = points.flatten(1)
    formula = parse(claim.function, flat.shape[1])
    if claim.about.get("kind") == "slopes":
        one = lambda x: formula(x[None])[0].reshape(-1)  # noqa: E731
        return torch.stack([torch.autograd.functional.jacobian(one, x) for x in flat]).flatten(1)
    y = formula(flat).reshape(len(flat), -1)
    return y[:, :1] if bool((y == y[:, :1]).all()) else y


def ranged(found: Claimed, about: Mapping[str, Any], points: Tensor, y: Tensor) -> Tensor:
    low, high = (torch.tensor(about[side], dtype=DOUBLE) for side in ("low", "high"))
    return (y - (low + high) / 2) / ((high - low) / 2)


def margins(found: Claimed, about: Mapping[str, Any], points: Tensor, y: Tensor) -> Tensor:
    inputs = found.box.names or [f"x{at + 1}" for at in range(points[0].numel())]
    names = [*(f"y{at + 1}" for at in range(y.shape[1])), *inputs]
    return parse_requirement(about["text"], names).margins(torch.cat([y, points.flatten(1)], 1))


def minors(one: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """All principal minors of the Hessians of all outputs."""
    count = len(one(x))
    hessians = [torch.autograd.functional.hessian(lambda p, k=k: one(p)[k], x) for k in range(count)]
    size = x.numel()
    chosen = [c for n in range(1, size + 1) for c in itertools.combinations(range(size), n)]
    blocks = [h.reshape(size, size)[list(c)][:, list(c)] for h in hessians for c in chosen]
    return torch.stack([torch.linalg.det(block) for block in blocks])


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "inf": lambda slopes: slopes.abs().sum(2),
    "1": lambda slopes: slopes.abs().sum(1),
    "2": lambda slopes: slopes.square().sum((1, 2)).sqrt()[:, None],
}
OF_VALUES: dict[str, Callable[..., Tensor]] = {
    "error": lambda found, about, points, y: y,
    "range": ranged,
    "condition": margins,
    "difference": lambda found, about, points, y: (
        y - found.other(points.to(found.model.dtype)).double().reshape(len(points), -1)
    ),
}
OF_SLOPES: dict[str, Callable[[Mapping[str, Any], Tensor], Tensor]] = {
    "lipschitz": lambda about, slopes: NORMS[about["norm"]](slopes),
    "slopes": lambda about, slopes: slopes.flatten(1),
    "monotone": lambda about, slopes: (
        slopes[:, :, about["inputs"]] * torch.tensor(about["signs"], dtype=DOUBLE)
    ).flatten(1),
}
