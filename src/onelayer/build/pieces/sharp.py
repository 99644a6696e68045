"""sharpen: kinks by sharp heads, in one layer of pieces, with a sharpness that follows from eps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from onelayer.box import Box
from onelayer.build.pieces.layer import pieces_layer
from onelayer.build.pieces.recognise import HINGES, take_pieces
from onelayer.build.refine import refined
from onelayer.build.sequences.composed import certified
from onelayer.build.sequences.ffn import fit_shared
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.build.sequences.rational import rounded
from onelayer.errors import OnelayerError
from onelayer.lemmas.pieces import Pieces, PieceSum
from onelayer.lemmas.sharp import pieces_error
from onelayer.lemmas.stated import states
from onelayer.lemmas.subsets import average_gap
from onelayer.observer import Observer
from onelayer.recording.target import Target
from onelayer.result import Approximation

# Of eps, for the heads, where units have work of their own: sharpness costs nothing.
CURVED_SHARE = 0.1
# Of eps, where heads are all there is; the rest is room for rounding.
ALONE_SHARE = 0.9
# Beyond, logits leave the range of the format.
MOST_SHARP = 2.0**500
ROOM = 0.98  # of eps for all together


@dataclass(frozen=True)
class Sharpener:
    """A target made of kinks, ready to be built for any eps."""

    target: Target
    box: Box
    pieces: Pieces
    dtype: torch.dtype

    @property
    def curved(self) -> bool:
        """Whether units approximate: not where they are the kinks of a second layer."""
        return any(curve.text not in HINGES for curve in self.pieces.curves)


def sharpener(target: Target, box: Box, dtype: torch.dtype, observer: Observer | None = None) -> Sharpener | None:
    """The target as maxima of affine functions and curves of their sums; None where that is not seen in time."""
    if target.formula is None or target.lipschitz is not None:
        return None
    formula = target.formula.shaped((box.dim,), target.formula.output_shape)
    try:
        pieces = take_pieces(formula, box, observer)
    except (OnelayerError, OverflowError, ZeroDivisionError):
        return None
    if states(pieces, formula, box, observer):
        return Sharpener(target, box, pieces, dtype)
    return None


def sharpen(found: Sharpener, eps: float, observer: Observer) -> Approximation:
    """The layer and its proof."""
    started = time.monotonic()
    observer.check()
    return refined(lambda goal: _attempt(found, goal, eps, started, observer), eps, observer)


# Numbers that are not finite are refused by name.
@np.errstate(all="ignore")
def _attempt(found: Sharpener, goal: float, eps: float, started: float, observer: Observer) -> Approximation:
    pieces = found.pieces
    share = CURVED_SHARE if found.curved else ALONE_SHARE
    fits = _fits(found, ROOM * goal * (1 - share))
    stated = _with_fits(pieces, fits)
    sharpness = _sharpness(stated, [fit.steepest for fit in fits], share * goal)
    inputs = tuple(found.box.shape)
    outputs = tuple(found.target.output_shape)
    model = pieces_layer(inputs, outputs, stated, sharpness, fits, found.box, found.dtype)
    upper = pieces_error(model, stated, found.box, observer)
    return certified(model, stated, found.target, found.box, eps, upper, None, started)


def _with_fits(pieces: Pieces, fits: Sequence[Piecewise]) -> Pieces:
    """The argument with the constants of its curves and, unit by unit, whose curve it belongs to."""
    curves = []
    units = []
    for k, (curve, fit) in enumerate(zip(pieces.curves, fits, strict=True)):
        curves.append(replace(curve, constant=float(fit.values[0])))
        units += [k] * fit.pieces
    return replace(pieces, curves=tuple(curves), units=tuple(units))


def _fits(found: Sharpener, tolerance: float) -> list[Piecewise]:
    """Piecewise linear functions of all curves; errors of one output add up to at most ``tolerance``."""
    pieces = found.pieces
    fits = _hinges(pieces)
    curved = [k for k in range(len(pieces.curves)) if k not in fits]
    for o in range(pieces.outputs):
        mine = [k for k in curved if pieces.curves[k].output == o]
        functions = []
        for k in mine:
            curve = pieces.curves[k]
            functions.append((curve.formula, *_ends(curve.argument, pieces, found.box)))
        if mine:
            fits |= dict(zip(mine, fit_shared(functions, tolerance), strict=True))
    return [fits[k] for k in range(len(pieces.curves))]


def _hinges(pieces: Pieces) -> dict[int, Piecewise]:
    """The curves that are a ReLU themselves, by their index."""
    steps = np.array([0.0, 1.0])
    fits = {}
    for k, curve in enumerate(pieces.curves):
        if curve.text in HINGES:
            fits[k] = Piecewise(steps, np.array([0.0, HINGES[curve.text]]))
    return fits


def _ends(one: PieceSum, pieces: Pieces, box: Box) -> tuple[float, float]:
    """Ends of the values of a sum over the box; the proof finds its own."""
    low, high = _range_of_line(one.line, box)
    for weight, head in zip(one.weights, pieces.heads, strict=True):
        lines = [_range_of_line(line, box) for line in head.lines]
        # The maximum of the lines lies between the maxima of their ends; a negative weight turns them round.
        ends = [rounded(Fraction(weight)) * max(end) for end in zip(*lines, strict=True)]
        low = low + min(ends)
        high = high + max(ends)
    # So that rounding here leaves no value outside.
    slack = 1e-12 * (abs(low) + abs(high))
    return low - slack, high + slack


def _range_of_line(line: Sequence[str], box: Box) -> tuple[float, float]:
    """Smallest and largest value of an affine function."""
    *slopes, offset = (rounded(Fraction(a)) for a in line)
    at_lower = np.array(slopes) * box.lower.flatten().numpy()
    at_upper = np.array(slopes) * box.upper.flatten().numpy()
    lowest = np.minimum(at_lower, at_upper).sum() + offset
    highest = np.maximum(at_lower, at_upper).sum() + offset
    return float(lowest), float(highest)


def _sharpness(pieces: Pieces, slopes: Sequence[float], tolerance: float) -> list[float]:
    """beta of every head: its error W((M-1)/e) / beta, as the worst output sees it, is an equal share.

    A power of two, so that beta l is l in other units and rounds as l does.
    """
    # What an output loses per unit of error of a head: directly, and through the steepest part of its curves.
    cost = np.zeros((pieces.outputs, len(pieces.heads)))
    for o, one in enumerate(pieces.direct):
        cost[o] += _sizes(one)
    for slope, curve in zip(slopes, pieces.curves, strict=True):
        cost[curve.output] += slope * _sizes(curve.argument)
    gaps = np.array([average_gap(len(head.lines)) for head in pieces.heads])
    wanted = cost.max(0) * gaps * len(gaps) / tolerance
    if not (wanted < MOST_SHARP).all():
        raise OnelayerError("eps is too small for sharp heads: the sharpness that it needs overflows")
    return [2.0 ** math.ceil(math.log2(beta)) if beta > 0 else 1.0 for beta in wanted.tolist()]


def _sizes(one: PieceSum) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How much every head counts in a sum."""
    return np.array([abs(rounded(Fraction(w))) for w in one.weights])
