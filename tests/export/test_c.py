"""The C file: it compiles without a warning, does what the layer does, and stays inside the proved bound."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, ctx

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.export.c import to_c
from onelayer.export.c_text import comment, literal
from onelayer.export.compiled import FLAGS, compiled
from onelayer.export.exporter import export
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.result import Approximation

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
BOX = Box([0.0, 0.0], [6.0, 6.0])
CONTRACTED = ("-std=c99", "-O3", "-march=native", "-ffp-contract=fast")

# Reads count points from stdin and writes their values: the same file, called a million times.
BATCH = """
#include "{name}.h"
#include <stdio.h>
int main(void)
{{
    {kind} x[{upper}_INPUTS], y[{upper}_OUTPUTS];
    while (fread(x, sizeof x, 1, stdin) == 1) {{
        {name}(x, y);
        fwrite(y, sizeof y, 1, stdout);
    }}
    return 0;
}}
"""


@pytest.fixture(scope="module", params=["float64", "float32"])
def proved(request: pytest.FixtureRequest) -> Approximation:
    dtype = getattr(torch, request.param)
    return approximate("sin(x1) + sin(x2)", BOX, 1e-3, dtype=dtype)


def batch(path: Path, x: np.ndarray[Any, Any], flags: tuple[str, ...]) -> np.ndarray[Any, Any]:
    name, kind = path.stem, "float" if x.dtype == np.float32 else "double"
    driver = path.with_name("driver.c")
    driver.write_text(BATCH.format(name=name, upper=name.upper(), kind=kind))
    program = path.with_suffix("")
    subprocess.run(["gcc", *flags, str(path), str(driver), "-o", str(program), "-lm"], check=True, timeout=60)
    done = subprocess.run([str(program)], input=x.tobytes(), capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, x.dtype)


@needs_compiler
@pytest.mark.parametrize("flags", [FLAGS, CONTRACTED], ids=["plain", "contracted"])
def test_a_million_points_and_the_corners_are_inside_the_bound(
    proved: Approximation, flags: tuple[str, ...], tmp_path: Path
) -> None:
    path = to_c(proved, tmp_path / "wave.c")
    points = torch.cat([BOX.sample(500_000), BOX.sample(500_000, seed=1, arcsine=True), BOX.corners()])
    x = points.to(proved.model.dtype).clamp(0, 6).contiguous()
    found = batch(path, x.numpy(), flags)
    f = torch.sin(x.double()).sum(-1).numpy()
    assert len(found) == 1_000_004
    assert proved.certificate.proved
    assert np.abs(found.astype(np.float64) - f).max() <= proved.certificate.upper + 1e-15
    assert np.abs(found - proved.model(x).numpy()).max() <= (1e-14 if x.dtype == torch.float64 else 1e-5)


@pytest.mark.slow
@needs_compiler
def test_every_construction(sample: Any, tmp_path: Path) -> None:
    path = to_c(sample.model, tmp_path / "layer.c")
    assert sample.difference(compiled(path, sample.model)(sample.points)) <= sample.bar


@needs_compiler
@pytest.mark.parametrize(("norm", "readout"), [("none", "mean"), ("pre", "each"), ("post", "last"), ("post", "first")])
def test_every_kind_of_layer(norm: str, readout: str, tmp_path: Path) -> None:
    shape = (3, 2) if readout == "each" else (2,)
    model = OneLayerTransformer.tokens(
        (3, 2), shape, d_model=6, heads=2, hidden=40, norm=norm, readout=readout, positions="sinusoidal",
        embedding="piecewise", ramps=4, residual=norm != "none", seed=3,
    )  # fmt: skip
    path = to_c(model.requires_grad_(False), tmp_path / "layer.c")
    x = Box([[-1.0, -1.0]] * 3, [[2.0, 2.0]] * 3).sample(20)
    assert float((compiled(path, model)(x) - model(x)).abs().max()) <= 1e-12


def self_tested(path: Path, guard: str = "") -> int:
    program = path.with_suffix("")
    flag = f"-D{path.stem.upper()}_SELF_TEST"
    subprocess.run(["gcc", *FLAGS, "-pedantic", flag, str(path), "-o", str(program), "-lm"], check=True, timeout=60)
    return subprocess.run([str(program)], timeout=20).returncode


@needs_compiler
def test_the_self_test_passes_and_a_planted_fault_is_seen(proved: Approximation, tmp_path: Path) -> None:
    path = to_c(proved, tmp_path / "wave.c")
    assert self_tested(path) == 0
    text = path.read_text()
    value = re.search(r"wave_values0\[\d+\] = \{\s+(\S+),", text)
    assert value is not None
    path.write_text(text.replace(value.group(1), "0x1p-3", 1))
    assert self_tested(path) == 1


@needs_compiler
@pytest.mark.parametrize("guard", ["warn", "raise", "clamp"])
def test_guards(proved: Approximation, guard: str, tmp_path: Path) -> None:
    path = to_c(proved, tmp_path / "wave.c", guard=guard)
    assert self_tested(path) == 0
    run = compiled(path, proved.model)
    x = torch.tensor([[1.0, 2.0], [7.0, 2.0], [math.nan, 2.0], [6.0, 0.0]], dtype=proved.model.dtype)
    inside, outside, undefined, corner = run(x).tolist()
    exact = proved.model(x)
    near = 1e-5 if x.dtype == torch.float32 else 1e-12
    assert inside == pytest.approx(float(exact[0]), abs=near)
    assert corner == pytest.approx(float(exact[3]), abs=near)
    assert math.isnan(undefined)
    moved = float(proved.model(torch.tensor([6.0, 2.0], dtype=x.dtype)))
    wanted = {"warn": float(exact[1]), "raise": math.nan, "clamp": moved}[guard]
    assert outside == pytest.approx(wanted, abs=near, nan_ok=True)


def test_the_comment_states_claim_domain_hash_and_assumptions(proved: Approximation, tmp_path: Path) -> None:
    text = to_c(proved, tmp_path / "wave.c").read_text()
    said = " ".join(text[: text.index("*/")].replace("\n *", " ").split())
    for fact in (proved.certificate.sentence, proved.certificate.weights_sha256, "[0.0, 6.0] x [0.0, 6.0]"):
        assert fact in said
    assert "4 units in the last place" in said
    assert "malloc" not in text
    assert re.findall(r"#include (\S+)", text) == ['"wave.h"', "<float.h>", "<math.h>"]
    assert all("static const" in line for line in text.splitlines() if re.match(r"static .*\[\d+\] = \{", line))


def test_the_export_door_compiles_and_compares(proved: Approximation, tmp_path: Path) -> None:
    exported = export(proved, to="c", out=tmp_path / "out")
    assert exported.path == tmp_path / "out" / "model.c"
    assert (tmp_path / "out" / "model.h").exists()
    assert math.isnan(exported.difference) or exported.difference <= 1e-5


@pytest.mark.parametrize("name", ["1st.c", "double.c", "a-.c/../é.c", "main.c", "sin.c", "absf.c", "x.c", "EXP.c"])
def test_names_that_are_no_functions(name: str, proved: Approximation, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="cannot name a C function"):
        to_c(proved, tmp_path / Path(name).name)


def test_what_has_no_c_form_is_refused(tmp_path: Path) -> None:
    memory = GridMemory([torch.ones(2, 4).double()], torch.ones(2, 1).double())
    linear = OneLayerTransformer.packed((1,), (1,), [memory], attention="linear")
    with pytest.raises(OnelayerError, match="softmax"):
        to_c(linear, tmp_path / "layer.c")
    mixed = OneLayerTransformer.tokens((2, 1), (2, 1), d_model=4, heads=1, memory=[memory], d_k=4, d_v=1)
    with pytest.raises(OnelayerError, match="materialize"):
        to_c(mixed, tmp_path / "layer.c")


def test_no_text_ends_the_comment() -> None:
    shown = comment(["*/ int main(void) { /* ??/", "ünïcode \\", "a\nb"])
    assert shown.count("*/") == shown.count("/*") == 1
    assert shown.isascii()
    assert "??/" not in shown


def test_literals_are_exact() -> None:
    for value in (0.1, -1e-310, 5e-324, 1.7e308, 2.0**-126, math.pi):
        assert float.fromhex(literal(value, torch.float64)) == value
    assert literal(float(np.float32(0.1)), torch.float32) == "0x1.99999ap-4f"


def test_the_exponential_of_this_machine_is_within_the_assumed_units() -> None:
    ctx.prec, before = 120, ctx.prec
    try:
        for value in torch.linspace(-700, 700, 4001, dtype=torch.float64).tolist():
            found, exact = math.exp(value), arb(value).exp()
            assert abs(arb(found) - exact) <= 4 * math.ulp(found)
    finally:
        ctx.prec = before
