"""A claim about a network made ready to be proved again: its rules, what it is about, and the facts at a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flint import arb

from onelayer.checker.arithmetic import constant
from onelayer.checker.claims import CURVED, MARGINS, SLOPES, Objective, outputs_of, wording
from onelayer.checker.formats import BY_TAG, REAL
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.network import StoredNetwork, read_network
from onelayer.checker.outcome import Rejected
from onelayer.checker.passes import NetworkPass
from onelayer.checker.points import PointError
from onelayer.checker.reader import OTHER, SavedProof
from onelayer.checker.record import SUP, Record
from onelayer.checker.steps import Evaluation
from onelayer.errors import FileError
from onelayer.language.formula import Formula, parse
from onelayer.names import without_unit


def prepared(proof: SavedProof, stored: StoredNetwork, formula: Formula) -> tuple[Objective, Formula]:
    """G and f of a claim |G - f| <= upper; Rejected where the claim does not say what its words say."""
    record = proof.record
    about = proof.record.about
    networks = [stored, *_second(proof)]
    for holds, complaint in [*_rules(record, networks), *_settings(record, networks)]:
        if not holds:
            raise Rejected(complaint)
    dim = math.prod(record.shape)
    execution = None if record.arithmetic == REAL else NetworkPass(record.arithmetic)
    names = [without_unit(name) for name in record.names] or [f"x{at + 1}" for at in range(dim)]
    objective = Objective(about, [Evaluation(one, execution) for one in networks], formula, names, execution)
    return objective, _compared(record, objective, formula, math.prod(stored.output_shape))


def _compared(record: Record, objective: Objective, formula: Formula, outputs: int) -> Formula:
    """What G is compared with: f itself, zero, or the number that makes margins mean what they say."""
    kind = record.about.get("kind", "error")
    dim = math.prod(record.shape)
    asked = objective.requirement
    count = outputs_of(record.about, outputs, dim) if asked is None else len(asked.margins.outputs)
    if kind in ("error", "slopes"):
        if formula.dim != dim or len(formula.outputs) != outputs:
            raise Rejected(f"the function has {len(formula.outputs)} outputs, the model {outputs}")
        if kind == "error":
            return formula
        return _constants(0.0, count, dim)
    level = _level(formula)
    _need_level(record, kind, level, asked is not None and asked.strict)
    return _constants(level, count, dim)


def _constants(level: float, count: int, dim: int) -> Formula:
    text = "; ".join([repr(level)] * count)
    return parse(text, dim, limit=len(text))


def _second(proof: SavedProof) -> list[StoredNetwork]:
    if OTHER not in proof.attachments:
        return []
    found = read_network(proof.attachments[OTHER], OTHER)
    if found is None:
        raise FileError(f"{OTHER} does not hold a network")
    return [found]


def _rules(record: Record, networks: Sequence[StoredNetwork]) -> list[tuple[bool, str]]:
    """The claim is about these networks in their own format, and its words are those of what it is about."""
    stored = networks[0]
    about = record.about
    kind = about.get("kind", "error")
    executed = [BY_TAG[one.dtype].arithmetic for one in networks]
    return [
        (record.method == "branch and bound", f"proofs by {record.method} about a network cannot be re-proved"),
        (record.claim == (wording(about) if about else SUP), "the words of the claim are not what it is about"),
        (record.weights_sha256 == stored.sha256, "the weights are not those of the certificate"),
        (all(tuple(record.shape) == one.input_shape for one in networks), "domain and model differ in shape"),
        (len({one.output_shape for one in networks}) == 1, "the two models differ in their outputs"),
        ((kind == "difference") == (len(networks) == 2), "a claim about two models needs both"),
        (
            record.arithmetic == REAL or set(executed) == {record.arithmetic},
            f"a claim about {record.arithmetic} for weights that are stored in {stored.dtype}",
        ),
        (kind not in SLOPES or record.arithmetic == REAL, "a claim about slopes is about real arithmetic"),
    ]


def _settings(record: Record, networks: Sequence[StoredNetwork]) -> list[tuple[bool, str]]:
    about: Mapping[str, Any] = record.about
    kind = about.get("kind")
    dim = math.prod(record.shape)
    outputs = math.prod(networks[0].output_shape)
    if kind == "range":
        right = len(about["low"]) == outputs and record.eps == 1.0
        return [(right, "the range does not have the outputs of the model")]
    if kind == "monotone":
        known = max(about["inputs"]) < dim
        return [(known, "the claim names an input that the model does not have"), *_wide(record, about["inputs"])]
    if kind == "convex":
        few = dim <= CURVED
        return [(few, f"convexity is re-proved for up to {CURVED} inputs"), *_wide(record, range(dim))]
    return []


def _wide(record: Record, inputs: Sequence[int]) -> list[tuple[bool, str]]:
    """Along an input that has one value nothing rises, falls or bends, whatever the slope."""
    low, high = record.domain
    sides = [(low[at], high[at]) for at in inputs if at < len(low)]
    return [(all(a < b for a, b in sides), "the claim is about rising or bending along an input that has one value")]


def _level(formula: Formula) -> float:
    """The one number that a constant function is."""
    nodes = [formula.nodes[at] for at in formula.outputs]
    levels = {float(node.value) for node in nodes if node.op == "num"}
    if len(levels) != 1 or any(node.op != "num" for node in nodes):
        raise Rejected("a claim of this kind compares with one number")
    return levels.pop()


def _need_level(record: Record, kind: str, level: float, strict: bool) -> None:
    """|M - g| <= M says g >= 0, < M says g > 0; other kinds compare with zero."""
    if kind not in MARGINS:
        if level != 0:
            raise Rejected("a claim of this kind compares with zero")
        return
    wanted = math.nextafter(level, 0.0) if strict else level
    if not (level > 0 and record.eps is not None and record.eps <= wanted):
        raise Rejected("the claim does not say that nothing is negative: eps must be the number compared with")


def known_at(record: Record, objective: Objective, formula: Formula) -> PointError:
    """|G - f| at the witness, for one of the executions and for each of them.

    A refutation of margins counts only where one of them fails: what is farther than M from M may be larger than 2 M,
    and an eps below M is missed by margins that are good.
    """
    x = [constant(arb(v), 1) for v in record.witness or ()]
    g = objective(x, Kinks())
    f = evaluate(formula, x, Kinks())
    confirmed = arb(0)
    reached = arb(0)
    fails = record.status != "refuted" or record.about.get("kind") not in MARGINS
    for item, error, level in zip(g.items, g.errors, f, strict=True):
        gap = abs(item.c[0] - level.c[0])
        if not (gap.is_finite() and error.is_finite()):
            return PointError(arb(0), arb.pos_inf())
        confirmed = confirmed.max(gap.abs_lower() - error)
        reached = reached.max(gap.abs_upper() + error)
        # A margin of zero may be good: what is strict beside it asks more of it than the condition does.
        fails = fails or bool(item.c[0] + error < 0)
    return PointError(confirmed.lower() if fails else arb(0), reached.upper())
