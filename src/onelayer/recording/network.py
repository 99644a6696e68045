"""How products, activations and normalisation of torch.nn are written in the formula language."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.recording.algebra import add, clamp, div, minimum, mul, neg, power, sub, unary
from onelayer.recording.dispatch import operation
from onelayer.recording.ranges import range_over
from onelayer.recording.reductions import mean, total
from onelayer.recording.symbolic import Recording, Symbolic, lift, positions

MAX_TERMS = 10**6  # of one einsum; beyond, its formula is endless


@operation("matmul", "mm", "bmm", "mv", "dot")
def matmul(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The matrix product, batched as torch does it."""
    a = lift(tape, input)
    b = lift(tape, other)
    left = a.ids if a.ndim > 1 else a.ids[None]
    right = b.ids if b.ndim > 1 else b.ids[:, None]
    if left.shape[-1] != right.shape[-2]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise UnsupportedOperation("matmul", f"shapes {shapes} do not fit")
    # (..., n, k, 1) times (..., 1, k, m), summed over k.
    rows = Symbolic(tape, left.unsqueeze(-1))
    columns = Symbolic(tape, right.unsqueeze(-3))
    product = mul(tape, rows, columns)
    done = total(tape, product, -2).ids
    # What was put beside a vector to make it a matrix goes again.
    done = done if a.ndim > 1 else done.squeeze(-2)
    return Symbolic(tape, done if b.ndim > 1 else done.squeeze(-1))


@operation("rmatmul")
def rmatmul(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The matrix product with a constant on the left."""
    return matmul(tape, other, input)


@operation("outer")
def outer(tape: Recording, input: Any, vec2: Any) -> Symbolic:
    """All products of two vectors."""
    column = Symbolic(tape, lift(tape, input).ids[:, None])
    return mul(tape, column, vec2)


@operation("addmm")
def addmm(tape: Recording, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Symbolic:
    """beta a + alpha b c."""
    product = matmul(tape, mat1, mat2)
    return add(tape, mul(tape, beta, input), mul(tape, alpha, product))


@operation("linear")
def linear(tape: Recording, input: Any, weight: Any, bias: Any = None) -> Symbolic:
    """x W^T + b."""
    transposed = Symbolic(tape, lift(tape, weight).ids.mT)
    y = matmul(tape, input, transposed)
    if bias is None:
        return y
    return add(tape, y, bias)


def _einsum_letters(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """One letter per dimension of every operand, and of the result; an ellipsis becomes capitals that are free."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    operands = list(zip(parts, ndims, strict=True))
    widths = [n - len(part.replace("...", "")) for part, n in operands if "..." in part]
    free = [c for c in string.ascii_uppercase if c not in equation]
    spare = free[: max(widths, default=0)]
    names = [_letters(part, n, spare) for part, n in operands]
    front = "".join(spare)
    used = "".join(names)
    if arrow:
        return names, right.replace("...", front)
    # Without an arrow: what the ellipsis stands for, then the letters that occur once, in the order of the alphabet.
    once = [c for c in set(used) if used.count(c) == 1 and c not in front]
    return names, front + "".join(sorted(once))


def _need_few_terms(names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """Refuse an index space that is too large to write out, and a diagonal."""
    sizes: dict[str, int] = {}
    for name, tensor in zip(names, tensors, strict=True):
        sizes |= dict(zip(name, tensor.shape, strict=True))
    repeated = any(len(set(name)) < len(name) for name in names)
    if math.prod(sizes.values()) > MAX_TERMS or repeated:
        raise UnsupportedOperation("einsum", "index space too large to record, or a repeated letter in one operand")


def _along(ids: Tensor, name: str, order: str) -> Tensor:
    """The dimensions called ``name`` in the places of ``order``; the others have length one."""
    places = [name.index(c) for c in order if c in name]
    new_axes = [slice(None) if c in name else None for c in order]
    return ids.permute(places)[tuple(new_axes)]


@operation("einsum")
def einsum(tape: Recording, equation: str, *operands: Any) -> Symbolic:
    """Lemma: an einsum is the product of its operands on the common index space, summed over the missing letters."""
    if not isinstance(equation, str):
        raise UnsupportedOperation("einsum", "write the equation as text")
    listed = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    given = operands[0] if listed else operands
    tensors = [lift(tape, operand).ids for operand in given]
    names, out = _einsum_letters(equation, [t.ndim for t in tensors])
    missing = set("".join(names)) - set(out)
    order = out + "".join(sorted(missing))
    _need_few_terms(names, tensors)
    pairs = zip(names, tensors, strict=True)
    spread = [Symbolic(tape, _along(t, name, order)) for name, t in pairs]
    product = spread[0]
    for factor in spread[1:]:
        product = mul(tape, product, factor)
    summed = list(range(len(out), len(order)))
    return total(tape, product, summed) if summed else product


def _letters(part: str, ndim: int, spare: list[str]) -> str:
    if "..." not in part:
        return part
    count = ndim - len(part) + 3
    # Dimensions are matched from the last one, as in broadcasting.
    letters = spare[len(spare) - count :]
    return part.replace("...", "".join(letters))


@operation("gelu")
def gelu(tape: Recording, input: Any, *, approximate: str = "none") -> Symbolic:
    """x times the normal distribution function, or its approximation by tanh."""
    if approximate == "none":
        return unary(tape, "gelu", input)
    if approximate != "tanh":
        raise UnsupportedOperation("gelu(approximate)", "it is 'none' or 'tanh'")
    cubed = mul(tape, 0.044715, power(tape, input, 3))
    inner = mul(tape, math.sqrt(2 / math.pi), add(tape, input, cubed))
    gate = add(tape, 1.0, unary(tape, "tanh", inner))
    return mul(tape, mul(tape, 0.5, input), gate)


@operation("softplus")
def softplus(tape: Recording, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Symbolic:
    """log(1 + exp(beta x)) / beta where beta x <= threshold, and x above: torch's function jumps between the two.

    It is recorded where the box shows on which side of the threshold every value lies.
    """
    scaled = mul(tape, float(beta), input)
    smooth = div(tape, unary(tape, "softplus", scaled), float(beta))
    curved = smooth.ids.flatten().tolist()
    plain = lift(tape, input).ids.flatten().tolist()
    chosen = []
    places = scaled.ids.flatten().tolist()
    for at, below, above in zip(places, curved, plain, strict=True):
        low, high = range_over(tape, at)
        # Written so that NaN, an unknown range, decides nothing.
        if not (high <= threshold or low > threshold):
            raise UnsupportedOperation(
                "softplus",
                f"it jumps where {beta:g} x = {threshold:g}, which the box does not exclude; "
                "write torch.log(1 + torch.exp(x)), or -F.logsigmoid(-x) for large x",
            )
        chosen.append(below if high <= threshold else above)
    return Symbolic(tape, positions(chosen, scaled.shape))


@operation("elu")
def elu(tape: Recording, input: Any, alpha: float = 1.0, inplace: bool = False) -> Symbolic:
    """relu(x) + alpha (exp(min(x, 0)) - 1)"""
    negative = unary(tape, "expm1", minimum(tape, input, 0.0))
    positive = unary(tape, "relu", input)
    return add(tape, positive, mul(tape, float(alpha), negative))


@operation("leaky_relu")
def leaky_relu(tape: Recording, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Symbolic:
    """x, scaled where it is negative."""
    negative = unary(tape, "relu", neg(tape, input))
    positive = unary(tape, "relu", input)
    return sub(tape, positive, mul(tape, float(negative_slope), negative))


@operation("hardtanh")
def hardtanh(
    tape: Recording, input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Symbolic:
    """x between two numbers."""
    return clamp(tape, input, min_val, max_val)


@operation("relu6")
def relu6(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
    """x between 0 and 6."""
    return clamp(tape, input, 0.0, 6.0)


@operation("log_sigmoid")
def logsigmoid(tape: Recording, input: Any) -> Symbolic:
    """log of the sigmoid."""
    return unary(tape, "log", unary(tape, "sigmoid", input))


@operation("softsign")
def softsign(tape: Recording, input: Any) -> Symbolic:
    """x / (1 + |x|)."""
    return div(tape, input, add(tape, 1.0, unary(tape, "abs", input)))


@operation("mish")
def mish(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
    """x tanh(softplus(x))."""
    return mul(tape, input, unary(tape, "tanh", unary(tape, "softplus", input)))


@operation("dropout", "alpha_dropout")
def dropout(tape: Recording, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """The identity in evaluation."""
    if training and p:
        raise UnsupportedOperation("dropout", "random in training mode; call module.eval() first")
    return input


@operation("layer_norm", neutral="cudnn_enable")
def layer_norm(
    tape: Recording, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Symbolic:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions"""
    dims = list(range(-len(normalized_shape), 0))
    if [lift(tape, input).shape[at] for at in dims] != list(normalized_shape):
        raise UnsupportedOperation("layer_norm", f"shape {tuple(normalized_shape)} is not that of the last dimensions")
    centred = sub(tape, input, mean(tape, input, dims, True))
    variance = mean(tape, power(tape, centred, 2), dims, True)
    spread = add(tape, variance, float(eps))
    y = div(tape, centred, unary(tape, "sqrt", spread))
    y = y if weight is None else mul(tape, y, weight)
    if bias is None:
        return y
    return add(tape, y, bias)
