"""The embedding of a layer seen as functions of one number: how far they are from the atoms of a composition."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.language.formula import parse
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition
from onelayer.lemmas.forward import SLACK, UP, Rounding, rounding_of
from onelayer.lemmas.univariate import Ramps, piecewise_error, range_of
from onelayer.observer import Observer

Floats = NDArray[np.float64]
# Share of a ramp within which its end and the start of the next are one knot: above the rounding of both, and so far
# below a ramp that joining them moves no bound that is stated.
JOINED = 1e-9


@dataclass(frozen=True)
class Atoms:
    """Embedded atoms phi^_c against the atoms phi_c, for n tokens and C atoms.

    ``linear`` layers embed the numbers themselves: phi^ = phi = x. Otherwise column c of the embedding is phi^_c.
    """

    linear: bool
    low: Floats  # (n, C), range of phi^_c
    high: Floats
    true_low: Floats  # (n, C), range of phi_c
    true_high: Floats
    error: Floats  # (C,), sup |phi^_c - phi_c|
    rounding: Floats  # (C,), of an executed phi^_c


def embedded_atoms(
    model: OneLayerTransformer, composition: Composition, box: Box, observer: Observer | None = None
) -> Atoms:
    """What the tokens of the box become; OnelayerError if the embedding is not one function of one number each."""
    n = composition.length
    d = composition.width
    low = box.lower.reshape(n, d).numpy()
    high = box.upper.reshape(n, d).numpy()
    columns = [atom.coordinate for atom in composition.atoms]
    if model.config.embedding == "linear":
        identity = parse("x", 1)
        plain = all(atom.formula == identity for atom in composition.atoms)
        if columns != list(range(d)) or not plain:
            raise OnelayerError("a linear embedding has the coordinates themselves as atoms")
        zero = np.zeros(d)
        return Atoms(True, low, high, low, high, zero, zero)
    made = [_atom(model, composition, c, low, high, observer) for c in range(len(columns))]
    stacked = []
    for name in _AtomColumn.__dataclass_fields__:
        by_atom = [getattr(item, name) for item in made]
        stacked.append(np.stack(by_atom, axis=-1))
    return Atoms(False, *stacked)


@dataclass(frozen=True)
class _AtomColumn:
    """One column of Atoms, by the names of its fields and in their order."""

    low: Floats  # (n,)
    high: Floats
    true_low: Floats
    true_high: Floats
    error: float
    rounding: float


def _atom(
    model: OneLayerTransformer, composition: Composition, c: int, low: Floats, high: Floats, observer: Observer | None
) -> _AtomColumn:
    atom = composition.atoms[c]
    g = model.config.ramps
    names = ("ramp_start", "ramp_slope", "W_E", "b_E")
    w = {name: model.own(name).detach().double().cpu().numpy() for name in names}
    rows = slice(atom.coordinate * g, (atom.coordinate + 1) * g)
    column = w["W_E"][:, c]
    beyond = w["W_E"][:, len(composition.atoms) :]
    if np.delete(column, np.r_[rows]).any() or beyond.any():
        raise OnelayerError(f"column {c + 1} of the embedding is not a function of one number")
    start = w["ramp_start"][atom.coordinate]
    slope = w["ramp_slope"][atom.coordinate]
    rise = column[rows]
    constant = float(w["b_E"][c])
    if not bool((slope > 0).all()):
        raise OnelayerError("the ramps of the embedding must rise")
    lows = low[:, atom.coordinate]
    highs = high[:, atom.coordinate]
    ramps, blur = _as_relus(start, slope, rise, constant, float(highs.max()))
    formula = atom.formula
    error = piecewise_error(formula, ramps, float(lows.min()), float(highs.max()), observer) + blur
    # Tokens mostly share their interval: each is enclosed once.
    sides = list(zip(lows.tolist(), highs.tolist(), strict=True))
    known = {side: range_of(formula, *side) for side in set(sides)}
    ranges = np.array([known[side] for side in sides])  # (n, 2)
    least, most = ranges.T.copy()
    rounding = _embedding_rounding(slope, rise, constant, rounding_of(model.dtype))
    # Outward, as sums round inward too.
    bottom = np.nextafter(least - error * UP, -np.inf)
    top = np.nextafter(most + error * UP, np.inf)
    return _AtomColumn(bottom, top, least, most, error * UP, rounding * UP)


def _embedding_rounding(slope: Floats, rise: Floats, constant: float, r: Rounding) -> float:
    """Of an executed sum of ramps: each has two roundings and a product, and ramps lie in [0, 1]."""
    size = float(np.abs(rise).sum()) + abs(constant)
    # An input or a difference below the normal range may be lost, times the slope.
    steep = float((slope * np.abs(rise)).sum())
    lost = r.tiny * (2 * len(rise) + 4 * steep)
    return SLACK * (r.gamma(len(rise) + 6) * size + lost)


def _as_relus(start: Floats, slope: Floats, rise: Floats, constant: float, most: float) -> tuple[Ramps, float]:
    """rise * clip(slope (x - start), 0, 1) summed, written with relus, and what rounding changes of it up to ``most``.

    clip(v, 0, 1) = relu(v) - relu(v - 1). A ramp mostly ends where another begins: that knot is then counted once, with
    the change of slope, and the distance moved, times the slope, goes into the second number.
    """
    end = start + 1 / slope
    tilt = rise * slope
    # The first start that is not clearly before the end; inf stands behind the last one.
    starts = np.sort(start, kind="stable")
    near = JOINED / slope
    after = np.searchsorted(starts, end - near)
    following = np.append(starts, np.inf)[after]
    moved = np.abs(following - end)
    meets = moved <= near
    end = np.where(meets, following, end)
    # What moving the end, and the rounding of end and tilt, can change; a tilt below the normal range may be lost.
    reach = np.abs(start) + 2 / slope
    shifted = np.where(meets, moved, 0.0) + 8 * UNIT * reach
    blur = np.abs(tilt) * shifted + 8 * UNIT * np.abs(rise) + 4 * sys.float_info.min * reach
    # Slopes of ramps that meet mostly cancel, so the rounding of their sum is relative to their sizes. It counts beyond
    # the last knot too, where the true sum of the slopes is zero.
    knots, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    tilts = np.concatenate([tilt, -tilt])
    changes = np.zeros(len(knots))
    sizes = np.zeros(len(knots))
    np.add.at(changes, place, tilts)
    np.add.at(sizes, place, np.abs(tilts))
    summing = 8 * UNIT * float(sizes @ (max(most, knots[-1]) - knots))
    changed = float(blur.sum()) + summing
    return Ramps(knots, changes, constant), changed * UP
