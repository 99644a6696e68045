"""One fault of each class that was ever found, to be planted anew: where the package now prevents it.

Where a second defence stands behind the first, the plant removes both: the question is whether a claim that gets
through is found false, not which defence holds it back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

from liar import claims, folders, graphs, holes, networks
from onelayer import ground
from onelayer.checker import activations as checked_activations
from onelayer.checker import attention as checked_attention
from onelayer.checker import check
from onelayer.checker import functions as checked_functions
from onelayer.checker import rounding as checked_rounding
from onelayer.checker import steps as checked_steps
from onelayer.checker.formats import BY_TAG
from onelayer.language import intervals
from onelayer.network import builder, onnx_file, onnx_tables
from onelayer.proof import certify as door
from onelayer.proof import claims as claims_made
from onelayer.proof import contract, objectives, recorded
from onelayer.proof import frontier as branch
from onelayer.proof import witness as lower
from onelayer.recording import algebra as operations
from onelayer.recording import dispatch, recorder
from onelayer.recording import scattered as scattered_rows
from onelayer.recording import table as table_reader
from onelayer.taylor import (
    arithmetic,
    attention,
    compose,
    core,
    derived,
    hull,
    normalize,
    piecewise,
    registry,
    rounding,
)

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def tiny_lost(patch: Patch) -> None:
    """An interval product that underflows is taken as exact."""
    patch.setattr(intervals, "TINY", 0.0)


def coefficients_dropped(patch: Patch) -> None:
    """A model without variables of its own counts as a constant factor, whatever its denominator."""

    def planted(a: Any, other: Any) -> Any:
        a, b = arithmetic.pair(a, other)
        if a.support and b.support:
            return arithmetic.multiply(core.prune(a.plain()), core.prune(b.plain()))
        factor, model = (a, b) if not a.support and not a.den else (b, a)
        constant = core.constant(factor.plain().coef[0], model)
        return arithmetic.scale(model, constant)

    patch.setitem(registry._HANDLERS, "mul", (planted, True))


def undefined_is_bounded(patch: Patch) -> None:
    """A bounded function of something undecided is bounded."""
    original = compose.within_image
    for module in (compose, normalize):
        patch.setattr(module, "within_image", lambda x, low, high, defined: original(x, low, high, defined | True))
    patch.setattr(contract, "examine", lambda error: 0)
    patch.setattr(door, "examine", lambda error: 0, raising=False)


def norm_overflows(patch: Patch) -> None:
    patch.setattr(normalize, "executed", lambda radius, magnitude, roundings, dtype, unit=1.0: radius)


def mask_inverted(patch: Patch) -> None:
    for module in (attention, derived):
        patch.setattr(module, "mask_of_heads", lambda mask, causal, need_weights: (mask, False))


def hint_ignored(patch: Patch) -> None:
    original = attention.mask_of_heads
    for module in (attention, derived):
        patch.setattr(module, "mask_of_heads", lambda mask, causal, need: original(mask, False, need))


def constants_exact(patch: Patch) -> None:
    """A number that the executing format cannot hold is taken as held."""
    for module in (arithmetic, rounding, piecewise, attention):
        if hasattr(module, "conversion_error"):
            patch.setattr(module, "conversion_error", lambda value, dtype: None)


def products_exact(patch: Patch) -> None:
    original = rounding.executed

    def planted(radius: Any, magnitude: Any, roundings: float, dtype: Any, unit: Any = 1.0) -> Any:
        return original(radius, magnitude, 0 * roundings, dtype, unit)

    patch.setattr(arithmetic, "executed", planted)


def wrong_recording(patch: Patch) -> None:
    """A mean is recorded as a sum, and neither an operation nor a recording is compared with what runs."""
    patch.setitem(dispatch.OPERATIONS, "mean", operations_named("sum"))
    patch.setitem(dispatch._SIGNATURES, "mean", dispatch._SIGNATURES["sum"])
    nothing_compared(patch)


def nothing_compared(patch: Patch) -> None:
    """Neither operations nor whole functions are run on numbers beside their recording."""
    patch.setattr(dispatch, "run_beside", lambda tape, name, function, args, kwargs, result: result)
    patch.setattr(recorder, "need_same_way", lambda *everything: None)
    patch.setattr(recorded, "_compare", lambda *everything: None)


def operations_named(name: str) -> Any:
    return dispatch.OPERATIONS[name]


def holes_dropped(patch: Patch) -> None:
    """Zero times anything, and zero over anything, is recorded as zero."""
    patch.setattr(operations, "mul_entries", lambda tape, a, b: 0 if 0 in (a, b) else tape.add("mul", a, b))
    patch.setattr(operations, "_div", lambda tape, a, b: 0 if a == 0 else tape.add("div", a, b))
    patch.setattr(recorded, "_compare", lambda *everything: None)


def batches_mixed(patch: Patch) -> None:
    """Nobody asks whether T keeps its points apart, or is what its operations on enclosures say."""
    for module in (contract, door):
        if hasattr(module, "examine"):
            patch.setattr(module, "examine", lambda error: 0)


def ground_not_pinned(patch: Patch) -> None:
    """Numbers become tensors of whatever default dtype the process has."""
    patch.setattr(ground, "_thread_settings", list)
    patch.setattr(ground._PROCESS, "held", nullcontext)
    original = core.constant

    def planted(value: Any, like: Any, radius: Any = None) -> Any:
        return original(torch.as_tensor(value) if isinstance(value, float) else value, like, radius)

    for module in (core, arithmetic):
        patch.setattr(module, "constant", planted)


def witness_unverified(patch: Patch) -> None:
    original = lower.verified

    def planted(*args: Any, **keywords: Any) -> Any:
        found = original(*args, **keywords)
        return None if found is None else replace(found, value=found.value * 1.01)

    for module in (lower, branch):
        patch.setattr(module, "verified", planted)


def range_clipped(patch: Patch) -> None:
    """The checker narrows the range of a function to less than its values."""
    original = checked_functions._narrowed
    patch.setattr(checked_functions, "_narrowed", lambda values, inside: arb(original(values, inside).mid()))


def overflow_unseen(patch: Patch) -> None:
    patch.setattr(checked_rounding, "largest_numbers", lambda *everything: (0.0, 0.0))
    no_trial_points(patch)


def no_trial_points(patch: Patch) -> None:
    patch.setattr(check, "contradiction", lambda record, stored, values, points: None)


def rounding_forgotten(patch: Patch) -> None:
    """The checker takes every product with one number as one with a power of two, and sums as exact."""
    for module in (checked_rounding, checked_attention):
        patch.setattr(module, "power_of_two", lambda value: True)
    patch.setattr(checked_rounding.Execution, "gamma", lambda self, n: arb(0))


def boxes_sampled(patch: Patch) -> None:
    """One box, drawn at random, stands for all of them."""
    original = check._Check._boxes

    def planted(self: Any, layer: Any, formula: Any, low: Any, high: Any) -> None:
        at = int(self.rng.integers(len(low)))
        original(self, layer, formula, low[at : at + 1], high[at : at + 1])

    patch.setattr(check._Check, "_boxes", planted)
    no_trial_points(patch)


def refutation_unconfirmed(patch: Patch) -> None:
    patch.setattr(check._Check, "_lower", lambda self, values: self.record.lower)


def casts_forgotten(patch: Patch) -> None:
    """A cast is recorded as the identity, and neither an operation nor a recording is compared with what runs."""
    patch.setattr(dispatch, "same_type", lambda dtype: None)
    nothing_compared(patch)


def writing_unseen(patch: Patch) -> None:
    """An activation in place is enclosed as one that leaves its argument as it was."""
    patch.setattr(registry, "_refuse_in_place", lambda *everything: None)
    batches_mixed(patch)


def formats_mixed(patch: Patch) -> None:
    """The checker takes what runs in one format for what runs in the format of the weights."""
    claim, of = check._claim, checked_rounding.Execution.of
    patch.setattr(check, "_claim", lambda record, stored: claim(replace(record, arithmetic="real"), stored))

    def planted(arithmetic: str, stored: Any, domain: Any) -> Any:
        return of(BY_TAG[stored.dtype].arithmetic, stored, domain)

    patch.setattr(checked_rounding.Execution, "of", staticmethod(planted))
    no_trial_points(patch)


def rounding_exaggerated(patch: Patch) -> None:
    """The checker counts every rounding a thousand times, and rejects what is true."""
    original = checked_rounding.Execution.gamma
    patch.setattr(checked_rounding.Execution, "gamma", lambda self, n: original(self, 1000 * n))


def slopes_halved(patch: Patch) -> None:
    """A Lipschitz constant of half the slopes."""
    original = objectives.Steepness.forward
    patch.setattr(objectives.Steepness, "forward", lambda self, x: original(self, x) * 0.5)
    patch.setattr(claims_made, "_examine", lambda models, box, watch: None)
    patch.setattr(claims, "CLAIMS", ("lipschitz",))


def conditions_backwards(patch: Patch) -> None:
    """What is proved of a condition is said of its opposite."""
    original = claims_made.parse_requirement

    def planted(text: str, names: Any) -> Any:
        return original(text.translate(str.maketrans("<>", "><")), names)

    patch.setattr(claims_made, "parse_requirement", planted)
    patch.setattr(claims, "CLAIMS", ("prove",))


def no_axes_is_no_reduction(patch: Patch) -> None:
    """A sum over no axes leaves an array as it is, and nobody asks which shape the standard gives it."""
    patch.setattr(onnx_file, "_inferred", lambda onnx, model: {})
    original = builder.NetworkWriter.reduced

    def planted(self: Any, op: str, x: Any, axes: Any, keepdim: bool) -> Any:
        return x if axes == [] else original(self, op, x, axes, keepdim)

    patch.setattr(builder.NetworkWriter, "reduced", planted)
    patch.setattr(graphs, "PARTS", {name: graphs.PARTS[name] for name in ("reduction", "function")})


def points_not_apart(patch: Patch) -> None:
    """Nobody asks whether a graph keeps the points of a batch apart."""
    patch.setattr(onnx_file, "_any_batch", lambda graph: False)
    patch.setattr(graphs, "PARTS", {name: graphs.PARTS[name] for name in ("counted", "function")})


def constants_folded_wide(patch: Patch) -> None:
    """Numbers of a graph are combined in float64, whatever their format, and nobody asks for it."""
    patch.setattr(onnx_file, "_need_format", lambda *_: None)
    for op, folded in (("Add", np.add), ("Sub", np.subtract)):
        patch.setitem(onnx_tables.FOLDED, op, lambda a, b, folded=folded: folded(np.float64(a), np.float64(b)))
    patch.setattr(graphs, "PARTS", {name: graphs.PARTS[name] for name in ("folded", "function")})


def any_witness(patch: Patch) -> None:
    """The checker takes witnesses that are no numbers of the format."""
    patch.setattr(check, "is_point", lambda point, arithmetic: True)
    patch.setattr(folders, "FORMATS", [torch.bfloat16])


def nothing_is_bounded(patch: Patch) -> None:
    """The checker bounds what is computed of something without a value."""
    patch.setattr(checked_steps, "defined", lambda found, sources: found)
    kept = {name: holes.OUTER[name] for name in ("softmax", "layer_norm", "no weight")}
    patch.setattr(holes, "OUTER", kept)


def overflow_hidden(patch: Patch) -> None:
    """The checker passes over an executed infinity where what is computed of it needs no value of it."""
    original = checked_steps.defined
    unaware = lambda found, read: original(found, replace(read, errors=[arb(0)] * len(read.errors)))  # noqa: E731
    patch.setattr(checked_steps, "defined", unaware)
    patch.setattr(networks, "UNARY", ("exp", "square"))


def switch_unseen(patch: Patch) -> None:
    """The checker takes a softplus for log(1 + e^x) everywhere."""
    patch.setattr(checked_activations, "SWITCH", arb.pos_inf())
    patch.setattr(networks, "UNARY", ("softplus", "neg"))


def rows_missed(patch: Patch) -> None:
    """Interpolants of all kinds are a thousandth larger than their rows; f moves, and whatever is built for it."""
    spline = table_reader.interpolant

    def planted(axes: Any, values: Any) -> Any:
        return spline(axes, values * 1.001)

    patch.setattr(table_reader, "interpolant", planted)
    facets = scattered_rows.Facets
    patch.setattr(scattered_rows, "Facets", lambda dim, points, values, kept: facets(dim, points, values * 1.001, kept))


def tables_enclosed_elsewhere(patch: Patch) -> None:
    """Enclosures of tables are a tenth too small, and nobody holds them against a point."""
    for name in ("spline", "facets"):
        handler, lazy = registry._HANDLERS[name]
        patch.setitem(registry._HANDLERS, name, (_shrunk(handler), lazy))
    interval = hull.interval

    def planted(node: Any, args: Any, value: Any) -> Any:
        ends, sure = interval(node, args, value)
        return (value.range() if node.op in ("spline", "facets") else ends), sure

    patch.setattr(hull, "interval", planted)
    for module in (lower, branch):
        patch.setattr(module, "verified", lambda *args, **keywords: None)


def _shrunk(handler: Callable[..., Any]) -> Callable[..., Any]:
    return lambda data, *args: handler(data, *args) * 0.9
