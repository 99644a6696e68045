"""The independent checker: re-prove a saved certificate from its files alone, in ball arithmetic (Arb).

It shares no arithmetic with the certifier: it reads the files, the formula's syntax tree and nothing else, and brings
its own Taylor arithmetic, its own evaluation of the layer and its own analysis of rounding. docs/checker.md says what
is checked.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flint import ctx
from numpy.typing import NDArray

from onelayer.certify.checking.argued import METHODS as ARGUED
from onelayer.certify.checking.argued import recheck
from onelayer.certify.checking.boxes import OPEN, PROVED, Prover, at_point
from onelayer.certify.checking.layer import Layer
from onelayer.certify.checking.outcome import Rejected
from onelayer.certify.checking.rounding import Execution
from onelayer.certify.checking.weights import Stored, read_model
from onelayer.certify.files import Record, SavedProof, read_proof
from onelayer.errors import FileError, FormulaError, OnelayerError, UnsupportedOperation
from onelayer.ground import pinned
from onelayer.target.formula import Formula, parse

BITS = 128
MAX_FORMULA = 2**24
ALL_UP_TO = 2000  # proofs with at most this many boxes are checked completely
SAMPLE = 1000
BUDGET = 200  # bisections per box
TRIAL_BUDGET = 12
WORTH_TRIALS = 40  # boxes from which it pays to compare orders on a few of them
LEAF = 255
EXECUTIONS = {"F64": "float64 execution", "F32": "float32 execution"}
METHODS = ("branch and bound", "conditional on Lipschitz constant", *ARGUED)


@dataclass(frozen=True)
class CheckReport:
    """Outcome of a check: ``ok`` iff all that was checked holds; ``reason`` says what failed, or what was done."""

    ok: bool
    reason: str
    boxes_checked: int
    boxes_total: int
    seconds: float

    @property
    def fraction(self) -> float:
        """Share of the proof's boxes that were re-proved."""
        return self.boxes_checked / self.boxes_total if self.boxes_total else 1.0

    def __str__(self) -> str:
        return f"{'accepted' if self.ok else 'rejected'}: {self.reason} ({self.seconds:.1f} s)"


@pinned()
def check(
    folder: str | Path,
    *,
    all: bool = False,
    seed: int = 0,
    max_seconds: float = 120.0,
    f: str | Formula | None = None,
    progress: bool = False,
) -> CheckReport:
    """Re-prove the certificate saved in ``folder``.

    Files and claim are checked completely, and so are the boxes of proofs with at most 2,000 boxes; of larger ones a
    random sample (``seed``), or every box with ``all``. After ``max_seconds`` no new box is begun unless ``all`` is
    set; the report states the fraction. ``f`` is formula text for a proof whose function could not be recorded. A file
    that is malformed raises FileError; a claim that does not hold gives ``ok`` False.
    """
    started = time.monotonic()
    folder = Path(folder)
    proof, stored = read_proof(folder), read_model(folder)
    if proof.record.method in ARGUED:
        return _argued(proof, stored, started)
    count = proof.record.boxes
    done = 0
    try:
        formula = _formula(proof, f, stored)
        _claim(proof.record, stored)
        with _precision():
            layer = Layer(stored, Execution.of(proof.record.arithmetic, stored, proof.record.domain))
            _witness(proof.record, layer, formula)
            low, high = leaves(proof)
            if math.isfinite(proof.record.upper):
                deadline = math.inf if all else started + max_seconds
                chosen = _choose(proof.record, low, high, all, seed)
                for count_done in _boxes(proof.record, layer, formula, low[chosen], high[chosen], deadline, progress):
                    done = count_done
    except (Rejected, UnsupportedOperation) as error:
        return CheckReport(False, str(error), done, count, time.monotonic() - started)
    return CheckReport(True, _summary(proof.record, done), done, count, time.monotonic() - started)


def _argued(proof: SavedProof, stored: Stored, started: float) -> CheckReport:
    """A proof by lemma, composition or enumeration, re-proved completely."""
    boxes = proof.record.boxes
    try:
        _claim(proof.record, stored)
        with _precision():
            done = recheck(proof, stored, leaves(proof) if proof.tree is not None else None)
    except (Rejected, OnelayerError) as error:
        return CheckReport(False, str(error), 0, boxes, time.monotonic() - started)
    return CheckReport(True, done, boxes, boxes, time.monotonic() - started)


@contextmanager
def _precision() -> Iterator[None]:
    bits, cap = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = BITS, 40
    try:
        yield
    finally:
        ctx.prec, ctx.cap = bits, cap


def _summary(record: Record, done: int) -> str:
    share = "all" if done == record.boxes else f"{done / max(1, record.boxes):.2%} of"
    if not math.isfinite(record.upper):
        return f"{record.status}, sup|T - f| >= {record.lower!r}; no upper bound is claimed"
    claim = f"{record.status}, sup|T - f| <= {record.upper!r}"
    return f"{claim} re-proved on {share} {record.boxes:,} boxes ({done:,} checked)"


def _formula(proof: SavedProof, f: str | Formula | None, stored: Stored) -> Formula:
    dim = math.prod(proof.record.shape)
    if proof.function is not None:
        try:
            formula = parse(proof.function, dim, limit=MAX_FORMULA)
        except FormulaError as error:
            raise FileError(f"function.txt is not a formula of {dim} variables: {error}") from error
    elif f is not None:
        formula = parse(f, dim, limit=MAX_FORMULA) if isinstance(f, str) else f
    else:
        raise OnelayerError(
            "the function of this proof was not recorded; give it as formula text: check(folder, f=...)"
        )
    outputs = math.prod(stored.config["output_shape"])
    if formula.dim != dim or len(formula.outputs) != outputs:
        raise Rejected(f"the function has {len(formula.outputs)} outputs, the model {outputs}")
    return formula


def _claim(record: Record, stored: Stored) -> None:
    """The claim is one that boxes can prove, its numbers agree with each other, and the weights are those it names."""
    low, high = (np.array(side) for side in record.domain)
    proved_bound = math.inf if record.eps is None else record.eps
    rules = [
        (record.method in METHODS, f"proofs by {record.method} cannot be re-proved by this version"),
        (record.weights_sha256 == stored.sha256, "the weights are not those of the certificate"),
        (tuple(record.shape) == tuple(stored.config["input_shape"]), "domain and model differ in shape"),
        (
            record.arithmetic in ("real", EXECUTIONS[stored.dtype]),
            f"a claim about {record.arithmetic} for weights that are stored in {stored.dtype}",
        ),
        (bool((low <= high).all() and np.isfinite(low).all() and np.isfinite(high).all()), "the domain is no box"),
        (0 <= record.lower <= record.upper, "lower and upper bound contradict each other"),
        (record.status != "proved" or record.upper <= proved_bound, "'proved' but upper > eps"),
        (record.status != "refuted" or record.lower > proved_bound, "'refuted' but lower <= eps"),
        (
            record.status == "undecided" or record.status in ("proved", "refuted"),
            f"unknown status {record.status!r}",
        ),
        (
            record.status != "undecided" or record.eps is None or record.lower <= record.eps < record.upper,
            "'undecided' but the bounds decide",
        ),
    ]
    for holds, complaint in rules:
        if not holds:
            raise Rejected(complaint)


def _witness(record: Record, layer: Layer, formula: Formula) -> None:
    """lower <= |T - f| at the witness, for T real or within the rounding of its execution."""
    if record.witness is None:
        if record.lower > 0:
            raise Rejected("a positive lower bound without a witness point")
        return
    gaps = at_point(layer, formula, record.witness)
    reached = max(float((gap.abs_upper() + rounding).upper()) for gap, rounding in gaps)
    above = max(float((gap.abs_lower() - rounding).lower()) for gap, rounding in gaps)
    if above > record.upper:
        raise Rejected(f"at the witness |T - f| >= {above:.6g}, above the stated upper bound {record.upper:.6g}")
    if not reached >= record.lower:
        raise Rejected(
            f"at the witness |T - f| is at most {reached:.6g}, below the stated lower bound {record.lower:.6g}"
        )


def leaves(proof: SavedProof) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of the leaf boxes; Rejected unless they cover the domain exactly.

    The tree lists cuts in preorder. A cut at m strictly inside [a, b] leaves [a, m] and [m, b], whose union is the box;
    so the leaves cover the root if every cut is of that kind and the bytes are exactly one tree.
    """
    if proof.tree is None:
        raise Rejected("the proof has no boxes")
    low, high = proof.record.domain
    pending = [(tuple(low), tuple(high))]
    found: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for byte in proof.tree.tree.tolist():
        if not pending:
            raise Rejected("the box tree goes on after its last leaf")
        a, b = pending.pop()
        if byte == LEAF:
            found.append((a, b))
            continue
        if byte >= len(a):
            raise Rejected("the box tree cuts a coordinate that does not exist")
        centre = a[byte] / 2 + b[byte] / 2
        if not a[byte] < centre < b[byte]:
            raise Rejected("the box tree cuts an interval without a float inside")
        pending.append(((*a[:byte], centre, *a[byte + 1 :]), b))
        pending.append((a, (*b[:byte], centre, *b[byte + 1 :])))
    if pending or len(found) != proof.record.boxes:
        raise Rejected("the boxes do not cover the domain")
    return np.array([a for a, _ in found]), np.array([b for _, b in found])


def _choose(record: Record, low: NDArray[np.float64], high: NDArray[np.float64], every: bool, seed: int) -> list[int]:
    """Which boxes to re-prove, in random order; those that hold the witness come first."""
    order = list(range(len(low)))
    random.Random(seed).shuffle(order)
    if not every and len(order) > ALL_UP_TO:
        order = order[:SAMPLE]
    if record.witness is not None:
        point = np.array(record.witness)
        holding = np.flatnonzero(((low <= point) & (point <= high)).all(1)).tolist()
        order = holding + [at for at in order if at not in set(holding)]
    return order


def _boxes(
    record: Record,
    layer: Layer,
    formula: Formula,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    deadline: float,
    progress: bool,
) -> Iterator[int]:
    """Re-prove the boxes one by one, yielding how many are done."""
    prover = _prover(record, layer, formula, low, high)
    show = progress and sys.stderr.isatty()
    for at, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if at and time.monotonic() > deadline:
            break
        verdict = prover(a, b)
        for more in (2, 4):
            if verdict.outcome == OPEN:
                verdict = Prover(layer, formula, record.upper, prover.order + more, BUDGET // 4)(a, b)
        if verdict.outcome != PROVED:
            raise Rejected(_complaint(record, verdict.outcome, verdict.place, verdict.bound))
        yield at + 1
        if show:
            sys.stderr.write(f"\rchecked {at + 1:,} of {len(low):,} boxes")
    if show:
        sys.stderr.write("\r\x1b[K")


def _complaint(record: Record, outcome: str, place: tuple[float, ...], bound: float) -> str:
    point = ", ".join(f"{value:.6g}" for value in place)
    if outcome == OPEN:
        return f"near ({point}) only |T - f| <= {bound:.3g} could be proved, the certificate states {record.upper:.6g}"
    return f"at ({point}) |T - f| >= {bound:.6g}, above the stated upper bound {record.upper:.6g}"


def _prover(
    record: Record, layer: Layer, formula: Formula, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Prover:
    """The order of the Taylor arithmetic that is fastest on a few of the boxes."""
    first = max(2, min(record.order or 4, 8))
    if len(low) < WORTH_TRIALS:
        return Prover(layer, formula, record.upper, first, BUDGET)
    trials = []
    for order in sorted({first, first + 2, max(2, first - 2)}):
        prover = Prover(layer, formula, record.upper, order, TRIAL_BUDGET)
        started = time.monotonic()
        outcomes = [prover(a, b).outcome for a, b in zip(low[:3].tolist(), high[:3].tolist(), strict=True)]
        trials.append((OPEN in outcomes, time.monotonic() - started, order))
    return Prover(layer, formula, record.upper, min(trials)[2], BUDGET)


__all__ = ["CheckReport", "FileError", "check"]
