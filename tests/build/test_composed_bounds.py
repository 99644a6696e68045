"""Bounds of composed layers where their own arithmetic fails: what it loses is added, what is no number is no bound."""

from __future__ import annotations

import math

import numpy as np

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.lemmas.argument import Composition, from_text
from onelayer.lemmas.atoms import embedded_atoms
from onelayer.lemmas.streams import last_norm_error
from onelayer.lemmas.units import steepest_slope
from onelayer.lemmas.univariate import Ramps
from onelayer.proof.files import ARGUMENT


def test_slopes_that_cancel_keep_what_rounding_takes_from_them() -> None:
    """The slope of 1e16, 1 and -1e16 is 1, and 0 when they are summed in float64."""
    ramps = Ramps(np.array([0.0, 0.1, 0.2]), np.array([1e16, 1.0, -1e16]), 0.0)
    _, _, summed, _ = ramps.on(0.5, 1.0)
    assert summed.max() == 0
    assert steepest_slope(ramps, 0.5, 1.0, 0.0) >= 1


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
