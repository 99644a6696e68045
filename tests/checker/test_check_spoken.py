"""The function of a proof is one, whether its text is read by numbers or by the names of the coordinates."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest
import torch
from stated_folders import claimed, restated

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.errors import FileError
from onelayer.language.formula import parse
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

F64 = torch.float64


def refused(folder: Path) -> bool:
    """Rejected, or not read at all."""
    try:
        return check(folder).verdict == "rejected"
    except FileError:
        return True


def difference(first: str, second: str) -> tuple[OneLayerTransformer, Box]:
    """T = x1 - 2 x2 on a box with these names."""
    zero, one = torch.zeros(1, 1, dtype=F64), torch.ones(1, 1, dtype=F64)
    weights = {"W_E": torch.tensor([[1.0], [-2.0]], dtype=F64), "W_Q": zero, "W_O": zero, "W_R": one}
    weights |= {f"b_{k}": zero[0] for k in "EQOR"}
    model = OneLayerTransformer.packed(
        (2,), (), [PlainMemory(zero, zero)], d_model=1, residual=True, hidden=0, weights=weights
    )
    names = (first, second) if first else ()
    low, high = torch.tensor([0.0, 5.0], dtype=F64), torch.tensor([1.0, 6.0], dtype=F64)
    return model, Box(low, high, names=names)


@pytest.mark.parametrize(
    ("names", "text", "accepted"),
    [
        (("", ""), "x - 2*y", True),
        (("x", "y"), "x - 2*y", True),
        (("y", "x"), "x1 - 2*x2", True),
        (("t[s]", "x"), "x1 - 2*x2", True),
        # x is the second coordinate to whoever reads the domain, and the first to whoever reads the file.
        (("y", "x"), "x - 2*y", False),
        (("y[m]", "x"), "x - 2*y", False),
        (("x", "v"), "x - 2*y", True),
        # A part of the formula, defined there, has the meaning that it is given.
        (("v", "w"), "v = x2; x1 - 2*v", True),
    ],
)
def test_a_text_that_two_readers_read_differently_is_refused(
    tmp_path: Path, names: tuple[str, str], text: str, accepted: bool
) -> None:
    model, box = difference(*names)
    report = check(claimed(tmp_path, model, text, box, [255], upper=1e-12))
    assert report.ok == accepted, report.reason


def test_text_given_for_a_function_may_use_the_names(tmp_path: Path) -> None:
    model, box = difference("y", "x")
    folder = claimed(tmp_path, model, "not recorded: a callable", box, [255], upper=1e-12)
    for text in ("y - 2*x", "x1 - 2*x2"):
        assert check(folder, f=text).ok
    assert check(folder, f="x - 2*y").verdict == "rejected"


@pytest.mark.parametrize("names", [["y ", "x "], [" y", " x "], ["y [m]", "x [m]"], ["y\u2003", "\u00a0x"]])
def test_names_are_read_as_they_are_shown(tmp_path: Path, names: list[str]) -> None:
    """With blanks a name met no word of the text, which was read by numbers alone; loading showed y and x."""
    model, box = difference("x", "v")
    folder = claimed(tmp_path, model, "x - 2*y", box, [255], upper=1e-12)
    assert check(folder).ok
    assert check(restated(folder, names=names)).verdict == "rejected"


@pytest.mark.parametrize(("name", "text"), [("e", "e - 2*x2"), ("pi[rad]", "pi - 2*x2"), ("π", "π - 2*x2")])
def test_a_coordinate_of_the_name_of_a_constant(tmp_path: Path, name: str, text: str) -> None:
    """T is the constant less twice the second coordinate: to a person who knows the names, the function is not."""
    model, box = difference("x", "v")
    constant = math.e if name == "e" else math.pi
    with torch.no_grad():
        model.own("W_E")[0, 0] = 0.0
        model.own("b_E")[0] = constant
    folder = claimed(tmp_path, model, text, box, [255], upper=1e-12)
    assert check(folder).ok
    assert check(restated(folder, names=[name, "v"])).verdict == "rejected"


# Letters of Greek and Cyrillic, written so that a reader of this file sees which they are.
KHA, U, A, TAU = "\u0445", "\u0443", "\u0430", "\u03a4"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        # The first coordinate looks like y, the second like x.
        ([U, KHA], "x - 2*y"),
        ([f"{KHA}2", f"{KHA}1"], "x1 - 2*x2"),
        ([TAU, "T"], "x1 - 2*x2"),
        ([], f"{KHA}1 = x2; x1 - 2*{KHA}1"),
        ([A, "b"], "a = x2; x1 - 2*a"),
        # A terminal shows what stands behind a carriage return over what stands before it.
        ([], "0*x1 +\rx1 - 2*x2"),
        # A unit that turns the direction of writing, or steers a terminal.
        (["v[\u202em/s]", "w"], "x1 - 2*x2"),
        (["v[\u009b2J]", "w"], "x1 - 2*x2"),
    ],
)
def test_a_text_that_is_not_what_it_looks_like_is_refused(tmp_path: Path, names: list[str], text: str) -> None:
    model, box = difference("x", "v")
    folder = claimed(tmp_path, model, "x1 - 2*x2", box, [255], upper=1e-12)
    data = text.encode()
    (folder / "function.txt").write_bytes(data)
    files = json.loads((folder / "certificate.json").read_text())["files"]
    files["function.txt"] = hashlib.sha256(data).hexdigest()
    restated(folder, function=text, names=names, files=files)
    assert refused(folder)


@pytest.mark.parametrize("names", [[TAU, "\u03a9[rad/s]"], [KHA, U], ["\u03b1", "\u03c1"]])
def test_names_in_any_alphabet_are_fine_alone(tmp_path: Path, names: list[str]) -> None:
    model, box = difference("x", "v")
    folder = claimed(tmp_path, model, "x1 - 2*x2", box, [255], upper=1e-12)
    assert check(restated(folder, names=names)).ok
    assert parse(f"{names[0]} - 2*{names[1].partition('[')[0]}", 2, names=[n.partition("[")[0] for n in names])
