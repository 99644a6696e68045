"""The hidden units of a feed-forward network that makes one-variable functions of sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.build.sequences.piecewise import Piecewise, fit_piecewise
from onelayer.float64 import zeros
from onelayer.language.formula import Formula
from onelayer.lemmas.argument import Atom, Composition, TokenTerm
from onelayer.lemmas.univariate import at

Array = NDArray[np.float64]
# Share of the tolerance below which one piece counts as exact.
STRAIGHT = 1e-7


@dataclass(frozen=True)
class PlacedTerm:
    """g(s), s = sum_{j,c} weights[j, c] phi_c(x_j), for one output; s takes values in [low, high].

    ``position`` is None for a term of every position, with weights relative to it.
    """

    outer: Formula
    weights: Array  # (n, C)
    output: int
    low: float
    high: float
    position: int | None = None


# Position, or None for all of them, and output.
Place = tuple[int | None, int]


def _share(groups: Mapping[Place, list[int]], group: Place, tolerance: float) -> float:
    """What the terms of one group may err by: those of all positions add to those of each position."""
    position, output = group
    if position is None:
        shared = any(p is not None and o == output for p, o in groups)
        return tolerance / 2 if shared else tolerance
    own = len(groups[group])
    beside = len(groups.get((None, output), []))
    if beside:
        return tolerance * own / (own + beside)
    return tolerance


def fit_terms(terms: Sequence[PlacedTerm], tolerance: float) -> list[Piecewise]:
    """Piecewise-linear functions whose errors add up to at most ``tolerance`` for every output of every position.

    N pieces err like (A / N)^2 with A = integral of sqrt|g''| / 4, so the total of N_k under sum_k (A_k / N_k)^2 =
    tolerance is least for errors in proportion to A_k^(2/3).
    """
    groups: dict[Place, list[int]] = {}
    for k, term in enumerate(terms):
        groups.setdefault((term.position, term.output), []).append(k)
    fitted: dict[int, Piecewise] = {}
    for group, members in groups.items():
        own = [terms[k] for k in members]
        functions = [(term.outer, term.low, term.high) for term in own]
        fits = fit_shared(functions, _share(groups, group, tolerance))
        fitted |= dict(zip(members, fits, strict=True))
    return [fitted[k] if term.position is None else _from_zero(fitted[k]) for k, term in enumerate(terms)]


def _from_zero(found: Piecewise) -> Piecewise:
    """The same function with a piece in front that starts at zero: its units need no constant, and can be shut."""
    # As long as the whole interval, so that it is not steep.
    start = 2 * found.knots[0] - found.knots[-1]
    knots = np.append(start, found.knots)
    values = np.append(0.0, found.values)
    return Piecewise(knots, values)


def fit_shared(functions: Sequence[tuple[Formula, float, float]], tolerance: float) -> list[Piecewise]:
    """Piecewise-linear functions of formulas on intervals whose errors add up to at most ``tolerance``."""
    equal = tolerance / len(functions)
    trial = [_fit(*function, equal) for function in functions]
    sizes = []
    for (outer, _, _), found in zip(functions, trial, strict=True):
        sizes.append(found.pieces if _bent(outer, found, equal) else 0)
    # Pieces at equal errors are in proportion to A_k, see fit_terms.
    shares = np.array(sizes, dtype=np.float64) ** (2 / 3)
    if not shares.any():
        return trial
    # Straight ones keep what they have, which takes next to nothing.
    shares *= tolerance * (1 - 2 * STRAIGHT * len(functions)) / shares.sum()
    fits = []
    for function, share, found in zip(functions, shares, trial, strict=True):
        fits.append(_fit(*function, float(share)) if share else found)
    return fits


def _fit(outer: Formula, low: float, high: float, tolerance: float) -> Piecewise:
    return fit_piecewise(lambda s: at(outer, s), low, high, tolerance)


# Beyond the range of the format nothing is proved, whatever is fitted.
@np.errstate(all="ignore")
def _bent(outer: Formula, found: Piecewise, tolerance: float) -> bool:
    """Whether one piece is not exact."""
    if found.pieces > 1:
        return True
    low, high = found.knots
    s = np.linspace(low, high, 257)
    rise = found.values[1] - found.values[0]
    line = found.values[0] + (s - low) * rise / (high - low)
    apart = np.abs(line - at(outer, s))
    return float(apart.max()) > STRAIGHT * tolerance


@dataclass(frozen=True)
class Units:
    """All units: unit u is relu(weights[term[u]] . atoms - knot[u]) with coefficient change[u]."""

    term: NDArray[np.int64]
    knot: Array
    change: Array
    constants: Array  # per term, the value at its first knot


def units_of(fitted: Sequence[Piecewise]) -> Units:
    """One hidden unit per piece, in the order of the functions."""
    return Units(
        np.concatenate([np.full(found.pieces, k) for k, found in enumerate(fitted)]),
        np.concatenate([found.knots[:-1] for found in fitted]),
        np.concatenate([found.changes() for found in fitted]),
        np.array([found.values[0] for found in fitted]),
    )


def stream_units(
    fitted: Sequence[Piecewise], owners: Sequence[int], reads: Sequence[int], writes: Sequence[int], width: int
) -> dict[str, Tensor]:
    """W_1, b_1 and W_2 of one hidden unit per piece, on a stream of that width.

    A unit of function k is relu(s - knot), s the feature ``reads[k]`` of the stream, times the change of slope at the
    knot, into the feature ``writes[k]``. ``owners`` names the function of every unit.
    """
    into = zeros(width, len(owners))
    out_of = zeros(len(owners), width)
    knots = np.concatenate([fit.knots[:-1] for fit in fitted])
    changes = np.concatenate([fit.changes() for fit in fitted])
    for u, k in enumerate(owners):
        into[reads[k], u] = 1.0
        out_of[u, writes[k]] = float(changes[u])
    return {"W_1": into, "b_1": torch.from_numpy(-knots), "W_2": out_of}


def composition_of(
    terms: Sequence[PlacedTerm], atoms: Sequence[Atom], *, width: int, outputs: int, each: bool, exact: bool
) -> Composition:
    """D as the argument of a proof states it, before there are units."""
    stored = []
    for term in terms:
        weights = tuple(map(tuple, term.weights.tolist()))
        stored.append(TokenTerm(term.position, term.output, weights, str(term.outer), 0.0))
    length = len(terms[0].weights)
    return Composition(length, width, outputs, each, exact, 0.0, tuple(atoms), tuple(stored), ())


def with_units(composition: Composition, units: Units) -> Composition:
    """The argument of a proof for a layer with these units."""
    terms = []
    for term, constant in zip(composition.terms, units.constants, strict=True):
        terms.append(replace(term, constant=float(constant)))
    return replace(composition, terms=tuple(terms), units=tuple(units.term.tolist()))
