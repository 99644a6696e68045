"""Sums and contractions: sum, mean, linear, matmul, einsum, with constants and between Taylor models.

A contraction with a constant acts on every coefficient row alike; the remainder and the rounding error pass through the
absolute values of the constant: |W| (R + gamma_n |p|).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.certify import basis
from onelayer.certify.arithmetic import combine, conversion_error
from onelayer.certify.core import TaylorModel, implements, joint_space
from onelayer.certify.rounding import executed, gamma, inflate
from onelayer.errors import UnsupportedOperation


@implements("sum")
def sum_(x: TaylorModel, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    dims = _dims(x, dim)
    terms = 1
    for d in dims:
        terms *= x.shape[d]
    coef = x.coef.sum([d + 1 for d in dims], keepdim=keepdim)
    absolute = x.norm().sum(dims, keepdim=keepdim)
    rem = inflate(x.rem.sum(dims, keepdim=keepdim) + gamma(terms) * absolute)
    result = x.with_(coef, rem)
    result.rem = executed(rem, inflate(absolute + rem), terms, x.execution)
    return result


def _dims(x: TaylorModel, dim: Any) -> list[int]:
    if dim is None:
        return list(range(x.ndim))
    return [d % x.ndim for d in (dim if isinstance(dim, Sequence) else [dim])]


@implements("mean")
def mean(x: TaylorModel, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    total = sum_(x, dim, keepdim)
    result: TaylorModel = total / (x.rem.numel() // max(1, total.rem.numel()))
    return result


@implements("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> TaylorModel:
    """x W^T + b for constant W and b, or by einsum when the weight is a model."""
    if isinstance(weight, TaylorModel):
        product = einsum("...i,oi->...o", x, weight)
        return product if bias is None else combine(product, bias, 1)
    matrix = weight.detach().double()
    terms = matrix.shape[-1] + 1
    size = matrix.abs()
    coef = F.linear(x.coef, matrix)
    error = F.linear(x.rem + gamma(terms) * x.norm(), size)
    error = error + F.linear(x.magnitude(), conversion_error(matrix, x.execution))
    reach = F.linear(x.magnitude(), size)
    if bias is not None:
        offset = bias.detach().double()
        coef[0] += offset
        reach = reach + offset.abs()
        error = error + gamma(2) * coef[0].abs() + conversion_error(offset, x.execution)
    return x.with_(coef, executed(inflate(error), inflate(reach), terms + 1, x.execution))


@implements("matmul")
def matmul(a: Any, b: Any) -> TaylorModel:
    left, right = len(a.shape), len(b.shape)
    rows = "i" if left > 1 else ""
    columns = "j" if right > 1 else ""
    front_a = "..." if left > 2 else ""
    front_b = "..." if right > 2 else ""
    front = "..." if front_a or front_b else ""
    return einsum(f"{front_a}{rows}m,{front_b}m{columns}->{front}{rows}{columns}", a, b)


@implements("einsum")
def einsum(equation: str, *operands: Any) -> TaylorModel:
    """One or two operands at a time; three or more are contracted from the left."""
    if len(operands) == 1 and isinstance(operands[0], Sequence):
        operands = tuple(operands[0])
    inputs, output = _labels(equation, operands)
    terms = list(zip(inputs, operands, strict=True))
    while len(terms) > 2:
        (la, a), (lb, b) = terms[0], terms[1]
        later = set(output).union(*[labels for labels, _ in terms[2:]])
        keep = "".join(dict.fromkeys(c for c in la + lb if c in later))
        terms[:2] = [(keep, _pair_contraction(la, lb, keep, a, b))]
    if len(terms) == 1:
        label, x = terms[0]
        return _pair_contraction(label, "", output, x, torch.ones((), dtype=torch.float64))
    (la, a), (lb, b) = terms
    return _pair_contraction(la, lb, output, a, b)


def _labels(equation: str, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    """Explicit labels for every operand and the output, the ellipsis written out in capital letters."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    spare = [c for c in "ABCDEFGHKLMNOQRSTUVWXYZ" if c not in text]
    widths = [len(x.shape) - len(part.replace("...", "")) for part, x in zip(inputs, operands, strict=True)]
    most = max([w for w, part in zip(widths, inputs, strict=True) if "..." in part], default=0)
    front = "".join(spare[:most])
    parts = [
        part.replace("...", front[most - width :] if width else "") if "..." in part else part
        for part, width in zip(inputs, widths, strict=True)
    ]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return parts, right.replace("...", front)


def _pair_contraction(la: str, lb: str, out: str, a: Any, b: Any) -> TaylorModel | Tensor:
    if not isinstance(a, TaylorModel) and not isinstance(b, TaylorModel):
        result: Tensor = torch.einsum(f"{la},{lb}->{out}", a.detach().double(), b.detach().double())
        return result
    if not isinstance(a, TaylorModel):
        return _with_constant(lb, la, out, b, a)
    if not isinstance(b, TaylorModel):
        return _with_constant(la, lb, out, a, b)
    return _between_models(la, lb, out, a, b)


def _length(la: str, lb: str, out: str, a: Any, b: Any) -> int:
    """Number of products summed into one output entry."""
    sizes: dict[str, int] = {}
    for letter, size in [*zip(la, a.shape, strict=True), *zip(lb, b.shape, strict=True)]:
        sizes[letter] = max(size, sizes.get(letter, 1))
    terms = 1
    for letter, size in sizes.items():
        terms *= 1 if letter in out else size
    return terms


def _with_constant(la: str, lb: str, out: str, a: TaylorModel, b: Any) -> TaylorModel:
    fixed = b.detach().double()
    terms = _length(la, lb, out, a, fixed)
    coef = torch.einsum(f"P{la},{lb}->P{out}", a.coef, fixed)
    size = fixed.abs()
    error = torch.einsum(f"{la},{lb}->{out}", a.rem + gamma(terms) * a.norm(), size)
    if a.execution is None:
        return a.with_(coef, inflate(error))
    reach = a.magnitude()
    error = error + torch.einsum(f"{la},{lb}->{out}", reach, conversion_error(fixed, a.execution))
    reach = torch.einsum(f"{la},{lb}->{out}", reach, size)
    return a.with_(coef, executed(inflate(error), inflate(reach), terms, a.execution))


def _between_models(la: str, lb: str, out: str, a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """Sum of products of models: one contraction per row of the smaller operand, truncated like a product."""
    if len(a.coef) > len(b.coef):
        a, b, la, lb = b, a, lb, la
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    degree = min(a.degree + b.degree, space.cap(len(support)))
    equation = f"{la},{lb}->{out}"
    left, right = a.norms(), b.norms()
    reach = torch.einsum(equation, left.sum(0), right.sum(0))
    rem = torch.einsum(equation, left.sum(0), b.rem) + torch.einsum(equation, a.rem, right.sum(0) + b.rem)
    for d in range(max(0, degree + 1 - b.degree), a.degree + 1):
        rem = rem + torch.einsum(equation, left[d], right[max(degree + 1 - d, 0) :].sum(0))
    coef = reach.new_zeros(basis.count(len(support), degree), *reach.shape)
    places = [tuple(support.index(v) for v in m.support) for m in (a, b)]
    for i, runs in basis.product_runs(places[0], places[1], len(support), a.degree, b.degree, degree):
        last = runs[-1][0] + runs[-1][2]
        piece = torch.einsum(f"{la},P{lb}->P{out}", a.coef[i], b.coef[:last])
        for source, target, length in runs:
            coef[target : target + length] += piece[source : source + length]
    terms = _length(la, lb, out, a, b)
    rem = inflate(rem + gamma(terms + len(coef)) * reach)
    result = TaylorModel(coef, rem, space, support, degree)
    result.rem = executed(rem, inflate(reach + rem), terms, space.execution)
    return result


@implements("addmm", "baddbmm")
def addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> TaylorModel:
    if alpha != 1 or beta != 1:
        raise UnsupportedOperation("addmm(alpha, beta)", "only alpha = beta = 1")
    return combine(matmul(a, b), bias, 1)
