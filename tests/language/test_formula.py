"""The formula language: what it means (against mpmath), how it prints, what it refuses."""

from __future__ import annotations

import math
import random

import mpmath
import pytest
import torch

from formula_values import formula_values
from onelayer.box import Box
from onelayer.errors import FormulaError, OnelayerError
from onelayer.language.balls import in_balls
from onelayer.language.formula import parse
from onelayer.taylor.hull import defined_on

FORMULAS = [
    "sin(x1) + sin(x2)",
    "exp(sin(pi*x) + y**2)",
    "cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)",
    "-x**2 + 2**-x - 3*-x",
    "x**0.5 + x**1.5 + x**-2 + x**(1/3) + x**y",
    "abs(x - y) * max(x, y, 0.3) - min(x, y) / relu(x + 1)",
    "tanh(x) * sigmoid(y) / (1 + 25*x**2) + atan(x*y) * erf(x) + tan(x/2)",
    "hypot(x, y, 1) + log(1 + x) + sqrt(y + 1)",
    "log2(x+1) + log10(y+2) + log1p(x) + expm1(y) + sinh(x) + cosh(y) + square(x) + ln(2+x)",
    "gelu(x) + silu(y) + softplus(x - y)",
    "t = x*y; e**t - 1e-3*t; t + x",
    "x - (y - z) - z/(y/x) - (x - y)",
    "2 - -x·y − 3×z ÷ 4",
    "(x + y)**3 * (x*y)**2 / x / y",
    "a = sin(x); b = a*a; c = b*b + a; c; b; 7",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_values_match_mpmath(text: str) -> None:
    formula = parse(text)
    points = torch.rand(20, formula.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.05
    values = formula(points).reshape(20, -1)
    with mpmath.workdps(40):
        for point, value in zip(points.tolist(), values.tolist(), strict=True):
            for got, want in zip(value, formula_values(formula, point), strict=True):
                assert abs(got - want) <= 1e-13 * (1 + abs(want))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("-x**2", lambda x, y: -(x**2)),
        ("2**3**2*x", lambda x, y: 512 * x),
        ("x/y/2", lambda x, y: x / y / 2),
        ("x - y - 1", lambda x, y: x - y - 1),
        ("2**-x", lambda x, y: 2**-x),
        ("-x - -y", lambda x, y: -x + y),
        ("x**-2", lambda x, y: x**-2),
        ("x**0.75 + x**-0.125", lambda x, y: x**0.75 + x**-0.125),
        ("(-x)**3", lambda x, y: -(x**3)),
        ("1e-2*x + .5 + 5.", lambda x, y: 0.01 * x + 5.5),
        ("hypot(x, y)", lambda x, y: math.hypot(x, y)),
        ("gelu(x)", lambda x, y: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
        ("π*x", lambda x, y: math.pi * x),
    ],
)
def test_meaning_of_operators(text: str, meaning: object) -> None:
    x, y = 0.7, 1.9
    assert parse(text, 2)(torch.tensor([x, y], dtype=torch.float64)).item() == pytest.approx(meaning(x, y), rel=1e-14)


@pytest.mark.parametrize("text", FORMULAS)
def test_text_reads_back_as_the_same_formula(text: str) -> None:
    formula = parse(text)
    assert parse(str(formula), formula.dim) == formula
    assert str(parse(str(formula), formula.dim)) == str(formula)


SIGNS = [("sign(log10(x))", [1, -1]), ("sgn(1/y) + sign(sqrt(x - y))", [2, 2]), ("sign(x)*sign(log(x))", [1, -1])]


@pytest.mark.parametrize(("text", "values"), SIGNS)
def test_a_sign_of_what_is_undefined_somewhere_reads_back(text: str, values: list[int]) -> None:
    formula = parse(text, 2)
    assert parse(str(formula), 2) == formula
    assert formula(torch.tensor([[3.0, 0.5], [0.5, 0.25]], dtype=torch.float64)).tolist() == values


def test_long_chains_and_deep_graphs_print_and_read_back() -> None:
    chain = parse(" + ".join(f"{k}*x**{k % 7}" for k in range(1, 3000)))
    assert parse(str(chain), 1) == chain
    deep = parse("t0 = x; " + " ".join(f"t{k} = sin(t{k - 1} + {k});" for k in range(1, 2000)) + " t1999")
    assert parse(str(deep), 1, limit=10**6) == deep
    assert deep(torch.zeros(3, 1, dtype=torch.float64)).shape == (3,)


def test_random_formulas_read_back() -> None:
    rng = random.Random(0)
    for _ in range(300):
        formula = parse(random_text(rng, 5), 3)
        assert parse(str(formula), 3) == formula


def random_text(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["x1", "x2", "x3", "pi", "e", "0.5", "3", f"{rng.random():.3g}"])
    part = lambda: random_text(rng, depth - 1)  # noqa: E731
    return rng.choice(
        [
            lambda: f"({part()} {rng.choice('+-*')} {part()})",
            lambda: f"{rng.choice(['sin', 'cos', 'tanh', 'atan', 'erf', 'abs', 'relu', 'sigmoid'])}({part()})",
            lambda: f"-{part()}",
            lambda: f"{rng.choice(['min', 'max'])}({part()}, {part()})",
            lambda: f"{part()} / (2 + {part()}**2)",
            lambda: f"sin({part()})**{rng.randint(2, 4)}",
        ]
    )()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: no output"),
        ("   ", "no output"),
        ("x^2", "column 2: '^' is not a power here; write **"),
        ("2x", "column 2: unexpected 'x'; write *"),
        ("x1 + x", "use one style"),
        ("round(x)", "column 1: round is not in the language"),
        ("x > 1", "column 1: a comparison is no number"),
        ("where(x, 1, 2)", "column 7: a comparison"),
        ("where(x > 1, 1)", "column 15: write where(x > 0, a, b)"),
        ("interp(x, [1, 0], [2, 3])", "ascend"),
        ("x & y", "column 3: '&' is not used"),
        ("sin x", "parentheses"),
        ("sin()", "column 5: unexpected ')'"),
        ("sin(x, y)", "takes one argument, got 2"),
        ("min(x)", "takes at least 2 arguments, got 1"),
        ("foo(x)", "column 1: unknown name 'foo'"),
        ("sen(x)", "did you mean sin"),
        ("Sin(x)", "did you mean sin"),
        ("inf*x", "every number and every box is finite"),
        ("|x|", "write abs(x)"),
        ("x²", "column 2: '²' is not a power here; write **2"),
        ("√x", "write sqrt(x)"),
        ("x % 1", "write mod(x, 1)"),
        ("x!", "write factorial(x)"),
        ("x if x > 0 else 0", "a choice is written where(x > 0, a, b)"),
        ("x + ", "the formula ends where a value was expected"),
        ("(x", "column 1: this ( is never closed"),
        ("x)", "column 2: unexpected ')'"),
        ("x[0]", "column 2: brackets are for the lists of interp"),
        ("x = 3; x", "already has a meaning"),
        ("t = 1; t = 2; t", "already has a meaning"),
        ("t = 1", "no output"),
        ("1/0", "no finite value"),
        ("1e999", "not a finite number"),
        ("log(0)*x", "no finite value"),
        ("9**9**9", "column 2: exponent"),
        ("9**9**9**9", "exponent"),
        ("x**9999", "too large"),
        ("exp(1000)", "no finite value"),
        ("x0", "unknown name"),
        ("x5", "the domain has 4 intervals"),
        ("x99999999", "beyond"),
        ("__import__('os')", "column 12"),
        ("x.real", "column 2"),
        ("lambda: 1", "unknown name 'lambda'"),
        ("x\x00", "column 2: character '\\x00'"),
        ("１+x", "column 1"),
        ("x if x else x", "column 3"),
    ],
)
def test_refusals_name_the_column(text: str, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(text, 4 if text == "x5" else None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hostile_sizes_are_refused_quickly() -> None:
    for text in ("x+" * 500_000 + "x", "(" * 10**6, "-" * 10**6, "9" * 10**6, "(" * 90_000, "x**" * 60_000 + "x"):
        with pytest.raises(FormulaError):
            parse(text)
    assert parse("-" * 99_999 + "x")(torch.ones(1, dtype=torch.float64)).item() == -1.0
    assert parse("+".join(["x"] * 50_000))(torch.ones(1, dtype=torch.float64)).item() == 50_000


def test_letters_need_at_most_three_variables() -> None:
    assert parse("x + z", 3).dim == 3
    with pytest.raises(FormulaError, match="at most 3 variables"):
        parse("x + y", 4)


def test_shapes() -> None:
    x = torch.rand(4, 5, 2, dtype=torch.float64)
    assert parse("x*y")(x).shape == (4, 5)
    assert parse("x*y; 3; pi")(x).shape == (4, 5, 3)
    assert parse("3", 2)(x).shape == (4, 5)
    shaped = parse("x1*x4; x2; x3; 1").shaped((2, 2), (2, 2))
    assert shaped(x.reshape(4, 5, 2).unflatten(1, (5, 1)).expand(4, 5, 2, 2)).shape == (4, 5, 2, 2)
    with pytest.raises(OnelayerError, match="last axes"):
        parse("x*y")(torch.rand(3, 3))


def test_dtype_and_gradients_follow_the_input() -> None:
    x = torch.tensor([0.3, 0.4], dtype=torch.float32, requires_grad=True)
    value = parse("sin(pi*x)*y/3")(x)
    assert value.dtype == torch.float32
    value.backward()
    assert x.grad is not None
    assert x.grad[1].item() == pytest.approx(math.sin(math.pi * 0.3) / 3, rel=1e-5)


def test_more_functions_by_the_names_people_use() -> None:
    x = torch.linspace(0.2, 0.9, 20, dtype=torch.float64)[:, None]
    known = {
        "gamma(x)": torch.exp(torch.lgamma(x)),
        "factorial(3 + 0*x)": torch.full_like(x, 6.0),
        "beta(x, 2)": 1 / (x * (x + 1)),
        "sec(x)*csc(x)*cot(x)": 1 / torch.sin(x) ** 2,
        "sech(x)**2 + 1/coth(x)**2": torch.ones_like(x),
        "csch(x)": 1 / torch.sinh(x),
        "arctan(x) + arcsin(x) + arccos(x)": torch.atan(x) + math.pi / 2,
        "arctan2(x, 1) + arctanh(x) - arcsinh(x)": torch.atan(x) + torch.atanh(x) - torch.asinh(x),
        "degrees(radians(x)) - rad2deg(deg2rad(x)) + pow(x, 2)": x**2,
        "sgn(x - 0.5)": torch.sign(x - 0.5),
    }
    for text, values in known.items():
        torch.testing.assert_close(parse(text, 1)(x), values[:, 0], rtol=1e-12, atol=1e-12)


def test_variables_and_parts_may_have_the_soft_names() -> None:
    """Physicists have a gamma and a beta of their own."""
    assert parse("gamma*beta", 2, names=("gamma", "beta")) == parse("x1*x2", 2)
    assert parse("gamma = x**2; gamma + beta(x, 2)", 1) == parse("t = x**2; t + beta(x, 2)", 1)
    with pytest.raises(FormulaError, match="has a meaning"):
        parse("sin*2", 1, names=("sin",))


@pytest.mark.parametrize("text", ["x**0.75", "x**0.25", "x**1.125"])
def test_quarters_and_eighths_of_powers_reach_down_to_zero(text: str) -> None:
    assert parse(text)(torch.zeros(1, dtype=torch.float64)).item() == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "interp({}, [0], [1])",
        "interp({}, [0, 2], [1, 1])",
        "{}**0",
        "0*{}",
        "{0} - {0}",
        "where({} > 0, 1, 1)",
        "max({0}, {0})",
    ],
)
def test_what_does_not_change_the_value_has_to_have_one(text: str) -> None:
    # The logarithm has no value at -1, and a function of it none either: a line through one place had.
    formula = parse(text.format("log(x)"), 1)
    at_minus_one, at_two = (in_balls(formula, [x])[0] for x in (-1.0, 2.0))
    assert not at_minus_one.is_finite()
    assert at_two.is_finite()
    assert not defined_on(formula, Box([-1.0], [2.0]))
    assert defined_on(formula, Box([1.0], [2.0]))


def test_a_line_through_one_place_is_flat() -> None:
    assert parse("interp(x, [3], [7])", 1) == parse("7", 1)
    x = torch.tensor([[0.5], [2.0], [50.0]], dtype=torch.float64)
    assert torch.equal(parse("interp(log(x), [1], [7])", 1)(x), torch.full((3,), 7.0, dtype=torch.float64))
