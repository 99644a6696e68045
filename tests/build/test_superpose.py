"""Superpositions: taken apart exactly, fitted with few pieces, proved by composition, checked, forgeries rejected."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.build.sequences.piecewise import fit_piecewise
from onelayer.build.sequences.recognise import Recogniser
from onelayer.build.sequences.superpose import superpose
from onelayer.checker.check import check
from onelayer.errors import FileError, OnelayerError
from onelayer.language.formula import parse
from onelayer.lemmas.argument import Composition, from_text, to_text
from onelayer.lemmas.univariate import Ramps, at, halved, piecewise_error, range_of
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.result import Approximation, load

N = 64
NAMES = [f"x{i + 1}" for i in range(N)]
CASES = {
    "log-sum-exp": (f"log({'+'.join(f'exp({x})' for x in NAMES)})", -1.0, 1.0),
    "variance": (f"({'+'.join(f'{x}**2' for x in NAMES)})/64 - (({'+'.join(NAMES)})/64)**2", -1.0, 1.0),
    "geometric mean": (f"exp(({'+'.join(f'log({x})' for x in NAMES)})/64)", 0.5, 2.0),
}


def hard_points(box: Box, count: int) -> torch.Tensor:
    """Random points, points near the faces, and tokens that are all equal: sums at their extremes."""
    equal = box.sample(count)[:, :1].expand(-1, *box.shape) if len(box.shape) == 1 else box.sample(count)
    return torch.cat([box.sample(count), box.sample(count, arcsine=True), equal, box.corners(32)])


def measured(a: Approximation, count: int = 300) -> float:
    x = hard_points(a.box, count)
    assert a.target is not None
    return float((a.model(x.to(a.model.dtype)).double() - a.target.function(x)).abs().max())


SPIKE = "(1 - tanh(1e8*(x1 - 0.3712345))**2)"


@pytest.mark.parametrize(
    "nothing",
    [f"0*log(0.5 - {SPIKE})", f"log(0.5 - {SPIKE}) - log(0.5 - {SPIKE})", f"0*tanh(sqrt(0.5 - {SPIKE}))"],
)
@pytest.mark.parametrize("text", ["exp(x1**2 + x2**2 + x3**2 + {})", "exp(x1**2 + x2**2 + x3**2) + {}"])
def test_what_cancels_or_counts_zero_times_has_to_have_a_value(text: str, nothing: str) -> None:
    # Next to 0.3712345 a negative number has no logarithm: the superposition left that out, and was proved.
    with pytest.raises(OnelayerError, match="is not shown to have a value"):
        superpose(text.format(nothing), Box([0.0] * 3, [1.0] * 3), 1e-2)


def test_a_singularity_that_only_one_sum_shows_stays_one() -> None:
    # Both are x1 - x2 - c, and f divides 0 by 0 where it vanishes; written as one sum it is sinrel of its square.
    text = "sin(((x1 - x2) - 0.1234375)**2)/((x1 - 0.1234375) - x2)**2 + exp(x1**2 + x2**2)"
    with pytest.raises(OnelayerError, match="is not shown to have a value"):
        superpose(text, Box([0.0, 0.0], [1.0, 1.0]), 1e-2)
    # Recognised by the language itself, and without a value only for whoever divides.
    known = "sin((x1 - x2)**2)/(x1 - x2)**2 + exp(x1**2 + x2**2)"
    assert superpose(known, Box([0.0, 0.0], [1.0, 1.0]), 1e-2).certificate.proved


def test_what_cancels_may_end_where_its_values_do() -> None:
    text = "exp(x1**2 + x2**2 + 0*sqrt(x1) + 0*log(x2**2 - x2 + 0.26))"
    assert superpose(text, Box([0.0, 0.0], [1.0, 1.0]), 1e-2).certificate.proved


@pytest.mark.parametrize("name", CASES)
def test_functions_of_64_tokens_are_proved_to_a_thousandth(name: str, tmp_path: Path) -> None:
    text, low, high = CASES[name]
    a = superpose(text, Box([low] * N, [high] * N), 1e-3)
    assert a.certificate.proved
    assert a.certificate.method == "composition"
    assert a.size()["hidden_units"] < 40
    assert max(measured(a), a.certificate.lower) <= a.certificate.upper
    original = parse(text, N)
    x = a.box.sample(64)
    assert torch.allclose(original(x), a.target.function(x), rtol=1e-12, atol=1e-12)  # type: ignore[union-attr]
    a.save(tmp_path / "made")
    assert torch.equal(load(tmp_path / "made").model(x), a.model(x))
    report = check(tmp_path / "made")
    assert report.ok, report


def test_a_norm_with_its_kink_at_zero() -> None:
    a = superpose(lambda x: torch.linalg.vector_norm(x, dim=-1), Box([-1.0] * 8, [1.0] * 8), 5e-3)
    assert a.certificate.proved
    zero = torch.zeros(1, 8, dtype=torch.float64)
    near = 1e-3 * torch.eye(8, dtype=torch.float64)
    x = torch.cat([zero, near, hard_points(a.box, 200)])
    assert float((a.model(x) - x.norm(dim=-1)).abs().max()) <= a.certificate.upper


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("x1*x2*x3", Box([0.5] * 3, [2.0] * 3)),
        ("exp(x1+2*x2) + 1.5*sin(x3) + (x1-x3)**2", Box([-1.0] * 3, [1.0] * 3)),
        ("3*x1 - 2*x2 + 1", Box([-1.0] * 2, [1.0] * 2)),
        ("max(x1, x2, x3)", Box([-1.0] * 3, [1.0] * 3)),
        ("x1**2; x1 + x2", Box([-1.0] * 2, [1.0] * 2)),
    ],
)
def test_other_forms(text: str, box: Box, tmp_path: Path) -> None:
    a = superpose(text, box, 1e-2)
    assert a.certificate.proved
    assert measured(a) <= a.certificate.upper
    a.save(tmp_path / "made")
    assert check(tmp_path / "made").ok


def test_tokens_of_several_numbers_and_float32() -> None:
    box = Box(-torch.ones(6, 2), torch.ones(6, 2))
    a = superpose(lambda x: torch.tanh((x[..., 0] * 2).sum(-1) / 6) + x[..., 1].square().mean(-1), box, 1e-2)
    assert a.certificate.proved
    assert measured(a) <= a.certificate.upper
    b = superpose("log(exp(x1)+exp(x2))", Box([-1.0] * 2, [1.0] * 2), 1e-2, dtype=torch.float32)
    assert b.certificate.proved
    assert b.certificate.arithmetic == "float32 execution"
    assert measured(b) <= b.certificate.upper


def test_other_functions_are_refused_by_name() -> None:
    with pytest.raises(OnelayerError, match="no function of one sum"):
        superpose("sin(x1*x2) + exp(x1)*cos(x2)", Box([-1.0] * 2, [1.0] * 2), 1e-2)
    with pytest.raises(OnelayerError, match="eps"):
        superpose("x1", Box([0.0], [1.0]), 0.0)


def test_forgeries_are_rejected(tmp_path: Path) -> None:
    a = superpose("log(exp(x1)+exp(x2)+exp(x3))", Box([-1.0] * 3, [1.0] * 3), 1e-2)
    loose = {"lower": 0.0, "witness": None}

    def rejected(name: str, **changes: object) -> bool:
        replace(a, certificate=replace(a.certificate, **loose, **changes)).save(tmp_path / name)
        return not check(tmp_path / name).ok

    argument = from_text(a.certificate.attachments[ARGUMENT])
    assert isinstance(argument, Composition)
    wrong = replace(argument, terms=tuple(replace(term, text="log(x1 + 1)") for term in argument.terms))
    assert rejected("bound", upper=0.9 * a.certificate.upper)
    assert rejected("argument", attachments={ARGUMENT: to_text(wrong)})
    assert rejected("function", function="log(exp(x1)+exp(x2)+exp(2*x3))")


def test_malformed_arguments_are_file_errors() -> None:
    a = superpose("exp(x1)+exp(x2)", Box([-1.0] * 2, [1.0] * 2), 1e-1)
    text = a.certificate.attachments[ARGUMENT]
    assert to_text(from_text(text)) == text
    for old, new in ((b'"length": 2', b'"length": 0'), (b'"units"', b'"unit"'), (b"{", b"["), (b"false", b"0")):
        with pytest.raises(FileError):
            from_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("text", "low", "high", "tolerance"),
    [
        ("sin(x)", 0.0, 6.0, 1e-3),
        ("sqrt(x)", 0.0, 9.0, 1e-3),
        ("exp(x)*cos(3*x)", -1.0, 2.0, 1e-2),
        ("x", 0.0, 1.0, 1e-3),
    ],
)
def test_piecewise_fits_are_within_tolerance_and_nearly_optimal(
    text: str, low: float, high: float, tolerance: float
) -> None:
    formula = parse(text, 1)
    found = fit_piecewise(lambda s: at(formula, s), low, high, tolerance)
    s = np.linspace(low, high, 100_001)
    assert np.abs(np.interp(s, found.knots, found.values) - at(formula, s)).max() <= tolerance
    step = s[1] - s[0]
    bend = np.sqrt(np.abs(np.diff(at(formula, s), 2)) / step**2).sum() * step
    assert found.pieces <= 1.08 * bend / (4 * np.sqrt(tolerance)) + 4
    ramps = Ramps(found.knots[:-1], found.changes(), float(found.values[0]))
    proved = piecewise_error(formula, ramps, low, high)
    seen = np.abs(ramps(s) - at(formula, s)).max()
    assert seen <= proved <= 1.03 * max(seen, 1e-12)


def test_univariate_bounds_catch_a_planted_error() -> None:
    formula = parse("sin(x)", 1)
    found = fit_piecewise(np.sin, 0.0, 6.0, 1e-3)
    changes = found.changes()
    changes[len(changes) // 2] += 1e-2
    bent = Ramps(found.knots[:-1], changes, float(found.values[0]))
    s = np.linspace(0, 6, 10_001)
    assert piecewise_error(formula, bent, 0.0, 6.0) >= np.abs(bent(s) - np.sin(s)).max() > 1e-2
    low, high = range_of(parse("x**2 - x", 1), -1.0, 1.0)
    assert low <= -0.25 <= 2.0 <= high
    assert low > -0.26
    assert high < 2.01


def test_recognition_is_exact_algebra() -> None:
    """The pieces add up to the formula, whatever its form."""
    texts = [
        "x1*(x1+x2+x3)/3 + 2",
        "(x1+1)*(x1-x2) - 3*sin(x1+x2)/7",
        "exp(2*(x1+x2)+1)/(1+(x1+x2)**2) - x3",
        "-(x1/3 + x2/3)**3 + sqrt(2+x1)",
    ]
    x = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for text in texts:
        formula = parse(text, 3)
        terms, rest = Recogniser(formula, Box([0.0] * 3, [1.0] * 3), affine=True).terms(0)
        assert not rest, text
        total = torch.zeros(50, dtype=torch.float64)
        for term in terms:
            s = torch.zeros(50, dtype=torch.float64)
            for variable, inner, weight in term.inner:
                s = s + float(weight) * inner(x[:, variable : variable + 1])
            total = total + term.outer(s[:, None])
        assert torch.allclose(total, formula(x), rtol=1e-13, atol=1e-13), text


def test_a_proof_by_lemma_ends_with_its_time() -> None:
    # Boxes were halved up to two million of them: 1e10 has no digits left for the tolerance of its root.
    looked_at: list[int] = []

    def bounds(left: torch.Tensor, right: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
        looked_at.append(len(left))
        # Falls by a quarter a round, so that halving seems to help.
        return torch.full((len(left),), 0.75 ** len(looked_at), dtype=torch.float64)

    edges = torch.linspace(0, 1, 9, dtype=torch.float64)
    # The bound of the last round that was finished holds.
    assert halved(bounds, edges[:-1], edges[1:], 0.0, Observer(0.0)) == 0.75**10
    assert max(looked_at) == 4096
    started = time.monotonic()
    text = "tanh(cos(2*x1) + 0.1*sqrt(0.5 - (1 - tanh(1e10*(x2 - 1e10))**2) + x2**2)); pi/x1"
    superpose(text, Box([1.0, 1e10], [1.0, 1e10 + 2e-6]), 1e290, max_seconds=1.5)
    assert time.monotonic() - started < 15


def test_ramps_of_uneven_steepness_lose_each_its_own(tmp_path: Path) -> None:
    """Steps near the normal range of float32: a difference that is lost costs the slope of its own ramp."""
    text = "1e-30*exp(7.947e18*(6.2918e-20*sin(2.3083e30*x1) + 6.2918e-20*sin(2.3083e30*x2)))"
    made = superpose(text, Box([-2.166e-31, 0.0], [4.332e-31, 8.665e-31]), 8.12e-33, dtype=torch.float32)
    assert made.certificate.proved
    made.save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.ok, report
