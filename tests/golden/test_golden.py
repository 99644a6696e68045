"""Golden folders: what was proved once stays readable, true and accepted; what is forged of it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import onelayer as ol

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/certificate.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_golden_folder(folder: Path, tmp_path: Path) -> None:
    golden = ol.load(folder)
    report = ol.check(folder)
    assert report.verdict == "accepted", report.reason
    known = json.loads((folder / "outputs.json").read_text())
    x, expected = (torch.tensor(known[key], dtype=golden.model.dtype) for key in ("x", "T"))
    # Processors sum in different orders; the certificate covers that, and so does the comparison.
    close = 64 * torch.finfo(golden.model.dtype).eps * (1 + expected.abs().max() + golden.model.own("W_R").abs().max())
    assert (golden.model(x) - expected).abs().max() <= close * 2**10

    claim = golden.certificate
    if claim.lower > 0:
        smaller = replace(claim, status="proved", eps=claim.lower, lower=0.0, upper=claim.lower / 2, witness=None)
        forged = ol.Approximation(golden.model, replace(smaller, resisted=None), golden.target).save(
            tmp_path / "forged"
        )
        assert ol.check(forged).verdict != "accepted"
