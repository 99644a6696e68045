"""Quotients with a removable singularity are read as functions that have their limit there, whoever writes them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb, ctx

import onelayer as ol
from onelayer.language.balls import in_balls
from onelayer.language.formula import parse

NAMES = ("sin", "asin", "atan", "cos", "tan", "exp", "log", "expm1", "log1p", "sinh", "tanh", "sqrt")
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
    "x/(exp(x) - 1)": ("1 / exprel(x1)", 1.0),
    "x/sin(x)": ("1 / sinrel(x1)", 1.0),
    "x/log(1 + x)": ("exprel(log(1 + x1))", 1.0),
    "sin(3*x)/sin(x)": ("3 * sinrel(3 * x1) / sinrel(x1)", 3.0),
    "tanh(x)/x": ("t1 = 2 * x1;\n2 * exprel(t1) * sigmoid(-t1)", 1.0),
    "(sqrt(1 + x) - 1)/x": ("1 / (sqrt(1 + x1) + 1)", 0.5),
    "(1 - exp(-x))/x": ("exprel(-x1)", 1.0),
    "asin(x)/x": ("1 / sinrel(asin(x1))", 1.0),
    "atan(2*x)/x": ("t1 = atan(2 * x1);\n2 * cos(t1) / sinrel(t1)", 2.0),
}
OF_TWO = {
    "sin(x - y)/(y - x)": -1.0,
    "sin((x - y)*2/3)/(x*2 - y*2)": 1 / 3,
    "(sin((x - y)*x/2)/((x - y)*x/2))**2": 1.0,
    "sin((x - y)*x)/(x*x - y*x)": 1.0,
    "(exp(x) - exp(y))/(x - y)": math.exp(0.75),
    "log(x/y)/(x - y)": 1 / 0.75,
    "(log(x) - log(y))/(x - y)": 1 / 0.75,
    "(x - y)/log(x/y)": 0.75,
    "(sqrt(x) - sqrt(y))/(x - y)": 0.5 / math.sqrt(0.75),
    "(x**2 - y**2)/(x - y)": 1.5,
    "(y**2 - x**2)/(x - y)": -1.5,
}


@pytest.mark.parametrize("text", OF_TWO)
def test_quotients_of_two_variables_have_their_limits_where_they_meet(text: str) -> None:
    formula = parse(text, 2)
    assert parse(str(formula), 2) == formula
    x = torch.tensor([[0.75, 0.75], [0.75, 0.75 + 1e-9], [0.4, 1.3], [2.0, 0.3]], dtype=torch.float64)
    values = formula(x).tolist()
    assert values[:2] == pytest.approx([OF_TWO[text]] * 2, abs=1e-8)
    assert values[2:] == pytest.approx([_plain(text, *point) for point in x[2:].tolist()], rel=1e-12)
    with ctx.workprec(200):
        (ball,) = in_balls(formula, [0.75, 0.75])
    assert abs(float(ball) - OF_TWO[text]) < 1e-14


@pytest.mark.parametrize("text", ["(x - y)/log(x/y)", "sin(x - y)/(y - x)", "(sqrt(x) - sqrt(y))/(x - y)"])
def test_they_are_proved_and_checked_across_the_line(text: str, tmp_path: Path) -> None:
    """Enclosures over boxes on the line x = y hold the values beside it, to 50 digits."""
    box = ol.Box([0.5, 0.5], [1.5, 1.5])
    made = ol.approximate(text, box, eps=0.02)
    assert made.certificate.proved
    made.save(tmp_path / "made")
    assert ol.check(tmp_path / "made").ok
    points = [(0.7, 0.7), (0.7, math.nextafter(0.7, 1)), (1.1, 1.1 + 1e-12), (0.5, 0.5), (1.5, 1.5 - 1e-7)]
    for x, y in points:
        with ctx.workprec(600):
            (truth,) = in_balls(parse(text, 2), [x, y])
        value = float(made.model(torch.tensor([x, y], dtype=torch.float64)))
        assert abs(value - float(truth)) <= made.certificate.upper


def test_a_denominator_that_vanishes_alone_stays() -> None:
    for text in (
        "y/(exp(x) - 1)",
        "(x**2 - 2)/(x - 1)",
        "(exp(x) - exp(y))/(x + y)",
        "tanh(x)/y",
        "(x**2 + 1)/(x + 1)",
    ):
        values = parse(text, 2)(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]], dtype=torch.float64))
        assert not bool(torch.isfinite(values).all()), text


@pytest.mark.parametrize("text", READ)
def test_the_quotient_has_its_limit(text: str) -> None:
    formula, (read, limit) = parse(text, 1), READ[text]
    assert str(formula) == read
    assert parse(str(formula), 1) == formula
    x = torch.tensor([[0.0], [1e-9], [-0.3], [0.7]], dtype=torch.float64)
    values = formula(x).tolist()
    assert values[:2] == pytest.approx([limit, limit], abs=1e-8)
    assert values[2:] == pytest.approx([_plain(text, -0.3), _plain(text, 0.7)], rel=1e-12)


def _plain(text: str, x: float, y: float = 0.0) -> float:
    """What the text says, by the functions of math."""
    functions = {name: getattr(math, name) for name in NAMES}
    return float(eval(text, functions, {"x": x, "y": y}))


def test_other_factors_stay_and_nothing_else_is_cancelled() -> None:
    rabi = "a*t*sin((w - v)*t/2)**2/((w - v)*t/2)**2"
    assert str(parse(rabi, 4, names=("a", "t", "w", "v"))) == "x1 * x2 * sinrel((x3 - x4) * x2 / 2)**2"
    for text in ("x*y/x", "cos(x)/x", "sin(x)*y/(x*y)", "(exp(x) - 2)/x", "log(2 + x)/x", "sin(x)/y"):
        values = parse(text, 2)(torch.zeros(1, 2, dtype=torch.float64))
        assert not bool(torch.isfinite(values).any()), text


@pytest.mark.parametrize(
    "text",
    [
        "sin(x)/(x/y)",
        "(x/y)**-1*sin(x)",
        "sin(x)*(y**-1)**-1/x",
        "sin(x)/(x*(1/y))",
        "sin(x)/(x/(1/(1/y)))",
        "log(1 + x)/(x/(y*y))",
        "(exp(x) - 1)/(x/y**3)",
        "sin(x)/(x/(y*(sqrt(2)**2 - 2)))",
    ],
)
def test_what_a_divisor_is_divided_by_must_not_vanish(text: str) -> None:
    """At x = 0 there is a limit, at y = 0 there is no value, as there is none of y alone: 1/(1/y)."""
    formula = parse(text, 2)
    assert parse(str(formula), 2) == formula
    x = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.5, 0.75], [0.5, -2.0]], dtype=torch.float64)
    values = formula(x)
    assert not bool(torch.isfinite(values[:2]).any())
    assert values[2:].tolist() == pytest.approx([_plain(text, *point) for point in x[2:].tolist()], rel=1e-12)
    if "sqrt" not in text:  # of a number that is no float64, and so may be zero, nothing is cancelled
        assert bool(torch.isfinite(formula(torch.tensor([[0.0, 0.75]], dtype=torch.float64))).all())


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


def test_a_square_whose_root_is_no_float_is_not_taken_apart() -> None:
    big = "(9007199254740992 + 1)"  # 2^53 + 1
    formula = parse(f"(x**2 - {big}*{big})/(x - 9007199254740992)")
    (value,) = in_balls(formula, [9007199254740991.0])
    assert value.overlaps(arb(2) ** 55)
