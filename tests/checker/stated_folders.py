"""Folders that state anything about a small model, and an observer who has seen enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.checker.reader import CERTIFICATE, _digest
from onelayer.errors import FileError
from onelayer.layer.file import save_model, weights_sha256
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer, Report
from onelayer.proof.certificate import Certificate
from onelayer.proof.files import write_proof
from onelayer.proof.tree import BoxTree


class Patience(Observer):
    """Cancels after a number of reports: one per chunk of boxes that was proved again."""

    def __init__(self, reports: int) -> None:
        super().__init__()
        self.left = reports

    def show(self, report: Report) -> None:
        self.left -= 1
        if not self.left:
            self.cancel()


def identity(factor: float = 1.0) -> OneLayerTransformer:
    """T(x) = (x factor) (1 / factor) on one number, in float64."""
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    weights = {"W_E": factor * one, "W_Q": zero, "W_O": zero, "W_R": one / factor}
    weights |= {f"b_{k}": zero[0] for k in "EQOR"}
    return OneLayerTransformer.packed(
        (1,), (), [PlainMemory(zero, zero)], d_model=1, residual=True, hidden=0, weights=weights
    )


def claimed(folder: Path, model: OneLayerTransformer, function: str, box: Box, tree: list[int], **claim: Any) -> Path:
    """A folder that states anything about a model; its digests are right."""
    low, high = box.lower.flatten().numpy(), box.upper.flatten().numpy()
    boxes = BoxTree(low, high, np.array(tree, dtype=np.uint8))
    dtype = str(model.dtype).removeprefix("torch.")
    stated: dict[str, Any] = {"status": "proved", "eps": None, "lower": 0.0, "witness": None, "resisted": None}
    certificate = Certificate(
        **{**stated, **claim},
        boxes=boxes.leaves,
        order=4,
        arithmetic=f"{dtype} execution",
        domain=box,
        function=function,
        weights_sha256=weights_sha256(model),
        seconds=0.0,
        version="",
        method="branch and bound",
        proof=boxes,
    )
    save_model(model, folder)
    write_proof(folder, certificate)
    return folder


def restated(folder: Path, **fields: Any) -> Path:
    """The same folder with some fields of its certificate changed as no writer would, and sealed anew."""
    data = json.loads((folder / CERTIFICATE).read_text()) | fields
    del data["sha256"]
    (folder / CERTIFICATE).write_text(json.dumps({**data, "sha256": _digest(data)}))
    return folder


def refused(folder: Path) -> bool:
    """Not accepted, in one line; nor by the proof alone, where no forward pass at points shows what is wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onelayer.checker.check.contradiction", lambda *given: None)
        alone = not_accepted(folder)
    return not_accepted(folder) and alone


def not_accepted(folder: Path) -> bool:
    try:
        report = check(folder)
    except FileError as error:
        return "\n" not in str(error)
    return not report.ok and "\n" not in report.reason
