"""How far a softmax average of numbers at a sharpness stays below their maximum."""

from __future__ import annotations

from flint import arb

from onelayer.checker.arithmetic import ZERO
from onelayer.checker.outcome import Rejected


def below_maximum(count: int) -> arb:
    """c for which an average of so many numbers at sharpness beta is at most c / beta below the largest.

    Lemma: that holds for every c with c e^c >= (count - 1) / e, so for Lambert's W of the right side, rounded up. Arb's
    own W is not believed: the inequality is what is asked for.
    """
    if count == 1:
        return ZERO
    wanted = arb(count - 1) / arb.const_e()
    c = wanted.lambertw().upper() * (1 + arb(2) ** -40)
    if not c * c.exp() >= wanted:
        raise Rejected(f"the sharpness of a softmax average of {count} numbers cannot be bounded")
    return c
