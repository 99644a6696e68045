"""What a proof assumes of T, tested before the search.

A proof encloses T on one box at a time, from the operations that T applies to Taylor models. It speaks of every forward
pass if T treats each point of a batch alone, every time alike and under every default dtype, and if what it returns
lies in the enclosure of its operations. This is tried at thousands of points, and on a box that holds them all. It
cannot be proved of foreign code, so the certificate of such a model lists it as an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from onelayer.errors import ModelAssumptionError, OnelayerError
from onelayer.language.formula import Formula
from onelayer.observer import Stopped
from onelayer.proof.cost import metered
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import enclose, execute_beside, followed
from onelayer.proof.objectives import innermost
from onelayer.proof.own import is_own_layer
from onelayer.proof.points import hard_points
from onelayer.proof.stepwise import Excluded
from onelayer.recording.target import place
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

# Points compared in one batch, and of those one by one.
POINTS, FEW = 4096, 64
# By the model of cost, about two measured ones: a count must not depend on how fast a machine is.
SECONDS = 0.4
# Points in one batch, and those that are evaluated by themselves.
BATCH, ALONE = 2048, 16
# Boxes in which points are compared with enclosures, and points in each.
BOXES, INSIDE = 5, 16
# Copies of the domain enclosed together, and the relative distance of ends that are one end.
COPIES, SAME = (2, 3, 7), 1e-9
EVERY_TIME = "gives two values for the same batch at x = {x}; it must compute the same every time, without dropout"
EVERY_POINT = "gives another value at x = {x} in another batch; it must treat every point of a batch alone"
EVERYWHERE = "depends on {what} at x = {x}; name the dtype of tensors that it creates, and sum constants once, outside"
STEP = "is not what its operations on enclosures are: at x = {x} {name} {what}"
AS_WRITTEN = "returns a value at x = {x} that its operations on enclosures exclude; they are not what it computes"


THREADS = "the number of threads"
_FAST, _DETERMINISTIC = torch.backends.mha, torch.are_deterministic_algorithms_enabled
# Settings on which code may branch: what a caller has may differ from pinned ground.
GLOBAL: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]] = [
    ("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    ("whether gradients are recorded", torch.is_grad_enabled, torch.set_grad_enabled, True),
    (THREADS, torch.get_num_threads, torch.set_num_threads, 4),
    ("the fast path of attention", _FAST.get_fastpath_enabled, _FAST.set_fastpath_enabled, False),
    ("whether algorithms are deterministic", _DETERMINISTIC, torch.use_deterministic_algorithms, True),
]
WITH_TANGENTS = "returns another value at x = {x} when its derivatives are followed; it asks what it is given"
SLOPES = "has another slope at x = {x} than torch finds; an operation of it is not differentiated as it is executed"
# A slope that is this wrong at most points is not so by rounding.
SLOPE_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Ends:
    """Enclosures [low, high] of all outputs at C points, (C, K); where they are not finite nothing is claimed."""

    low: Tensor
    high: Tensor

    def exclude(self, values: Tensor) -> Tensor:
        """(C,): whether some output lies outside, NaN included."""
        claimed = torch.isfinite(self.low) & torch.isfinite(self.high)
        inside = (values >= self.low) & (values <= self.high)
        return (claimed & ~inside).any(1)

    def __getitem__(self, index: Tensor | slice) -> Ends:
        return Ends(self.low[index], self.high[index])


def examine(error: ErrorFunction) -> int:
    """Test T at up to 4,096 points and on a few boxes; returns the number of points.

    Fewer points are taken of a model whose enclosures are slow. Raises ModelAssumptionError with the point at which an
    assumption fails. A box without numbers of the executing format leaves nothing to test.
    """
    if is_own_layer(error.model):
        return _examine_machine(error)
    points = error.representable(hard_points(error.box, POINTS, error.dtype))
    if not len(points):
        return 0
    probe = points[: FEW // 4]
    cost = metered(lambda: _ends(error, probe, probe), len(probe), error.device)
    # As many as the time allows, a few in any case.
    affordable = round(len(points) * cost.seconds / SECONDS)
    apart = min(len(points) // FEW, affordable)
    points = points[:: max(1, apart)]
    usual = _values(error, points)
    ends = _ends(error, points, points, batch=cost.chunk)
    # The same batch once more: what differs is random, or remembers.
    _compare(error, points, usual, _values(error, points), ends, EVERY_TIME)
    _other_batches(error, points, usual, ends)
    few = slice(FEW)
    _other_settings(error, points[few], usual[few], ends[few])
    _complain(error, points, ends.exclude(usual), AS_WRITTEN)
    _boxes(error, points)
    _step_by_step(error, points)
    _copies(error)
    return len(points)


def _examine_machine(error: ErrorFunction) -> int:
    """A layer of this package is what it seems; whether this machine is, some points and boxes tell in one call."""
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        lower, upper, inside = _some_boxes(error, points)
        # Points and boxes in one call: a box of width zero is a point.
        low = torch.cat([points, lower])
        high = torch.cat([points, upper])
        ends = _ends(error, low, high, order=2)
        values = _values(error, torch.cat([points, inside]))
        count = len(points)
        excluded = ends[:count].exclude(values[:count])
        _complain(error, points, excluded, AS_WRITTEN)
        _keep_inside(error, lower, upper, ends[count:], inside, values[count:], AS_WRITTEN)
    return len(points)


def examine_slopes(error: ErrorFunction) -> None:
    """T is what a proof of its slopes takes it for: examined itself, and run with tangents (taylor/dual.py).

    With tangents it returns what it returns without, and at most of some random points the slopes that torch
    differentiates; where torch cannot, there is nothing to compare with. Raises ModelAssumptionError.
    """
    examine(error)
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        values = followed(error.model, _shaped(error, points))[0]
        excluded = _ends(error, points, points).exclude(values.to("cpu", torch.float64))
        _complain(error, points, excluded, WITH_TANGENTS)
    sampled = error.box.sample(FEW, seed=5).reshape(FEW, -1)
    _compare_slopes(error, error.representable(sampled))


def _compare_slopes(error: ErrorFunction, points: Tensor) -> None:
    x = _shaped(error, points)
    try:
        with torch.enable_grad():
            given = x.clone().requires_grad_()
            outputs = error.model(given).reshape(len(x), -1).unbind(-1)
            # The rows of a batch do not mix, so the slopes of a sum over rows are those of each row.
            each = [torch.autograd.grad(y.sum(), given, retain_graph=True)[0] for y in outputs]
    except RuntimeError:
        return
    wanted = torch.stack([slope.reshape(len(x), -1) for slope in each], -1)  # (C, D, K)
    found = torch.stack(followed(error.model, x)[1], 1)
    # At a kink torch takes one side: only what is wrong at most points is wrong.
    size = found.abs() + wanted.abs() + 1
    wrong = (found - wanted).abs() > SLOPE_TOLERANCE * size
    mostly = wrong.double().mean(0) > 0.5
    anywhere = (wrong & mostly).flatten(1).any(1)
    _complain(error, points, anywhere.cpu(), SLOPES)


def _shaped(error: ErrorFunction, points: Tensor) -> Tensor:
    return _on_device(error, points).to(error.dtype)


def _on_device(error: ErrorFunction, points: Tensor) -> Tensor:
    return points.to(error.device).reshape(-1, *error.box.shape)


def _values(error: ErrorFunction, points: Tensor, batch: int = BATCH) -> Tensor:
    """T at points (C, D) in batches of this size, (C, K)."""
    found = []
    for part in torch.split(points, batch):
        error.observer.check()
        found.append(error.executed(part).reshape(len(part), -1))
    return torch.cat(found)


def _ends(error: ErrorFunction, low: Tensor, high: Tensor, batch: int = BATCH, order: int = 1) -> Ends:
    """Enclosures of the executed T on boxes (B, D), so many at a time."""
    found = []
    for part in zip(torch.split(low, batch), torch.split(high, batch), strict=True):
        error.observer.check()
        lower, upper = (_on_device(error, side) for side in part)
        x = variables(lower, upper, order, execution=error.dtype)
        y = enclose(error.model, x, tuple(error.target.output_shape))
        pair = y.range() if isinstance(y, TaylorModel) else (y, y)
        found.append([side.to("cpu", torch.float64).reshape(len(lower), -1) for side in pair])
    lows, highs = zip(*found, strict=True)
    return Ends(torch.cat(lows), torch.cat(highs))


def _other_batches(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The points shuffled in other batches, one by one, and one of them repeated; then enclosures one by one."""
    generator = torch.Generator().manual_seed(2)
    index = torch.randperm(len(points), generator=generator, dtype=torch.int64, device="cpu")
    for chosen, batch in ((index, BATCH // 3), (index[:ALONE], 1), (index[:1].expand(3), 3)):
        # Two batch sizes that no other test has, and one point beside itself.
        again = _values(error, points[chosen], batch)
        _compare(error, points[chosen], usual[chosen], again, ends[chosen], EVERY_POINT)
    few = index[: ALONE // 4]
    alone = _ends(error, points[few], points[few], batch=1)
    # What differs from the enclosure at the point alone but not from the one in the crowd depends on the crowd.
    among_others = ends[few].exclude(usual[few])
    by_itself = alone.exclude(usual[few])
    _complain(error, points[few], by_itself & ~among_others, EVERY_POINT)
    _beside_nothing(error, points[few[:1]])


def _beside_nothing(error: ErrorFunction, point: Tensor) -> None:
    """The enclosure at a point beside boxes without a value: whatever reads them has no value either.

    Which entries an operation reads does not depend on numbers, so this holds for every batch, at points that no sample
    meets as well.
    """
    nothing = torch.full_like(point, torch.nan)
    alone = _ends(error, point, point)
    # In the middle it would be its own mirror image.
    for before, after in ((1, 1), (0, 2), (2, 0)):
        # NaN marks the others: whatever is computed from them is NaN as well.
        crowd = torch.cat([*[nothing] * before, point, *[nothing] * after])  # (3, D)
        among = _ends(error, crowd, crowd)[before : before + 1]
        known = torch.isfinite(alone.low)
        lost = (known & ~torch.isfinite(among.low)).any(1)
        _complain(error, point, lost, EVERY_POINT)


def _other_settings(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The same under other settings: the same values at points, and one enclosure of the whole domain.

    Code that fails there returns nothing that could be wrong. If it returns something, its operations on enclosures
    say what, so they must not be others that are refused.
    """
    low, high = (side.reshape(1, -1) for side in (error.box.lower, error.box.upper))
    alone = _ends(error, low, high)
    for what, read, write, other in GLOBAL:
        complaint = EVERYWHERE.replace("{what}", what)
        with _setting(read, write, other):
            try:
                values = _values(error, points)
            except (Stopped, ModelAssumptionError) as found:
                _reraise(error, found, complaint)
            except OnelayerError:
                continue
            _compare(error, points, usual, values, ends, complaint)
            try:
                again = _ends(error, low, high)
            except OnelayerError as found:
                _reraise(error, found, complaint)
        # Threads add up in another order: a sum of constants moves within what its enclosure has for rounding.
        if what != THREADS:
            _differs(error, alone, again, complaint)


def _reraise(error: ErrorFunction, found: OnelayerError, complaint: str) -> NoReturn:
    """An interruption as it is; whatever else is found under one setting alone, as what depends on it."""
    if isinstance(found, Stopped):
        raise found
    x = place(error.box.center)
    raise ModelAssumptionError(f"the model {complaint.format(x=x)}") from found


def _boxes(error: ErrorFunction, points: Tensor) -> None:
    """A few boxes of some width, enclosed together and alone: values at points inside stay inside either way."""
    lower, upper, inside = _some_boxes(error, points)
    values = _values(error, inside)
    for batch, complaint in ((BOXES, AS_WRITTEN), (1, EVERY_POINT)):
        ends = _ends(error, lower, upper, batch, order=2)
        _keep_inside(error, lower, upper, ends, inside, values, complaint)


def _step_by_step(error: ErrorFunction, points: Tensor) -> None:
    """Every operation of T at points, and at points inside of boxes: what it returns lies in its own enclosure."""
    lower, upper, inside = _some_boxes(error, points)
    few = points[:FEW]
    low = torch.cat([few, lower.repeat(INSIDE, 1)])
    high = torch.cat([few, upper.repeat(INSIDE, 1)])
    x = torch.cat([few, inside])
    # Rounding to the executing format may leave a box.
    kept = ((x >= low) & (x <= high)).all(1)
    lows, highs = (_on_device(error, side[kept]) for side in (low, high))
    error.observer.check()
    boxes = variables(lows, highs, 2, execution=error.dtype)
    try:
        for model in innermost(error.model):
            # The weights of a layer of this package say what it computes, and a formula is one.
            if not is_own_layer(model) and not isinstance(model, Formula):
                execute_beside(model, boxes, _shaped(error, x[kept]))
    except Excluded as wrong:
        at = place(x[kept][wrong.row].reshape(error.box.shape))
        raise ModelAssumptionError(f"the model {STEP.format(x=at, name=wrong.operation, what=wrong.hint)}") from wrong


def _copies(error: ErrorFunction) -> None:
    """The whole domain enclosed once more, and among copies of itself: one enclosure.

    Points are few, but no feature of T is too narrow for a box that holds all of them. Copies choose as the box does
    wherever an enclosure has a choice; so what differs comes from the call, the setting, the batch or the place in it.
    """
    low, high = (side.reshape(1, -1) for side in (error.box.lower, error.box.upper))
    alone = _ends(error, low, high)
    _differs(error, alone, _ends(error, low, high), EVERY_TIME)
    for count in COPIES:
        _differs(error, alone, _ends(error, low.expand(count, -1), high.expand(count, -1)), EVERY_POINT)


@contextmanager
def _setting(read: Callable[[], Any], write: Callable[[Any], Any], other: Any) -> Iterator[None]:
    """One setting of torch as another, for a while."""
    before = read()
    write(other)
    try:
        yield
    finally:
        write(before)


def _differs(error: ErrorFunction, usual: Ends, other: Ends, complaint: str) -> None:
    """Complain where an end of an enclosure moved by more than the rounding of sums in another order."""
    size = torch.maximum(usual.low.abs(), usual.high.abs())
    moved = torch.maximum((usual.low - other.low).abs(), (usual.high - other.high).abs())
    # An infinite end moves by nothing that can be compared.
    wrong = (moved > SAME * size) & torch.isfinite(moved)
    _complain(error, error.box.center.reshape(1, -1), wrong.any(1).any().reshape(1), complaint)


def _some_boxes(error: ErrorFunction, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Corners of a few boxes around points, (BOXES, D), and points inside of each, (INSIDE * BOXES, D)."""
    generator = torch.Generator().manual_seed(3)
    low = error.box.lower.flatten()
    high = error.box.upper.flatten()
    at = torch.randint(len(points), (BOXES,), generator=generator, dtype=torch.int64, device="cpu")
    centre = points[at]
    # Sides from a sixteenth of the domain down, each half of the one before: wide and narrow remainders.
    shrinking = torch.exp2(-4 - torch.arange(BOXES, dtype=torch.float64, device="cpu"))
    half = shrinking[:, None] * (high / 2 - low / 2)
    lower = torch.minimum(torch.maximum(centre - half, low), high)
    upper = torch.minimum(torch.maximum(centre + half, low), high)
    share = torch.rand(INSIDE, 1, error.dim, generator=generator, dtype=torch.float64, device="cpu")
    inside = lower * (1 - share) + upper * share
    return lower, upper, error.rounded(inside.reshape(-1, error.dim))


def _keep_inside(
    error: ErrorFunction, lower: Tensor, upper: Tensor, ends: Ends, inside: Tensor, values: Tensor, complaint: str
) -> None:
    """Values at the points inside of boxes lie in the enclosures of those boxes."""
    low, high = lower.repeat(INSIDE, 1), upper.repeat(INSIDE, 1)
    enclosed = Ends(ends.low.repeat(INSIDE, 1), ends.high.repeat(INSIDE, 1))
    # Rounding to the executing format may leave a box.
    kept = ((inside >= low) & (inside <= high)).all(1)
    _complain(error, inside, kept & enclosed.exclude(values), complaint)


def _compare(error: ErrorFunction, points: Tensor, usual: Tensor, other: Tensor, ends: Ends, complaint: str) -> None:
    """Two executions at the same points agree, or differ by no more than rounding may."""
    both_nan = usual.isnan() & other.isnan()
    equal = ((usual == other) | both_nan).all(1)
    excluded = ends.exclude(usual) | ends.exclude(other)
    _complain(error, points, ~equal & excluded, complaint)


def _complain(error: ErrorFunction, points: Tensor, wrong: Tensor, complaint: str) -> None:
    if bool(wrong.any()):
        x = place(points[wrong][0].reshape(error.box.shape))
        raise ModelAssumptionError(f"the model {complaint.format(x=x)}")
