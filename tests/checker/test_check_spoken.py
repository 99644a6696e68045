"""The function of a proof is one, whether its text is read by numbers or by the names of the coordinates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stated_folders import claimed

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

F64 = torch.float64


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
