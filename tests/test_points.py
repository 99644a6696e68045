"""Points as users bring them: numbers of any library, or one line that says what is none; nothing is dropped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.guard import Guarded
from onelayer.points import need_tensor, points_of, real_numbers
from onelayer.proof.saved import load_claim, save_claim

LINE = ol.Box([0.0], [1.0])
LAYER = ol.approximate("x", LINE, 0.1).model
SQUARE = {"x": [0.0, 0, 1, 1], "y": [0.0, 1, 0, 1], "z": [1.0, 2, 3, 4]}
ROWS = np.random.default_rng(0).random((12, 3))


class Loud:
    """What raises an error of its own wherever it is looked into."""

    def __len__(self) -> int:
        raise RuntimeError("two\nlines")

    def __float__(self) -> float:
        raise RuntimeError("two\nlines")

    __iter__ = __getitem__ = __array__ = __len__  # type: ignore[assignment]


NO_POINTS = [
    *(None, "abc", b"x", 0.5, 10**400, {}, {1}, object(), Loud(), [Loud()], [], ["a"], [[1.0], [1.0, 2.0]], [1j]),
    *(np.array([0.5j]), np.array(["0.5"]), np.ma.masked_array([0.5], mask=[True]), np.array(["2020"], "datetime64[Y]")),
    *(torch.zeros(2, 2).to_sparse(), torch.zeros(1, 1, device="meta", dtype=torch.float64), LINE, LAYER, torch.float64),
]


def _claim(folder: Path) -> Any:
    claim = ol.lipschitz(LAYER, LINE)
    save_claim(claim, folder / "claim")
    return load_claim(folder / "claim")


DOORS: dict[str, Callable[[Path], Callable[[Any], Any]]] = {
    "layer": lambda folder: LAYER,
    "guarded": lambda folder: Guarded(LAYER, LINE, "warn"),
    "claim": _claim,
    "table": lambda folder: ol.Table.read({"x": [0, 1], "y": [1, 2]}, inputs="x", output="y"),
    "two inputs": lambda folder: ol.Table.read(SQUARE, inputs="x,y", output="z"),
    "scattered": lambda folder: ol.Table.read(dict(zip("xyz", ROWS.T, strict=True)), inputs="x,y", output="z"),
    "black box": lambda folder: ol.BlackBox(lambda x: x[0], 1.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DOORS)
def test_what_are_no_points_is_told_in_a_line(tmp_path: Path, name: str) -> None:
    called = DOORS[name](tmp_path)
    for given in NO_POINTS:
        # A layer without tensors to look into follows shapes on the device meta, as any module does.
        if name == "layer" and isinstance(given, torch.Tensor):
            continue
        with pytest.raises(OnelayerError) as caught:
            called(given)
        assert "\n" not in str(caught.value)


def test_a_claim_is_a_function_of_points_of_any_library(tmp_path: Path) -> None:
    claim = _claim(tmp_path)
    x = torch.tensor([[[0.25]], [[0.75]]], dtype=torch.float64)
    assert torch.equal(claim(x), LAYER(x))
    assert np.array_equal(claim(x.tolist()), LAYER(x).detach().numpy())
    with pytest.raises(OnelayerError, match="the model takes points"):
        claim(torch.zeros(2, 3, dtype=torch.float64))


def test_numbers_keep_their_values() -> None:
    half = torch.tensor([0.1, 3.0], dtype=torch.bfloat16, requires_grad=True)
    assert points_of(half).tolist() == half.tolist()
    assert real_numbers(torch.tensor([1, 2])).dtype.kind == "i"
    assert points_of([True, 2]).tolist() == [1.0, 2.0]
    need_tensor(torch.zeros(1))


@pytest.mark.parametrize("hidden", ["X", "Y"])
def test_masked_rows_are_not_memorised(hidden: str) -> None:
    rows = {"X": np.array([0.0, 1.0, 2.0]), "Y": np.array([0.5, 999.0, 2.5])}
    rows[hidden] = np.ma.masked_array(rows[hidden], mask=[False, True, False])
    with pytest.raises(OnelayerError, match="nothing masked"):
        ol.memorize(**rows)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 100_000, "."])
def test_a_checkpoint_that_no_file_can_be_is_refused_before_the_proof(name: str) -> None:
    with pytest.raises(OnelayerError, match="cannot write") as caught:
        ol.certify(LAYER, "x", LINE, 0.2, checkpoint=name)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_in_a_folder_that_is_a_file_costs_no_proof(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ol.certify(LAYER, "x", LINE, 0.2, checkpoint=tmp_path / "file" / "state").proved


@pytest.mark.parametrize(
    "call",
    [
        lambda: LINE.sample(-1),
        lambda: LINE.sample(0),
        lambda: LINE.sample(10**400),
        lambda: LINE.sample(2, seed=-1),
        lambda: LINE.sample(2, seed=2**70),
        lambda: LINE.corners(-1),
        lambda: LINE.contains(torch.zeros(2, 2).to_sparse()),
        lambda: ol.BlackBox(lambda x: x[0], 1.0).on("x=0:1"),  # type: ignore[arg-type]
        lambda: ol.BlackBox(lambda x: x[0], 1.0)([]),
    ],
)
def test_odd_numbers_of_points_are_told_in_a_line(call: Callable[[], Any]) -> None:
    with pytest.raises(OnelayerError) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_numbers_of_other_libraries_are_seeds() -> None:
    assert torch.equal(LINE.sample(np.int8(3), seed=np.int8(2)), LINE.sample(3, seed=2))  # type: ignore[arg-type]
    assert ol.approximate("x", LINE, 0.1, seed=np.int8(2)).certificate.proved  # type: ignore[arg-type]
