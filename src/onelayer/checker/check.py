"""The independent checker: re-prove a saved certificate from its files alone, in ball arithmetic (Arb).

It shares no arithmetic with the certifier: it reads the files, the formula's syntax tree and nothing else, and brings
its own Taylor arithmetic, its own evaluation of the layer and its own analysis of rounding. docs/checker.md says what
is checked.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from onelayer.checker.argued import METHODS as ARGUED
from onelayer.checker.argued import argument_of, recheck
from onelayer.checker.asked import Asked, need_arguments
from onelayer.checker.boxes import Evaluated
from onelayer.checker.cover import leaves, random_order, shares
from onelayer.checker.deadline import watched
from onelayer.checker.foreign import known_at, prepared
from onelayer.checker.formats import BY_TAG, REAL, is_point
from onelayer.checker.layer import Layer
from onelayer.checker.network import StoredNetwork, read_network
from onelayer.checker.outcome import NotConfirmed, Rejected
from onelayer.checker.points import PointError, contradiction, sharpened, trial_points, values_of
from onelayer.checker.points import known_at as executed_at
from onelayer.checker.precision import precise
from onelayer.checker.reader import SavedProof, read_proof
from onelayer.checker.record import BOXED, SUP, Record
from onelayer.checker.reproof import Reproof, proved_chunks
from onelayer.checker.rounding import Execution
from onelayer.checker.spoken import formula_of, function_of
from onelayer.checker.weights import MAX_BYTES, MODEL, Array, Stored, read_model
from onelayer.disk import as_path, read_bounded
from onelayer.door import door
from onelayer.errors import FileError, OnelayerError, one_line
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.lemmas.argument import Argument
from onelayer.observer import Observer, Stopped, observing, seconds_of

ACCEPTED, NOT_CONTRADICTED, REJECTED = "accepted", "not contradicted", "rejected"
UNEXPECTED = "the claim cannot be evaluated"
AT_POINTS = 20.0  # seconds for facts at points, which a sound folder needs a fraction of
METHODS = (*BOXED, *ARGUED)


@dataclass(frozen=True)
class CheckReport:
    """Outcome of a check in one of three words.

    accepted          everything that the certificate states was proved again: every box, or the whole argument
    not contradicted  the time ended first; ``fraction`` and ``volume`` say how much was proved again
    rejected          something stated is false, or could not be proved

    ``lower`` is the error that was confirmed at the witness; it may be below the stated one by the rounding of a
    forward pass. ``reason`` says in one line what was done, or what failed.
    """

    verdict: str
    reason: str
    boxes_checked: int
    boxes_total: int
    volume: float
    lower: float
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the verdict is "accepted"."""
        return self.verdict == ACCEPTED

    @property
    def fraction(self) -> float:
        """Share of the proof's boxes that were proved again, by count; of a proof without boxes all or nothing."""
        if self.boxes_total:
            return self.boxes_checked / self.boxes_total
        return float(self.ok)

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason} ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Progress:
    """What has been proved again so far."""

    boxes: int = 0
    volume: float = 0.0
    lower: float = 0.0


@door
@pinned()
def check(
    folder: str | Path,
    *,
    all: bool = False,
    seed: int | None = None,
    max_seconds: float = 120.0,
    f: str | Formula | None = None,
    jobs: int = -1,
    observer: Observer | None = None,
) -> CheckReport:
    """Re-prove the certificate saved in ``folder``.

    Files, claim and lower bound are checked first, then the boxes, some at a time in an order that is random anew each
    time, until all are proved or ``max_seconds`` are over; ``all`` means without limit. ``seed`` fixes the order.
    ``jobs`` processes share what takes long, -1 for one per core.
    ``f`` is formula text for a proof whose function could not be recorded. A file that is malformed raises FileError.
    """
    started = time.monotonic()
    need_arguments(all, seed, f, jobs)
    limit = math.inf if all else seconds_of(max_seconds)
    folder = as_path(folder)
    proof = read_proof(folder)
    stored = read_any(folder)
    verdict = ACCEPTED
    with observing(observer, limit) as watching, precise():
        checking = _Check(proof, stored, np.random.default_rng(seed), watching, jobs)
        try:
            checking.run(f)
            reason = checking.summary()
        except (FileError, Asked):
            raise
        except (Stopped, NotConfirmed) as error:
            verdict = NOT_CONTRADICTED
            reason = f"{error}; {checking.summary()}"
        except OnelayerError as error:
            verdict = REJECTED
            reason = str(error)
        except (ArithmeticError, ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
            # Whatever the numbers of a hostile folder did to the arithmetic, they did not prove the claim.
            verdict = REJECTED
            reason = f"{UNEXPECTED}: {type(error).__name__} {error}"
    done = checking.done
    seconds = time.monotonic() - started
    return CheckReport(verdict, one_line(reason), done.boxes, proof.record.boxes, done.volume, done.lower, seconds)


class _Check:
    """One check: the claim, then the facts at points, then the boxes or the argument; ``done`` grows on the way."""

    def __init__(
        self,
        proof: SavedProof,
        stored: Stored | StoredNetwork,
        rng: np.random.Generator,
        observer: Observer,
        jobs: int,
    ) -> None:
        self.claimed = self.record = proof.record
        self.proof = proof
        self.stored = stored
        self.rng = rng
        self.observer = observer
        self.jobs = jobs
        self.done = Progress()

    def run(self, f: str | Formula | None) -> None:
        """Returns when everything is proved; raises what stands in the way."""
        # Refused here where the bounds, moved by what is assumed of f, cross.
        self.record = self.claimed.stated()
        self.proof = replace(self.proof, record=self.record)
        witness = self.record.witness
        arithmetic = self.record.arithmetic
        if witness is not None and not is_point(witness, arithmetic):
            raise Rejected(f"the witness is no point of a {arithmetic}: its coordinates are not numbers of the format")
        if isinstance(self.stored, StoredNetwork):
            self._network(self.stored, f)
        else:
            self._layer(self.stored, f)

    def _network(self, stored: StoredNetwork, f: str | Formula | None) -> None:
        """A claim about a network: what it is about, the facts at the witness, then the boxes."""
        record = self.record
        with self._at_points():
            objective, formula = prepared(self.proof, stored, function_of(self.proof, f))
        if record.witness is not None:
            with self._at_points():
                found = sharpened(partial(known_at, record, objective, formula), record)
            self.done = Progress(lower=self._lower(found))
        if not math.isfinite(record.upper):
            return
        if self.proof.tree is None:
            raise Rejected("the proof has no boxes")
        with watched(self.observer):
            self._boxes(objective, formula, *leaves(self.proof))

    def _layer(self, stored: Stored, f: str | Formula | None) -> None:
        record = self.record
        _claim(record, stored)
        argument = argument_of(self.proof) if record.method in ARGUED else None
        if argument is not None and stored.config["attention"] != "softmax":
            raise Rejected(f"a proof by {record.method} is about softmax attention")
        with self._at_points():
            formula = formula_of(self.proof, f, stored, argument is None)
        values = values_of(self.proof, stored, argument, formula)
        if record.witness is not None:
            with self._at_points():
                found = sharpened(partial(executed_at, record.witness, record, stored, values), record)
            self.done = Progress(lower=self._lower(found))
        boxes = leaves(self.proof) if self.proof.tree is not None else None
        if not math.isfinite(record.upper):
            return
        # Passes at a few points first: a claim that is plainly false need not wait for its boxes.
        if record.arithmetic != REAL:
            points = trial_points(self.proof, stored, argument, formula, self.rng)
            with self._at_points():
                contradiction(record, stored, values, points)
        with watched(self.observer):
            self._upper(stored, formula, argument, boxes)

    def _at_points(self) -> AbstractContextManager[None]:
        """What is known at points is said however little time there is, unless the function takes hours for it."""
        return watched(Observer(max(self.observer.seconds_left, AT_POINTS)))

    def _upper(
        self, stored: Stored, formula: Formula | None, argument: Argument | None, boxes: tuple[Array, Array] | None
    ) -> None:
        """Re-prove the upper bound: by the argument that the proof states, or box by box."""
        record = self.record
        if argument is not None:
            self.observer.report("checking", detail=f"a proof by {record.method}")
            recheck(self.proof, argument, stored, formula, boxes, self.observer)
            self.done = replace(self.done, boxes=record.boxes, volume=1.0)
        elif boxes is None or formula is None:
            raise Rejected("the proof has no boxes")
        else:
            execution = Execution.of(record.arithmetic, stored, record.domain)
            self._boxes(Layer(stored, execution), formula, *boxes)

    def _lower(self, known: PointError) -> float:
        """What is confirmed of lower <= |T - f| at the witness.

        A refutation must be confirmed above eps. Otherwise the stated number must be one that a forward pass can have
        returned, on this machine or another: real arithmetic and the rounding of the execution leave room for it. Where
        these are not enclosed, the pass that was made must confirm it; of a network none is made, and the upper bound,
        which is proved later, must leave room.
        """
        record = self.record
        # Comparisons of balls are certain or false: this one refuses what is surely wrong, the next what is not surely
        # right.
        if known.confirmed > record.upper:
            raise Rejected(
                f"at the witness |T - f| >= {known.lower:.6g}, above the stated upper bound {record.upper:.6g}"
            )
        if not known.reached >= record.lower:
            reached = float(known.reached.upper())
            raise Rejected(
                f"at the witness |T - f| is at most {reached:.6g}, below the stated lower bound {record.lower:.6g}"
            )
        # Nothing rounds in real arithmetic: there is no other pass that could have returned what is stated.
        bounded = known.reached.is_finite() or math.isfinite(record.upper)
        sole = record.arithmetic == REAL or not bounded
        if sole and not known.confirmed >= record.lower:
            stated = f"the certificate states {record.lower:.6g}"
            raise Rejected(f"at the witness only |T - f| >= {known.lower:.6g} is confirmed, {stated}")
        self._refutation(known)
        if known.confirmed < record.lower:
            if known.made and not known.reached.is_finite():
                stated = f"the certificate states {record.lower:.6g}"
                raise NotConfirmed(f"at the witness only |T - f| >= {known.lower:.6g} is confirmed, {stated}")
            return known.lower
        return record.lower

    def _refutation(self, known: PointError) -> None:
        """A refutation is confirmed above eps, or refused."""
        record = self.record
        if record.status == "refuted" and record.eps is not None and not known.confirmed > record.eps:
            # Another forward pass, in another order of sums, may have returned what is stated.
            refusal = NotConfirmed if known.reached.is_finite() else Rejected
            raise refusal(
                f"the refutation does not follow: at the witness only |T - f| >= {known.lower:.6g} is confirmed, "
                f"not more than eps = {record.eps:.6g}"
            )

    def _boxes(self, layer: Evaluated, formula: Formula, low: Array, high: Array) -> None:
        """Re-prove the boxes chunk by chunk, those that hold the witness first."""
        reproof = Reproof(self.record, layer, formula, (low, high), self.observer)
        volumes = shares(low, high)
        chunks = reproof.chunks()
        held = np.zeros(0, dtype=np.int64)
        if self.record.witness is not None:
            point = np.array(self.record.witness)
            inside = ((low <= point) & (point <= high)).all(1)
            stops = [chunk.stop for chunk in chunks]
            held = np.unique(np.searchsorted(stops, np.flatnonzero(inside), side="right"))
        weights = np.array([volumes[chunk].sum() for chunk in chunks])
        order = random_order(weights, held, self.rng)
        for chunk in proved_chunks(reproof, [chunks[at] for at in order.tolist()], self.jobs):
            count = self.done.boxes + chunk.stop - chunk.start
            # A sum of rounded shares is 1 only by luck; all boxes are the whole domain.
            volume = 1.0
            if count < len(low):
                volume = min(1.0, self.done.volume + float(volumes[chunk].sum()))
            self.done = replace(self.done, boxes=count, volume=volume)
            self.observer.report("checking", volume, detail=f"{count:,} of {len(low):,} boxes")

    def summary(self) -> str:
        """What is proved so far, in words."""
        record = self.record
        if not math.isfinite(record.upper):
            return f"{record.status}, no upper bound is claimed{self._confirmed()}"
        proved = f"{record.claim} <= {record.upper!r} re-proved {self._share()}"
        return f"{record.status}, {proved}{self._confirmed()}{self._assumed()}"

    def _share(self) -> str:
        """Where the bound is re-proved so far."""
        boxes = self.record.boxes
        if self.done.volume < 1:
            volume = f"({self.done.boxes / max(1, boxes):.2%}), {self.done.volume:.2%} of the volume"
            return f"on {self.done.boxes:,} of {boxes:,} boxes {volume}" if boxes else "in no part"
        if not boxes:
            return f"by {self.record.method}"
        return "on the one box" if boxes == 1 else f"on all {boxes:,} boxes"

    def _assumed(self) -> str:
        """What the claim takes for granted of an f that has no formula."""
        if self.claimed.within == 0:
            return ""
        return (
            f" for the function stated; that f is within {self.claimed.within!r} of it, and so {self.claimed.claim} <= "
            f"{self.claimed.upper!r}, is assumed, not proved"
        )

    def _confirmed(self) -> str:
        """What is known of the lower bound; the stated one where it is larger by the rounding of another pass."""
        if self.record.lower == 0:
            return ""
        stated = "" if self.done.lower == self.record.lower else f" of the stated {self.record.lower!r}"
        what = "|T - f|" if self.record.claim == SUP else self.record.claim
        return f"; {what} >= {self.done.lower!r} confirmed at the witness{stated}"


def read_any(folder: Path) -> Stored | StoredNetwork:
    """The model of a folder, a network or a layer of ours."""
    return read_network(read_bounded(folder / MODEL, MAX_BYTES), str(folder / MODEL)) or read_model(folder)


def _claim(record: Record, stored: Stored) -> None:
    """The claim can be re-proved here, and is about these weights in their own format; its numbers agree by Record."""
    rules = [
        (record.method in METHODS, f"proofs by {record.method} cannot be re-proved by this version"),
        (record.claim == SUP, f"a claim about {record.claim} cannot be re-proved by this version"),
        (not record.about, "a claim about a layer is about sup|T - f| and nothing else"),
        (record.weights_sha256 == stored.sha256, "the weights are not those of the certificate"),
        (tuple(record.shape) == tuple(stored.config["input_shape"]), "domain and model differ in shape"),
        (
            record.arithmetic in (REAL, BY_TAG[stored.dtype].arithmetic),
            f"a claim about {record.arithmetic} for weights that are stored in {stored.dtype}",
        ),
    ]
    for holds, complaint in rules:
        if not holds:
            raise Rejected(complaint)


__all__ = ["CheckReport", "FileError", "check"]
