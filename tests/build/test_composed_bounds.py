"""Bounds by lemma where their own arithmetic fails: what it loses is added, what is no number is no bound."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.errors import OnelayerError
from onelayer.lemmas.argument import Atom, Composition, TokenTerm, from_text
from onelayer.lemmas.atoms import _as_relus, embedded_atoms
from onelayer.lemmas.composition import OuterRamps, _CompositionProof
from onelayer.lemmas.distance import smallest_squared_distance
from onelayer.lemmas.forward import rounding_of, sum_slack
from onelayer.lemmas.nested import Outer, RidgeTerm
from onelayer.lemmas.order import Thresholds
from onelayer.lemmas.streams import Forms, last_norm_error
from onelayer.lemmas.surface import surface_error
from onelayer.lemmas.units import steepest_slope
from onelayer.lemmas.univariate import Ramps
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT


def test_slopes_that_cancel_keep_what_rounding_takes_from_them() -> None:
    """The slope of 1e16, 1 and -1e16 is 1, and 0 when they are summed in float64."""
    ramps = Ramps(np.array([0.0, 0.1, 0.2]), np.array([1e16, 1.0, -1e16]), 0.0)
    _, _, summed, _ = ramps.on(0.5, 1.0)
    assert summed.max() == 0
    assert steepest_slope(ramps, 0.5, 1.0, 0.0) >= 1


def test_a_knot_at_the_rounded_end_of_a_sum_has_its_slope_counted() -> None:
    """The sum may reach 2^27 + 1e-20, which is rounded to 2^27: a unit that opens there is steep."""
    ramps = Ramps(np.array([2.0**27]), np.array([1e9]), 0.0)
    assert steepest_slope(ramps, 0.0, 1e-20, 2.0**27) >= 1e9


def test_rows_that_are_no_numbers_are_no_distance_apart() -> None:
    rows = torch.tensor([[0.0], [math.nan]], dtype=torch.float64)
    assert smallest_squared_distance(rows) == 0


def test_positions_are_told_apart_by_exact_numbers() -> None:
    """Products of 2^74 that cancel: float64 may say that the queries are -4 and 4, and they are -1/2 and 1/2."""
    big, shift = 2.0**37, -8.0
    first = np.array([-(big + 0.5), -(big - 0.5)])
    layer = Thresholds.__new__(Thresholds)
    layer.sorts, layer.length, layer.cells, layer.keys = True, 2, 1, 1
    layer.rounding = rounding_of(torch.float64)
    layer.w = {
        "position": np.stack([np.zeros(2), first, -first], 1),
        "W_Q": np.array([[0, 0], [0, big + shift + 1], [0, big + shift]]),
        "b_Q": np.array([0, big]),
        "W_K": np.array([[0, 0], [0, 1.0], [0, 0]]),
        "b_K": np.array([0, big]),
        "b_V": np.array([0, 1 - first[0]]),
    }
    with pytest.raises(OnelayerError, match="exact"):
        layer.position_error()


def test_a_last_norm_without_an_enclosure_has_no_bound() -> None:
    made = gather("x1*x2", Box([0.0] * 2, [1.0] * 2), 0.1, norm="post")
    composition = from_text(made.certificate.attachments[ARGUMENT])
    assert isinstance(composition, Composition)
    atoms = embedded_atoms(made.model, composition, made.box)
    small = last_norm_error(made.model, atoms, np.ones(composition.outputs))
    assert small < 1e-6
    # Squares of 1e160 overflow: the models end as nan, which must not become a small number.
    beyond = last_norm_error(made.model, atoms, np.full(composition.outputs, 1e160))
    assert not beyond < math.inf


def test_a_sum_counts_the_products_that_it_loses() -> None:
    """1e-200 times 1e-200 is no number of float64: a range of it that ends at zero does not hold it."""
    true = Fraction(1e-200) ** 2
    assert Fraction(sum_slack(1, 1e-200 * 1e-200)) >= true
    ramps = Ramps(np.array([0.0]), np.array([1e-200]), 0.0)
    _, values, slopes, error = ramps.on(1e-200, 2e-200)
    assert values[0] == 0 < slopes[0]
    assert Fraction(error) >= true


def test_ramps_as_units_count_their_rounding_beyond_the_last_knot() -> None:
    """Beyond all ramps their sum is constant; that of units has the slope which rounding leaves of one that is zero."""
    rng = np.random.default_rng(0)
    most = 1e12
    for _ in range(20):
        slope = rng.uniform(1, 9, 6)
        start = np.concatenate([[0.0], np.cumsum(1 / slope)[:-1]])
        rise = rng.normal(size=6)
        ramps, blur = _as_relus(start, slope, rise, 0.5, most)
        units = zip(ramps.changes.tolist(), ramps.knots.tolist(), strict=True)
        written = Fraction(0.5) + sum(Fraction(c) * (Fraction(most) - Fraction(t)) for c, t in units)
        true = Fraction(0.5) + sum(map(Fraction, rise.tolist()))
        assert abs(written - true) <= Fraction(blur)


def test_a_slope_is_compared_with_what_its_sum_loses() -> None:
    """A weight of 1e-162 on [-1e-162, 1e-162] vanishes in float64, and a slope of 1e308 makes 1e-16 of it."""
    term = TokenTerm(None, 0, ((1e-162,),), "x1", 0.0)
    zero = np.zeros((1, 1))
    proof = _CompositionProof.__new__(_CompositionProof)
    proof.composition = Composition(1, 1, 1, False, True, 0.0, (Atom(0, "x1"),), (term,), (0,))
    proof.forms = Forms(zero, np.zeros((1, 1, 1)), zero, np.zeros(1), np.array([1e-162]), 0.0)
    proof.units, proof.outer = np.array([0]), np.ones((1, 1))
    proof.terms = [OuterRamps(np.zeros(1), np.array([1e308]), 0.0, 0.0)]
    assert Fraction(proof._mismatch(0, 0)) >= Fraction(1e308) * Fraction(1e-162) ** 2


def test_ridges_count_what_their_arguments_lose() -> None:
    """1e300 s with s = 1e-200 (u + v) for u and v up to 2e-200: products of 1e-400 count for 4e-100."""
    ridge = RidgeTerm((1e-200, 1e-200), "1e300*x1", 0.0)
    outer = Outer(0, ((0,), (1,)), "0*x1 + 0*x2", (0.0, 0.0), (2e-200, 2e-200), 0.0, (ridge,))
    assert surface_error(outer, 1e-5, Observer()) >= 4e-100
