"""Sums over rows on a GPU: those of the compiled and the plain way, upwards, and what is not a number stays so."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from onelayer.taylor import basis, fused, tables, variables
from onelayer.taylor.core import TaylorModel

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def rows(variables: int, degree: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(variables)
    size = basis.count(variables, degree), columns
    wide = torch.exp(8 * torch.randn(*size, generator=generator, dtype=torch.float64))
    return (wide * torch.randn(*size, generator=generator, dtype=torch.float64)).cuda()


@pytest.mark.parametrize(("variables", "degree"), [(2, 8), (6, 3), (8, 2)])
def test_sums_are_no_smaller_than_the_exact_ones(variables: int, degree: int) -> None:
    coef = rows(variables, degree, 700)
    norms, total = fused.sums(coef, variables, degree)
    for column in range(0, 700, 97):
        exact = [Fraction(0)] * (degree + 1)
        for d in range(degree + 1):
            exact[d] = sum((abs(Fraction(x)) for x in coef[basis.block(variables, d), column].tolist()), Fraction(0))
            assert (
                exact[d] <= Fraction(float(norms[d, column])) <= exact[d] * Fraction(1 + 2.0**-29) + Fraction(1, 2**900)
            )
        assert sum(exact) <= Fraction(float(total[column]))


def test_what_is_not_a_number_stays_so() -> None:
    coef = rows(3, 2, 300)
    coef[4, 17] = torch.nan
    norms, total = fused.sums(coef, 3, 2)
    assert norms.isnan().nonzero().tolist() == [[2, 17]]
    assert total.isnan().nonzero().tolist() == [[17]]


def test_shares_and_models() -> None:
    coef = rows(6, 3, 513)
    table = tables.exponents(6, 3, coef.device)
    assert fused.ready(coef)
    assert torch.allclose(fused.weighted_sizes(coef, table), torch.tensordot(table.T, coef.abs(), dims=1), rtol=1e-12)
    low = torch.rand(50, 3, dtype=torch.float64)
    here, there = (
        torch.sin(x[:, 0] * x[:, 1]) + x[:, 2] for x in (variables(a, a + 0.1, 3) for a in (low, low.cuda()))
    )
    assert isinstance(there, TaylorModel)
    assert torch.allclose(here.norms(), there.norms().cpu(), rtol=1e-12)
    assert torch.allclose(here.split_bound(), there.split_bound().cpu(), rtol=1e-12)
    assert torch.allclose(here.sensitivity(), there.sensitivity().cpu(), rtol=1e-12)
