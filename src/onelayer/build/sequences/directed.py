"""Terms of a pursuit as formulas: a polynomial of one direction, in the coordinates of the box."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.build.sequences.rational import function_of
from onelayer.build.sequences.recognise import FormulaTerm
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.language.tree import Tape

Array = NDArray[np.float64]


def constant_term(value: float, box: Box) -> FormulaTerm:
    """The term that is constant: what there is when the time ends before the pursuit begins."""
    centre = box.center.flatten().numpy()
    radius = (box.width / 2).flatten().numpy()
    first_axis = np.eye(1, box.dim)[0]
    return directed_term(first_axis, np.array([value, 0.0]), centre, radius)


def directed_term(w: Array, c: Array, centre: Array, radius: Array, single: bool = False) -> FormulaTerm:
    """P(sum_i v_i x_i - v . centre) with v = w / radius, written with Horner's rule."""
    v = _weights(w, radius, single)
    itself = parse("x", 1)
    inner = tuple((i, itself, Fraction(weight)) for i, weight in enumerate(v.tolist()) if weight)
    tape = Tape()
    offset = tape.number(float(v @ centre))
    s = tape.add("sub", tape.variable(0), offset)
    power = chebyshev.cheb2poly(c).tolist()
    value = tape.number(power[-1])
    for coefficient in power[-2::-1]:
        product = tape.add("mul", value, s)
        value = tape.add("add", product, tape.number(coefficient))
    return FormulaTerm(function_of(tape, value), inner)


def _weights(w: Array, radius: Array, single: bool) -> Array:
    """w / radius in the format of the layer; a side of no width has no weight."""
    wide = radius > 0
    with np.errstate(over="ignore"):
        v = np.where(wide, w / np.where(wide, radius, 1.0), 0.0)
        if single:
            v = v.astype(np.float32).astype(np.float64)
    if not np.isfinite(v).all():
        raise OnelayerError(
            f"a side of the box is {2 * radius[wide].min():.2g} wide: the weights of its directions overflow "
            f"{'float32' if single else 'float64'}; use the packed layout, or scale the inputs"
        )
    return v
