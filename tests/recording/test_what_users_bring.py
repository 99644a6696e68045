"""Functions as people have them: NumPy and torch code, arguments of their own names, arrays, lists, float32 modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn

import onelayer as ol
from onelayer import Box
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language.formula import parse
from onelayer.recording.target import as_target

LINE, SQUARE = Box([0.0], [1.0]), Box([0.5, 0.25], [1.5, 1.0])


def mass(m0: Any, v: Any, c: Any) -> Any:
    return m0 / np.sqrt(1 - v**2 / c**2)


def matrix(x: Any) -> Any:
    return (np.dot(x, np.array([[1.0, 2.0], [0.5, -1.0]])) @ np.array([1.0, -1.0])).clip(-0.2, 0.3)


def pieces(x: Any) -> Any:
    a, b = x[..., 0], x[..., 1]
    inner = np.select([a < 0.7, (a > 1) & ~(b > 0.5)], [a, b], default=a * b)
    return inner + np.where(b <= 0.4, np.floor(3 * b), 1) + np.maximum(a, b) % 0.3


NUMPY: dict[str, tuple[Callable[..., Any], Box, str | None]] = {
    "sine": (lambda x: np.sin(x[..., 0]), LINE, "sin(x)"),
    "single points": (lambda x: np.sin(x[0]) * x[1] ** 2, SQUARE, "sin(x1) * x2**2"),
    "arguments": (lambda a, b: np.exp(a) - b, SQUARE, "exp(x1) - x2"),
    "named arguments": (mass, Box(c=(3, 4), m0=(1, 2), v=(1, 2)), "x2/sqrt(1 - x3**2/x1**2)"),
    "interp": (lambda x: np.interp(x[..., 0], [0, 0.5, 1], [0, 1, 0]), LINE, "interp(x, [0, 0.5, 1], [0, 1, 0])"),
    "polyval": (lambda x: np.polyval([1.0, 0.0, -2.0], x[..., 0]), LINE, None),
    "moments": (lambda x: x.mean(-1) + np.var(x, axis=-1) + np.std(x, -1, ddof=1), SQUARE, None),
    "norm": (lambda x: np.linalg.norm(x, axis=-1) + np.hypot(x[..., 0], 2), SQUARE, None),
    "matrix": (matrix, SQUARE, None),
    "pieces": (pieces, SQUARE, None),
    "masks": (lambda x: (x[..., 0] < 0.5) * x[..., 0] + (x[..., 0] >= 0.5) * (1 - x[..., 0]), LINE, None),
    "piecewise": (
        lambda x: np.piecewise(x[..., 0], [x[..., 0] < 0.5, x[..., 0] >= 0.5], [lambda t: t, lambda t: 1 - t]),
        LINE,
        "where(x < 0.5, x, 1 - x)",
    ),
    "piecewise else": (lambda x: np.piecewise(x[..., 0], [x[..., 0] < 0.5], [0.25, np.sin]), LINE, None),
    "area": (lambda x: np.trapezoid(np.exp(-x * np.linspace(0, 1, 5)), np.linspace(0, 1, 5)), LINE, None),
    "normal distribution": (lambda x: scipy.special.ndtr(x[..., 0]), LINE, None),
    "Debye": (lambda x: x[..., 0] ** 3 / (np.exp(x[..., 0]) - 1), Box([0.0], [9.0]), None),
    "sums": (
        lambda x: np.sum(x * np.arange(2), axis=-1) + np.prod(x, -1) + np.cumsum(x, axis=-1)[..., 1],
        SQUARE,
        None,
    ),
    "arcs": (lambda x: np.arcsin(x[..., 0]) + np.arccos(x[..., 0]) + np.arctan(x[..., 0]), LINE, None),
    "scipy": (lambda x: scipy.special.erf(x[..., 0]) + scipy.special.expit(x[..., 0]), LINE, "erf(x) + sigmoid(x)"),
    "ufuncs": (lambda x: np.exp2(x[..., 0]) + np.log1p(x[..., 0]) + np.deg2rad(x[..., 0]) + np.square(2.0), LINE, None),
    "shapes": (lambda x: np.concatenate([x, x[..., ::-1]], axis=-1).reshape(-1, 2, 2).sum(axis=(1, 2)), SQUARE, None),
    "stacked": (
        lambda x: np.stack([x[..., 0], np.sort(x, axis=-1)[..., 0], np.diff(x)[..., 0]], axis=-1),
        SQUARE,
        None,
    ),
    "lists": (lambda x: [x[0], np.cos(x[0])], LINE, "x; cos(x)"),
    "whole array": (np.sin, LINE, "sin(x)"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_code_is_its_formula(name: str) -> None:
    f, box, text = NUMPY[name]
    target = as_target(f, box)
    assert target.formula is not None
    assert (target.kind, target.lipschitz) == ("callable", None)
    x = box.sample(200)
    torch.testing.assert_close(target.formula(x), target.function(x), rtol=1e-12, atol=1e-12)
    if text is not None:
        assert target.formula == parse(text, box.dim).shaped((box.dim,), target.output_shape)


def test_numpy_code_is_proved_without_conditions() -> None:
    result = ol.approximate(lambda x: np.sin(x[..., 0]), LINE, 1e-3)
    assert result.certificate.proved
    assert result.certificate.method == "branch and bound"
    assert result.certificate.function == "sin(x1)"


@pytest.mark.parametrize("code", [NUMPY["masks"][0], NUMPY["piecewise"][0], lambda x: torch.heaviside(x, x)[..., 0]])
def test_each_side_of_a_mask_is_enclosed_on_its_own(code: Callable[..., Any]) -> None:
    """(x < 1/2) * x + (x >= 1/2) * (1 - x) is continuous: its masks are one choice, not two open factors."""
    target = as_target(code, LINE)
    assert target.formula is not None
    assert [node.op for node in target.formula.nodes].count("where") <= 2
    assert ol.certify(lambda x: 0.25 + 0 * x[..., 0], target, LINE, 1.25, max_boxes=50).upper < 1


@pytest.mark.parametrize("code", [lambda x: (x**3 / (torch.exp(x) - 1))[..., 0], NUMPY["Debye"][0]])
def test_code_with_a_removable_singularity_rounds_as_it_is_written(code: Callable[..., Any]) -> None:
    """exp(x) - 1 loses digits near zero, its formula does not: the code is still that formula."""
    with np.errstate(all="raise", under="ignore"):
        assert ol.approximate(code, Box([0.0], [9.0]), 0.05).certificate.proved


def branch(x: Any) -> Any:
    return x[0] if x[0] > 0.5 else 1 - x[0]


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (lambda x: math.sin(x[0]), "np.sin"),
        (branch, "where"),
        (lambda x: 2 * math.sin(x[0]), "met in math.sin(x[0])"),
        (branch, "met in x[0] > 0.5"),
        (lambda x: np.array([x[0], x[0]]).sum(), "np.stack"),
        (np.vectorize(lambda t: t**2), "np.vectorize"),
        (lambda x: np.argmax(x, axis=-1) * 1.0, "np.argmax"),
        (lambda x: np.array([float(v) for v in x]), "float(x)"),
        (lambda x: x[x > 0.5].sum() + np.zeros(len(x)), "np.where"),
        (lambda x: np.fft.fft(x[..., 0]).real, "fft"),
        (lambda x: np.add.reduce(x, axis=-1), "np.add.reduce"),
        (lambda x: x[..., 0].astype(np.float32), "float64"),
        (lambda x: np.round(x[..., 0], 1), "round"),
    ],
)
def test_what_cannot_be_recorded_is_named(f: Callable[..., Any], says: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        as_target(f, LINE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("f", "box", "says"),
    [
        (lambda a, b, c: a + b + c, SQUARE, "takes 3 arguments (a, b, c), and the box has 2 coordinates"),
        (lambda t, x: t + x, Box(x=(0, 1), v=(0, 1)), "f takes t, x and the box names x, v"),
        (lambda x: x[..., 0] if x[..., 0] > 0.5 else 1 - x[..., 0], LINE, "torch.where(x > 0, a, b) for a branch"),
        (lambda x: x[..., 7], LINE, "met in x[..., 7]"),
    ],
)
def test_what_cannot_be_called_is_told_in_a_line(f: Callable[..., Any], box: Box, says: str) -> None:
    with pytest.raises(OnelayerError) as caught:
        as_target(f, box)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_recording_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's variance divides by n; taken for torch's, it is another function than its values."""
    from onelayer.recording import numpy_code

    monkeypatch.setitem(
        numpy_code._OWN, "var", lambda tape, a, dim: numpy_code.dispatch(torch.var, "var", (a, dim), {})
    )
    with pytest.raises(OnelayerError, match="not what would be recorded"):
        ol.certify(lambda x: 0 * x[..., 0], lambda x: np.var(x, axis=-1), SQUARE, 10.0)
    monkeypatch.setattr(numpy_code, "run_beside", lambda *given: given[-1])
    with pytest.raises(OnelayerError, match="not what was recorded"):
        ol.certify(lambda x: 0 * x[..., 0], lambda x: np.var(x, axis=-1), SQUARE, 10.0)


def test_the_atmosphere_in_torch() -> None:
    def temperature(h: Any) -> Any:
        return torch.where(h < 11000, 288.15 - 0.0065 * h, 216.65)[..., 0]

    result = ol.approximate(temperature, Box({"h[m]": (0, 20000)}), 0.1)
    assert result.certificate.proved


def test_one_number_is_one_number() -> None:
    model = nn.Linear(2, 1).double()
    with pytest.warns(UserWarning, match="one number each"):
        found = ol.certify(model, "x1 + x2", SQUARE, 100.0)
    assert found.proved
    with pytest.raises(OnelayerError, match="as many outputs as f has"):
        ol.certify(nn.Linear(2, 3).double(), "x1 + x2", SQUARE, 100.0)


def test_numpy_points_and_lists_go_into_the_model() -> None:
    result = ol.approximate("sin(x)*y", SQUARE, 1e-2)
    x = SQUARE.sample(5)
    assert isinstance(result.model(x.numpy()), np.ndarray)
    np.testing.assert_array_equal(result.model(x.numpy()), result.model(x).detach().numpy())
    np.testing.assert_array_equal(result.model(x.tolist()), result.model(x).detach().numpy())
    assert result.model([1.0, 0.5]).shape == ()
    with pytest.raises(OnelayerError, match="numbers of one regular shape"):
        result.model(["a", "b"])


def test_a_float32_module_inside_a_lambda() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    target = as_target(lambda x: net(x)[..., 0], SQUARE)
    wide = as_target(net, SQUARE)
    x = SQUARE.sample(50)
    assert torch.equal(target.function(x), wide.function(x)[..., 0])
    assert target.formula is not None
    torch.testing.assert_close(target.formula(x), target.function(x), rtol=1e-12, atol=1e-12)


def test_sympy_expressions_are_formulas() -> None:
    sympy = pytest.importorskip("sympy")
    m0, v, c = sympy.symbols("m0 v c")
    box = Box(v=(1, 2), c=(3, 4), m0=(1, 2))
    target = as_target(m0 / sympy.sqrt(1 - v**2 / c**2), box)
    x = box.sample(20)
    assert target.formula is not None
    torch.testing.assert_close(target.formula(x), x[:, 2] / torch.sqrt(1 - x[:, 0] ** 2 / x[:, 1] ** 2))
    x1, x2 = sympy.symbols("x1 x2")
    pieces = sympy.Piecewise(
        (sympy.sin(x1), (x1 < x2) & (x2 > sympy.Rational(1, 3))), (sympy.Max(x1, x2, 1) ** 2, True)
    )
    target = as_target(pieces + sympy.pi * sympy.Abs(x1 - 1) + sympy.E, SQUARE)
    y = SQUARE.sample(50)
    known = torch.tensor([float(pieces.subs({x1: a, x2: b})) for a, b in y.tolist()], dtype=torch.float64)
    assert target.formula is not None
    torch.testing.assert_close(target.formula(y), known + math.pi * (y[:, 0] - 1).abs() + math.e)
    assert ol.approximate(sympy.sin(x1) * x2, SQUARE, 0.1).certificate.proved
    both = [x1 * x2, sympy.gamma(x1) * sympy.coth(x2)]
    for several in (both, sympy.Matrix(both), sympy.Lambda((x1, x2), sympy.Tuple(*both))):
        values = parse("x1*x2; gamma(x1)*coth(x2)", 2)(y)
        torch.testing.assert_close(as_target(several, SQUARE).function(y), values, rtol=1e-14, atol=1e-14)
    a, b = sympy.symbols("b a")
    torch.testing.assert_close(as_target(sympy.Lambda((a, b), a / b), SQUARE).function(y), y[:, 0] / y[:, 1])
    step = as_target(sympy.Heaviside(x1 - x2), SQUARE).function
    assert step(torch.tensor([[1.0, 0.5], [0.5, 1.0], [0.75, 0.75]]).double()).tolist() == [1.0, 0.0, 0.5]
    for bad in (sympy.besselj(0, x1) + x2, sympy.Piecewise((x1, x1 < x2)), sympy.Symbol("a") + x1 + x2):
        with pytest.raises(OnelayerError) as caught:
            as_target(bad, SQUARE)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("eps", [torch.tensor(0.01), np.array(0.01), np.float32(0.01), torch.tensor([0.01]).double()])
def test_eps_may_be_a_number_of_any_library(eps: Any) -> None:
    result = ol.approximate("x*y", SQUARE, eps)
    assert result.certificate.proved
    assert ol.certify(result.model, "x*y", SQUARE, eps).eps == pytest.approx(0.01)
    with pytest.raises(OnelayerError, match="eps must be"):
        ol.approximate("x*y", SQUARE, torch.tensor([0.1, 0.2]))


def test_letters_of_other_alphabets_are_names(tmp_path: Path) -> None:
    a = ol.approximate("sin(\u03b1)*\u03b2_2", "\u03b1[rad]=0:1, \u03b2_2=0:1", 0.05)
    a.save(tmp_path / "greek")
    assert ol.check(tmp_path / "greek").ok
    assert ol.load(tmp_path / "greek").box.names == ("\u03b1[rad]", "\u03b2_2")
    assert a.certificate.domain.names == ("\u03b1[rad]", "\u03b2_2")
    for wrong in ("x\u00b2", "\u03c0x"):
        with pytest.raises(OnelayerError, match="column"):
            ol.approximate(wrong, Box([0.0], [1.0]), 0.1)


@pytest.mark.filterwarnings("error")
def test_numpy_code_is_tried_without_warnings() -> None:
    assert as_target(lambda x: np.sin(x[..., 0]), LINE).formula == parse("sin(x)", 1)
