"""Quotients with a removable singularity are read as functions that have their limit there, whoever writes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.language.formula import parse

# What is written, what is read, and the value where everything vanishes.
READ = {
    "sin(x)/x": ("sinrel(x1)", 1.0),
    "x**-1*sin(x)": ("sinrel(x1)", 1.0),
    "sin(2*x)/x": ("2 * sinrel(2 * x1)", 2.0),
    "sin(x)**2/x/x": ("sinrel(x1)**2", 1.0),
    "(exp(x) - 1)/x": ("exprel(x1)", 1.0),
    "expm1(x)/(3*x)": ("exprel(x1) / 3", 1 / 3),
    "(1 - exp(x))/x": ("exprel(x1) * (-1)", -1.0),
    "(1 - cos(x))/x**2": ("sinrel(x1 / 2)**2 / 2", 0.5),
    "(cos(x) - 1)/x/x": ("sinrel(x1 / 2)**2 * (-1) / 2", -0.5),
    "(1 - cos(x))/x": ("t1 = x1 / 2;\nsinrel(t1) * sin(t1)", 0.0),
    "log(1 + x)/x": ("1 / exprel(log(1 + x1))", 1.0),
    "log1p(x)/x": ("1 / exprel(log(1 + x1))", 1.0),
    "log(1 - x)/x": ("-1 / exprel(log(1 - x1))", -1.0),
    "tan(x)/x": ("sinrel(x1) / cos(x1)", 1.0),
    "sinh(x)/x": ("exp(-x1) * exprel(2 * x1)", 1.0),
}


@pytest.mark.parametrize("text", READ)
def test_the_quotient_has_its_limit(text: str) -> None:
    formula, (read, limit) = parse(text, 1), READ[text]
    assert str(formula) == read
    assert parse(str(formula), 1) == formula
    x = torch.tensor([[0.0], [1e-9], [-0.3], [0.7]], dtype=torch.float64)
    values = formula(x).tolist()
    assert values[:2] == pytest.approx([limit, limit], abs=1e-8)
    assert values[2:] == pytest.approx([_plain(text, -0.3), _plain(text, 0.7)], rel=1e-12)


def _plain(text: str, x: float) -> float:
    """What the text says, by the functions of math."""
    functions = {name: getattr(math, name) for name in ("sin", "cos", "tan", "exp", "log", "expm1", "log1p", "sinh")}
    return float(eval(text, functions, {"x": x}))


def test_other_factors_stay_and_nothing_else_is_cancelled() -> None:
    rabi = "a*t*sin((w - v)*t/2)**2/((w - v)*t/2)**2"
    assert str(parse(rabi, 4, names=("a", "t", "w", "v"))) == "x1 * x2 * sinrel((x3 - x4) * x2 / 2)**2"
    for text in ("x*y/x", "cos(x)/x", "sin(x)*y/(x*y)", "(exp(x) - 2)/x", "log(2 + x)/x", "sin(x)/y"):
        values = parse(text, 2)(torch.zeros(1, 2, dtype=torch.float64))
        assert not bool(torch.isfinite(values).any()), text


@pytest.mark.parametrize(
    "f",
    [
        "sin(x)/x",
        lambda x: torch.sin(x[..., 0]) / x[..., 0],
        lambda x: np.sin(x[..., 0]) / x[..., 0],
        lambda x: np.sinc(x[..., 0] / np.pi),
    ],
    ids=["text", "torch", "NumPy", "np.sinc"],
)
def test_every_door_proves_it_across_zero(f: object) -> None:
    made = ol.approximate(f, ol.Box([-1], [2]), eps=1e-4)
    assert made.certificate.proved
    assert float(made.model(torch.zeros(1, 1, dtype=torch.float64))) == pytest.approx(1.0, abs=1e-4)


def test_sympy_has_the_other_sinc() -> None:
    sympy = pytest.importorskip("sympy")
    x = sympy.Symbol("x")
    box = ol.Box(x=(-1, 2))
    assert ol.approximate(sympy.sinc(x) + sympy.loggamma(x + 2), box, eps=1e-3).certificate.proved
    assert ol.approximate((sympy.exp(x) - 1) / x, box, eps=1e-3).certificate.proved
