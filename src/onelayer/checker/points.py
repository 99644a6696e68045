"""|T - f| at single points: what confirms a lower bound, and what contradicts an upper one.

At a point f is a ball. T is a ball too in real arithmetic; of an execution there are two facts, the numbers that one
forward pass returns (executed.py) and a ball with a bound of the rounding of any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import constant
from onelayer.checker.executed import Executed
from onelayer.checker.formats import REAL
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.order import order_statistics_values
from onelayer.checker.outcome import Rejected
from onelayer.checker.precision import BITS
from onelayer.checker.reader import SavedProof
from onelayer.checker.recall import read_rows
from onelayer.checker.record import Record
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Array, Stored
from onelayer.ground import ball_precision
from onelayer.language.formula import Formula
from onelayer.lemmas.argument import Argument, OrderStatistics, Recall

POINTS = 64  # random ones, at which a false claim is likely to show at once
CORNERS = 16  # of the 2^D, where errors are often largest
NODES = 2**16  # operations of f over all points
BALLS = 2**18  # multiplications of a forward pass in balls that take no more than seconds
SHARPER = (8 * BITS, 32 * BITS)  # of balls at a point: a variance of numbers near 1e150 takes a thousand bits

Values = Callable[[Sequence[float]], list[arb]]


@dataclass(frozen=True)
class PointError:
    """``confirmed`` <= |T - f| at a point for one of the executions, and |T - f| <= ``reached`` for each of them.

    Where a pass was ``made``, what holds for every pass is no more than what is confirmed, which counts that one.
    """

    confirmed: arb
    reached: arb
    made: bool = False

    @property
    def lower(self) -> float:
        """``confirmed`` as a float that is not above it."""
        if self.confirmed > 0:
            return max(0.0, math.nextafter(float(self.confirmed.lower()), -math.inf))
        return 0.0


def _statistics(proof: SavedProof, stored: Stored, argument: OrderStatistics) -> Values:
    outputs = argument.length if argument.weights is None else 1
    sizes = math.prod(proof.record.shape), math.prod(stored.config["output_shape"])
    if sizes != (argument.length, outputs):
        raise Rejected(f"order statistics of {argument.length} numbers for a model of {sizes[0]} and {sizes[1]}")
    return lambda point: order_statistics_values(argument, point)


def _rows(proof: SavedProof, stored: Stored, argument: Recall) -> Values:
    x, y = read_rows(proof, argument, stored)
    rows = {tuple(row): at for at, row in enumerate(x.tolist())}

    def values(point: Sequence[float]) -> list[arb]:
        at = rows.get(tuple(point))
        return [] if at is None else [arb(v) for v in y[at].tolist()]

    return values


def values_of(proof: SavedProof, stored: Stored, argument: Argument | None, formula: Formula | None) -> Values:
    """f as balls: a formula, an order statistic, or the rows of a table."""
    if isinstance(argument, OrderStatistics):
        return _statistics(proof, stored, argument)
    if isinstance(argument, Recall):
        return _rows(proof, stored, argument)
    if formula is None:
        raise Rejected("there is no function to compare with")
    given = formula

    def values(point: Sequence[float]) -> list[arb]:
        x = [constant(arb(v), 1) for v in point]
        return [item.c[0] for item in evaluate(given, x, Kinks())]

    return values


def _enclosed(point: Sequence[float], record: Record, stored: Stored, f: Sequence[arb]) -> tuple[arb, arb]:
    """What |T - f| is at least and at most at one point, by enclosures of T in the arithmetic of the claim."""
    execution = Execution.of(record.arithmetic, stored, (tuple(point), tuple(point)))
    x = [constant(arb(v), 1) for v in point]
    t = Layer(stored, execution)(x, Kinks())
    gaps = [abs(a.c[0] - b) for a, b in zip(t.items, f, strict=True)]
    confirmed = _largest([gap.abs_lower() - r for gap, r in zip(gaps, t.errors, strict=True)])
    reached = arb(0)
    for gap, r in zip(gaps, t.errors, strict=True):
        # What is not known allows everything: it must not refuse a true lower bound.
        most = (gap.abs_upper() + r).upper() if (gap + r).is_finite() else arb.pos_inf()
        reached = reached.max(most)
    return confirmed, reached


def sharpened(facts: Callable[[], PointError], record: Record) -> PointError:
    """Facts at a point; in real arithmetic by balls of more and more bits, until they confirm the stated lower bound.

    A point has no width: where numbers cancel, balls are wide for want of bits alone. An execution strays by its
    rounding, of which more bits make no less.
    """
    found = facts()
    for bits in SHARPER if record.arithmetic == REAL else ():
        if found.confirmed >= record.lower:
            break
        with ball_precision(bits):
            found = facts()
    return found


def known_at(point: Sequence[float], record: Record, stored: Stored, values: Values) -> PointError:
    """The facts at one point; nothing is confirmed where T or f is not a finite number."""
    f = values(point)
    if not f:
        raise Rejected("the witness is no row of the table")
    confirmed = arb(0)
    reached = arb.pos_inf()
    made = False
    if record.arithmetic == REAL or _affordable(stored):
        confirmed, reached = _enclosed(point, record, stored, f)
    if record.arithmetic != REAL:
        returned = Executed(stored)(np.array([point]))[0].tolist()
        # A pass that returns no number has no error: it confirms nothing.
        made = all(math.isfinite(v) for v in returned)
        if made:
            executed = [abs(arb(v) - b).abs_lower() for v, b in zip(returned, f, strict=True)]
            confirmed = _largest([confirmed, *executed])
    return PointError(confirmed, reached, made)


def _affordable(stored: Stored) -> bool:
    """Whether a forward pass in balls takes no more than seconds."""
    return sum(tensor.size for tensor in stored.tensors.values()) * stored.length <= BALLS


def _largest(numbers: Sequence[arb]) -> arb:
    best = arb(0)
    for number in numbers:
        if number > best:  # false for what is not a number
            best = number
    return best


def contradiction(record: Record, stored: Stored, values: Values, points: Array) -> None:
    """Rejected if a forward pass at one of the points returns no finite number, or one too far from f."""
    # A box between two numbers of the format holds no forward pass.
    if not len(points):
        return
    outputs = Executed(stored)(points)
    for point, row in zip(points.tolist(), outputs.tolist(), strict=True):
        place = ", ".join(f"{v:.6g}" for v in point[:8])
        if not all(math.isfinite(v) for v in row):
            raise Rejected(f"at ({place}) a forward pass returns {row[:3]}, which no finite bound allows")
        for v, f in zip(row, values(point), strict=True):
            least = abs(arb(v) - f).abs_lower()
            if least > record.upper:
                error = float(least)
                raise Rejected(
                    f"at ({place}) |T - f| >= {error:.6g} as executed, above the stated upper bound {record.upper:.6g}"
                )


def trial_points(
    proof: SavedProof, stored: Stored, argument: Argument | None, formula: Formula | None, rng: np.random.Generator
) -> Array:
    """Random points of the domain and some of its corners, as numbers of the executed format; rows of a table."""
    record = proof.record
    kind = Executed(stored)
    low, high = (np.array(side) for side in record.domain)
    if isinstance(argument, Recall):
        rows, _ = read_rows(proof, argument, stored)
        return rows[rng.permutation(len(rows))[:POINTS]]
    count = POINTS if formula is None else max(2, min(POINTS, NODES // len(formula.nodes)))
    shares = rng.random((count, len(low)))
    inside = low * (1 - shares) + high * shares
    upper_sides = rng.random((min(CORNERS, count), len(low))) >= 0.5
    corners = np.where(upper_sides, high, low)
    with np.errstate(over="ignore"):
        points = kind.representable(np.concatenate([inside, corners]))
    return points[((low <= points) & (points <= high)).all(1)]
