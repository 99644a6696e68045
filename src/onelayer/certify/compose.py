"""g(Taylor model) for an elementary g.

With x = c + p(t) + rho, |rho| <= R, and I the range of x: g(x) = sum_{n<=k} g_n(c) p^n + E, where
|E| <= sup_I |g_{k+1}| |p|^{k+1} + sup_I |g'| R (Lagrange for p, mean value for rho).
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.certify import basis
from onelayer.certify.arithmetic import multiply
from onelayer.certify.core import TaylorModel, implements, prune
from onelayer.certify.elementary import COS, EXP, SIN, Elementary
from onelayer.certify.rounding import UNIT, executed, inflate


def compose(g: Elementary, x: TaylorModel, roundings: float = 8) -> TaylorModel:
    """g(x), with the error of an executed g (``roundings`` units) when x is executed."""
    x = prune(x)
    result = _of_affine(g, x) if x.degree <= 1 else _of_polynomial(g, x)
    result.rem = executed(result.rem, result.magnitude(), roundings, x.execution)
    return result


def _reach(x: TaylorModel) -> tuple[Tensor, Tensor, Tensor]:
    """Bound of |p|, and the range of c + p + rho."""
    size = inflate(x.norms()[1:].sum(0))
    lower, upper = x.range()
    return size, lower, upper


def _of_affine(g: Elementary, x: TaylorModel) -> TaylorModel:
    """Closed form: the coefficient of t^alpha is g_n multinomial(alpha) a^alpha, n = |alpha|."""
    s = len(x.support)
    k = x.space.cap(s)
    series, error = g.series(x.coef[0], k)
    size, lower, upper = _reach(x)
    coef = _powers(x.coef[1:], k, series)
    rem = torch.zeros_like(x.rem)
    for n in range(k, -1, -1):
        rem = rem * size + error[n] + (2 * n + 3) * UNIT * series[n].abs()
    if s:
        rem = rem + g.bound(lower, upper, k + 1) * size ** (k + 1)
    rem = rem + torch.where(x.rem > 0, g.bound(lower, upper, 1) * x.rem, x.rem)
    return TaylorModel(coef, inflate(rem), x.space, x.support, k)


def _powers(slopes: Tensor, k: int, series: Tensor) -> Tensor:
    s = len(slopes)
    blocks = [torch.ones_like(series[:1])]
    for n in range(1, k + 1):
        last = blocks[-1]
        blocks.append(torch.cat([slopes[i] * last[_suffix(s, i, n - 1, len(last)) :] for i in range(s)]))
    weights = torch.tensor(basis.multinomials(s, k), dtype=torch.float64, device=slopes.device)
    parts = []
    row = 0
    for n, part in enumerate(blocks):
        factor = weights[row : row + len(part)].view(-1, *[1] * (part.ndim - 1))
        parts.append(part * factor * series[n])
        row += len(part)
    return torch.cat(parts)


def _suffix(s: int, i: int, degree: int, length: int) -> int:
    """First row, within the block of this degree, of the monomials that avoid the first i variables."""
    rest = basis.block(s - i, degree)
    return length - (rest.stop - rest.start)


def _of_polynomial(g: Elementary, x: TaylorModel) -> TaylorModel:
    """Horner in p, keeping at step n only the degrees that can still reach the cap."""
    k = x.space.cap(len(x.support))
    series, error = g.series(x.coef[0], k)
    size, lower, upper = _reach(x)
    increment = x.coef.clone()
    increment[0] = 0
    p = x.with_(increment, torch.zeros_like(x.rem))
    result = TaylorModel(series[k][None], error[k], x.space, (), 0)
    for n in range(k - 1, -1, -1):
        result = multiply(result, p, cap=k - n)
        result.coef[0] += series[n]
        result.rem = inflate(result.rem + error[n] + (1.01 * UNIT) * result.coef[0].abs())
    rem = result.rem + g.bound(lower, upper, k + 1) * size ** (k + 1)
    rem = rem + torch.where(x.rem > 0, g.bound(lower, upper, 1) * x.rem, x.rem)
    return result.with_(result.coef, inflate(rem))


@implements("exp")
def exp(x: TaylorModel) -> TaylorModel:
    return compose(EXP, x)


@implements("sin")
def sin(x: TaylorModel) -> TaylorModel:
    return compose(SIN, x)


@implements("cos")
def cos(x: TaylorModel) -> TaylorModel:
    return compose(COS, x)
