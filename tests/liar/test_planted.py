"""The liar finds what it is there for: each class of error that was ever found, planted anew, is caught in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from liar import calls, faults, folders, formulas, hostile, judge, programs, run
from liar.faults import Patch, Plant
from onelayer.taylor import kernels

BUDGET = 150


@dataclass(frozen=True)
class Fault:
    """A fault, the attack that meets its kind, and the calls, formulas or forgeries that a quick search is kept to."""

    plant: Plant
    attack: str
    calls: Sequence[str] = ()
    formulas: Sequence[str] = ()
    forgeries: Sequence[str] = ()
    found: str = "lie"


FAULTS: dict[str, Fault] = {
    "underflow lost in an interval product": Fault(faults.tiny_lost, "formula", formulas=["lost_product"]),
    "coefficients dropped in a product": Fault(faults.coefficients_dropped, "enclosures", calls=["softmax constant"]),
    "undefined but bounded": Fault(faults.undefined_is_bounded, "formula", formulas=["hole_bounded"]),
    "overflow inside a norm": Fault(faults.norm_overflows, "enclosures", calls=["layer_norm large"]),
    "inverted mask": Fault(faults.mask_inverted, "enclosures", calls=["mha bool"]),
    "causal hint ignored": Fault(faults.hint_ignored, "enclosures", calls=["mha causal"]),
    "constants taken as exact": Fault(faults.constants_exact, "enclosures", calls=["base 1.1", "clamp", "full_like"]),
    "products taken as exact": Fault(faults.products_exact, "enclosures", calls=["pow 3", "outer", "silu"]),
    "recording of another function": Fault(faults.wrong_recording, "recording", calls=["mean", "minus mean"]),
    "holes dropped by a recording": Fault(faults.holes_dropped, "formula", formulas=["hole_zeroed"]),
    "batches mixed": Fault(faults.batches_mixed, "program", calls=["batch mean", "softmax 0"]),
    "global state": Fault(faults.ground_not_pinned, "formula"),
    "witness not verified": Fault(faults.witness_unverified, "program"),
    "checker: range without the point of expansion": Fault(faults.range_clipped, "folder", forgeries=["enclosures"]),
    "checker: overflow unseen": Fault(faults.overflow_unseen, "folder", forgeries=["dead unit", "normalised overflow"]),
    "checker: rounding forgotten": Fault(faults.rounding_forgotten, "folder", forgeries=["enclosures"]),
    "checker: boxes sampled": Fault(faults.boxes_sampled, "folder", forgeries=["smaller upper"]),
    "casts recorded as the identity": Fault(
        faults.casts_forgotten, "recording", calls=["to int", "half", "minus mean"]
    ),
    "an activation in place": Fault(faults.writing_unseen, "program", calls=["activated in place"]),
    "checker: formats mixed": Fault(faults.formats_mixed, "folder", forgeries=["other format"]),
    "checker: honest proofs rejected": Fault(faults.rounding_exaggerated, "trip", found="rejection"),
    "slopes halved": Fault(faults.slopes_halved, "claim"),
    "conditions read backwards": Fault(faults.conditions_backwards, "claim"),
    "graph: a sum over no axes": Fault(faults.no_axes_is_no_reduction, "graph"),
    "graph: points mixed": Fault(faults.points_not_apart, "graph"),
    "graph: constants folded in another format": Fault(faults.constants_folded_wide, "graph"),
    "table: interpolants beside their rows": Fault(faults.rows_missed, "table"),
    "table: enclosures too small": Fault(faults.tables_enclosed_elsewhere, "table"),
    "checker: values where there are none": Fault(faults.nothing_is_bounded, "hole"),
    "checker: overflow that a softmax hides": Fault(faults.overflow_hidden, "network"),
    "checker: the switch of a softplus": Fault(faults.switch_unseen, "network"),
    "checker: any witness": Fault(faults.any_witness, "folder", forgeries=["false refutation"]),
    "checker: refutation unconfirmed": Fault(faults.refutation_unconfirmed, "folder", forgeries=["false refutation"]),
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
    if fault.plant is faults.ground_not_pinned:
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
            if fault.found in found:
                return
    pytest.fail(f"not caught: {name}")


@pytest.mark.parametrize("name", ["undefined but bounded", "checker: refutation unconfirmed", "inverted mask"])
def test_without_the_fault_nothing_is_found(name: str, monkeypatch: Patch) -> None:
    """What catches a fault is the fault: the same short search is quiet without it."""
    focus(monkeypatch, FAULTS[name])
    report = run.many_cases(0, range(8), FAULTS[name].attack)
    assert report.clean, report.findings
