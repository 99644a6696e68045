"""Code whose keywords, indices or results once raised errors of others: as f and as T a true bound, or one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onelayer import Box, OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify

BOX = Box([0.125, 0.0], [1.0, 1.0])
FIRST = torch.tensor([True, False])
CODE: dict[str, Callable[[Any], Any]] = {
    "norm over a dimension": lambda x: torch.norm(x, dim=-1),
    "norm of a kind over a dimension": lambda x: torch.norm(x, p=1, dim=-1),
    "roll": lambda x: torch.roll(x, 1, dims=-1)[..., 0],
    "roll by names": lambda x: x.roll(shifts=(1,), dims=(1,))[..., 0],
    "flip": lambda x: torch.flip(x, dims=(-1,))[..., 0],
    "permute": lambda x: x[:, :, None].permute(dims=(0, 2, 1))[:, 0, 1],
    "a factor of a number added": lambda x: torch.add(x, 3, alpha=2)[..., 0],
    "a factor of what is subtracted": lambda x: torch.sub(x, 2 * x, alpha=3)[..., 0],
    "a condition as a factor": lambda x: ((x > 0.5) * x)[..., 0],
    "a remainder": lambda x: (x % 0.3)[..., 0],
    "a sum over no dimensions": lambda x: x.sum(dim=()),
    "a sum over no dimensions of a column": lambda x: x[..., 0].sum(dim=()),
    "indices apart": lambda x: x[:, :, None].expand(-1, -1, 2)[:, [0, 1], None, [0, 1]].sum((1, 2)),
    "an index behind a new one": lambda x: x[:, None, [1, 0]][:, 0, 0],
    "a tuple": lambda x: (x[..., 0], x[..., 1]),
    "nothing": lambda x: None,
    "a constant": lambda x: torch.full_like(x, 0.1)[..., 0] + x[..., 0],
    "a constant instead": lambda x: x.masked_fill(FIRST, 0.1)[..., 0],
    "a base": lambda x: (1.1**x)[..., 0],
    "in place": lambda x: x.mul_(2)[..., 0],
    "in place by a sign": lambda x: x.__iadd__(1)[..., 0],
}


def told(claim: Callable[[], Certificate]) -> Certificate | None:
    """The certificate, or None where the code is refused in one line."""
    try:
        return claim()
    except OnelayerError as error:
        said = str(error)
    assert "\n" not in said
    return None


def zero(x: Any) -> Any:
    return 0.0 * x[..., 0]


def largest(code: Callable[[Tensor], Any]) -> float:
    values = code(torch.cat([BOX.sample(500), BOX.corners()]))
    values = torch.stack(values, -1) if isinstance(values, tuple) else values
    return float(values.abs().max())


@pytest.mark.parametrize("name", CODE)
def test_as_f(name: str) -> None:
    found = told(lambda: certify(zero, CODE[name], BOX, 1e-3, max_boxes=100))
    if name == "a tuple" and found is None:
        return  # two outputs, and T has one
    assert found is None or found.lower <= found.upper >= largest(CODE[name]) - 1e-12


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("execution", ["float64", "float32", "real"])
def test_as_t(name: str, execution: str) -> None:
    found = told(lambda: certify(CODE[name], "0*x1", BOX, 1e-3, execution=execution, max_boxes=100))
    assert found is None or found.upper >= largest(CODE[name]) - 1e-6


@pytest.mark.parametrize("name", ["a constant", "a constant instead", "a base", "a factor of a number added"])
def test_numbers_that_float32_does_not_have_are_rounded_in_the_bound(name: str) -> None:
    """0.1 of the code is that float64; executed it is the float32 beside it, and the bound holds the difference."""
    code = CODE[name]
    found = certify(code, code, BOX, 1e-3, execution="float32", max_boxes=100)
    assert found.proved
    x = BOX.sample(2000).float()
    assert float((code(x).double() - code(x.double())).abs().max()) <= found.upper < 1e-5


@pytest.mark.parametrize("options", [{"attention": "topk", "top_k": 1}, {"attention": "hardmax"}], ids=str)
def test_layers_that_jump_are_refused_by_name(options: dict[str, Any]) -> None:
    model = OneLayerTransformer.tokens((2,), (), d_model=2, **options)
    with pytest.raises(OnelayerError, match="weights jump") as caught:
        certify(model, "x1", BOX, math.pi)
    assert "\n" not in str(caught.value)
