"""Recorded callables compute what the callable computes; what cannot be recorded is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language.formula import parse
from onelayer.recording import recorder
from onelayer.recording.recorder import record

MATRIX = torch.tensor([[2.0, 1.0, -0.5], [0.0, 1.0, 0.25], [1.0, 0.0, 3.0]], dtype=torch.float64)


def written_in_place(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[..., 0] = x[..., 1]
    out[..., 1:] = 2 * x[..., :-1]
    return out


CALLABLES: list[tuple[str, Callable[[Tensor], Tensor], tuple[int, ...]]] = [
    ("sum of sines", lambda x: torch.sin(x[..., 0]) + torch.sin(x[..., 1]), (2,)),
    ("float constants", lambda x: torch.exp(torch.sin(math.pi * x[:, 0]) + x[:, 1] ** 2), (2,)),
    ("methods", lambda x: x.sin().pow(2).sum(-1) + x.mean(dim=-1) - x[..., 0].abs().sqrt(), (3,)),
    ("reflected operators", lambda x: 2 ** x[..., 0] + 1 / (2 + x[..., 0]) - (3 - x[..., 0]) / 7 + (-x[..., 0]), (1,)),
    ("softmax", lambda x: torch.softmax(x, -1), (3,)),
    ("log-softmax", lambda x: F.log_softmax(x, -1) + torch.logsumexp(x, -1, keepdim=True), (3,)),
    ("sort", lambda x: torch.sort(x, dim=-1).values, (4,)),
    ("sort down", lambda x: x.sort(descending=True)[0], (4,)),
    ("maxima", lambda x: x.amax(-1) + x.max(-1).values - x.min(dim=-1)[0] + torch.maximum(x[..., 0], x[..., 1]), (3,)),
    ("norms", lambda x: x.norm(dim=-1) + torch.linalg.norm(x, dim=-1) + x.norm(p=1, dim=-1), (3,)),
    ("moments", lambda x: x.std(-1) + x.var(-1) + torch.var(x, -1, unbiased=False) + x.prod(-1), (3,)),
    ("quadratic form", lambda x: torch.einsum("...i,ij,...j->...", x, MATRIX, x), (3,)),
    ("implicit einsum", lambda x: torch.einsum("bi,ij", x, MATRIX), (3,)),
    ("matmul", lambda x: x @ MATRIX + (MATRIX @ x.unsqueeze(-1)).squeeze(-1), (3,)),
    ("linear", lambda x: F.linear(x, MATRIX, MATRIX[0]), (3,)),
    ("determinant", lambda x: (x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]) ** 2, (2, 2)),
    ("outer product", lambda x: x[..., :, None] * x[..., None, :], (3,)),
    ("stack, cat, flip", lambda x: torch.cat([x, x.flip(-1)], dim=-1).reshape(*x.shape[:-1], 2, -1), (3,)),
    ("unbind", lambda x: torch.stack([part * 2 for part in x.unbind(-1)], -1), (3,)),
    ("clamp and where", lambda x: torch.where(torch.tensor([True, False]), x.clamp(0.2, 0.5), x.clamp(min=0.4)), (2,)),
    ("in place", written_in_place, (3,)),
    ("cumsum and lerp", lambda x: torch.lerp(x.cumsum(-1), x, 0.25), (3,)),
    ("hypot", lambda x: torch.hypot(x[..., 0], x[..., 1]) + x[..., 0].rsqrt() + x[..., 1].reciprocal(), (2,)),
    ("logs", lambda x: torch.log2(x + 1) + torch.log10(x + 1) + torch.log1p(x) + torch.expm1(x), (2,)),
    ("hyperbolic", lambda x: torch.sinh(x) + torch.cosh(x) + torch.tanh(x) + torch.atan(x) + torch.erf(x), (2,)),
    ("activations", lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.elu(x - 0.5), (2,)),
    ("more activations", lambda x: F.softplus(x) + F.leaky_relu(x - 0.5) + F.softsign(x) + F.mish(x), (2,)),
    ("clipped activations", lambda x: F.relu6(9 * x) + F.hardtanh(3 * x - 1) + torch.log(x + 2), (2,)),
    ("layer norm", lambda x: F.layer_norm(x, (3,), MATRIX[0], MATRIX[1]), (3,)),
    ("attention", lambda x: F.scaled_dot_product_attention(x, 2 * x, x), (3, 2)),
    ("causal attention", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (3, 2)),
    ("tril", lambda x: torch.tril(x).sum(-1), (3, 3)),
    ("constant", lambda x: torch.full(x.shape[:-1], 0.25, dtype=x.dtype), (2,)),
]  # fmt: skip


def modules() -> list[tuple[str, nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3), nn.Sigmoid())
    post = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    pre = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=True, activation="gelu")
    return [("mlp", mlp, (2,)), ("post-norm block", post, (3, 4)), ("pre-norm block", pre, (3, 4))]


@pytest.mark.parametrize(("name", "f", "shape"), CALLABLES, ids=[name for name, *_ in CALLABLES])
def test_recording_computes_the_same(name: str, f: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    formula = record(f, shape, box=Box(torch.zeros(shape), torch.ones(shape)))
    x = torch.rand(50, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(formula(x), f(x), rtol=1e-13, atol=1e-13)
    again = parse(str(formula), formula.dim).shaped(formula.input_shape, formula.output_shape)
    assert again == formula


@pytest.mark.parametrize(("name", "module", "shape"), modules(), ids=[name for name, *_ in modules()])
def test_modules_are_recorded(name: str, module: nn.Module, shape: tuple[int, ...]) -> None:
    module = module.double().eval()
    formula = record(module, shape)
    x = torch.randn(20, *shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(formula(x), module(x), rtol=1e-11, atol=1e-11)
    again = parse(str(formula), formula.dim, limit=10**7).shaped(formula.input_shape, formula.output_shape)
    assert again == formula


def branch(x: Tensor) -> Tensor:
    return x[..., 0] if x.sum() else x[..., 1]


def into_plain_tensor(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape, dtype=torch.float64)
    out[..., 0] = x[..., 0]
    return out


@pytest.mark.parametrize(
    ("f", "operation", "hint"),
    [
        (lambda x: torch.round(x[..., 0]), "round", "discontinuous"),
        (lambda x: torch.where(x[..., 0], x[..., 0], 0.0), "where", "such as x > 0"),
        (branch, "bool(x)", "torch.where(x > 0, a, b)"),
        (lambda x: math.sin(x[..., 0]), "float(x)", "torch.sin instead of math.sin"),
        (lambda x: x[..., 0].item(), "float(x)", "control flow"),
        (lambda x: x.numpy(), "numpy(x)", "lipschitz="),
        (lambda x: torch.fft.fft(x)[..., 0], "fft_fft", "not in the formula language"),
        (into_plain_tensor, "__setitem__", "torch.stack"),
        (lambda x: torch.linalg.det(x[..., None] * x[..., None, :])[..., 0], "linalg_det", "write the determinant out"),
        (lambda x: F.dropout(x[..., 0], 0.5), "dropout", "eval"),
        (lambda x: x[..., 0] * complex(0, 1), "complex", "real"),
    ],
)
def test_refusals_name_the_operation(f: Callable[[Tensor], Tensor], operation: str, hint: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        record(f, (2,))
    assert caught.value.operation == operation
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_size_limit_is_stated() -> None:
    wide = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64)).double()
    with pytest.raises(UnsupportedOperation, match="more than 1,000 operations"):
        record(wide, (2,), limit=1000)


def test_constants_are_exactly_their_floats() -> None:
    formula = record(lambda x: x[..., 0] * 0.1 + torch.tensor(0.1, dtype=torch.float32), (1,))
    numbers = {node.value for node in formula.nodes if node.op == "num"}
    assert numbers == {0.1, float(torch.tensor(0.1, dtype=torch.float32))}


def test_a_long_function_that_mixes_its_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mean differs from the point, and only there: no value shows it."""
    monkeypatch.setattr(recorder, "LONG", 5)

    def f(x: Tensor) -> Tensor:
        near = 1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2
        return torch.sin(torch.exp(torch.sin(x[..., 0]))) + near * (x[..., 0] - x.mean(0)[..., 0])

    with pytest.raises(OnelayerError, match="depends on point 2"):
        record(f, (1,))
