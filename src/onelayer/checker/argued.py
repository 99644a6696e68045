"""The checker's dispatch for proofs by lemma, composition and enumeration: an upper bound from the files alone."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor
from onelayer.checker.attention import Vector
from onelayer.checker.boxes import PROVED, Prover
from onelayer.checker.composition import composition_bound
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.nested import nested_bound
from onelayer.checker.order import order_statistics_bound
from onelayer.checker.outcome import Rejected
from onelayer.checker.pieces import pieces_bound
from onelayer.checker.reader import ARGUMENT, SavedProof
from onelayer.checker.recall import read_rows, recall_bound
from onelayer.checker.record import Record
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Array, Stored
from onelayer.errors import FileError
from onelayer.language.formula import Formula
from onelayer.lemmas.argument import Argument, Composition, OrderStatistics, Recall, from_text
from onelayer.lemmas.nested import Nested
from onelayer.lemmas.pieces import Pieces
from onelayer.observer import Observer

METHODS: dict[str, tuple[type[Argument], ...]] = {
    "lemma": (OrderStatistics,),
    "composition": (Composition, Nested, Pieces),
    "enumeration": (Recall,),
}
BUDGET = 400  # bisections per box


def argument_of(proof: SavedProof) -> Argument:
    """What a proof without boxes, or beyond them, stands on; it fits the method and the function of the certificate."""
    record = proof.record
    if ARGUMENT not in proof.attachments:
        raise FileError(f"a proof by {record.method} needs {ARGUMENT}, which is not there")
    argument = from_text(proof.attachments[ARGUMENT])
    _stated(record, argument)
    return argument


def recheck(
    proof: SavedProof,
    argument: Argument,
    stored: Stored,
    formula: Formula | None,
    boxes: tuple[Array, Array] | None,
    observer: Observer,
) -> None:
    """Prove the upper bound again; raises OnelayerError when it does not follow, Stopped when the time is over.

    ``boxes`` are the corners of the leaves of a proof that has some, ``formula`` is f where it is one.
    """
    record = proof.record
    execution = Execution.of(record.arithmetic, stored, record.domain)
    if execution is None:
        raise Rejected(f"proofs by {record.method} speak of an execution, not of real arithmetic")
    # Here overflow is decided, for every argument alike.
    execution.need_sure()
    # The lemmas count the roundings of one format, not what a narrower one rounds between them.
    if execution.held is not None:
        raise Rejected(f"proofs by {record.method} do not speak of a {record.arithmetic}")
    if isinstance(argument, OrderStatistics):
        lemma, rest = order_statistics_bound(stored, argument, record.domain, execution)
        _upper(record, lemma + rest)
    elif isinstance(argument, Recall):
        x, y = read_rows(proof, argument, stored)
        _upper(record, recall_bound(stored, argument, x, y, execution))
    elif isinstance(argument, Nested):
        _upper(record, nested_bound(stored, argument, formula, record.domain, execution, observer))
    elif isinstance(argument, Pieces):
        _upper(record, pieces_bound(stored, argument, formula, record.domain, execution))
    else:
        _composition(record, argument, stored, execution, formula, boxes, observer)


def _stated(record: Record, argument: Argument) -> None:
    """The method is that of the argument, and the certificate names the function that the argument is about."""
    if not isinstance(argument, METHODS[record.method]):
        raise Rejected(f"a proof by {record.method} cannot stand on an argument about {argument.KIND}")
    if not isinstance(argument, Composition | Nested | Pieces) and record.function != argument.stated():
        raise Rejected(f"the certificate names another function than its argument: {argument.stated()[:120]}")


def _composition(
    record: Record,
    argument: Composition,
    stored: Stored,
    execution: Execution,
    formula: Formula | None,
    boxes: tuple[Array, Array] | None,
    observer: Observer,
) -> None:
    """|T - D| by composition; f is D, or |f - D| <= gap on every box."""
    if formula is None:
        raise Rejected("a composition needs the text of its function")
    decomposed = argument.formula()
    if (formula.dim, len(formula.outputs)) != (decomposed.dim, len(decomposed.outputs)):
        raise Rejected("the function and the sum of terms differ in inputs or outputs")
    if argument.exact:
        if (formula.nodes, formula.outputs) != (decomposed.nodes, decomposed.outputs):
            raise Rejected("the function is not the sum of terms that the argument states")
    else:
        _formulas(record, formula, decomposed, argument.gap, boxes, observer)
    upper = composition_bound(stored, argument, record.domain, execution)
    _upper(record, upper if argument.exact else upper + arb(argument.gap))


def _formulas(
    record: Record,
    formula: Formula,
    decomposed: Formula,
    gap: float,
    boxes: tuple[Array, Array] | None,
    observer: Observer,
) -> None:
    """|f - D| <= gap on the boxes, both as formulas."""
    if boxes is None:
        raise Rejected("a composition that is not exact needs boxes")

    def second(x: Sequence[Taylor], kinks: Kinks) -> Vector:
        items = evaluate(decomposed, x, kinks)
        return Vector(items, [ZERO] * len(items))

    prover = Prover(second, formula, gap, max(2, min(record.order or 4, 8)), BUDGET, observer)
    for low, high in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True):
        verdict = prover(low, high)
        if verdict.outcome != PROVED:
            raise Rejected(f"|f - D| <= {gap:.3g} does not follow near {verdict.place}")


def _upper(record: Record, upper: arb) -> None:
    if not upper <= record.upper:
        found = float(upper.upper())
        raise Rejected(f"only sup|T - f| <= {found:.6g} follows, the certificate states {record.upper:.6g}")
