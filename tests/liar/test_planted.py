"""The liar finds what it is there for: each class of error that was ever found, planted anew, is caught in its budget.

A fault is planted where the package now prevents it. Where a second defence stands behind the first, the plant removes
both: the question is whether a claim that gets through is found false, not which defence holds it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

from liar import calls, claims, folders, formulas, graphs, holes, hostile, judge, networks, programs, run
from onelayer import ground
from onelayer.checker import activations as checked_activations
from onelayer.checker import attention as checked_attention
from onelayer.checker import check
from onelayer.checker import functions as checked_functions
from onelayer.checker import rounding as checked_rounding
from onelayer.checker import steps as checked_steps
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
    kernels,
    normalize,
    piecewise,
    registry,
    rounding,
)

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
BUDGET = 150


@dataclass(frozen=True)
class Fault:
    """A fault, the attack that meets its kind, and the calls, formulas or forgeries that a quick search is kept to."""

    plant: Plant
    attack: str
    calls: Sequence[str] = ()
    formulas: Sequence[str] = ()
    forgeries: Sequence[str] = ()


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


FAULTS: dict[str, Fault] = {
    "underflow lost in an interval product": Fault(tiny_lost, "formula", formulas=["lost_product"]),
    "coefficients dropped in a product": Fault(coefficients_dropped, "enclosures", calls=["softmax constant"]),
    "undefined but bounded": Fault(undefined_is_bounded, "formula", formulas=["hole_bounded"]),
    "overflow inside a norm": Fault(norm_overflows, "enclosures", calls=["layer_norm large"]),
    "inverted mask": Fault(mask_inverted, "enclosures", calls=["mha bool"]),
    "causal hint ignored": Fault(hint_ignored, "enclosures", calls=["mha causal"]),
    "constants taken as exact": Fault(constants_exact, "enclosures", calls=["base 1.1", "clamp", "full_like"]),
    "products taken as exact": Fault(products_exact, "enclosures", calls=["pow 3", "outer", "silu"]),
    "recording of another function": Fault(wrong_recording, "recording", calls=["mean", "minus mean"]),
    "holes dropped by a recording": Fault(holes_dropped, "formula", formulas=["hole_zeroed"]),
    "batches mixed": Fault(batches_mixed, "program", calls=["batch mean", "softmax 0"]),
    "global state": Fault(ground_not_pinned, "formula"),
    "witness not verified": Fault(witness_unverified, "program"),
    "checker: range without the point of expansion": Fault(range_clipped, "folder", forgeries=["enclosures"]),
    "checker: overflow unseen": Fault(overflow_unseen, "folder", forgeries=["dead unit", "normalised overflow"]),
    "checker: rounding forgotten": Fault(rounding_forgotten, "folder", forgeries=["enclosures"]),
    "checker: boxes sampled": Fault(boxes_sampled, "folder", forgeries=["smaller upper"]),
    "slopes halved": Fault(slopes_halved, "claim"),
    "conditions read backwards": Fault(conditions_backwards, "claim"),
    "graph: a sum over no axes": Fault(no_axes_is_no_reduction, "graph"),
    "graph: points mixed": Fault(points_not_apart, "graph"),
    "graph: constants folded in another format": Fault(constants_folded_wide, "graph"),
    "table: interpolants beside their rows": Fault(rows_missed, "table"),
    "table: enclosures too small": Fault(tables_enclosed_elsewhere, "table"),
    "checker: values where there are none": Fault(nothing_is_bounded, "hole"),
    "checker: overflow that a softmax hides": Fault(overflow_hidden, "network"),
    "checker: the switch of a softplus": Fault(switch_unseen, "network"),
    "checker: any witness": Fault(any_witness, "folder", forgeries=["false refutation"]),
    "checker: refutation unconfirmed": Fault(refutation_unconfirmed, "folder", forgeries=["false refutation"]),
}


def focus(patch: Patch, fault: Fault) -> None:
    """Keep the generators to what the fault is about, so that a short search meets it."""
    if fault.calls:
        for name in ("POINTWISE", "ROWS", "ENDS"):
            table = getattr(calls, name)
            kept = {key: code for key, code in table.items() if key in fault.calls}
            patch.setattr(programs, name, kept or (table if name == "ENDS" else calls.POINTWISE))
    if fault.formulas:
        patch.setattr(formulas, "KINDS", dict.fromkeys(fault.formulas, 1.0))
    if fault.forgeries:
        only = {name: code for name, code in folders.FORGERIES.items() if name in fault.forgeries}
        patch.setattr(folders, "FORGERIES", only or folders.FORGERIES)
        patch.setattr(folders, "ENCLOSURES", float("enclosures" in fault.forgeries))
        patch.setattr(folders, "_honest", lambda model, certificate: judge.Tally())
    if fault.plant is ground_not_pinned:
        patch.setattr(hostile, "draw", lambda rng: rng.choice(["default float16", "default bfloat16"]))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str, monkeypatch: Patch) -> None:
    fault = FAULTS[name]
    focus(monkeypatch, fault)
    fault.plant(monkeypatch)
    with kernels.backend(False):  # faults are planted in the plain way
        for number in range(BUDGET):
            report = run.many_cases(0, [number], fault.attack)
            found = {finding["what"] for finding in report.findings}
            assert "crash" not in found, report.findings  # the plant itself is broken
            if "lie" in found:
                return
    pytest.fail(f"not caught: {name}")


@pytest.mark.parametrize("name", ["undefined but bounded", "checker: refutation unconfirmed", "inverted mask"])
def test_without_the_fault_nothing_is_found(name: str, monkeypatch: Patch) -> None:
    """What catches a fault is the fault: the same short search is quiet without it."""
    focus(monkeypatch, FAULTS[name])
    report = run.many_cases(0, range(8), FAULTS[name].attack)
    assert report.clean, report.findings
