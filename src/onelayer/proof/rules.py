"""The invariants of a certificate: what every one that can be built obeys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onelayer.disk import MAX_AXES
from onelayer.formats import ARITHMETICS
from onelayer.proof.about import has_width, sound, words
from onelayer.proof.claim import METHODS, SHA256, STATUSES, decide

if TYPE_CHECKING:
    from onelayer.proof.certificate import Certificate

MAX_ASSUMPTIONS = 64  # lines; a certificate states a handful
MAX_CLAIM = 400  # characters
ARGUMENT, TABLE = "argument.json", "table.safetensors"
OTHER = "other.safetensors"  # the second model of a claim about two
ATTACHMENTS = (ARGUMENT, TABLE, OTHER)  # what a proof stands on beside its boxes
BELONG = {"lemma": (ARGUMENT,), "composition": (ARGUMENT,), "enumeration": (ARGUMENT, TABLE)}


def rules(claim: Certificate) -> list[tuple[bool, str]]:
    """Every rule with the complaint of breaking it; comparisons are written so that NaN breaks them."""
    low, high = claim.corners
    shown = claim.status in ("proved", "estimated")
    return [
        (claim.status in STATUSES, f"status must be one of {', '.join(STATUSES)}"),
        (claim.arithmetic in ARITHMETICS, f"arithmetic must be one of {', '.join(ARITHMETICS)}"),
        (claim.method in METHODS, f"method must be one of {', '.join(METHODS)}"),
        # Numbers, none of them NaN.
        (claim.eps is None or 0 <= claim.eps < math.inf, "eps must be a finite number >= 0"),
        (0 <= claim.lower < math.inf, "lower must be a finite number >= 0"),
        (claim.lower <= claim.upper, "lower must not exceed upper"),
        (not shown or claim.upper < math.inf, "proved needs a finite upper bound"),
        (
            claim.status == decide(claim.eps, claim.lower, claim.upper, method=claim.method, reached=shown),
            "the status does not follow from eps, lower and upper",
        ),
        # A lower bound is a point that anybody can try.
        (claim.status != "refuted" or claim.witness is not None, "refuted needs a witness"),
        (claim.lower == 0 or claim.witness is not None, "lower > 0 needs a witness"),
        (0 <= claim.boxes <= 2**28 and 0 <= claim.order <= 64, "boxes and order must be counts"),
        (0 <= claim.seconds < math.inf, "seconds must be a finite number >= 0"),
        # The domain, and what lies in it.
        (_shape(claim.shape), f"the shape must have at most {MAX_AXES} positive sides"),
        (len(low) == len(high) and _size(claim.shape) == len(low) >= 1, "the domain must match its shape"),
        (_ordered(low, high), "the domain must have finite bounds with lower <= upper"),
        (claim.witness is None or _inside(claim.witness, low, high), "the witness must lie in the domain"),
        (_box_inside(claim.resisted, low, high), "the resisting box must lie in the domain"),
        (claim.weights_sha256 == "" or bool(SHA256.fullmatch(claim.weights_sha256)), "weights_sha256 is no sha256"),
        (len(claim.assumptions) <= MAX_ASSUMPTIONS, "too many assumptions"),
        (_supposes(claim), "a distance of f by assumption needs an assumption, and a claim above it"),
        (0 < len(claim.claim) <= MAX_CLAIM, "the claim must be said in a few words"),
        *_of_boxes(claim),
        # What it is about, and the files that such a proof may have beside it.
        (sound(claim.about), "it is about nothing that is known"),
        (has_width(claim.about, low, high), "it is about rising or bending along an input that has one value"),
        (not claim.about or claim.claim == words(claim.about), "the claim is not what it is about"),
        (
            not set(claim.attachments) - _belonging(claim.method, claim.about),
            f"a proof by {claim.method} has no use for {', '.join(sorted(claim.attachments))}",
        ),
    ]


def _supposes(claim: Certificate) -> bool:
    """Whether nothing is supposed of f, or what is said of it."""
    if claim.within == 0:
        return True
    return 0 < claim.within <= claim.upper and bool(claim.assumptions) and not claim.about


def _belonging(method: str, about: Mapping[str, Any]) -> set[str]:
    """The files that a proof by this method about this may have beside its boxes."""
    second = {OTHER} if about.get("kind") == "difference" else set()
    return {*BELONG.get(method, ()), *second}


def _of_boxes(claim: Certificate) -> list[tuple[bool, str]]:
    """What holds of the boxes, where there are any."""
    proof = claim.proof
    if proof is None:
        return []
    corners = (tuple(proof.lower), tuple(proof.upper))
    return [
        (proof.leaves == claim.boxes, f"{claim.boxes} boxes stated, {proof.leaves} in the proof"),
        (corners == claim.corners, "the proof covers another box than the domain"),
    ]


def _shape(shape: tuple[int, ...]) -> bool:
    return len(shape) <= MAX_AXES and all(side >= 1 for side in shape)


def _size(shape: tuple[int, ...]) -> int:
    """Numbers in a point, 0 for what is no shape: the product of endless sides is never formed."""
    return math.prod(shape) if _shape(shape) else 0


def _ordered(low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    if len(low) != len(high):
        return False
    pairs = zip(low, high, strict=True)
    return all(-math.inf < a <= b < math.inf for a, b in pairs)


def _inside(point: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    if not len(point) == len(low) == len(high):
        return False
    triples = zip(low, point, high, strict=True)
    return all(a <= x <= b for a, x, b in triples)


def _box_inside(corners: Any, low: Any, high: Any) -> bool:
    """Whether a box, if there is one, is a box and lies in the domain."""
    if corners is None:
        return True
    return _ordered(*corners) and all(_inside(side, low, high) for side in corners)
