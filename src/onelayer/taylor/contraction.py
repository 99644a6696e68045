"""Sums and contractions: sum, mean, linear, matmul, einsum, with constants and between Taylor models.

A contraction with a constant acts on every coefficient row alike; the remainder and the rounding error pass through the
absolute values of the constant: |W| (R + gamma_n |p|).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.formats import format_of
from onelayer.narrow import ACCUMULATORS, selects
from onelayer.taylor import basis, kernels
from onelayer.taylor.arithmetic import Places, combine, places, size_of, unit_of
from onelayer.taylor.core import TaylorModel, constant, joint_space, prune
from onelayer.taylor.dimensions import axes
from onelayer.taylor.outer import Rows, disjoint_rows
from onelayer.taylor.registry import implements, unhandled
from onelayer.taylor.rounding import (
    UNIT,
    check_cast,
    conversion_error,
    executed,
    execution_step,
    gamma,
    inflate,
    relative_error,
)

_MOST_DENOMINATORS = 4  # each is above 1/4: the overflow check on numerators leaves room for 2^12


@implements("sum", lazy=True)
def sum_(x: TaylorModel, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TaylorModel:
    """The sum over dimensions."""
    check_cast(x.execution, dtype)
    dims = axes(x, dim)
    # Numerators add up only where all terms have the same denominator.
    if any(factor.shape[d] > 1 for factor in x.den for d in dims):
        x = x.plain()
    terms = prod(x.shape[d] for d in dims)
    behind = [d + 1 for d in dims]  # of coefficients, whose first dimension is the polynomial index
    coef = x.coef.sum(behind, keepdim=keepdim)
    absolute = x.total().sum(dims, keepdim=keepdim)
    rem = inflate(x.rem.sum(dims, keepdim=keepdim) + gamma(terms) * absolute)
    # Denominators have size 1 along these dimensions: their sum only drops them.
    den = []
    for factor in x.den:
        kept = factor.coef.sum(behind, keepdim=keepdim)
        den.append(factor.with_(kept, factor.rem.sum(dims, keepdim=keepdim)))
    result = x.with_(coef, rem, tuple(den))
    result.rem = executed(rem, inflate(absolute + rem), terms, x.execution, unit_of(result))
    return result


@implements("mean")
def mean(x: TaylorModel, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TaylorModel:
    """The mean over dimensions: the sum, divided once."""
    total = sum_(x, dim, keepdim, dtype=dtype)
    count = prod(x.shape[d] for d in axes(x, dim))
    result: TaylorModel = total / count
    return result


@implements("linear", lazy=True)
def linear(x: Any, weight: Any, bias: Any = None) -> TaylorModel:
    """x W^T + b."""
    if isinstance(x, TaylorModel) and x.execution in ACCUMULATORS and _selecting(weight, bias):
        return _selected(x, weight, bias)
    equation = "...i,oi->...o" if len(weight.shape) == 2 else "...i,i->..."
    return _biased(equation, x, weight, bias)


def _selecting(weight: Any, bias: Any) -> bool:
    """Whether W^T and b are constants that select: each result is a constant, or one number times a power of two."""
    if not (isinstance(weight, Tensor) and isinstance(bias, Tensor)):
        return False
    return weight.ndim == 2 and selects(weight.T, bias)


def _selected(x: TaylorModel, weight: Tensor, bias: Tensor) -> TaylorModel:
    """Exact in the format of x, whatever sums it is part of: the other terms are zeros. It may under- and overflow."""
    row = format_of(x.dtype)
    chosen = einsum("...i,oi->...o", x.untag(), weight)
    y = combine(chosen, bias, 1).plain()
    reach = inflate(y.magnitude())
    held = inflate(y.rem + row.underflow)
    rem = torch.where(reach < row.largest, held, torch.inf)
    return y.with_(y.coef, rem).tagged(x.dtype)


@implements("addmm", lazy=True)
def addmm(x: Any, mat1: Any, mat2: Any, out_dtype: Any = None, *, beta: float = 1, alpha: float = 1) -> TaylorModel:
    """beta a + alpha b c."""
    unhandled("addmm", out_dtype=out_dtype)
    if alpha != 1 or beta != 1:
        raise UnsupportedOperation("addmm(alpha, beta)", "only alpha = beta = 1")
    return _biased("im,mj->ij", mat1, mat2, x)


def _biased(equation: str, a: Any, b: Any, bias: Any) -> TaylorModel:
    """A contraction plus a bias, which may be executed as one sum in any order, the bias first."""
    product = einsum(equation, a, b)
    if bias is None:
        return product
    result = combine(product, bias, 1)
    if result.execution is not None:
        reach = einsum_of(equation, size_of(a), size_of(b)) + size_of(bias)
        result.rem = executed(result.rem, inflate(reach), a.shape[-1] + 1, result.execution)
    return result


def einsum_of(equation: str, *sizes: Tensor) -> Tensor:
    """A contraction of tensors of bounds, written as torch writes it."""
    total: Tensor = torch.einsum(equation, *sizes)
    return total


@implements("matmul", lazy=True)
def matmul(x: Any, other: Any) -> TaylorModel:
    """The matrix product, batched as torch does it."""
    left = len(x.shape)
    right = len(other.shape)
    rows = "i" if left > 1 else ""
    columns = "j" if right > 1 else ""
    front_a = "..." if left > 2 else ""
    front_b = "..." if right > 2 else ""
    front = "..." if front_a or front_b else ""
    return einsum(f"{front_a}{rows}m,{front_b}m{columns}->{front}{rows}{columns}", x, other)


@implements("einsum", lazy=True)
def einsum(equation: str, *operands: Any) -> TaylorModel:
    """A contraction of one or two operands; of more, torch chooses an order, and with it what may overflow."""
    if len(operands) == 1 and isinstance(operands[0], Sequence):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) > 2:
        raise UnsupportedOperation("einsum of more than two operands", "contract two at a time")
    (la, *rest), output = _labels(equation, tuple(len(x.shape) for x in operands))
    a = operands[0]
    if not rest:
        return _with_constant(la, "", output, a, torch.ones((), dtype=torch.float64, device=a.device))
    b = operands[1]
    if not isinstance(a, TaylorModel):
        return _with_constant(rest[0], la, output, b, a)
    if not isinstance(b, TaylorModel):
        return _with_constant(la, rest[0], output, a, b)
    return _between_models(la, rest[0], output, a, b)


def _implied(left: str) -> str:
    """The output that torch means where none is written: what occurs once, in alphabetical order."""
    letters = left.replace("...", "").replace(",", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    front = "..." if "..." in left else ""
    return front + "".join(once)


@cache
def _labels(equation: str, ndims: tuple[int, ...]) -> tuple[list[str], str]:
    """Labels of every operand and the output: letters as a, b, c, ..., the ellipsis written out in capitals."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    right = right if arrow else _implied(left)
    letters = dict.fromkeys(filter(str.isalpha, text))  # each once, in the order of the equation
    names = {c: chr(ord("a") + i) for i, c in enumerate(letters)}
    left, right = ("".join(names.get(c, c) for c in part) for part in (left, right))
    inputs = left.split(",")
    # Dimensions that the ellipsis of each operand stands for; they are aligned at the right, as torch broadcasts.
    widths = [ndim - len(part.replace("...", "")) for part, ndim in zip(inputs, ndims, strict=True)]
    operands = list(zip(inputs, widths, strict=True))
    most = max((w for part, w in operands if "..." in part), default=0)
    front = "ABCDEFGHJKLMNOQRSTUVWXYZ"[:most]  # I and P name the polynomial index
    parts = [part.replace("...", front[most - w :] if w else "") for part, w in operands]
    return parts, right.replace("...", front)


def _length(la: str, lb: str, out: str, a: Any, b: Any) -> int:
    """Number of products summed into one output entry."""
    sizes: dict[str, int] = {}
    for labels, operand in ((la, a), (lb, b)):
        for letter, size in zip(labels, operand.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return prod(size for letter, size in sizes.items() if letter not in out)


def _with_constant(la: str, lb: str, out: str, a: TaylorModel, b: Any) -> TaylorModel:
    """A model with a constant: every coefficient row alike, the remainder through absolute values."""
    a, den = _denominators(la, out, a)
    fixed = constant(b, a).coef[0]
    terms = _length(la, lb, out, a, fixed)
    matrix = _as_matrix(la, lb, out, a, b)
    vector = len(lb) == 1
    # The kernel knows one unit per row: denominators must not vary along the columns that a matrix makes.
    if matrix is not None and (vector or all(factor.shape[-1] == 1 for factor in den)):
        return _times_matrix(a, matrix, vector, den, terms)
    equation = f"{la},{lb}->{out}"
    size = fixed.abs()
    coef = torch.einsum(f"P{la},{lb}->P{out}", a.coef, fixed)
    result = a.with_(coef, a.rem, den)
    source = a.rem + gamma(terms) * a.total()
    # An integer beyond 2^53 is known up to two units.
    if not b.is_floating_point():
        source = source + 4 * UNIT * a.magnitude()
    if a.execution is None:
        result.rem = inflate(torch.einsum(equation, source, size))
        return result
    step = relative_error(a.execution, terms)
    result.rem = inflate(torch.einsum(equation, source + step * a.magnitude(), size))
    converted = conversion_error(fixed, a.execution)
    if converted is not None:
        moved = torch.einsum(equation, a.magnitude(), converted)
        result.rem = inflate(result.rem + (1 + step) * moved)
    # |W| times the magnitude, which bounds all partial sums, is at most the remainder over one step of rounding.
    result.rem = executed(result.rem, result.rem / step, 0, a.execution, unit_of(result) * terms)
    return result


def _as_matrix(la: str, lb: str, out: str, a: TaylorModel, b: Tensor) -> Tensor | None:
    """The constant as a matrix (n, m) whose n meets the last dimension of the model, where it is nothing more."""
    lead = la[:-1]
    last = la[-1:]
    doubles = b.dtype == torch.float64 and a.execution in (None, torch.float64)
    if not doubles or not kernels.ready(a.coef, a.rem) or not _meets_last(la, lb, a, b):
        return None
    if lb == last and out == lead:
        return b.detach()[:, None]
    if len(lb) == 2 and out == lead + lb.replace(last, ""):
        if lb[0] == last:
            return b.detach()
        return b.detach().T
    return None


def _meets_last(la: str, lb: str, a: TaylorModel, b: Tensor) -> bool:
    """Whether no label comes twice and the last dimension of the model is one of the constant, of the same size."""
    if len(set(la)) < len(la) or len(set(lb)) < len(lb):
        return False
    last = la[-1:]
    return last in lb and a.shape[-1] == b.shape[lb.index(last)]


def _times_matrix(
    a: TaylorModel, matrix: Tensor, vector: bool, den: tuple[TaylorModel, ...], terms: int
) -> TaylorModel:
    """A contraction with a constant, by one matrix product and one kernel; without its last dimension for a vector."""
    coef = torch.mm(a.coef.reshape(-1, len(matrix)), matrix)
    shape = a.shape[:-1] if vector else (*a.shape[:-1], matrix.shape[1])
    coef = coef.reshape(len(a.coef), *shape)
    result = a.with_(coef, a.rem.new_empty(shape), den)
    unit = torch.as_tensor(unit_of(result), dtype=torch.float64, device=a.device)
    unit = unit[..., None] if vector and unit.ndim else unit
    relative = 0.0 if a.execution is None else relative_error(a.execution, terms)
    step = execution_step(a.execution, 0)
    rem = kernels.contracted(a.rem, a.total(), matrix.abs(), unit, gamma(terms), relative, step, terms)
    result.rem = rem.reshape(shape)
    return result


def _denominators(labels: str, out: str, x: TaylorModel) -> tuple[TaylorModel, tuple[TaylorModel, ...]]:
    """The operand with its denominators in the labels of the output, carried out first where they cannot follow."""
    if not x.den:
        return x, ()
    # What is summed over, or comes twice, must not vary in a denominator.
    free = len(set(labels)) == len(labels)
    summed = [i for i, c in enumerate(labels) if c not in out]
    if not free or any(factor.shape[i] != 1 for factor in x.den for i in summed):
        return x.plain(), ()
    return x, tuple(_relabel(factor, labels, out) for factor in x.den)


def _relabel(factor: TaylorModel, labels: str, out: str) -> TaylorModel:
    sizes = dict(zip(labels, factor.shape, strict=True))
    kept = [labels.index(c) for c in out if c in sizes]
    dropped = [i for i, c in enumerate(labels) if c not in out]
    order = kept + dropped
    shape = [sizes.get(c, 1) for c in out]
    turned = factor.coef.permute(0, *[i + 1 for i in order])
    coef = turned.reshape(len(factor.coef), *shape)
    return factor.with_(coef, factor.rem.permute(order).reshape(shape))


def _between_models(la: str, lb: str, out: str, a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """Sum of products of models, truncated like a product."""
    a = prune(a)
    b = prune(b)
    if not set(a.support) & set(b.support):
        # Divided first, the operands are smooth: what lies above the cap is then nothing but the product's own tail.
        a = prune(a.plain())
        b = prune(b.plain())
    if len(a.den) + len(b.den) > _MOST_DENOMINATORS:
        a = prune(a.plain())
        b = prune(b.plain())
    disjoint = not set(a.support) & set(b.support)
    a, den_a = _denominators(la, out, a)
    b, den_b = _denominators(lb, out, b)
    # The smaller one leads: common variables cost one contraction per row of it.
    if len(a.coef) > len(b.coef):
        a, b, la, lb = b, a, lb, la
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    degree = min(a.degree + b.degree, space.cap(len(support)))
    equation = f"{la},{lb}->{out}"
    left = a.total()
    right = b.total()
    reach = torch.einsum(equation, left, right)
    # |p| S + R (|q| + S), as for a product.
    rem = torch.einsum(equation, left, b.rem) + torch.einsum(equation, a.rem, right + b.rem)
    rows = disjoint_rows if disjoint else _product_rows
    coef, above = rows(la, lb, out, a, b, places(a, b, support), degree)
    terms = _length(la, lb, out, a, b)
    # Of one coefficient: a sum of ``terms`` products from each of the rows that meet there, at most all of them.
    rem = inflate(rem + above + gamma(terms + len(coef) + 1) * reach)
    result = TaylorModel(coef, rem, space, support, degree, den_a + den_b)
    result.rem = executed(rem, inflate(reach + rem), terms, space.execution, unit_of(result))
    return result


def _product_rows(la: str, lb: str, out: str, a: TaylorModel, b: TaylorModel, where: Places, degree: int) -> Rows:
    """Common variables: one contraction per row of the smaller operand."""
    left = a.norms()
    right = b.norms()
    equation = f"{la},{lb}->{out}"
    above = torch.einsum(equation, torch.zeros_like(left[0]), right[0])
    first = max(0, degree + 1 - b.degree)
    for d in range(first, a.degree + 1):
        too_high = right[max(degree + 1 - d, 0) :].sum(0)
        above = above + torch.einsum(equation, left[d], too_high)
    coef = above.new_zeros(basis.count(where[2], degree), *above.shape)
    for i, runs in basis.product_runs(*where, a.degree, b.degree, degree):
        last = runs[-1][0] + runs[-1][2]
        piece = torch.einsum(f"{la},P{lb}->P{out}", a.coef[i], b.coef[:last])
        for source, target, length in runs:
            coef[target : target + length] += piece[source : source + length]
    return coef, above
