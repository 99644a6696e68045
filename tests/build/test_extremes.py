"""Bounds of lemmas against executed values where numbers are hardest: near overflow and underflow, in both formats."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb, ctx

import onelayer as ol
from onelayer.build.ordering.subsets import subset_layer
from onelayer.build.ordering.thresholds import threshold_layer
from onelayer.build.ordering.witness import adversarial_sequences
from onelayer.build.sort import _edges, _Wish
from onelayer.errors import OnelayerError
from onelayer.language.balls import in_balls
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Recall
from onelayer.lemmas.distance import smallest_squared_distance
from onelayer.lemmas.forward import rounding_of
from onelayer.lemmas.order import thresholds_error
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.recall import ReluRecall, exact_path
from onelayer.lemmas.subsets import subsets_error
from onelayer.proof.argued import argued_certificate

F32, F64 = torch.float32, torch.float64
# Where a box lies, as powers of two of its width, from the edge of the normal range to the edge of overflow.
SCALES = {
    F64: (-1060, -1020, -1000, -600, 0, 600, 995, 1010, 1020, 1022),
    F32: (-140, -125, -100, 0, 60, 100, 118, 126),
}
CASES = [(dtype, power) for dtype, powers in SCALES.items() for power in powers]


def executed_error(model: OneLayerTransformer, points: torch.Tensor, weights: list[float] | None) -> float:
    """The largest error at points of the model's format, exactly; inf where it has no value."""
    values = model(points.to(model.dtype)).double().reshape(len(points), -1).tolist()
    worst = Fraction(0)
    for point, value in zip(points.double().tolist(), values, strict=True):
        truth = [Fraction(x) for x in sorted(point)]
        if weights is not None:
            truth = [sum((Fraction(a) * x for a, x in zip(weights, truth, strict=True)), Fraction(0))]
        if not all(math.isfinite(v) for v in value):
            return math.inf
        worst = max(worst, *(abs(Fraction(v) - t) for v, t in zip(value, truth, strict=True)))
    return float(worst) if worst < 2**1023 else math.inf


def inside(n: int, low: float, high: float, cells: int, dtype: torch.dtype) -> torch.Tensor:
    points = adversarial_sequences(n, low, high, 96, cells=cells).to(dtype)
    points[:4] = torch.tensor([low, high] * n, dtype=dtype)[:n]
    numbers = points.double()
    return points[((numbers >= low) & (numbers <= high)).all(1)]


@pytest.mark.parametrize(("dtype", "power"), CASES)
@pytest.mark.parametrize("n", [1, 4, 9])
def test_thresholds_hold_or_bound_nothing(dtype: torch.dtype, power: int, n: int) -> None:
    for low, high in ((0.0, 2.0**power), (-(2.0**power), 2.0**power), (2.0 ** (power - 1), 2.0**power)):
        for weights in (None, [1.0] + [0.0] * (n - 1), [(-1.0) ** k * 3 for k in range(n)]):
            try:
                model = threshold_layer(n, _edges(_Wish(n, low, high, 1.0, weights, dtype), 12), weights, dtype)
                bound = thresholds_error(model, weights, ol.Box([low] * n, [high] * n))
            except OnelayerError:
                continue
            assert executed_error(model, inside(n, low, high, 12, dtype), weights) <= bound


@pytest.mark.parametrize(("dtype", "power"), CASES)
def test_subsets_hold_or_bound_nothing(dtype: torch.dtype, power: int) -> None:
    n = 3
    for low, high in ((0.0, 2.0**power), (-(2.0**power), 2.0**power)):
        for weights in (None, [0.0, 1.0, 0.0]):
            for share in (1e-1, 1e-4):
                try:
                    model = subset_layer(n, low, high, share * (high - low), weights, dtype)
                    bound = subsets_error(model, weights, ol.Box([low] * n, [high] * n))
                except OnelayerError:
                    continue
                assert executed_error(model, inside(n, low, high, 12, dtype), weights) <= bound


@pytest.mark.parametrize(("dtype", "high", "n"), [(F64, 8e307, 4), (F64, 1e307, 32), (F32, 5e37, 8)])
def test_a_layer_that_overflows_has_no_bound(dtype: torch.dtype, high: float, n: int) -> None:
    model = threshold_layer(n, _edges(_Wish(n, 0.0, high, 1.0, None, dtype), 12), None, dtype)
    assert not bool(torch.isfinite(model(torch.full((1, n), high * 0.99, dtype=dtype))).all())
    assert thresholds_error(model, None, ol.Box([0.0] * n, [high] * n)) == math.inf


def cancelling_layer() -> OneLayerTransformer:
    """F(s) = 1e308 relu(s) - 1e308 relu(s - 1): finite at every row in real arithmetic, not as executed."""

    def tensor(values: list) -> torch.Tensor:
        return torch.tensor(values, dtype=F64)

    zero = torch.zeros(1, 1, dtype=F64)
    weights = {
        "W_E": tensor([[1.0, 0.0]]),
        "W_Q": torch.zeros(2, 1, dtype=F64),
        "W_O": torch.zeros(1, 2, dtype=F64),
        "W_1": tensor([[1.0, 1.0], [0.0, 0.0]]),
        "b_1": tensor([0.0, -1.0]),
        "W_2": tensor([[0.0, 1e308], [0.0, -1e308]]),
        "W_R": tensor([[0.0], [1.0]]),
    }
    memory = [PlainMemory(zero, zero)]
    return OneLayerTransformer.packed((1,), (), memory, d_model=2, residual=True, hidden=2, weights=weights)


def test_no_argument_covers_an_execution_that_overflows() -> None:
    model, box = cancelling_layer(), ol.Box([0.0], [3.0])
    assert not bool(torch.isfinite(model(torch.tensor([[3.0]], dtype=F64))).all())
    assert overflows(model, box)
    argument = Recall("relu", 4, None)
    made = argued_certificate(
        model, box, 1e295, argument, 1e290, None, function=argument.stated(), method="enumeration", seconds=0.0
    )
    assert (made.status, made.upper) == ("undecided", math.inf)


@pytest.mark.parametrize("dtype", [F64, F32])
def test_what_does_not_overflow_is_finite(dtype: torch.dtype) -> None:
    generator = torch.Generator("cpu").manual_seed(3)
    decided = [0, 0]
    for trial in range(160):
        norm, residual = ("none", "pre", "post")[trial % 3], trial % 2 == 0
        hidden = (0, 5)[trial // 2 % 2]
        model = OneLayerTransformer.tokens(
            (3, 2), (), d_model=6, heads=2, hidden=hidden, norm=norm, residual=residual, seed=trial, dtype=dtype
        )
        top = math.log2(torch.finfo(dtype).max)
        size = float(torch.rand(1, generator=generator, dtype=F64)) * top / 3
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0 ** float(torch.rand(1, generator=generator, dtype=F64) * size))
        reach = 2.0 ** float(torch.rand(1, generator=generator, dtype=F64) * size)
        box = ol.Box(torch.full((3, 2), -reach, dtype=F64), torch.full((3, 2), reach, dtype=F64))
        points = torch.cat([box.corners(64), box.sample(64, seed=trial)]).to(dtype)
        finite = bool(torch.isfinite(model(points)).all())
        free = not overflows(model, box)
        decided[free] += 1
        assert finite or not free
    assert min(decided) > 20


@pytest.mark.parametrize("dtype", [F64, F32])
@pytest.mark.parametrize("recipe", ["softmax", "relu"])
def test_recalled_rows_are_within_their_bound(dtype: torch.dtype, recipe: str) -> None:
    generator = np.random.default_rng(5)
    info = np.finfo(np.float64 if dtype == F64 else np.float32)
    low, high = math.log2(float(info.smallest_subnormal)), math.log2(float(info.max)) - 25
    proved = 0
    for trial in range(60):
        rows, columns = int(generator.integers(1, 12)), int(generator.integers(1, 4))
        powers = generator.uniform(low, high, (2, 1)) if trial % 3 else generator.uniform(low, high, (2, rows))
        x = generator.standard_normal((rows, columns)) * 2.0 ** (powers[0][:, None] if trial % 3 == 0 else powers[0])
        y = generator.standard_normal(rows) * 2.0 ** powers[1]
        limit = float(info.max) * 2.0**-24
        try:
            made = ol.memorize(np.clip(x, -limit, limit), np.clip(y, -limit, limit), recipe=recipe, dtype=dtype)
        except OnelayerError:  # two rows have become one in float32
            continue
        certificate = made.certificate
        proved += certificate.upper < math.inf
        assert certificate.lower <= certificate.upper
        kept = np.clip(x, -limit, limit).astype(info.dtype).astype(np.float64)
        truth = np.clip(y, -limit, limit).astype(info.dtype).astype(np.float64)
        values = made.model(torch.from_numpy(kept).to(dtype)).double().tolist()
        for value, wanted in zip(values, truth.tolist(), strict=True):
            if not math.isfinite(value):
                assert certificate.upper == math.inf
            elif certificate.upper < math.inf:
                assert abs(Fraction(value) - Fraction(wanted)) <= Fraction(certificate.upper)
    assert proved > 10


def test_a_path_that_overflows_bounds_nothing() -> None:
    knots, outputs = np.array([0.0, 1.0, 2.0]), np.array([[0.0], [1.0], [2.0]])
    coefficients = np.array([[1.7e308], [1.7e308]])
    bound = ReluRecall(knots, outputs, np.array([0.0]), coefficients, 0.0, rounding_of(F64))
    assert bound.error() == math.inf
    errors, _ = exact_path(knots, 0.0, coefficients[:, 0], outputs[:, 0])
    assert errors[-1] == math.inf


def test_distances_below_and_above_the_range_of_squares() -> None:
    for size in (1e-320, 1e-200, 1e-160, 1.0, 1e150, 1e160, 1e300):
        rows = torch.tensor([[0.0, 0.0], [size, size / 3], [-size, 7 * size / 11]], dtype=F64)
        exact = min(
            sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(one, other, strict=True))
            for k, one in enumerate(rows.tolist())
            for other in rows.tolist()[:k]
        )
        found = smallest_squared_distance(rows)
        assert Fraction(found) <= exact
        assert found > 0 or size < 1e-130


@pytest.mark.parametrize("dtype", [F64, F32])
@pytest.mark.parametrize("power", [-300, -38, -30, -8, 0, 8, 25, 30, 36, 140, 290])
def test_compositions_are_within_their_bound(dtype: torch.dtype, power: int) -> None:
    scale = f"1e{power}"
    for text, low, high in (
        (f"{scale}*exp(0.3*(sin(x1)+sin(x2)))", 0.0, 1.0),
        (f"sin(x1/{scale})+x2/{scale}", 0.0, float(scale)),
        (f"{scale}*abs(x1-x2)", -1.0, 1.0),
    ):
        box = ol.Box([low, low], [high, high])
        eps = 1e-2 * (float(scale) if text.startswith(scale) else 1.0)
        try:
            made = ol.approximate(text, box, eps, layout="tokens", dtype=dtype, max_seconds=1)
        except OnelayerError:
            assert abs(power) >= 30
            continue
        assert made.certificate.lower <= made.certificate.upper
        formula, precision = made.target.formula, ctx.prec
        points = torch.cat([box.corners(), box.sample(24, seed=2)]).to(dtype)
        points = points[box.contains(points.double())]
        ctx.prec = 200
        try:
            for point, value in zip(points, made.model(points).double().tolist(), strict=True):
                (truth,) = in_balls(formula, point.double().tolist())
                if math.isfinite(value):
                    assert not (arb(value) - truth).abs_lower() > arb(made.certificate.upper)
                else:
                    assert made.certificate.upper == math.inf
        finally:
            ctx.prec = precision


@pytest.mark.parametrize("dtype", [F64, F32])
@pytest.mark.parametrize("power", [-160, -28, -9, 0, 9, 28, 160, 290])
def test_the_checker_accepts_proofs_of_every_size(dtype: torch.dtype, power: int, tmp_path: Path) -> None:
    if dtype == F32 and abs(power) > 30:
        pytest.skip("no float32 numbers")
    s = 10.0**power
    rows = np.linspace(-1.0, 1.0, 7)
    made = [
        ol.sort(4, 0.0, s, s / 10, dtype=dtype),
        ol.sort(1, -s, s, s / 10, kind="subsets", dtype=dtype),
        ol.sort(3, -s, s, s / 3, kind="subsets", dtype=dtype),
        ol.memorize(rows * s, np.cos(rows) * s, dtype=dtype),
        ol.approximate(
            f"{s!r}*exp(0.3*(sin(x1)+sin(x2)))", ol.Box([0, 0], [1, 1]), s / 100, layout="tokens", dtype=dtype
        ),
        ol.approximate(f"sin((x1+x2)/{s!r})", ol.Box([0, 0], [s, s]), 0.01, layout="tokens", dtype=dtype),
        ol.approximate(f"{s!r}*exp(x)", ol.Box([0.0], [1.0]), s / 100, dtype=dtype),
    ]
    for k, result in enumerate(made):
        if result.certificate.proved:
            found = ol.check(result.save(tmp_path / str(k)))
            assert found.ok, (k, str(found))
    assert sum(result.certificate.proved for result in made) >= 5


@pytest.mark.parametrize(
    ("formula", "side", "eps"),
    [
        ("1e200*sqrt(1e-200*x+1e-200*y)", 1e-200, 0.1),
        ("1e160*sqrt(x*y)", 1e-165, 0.001),
        ("exp(1e300*(1e25*(x*y)))", 1e-162, 0.001),
    ],
)
def test_inner_functions_without_a_tolerance_end_that_way_alone(formula: str, side: float, eps: float) -> None:
    with suppress(OnelayerError):
        certificate = ol.approximate(formula, [(0, side)] * 2, eps, max_seconds=8).certificate
        assert certificate.proved == (certificate.upper <= eps)
