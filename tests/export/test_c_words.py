"""What a C file and its header say: no bound that was not proved, no value that is not f, no name that C has taken."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.errors import OnelayerError
from onelayer.export.c import to_c
from onelayer.export.compiled import FLAGS, compiled
from onelayer.layer.lookup import Affine, lookup_model
from onelayer.proof.certify import MODEL_DTYPE, certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation
from onelayer.training.estimators.estimator import OneLayerRegressor

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


def line(slope: float, f: str, box: Box, eps: float, execution: str | None = MODEL_DTYPE) -> Approximation:
    """T = slope x with what is known of its distance to f."""
    matrix = torch.tensor([[slope]], dtype=torch.float64)
    model = lookup_model(1, (), [], affine=Affine(matrix, torch.zeros(1).double()))
    return Approximation(model, certify(model, f, box, eps, execution=execution), as_target(f, box))


def numbers(text: str, head: str) -> list[float]:
    """The numbers of a table or constant of the self-test."""
    found = re.search(rf"{head}(?:\[\d+\])? = \{{?([^;}}]*)", text)
    assert found is not None
    return [float.fromhex(part) for part in found.group(1).replace("\n", " ").split(",") if part.strip()]


def test_a_bound_of_exact_arithmetic_is_no_bound_of_the_program(tmp_path: Path) -> None:
    box = Box([0.0], [1.0])
    real = line(1.0, "x1", box, 1e-3, execution=None)
    assert real.certificate.proved
    header = to_c(real, tmp_path / "real_line.c").with_suffix(".h").read_text()
    assert "_BOUND" not in header
    executed = to_c(line(1.0, "x1", box, 1e-3), tmp_path / "line.c").with_suffix(".h").read_text()
    assert "LINE_BOUND" in executed


def test_the_self_test_of_exact_arithmetic_allows_for_the_rounding_of_a_program(tmp_path: Path) -> None:
    """Of weights of float32: their real products are known to 1e-15, and a program rounds them to 6e-8."""
    slope = float(torch.tensor(1.1, dtype=torch.float32))
    box = Box([0.0], [1.0])
    model = line(slope, f"{slope!r}*x1", box, 1e-3).model.float()
    proof = certify(model, f"{slope!r}*x1", box, 1e-12, execution=None)
    assert proof.proved
    text = to_c(Approximation(model, proof, as_target(f"{slope!r}*x1", box)), tmp_path / "real_line.c").read_text()
    assert "y is T(x)" in text
    (allowed,) = numbers(text, "double allowed")
    assert allowed > 6e-8


@needs_compiler
def test_a_table_has_its_bound_at_its_rows_and_nowhere_else(tmp_path: Path) -> None:
    """Its heads weigh nothing, which no compiler may complain about."""
    table = memorize([[0.0], [1.0], [2.5]], ["a", "b", "c"])
    path = to_c(table, tmp_path / "recalled.c")
    text = path.read_text()
    header = path.with_suffix(".h").read_text()
    assert "Arguments must be rows of the table" in text
    assert "at the rows of the table alone" in next(row for row in header.splitlines() if "_BOUND" in row)
    assert "Outside the rows of the table nothing is promised" in header
    assert numbers(text, "real x") == [0.0, 1.0, 2.5]
    assert numbers(text, "double y") == [0.0, 1.0, 2.0]
    (allowed,) = numbers(text, "double allowed")
    assert table.certificate.upper <= allowed < 2 * table.certificate.upper
    rows = torch.tensor([[0.0], [1.0], [2.5]], dtype=torch.float64)
    assert torch.equal(compiled(path, table.model)(rows), table.model(rows))


def test_the_self_test_knows_f_where_sums_nearly_cancel(tmp_path: Path) -> None:
    """Of 1e200 x + x - 1e200 x nothing is left in two hundred bits."""
    a = line(1.0, "(1e200*x1 + x1) - 1e200*x1", Box([0.0], [1.0]), 1e-3)
    text = to_c(a, tmp_path / "line.c").read_text()
    assert "y is f(x), rounded" in text
    assert numbers(text, "double y") == pytest.approx(numbers(text, "real x"), rel=1e-15, abs=0)


def test_a_fitted_layer_speaks_of_no_certificate(tmp_path: Path) -> None:
    x = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None].numpy()
    fitted = OneLayerRegressor().fit(x, x[:, 0])
    path = to_c(fitted, tmp_path / "fit.c", guard="warn")
    assert "Nothing is proved about this layer." in path.read_text()
    header = path.with_suffix(".h").read_text()
    assert "certificate" not in header
    assert "Nothing is proved about this layer." in header


@pytest.mark.parametrize("name", ["memset.c", "free.c", "isnan.c", "bool.c", "unix.c", 'q"x.c', "a\nb.c", "wave.h"])
def test_names_that_would_break_a_program(name: str, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="cannot name a C function"):
        to_c(line(1.0, "x1", Box([0.0], [1.0]), 1e-3), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_a_name_with_a_hyphen_has_its_own_header(tmp_path: Path) -> None:
    a = line(1.0, "x1", Box([0.0], [1.0]), 1e-3)
    run = compiled(to_c(a, tmp_path / "my-line.c"), a.model)
    assert float(run(torch.tensor([[0.5]], dtype=torch.float64))) == 0.5


@needs_compiler
@pytest.mark.parametrize(
    "flag", ["-ffast-math", "-ffinite-math-only", "-freciprocal-math", "-funsafe-math-optimizations"]
)
def test_no_part_of_fast_math_compiles(flag: str, tmp_path: Path) -> None:
    a = line(1.0, "x1", Box([0.0], [1.0]), 1e-3)
    path = to_c(a, tmp_path / "line.c", guard="raise")
    with pytest.raises(OnelayerError, match="no -ffast-math"):
        compiled(path, a.model, flags=(*FLAGS, flag))


@needs_compiler
def test_constants_read_as_float_do_not_compile(tmp_path: Path) -> None:
    """No macro tells of them: the self-test of a proof to 1e-9 failed, and nothing else."""
    a = line(1.0, "x1", Box([0.0], [1.0]), 1e-3)
    path = to_c(a, tmp_path / "line.c")
    with pytest.raises(OnelayerError, match="constants_are_double"):
        compiled(path, a.model, flags=(*FLAGS, "-fsingle-precision-constant"))


@needs_compiler
@pytest.mark.parametrize(
    ("macro", "value"), [("DBL_MANT_DIG", 24), ("DBL_MAX_EXP", 128), ("FLT_MANT_DIG", 11), ("FLT_RADIX", 16)]
)
def test_other_formats_under_the_same_names_do_not_compile(macro: str, value: int, tmp_path: Path) -> None:
    """Compilers for small processors have a double of 32 bits: a bound of 1e-9 was kept beside errors of 1e-8."""
    a = line(1.0, "x1", Box([0.0], [1.0]), 1e-3)
    path = to_c(a, tmp_path / "line.c")
    flags = (*FLAGS, "-Wno-builtin-macro-redefined", f"-U__{macro}__", f"-D__{macro}__={value}")
    with pytest.raises(OnelayerError, match="IEEE formats"):
        compiled(path, a.model, flags=flags)
