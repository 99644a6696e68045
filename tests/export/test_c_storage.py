"""C files of int8, float16 and bfloat16 layers: a million points and the corners inside the proved bound."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.export.c import to_c
from onelayer.export.compiled import FLAGS, compiled
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.result import Approximation

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
BOX = Box([0.0, 0.0], [2.0, 2.0])
FUNCTION = "sin(x1)*cos(x2) + x1/2"
EPS = {"int8": 3e-2, "bfloat16": 3e-2, "float16": 3e-3}
CONTRACTED = ("-std=c99", "-O3", "-march=native", "-ffp-contract=fast")
BATCH = """
#include "wave.h"
#include <stdio.h>
int main(void)
{
    float x[WAVE_INPUTS], y[WAVE_OUTPUTS];
    while (fread(x, sizeof x, 1, stdin) == 1) {
        wave(x, y);
        fwrite(y, sizeof y, 1, stdout);
    }
    return 0;
}
"""


@pytest.fixture(scope="module", params=list(EPS))
def proved(request: pytest.FixtureRequest) -> Approximation:
    return approximate(FUNCTION, BOX, EPS[request.param], dtype=request.param, jobs=1)


def batch(path: Path, x: np.ndarray[Any, Any], flags: tuple[str, ...]) -> np.ndarray[Any, Any]:
    driver, program = path.with_name("driver.c"), path.with_suffix("")
    driver.write_text(BATCH)
    subprocess.run(["gcc", *flags, str(path), str(driver), "-o", str(program), "-lm"], check=True, timeout=60)
    done = subprocess.run([str(program)], input=x.tobytes(), capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, np.float32)


@pytest.mark.parametrize("flags", [FLAGS, CONTRACTED], ids=["plain", "contracted"])
def test_a_million_points_and_the_corners_are_inside_the_bound(
    proved: Approximation, flags: tuple[str, ...], tmp_path: Path
) -> None:
    points = torch.cat([BOX.sample(500_000), BOX.sample(500_000, seed=1, arcsine=True), BOX.corners()])
    x = points.to(proved.model.dtype).clamp(0, 2).float().contiguous()
    found = batch(to_c(proved, tmp_path / "wave.c"), x.numpy(), flags)
    exact = x.double()
    f = torch.sin(exact[:, 0]) * torch.cos(exact[:, 1]) + exact[:, 0] / 2
    assert len(found) == 1_000_004
    assert proved.certificate.proved
    assert np.abs(found - f.numpy()).max() <= proved.certificate.upper + 1e-15


@pytest.mark.parametrize("guard", [None, "warn", "raise", "clamp"])
def test_arguments_between_numbers_of_the_format_are_rounded_first(
    proved: Approximation, guard: str | None, tmp_path: Path
) -> None:
    """The bound is about numbers of the format; what is none of them is rounded, and the header says so."""
    path = to_c(proved, tmp_path / "wave.c", guard=guard)
    between = BOX.sample(5_000).float()
    rounded = between.to(proved.model.dtype).float()
    found = batch(path, torch.cat([between, rounded]).numpy(), FLAGS)
    if proved.model.int8:
        assert torch.equal(between, rounded)
        return
    assert np.array_equal(found[:5_000], found[5_000:])
    assert "is rounded to" in " ".join(path.with_suffix(".h").read_text().split())
    nothing = np.array([[0x7FFFFFFF, 0x3F800000], [0xFFFFFFFF, 0]], dtype=np.uint32).view(np.float32)
    assert np.isnan(batch(path, nothing, FLAGS)).all()


def test_the_program_does_what_the_layer_does(proved: Approximation, tmp_path: Path) -> None:
    run = compiled(to_c(proved, tmp_path / "wave.c"), proved.model)
    x = BOX.sample(200).to(proved.model.dtype)
    unit = 2.0**-20 if proved.model.int8 else float(torch.finfo(proved.model.dtype).eps)
    assert float((run(x) - proved.model(x)).abs().max()) <= 4 * unit


def test_whole_numbers_are_stored_as_such(proved: Approximation, tmp_path: Path) -> None:
    text = to_c(proved, tmp_path / "wave.c").read_text()
    assert ("static const signed char wave_values0" in text) == proved.model.int8
    assert ("hold(" in text) == (not proved.model.int8)


def self_tested(path: Path) -> int:
    program = path.with_suffix("")
    flags = [*FLAGS, "-pedantic", "-DWAVE_SELF_TEST"]
    subprocess.run(["gcc", *flags, str(path), "-o", str(program), "-lm"], check=True, timeout=60)
    return subprocess.run([str(program)], timeout=20).returncode


def test_the_self_test_passes_and_a_planted_fault_is_seen(proved: Approximation, tmp_path: Path) -> None:
    path = to_c(proved, tmp_path / "wave.c")
    assert self_tested(path) == 0
    values = re.search(r"wave_values0\[\d+\] = \{\s+(.*?),", path.read_text())
    assert values is not None
    wrong = values.group(0).replace(f" {values.group(1)},", " 127," if proved.model.int8 else " 0x1p3f,")
    path.write_text(path.read_text().replace(values.group(0), wrong))
    assert self_tested(path) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_every_operation_is_rounded_where_the_layer_rounds_it(dtype: torch.dtype, norm: str, tmp_path: Path) -> None:
    model = OneLayerTransformer.tokens(
        (3, 2), (2,), d_model=6, heads=2, hidden=5, norm=norm, readout="mean", positions="sinusoidal",
        embedding="piecewise", ramps=4, residual=True, seed=3,
    ).to(dtype).requires_grad_(False)  # fmt: skip
    run = compiled(to_c(model, tmp_path / "layer.c"), model)
    x = Box([[-1.0, -1.0]] * 3, [[2.0, 2.0]] * 3).sample(50).to(dtype)
    unit = float(torch.finfo(dtype).eps)
    found, ours = run(x).double(), model(x).double()
    assert float((found - ours).abs().max()) <= 8 * unit * float(ours.abs().max())
    assert float((found == ours).double().mean()) > 0.5  # another order of a sum changes few last bits


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_hold_is_the_cast(dtype: torch.dtype, tmp_path: Path) -> None:
    """Numbers around ties, binades and zero, through the rounding of an exported file."""
    from onelayer.export.c_text import HELPERS

    name = str(dtype).removeprefix("torch.")
    code = "#include <stdio.h>\ntypedef float real;\n" + HELPERS[f"hold_{name}"]
    code += "int main(void) { float a; while (fread(&a, 4, 1, stdin) == 1) { hold(&a, 1); fwrite(&a, 4, 1, stdout); } "
    path = tmp_path / "hold.c"
    path.write_text(code + "return 0; }\n")
    subprocess.run(["gcc", *FLAGS, str(path), "-o", str(tmp_path / "hold"), "-lm"], check=True, timeout=60)
    generator = torch.Generator().manual_seed(0)
    scale = torch.exp2(torch.randint(-27, 15, (20_000,), generator=generator).double())
    steps = torch.randint(1, 2**14, (20_000,), generator=generator).double() / 2**13
    numbers = torch.cat([scale * steps, -scale * steps, torch.tensor([0.0, torch.inf, -torch.inf]).double()]).float()
    done = subprocess.run([str(tmp_path / "hold")], input=numbers.numpy().tobytes(), capture_output=True, timeout=60)
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), numbers.to(dtype).float().numpy())
