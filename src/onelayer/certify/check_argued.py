"""The checker's dispatch for proofs by lemma, composition and enumeration: an upper bound from the files alone."""

from __future__ import annotations

import numpy as np
from flint import arb

from onelayer.certify.argument import OrderStatistics, Recall, from_text
from onelayer.certify.check_arithmetic import constant
from onelayer.certify.check_functions import Kinks
from onelayer.certify.check_layer import Layer
from onelayer.certify.check_order import order_statistics_bound, order_statistics_values, thresholds_values
from onelayer.certify.check_recall import read_rows, recall_bound
from onelayer.certify.check_rounding import Execution
from onelayer.certify.check_weights import Stored
from onelayer.certify.files import ARGUMENT, Record, SavedProof
from onelayer.errors import OnelayerError

METHODS = ("lemma", "composition", "enumeration")


def recheck(proof: SavedProof, stored: Stored) -> str:
    """Prove the claim again; returns what was done in words, raises OnelayerError when it does not hold."""
    record = proof.record
    if ARGUMENT not in proof.attachments:
        raise OnelayerError(f"a proof by {record.method} needs {ARGUMENT}, which is not there")
    execution = Execution.of(record.arithmetic, stored.dtype)
    if execution is None:
        raise OnelayerError(f"proofs by {record.method} speak of an execution, not of real arithmetic")
    argument = from_text(proof.attachments[ARGUMENT])
    if isinstance(argument, OrderStatistics):
        _order_statistics(record, argument, stored, execution)
    else:
        _recall(proof, argument, stored, execution)
    return f"{record.status}, sup|T - f| <= {record.upper!r} re-proved by {record.method}"


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
    """Every row; the lower bound is checked to be an error that the bound of its row allows."""
    x, y = read_rows(proof, argument, stored)
    _upper(proof.record, recall_bound(stored, argument, x, y, execution))
    witness = proof.record.witness
    if witness is not None and not (x == np.array(witness)).all(1).any():
        raise OnelayerError("the witness is no row of the table")


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
