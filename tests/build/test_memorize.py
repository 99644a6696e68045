"""Memorising layers: every row recalled within the proof, bad tables refused, files check, capacity by rank."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.build.memorize import labels, memorize, recall
from onelayer.build.tables.capacity import attention_rank
from onelayer.build.tables.table import read_table
from onelayer.checker.check import check
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.config import HeadShape
from onelayer.layer.file import weights_sha256
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.distance import smallest_squared_distance
from onelayer.result import load


def digits(rows: int = 1797) -> tuple[np.ndarray, np.ndarray]:
    """Images like the 8 x 8 digits, 17 grey levels, with random labels."""
    generator = np.random.default_rng(0)
    return np.round(generator.random((rows, 64)) ** 2 * 16), generator.integers(0, 10, rows)


@pytest.mark.parametrize("recipe", ["softmax", "relu", None])
def test_random_labels_are_recalled_with_a_margin(recipe: str | None) -> None:
    x, y = digits()
    m = memorize(x, y, recipe=recipe)
    assert m.certificate.proved
    assert m.certificate.method == "enumeration"
    assert m.recall_report.recalled == m.recall_report.rows == 1797
    assert m.recall_report.margin > 0.49
    assert m.recall_report.measured <= m.recall_report.error
    assert m.recall(x[:50]) == y[:50].tolist()
    if recipe != "softmax":
        assert m.recall_report.recipe == "relu"
        assert m.recall_report.stored_numbers == 2 * 1797 + 64
    assert m.recall_report.stored_numbers >= m.recall_report.lower_bound == 1797


@pytest.mark.parametrize("columns", [1, 3])
def test_random_reals_are_recalled_to_rounding(columns: int) -> None:
    generator = np.random.default_rng(columns)
    x, y = generator.random((2000, columns)), generator.random(2000)
    m = memorize(x, y)
    assert m.recall_report.recipe == "softmax"
    assert m.recall_report.error <= 1e-13
    assert m.certificate.lower <= m.recall_report.measured <= m.certificate.upper


def test_the_lipschitz_constant_bounds_slopes_between_rows() -> None:
    generator = np.random.default_rng(5)
    x, y = generator.random((60, 2)), generator.random(60)
    for recipe in ("softmax", "relu"):
        m = memorize(x, y, recipe=recipe)
        a = torch.from_numpy(generator.random((4000, 2)))
        b = a + 1e-5 * torch.from_numpy(generator.standard_normal((4000, 2)))
        slope = (m.model(a) - m.model(b)).abs() / (a - b).abs().amax(-1)
        assert 0 < slope.max() <= m.recall_report.lipschitz


def test_the_lipschitz_constant_is_that_of_the_rounded_weights() -> None:
    """Exact slopes of float32 layers: where coefficients are rounded, and where two rows attain the bound."""
    for seed in range(8):
        generator = np.random.default_rng(seed)
        m = memorize(np.arange(40) / 64, generator.random(40), recipe="relu", dtype=torch.float32, eps=0.01)
        slopes = m.model.own("W_2")[:, 1].double().cumsum(0) * m.model.own("W_E")[0, 0].double()
        assert float(slopes.abs().max()) <= m.recall_report.lipschitz
        pair = generator.random(2)
        m = memorize(pair, [0.0, 1.0], recipe="softmax", dtype=torch.float32)
        x = torch.linspace(pair.min(), pair.max(), 2001, dtype=torch.float64)[:, None].requires_grad_()
        m.model.double()(x).sum().backward()
        assert float(x.grad.abs().max()) <= m.recall_report.lipschitz


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("recipe", ["softmax", "relu"])
def test_saved_tables_load_and_check(tmp_path: Path, recipe: str, dtype: torch.dtype) -> None:
    generator = np.random.default_rng(2)
    x, y = generator.random((40, 3, 2)), generator.random((40, 2))  # sequences in, two numbers out
    m = memorize(x, y, recipe=recipe, dtype=dtype, eps=0.1)
    assert m.certificate.proved
    m.save(tmp_path / "table")
    again = load(tmp_path / "table")
    points = torch.from_numpy(x).to(dtype)
    assert torch.equal(again.model(points), m.model(points))
    assert again.certificate == m.certificate
    assert check(tmp_path / "table").ok


def test_close_numbers_are_spread_to_ranks_and_checked(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    x = np.sort(np.concatenate([generator.random(60), 0.5 + 1e-13 * np.arange(1, 9)]))
    m = memorize(x, generator.random(68), recipe="softmax")
    assert m.certificate.proved
    assert m.recall_report.measured <= m.recall_report.error < 1e-13
    m.save(tmp_path / "ranks")
    assert check(tmp_path / "ranks").ok
    slope = (m.model(torch.linspace(0, 1, 20001).double()[:, None]).diff().abs() / 5e-5).max()
    assert slope <= m.recall_report.lipschitz


@pytest.mark.parametrize("recipe", ["softmax", "relu"])
def test_the_checker_rejects_forgeries(tmp_path: Path, recipe: str) -> None:
    x, y = digits(30)
    m = memorize(x, y, recipe=recipe)
    loose = {"lower": 0.0, "witness": None}
    tight = replace(m.certificate, upper=m.certificate.upper / 4, **loose)
    replace(m, certificate=tight).save(tmp_path / "tight")
    assert "follows" in check(tmp_path / "tight").reason
    other = memorize(x, (y + 1) % 10, recipe=recipe)
    forged = replace(m.certificate, weights_sha256=weights_sha256(other.model), **loose)
    replace(other, certificate=forged).save(tmp_path / "other table")
    assert not check(tmp_path / "other table").ok


def test_one_row_and_equal_rows(tmp_path: Path) -> None:
    for recipe in ("softmax", "relu"):
        m = memorize([[3.0, 4.0]], [7.0], recipe=recipe)
        assert m.certificate.proved
        assert float(m.model(torch.tensor([3.0, 4.0], dtype=torch.float64))) == pytest.approx(7.0)
    m = memorize([[1.0], [2.0], [1.0]], ["a", "b", "a"])
    assert m.recall_report.rows == 2
    assert m.recall([[2.0], [1.0]]) == ["b", "a"]
    m.save(tmp_path / "labels")
    assert recall(load(tmp_path / "labels"), [[2.0], [1.0]]) == ["b", "a"]
    assert labels(load(tmp_path / "labels")) == ("a", "b")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.0], [2.0], [1.0]], [0.0, 1.0, 2.0], "rows 1 and 3"),
        ([[0.0], [-0.0]], [0, 1], "rows 1 and 2"),
        ([[1.0], [float("nan")]], [0.0, 1.0], "row 2"),
        ([[1.0], [2.0]], [0.0, float("inf")], "row 2"),
        ([[1.0], [2.0]], [0.0], "one row per example"),
        ([["a"], ["b"]], [0.0, 1.0], "numbers"),
        ([], [], "one row"),
    ],
)
def test_bad_tables_are_refused_in_one_line(x: list, y: list, message: str) -> None:
    with pytest.raises(OnelayerError, match=message) as caught:
        memorize(x, y)
    assert "\n" not in str(caught.value)


def test_rows_too_close_for_the_format_are_undecided_not_wrong() -> None:
    x = np.stack([np.append(np.arange(39) * 1e-12, 1.0)] * 2, 1)
    m = memorize(x, np.arange(40) % 2, recipe="softmax")
    assert m.certificate.status != "proved"
    equal = memorize([[1e-20, 0.0], [2e-20, 0.0], [1.0, 1.0]], [0.0, 1.0, 0.0], recipe="softmax")
    # The first two rows are equal once centred and rounded: which of them a pass recalls is a matter of its rounding.
    assert equal.certificate.status == "undecided"
    assert equal.recall_report.recalled < 3
    assert equal.recall_report.recalled == 1
    spread = memorize(x[:, 0], np.arange(40) % 2, recipe="softmax")  # one column: ranks come to help
    assert spread.certificate.proved
    assert spread.model.config.embedding == "piecewise"


def test_distance_is_a_lower_bound() -> None:
    z = torch.randn(300, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z[7] = z[200] + 1e-6
    exact = float(((z[:, None] - z) ** 2).sum(-1).fill_diagonal_(torch.inf).min())
    for scale, shift in ((1.0, 0.0), (1e-3, 40.0)):
        moved = z * scale + shift
        exact = float(((moved[:, None] - moved) ** 2).sum(-1).fill_diagonal_(torch.inf).min())
        assert exact * (1 - 1e-10) <= smallest_squared_distance(moved) <= exact


def test_large_tables_go_through_matrix_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block-wise path gives the same distance and the same recall."""
    import sys

    monkeypatch.setattr(sys.modules["onelayer.lemmas.distance"], "DIRECT", 0)
    z = torch.rand(500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    exact = float(((z[:, None] - z) ** 2).sum(-1).fill_diagonal_(torch.inf).min())
    assert exact * (1 - 1e-10) <= smallest_squared_distance(z) <= exact
    m = memorize(z.numpy(), np.arange(500) % 7, recipe="softmax")
    assert m.recall_report.recalled == 500
    assert m.certificate.proved


def test_tables_are_read_from_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,v,y\n1,2,red\n3,4.5,blue\n")
    x, y = read_table(tmp_path / "a.csv", "y")
    assert x.tolist() == [[1, 2], [3, 4.5]]
    assert y.tolist() == ["red", "blue"]
    (tmp_path / "b.csv").write_text("y,u\n1,2\n3,4\n")
    assert read_table(tmp_path / "b.csv", "y")[1].dtype == np.int64
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"u": [1.0, 2.0], "y": [0.5, 1.5]}), tmp_path / "c.parquet")
    x, y = read_table(tmp_path / "c.parquet", "y")
    assert (x.tolist(), y.tolist()) == ([[1.0], [2.0]], [0.5, 1.5])


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("u,y\n1,2\n", "z", "no column 'z'"),
        ("u,y\n,2\n", "y", "missing value in row 1"),
        ("u,y\nred,2\n", "y", "text 'red' in row 1"),
        ("u,y\n1,\n", "y", "missing value in row 1"),
        ("u,y\n1,2,3\n", "y", "line 2"),
        ("u,u\n1,2\n", "u", "every column once"),
        ("y\n1\n", "y", "only the column"),
        ("u,y\n", "y", "at least one row"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, target: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(OnelayerError, match=message) as caught:
        read_table(tmp_path / "t.csv", target)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match="cannot read"):
        read_table(tmp_path / "none.csv", target)


@pytest.mark.parametrize(("heads", "tokens"), [(1, 4), (3, 5), (4, 8)])
def test_attention_memorises_exactly_heads_times_tokens_less_one_plus_one(heads: int, tokens: int) -> None:
    """Random heads over a shared context: the rank of the features is H (n - 1) + 1, and so many labels fit."""
    generator = torch.Generator().manual_seed(heads)
    memory = [
        PlainMemory(torch.randn(tokens, 3, generator=generator).double(), torch.zeros(tokens, 1).double())
        for _ in range(heads)
    ]
    assert memory[0].shape == HeadShape(3, 1, "plain", (tokens,))
    model = OneLayerTransformer.packed((6,), (), memory, d_model=6, seed=heads)
    x = torch.randn(4 * heads * tokens, 6, generator=generator, dtype=torch.float64)
    assert attention_rank(model, x) == heads * (tokens - 1) + 1
    few = heads * (tokens - 1)
    assert attention_rank(model, x[:few]) == few


def test_what_lies_between_rows_on_a_grid_is_said() -> None:
    rpm, load = (side.ravel() for side in np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 2, 5), indexing="ij"))
    m = memorize(np.stack([rpm, load], axis=1), np.sin(3 * rpm) + load / 3)
    middle = torch.tensor([[0.1, 0.25]], dtype=torch.float64)
    corners = [np.sin(3 * a) + b / 3 for a in (0.0, 0.2) for b in (0.0, 0.5)]
    assert m.recall_report is not None
    assert m.recall_report.between is not None
    assert m.recall_report.between >= abs(float(m.model(middle)) - float(np.mean(corners))) - 1e-12
    assert "from linear interpolation" in str(m.recall_report)
    scattered = memorize(np.array([[0.0, 0.1], [0.3, 0.9], [1.0, 0.5]]), np.array([0.5, 1.5, 2.5]))
    assert scattered.recall_report is not None
    assert scattered.recall_report.between is None


@pytest.mark.parametrize("outputs", [[1.0, 2.0, 0.0], ["a", "b", "c"]], ids=["numbers", "labels"])
def test_what_is_proved_of_a_table_is_printed_on_its_own_side(outputs: list[Any]) -> None:
    report = memorize([[1.0], [2.0], [4.0]], outputs, recipe="softmax").recall_report
    assert report is not None
    said = str(report)
    assert number_after("error <= ", said) >= report.error
    assert number_after("Lipschitz constant ", said) >= report.lipschitz
    if report.margin is not None:
        assert number_after("margin ", said) <= report.margin


def number_after(head: str, text: str) -> float:
    return float(text.split(head)[1].split(",")[0])


@pytest.mark.parametrize("labels", [["a\0", "a"], [1.5, "a"], [None, "a"]], ids=["zero character", "number", "none"])
def test_labels_that_would_come_back_as_others_are_refused(labels: list[Any]) -> None:
    with pytest.raises(OnelayerError, match="all text"):
        memorize([[1.0], [2.0]], labels)


def test_numbers_that_float64_has_not_are_refused() -> None:
    near = np.longdouble(1) + np.finfo(np.longdouble).eps
    if near == np.float64(near):
        pytest.skip("long double is double here")
    with pytest.raises(OnelayerError, match=r"X has numbers of .* that are no float64 numbers"):
        memorize(np.array([[1.0], [near]], dtype=np.longdouble), [0.0, 0.0])
    with pytest.raises(OnelayerError, match=r"Y has numbers of .* that are no float64 numbers"):
        memorize([[1.0], [2.0]], np.array([1.0, near], dtype=np.longdouble))


def test_a_row_that_is_no_number_has_no_label() -> None:
    m = memorize([[1.0], [2.0]], ["a", "b"])
    assert m.recall([[2.0], [1.0]]) == ["b", "a"]
    with pytest.raises(OnelayerError, match="no label for row 2"):
        m.recall([[1.0], [math.nan]])


def test_a_lipschitz_constant_does_not_vanish_before_its_factors_meet() -> None:
    """Slopes below the normal range: a product that is rounded to nearest may be too small, or zero."""
    for exponent in range(-305, -295):
        rows, outputs = np.array([0.0, 1.7e20, 4.1e20]), np.array([0.0, 1.3, -0.7]) * 10.0**exponent
        made = memorize(rows, outputs, recipe="relu")
        assert made.recall_report is not None
        weights = made.model.state_dict()
        (knots, changes), along = (-weights["b_1"], weights["W_2"][:, 1]), Fraction(weights["W_E"][0, 0].item())
        slopes = accumulate(Fraction(c) for _, c in sorted(zip(knots.tolist(), changes.tolist(), strict=True)))
        assert max(map(abs, slopes)) * abs(along) <= Fraction(made.recall_report.lipschitz)


def test_rows_far_apart_have_a_lipschitz_constant() -> None:
    """Scales of 2^-996, whose squares vanish."""
    made = memorize(np.array([[1e299, 2e299], [2e299, 1e299]]), np.array([0.0, 1.0]), recipe="softmax")
    assert made.certificate.proved
    assert made.recall_report is not None
    assert made.recall_report.lipschitz >= 1e-299


def test_labels_that_no_float64_tells_apart_are_no_labels(tmp_path: Path) -> None:
    """9007199254740993 was recalled as 9007199254740992."""
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,9007199254740993\n2,9007199254740992\n3,5\n")
    _, outputs = read_table(path, "y")
    assert outputs.dtype == np.float64
    path.write_text("a,y\n1,9007199254740991\n2,-9007199254740991\n3,5\n")
    _, outputs = read_table(path, "y")
    assert outputs.tolist() == [9007199254740991, -9007199254740991, 5]
    assert outputs.dtype == np.int64
