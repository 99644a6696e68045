"""Where the checker cuts a box: what is left undecided decides, and no coordinate is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from onelayer.checker.arithmetic import ZERO, Taylor
from onelayer.checker.attention import Vector
from onelayer.checker.boxes import OPEN, PROVED, Prover
from onelayer.checker.cuts import Found, turned
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.precision import precise
from onelayer.language.formula import parse

FOURFOLD = "min(max(max(-0.3 - x2 + 2*x3, 0.7 + 2*x1 - x2 - x3), 0.25 + 0.5*x1 + 2*x2 + 0.5*x3), 0.7 + 0.5*x2 + 0.5*x3)"
RIDGE = (
    "t = -0.4032373866920839*x1 - 1.4842630511033816*x2 - 1.3158857762966436*x3 - -1.5705187517472763;"
    " ((((0.07330730807489927*t - 0.047365927436587)*t - 0.07582209889814229)*t + 0.018910425057758272)*t"
    " - 0.3366809760845148)*t + 1.2307938539728922"
)


def test_of_several_kinks_the_one_that_is_left_is_cut() -> None:
    """Two of three arguments agree along a line, which is met however small a box across it is; the third decides."""
    ridge = parse(RIDGE, 3)

    def second(x: Sequence[Taylor], kinks: Kinks) -> Vector:
        return Vector(evaluate(ridge, x, kinks), [ZERO])

    with precise():
        prover = Prover(second, parse(FOURFOLD, 3), 0.08773970502803688, 4, 100)
        assert prover([-0.24, 0.29, 0.18], [0.06, 0.41500000000000004, 0.48]).outcome == PROVED


def test_a_coordinate_whose_cut_has_done_something_rests_no_more() -> None:
    """A first cut beside a kink may do nothing, and the next one much."""
    low, high = (0.0, 0.0), (1.0, 0.001)
    first = Found(OPEN, 0, bound=1.5)
    nothing = turned(Found(OPEN, 0, bound=1.5), first, low, high)
    assert 0 in nothing.idle
    something = turned(Found(OPEN, 0, bound=1.4, blind=True), Found(OPEN, 0, bound=1.5, idle=nothing.idle), low, high)
    assert 0 not in something.idle
    across = turned(Found(OPEN, 0, bound=1.39, blind=True), Found(OPEN, 1, bound=1.4, idle=something.idle), low, high)
    assert across.axis == 0
