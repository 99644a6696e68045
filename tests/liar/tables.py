"""Tables against their interpolants, evaluated here in fractions: splines by the recurrence, triangles exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
from flint import arb, fmpq

import onelayer as ol
from liar import formulas
from liar.expressions import Undefined, text, torch_code, var
from liar.judge import Balls, Tally, Truth, judge, try_points

SIZES = [1.0, 1.0, 1.0, 1e-3, 1e6, 1e-150, 1e150, 1e-310]
HELD = 12  # rows of a table that its interpolant is held against
SOLVED = 1e-6  # of the largest value: what the float64 coefficients of a cubic spline may miss a row by

Rows = list[tuple[list[float], float]]  # points, and the values there


def ball_of(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def basis(knots: Sequence[Fraction], degree: int, at: int, x: Fraction, last: bool) -> Fraction:
    """The B-spline number ``at`` of a degree, by the recurrence of Cox and de Boor from its definition."""
    if degree == 0:
        inside = knots[at] <= x < knots[at + 1] or (last and knots[at] <= x <= knots[at + 1])
        return Fraction(int(inside))
    total = Fraction(0)
    if knots[at + degree] > knots[at]:
        total += (x - knots[at]) / (knots[at + degree] - knots[at]) * basis(knots, degree - 1, at, x, False)
    if knots[at + degree + 1] > knots[at + 1]:
        share = (knots[at + degree + 1] - x) / (knots[at + degree + 1] - knots[at + 1])
        total += share * basis(knots, degree - 1, at + 1, x, False)
    return total


def spline_truth(data: Any) -> Balls:
    """The sum of coefficients times products of B-splines, exactly."""
    knots = [[Fraction(value) for value in axis] for axis in data.knots]

    def values(point: Sequence[float]) -> list[arb]:
        weights = []
        for axis, degree, count, x in zip(knots, data.degrees, data.coefficients.shape, point, strict=True):
            here = min(Fraction(x), axis[count])
            # Continuous, so the last knot is reached from the left: a point on it belongs to the cell before.
            weights.append([_weight(axis, degree, at, here, count) for at in range(count)])
        total = Fraction(0)
        for at in product(*(range(len(w)) for w in weights)):
            share = Fraction(1)
            for axis, place in enumerate(at):
                share *= weights[axis][place]
            total += share * Fraction(float(data.coefficients[at]))
        return [ball_of(total)]

    return values


def _weight(knots: list[Fraction], degree: int, at: int, x: Fraction, count: int) -> Fraction:
    if x == knots[count]:  # from the left, by mirroring the axis
        mirrored = [-value for value in reversed(knots)]
        return basis(mirrored, degree, len(knots) - degree - 2 - at, -x, False)
    return basis(knots, degree, at, x, False)


def facets_truth(data: Any) -> Balls:
    """The affine function of the simplex whose least barycentric coordinate is the largest, exactly."""
    corners = [[[Fraction(v) for v in data.points[at].tolist()] for at in simplex] for simplex in data.simplices]
    levels = [[Fraction(float(data.values[at])) for at in simplex] for simplex in data.simplices]

    def values(point: Sequence[float]) -> list[arb]:
        x = [Fraction(v) for v in point]
        found = [barycentric(simplex, x) for simplex in corners]
        best = max(min(weights) for weights in found)
        counting = {
            sum((w * v for w, v in zip(weights, level, strict=True)), Fraction(0))
            for weights, level in zip(found, levels, strict=True)
            if min(weights) == best
        }
        if len(counting) > 1:
            raise Undefined("two simplices count")
        return [ball_of(counting.pop())]

    return values


def barycentric(simplex: list[list[Fraction]], x: list[Fraction]) -> list[Fraction]:
    """Weights of sum one with which the corners make x, by elimination."""
    size = len(simplex)
    rows = [[corner[i] for corner in simplex] + [x[i]] for i in range(size - 1)]
    rows.append([Fraction(1)] * (size + 1))
    for at in range(size):
        pivot = next(r for r in range(at, size) if rows[r][at])
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [v / rows[at][at] for v in rows[at]]
        for r in range(size):
            if r != at and rows[r][at]:
                factor = rows[r][at]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[at], strict=True)]
    return [row[-1] for row in rows]


def random_table(rng: Random, case: Any) -> tuple[Any, Balls, Rows]:
    """A grid, linear or cubic, or rows in no order; its interpolant, and the rows that were drawn."""
    dim = rng.choice([1, 1, 2])
    seed, width, size = rng.randrange(2**31), rng.choice(SIZES), rng.choice(SIZES)
    draw = np.random.default_rng(seed)
    kind = rng.choice(["linear", "cubic", "scattered"])
    case.words |= {"table": kind, "table dim": dim, "table seed": seed, "width": width, "size": size}
    names = [f"x{at + 1}" for at in range(dim)]
    if kind == "scattered":
        points = draw.uniform(-1, 1, (draw.integers(dim + 5, 12), dim)) * width
        columns = {name: points[:, at] for at, name in enumerate(names)} | {"y": draw.normal(size=len(points)) * size}
    else:
        axes = [np.sort(draw.uniform(-1, 1, draw.integers(3, 6))) * width for _ in names]
        grid = np.meshgrid(*axes, indexing="ij")
        columns = {name: side.ravel() for name, side in zip(names, grid, strict=True)}
        columns["y"] = draw.normal(size=grid[0].size) * size
    table = ol.Table.read(columns, inputs=names, output="y", interpolate="cubic" if kind == "cubic" else "linear")
    data = table.formula.nodes[table.formula.outputs[0]].value
    truth = facets_truth(data) if hasattr(data, "simplices") else spline_truth(data)
    places = np.stack([columns[name] for name in names], -1).tolist()
    return table, truth, list(zip(places, columns["y"].tolist(), strict=True))


def missed_row(rows: Rows, truth: Balls, cubic: bool, rng: Random) -> str:
    """A row that the interpolant does not pass through, in words; linear ones meet every row exactly."""
    room = arb(SOLVED * max(abs(value) for _, value in rows)) if cubic else arb(0)
    for point, value in rng.sample(rows, min(HELD, len(rows))):
        (found,) = truth(point)
        if not abs(found - arb(value)) <= room:
            return f"the interpolant is {found.str(8)} in the row {point}, {value!r}"
    return ""


def one_table(rng: Random, case: Any) -> Tally:
    """A table as f, against nothing, a smooth function, or a layer built for it, then re-proved by the checker."""
    from liar.attacks import certified
    from liar.trips import round_trip

    table, truth, rows = random_table(rng, case)
    if missed := missed_row(rows, truth, case.words["table"] == "cubic", rng):
        return Tally(lies=[missed])
    low, high = (side.flatten().tolist() for side in (table.box.lower, table.box.upper))
    box = ol.Box(low, high)
    if rng.random() < 0.15:
        eps = rng.choice([0.05, 0.2]) * float(np.ptp(table.values)) or 1.0
        built = ol.approximate(table, box, eps, max_seconds=15.0, dtype=rng.choice([torch.float64, torch.float32]))
        model, certificate, dtype = built.model, built.certificate, built.model.dtype
    else:
        expression = formulas.smooth(rng, len(low)) if rng.random() < 0.5 else 0.0 * var(0)
        case.words["T"] = text(expression)
        built, model, dtype = None, torch_code(expression), torch.float64
        certificate = certified(model, table, box, rng, case, execution="float64")
    judged = Truth(truth, model, dtype)
    knots = {at: [v for v in axis if low[at] <= v <= high[at]] for at, axis in enumerate(_knots(table))}
    points = try_points(certificate, judged, rng, [], knots)
    chosen = points[torch.tensor(rng.sample(range(len(points)), min(60, len(points))), dtype=torch.int64)]
    tally = judge(certificate, judged, chosen, rng)
    if built is not None and certificate.status == "proved":
        tally += round_trip(built)
    return tally


def _knots(table: Any) -> list[list[float]]:
    """Coordinates of rows: where pieces meet."""
    sides = table.axes if hasattr(table, "axes") else list(table.points.T)
    return [np.asarray(side).tolist()[:6] for side in sides]
