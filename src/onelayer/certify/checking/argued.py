"""The checker's dispatch for proofs by lemma, composition and enumeration: an upper bound from the files alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flint import arb

from onelayer.certify.checking.arithmetic import ZERO, Taylor, constant
from onelayer.certify.checking.attention import Vector
from onelayer.certify.checking.boxes import PROVED, Prover
from onelayer.certify.checking.composition import composition_bound
from onelayer.certify.checking.formula import evaluate
from onelayer.certify.checking.functions import Kinks
from onelayer.certify.checking.intervals import image
from onelayer.certify.checking.layer import Layer
from onelayer.certify.checking.order import order_statistics_bound, order_statistics_values, thresholds_values
from onelayer.certify.checking.recall import read_rows, recall_bound
from onelayer.certify.checking.rounding import Execution
from onelayer.certify.checking.weights import Array, Stored
from onelayer.certify.files import ARGUMENT, Record, SavedProof
from onelayer.certify.lemmas.argument import Argument, Composition, OrderStatistics, Recall, from_text
from onelayer.errors import OnelayerError
from onelayer.target.formula import Formula, parse

METHODS = {"lemma": OrderStatistics, "composition": Composition, "enumeration": Recall}
BUDGET = 400  # bisections per box
LARGEST = 2**15  # ramps of a sequence, or numbers in the memory of a table


def recheck(proof: SavedProof, stored: Stored, boxes: tuple[Array, Array] | None) -> str:
    """Prove the claim again; returns what was done in words, raises OnelayerError when it does not hold.

    ``boxes`` are the corners of the leaves of a proof that has some.
    """
    record = proof.record
    if ARGUMENT not in proof.attachments:
        raise OnelayerError(f"a proof by {record.method} needs {ARGUMENT}, which is not there")
    execution = Execution.of(record.arithmetic, stored, record.domain)
    if execution is None:
        raise OnelayerError(f"proofs by {record.method} speak of an execution, not of real arithmetic")
    argument = from_text(proof.attachments[ARGUMENT])
    _stated(record, argument)
    if isinstance(argument, OrderStatistics):
        _order_statistics(record, argument, stored, execution)
    elif isinstance(argument, Recall):
        _recall(proof, argument, stored, execution)
    else:
        _composition(proof, argument, stored, execution, boxes)
    note = "; the layer is too large to evaluate the witness again" if _large(argument, stored) else ""
    return f"{record.status}, sup|T - f| <= {record.upper!r} re-proved by {record.method}{note}"


def _stated(record: Record, argument: Argument) -> None:
    """The method is that of the argument, and the certificate names the function that the argument is about."""
    if not isinstance(argument, METHODS[record.method]):
        raise OnelayerError(f"a proof by {record.method} cannot stand on an argument about {argument.KIND}")
    if not isinstance(argument, Composition) and record.function != argument.stated():
        raise OnelayerError(f"the certificate names another function than its argument: {argument.stated()[:120]}")


def _large(argument: Argument, stored: Stored) -> bool:
    """Whether a forward pass in ball arithmetic takes minutes."""
    if isinstance(argument, Recall):
        return sum(tensor.size for tensor in stored.tensors.values()) > LARGEST
    return isinstance(argument, Composition) and stored.length * stored.config["ramps"] > LARGEST


def _order_statistics(record: Record, argument: OrderStatistics, stored: Stored, execution: Execution) -> None:
    lemma, rest = order_statistics_bound(stored, argument, record.domain, execution)
    _upper(record, lemma + rest)
    if record.lower == 0:
        return
    if record.witness is None:
        raise OnelayerError("a positive lower bound without a witness point")
    values = order_statistics_values(argument, record.witness)
    if argument.construction == "thresholds":
        found = thresholds_values(stored, argument, record.witness)
    else:
        found = [
            item.c[0] for item in Layer(stored, None)([constant(arb(v), 1) for v in record.witness], Kinks()).items
        ]
    _lower(record, [abs(a - b) + rest for a, b in zip(found, values, strict=True)])


def _recall(proof: SavedProof, argument: Recall, stored: Stored, execution: Execution) -> None:
    """Every row; the lower bound is checked to be the error of its row, or in a large table to be no refutation."""
    x, y = read_rows(proof, argument, stored)
    record = proof.record
    _upper(record, recall_bound(stored, argument, x, y, execution))
    if record.witness is None:
        return
    row = np.flatnonzero((x == np.array(record.witness)).all(1))
    if not len(row):
        raise OnelayerError("the witness is no row of the table")
    if _large(argument, stored):
        if record.status == "refuted":
            raise OnelayerError("the table is too large to evaluate the row that refutes its recall")
        return
    t = Layer(stored, execution)([constant(arb(v), 1) for v in record.witness], Kinks())
    gaps = [abs(a.c[0] - arb(b)) + r for a, b, r in zip(t.items, y[row[0]].tolist(), t.errors, strict=True)]
    _lower(record, gaps)


def _composition(
    proof: SavedProof,
    argument: Composition,
    stored: Stored,
    execution: Execution,
    boxes: tuple[Array, Array] | None,
) -> None:
    """|T - D| by composition; f is D, or |f - D| <= gap on every box."""
    record = proof.record
    if proof.function is None:
        raise OnelayerError("a composition needs the text of its function")
    formula = parse(proof.function, math.prod(record.shape), limit=len(proof.function))
    decomposed = argument.formula()
    if argument.exact:
        if (formula.nodes, formula.outputs) != (decomposed.nodes, decomposed.outputs):
            raise OnelayerError("the function is not the sum of terms that the argument states")
    else:
        _formulas(record, formula, decomposed, argument.gap, boxes)
    upper = composition_bound(stored, argument, record.domain, execution)
    _upper(record, upper if argument.exact else upper + arb(argument.gap))
    if record.witness is not None and record.lower > 0 and not _large(argument, stored):
        t = Layer(stored, execution)([constant(arb(v), 1) for v in record.witness], Kinks())
        f = image(formula, [(arb(v), arb(v)) for v in record.witness])
        _lower(record, [abs(a.c[0] - b.union(c)) + r for a, (b, c), r in zip(t.items, f, t.errors, strict=True)])


def _formulas(
    record: Record, formula: Formula, decomposed: Formula, gap: float, boxes: tuple[Array, Array] | None
) -> None:
    """|f - D| <= gap on the boxes, both as formulas."""
    if boxes is None:
        raise OnelayerError("a composition that is not exact needs boxes")

    def second(x: Sequence[Taylor], kinks: Kinks) -> Vector:
        items = evaluate(decomposed, x, kinks)
        return Vector(items, [ZERO] * len(items))

    prover = Prover(second, formula, gap, max(2, min(record.order or 4, 8)), BUDGET)
    for low, high in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True):
        verdict = prover(low, high)
        if verdict.outcome != PROVED:
            raise OnelayerError(f"|f - D| <= {gap:.3g} does not follow near {verdict.place}")


def _upper(record: Record, upper: arb) -> None:
    if not upper <= record.upper:
        found = float(upper.upper())
        raise OnelayerError(f"only sup|T - f| <= {found:.6g} follows, the certificate states {record.upper:.6g}")


def _lower(record: Record, gaps: list[arb]) -> None:
    """lower <= |T - f| at the witness; ``gaps`` include the rounding of the execution there."""
    reached = max(float(gap.upper()) for gap in gaps)
    if not reached >= record.lower:
        raise OnelayerError(
            f"at the witness |T - f| is at most {reached:.6g}, below the stated lower bound {record.lower:.6g}"
        )
