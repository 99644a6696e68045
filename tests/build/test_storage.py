"""Layers built for few bits: float16, bfloat16 and int8, from the formula to the checker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from onelayer.box import Box
from onelayer.build.lookup.storage import Floats, Integers, storage_of
from onelayer.checker.check import check
from onelayer.conductor import approximate
from onelayer.errors import FileError, OnelayerError
from onelayer.export.exporter import export
from onelayer.export.onnx import to_onnx
from onelayer.layer.file import FILE_NAME, load_model
from onelayer.layer.int8 import integers, products
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.narrow import widened
from onelayer.result import Approximation, load

WAVE = "sin(3*x)*exp(-x)"
LINE = Box([-1.0], [1.0])
FRANKE = (
    "3/4*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 3/4*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 1/2*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 1/5*exp(-(9*x-4)**2-(9*y-7)**2)"
)
EPS = {"bfloat16": 2e-2, "float16": 2e-3, "int8": 2e-2}


@pytest.fixture(scope="module", params=list(EPS))
def built(request: pytest.FixtureRequest) -> Approximation:
    return approximate(WAVE, LINE, EPS[request.param], dtype=request.param)


def executed_error(model: OneLayerTransformer, count: int) -> float:
    """The largest |T - f| at numbers of the format."""
    x = torch.cat([LINE.sample(count), LINE.corners()]).to(model.dtype).clamp(-1, 1)
    exact = torch.sin(3 * x.double()) * torch.exp(-x.double())
    return float((model(x).double() - exact[:, 0]).abs().max())


def test_proved_saved_checked_and_within_the_bound(built: Approximation, tmp_path: Path) -> None:
    assert built.certificate.proved
    assert executed_error(built.model, 20_000) <= built.certificate.upper
    built.save(tmp_path)
    again = load(tmp_path)
    x = LINE.sample(50).to(built.model.dtype)
    assert torch.equal(again.model(x), built.model(x))
    assert again.model.int8 == built.model.int8
    judged = check(tmp_path, all=True)
    assert judged.ok, judged


def test_onnx_does_the_same(built: Approximation, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    session = runtime.InferenceSession(str(to_onnx(built, tmp_path / "wave.onnx")))
    x = LINE.sample(200).to(built.model.dtype)
    found = torch.from_numpy(session.run(None, {"x": widened(x).numpy()})[0])
    unit = 2.0**-20 if built.model.int8 else float(torch.finfo(built.model.dtype).eps)
    assert float((found - widened(built.model(x))).abs().max()) <= 2 * unit
    assert (tmp_path / "wave.onnx").stat().st_size < 6000


def test_values_are_better_than_rounded_ones() -> None:
    eight = approximate(WAVE, LINE, 2e-2, dtype="bfloat16")
    plain = approximate(WAVE, LINE, 2e-3)
    assert executed_error(eight.model, 4000) < executed_error(plain.model.to(torch.bfloat16), 4000)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "eps"), [("bfloat16", 1e-2), ("int8", 1e-2), ("float16", 3e-3)])
def test_franke(name: str, eps: float, tmp_path: Path) -> None:
    a = approximate(FRANKE, Box([0, 0], [1, 1]), eps, dtype=name)
    assert a.certificate.proved
    a.save(tmp_path)
    assert check(tmp_path, all=True).ok


def tampered(folder: Path, name: str, change: float) -> None:
    from safetensors import safe_open

    with safe_open(folder / FILE_NAME, "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(folder / FILE_NAME)
    tensors[name] = (tensors[name] + change).astype(tensors[name].dtype)
    save_file(tensors, folder / FILE_NAME, metadata)


@pytest.mark.parametrize(("name", "change"), [("memory.0.values", 3), ("memory.0.values.scale", 1e-3)])
def test_tampered_whole_numbers_and_scales_are_seen(tmp_path: Path, name: str, change: float) -> None:
    a = approximate(WAVE, LINE, 3e-2, dtype="int8")
    a.save(tmp_path)
    tampered(tmp_path, name, change)
    for opened in (check, load):
        with pytest.raises(FileError):
            opened(tmp_path)


def test_a_scale_that_is_not_that_of_its_column_is_refused(tmp_path: Path) -> None:
    approximate(WAVE, LINE, 3e-2, dtype="int8").save(tmp_path)
    tampered(tmp_path, "memory.0.values.scale", 0.1)
    with pytest.raises(FileError, match=r"not on an int8 grid|not those of its columns"):
        load_model(tmp_path)


def test_whole_numbers_and_scales_multiply_back_exactly() -> None:
    columns = Integers().nearest(np.random.default_rng(0).normal(size=(40, 3)) * [1, 1e-3, 1e4])
    tensor = torch.from_numpy(columns).to(torch.float32)
    whole, scales = integers(tensor)
    assert torch.equal(products(whole, scales), tensor)
    assert int(whole.abs().max()) == 127
    with pytest.raises(OnelayerError, match="not on an int8 grid"):
        integers(torch.randn(40, 2))


def test_a_weight_that_only_rounds_to_a_product_is_not_on_the_grid() -> None:
    """127 times a scale in float64 rounds to any one number; the float32 scale of a file would be another one."""
    numbers = torch.rand(1, 500, generator=torch.Generator().manual_seed(0))
    refused = 0
    for number in numbers.T.unbind():
        try:
            whole, scale = integers(number[:, None])
        except OnelayerError:
            refused += 1
        else:
            assert float(whole) * float(scale) == float(number)
    assert refused > 0


@pytest.mark.parametrize("f", ["0.3*x1 - 0.7*x2 + 1/3", "sin(x1) + 0.3*x2 + abs(x1 - 0.4)", "cos(0.6*x1 + 1.7*x2)"])
@pytest.mark.parametrize("name", list(EPS))
def test_affine_parts_kinks_and_directions_are_on_the_grid(f: str, name: str, tmp_path: Path) -> None:
    eps = 0.1 if name == "bfloat16" else 4e-2  # a query along a direction of both inputs is rounded to 8 bits
    a = approximate(f, Box([0, 0], [1, 1]), eps, dtype=name, jobs=1)
    assert a.certificate.proved
    a.save(tmp_path)
    assert check(tmp_path, all=True).ok


def test_stock_layers_and_arrays(built: Approximation, tmp_path: Path) -> None:
    assert built.model([[0.5]]).shape == (1,)
    if built.model.int8:
        assert export(built, to="torch", out=tmp_path).difference < 1e-5
        return
    for to in ("torch", "hf"):
        with pytest.raises(OnelayerError, match=r"rounds b?float16 at places of its own"):
            export(built, to=to, out=tmp_path)


def test_neighbours_are_the_next_numbers() -> None:
    here = Floats(torch.bfloat16).nearest(np.array([[1.0], [-0.3]]))
    below, above = Floats(torch.bfloat16).neighbours(here)
    assert below[0, 0] == 1 - 2.0**-8
    assert above[0, 0] == 1 + 2.0**-7
    assert (below < here).all()
    assert (here < above).all()


def test_what_dtype_means() -> None:
    assert storage_of("float32") is None
    assert storage_of(torch.float16) == Floats(torch.float16)
    assert storage_of("int8") == storage_of(torch.int8) == Integers()
    for bad in ("int4", torch.int64, 8):
        with pytest.raises(OnelayerError, match="dtype must be"):
            storage_of(bad)
    with pytest.raises(OnelayerError, match="layout 'tokens' is built in float64 or float32"):
        approximate("x1 + x2", Box([0, 0], [1, 1]), 0.1, layout="tokens", dtype="int8")
