"""Claims of other kinds than |T - f| in the words of an engineer's file: what holds, what fails, what is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from onelayer.proof.about import MARGINS
from onelayer.proof.certificate import Certificate, outward

MOST_OUTPUTS = 12  # ranges that one sentence lists
NORMS = {
    "inf": "the largest difference of any coordinate",
    "1": "the sum of the differences of all coordinates",
    "2": "Euclidean distance",
}


def _range(proof: Certificate) -> str:
    lows = proof.about["low"]
    highs = proof.about["high"]
    shown = []
    for at, (low, high) in enumerate(zip(lows, highs, strict=True), start=1):
        shown.append(f"output {at} lies between {low!r} and {high!r}")
    text = "; ".join(shown[:MOST_OUTPUTS])
    if len(shown) > MOST_OUTPUTS:
        text += f"; and so on for {len(shown)} outputs"
    return text


def _lipschitz(proof: Certificate) -> str:
    return (
        "a change of the inputs changes the outputs by at most {bound} times as much, both measured by "
        f"{NORMS[proof.about['norm']]}"
    )


def _monotone(proof: Certificate) -> str:
    names = proof.domain.variables or [f"x{at + 1}" for at in range(proof.domain.dim)]
    each = []
    for at, sign in zip(proof.about["inputs"], proof.about["signs"], strict=True):
        does = "fall" if sign > 0 else "rise"
        each.append(f"never {does} when {names[at]} rises")
    return f"the outputs of the model {', and '.join(each)}"


# What is said of the slopes themselves: where they exceed a bound, differences may still obey it, if the domain has one
# value of an input, or if there are several outputs and distances are Euclidean.
SLOPES = {
    "inf": "the absolute values of the slopes of each output add up to at most {bound}",
    "1": "the absolute values of the slopes by each input add up to at most {bound}",
    "2": "the root of the sum of the squares of all slopes is at most {bound}",
}


# What holds, with {bound} for the proved number.
_HOLDS: dict[str, Callable[[Certificate], str]] = {
    "range": _range,
    "difference": lambda proof: "the outputs of the two models differ by at most {bound}",
    "lipschitz": _lipschitz,
    "slopes": lambda proof: (
        "the rates of change of the model by each input differ from those of the reference function by at most {bound}"
    ),
    "monotone": _monotone,
    "convex": lambda proof: "every output of the model is a convex function of its inputs",
    "condition": lambda proof: f"this holds: {proof.about['text']}",
}


def claim(proof: Certificate) -> str:
    """What is established, in one sentence."""
    text = _HOLDS[proof.about["kind"]](proof)
    # Rounded up, but not beyond what is required: both are printed.
    high = outward(proof.upper, up=True, limit=proof.eps if proof.status == "proved" else None)
    low = outward(proof.lower, up=False)
    if proof.status == "proved":
        holds = text.replace("{bound}", high)
        limited = proof.about["kind"] not in (*MARGINS, "range")  # by a number that the reader knows
        required = f" (required: {proof.eps!r})" if limited and proof.eps is not None else ""
        return f"For every point of the domain stated below, {holds}{required}."
    asked = text.replace("{bound}", repr(proof.eps))
    if proof.status == "refuted" and proof.about["kind"] == "lipschitz":
        asked = SLOPES[proof.about["norm"]].replace("{bound}", repr(proof.eps))
    if proof.status == "refuted":
        return f"This is NOT so: {asked}. It fails at the point stated below."
    known = f"a bound of {high} is proved, {low} is reached"
    if math.isinf(proof.upper):
        known = "no bound was established"
    elif proof.about["kind"] in MARGINS:
        ((what, margin),) = facts(proof).items()
        known = f"{what} {margin!r}"
    return f"It was NOT decided whether {asked}; {known}."


def facts(proof: Certificate) -> Mapping[str, Any]:
    """The numbers behind a claim; of one about margins, how far it is from failing at least."""
    if proof.about["kind"] not in MARGINS or proof.eps is None:
        return {"at least": proof.lower, "at most": proof.upper}
    # Rounded down: what is promised. The largest it may be depends on more than a certificate says.
    return {"least margin, at least": math.nextafter(proof.eps - proof.upper, -math.inf)}
