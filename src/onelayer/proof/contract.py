"""What a proof assumes of T, tested before the search.

A proof encloses T on one box at a time, from the operations that T applies to Taylor models. It speaks of every forward
pass if T treats each point of a batch alone, every time alike and under every default dtype, and if what it returns
lies in the enclosure of its operations. This is tried at thousands of points, and on a box that holds them all. It
cannot be proved of foreign code, so the certificate of such a model lists it as an assumption.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor, nn

from onelayer.errors import ModelAssumptionError, OnelayerError
from onelayer.expressed import expression_of_any
from onelayer.ground import GLOBAL, THREADS, another
from onelayer.language.formula import Formula
from onelayer.observer import Stopped
from onelayer.proof.cost import metered
from onelayer.proof.ends import BATCH, Ends, complain, enclosures, ends_of, everywhere, need_equal, on_device, shaped
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import Forward, enclose_alone, execute_beside
from onelayer.proof.objectives import innermost
from onelayer.proof.own import is_own_layer
from onelayer.proof.points import hard_points
from onelayer.proof.stepwise import Excluded
from onelayer.proof.together import Together
from onelayer.recording.target import place
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

# Points compared in one batch, and of those one by one.
POINTS, FEW = 4096, 64
# By the model of cost, about two measured ones: a count must not depend on how fast a machine is.
SECONDS = 0.4
# Points that are evaluated by themselves.
ALONE = 16
# Boxes in which points are compared with enclosures, and points in each.
BOXES, INSIDE = 5, 16
# Copies of the domain enclosed together.
COPIES = (2, 3, 7)
EVERY_TIME = "gives two values for the same batch at x = {x}; it must compute the same every time, without dropout"
CHANGES = "changes weights, buffers or numbers of its own as it runs; it must compute the same every time"
EVERY_POINT = "gives another value at x = {x} in another batch; it must treat every point of a batch alone"
EVERYWHERE = "depends on {what} at x = {x}; name the dtype of tensors that it creates, and sum constants once, outside"
STEP = "is not what its operations on enclosures are: at x = {x} {name} {what}"
ASKS = "computes otherwise on numbers than on enclosures; it must not ask what it is given"
AS_WRITTEN = "returns a value at x = {x} that its operations on enclosures exclude; they are not what it computes"


def examine(error: ErrorFunction) -> int:
    """Test T at up to 4,096 points and on a few boxes; returns the number of points.

    Fewer points are taken of a model whose enclosures are slow. Raises ModelAssumptionError with the point at which an
    assumption fails. A box without numbers of the executing format leaves nothing to test.
    """
    if is_own_layer(error.model):
        return _examine_briefly(error)
    # Enclosed together two models are what was recorded of them; whether they are, they tell by themselves.
    if isinstance(error.model, Together):
        count = examine(replace(error, model=error.model.apart))
        _examine_briefly(error)
        return count
    points = error.representable(hard_points(error.box, POINTS, error.dtype))
    if not len(points):
        return 0
    held = _held(error.model)
    probe = points[: FEW // 4]
    cost = metered(lambda: enclosures(error, probe, probe), len(probe), error.device)
    # As many as the time allows, a few in any case.
    affordable = round(len(points) * cost.seconds / SECONDS)
    apart = min(len(points) // FEW, affordable)
    points = points[:: max(1, apart)]
    usual = _values(error, points)
    numbers = _numbers_of(error.model)
    ends = enclosures(error, points, points, batch=cost.chunk)
    # The same batch once more: what differs is random, or remembers.
    _compare(error, points, usual, _values(error, points), ends, EVERY_TIME)
    if numbers != _numbers_of(error.model):
        raise ModelAssumptionError(f"the model {CHANGES}")
    _other_batches(error, points, usual, ends)
    few = slice(FEW)
    _other_settings(error, points[few], usual[few], ends[few])
    complain(error, points, ends.exclude(usual), AS_WRITTEN)
    _boxes(error, points)
    _copies(error)
    _step_by_step(error, points)
    if not _stands(held, _held(error.model)):
        raise ModelAssumptionError(f"the model {CHANGES}")
    return len(points)


def _held(model: Forward) -> list[Tensor]:
    """Copies of all weights and buffers of a module, those of its parts among them."""
    if not isinstance(model, nn.Module):
        return []
    return [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())]


def _numbers_of(model: Forward) -> list[str]:
    """The plain numbers and words that a module and its parts keep, as they are written."""
    if not isinstance(model, nn.Module):
        return []
    kept = (value for part in model.modules() for value in vars(part).values())
    return [repr(value) for value in kept if isinstance(value, bool | int | float | str)]


def _stands(held: list[Tensor], now: list[Tensor]) -> bool:
    """Whether these are the numbers that those were."""
    return len(held) == len(now) and all(
        a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(held, now, strict=True)
    )


def _examine_briefly(error: ErrorFunction) -> int:
    """Of what is known to be as it seems: whether this machine is, some points and boxes tell in one call."""
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        lower, upper, inside = _some_boxes(error, points)
        # Points and boxes in one call: a box of width zero is a point.
        low = torch.cat([points, lower])
        high = torch.cat([points, upper])
        ends = enclosures(error, low, high, order=2)
        values = _values(error, torch.cat([points, inside]))
        count = len(points)
        excluded = ends[:count].exclude(values[:count])
        complain(error, points, excluded, AS_WRITTEN)
        _keep_inside(error, lower, upper, ends[count:], inside, values[count:], AS_WRITTEN)
    return len(points)


def _values(error: ErrorFunction, points: Tensor, batch: int = BATCH) -> Tensor:
    """T at points (C, D) in batches of this size, (C, K)."""
    found = []
    for part in torch.split(points, batch):
        error.observer.check()
        found.append(error.executed(part).reshape(len(part), -1))
    return torch.cat(found)


def _other_batches(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The points shuffled in other batches, one by one, and one of them repeated; then enclosures one by one."""
    generator = torch.Generator().manual_seed(2)
    index = torch.randperm(len(points), generator=generator, dtype=torch.int64, device="cpu")
    for chosen, batch in ((index, BATCH // 3), (index[:ALONE], 1), (index[:1].expand(3), 3)):
        # Two batch sizes that no other test has, and one point beside itself.
        again = _values(error, points[chosen], batch)
        _compare(error, points[chosen], usual[chosen], again, ends[chosen], EVERY_POINT)
    few = index[: ALONE // 4]
    alone = enclosures(error, points[few], points[few], batch=1)
    # What differs from the enclosure at the point alone but not from the one in the crowd depends on the crowd.
    among_others = ends[few].exclude(usual[few])
    by_itself = alone.exclude(usual[few])
    complain(error, points[few], by_itself & ~among_others, EVERY_POINT)
    _beside_nothing(error, points[few[:1]])


def _beside_nothing(error: ErrorFunction, point: Tensor) -> None:
    """The enclosure at a point beside boxes without a value: whatever reads them has no value either.

    Which entries an operation reads does not depend on numbers, so this holds for every batch, at points that no sample
    meets as well.
    """
    nothing = torch.full_like(point, torch.nan)
    alone = enclosures(error, point, point)
    # In the middle it would be its own mirror image.
    for before, after in ((1, 1), (0, 2), (2, 0)):
        # NaN marks the others: whatever is computed from them is NaN as well.
        crowd = torch.cat([*[nothing] * before, point, *[nothing] * after])  # (3, D)
        among = enclosures(error, crowd, crowd)[before : before + 1]
        known = torch.isfinite(alone.low)
        lost = (known & ~torch.isfinite(among.low)).any(1)
        complain(error, point, lost, EVERY_POINT)


def _other_settings(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The same under other settings: the same values at points, and one enclosure of the whole domain.

    Code that fails there returns nothing that could be wrong. If it returns something, its operations on enclosures
    say what, so they must not be others that are refused.
    """
    low, high = (side.reshape(1, -1) for side in (error.box.lower, error.box.upper))
    alone = enclosures(error, low, high)
    for setting in GLOBAL:
        complaint = EVERYWHERE.replace("{what}", setting.name)
        with another(setting):
            try:
                values = _values(error, points)
            except (Stopped, ModelAssumptionError) as found:
                _reraise(error, found, complaint)
            except OnelayerError:
                continue
            _compare(error, points, usual, values, ends, complaint)
            try:
                again = enclosures(error, low, high)
            except OnelayerError as found:
                _reraise(error, found, complaint)
        # Threads add up in another order: a sum of constants moves within what its enclosure has for rounding.
        if setting is not THREADS:
            need_equal(error, alone, again, complaint)


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
        ends = enclosures(error, lower, upper, batch, order=2)
        _keep_inside(error, lower, upper, ends, inside, values, complaint)


def _step_by_step(error: ErrorFunction, points: Tensor) -> None:
    """Every operation of T at points, and at points inside of boxes: what it returns lies in its own enclosure."""
    lower, upper, inside = _some_boxes(error, points)
    few = points[:FEW]
    low, high = everywhere(error)
    lows = torch.cat([few, lower.repeat(INSIDE, 1), low])
    highs = torch.cat([few, upper.repeat(INSIDE, 1), high])
    x = torch.cat([few, inside, error.rounded(low / 2 + high / 2)])
    # Rounding to the executing format may leave a box.
    kept = ((x >= lows) & (x <= highs)).all(1)
    lows, highs, x = lows[kept], highs[kept], x[kept]
    error.observer.check()
    boxes = variables(on_device(error, lows), on_device(error, highs), 2, execution=error.dtype)
    try:
        for model in innermost(error.model):
            # The weights of a layer of this package say what it computes, and a formula is one.
            if not is_own_layer(model) and not isinstance(model, Formula):
                _one_way(error, model, boxes, x)
    except Excluded as wrong:
        at = place(x[wrong.row].reshape(error.box.shape))
        raise ModelAssumptionError(f"the model {STEP.format(x=at, name=wrong.operation, what=wrong.hint)}") from wrong


def _one_way(error: ErrorFunction, model: Forward, boxes: TaylorModel, x: Tensor) -> None:
    """T computes one thing, whatever it is given: enclosures, enclosures with numbers, or numbers alone.

    Of numbers it is to be one expression, operation by operation, with and without enclosures; of boxes, among them all
    of the domain, in which any feature shows, one enclosure with and without numbers.
    """
    points = shaped(error, x)
    beside, expressed = execute_beside(model, boxes, points)
    same = expression_of_any(model, points) == expressed
    wrong = torch.full((len(x),), not same, dtype=torch.bool, device="cpu")
    complain(error, x, wrong, ASKS)
    need_equal(error, ends_of(beside), ends_of(enclose_alone(model, boxes)), ASKS)


def _copies(error: ErrorFunction) -> None:
    """The whole domain enclosed once more, and among copies of itself: one enclosure.

    Points are few, but no feature of T is too narrow for a box that holds all of them. Copies choose as the box does
    wherever an enclosure has a choice; so what differs comes from the call, the setting, the batch or the place in it.
    """
    low, high = everywhere(error)
    alone = enclosures(error, low[:1], high[:1])
    need_equal(error, alone, enclosures(error, low[:1], high[:1]), EVERY_TIME)
    for count in COPIES:
        _copied(error, low[:1], high[:1], count, alone)
    # What has no enclosure on all of the domain, which comes first, is looked at in the parts that cover it.
    if not alone.finite:
        for at in range(1, len(low)):
            part = slice(at, at + 1)
            _copied(error, low[part], high[part], COPIES[0], enclosures(error, low[part], high[part]))


def _copied(error: ErrorFunction, low: Tensor, high: Tensor, count: int, alone: Ends) -> None:
    """Refuse T where copies of one box have another enclosure than the box alone."""
    need_equal(error, alone, enclosures(error, low.expand(count, -1), high.expand(count, -1)), EVERY_POINT)


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
    complain(error, inside, kept & enclosed.exclude(values), complaint)


def _compare(error: ErrorFunction, points: Tensor, usual: Tensor, other: Tensor, ends: Ends, complaint: str) -> None:
    """Two executions at the same points agree, or differ by no more than rounding may."""
    both_nan = usual.isnan() & other.isnan()
    equal = ((usual == other) | both_nan).all(1)
    excluded = ends.exclude(usual) | ends.exclude(other)
    complain(error, points, ~equal & excluded, complaint)
