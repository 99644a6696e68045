"""Structural operations on Taylor models do what they do on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

INDEX = torch.tensor([2, 0, 1, 1])
MASK = torch.tensor([True, False, True])
STRUCTURE: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: x[:, 1],
    "negative int": lambda x: x[..., -1],
    "ellipsis": lambda x: x[..., 0],
    "slice": lambda x: x[:, 1:, ::2],
    "none": lambda x: x[:, None, :, 1],
    "index tensor": lambda x: x[:, INDEX],
    "index list": lambda x: x[:, [2, 0]],
    "mask": lambda x: x[:, MASK],
    "mixed": lambda x: x[..., None, INDEX, 0],
    "reshape": lambda x: x.reshape(x.shape[0], -1),
    "view": lambda x: x.view(x.shape[0], 2, 3),
    "flatten": lambda x: torch.flatten(x, 1),
    "unflatten": lambda x: x.flatten(1).unflatten(1, (2, 3)),
    "squeeze": lambda x: x[:, :, :1].squeeze(-1),
    "unsqueeze": lambda x: torch.unsqueeze(x, 1).unsqueeze(-1),
    "transpose": lambda x: x.transpose(1, 2),
    "mT": lambda x: x.mT,
    "permute": lambda x: x.permute(0, 2, 1),
    "movedim": lambda x: torch.movedim(x, -1, 1),
    "expand": lambda x: x[:, None].expand(-1, 4, -1, -1),
    "broadcast_to": lambda x: torch.broadcast_to(x[:, :1], x.shape),
    "stack": lambda x: torch.stack([x[:, 0], x[:, 2] * 2], dim=1),
    "stack with a constant": lambda x: torch.stack([x[:, 0], torch.ones_like(x[:, 0])], dim=-1),
    "cat": lambda x: torch.cat([x, x[:, :1]], dim=1),
    "cat with a tensor": lambda x: torch.cat([x, torch.ones(x.shape[0], 1, 2, dtype=torch.float64)], dim=1),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: torch.roll(x, 1, -1),
    "split": lambda x: torch.split(x, 2, dim=1)[0],
    "chunk": lambda x: x.chunk(2, dim=-1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 2),
    "index_select": lambda x: x.index_select(1, INDEX),
    "iteration": lambda x: next(iter(x)),
    "sum": lambda x: x.sum(-1),
    "sum of all events": lambda x: x.sum((1, 2)),
    "mean": lambda x: x.mean(dim=1, keepdim=True),
    "matmul constant": lambda x: x @ torch.arange(8.0, dtype=torch.float64).reshape(2, 4),
    "constant matmul": lambda x: torch.arange(12.0, dtype=torch.float64).reshape(4, 3) @ x,
    "matrix vector": lambda x: x @ torch.tensor([1.0, -2.0], dtype=torch.float64),
    "models matmul": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("bij,jk->bik", x, torch.ones(2, 5, dtype=torch.float64)),
    "einsum capitals": lambda x: torch.einsum("BIP,P->BI", x, torch.tensor([3.0, 4.0], dtype=torch.float64)),
    "einsum implicit": lambda x: torch.einsum("bij", x),
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(3, 2, dtype=torch.float64), torch.ones(3).double()),
    "where": lambda x: torch.where(MASK[:, None], x, x * 2),
    "masked_fill": lambda x: x.masked_fill(MASK[:, None], 0.5),
    "amax": lambda x: x.amax(1),
    "max with indices": lambda x: x.max(1).values,
    "min of two": lambda x: torch.min(x, x.flip(1)),
    "sort": lambda x: x.sort(dim=1).values,
    "sort descending": lambda x: torch.sort(x, dim=1, descending=True).values,
    "topk": lambda x: x.topk(2, dim=1).values,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp one side": lambda x: torch.clamp(x, min=0.1),
    "negation": lambda x: -x,
    "reflected": lambda x: 1.0 - x + 2.0 * x / 4.0 - (3.0 / (x + 5.0)),
    "tensor on the left": lambda x: torch.ones(3, 2, dtype=torch.float64) - x * torch.full((2,), 3.0),
    "powers": lambda x: x**2 + x**3 + (x + 4.0) ** -1 + (x + 4.0) ** 0.5 + 2.0**x + x**0 + (x + 4) ** x,
    "comparison": lambda x: torch.where((x > 0.1) & ~(x > 0.9) | (x <= -0.3), x, x + 1),
    "logical": lambda x: torch.where(torch.logical_not(x < 0), x * x, -x),
    "prod": lambda x: x.prod(1),
    "prod of all": lambda x: torch.stack([torch.prod(row) for row in x]),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "norm": lambda x: x.norm(dim=-1),
    "linalg norm": lambda x: torch.linalg.norm(x.flatten(1), dim=1),
    "vector norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=(1, 2)),
    "vector norm inf": lambda x: torch.linalg.vector_norm(x, torch.inf, dim=1),
    "var": lambda x: x.var(1),
    "std": lambda x: torch.std(x, dim=1, unbiased=False),
    "hypot": lambda x: torch.hypot(x[:, 0] + 3, x[:, 1]),
    "to": lambda x: x.to(torch.float64).double().contiguous().clone().detach(),
}  # fmt: skip


def boxes(width: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    lower = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    return lower, lower + width


@pytest.mark.parametrize("name", STRUCTURE)
@pytest.mark.parametrize("width", [0.0, 1e-4])
def test_matches_torch(name: str, width: float) -> None:
    """Shape and values, at a point box and at both ends of a small one."""
    lower, upper = boxes(width)
    result = STRUCTURE[name](variables(lower, upper, 3))
    low, high = result.range()
    for x in (lower, upper, lower / 2 + upper / 2):
        expected = STRUCTURE[name](x)
        assert tuple(result.shape) == tuple(expected.shape)
        assert bool(((low - 1e-13 <= expected) & (expected <= high + 1e-13)).all())
    assert float((high - low).max()) <= 400 * width + 1e-11


def test_attributes_of_a_tensor() -> None:
    x = variables(*boxes(0.1), order=2)
    assert x.shape == (5, 3, 2)
    assert (x.ndim, x.dim(), x.dtype, x.size(-1), x.numel(), len(x)) == (3, 3, torch.float64, 2, 30, 5)
    assert (x.size(), x.execution, x.is_floating_point()) == (x.shape, None, True)
    assert "TaylorModel" in repr(x)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: torch.fft.fft(x), "fft_fft"),
        (lambda x: x.add_(1), "add_"),
        (lambda x: torch.einsum("bij,bij,bij->b", x, x, x), "einsum of more than two operands"),
        (lambda x: bool(x), "bool"),
        (lambda x: torch.linalg.inv(x), "linalg_inv"),
        (lambda x: x.no_such_method(), "no_such_method"),
        (lambda x: x.long(), "long"),
        (lambda x: x.to(torch.int64), "cast to int64"),
        (lambda x: x.sum(-1, dtype=torch.float16), "cast to float16"),
        (lambda x: torch.softmax(x, -1, dtype=torch.bfloat16), "cast to bfloat16"),
        (lambda x: math.sin(x), "float"),
        (lambda x: np.asarray(x), "numpy.array"),
        (lambda x: torch.zeros(5, 3, 2).__setitem__(0, x), "setitem"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "div(rounding_mode='floor')"),
        (lambda x: torch.nn.functional.dropout(x, 0.5, training=True), "dropout in training mode"),
    ],
)
def test_unsupported_operations_are_named(operation: Callable[[TaylorModel], Any], name: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        operation(variables(*boxes(0.1), order=2))
    assert caught.value.operation == name
    assert "\n" not in str(caught.value)


def test_coarser_casts_than_the_execution_are_refused() -> None:
    lower, upper = boxes(0.1)
    assert variables(lower, upper, 2, execution=torch.float32).float().execution == torch.float32
    for execution in (torch.float64, None):
        with pytest.raises(UnsupportedOperation, match="cast to float32"):
            variables(lower, upper, 2, execution=execution).float()
    assert not hasattr(variables(lower, upper, 2), "is_quantized")


def test_numpy_functions_are_the_torch_ones() -> None:
    lower, upper = boxes(1e-3)
    x = variables(lower, upper, 2)
    low, high = (np.ones((3, 2)) * np.exp(x) - np.float64(2.0) * np.sin(x)).range()
    expected = torch.exp(lower) - 2 * torch.sin(lower)
    assert bool(((low <= expected) & (expected <= high)).all())


def test_variables_refuse_nonsense() -> None:
    lower, upper = boxes(0.1)
    with pytest.raises(OnelayerError, match="one shape"):
        variables(lower, upper[:, :2], 2)
    with pytest.raises(OnelayerError, match="between 1 and 16"):
        variables(lower, upper, 17)


def test_models_of_different_orders_do_not_mix() -> None:
    lower, upper = boxes(0.1)
    with pytest.raises(UnsupportedOperation, match="mixed"):
        variables(lower, upper, 2) + variables(lower, upper, 3)
