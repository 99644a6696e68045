"""A callable is the formula that was recorded of it: compared at thousands of points before anything is proved of it.

A proof speaks of the formula. What a callable returns in float64 differs from it by the rounding of its own operations,
and that is bounded by the same arithmetic that bounds a forward pass: the callable run on Taylor models of boxes of
width zero. No tolerance is chosen: a value outside these bounds, or a formula outside them, is a contradiction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from flint import arb
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError, told
from onelayer.ground import ball_precision, pinned
from onelayer.language.balls import in_balls
from onelayer.language.formula import Formula
from onelayer.observer import Observer, Stopped
from onelayer.proof.elsewhere import examine_target
from onelayer.proof.points import hard_points
from onelayer.recording.lipschitz import as_lipschitz
from onelayer.recording.recorder import ALONE
from onelayer.recording.target import Target, as_target, place
from onelayer.recording.witnessed import Witnessed
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

POINTS = 4096  # at which a callable is compared with its recording
# Nodes evaluated in balls altogether: a formula of up to 64 nodes at every point, longer ones at fewer.
NODES = 2**18
FEWEST = 16  # points, however long the formula
# Precision of the balls they are compared in, far more than both have.
BITS = 200
NUMBERS = 2**22  # in one tensor of Taylor coefficients of x
# Points alone, and batches of a size that no kernel is made for: results must not depend on it.
SINGLE, BATCH = 16, 7


@pinned()
def understood(f: Any, box: Box, *, lipschitz: Any = None, observer: Observer | None = None) -> Target:
    """``f`` as a function to prove something of: a formula, a callable that is its formula, or a declared constant.

    Raises OnelayerError with a point at which a callable is not what was recorded of it; with a declared constant it is
    then taken as its code evaluates it. Raises Stopped when the ``observer`` ends it first.
    """
    watch = observer or Observer()
    target = as_target(f, box, lipschitz=lipschitz, observer=watch)
    # A formula is itself; of a declared constant nothing else is used; and once compared is enough.
    if isinstance(target.function, Formula) or target.lipschitz is not None or target.compared == box:
        return target
    try:
        examine_target(target, box, watch)
        _compare(target, box, watch)
    except Stopped:
        raise
    except OnelayerError as error:
        if lipschitz is None:
            raise
        declared = as_lipschitz(lipschitz, box, target.function)
        witnessed = Witnessed(target.function, target.description, declared, box.dim)
        return replace(target, function=witnessed, formula=None, lipschitz=declared, unrecorded=str(error))
    return replace(target, compared=box)


@dataclass(frozen=True)
class Bounds:
    """What an execution of f may return at C points, (C, K) each; where they are not finite nothing is known."""

    low: Tensor
    high: Tensor

    @property
    def known(self) -> Tensor:
        """Where both ends are finite."""
        return torch.isfinite(self.low) & torch.isfinite(self.high)

    def exclude(self, values: Tensor) -> Tensor:
        """(C, K): values outside, NaN included."""
        return self.known & ~((values >= self.low) & (values <= self.high))

    def __getitem__(self, index: Any) -> Bounds:
        return Bounds(self.low[index], self.high[index])


def _compare(target: Target, box: Box, observer: Observer) -> None:
    low = box.lower.flatten()
    high = box.upper.flatten()
    points = hard_points(box, POINTS, torch.float64)
    points = torch.minimum(torch.maximum(points, low), high)
    # Shuffled, so that the first ones, of which more is asked, are of every kind.
    generator = torch.Generator(device="cpu").manual_seed(4)
    order = torch.randperm(len(points), generator=generator, dtype=torch.int64, device="cpu")
    points = points[order]
    x = points.reshape(-1, *box.shape)
    observer.report("reading f", detail="its recording is compared with it")
    values = _values(target, x, observer)
    bounds = _bounds(target, x, observer)
    if not bool(bounds.known.any(0).all()):
        raise OnelayerError(
            f"no value of {target.description} on the box can be told; it overflows, or is below the smallest number"
        )
    # First that the code rounds as its operations do, then that its formula is within that rounding.
    _complain(target, x, values, bounds, bounds.exclude(values))
    _other_batches(target, x, values, bounds, observer)
    if target.formula is not None:
        _in_balls(target, x, values, bounds, observer)


def _values(target: Target, x: Tensor, observer: Observer) -> Tensor:
    """f at points (C, *shape), (C, K)."""
    try:
        values = torch.as_tensor(target.values(x, observer), dtype=torch.float64, device="cpu")
        return values.detach().reshape(len(x), -1)
    except Exception as error:
        raise _failed(target, f"on a batch of shape {tuple(x.shape)}", error) from error


def _bounds(target: Target, x: Tensor, observer: Observer) -> Bounds:
    """By the operations of f itself; by those of its formula where the arithmetic does not know them all."""
    try:
        return _enclosed(target.function, x, observer)
    except Stopped:
        raise
    except Exception as error:
        if target.formula is None:
            raise _failed(target, "on Taylor models", error) from error
        return _enclosed(target.executed or target.formula, x, observer)


def _failed(target: Target, where: str, error: Exception) -> OnelayerError:
    """One line of whatever foreign code raises."""
    if isinstance(error, OnelayerError):
        return error
    return OnelayerError(
        f"{target.description} failed {where} ({told(error)}); it must take (..., *box.shape) like any other"
    )


def _enclosed(function: Callable[[Any], Any], x: Tensor, observer: Observer) -> Bounds:
    dim = x[0].numel()
    parts = []
    # An affine Taylor model of x has D (D + 1) coefficients a point.
    for part in torch.split(x, max(1, NUMBERS // (dim * (dim + 1)))):
        observer.check()
        y = function(variables(part, part, 1, execution=torch.float64))
        pair = y.range() if isinstance(y, TaylorModel) else (y, y)
        parts.append([side.to("cpu", torch.float64).reshape(len(part), -1) for side in pair])
    lows, highs = zip(*parts, strict=True)
    return Bounds(torch.cat(lows), torch.cat(highs))


def _other_batches(target: Target, x: Tensor, values: Tensor, bounds: Bounds, observer: Observer) -> None:
    """The points in the opposite order, a few of them one by one, in small batches and repeated."""
    count = len(x)
    backwards = list(range(count - 1, -1, -1))
    singles = [[at] for at in range(min(SINGLE, count))]
    starts = range(0, min(SINGLE * BATCH, count), BATCH)
    small = [list(range(at, min(at + BATCH, count))) for at in starts]
    repeated = [0] * BATCH
    for order in [backwards, *singles, *small, repeated]:
        chosen = torch.tensor(order, dtype=torch.int64, device="cpu")
        again = _values(target, x[chosen], observer)
        wrong = bounds[chosen].exclude(again)
        if bool(wrong.any()):
            at, k = wrong.nonzero()[0].tolist()
            where = int(chosen[at])
            raise OnelayerError(
                f"{target.description} gives {values[where, k].item()!r} at x = {place(x[where])} in one batch and "
                f"{again[at, k].item()!r} in another; {ALONE}"
            )


def _in_balls(target: Target, x: Tensor, values: Tensor, bounds: Bounds, observer: Observer) -> None:
    formula = target.formula
    if formula is None:
        return
    count = min(len(x), max(FEWEST, NODES // len(formula.nodes)))
    wrong = torch.zeros(count, values.shape[1], dtype=torch.bool, device="cpu")
    low = bounds.low.tolist()
    high = bounds.high.tolist()
    known = bounds.known.tolist()
    with ball_precision(BITS):
        for at, point in enumerate(x[:count].reshape(count, -1).tolist()):
            observer.check()
            for k, ball in enumerate(in_balls(formula, point)):
                # A ball counts as outside only where all of it is: what overlaps decides nothing.
                if known[at][k] and ball.is_finite():
                    below = ball < arb(low[at][k])
                    above = ball > arb(high[at][k])
                    wrong[at, k] = bool(below) or bool(above)
    _complain(target, x, values, bounds, wrong)


def _complain(target: Target, x: Tensor, values: Tensor, bounds: Bounds, wrong: Tensor) -> None:
    if not bool(wrong.any()):
        return
    at, k = wrong.nonzero()[0].tolist()
    said = ""
    if target.formula is not None:
        said = f", its recorded formula is {_formula_value(target.formula, x[at], k)}"
    value = values[at, k].item()
    low = bounds.low[at, k].item()
    high = bounds.high[at, k].item()
    raise OnelayerError(
        f"{target.description} is not what was recorded of it: at x = {place(x[at])} it returns {value!r}{said}, and "
        f"its operations round to values in [{low!r}, {high!r}]; write it with other operations, or give lipschitz="
    )


def _formula_value(formula: Formula, point: Tensor, k: int) -> str:
    with ball_precision(BITS):
        values = in_balls(formula, point.flatten().tolist())
        return repr(float(values[k].mid()))
