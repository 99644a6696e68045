"""as_target: every kind of f understood, every unfit f refused in one line that names the place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onelayer.box import Box
from onelayer.errors import FormulaError, OnelayerError, UnsupportedOperation
from onelayer.language.endpoints import parse_domain
from onelayer.language.formula import parse
from onelayer.recording.lipschitz import Lipschitz
from onelayer.recording.target import as_target

SQUARE = Box([0, 0], [1, 1])
LINE = Box([-1.0], [2.0])


def test_kinds() -> None:
    text = as_target("sin(x) * y", SQUARE)
    assert (text.kind, text.output_shape, text.description) == ("formula", (), "sin(x) * y")
    formula = as_target(parse("x1; x2; x1*x2"), SQUARE)
    assert (formula.kind, formula.output_shape) == ("formula", (3,))
    call = as_target(lambda x: torch.sin(x).sum(-1), SQUARE, lipschitz=3.0)
    assert (call.kind, str(call.formula), call.lipschitz) == ("callable", "sin(x1) + sin(x2)", None)
    module = as_target(nn.Linear(2, 4), SQUARE)
    assert (module.kind, module.output_shape) == ("module", (4,))
    assert as_target(text, SQUARE) is text


def test_a_float32_module_is_the_same_function_in_float64() -> None:
    module = nn.Linear(2, 1)
    target = as_target(module, SQUARE)
    x = torch.rand(5, 2, dtype=torch.float64)
    want = x @ module.weight.double().mT + module.bias.double()
    torch.testing.assert_close(target.function(x), want, rtol=1e-14, atol=0)
    assert module.weight.dtype == torch.float32


def test_sequences_keep_their_shape() -> None:
    box = Box(torch.zeros(3, 2), torch.ones(3, 2))
    target = as_target(lambda x: torch.sort(x, dim=-2).values, box)
    assert (target.input_shape, target.output_shape) == ((3, 2), (3, 2))
    x = torch.rand(4, 3, 2, dtype=torch.float64)
    assert target.formula is not None
    torch.testing.assert_close(target.formula(x), target.function(x))
    text = as_target("x1 + x6", box)
    assert text.function(x).shape == (4,)


@pytest.mark.parametrize("f", [lambda x: np.sin(x[..., 0]) * x[..., 1], lambda p: math.sin(p[0]) * float(p[1])])
def test_a_declared_constant_makes_a_black_box(f: Callable[..., Any]) -> None:
    target = as_target(f, SQUARE, lipschitz=2)
    assert (target.kind, target.lipschitz, target.formula) == ("blackbox", Lipschitz((2.0,)), None)
    x = torch.rand(3, 4, 2, dtype=torch.float64)
    torch.testing.assert_close(target.function(x), torch.sin(x[..., 0]) * x[..., 1])


def test_what_cannot_be_recorded_is_refused_or_conditional() -> None:
    with pytest.raises(UnsupportedOperation, match=r"special_bessel_j0.*give lipschitz="):
        as_target(lambda x: torch.special.bessel_j0(x[..., 0]), SQUARE)
    target = as_target(lambda x: torch.special.bessel_j0(x[..., 0]), SQUARE, lipschitz=1.0)
    assert (target.formula, target.lipschitz) == (None, Lipschitz((1.0,)))
    assert "special_bessel_j0" in target.unrecorded


@pytest.mark.parametrize(
    ("f", "box", "message"),
    [
        ("1/x", LINE, "undefined at x = (0) (division by zero)"),
        ("1/(x - y + 0.01)", SQUARE, "division by zero"),
        ("x**-3", LINE, "undefined at x = (0)"),
        ("log(x)", Box([0.0], [1.0]), "undefined at x = (0) (logarithm"),
        ("sqrt(x)", LINE, "(square root of a negative number)"),
        ("tan(x)", LINE, "undefined at x = (1.5708) (pole of tan)"),
        ("exp(1000*x)", LINE, "not finite at x = (2)"),
        ("x + y", LINE, "column 5: variable y, but the domain has 1 interval: it takes one per variable"),
        (lambda x: 1 / x[..., 0], LINE, "undefined at x = (0)"),
        (lambda x: torch.log(x[..., 0]), SQUARE, "undefined at x = (0, 0)"),
        (lambda x: torch.round(x[..., 0]), LINE, "'round' is not supported: it is discontinuous"),
        (lambda x: x.mean(), LINE, "must keep the batch dimension"),
        (lambda x: x[..., 0] - x[..., 0].mean(), LINE, "must treat every point of a batch alone"),
        (lambda x: x[..., 0] + 1j, LINE, "returned torch.complex128"),
        (lambda x: torch.ones(x.shape[:-1], dtype=torch.int64), LINE, "returned torch.int64"),
        (lambda x: x[..., 5], LINE, "failed on a batch of shape"),
        (lambda x: "text", LINE, "returned str"),
        (7, LINE, "got int"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(f: Any, box: Box, message: str) -> None:
    with pytest.raises(OnelayerError) as caught:
        as_target(f, box)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lipschitz_must_be_a_number() -> None:
    with pytest.raises(OnelayerError, match="finite number"):
        as_target(np.sin, LINE, lipschitz=math.nan)


def test_domain_text_rounds_outward() -> None:
    box = parse_domain("0:2*pi, -pi:1/3, 0.1:2")
    assert box.lower.tolist() == [0.0, math.nextafter(-math.pi, -4), 0.1]
    assert box.upper.tolist() == [math.nextafter(2 * math.pi, 7), math.nextafter(1 / 3, 1), 2.0]
    assert parse_domain("-1:1") == Box([-1.0], [1.0])
    assert parse_domain("min(0, 1):sqrt(4); 1:1") == Box([0.0, 1.0], [2.0, 1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:0", "smaller endpoint first"),
        ("0, 1", "lower:upper"),
        ("x:1", "must be a constant"),
        ("", "written lower:upper per coordinate"),
        ("[0, 1] x [0, 2]", "written lower:upper per coordinate"),
        ("0:1 2:3", "comma"),
        ("0:inf", "unknown name 'inf'"),
        ("log(0):1", "no finite value"),
        ("exp(700)*exp(700):1", "no finite value"),
    ],
)
def test_bad_domains_are_refused(text: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message.replace("(", r"\(")):
        parse_domain(text)


class Grown(nn.Module):
    """A module that holds what it computed of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)
        self.doubled = self.inner.weight * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.doubled.double())[..., 0]


def test_a_module_that_cannot_be_copied_ends_in_one_line() -> None:
    with pytest.raises(OnelayerError, match="proved as a copy") as caught:
        as_target(Grown(), LINE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("f", [lambda x: x[:, 0:0], lambda x: np.repeat(x, 0, -1)])
def test_a_function_without_outputs_ends_in_one_line(f: Callable[..., Any]) -> None:
    with pytest.raises(OnelayerError, match="no output"):
        as_target(f, LINE)
