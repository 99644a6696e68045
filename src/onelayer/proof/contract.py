"""What a proof assumes of T, tested before the search.

A proof encloses T on one box at a time, from the operations that T applies to Taylor models. It speaks of every forward
pass if T treats each point of a batch alone, every time alike and under every default dtype, and if what it returns
lies in the enclosure of its operations. This is tried at thousands of points. It cannot be proved of foreign code, so
the certificate of such a model lists it as an assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook

from onelayer.errors import ModelAssumptionError, OnelayerError
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.cost import metered
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import enclose, followed
from onelayer.proof.points import hard_points
from onelayer.recording.target import place
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

POINTS, FEW = 4096, 64  # compared in one batch, and of those one by one
SECONDS = 0.4  # by the model of cost, about two measured ones: a count must not depend on how fast a machine is
BATCH, ALONE = 2048, 16  # points in one batch, and those that are evaluated by themselves
BOXES, INSIDE = 5, 16  # in which points are compared with enclosures, and points in each
EVERY_TIME = "gives two values for the same batch at x = {x}; it must compute the same every time, without dropout"
EVERY_POINT = "gives another value at x = {x} in another batch; it must treat every point of a batch alone"
EVERYWHERE = "depends on {what} at x = {x}; name the dtype of tensors that it creates, and sum constants once, outside"
AS_WRITTEN = "returns a value at x = {x} that its operations on enclosures exclude; they are not what it computes"


WITH_TANGENTS = "returns another value at x = {x} when its derivatives are followed; it asks what it is given"
SLOPES = "has another slope at x = {x} than torch finds; an operation of it is not differentiated as it is executed"
SLOPE_TOLERANCE = 1e-2  # a slope that is wrong at most points is not so by rounding


@dataclass(frozen=True)
class Ends:
    """Enclosures [low, high] of all outputs at C points, (C, K); where they are not finite nothing is claimed."""

    low: Tensor
    high: Tensor

    def exclude(self, values: Tensor) -> Tensor:
        """(C,): whether some output lies outside, NaN included."""
        claimed = torch.isfinite(self.low) & torch.isfinite(self.high)
        return (claimed & ~((values >= self.low) & (values <= self.high))).any(1)

    def __getitem__(self, index: Tensor | slice) -> Ends:
        return Ends(self.low[index], self.high[index])


def examine(error: ErrorFunction) -> int:
    """Test T at up to 4,096 points and on a few boxes; returns the number of points.

    Fewer points are taken of a model whose enclosures are slow. Raises ModelAssumptionError with the point at which an
    assumption fails. A box without numbers of the executing format leaves nothing to test.
    """
    if _by_construction(error.model):
        return _examine_machine(error)
    points = error.representable(hard_points(error.box, POINTS, error.dtype))
    if not len(points):
        return 0
    probe = points[: FEW // 4]
    cost = metered(lambda: _ends(error, probe, probe), len(probe), error.device)
    # As many as the time allows, a few in any case.
    apart = min(len(points) // FEW, round(len(points) * cost.seconds / SECONDS))
    points = points[:: max(1, apart)]
    usual = _values(error, points)
    ends = _ends(error, points, points, batch=cost.chunk)
    _compare(error, points, usual, _values(error, points), ends, EVERY_TIME)
    _other_batches(error, points, usual, ends)
    _other_settings(error, points[:FEW], usual[:FEW], ends[:FEW])
    _complain(error, points, ends.exclude(usual), AS_WRITTEN)
    _boxes(error, points)
    return len(points)


def _examine_machine(error: ErrorFunction) -> int:
    """A layer of this package is what it seems; whether this machine is, some points and boxes tell in one call."""
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        lower, upper, inside = _some_boxes(error, points)
        ends = _ends(error, torch.cat([points, lower]), torch.cat([points, upper]), order=2)
        values = _values(error, torch.cat([points, inside]))
        count = len(points)
        _complain(error, points, ends[:count].exclude(values[:count]), AS_WRITTEN)
        _keep_inside(error, lower, upper, ends[count:], inside, values[count:], AS_WRITTEN)
    return len(points)


OWN_PARTS = {OneLayerTransformer, PlainMemory, GridMemory, torch.nn.ModuleDict, torch.nn.ParameterList}


def _by_construction(model: Any) -> bool:
    """Whether T is a layer of this package as it stands: it treats every point alone because its code does.

    What is left to test is this machine, at a few points. A subclass, a hook or a method put in place of another may do
    anything and is examined like foreign code.
    """
    if type(model) is not OneLayerTransformer or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    if any(type(weight) is not torch.nn.Parameter for weight in model.parameters()):
        return False  # a tensor that answers torch functions itself
    if any(type(held) is not Tensor for held in model.buffers()):
        return False
    return all(type(part) in OWN_PARTS and _untouched(part) for part in model.modules())


def _untouched(part: torch.nn.Module) -> bool:
    """Whether a module has no hook, and no attribute of its own in place of a method."""
    patched = any(callable(getattr(type(part), name, None)) for name in vars(part))
    return not (patched or part._forward_hooks or part._forward_pre_hooks)


def examine_slopes(error: ErrorFunction) -> None:
    """T is what a proof of its slopes takes it for: examined itself, and run with tangents (taylor/dual.py).

    With tangents it returns what it returns without, and at most of some random points the slopes that torch
    differentiates; where torch cannot, there is nothing to compare with. Raises ModelAssumptionError.
    """
    examine(error)
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        values = followed(error.model, _shaped(error, points))[0].to("cpu", torch.float64)
        _complain(error, points, _ends(error, points, points).exclude(values), WITH_TANGENTS)
    _compare_slopes(error, error.representable(error.box.sample(FEW, seed=5).reshape(FEW, -1)))


def _compare_slopes(error: ErrorFunction, points: Tensor) -> None:
    x = _shaped(error, points)
    try:
        with torch.enable_grad():
            given = x.clone().requires_grad_()
            parts = error.model(given).reshape(len(x), -1).unbind(-1)
            each = [torch.autograd.grad(part.sum(), given, retain_graph=True)[0] for part in parts]
    except RuntimeError:
        return
    wanted = torch.stack([slope.reshape(len(x), -1) for slope in each], -1)  # (C, D, K)
    found = torch.stack(followed(error.model, x)[1], 1)
    wrong = (found - wanted).abs() > SLOPE_TOLERANCE * (found.abs() + wanted.abs() + 1)
    mostly = wrong.double().mean(0) > 0.5
    _complain(error, points, (wrong & mostly).flatten(1).any(1).cpu(), SLOPES)


def _shaped(error: ErrorFunction, points: Tensor) -> Tensor:
    return points.reshape(-1, *error.box.shape).to(error.device, error.dtype)


def _values(error: ErrorFunction, points: Tensor, batch: int = BATCH) -> Tensor:
    """T at points (C, D) in batches of this size, (C, K)."""
    return torch.cat([error.executed(part).reshape(len(part), -1) for part in torch.split(points, batch)])


def _ends(error: ErrorFunction, low: Tensor, high: Tensor, batch: int = BATCH, order: int = 1) -> Ends:
    """Enclosures of the executed T on boxes (B, D), so many at a time."""
    found = []
    for part in zip(torch.split(low, batch), torch.split(high, batch), strict=True):
        error.observer.check()
        lower, upper = (side.to(error.device).reshape(-1, *error.box.shape) for side in part)
        x = variables(lower, upper, order, execution=error.dtype)
        y = enclose(error.model, x, tuple(error.target.output_shape))
        pair = y.range() if isinstance(y, TaylorModel) else (y, y)
        found.append([side.to("cpu", torch.float64).reshape(len(lower), -1) for side in pair])
    return Ends(*(torch.cat(side) for side in zip(*found, strict=True)))


def _other_batches(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The points shuffled in other batches, one by one, and one of them repeated; then enclosures one by one."""
    generator = torch.Generator().manual_seed(2)
    index = torch.randperm(len(points), generator=generator, dtype=torch.int64, device="cpu")
    for chosen, batch in ((index, BATCH // 3), (index[:ALONE], 1), (index[:1].expand(3), 3)):
        again = _values(error, points[chosen], batch)
        _compare(error, points[chosen], usual[chosen], again, ends[chosen], EVERY_POINT)
    few = index[: ALONE // 4]
    alone = _ends(error, points[few], points[few], batch=1)
    _complain(error, points[few], alone.exclude(usual[few]) & ~ends[few].exclude(usual[few]), EVERY_POINT)
    _beside_nothing(error, points[few[:1]])


def _beside_nothing(error: ErrorFunction, point: Tensor) -> None:
    """The enclosure at a point beside boxes without a value: whatever reads them has no value either.

    Which entries an operation reads does not depend on numbers, so this holds for every batch, at points that no sample
    meets as well.
    """
    nothing = torch.full_like(point, torch.nan)
    alone = _ends(error, point, point)
    for before, after in ((1, 1), (0, 2), (2, 0)):  # in the middle it would be its own mirror image
        crowd = torch.cat([*[nothing] * before, point, *[nothing] * after])
        among = _ends(error, crowd, crowd)[before : before + 1]
        lost = (torch.isfinite(alone.low) & ~torch.isfinite(among.low)).any(1)
        _complain(error, point, lost, EVERY_POINT)


def _other_settings(error: ErrorFunction, points: Tensor, usual: Tensor, ends: Ends) -> None:
    """The same under other settings; code that fails there returns nothing that could be wrong."""
    fast = torch.backends.mha
    settings: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]] = [
        ("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        ("the number of threads", torch.get_num_threads, torch.set_num_threads, 4),
        ("the fast path of attention", fast.get_fastpath_enabled, fast.set_fastpath_enabled, False),
    ]
    for what, read, write, other in settings:
        before = read()
        write(other)
        try:
            values = _values(error, points)
        except OnelayerError:
            continue
        finally:
            write(before)
        _compare(error, points, usual, values, ends, EVERYWHERE.replace("{what}", what))


def _boxes(error: ErrorFunction, points: Tensor) -> None:
    """A few boxes of some width, enclosed together and alone: values at points inside stay inside either way."""
    lower, upper, inside = _some_boxes(error, points)
    values = _values(error, inside)
    for batch, complaint in ((BOXES, AS_WRITTEN), (1, EVERY_POINT)):
        _keep_inside(error, lower, upper, _ends(error, lower, upper, batch, order=2), inside, values, complaint)


def _some_boxes(error: ErrorFunction, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Corners of a few boxes around points, (BOXES, D), and points inside of each, (INSIDE * BOXES, D)."""
    generator = torch.Generator().manual_seed(3)
    low = error.box.lower.flatten()
    high = error.box.upper.flatten()
    centre = points[torch.randint(len(points), (BOXES,), generator=generator, dtype=torch.int64, device="cpu")]
    shrinking = torch.exp2(-4 - torch.arange(BOXES, dtype=torch.float64, device="cpu"))
    half = shrinking[:, None] * (high / 2 - low / 2)
    lower, upper = (torch.minimum(torch.maximum(centre + sign * half, low), high) for sign in (-1, 1))
    share = torch.rand(INSIDE, 1, error.dim, generator=generator, dtype=torch.float64, device="cpu")
    return lower, upper, error.rounded((lower * (1 - share) + upper * share).reshape(-1, error.dim))


def _keep_inside(
    error: ErrorFunction, lower: Tensor, upper: Tensor, ends: Ends, inside: Tensor, values: Tensor, complaint: str
) -> None:
    """Values at the points inside of boxes lie in the enclosures of those boxes."""
    low, high, below, above = (side.repeat(INSIDE, 1) for side in (lower, upper, ends.low, ends.high))
    kept = ((inside >= low) & (inside <= high)).all(1)  # rounding to the executing format may leave a box
    _complain(error, inside, kept & Ends(below, above).exclude(values), complaint)


def _compare(error: ErrorFunction, points: Tensor, usual: Tensor, other: Tensor, ends: Ends, complaint: str) -> None:
    """Two executions at the same points agree, or differ by no more than rounding may."""
    equal = ((usual == other) | (usual.isnan() & other.isnan())).all(1)
    _complain(error, points, ~equal & (ends.exclude(usual) | ends.exclude(other)), complaint)


def _complain(error: ErrorFunction, points: Tensor, wrong: Tensor, complaint: str) -> None:
    if bool(wrong.any()):
        x = place(points[wrong][0].reshape(error.box.shape))
        raise ModelAssumptionError(f"the model {complaint.format(x=x)}")
