"""Ramps in the place of jumps: a layer is continuous, and a centred ramp is as near as such a function comes."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape
from onelayer.observer import Observer
from onelayer.recording.jumps import Jump, jumps

# Share of the range of u: wide ramps are easy to follow, and no ramp is nearer than another.
WIDTH = 0.125
STEP = 0.25  # of the way between two steps of floor()
MOST_STEPS = 32  # of floor() that are written out


def ramped(formula: Formula, box: Box, least: float, observer: Observer | None = None) -> tuple[Formula, Jump] | None:
    """f with ramps where it jumps by more than ``least``, and its largest jump; None where no such jump is seen.

    Lemma: b + (a - b) r with r = clip(u / d + 1/2, 0, 1), in the place of where(u > 0, a, b), is within |a - b| / 2 of
    it at every point: r >= 1/2 where u > 0, and r <= 1/2 elsewhere. Nothing is proved of it but by whoever compares a
    layer with f: it says what to build.
    """
    found = {at: jump for at, jump in jumps(formula, box, observer).items() if jump.size > least}
    if not found:
        return None
    points = torch.cat([box.corners(64), box.sample(256)]).reshape(-1, box.dim)
    largest = max(found.values(), key=lambda jump: jump.size)
    return _rewritten(formula, found, points), largest


def _rewritten(formula: Formula, borders: Collection[int], points: Tensor) -> Formula:
    tape = Tape()
    places: list[int] = []
    for at, node in enumerate(formula.nodes):
        args = [places[arg] for arg in node.args]
        # A choice whose sides meet stays as it is.
        if at not in borders:
            places.append(tape.add(node.op, *args, value=node.value))
            continue
        u = node.args[0]
        values = evaluate(formula.nodes[: u + 1], [u], points)[0]
        low = float(values.min())
        high = float(values.max())
        if node.op == "floor":
            places.append(_stairs(tape, args[0], low, high))
        else:
            places.append(_blend(tape, args, high - low))
    outputs = [places[at] for at in formula.outputs]
    return Formula.build(tape.nodes, outputs, formula.input_shape, formula.output_shape)


def _ramp(tape: Tape, u: int, width: float) -> int:
    """clip(u / width + 1/2, 0, 1)."""
    scaled = tape.add("div", u, tape.number(width))
    risen = tape.add("add", scaled, tape.number(0.5))
    positive = tape.add("max", risen, tape.number(0))
    return tape.add("min", positive, tape.number(1))


def _blend(tape: Tape, args: list[int], wide: float) -> int:
    u, a, b = args
    difference = tape.add("sub", a, b)
    # A condition that is one number everywhere it was looked at has no range to share.
    ramp = _ramp(tape, u, WIDTH * wide or 1.0)
    return tape.add("add", b, tape.add("mul", difference, ramp))


def _stairs(tape: Tape, v: int, low: float, high: float) -> int:
    """floor(v) as a sum of ramps; itself where it has many steps."""
    first = math.floor(low)
    last = math.floor(high)
    if last - first > MOST_STEPS:
        return tape.add("floor", v)
    total = tape.number(first)
    for step in range(first + 1, last + 1):
        beyond = tape.add("sub", v, tape.number(step))
        total = tape.add("add", total, _ramp(tape, beyond, STEP))
    return total
