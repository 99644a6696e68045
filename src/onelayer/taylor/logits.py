"""Softmax of affine logits by compiled kernels: the logits shifted, their exponentials, and weights as executed.

Each function returns None where its kernel does not apply: a masked key, logits that are no affine functions, another
dimension than the last, remainders without bounds. The plain way then does the same by the same lemmas.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onelayer.taylor import basis, kernels
from onelayer.taylor.arithmetic import known
from onelayer.taylor.compose import within_image
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import EXP
from onelayer.taylor.kernels import Floats, Ints, expect, row_of, rows_of, tensor_of
from onelayer.taylor.rounding import ELEMENTARY, FUSED, execution_step, gamma, relative_error


class Powers(NamedTuple):
    """Logits less those of the strongest key, and their exponentials."""

    shifted: TaylorModel
    powers: TaylorModel


@cache
def _compiled() -> Any:
    return importlib.import_module("onelayer.taylor.compiled_softmax")


@cache
def _parents(variables: int, degree: int) -> Ints:
    """Of every monomial one of a degree less and the variable that it lacks, as ``compose.monomials`` builds them."""
    rows = np.zeros((basis.count(variables, degree), 2), dtype=np.int64)
    for n in range(1, degree + 1):
        end = basis.block(variables, n - 1).stop
        row = basis.block(variables, n).start
        for i in range(variables):
            avoiding = basis.block(variables - i, n - 1)
            length = avoiding.stop - avoiding.start
            rows[row : row + length, 0] = np.arange(end - length, end)
            rows[row : row + length, 1] = i
            row += length
    return rows


@cache
def _weights(variables: int, degree: int) -> Floats:
    return np.array(basis.inverse_factorials(variables, degree), dtype=np.float64)


def powers_of(x: TaylorModel, dim: int) -> Powers | None:
    """e^(l - q) of logits l (without an executing format) along the last dimension."""
    rows_of_keys = dim == x.ndim - 1 and x.shape[-1] > 0
    if x.degree > 1 or not rows_of_keys or not kernels.ready(x.coef, x.rem):
        return None
    shifted = _shifted(x)
    if shifted is None:
        return None
    powers = _exponentials(*shifted)
    if powers is None:
        return None
    return Powers(shifted[0], powers)


def _shifted(x: TaylorModel) -> tuple[TaylorModel, Floats] | None:
    """l - q and the sums of its slopes; None where a key is masked."""
    variables = len(x.support)
    shape = x.shape
    coef = rows_of(x.coef, shape)
    rem = row_of(x.rem, shape)
    expect(coef, basis.count(variables, x.degree), rem.size)
    size = np.empty(rem.size)
    plain: list[bool] = []

    def run(blocks: Ints, out: Floats, norms: Floats, total: Floats, radius: Floats) -> None:
        plain.append(_compiled().shifted(blocks, coef, rem, shape[-1], out, norms, total, radius, size))

    found = kernels.filled(variables, x.degree, shape, run)
    if plain[0]:
        return known(found, x.space, x.support, x.degree), size
    return None


def _exponentials(x: TaylorModel, size: Floats) -> TaylorModel | None:
    """As ``compose`` has it for an affine argument."""
    variables = len(x.support)
    shape = x.shape
    degree = x.space.cap(variables) if x.degree else 0
    lower, upper = x.range()
    coef = rows_of(x.coef, shape)
    rem = row_of(x.rem, shape)
    # Exponentials are torch's own: nothing is assumed of another library's.
    base = row_of(torch.exp(x.coef[0]), shape)
    above = row_of(torch.exp(upper), shape)
    relative = ELEMENTARY + gamma(2 * degree + 4)
    tables = _parents(variables, degree), _weights(variables, degree)
    state: list[int] = []

    def run(blocks: Ints, *out: Floats) -> None:
        last = float(math.factorial(degree + 1))
        done = _compiled().exponentials(blocks, *tables, coef, rem, size, base, above, relative, last, *out)
        state.append(done)

    found = kernels.filled(variables, degree, shape, run)
    if not state[0]:
        return None
    powers = known(found, x.space, x.support, degree)
    # A remainder that is small beside the polynomial would not gain by an interval.
    if state[0] > 1:
        return powers
    return within_image(powers, *EXP.image((lower, upper)), x.decided())


def summed(x: TaylorModel, dim: int) -> TaylorModel | None:
    """The sum over the last dimension, which stays with one entry; of no executed format."""
    width = x.shape[-1]
    plain = not x.den and x.execution is None
    if not plain or dim != x.ndim - 1 or not width or not kernels.ready(x.coef, x.rem):
        return None
    coef = rows_of(x.coef, x.shape)
    rem = row_of(x.rem, x.shape)
    total = row_of(x.total(), x.shape)
    out = np.empty((coef.shape[0], rem.size // width))
    radius = np.empty(rem.size // width)
    _compiled().row_sums(coef, total, rem, width, gamma(width), out, radius)
    shape = (*x.shape[:-1], 1)
    return x.with_(tensor_of(out, out.shape[0], *shape), tensor_of(radius, *shape))


def executed_weights(weights: TaylorModel, unit: Tensor, shifted: TaylorModel, dtype: torch.dtype) -> Tensor | None:
    """Remainder of the weights along the last dimension as a pass in ``dtype`` computes them."""
    if not kernels.ready(weights.coef, weights.rem, unit):
        return None
    shape = weights.shape
    width = weights.shape[-1]
    ends = [row_of(side, shape) for side in shifted.range()]
    total = row_of(weights.total(), shape)
    rem = row_of(weights.rem, shape)
    units = row_of(unit, torch.Size((*shape[:-1], 1)))
    steps = execution_step(dtype, 1.01), execution_step(dtype, 2 * width + FUSED)
    relative = relative_error(dtype, 1.0)
    out = np.empty(rem.size)
    if not _compiled().executed_weights(*ends, total, rem, units, width, relative, *steps, out):
        return None
    return tensor_of(out, *shape)
