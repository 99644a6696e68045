"""Functions of one variable: rigorous distance of a piecewise-linear function to a formula, and ranges of formulas."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.float64 import UNIT, indices, linspace
from onelayer.language.formula import Formula
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import in_float64
from onelayer.observer import Observer
from onelayer.taylor import difference, variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.hull import evaluate_hulled, surely_defined

Floats = NDArray[np.float64]
Bounds = Callable[[Tensor, Tensor, Tensor], Tensor]  # of boxes by their ends and the numbers of their pieces
ORDER = 4  # of the Taylor models in one variable; higher ones pay only far below 1e-12
SAMPLES = 24  # per piece, to know what can be proved
GOAL = 1.02  # a box is bounded well enough within this factor of the largest sampled difference
ROOM = 1.01  # and less than this is not stated, so that another proof has room,
SPARE = 1.0002  # nor less than this over what is proved, which may be the true value where samples miss it
DIGITS = 1e-14  # relative to the values: no box is cut for the rounding of its own bound
LEAST = 2.0**-980  # and none for bounds where Taylor models have no digits left
ROUNDS = 60  # halvings: more than the digits of float64
MAX_BOXES = 2**21  # of one axis, about a minute
MANY = 2**12  # boxes still open, above which halving them has to help, and to be in time
PART = 2**14  # boxes bounded in one call
RANGE_BOXES = 512  # on which values are enclosed, in one call
LOOKUP_ORDER = 7  # softmax averages of few tokens are smooth: high orders need few boxes
LOOKUP_PIECES = 8  # boxes to begin with
LOOKUP_GOAL = 1.1  # tightness costs boxes, and a tenth of an inner error is little of eps


@dataclass(frozen=True)
class Ramps:
    """constant + sum_u changes[u] relu(s - knots[u]), knots ascending, in exact arithmetic on these floats."""

    knots: Floats
    changes: Floats
    constant: float

    def on(self, low: float, high: float) -> tuple[Floats, Floats, Floats, float]:
        """Breakpoints p of [low, high], values and slopes on the pieces [p_i, p_{i+1}], and the error of the values.

        Accumulated from the left; with N knots each rounded sum errs by at most N u times the sum of sizes.
        """
        begun = np.searchsorted(self.knots, low, "right")
        ended = np.searchsorted(self.knots, high, "left")
        inside = slice(begun, ended)
        points = np.concatenate([[low], self.knots[inside], [high]])
        # Units that began before low: a line through the whole interval.
        before = self.changes[:begun]
        rises = before * (low - self.knots[:begun])
        first = self.constant + float(rises.sum())
        slopes = np.cumsum(np.concatenate([[before.sum()], self.changes[inside]]))
        climbed = np.cumsum(slopes * np.diff(points))
        values = np.concatenate([[first], first + climbed])
        reached = np.maximum(high - self.knots, 0.0)
        sizes = np.abs(self.changes) * reached
        size = abs(self.constant) + float(sizes.sum())
        # Products below the normal range may be lost.
        error = 8 * (len(self.knots) + 4) * (UNIT * size + sys.float_info.min)
        return points, values[:-1], slopes, error

    def __call__(self, s: Floats) -> Floats:
        """Values at points within the reach of the knots, not rigorous."""
        points, values, slopes, _ = self.on(float(s.min()), float(s.max()))
        left = np.searchsorted(points, s, side="right") - 1
        piece = np.clip(left, 0, len(slopes) - 1)
        return values[piece] + slopes[piece] * (s - points[piece])


def piecewise_error(formula: Formula, ramps: Ramps, low: float, high: float, observer: Observer | None = None) -> float:
    """Upper bound of |ramps(s) - formula(s)| over [low, high], a few percent above the true value; inf if undecided.

    Each piece is a box; boxes whose Taylor bound exceeds what was sampled are halved. On a piece the difference is
    smooth, so a few boxes per piece do.
    """
    points, values, slopes, rounding = ramps.on(low, high)
    start = torch.from_numpy(points[:-1].copy())
    value = torch.from_numpy(values.copy())
    slope = torch.from_numpy(slopes.copy())
    sampled = _sampled(formula, ramps, points)
    size = float(np.abs(values).max()) + abs(ramps.constant)
    goal = GOAL * sampled + max(DIGITS * size, LEAST) + rounding

    def bounds(left: Tensor, right: Tensor, piece: Tensor) -> Tensor:
        x = variables(left[:, None], right[:, None], ORDER)
        line = (x[..., 0] - start[piece]) * slope[piece] + value[piece]
        return _distance(formula, x, line, left, right)

    right = torch.from_numpy(points[1:].copy())
    bound = halved(bounds, start, right, goal, observer)
    return max(ROOM * sampled, SPARE * bound) + rounding


def halved(bounds: Bounds, left: Tensor, right: Tensor, goal: float, observer: Observer | None = None) -> float:
    """The largest of ``bounds(left, right, piece)`` over intervals that are halved until they stay below ``goal``.

    ``piece`` numbers the interval from which a box comes. Without hope, or room, or time for many boxes, the largest
    bound is returned as it is; inf if undecided.
    """
    watch = observer or Observer()
    piece = indices(len(left))
    worst, before = 0.0, np.inf
    for _ in range(ROUNDS):
        bound = _in_parts(bounds, left, right, piece, watch)
        if bound is None:
            break
        done = bound <= goal  # false for nan and inf
        worst = max(worst, float(torch.where(done, bound, 0.0).max()))
        if bool(done.all()):
            return worst
        left = left[~done]
        right = right[~done]
        piece = piece[~done]
        # Halving divides the error of a smooth difference by far more than this; where it does not help, it will not.
        now = float(bound[~done].max())
        if len(left) > MANY and now > 0.9 * before:
            break
        before = now
        # A box whose ends are neighbouring floats has no middle.
        middle = left / 2 + right / 2
        exhausted = (middle <= left) | (middle >= right)
        if len(left) * 2 > MAX_BOXES or bool(exhausted.any()):
            break
        left = torch.cat([left, middle])
        right = torch.cat([middle, right])
        piece = torch.cat([piece, piece])
    # The bounds of the last round that counted hold too, without having reached the goal.
    if before < np.inf:
        return max(worst, before)
    return np.inf


def _in_parts(bounds: Bounds, left: Tensor, right: Tensor, piece: Tensor, watch: Observer) -> Tensor | None:
    """The bounds of all boxes; None where they are many and the time is over."""
    found: list[Tensor] = []
    for part in zip(*(torch.split(side, PART) for side in (left, right, piece)), strict=True):
        if len(left) > MANY and watch.over:
            return None
        found.append(bounds(*part))
    return torch.cat(found)


def lookup_error(
    model: OneLayerTransformer, formula: Formula, low: float, high: float, observer: Observer | None = None
) -> float:
    """Upper bound of |T - formula| over [low, high] for a layer of one number, in real arithmetic; inf if undecided."""
    s = np.linspace(low, high, SAMPLES * LOOKUP_PIECES + 1)
    with torch.no_grad():
        found = model(torch.from_numpy(s)[:, None]).double().numpy()
    truth = at(formula, s)
    sampled = float(np.abs(found - truth).max())
    size = float(np.abs(truth).max())
    wide = in_float64(model)

    def bounds(left: Tensor, right: Tensor, piece: Tensor) -> Tensor:
        x: Any = variables(left[:, None], right[:, None], LOOKUP_ORDER)
        with torch.no_grad():
            value: Any = wide(x)
        return _distance(formula, x, value, left, right)

    edges = _edges(low, high, LOOKUP_PIECES)
    goal = LOOKUP_GOAL * sampled + max(DIGITS * size, LEAST)
    bound = halved(bounds, edges[:-1], edges[1:], goal, observer)
    return max(ROOM * sampled, SPARE * bound)


def _distance(formula: Formula, x: Any, value: Any, left: Tensor, right: Tensor) -> Tensor:
    """Upper bounds of |value - formula| on boxes of one variable; inf where there is none."""
    g = evaluate_hulled(formula, x, left[:, None], right[:, None])
    # A formula without its variable is a number.
    if not isinstance(g, TaylorModel):
        g = value * 0.0 + g
    bound: Tensor = difference(value, g).split_bound()
    return torch.where(torch.isnan(bound), torch.inf, bound)


def _sampled(formula: Formula, ramps: Ramps, points: Floats) -> float:
    """The largest difference at points of every piece: what halving aims at, and no bound."""
    steps = np.linspace(0, 1, SAMPLES)
    inside = points[:-1, None] + np.diff(points)[:, None] * steps
    s = inside.reshape(-1)
    differences = np.abs(ramps(s) - at(formula, s))
    return float(np.nanmax(differences))


def _edges(low: float, high: float, parts: int) -> Tensor:
    """Edges of equal intervals that cover [low, high] exactly, whatever linspace rounds."""
    edges = linspace(low, high, parts + 1)
    edges[0] = low
    edges[-1] = high
    return edges


def at(formula: Formula, s: Floats) -> Floats:
    """Values of a formula of one variable at points, in floating arithmetic."""
    points = torch.from_numpy(np.ascontiguousarray(s))[:, None]
    with torch.no_grad():
        values: Tensor = torch.as_tensor(formula(points), dtype=torch.float64, device="cpu")
    # A formula without its variable has one value.
    found: Floats = values.expand(len(s)).numpy()
    return found


def range_of(formula: Formula, low: float, high: float) -> tuple[float, float]:
    """Rigorous enclosure of the values over [low, high], with the signs that interval arithmetic keeps."""
    if formula.nodes[formula.outputs[0]].op == "var":
        return low, high
    edges = _edges(low, high, RANGE_BOXES)
    left = edges[:-1, None]
    right = edges[1:, None]
    x = variables(left, right, ORDER)
    value = evaluate_hulled(formula, x, left, right)
    if not isinstance(value, TaylorModel):
        return float(value), float(value)
    least, most = value.range()
    # Both the model and its interval hold every value, so their common part does.
    if value.hull is not None:
        least = torch.maximum(least, value.hull[0])
        most = torch.minimum(most, value.hull[1])
    return float(least.min()), float(most.max())


def has_values(formula: Formula, low: float, high: float) -> bool:
    """Whether enclosures show a formula of one variable to have a value everywhere in [low, high].

    A range does not show it: tanh(log u) lies between -1 and 1 where it has no value too.
    """
    edges = _edges(low, high, RANGE_BOXES)
    left = edges[:-1, None]
    right = edges[1:, None]
    for _ in range(ROUNDS):
        value = evaluate_hulled(formula, variables(left, right, ORDER), left, right)
        # At the end of a root there is a value and no Taylor model, which intervals know.
        undecided = ~(torch.isfinite(value.rem) | surely_defined(formula, left, right))
        if not bool(undecided.any()):
            return True
        left = left[undecided]
        right = right[undecided]
        middle = left / 2 + right / 2
        exhausted = (middle <= left) | (middle >= right)
        if len(left) > MANY or bool(exhausted.any()):
            return False
        left = torch.cat([left, middle])
        right = torch.cat([middle, right])
    return False
