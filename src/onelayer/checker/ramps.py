"""A column of a piecewise embedding in the checker: a sum of ramps, one after another, as lines on an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import ZERO
from onelayer.checker.form import LayerForm
from onelayer.checker.univariate import Line
from onelayer.checker.weights import Stored

JOINED = 2.0**-10  # a ramp that misses the next one by this share of its height is taken to end there
FORM = LayerForm("its composition")


@dataclass(frozen=True)
class Ramp:
    """step * clip((x - start) slope, 0, 1), taken to reach its height at ``stop``; it misses that by ``short``."""

    start: float
    stop: float
    slope: arb
    step: arb
    short: arb


def ramp_lines(stored: Stored, column: int, coordinate: int, low: float, high: float) -> tuple[list[Line], arb]:
    """A column of the embedding on [low, high], piece by piece, and the sum of its sizes.

    Ramps follow one another: each ends where the next begins, or before. One that is cut off there, or goes on,
    differs from what is taken for it by ``short``, on its own piece or on later ones.
    """
    if low == high:
        # Of one number the piece that begins there, as far as that number.
        beside, total = ramp_lines(stored, column, coordinate, low, math.nextafter(low, math.inf))
        return [replace(beside[0], high=low)], total
    value = arb(float(stored.tensors["b_E"][column]))
    total = abs(value)
    blur = ZERO
    found: list[Line] = []
    place = low
    for ramp in _ramps(stored, column, coordinate):
        a = max(ramp.start, low)
        b = min(ramp.stop, high)
        flat = min(ramp.start, high)
        if place < flat:
            found.append(Line(place, flat, value, ZERO, blur))
        if a < b:
            rise = ramp.step * ramp.slope
            begun = value + rise * (arb(a) - arb(ramp.start))
            found.append(Line(a, b, begun, rise, blur + ramp.short))
            place = b
        value = value + ramp.step
        blur = blur + ramp.short
        total = total + abs(ramp.step)
    if place < high:
        found.append(Line(place, high, value, ZERO, blur))
    return found, total


def _ramps(stored: Stored, column: int, coordinate: int) -> Iterator[Ramp]:
    """The ramps of one coordinate that a column uses, from the left; it must use no others, and they rise apart."""
    t = stored.tensors
    count = int(stored.config["ramps"])
    weights = t["W_E"][:, column]
    own = np.arange(coordinate * count, (coordinate + 1) * count)
    FORM.require(not np.delete(weights, own).any(), "W_E")
    used = np.flatnonzero(weights[own])
    used = used[np.argsort(t["ramp_start"][coordinate, used], kind="stable")]
    starts = t["ramp_start"][coordinate, used].tolist()
    slopes = t["ramp_slope"][coordinate, used].tolist()
    steps = weights[own][used].tolist()
    nexts = [*starts, math.inf][1:]  # none where the column is constant
    for start, slope, step, following in zip(starts, slopes, steps, nexts, strict=True):
        FORM.require(slope > 0, "a ramp that falls")
        stop = start + 1 / slope
        height = arb(slope) * (arb(following) - arb(start)) if following < math.inf else ZERO
        # Two floats that mean one place: the next start, so that no sliver is left between.
        if abs(1 - height) < JOINED:
            stop = following
        FORM.require(start < stop <= following, "ramps that overlap")
        missing = abs(1 - arb(slope) * (arb(stop) - arb(start))).upper()
        yield Ramp(start, stop, arb(slope), arb(step), abs(arb(step)) * missing)
