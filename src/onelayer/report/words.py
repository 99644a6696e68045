"""The claim of a certificate in the words of an engineer's file: no symbol that the page does not explain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onelayer.formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, REAL
from onelayer.proof.certificate import Certificate, outward
from onelayer.proof.claim import ESTIMATED
from onelayer.report import claimed

FORMATS = {
    FLOAT64.execution: "64-bit (double precision)",
    FLOAT32.execution: "32-bit (single precision)",
    FLOAT16.execution: "16-bit (half precision, computed in single precision)",
    BFLOAT16.execution: "16-bit (bfloat16, computed in single precision)",
}
DIFFERENCE = "the difference between model and reference"
METHODS = {
    "branch and bound": "{domain} "
    + DIFFERENCE
    + " was enclosed by Taylor models of order {order} with rigorous bounds of all "
    "truncation and rounding errors. No sampling is involved.",
    "conditional on Lipschitz constant": "{domain} model and reference were"
    " compared at the centre, and the rest was bounded by the declared rate of change of the reference "
    "(see assumptions).",
    "conditional on Lipschitz constant of the gradient": "{domain} "
    "the model was compared with the tangent of the reference at the centre, and the rest was bounded by the declared "
    "rate of change of its gradient (see assumptions).",
    "estimated Lipschitz constant": "{domain} model and reference "
    "were compared at the centre; the rest follows from a rate of change that was estimated from samples. This is not "
    "a proof.",
}


def claim(certificate: Certificate) -> str:
    """What is established, in one sentence, with what it rests on where that is more than the weights."""
    if certificate.about:
        return claimed.claim(certificate)
    rests = resting(certificate)
    high = outward(certificate.upper, up=True)
    if certificate.status in ("proved", "estimated"):
        high = outward(certificate.upper, up=True, limit=certificate.eps)
        return (
            f"{'NOT proved: ' if certificate.status == 'estimated' else ''}For {_every(certificate)}, "
            f"the value returned by the model differs from the reference function by at most {high}"
            f"{_required(certificate)}{rests}."
        )
    if certificate.status == "refuted":
        low = outward(certificate.lower, up=False, limit=certificate.eps)
        return (
            f"The required accuracy of {certificate.eps!r} is NOT met: at the point stated below the model differs "
            f"from the reference function by at least {low}{rests}."
        )
    known = "no upper bound was established" if math.isinf(certificate.upper) else f"it is at most {high}"
    low = outward(certificate.lower, up=False)
    return (
        f"It was NOT decided whether the model meets{_required(certificate, 'the required accuracy')}: the largest "
        f"difference from the reference function{_among(certificate)} is at least {low}, and {known}{rests}."
    )


def _every(certificate: Certificate) -> str:
    """The points that a claim is about: a table has values at its rows alone, whatever lies between them."""
    if certificate.where:
        return "every row of the table stated below"
    return "every point of the domain stated below"


def _among(certificate: Certificate) -> str:
    return f" {certificate.where}" if certificate.where else ""


def extent(certificate: Certificate) -> str:
    """What a reader may conclude of the domain."""
    if certificate.where:
        return (
            "The claim is about the rows of the table alone, which lie in this domain. Of all other points of the "
            "domain it says nothing."
        )
    return "The claim is about every point of this domain, ends included, and about none outside it."


def pictured(certificate: Certificate) -> tuple[str, str]:
    """What a picture of the result shows, and the same for those who do not see it."""
    if certificate.where:
        return "Recalled beside stored values, and their differences, row by row.", "Recalled and stored values by row"
    about = (
        "Reference f, model T and their difference. The picture shows sampled values; the bound holds between them too."
    )
    return about, "Reference, model and difference over the domain"


def resting(certificate: Certificate) -> str:
    """What stands behind a bound that rests on more than the weights: nobody may sign it for a proof."""
    if not certificate.condition:
        return ""
    if certificate.method == ESTIMATED:
        return ", by an estimate from samples, which is no proof (see assumptions)"
    return ", provided that what is declared of the reference function holds (see assumptions)"


def _required(certificate: Certificate, what: str = "") -> str:
    if certificate.eps is None:
        return f" {what}" if what else ""
    if what:
        return f" {what} of {certificate.eps!r}"
    return f" (required: {certificate.eps!r})"


def scope(certificate: Certificate) -> str:
    """Which computation the claim is about."""
    if certificate.arithmetic == REAL:
        return (
            "The claim is about exact arithmetic with the stored weights. The rounding of a computer is NOT included."
        )
    kind = FORMATS.get(certificate.arithmetic, certificate.arithmetic)
    return f"The claim is about the values that a computer returns in {kind} arithmetic; rounding is included."


def method(certificate: Certificate) -> str:
    """How it was established."""
    known = METHODS.get(certificate.method)
    if known is None:
        return f"The bound follows from an argument ({certificate.method}) whose conditions these weights satisfy."
    text = known.format(domain=_divided(certificate.boxes), order=certificate.order)
    if certificate.within:
        return f"{text} {_stands_in(certificate)}" if certificate.method != ESTIMATED else _stands_in(certificate)
    if certificate.about:
        return text.replace(DIFFERENCE, "what the statement is about")
    return text


def _stands_in(certificate: Certificate) -> str:
    """That the printed function stands for a reference without a formula, and on what ground."""
    ground = "as was estimated from samples, which is not a proof" if certificate.method == ESTIMATED else "as declared"
    distance = outward(certificate.within, up=True)
    return (
        "The model was compared with the function printed above. The reference itself has no formula and is taken to "
        f"be within {distance} of that function, {ground} (see assumptions); the bounds are wider by as much."
    )


def _divided(boxes: int) -> str:
    if boxes == 1:
        return "The domain was taken as one box. On it"
    return f"The domain was divided into {boxes:,} boxes that cover it without gaps. On each of them"


def verdict(word: str) -> str:
    """What the verdict of the independent check means."""
    return {
        "accepted": "Everything stated was proved again, independently.",
        "not contradicted": "The time ended before everything was proved again; nothing was contradicted.",
        "rejected": "The statement could not be proved again. Do not rely on it.",
    }.get(word, "")


def listed(values: Sequence[float], names: Sequence[str], most: int = 12) -> str:
    """A point as "rpm = 3200, load = 0.4"."""
    # As repr: at a point of other digits the difference may be another one.
    shown = [f"{name} = {value!r}" for name, value in zip(names, values, strict=True)][:most]
    return ", ".join(shown) + (f", ... ({len(values)} in all)" if len(values) > most else "")
