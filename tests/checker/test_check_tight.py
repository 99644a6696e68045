"""The checker bounds rounding at least as tightly as the package does, so it accepts what the package proves."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
import torch
from flint import arb, ctx

from liar import places
from liar.layers import random_layer
from onelayer import approximate
from onelayer.box import Box
from onelayer.checker.arithmetic import constant
from onelayer.checker.attention import Vector
from onelayer.checker.check import check
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.outcome import Rejected
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.errors import OnelayerError
from onelayer.layer.file import save_model
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.proof.forward import enclosed_at
from onelayer.result import Approximation

# Below, errors are counts of the smallest normal number.
UNDERFLOW = {torch.float32: 1e-30, torch.float64: 1e-290, torch.float16: 1e-30, torch.bfloat16: 1e-30}
WIDE = [torch.float64, torch.float32]
NARROW = [torch.float16, torch.bfloat16]


def in_checker(model: OneLayerTransformer, point: list[float], folder: Path) -> Vector:
    """The outputs at a point in the checker's arithmetic, with its bounds of their rounding."""
    save_model(model, folder)
    stored = read_model(folder)
    domain = tuple(point), tuple(point)
    execution = Execution.of(f"{str(model.dtype).removeprefix('torch.')} execution", stored, domain)
    with ctx.workprec(128):
        return Layer(stored, execution)([constant(arb(x), 1) for x in point], Kinks())


@pytest.mark.parametrize(("part", "formats"), [(0, WIDE), (1, WIDE), (2, WIDE), (3, WIDE), (1, NARROW), (4, NARROW)])
def test_rounding_is_bounded_more_tightly_than_by_the_package(part: int, formats: list, tmp_path: Path) -> None:
    """Random layers of every shape, with extreme numbers in some; and what is executed lies in the tighter bounds."""
    compared = 0
    for seed in range(60 * part, 60 * part + 60):
        rng = Random(f"tight {seed}")
        dim, dtype = rng.choice([1, 2]), rng.choice(formats)
        model, low = random_layer(rng, dim, dtype), places.ordinary(rng, dim)[0]
        x = torch.tensor([low], dtype=torch.float64).to(dtype).reshape(1, *model.config.input_shape)
        try:
            found = in_checker(model, x.double().flatten().tolist(), tmp_path)
            with torch.no_grad():
                (package,) = enclosed_at(model, x.double(), tuple(model.config.output_shape), dtype)
                values = model(x).double().flatten().tolist()
        except (OnelayerError, Rejected):  # a choice of tokens, which jumps; an overflow
            continue
        for (_, radius), item, error, value in zip(package, found.items, found.errors, values, strict=True):
            if error.is_finite():  # else something inside linear attention may overflow
                assert arb(value) >= (item.c[0] - error).lower(), seed
                assert arb(value) <= (item.c[0] + error).upper(), seed
            if radius < math.inf:
                assert error + item.c[0].rad() <= radius * (1 + 1e-9) + UNDERFLOW[dtype], seed
                compared += 1
    assert compared > 10


def accepted(model: OneLayerTransformer, f: str, box: Box, folder: Path, **options: object) -> bool:
    """Whether the checker proves what certify states."""
    certificate = certify(model, f, box, max_boxes=60, **options)  # type: ignore[arg-type]
    report = check(Approximation(model, certificate).save(folder / "proof"))
    assert math.isfinite(certificate.upper)
    assert report.ok, report.reason
    return True


def test_a_box_between_two_numbers_of_the_format(tmp_path: Path) -> None:
    """No forward pass can be made in it; the bound is proved all the same."""
    memory = [PlainMemory(torch.randn(3, 2), torch.randn(3, 1))]
    model = OneLayerTransformer.packed((1,), (), memory, d_model=2, dtype=torch.float32, seed=1)
    low = math.nextafter(0.1, 1.0)
    assert accepted(model, "x1", Box([low], [low + 1e-12]), tmp_path)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_normalisation_of_one_number(norm: str, tmp_path: Path) -> None:
    """It returns its shift whatever the number, and whatever error that has."""
    memory = [PlainMemory(torch.randn(3, 2), torch.randn(3, 1))]
    model = OneLayerTransformer.packed((1,), (), memory, d_model=1, hidden=3, norm=norm, dtype=torch.float32, seed=2)
    assert accepted(model, "0*x1", Box([0.5], [0.5]), tmp_path)


def test_logits_whose_rounding_exceeds_one(tmp_path: Path) -> None:
    """Logits near 1e8 in float32 are wrong by several units, and still one token has all the weight."""
    keys = [torch.tensor([[3e8], [1e8], [-2e8]]), torch.tensor([[5e7]])]
    memory = [GridMemory(keys, torch.tensor([30.0, 7.0, -5.0]).reshape(3, 1, 1))]
    model = OneLayerTransformer.packed((1,), (), memory, d_model=1, dtype=torch.float32, seed=3, residual=False)
    assert accepted(model, "0*x1", Box([0.5], [0.5]), tmp_path)


def test_ramps_that_are_full_on_a_box(tmp_path: Path) -> None:
    model = OneLayerTransformer.tokens((2,), (), d_model=3, heads=1, ramps=3, embedding="piecewise", norm="pre", seed=4)
    assert accepted(model, "x1", Box([-40.0, 50.0], [-39.5, 50.25]), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_where_nothing_but_underflow_errs_the_bound_leaves_room_for_another_count(dtype, tmp_path):
    a = approximate("1e-320 + 0*x", Box([-1.0], [0.0]), 0.1, dtype=dtype)
    assert a.certificate.status == "proved"
    assert a.certificate.upper < 1e-6  # float16 loses what is below 2^-24
    report = check(a.save(tmp_path / "constant"))
    assert report.ok, report.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_features_may_be_larger_than_what_a_narrow_layer_holds(dtype: torch.dtype, tmp_path: Path) -> None:
    """Squares of keys near 300 are no float16 numbers; a layer computes them in float32."""
    memory = [PlainMemory(torch.tensor([[300.0], [-200.0]]), torch.tensor([[1.0], [-1.0]]))]
    options = {"attention": "linear", "feature": "taylor", "order": 2, "residual": False}
    model = OneLayerTransformer.packed((1,), (), memory, d_model=1, dtype=dtype, seed=6, **options)
    with torch.no_grad():
        model.own("W_Q").fill_(1.0)
    assert accepted(model, "0*x1", Box([0.5], [1.0]), tmp_path)


def test_features_of_elu_far_below_zero(tmp_path: Path) -> None:
    """exp(-60) errs by units of itself, not of 1: the quotient of two such sums is known well."""
    memory = [PlainMemory(torch.tensor([[-60.0], [-61.0]]), torch.tensor([[1.0], [-1.0]]))]
    options = {"attention": "linear", "feature": "elu", "residual": False}
    model = OneLayerTransformer.packed((1,), (), memory, d_model=1, dtype=torch.float64, seed=7, **options)
    assert accepted(model, "0*x1", Box([0.5], [1.0]), tmp_path)


def test_errors_of_a_narrow_format_are_passed_on_as_numbers_are(tmp_path: Path) -> None:
    """Values near 2000 of both signs average to 30: what a float16 query errs by is seen in the third digit.

    Errors that are added up prove less than the package does, and so do balls for what the query errs by.
    """
    axes = [[[7.5234375, -0.80126953125], [-19.734375, -5.56640625]]]
    axes.append([[-2.3984375, -8.890625], [7.484375, -26.5625], [-0.53466796875, -0.29345703125]])
    values = [[[-646.0], [1723.0], [-1239.0]], [[474.75], [-2262.0], [1770.0]]]
    memory = [GridMemory([torch.tensor(axis) for axis in axes], torch.tensor(values))]
    weights = {"W_E": [[-0.13525390625], [-0.6591796875]], "W_Q": [[-0.0004165172576904297, 0.00012362003326416016]]}
    weights |= {"W_O": [[-0.78515625]], "W_R": [[0.0919189453125]]}
    model = OneLayerTransformer.packed((2,), (), memory, d_model=1, dtype=torch.float16, seed=8, residual=False)
    with torch.no_grad():
        for name, numbers in weights.items():
            model.own(name).copy_(torch.tensor(numbers))
        for name in ("b_E", "b_Q", "b_O", "b_R"):
            model.own(name).zero_()
    assert accepted(model, "0*x1", Box([0.95, 1.46], [0.96, 1.47]), tmp_path, order=3)
