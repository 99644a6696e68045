"""Reports of claims of every kind: one sentence that says what holds, the check of the files, nothing left open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer.cli.console import run
from onelayer.cli.options import app

BOX = ol.Box(rpm=(-1.0, 1.0), load=(0.0, 1.0))


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).eval()


CASES: dict[str, tuple[Any, str]] = {
    "error": (lambda: ol.certify(model(), lambda x: x[..., :1], BOX, gap=0.5), "differs from the reference"),
    "range": (lambda: ol.bound(model(), BOX, gap=0.2), "output 1 lies between"),
    "lipschitz": (lambda: ol.lipschitz(model(), BOX, norm=2, gap=0.5), "Euclidean distance"),
    "slopes": (lambda: ol.gradient_error(model(), "sin(rpm)", BOX, gap=0.5), "rates of change"),
    "monotone": (lambda: ol.monotone(model(), BOX, {"rpm": "+"}), "never fall when rpm rises"),
    "convex": (lambda: ol.convex(model(), BOX), "convex function"),
    "condition": (lambda: ol.prove(model(), BOX, "y1 <= 3 and load < 2"), "y1 &lt;= 3 and load &lt; 2"),
    "difference": (lambda: ol.equivalent(model(), model(), BOX, 1e-3), "two models differ"),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_claim_is_reported_in_words(kind: str, tmp_path: Path) -> None:
    make, words = CASES[kind]
    folder = make().save(tmp_path / kind)
    assert run(app, ["report", str(folder), "--unit", "rpm=1/min"]) == 0
    page = (folder / "report.html").read_text()
    assert words in page
    assert "accepted." in page
    assert "1/min" in page
    assert not re.search(r"\{[a-z]+\}", page.partition("<main>")[2]), "a word was not filled in"
    assert ol.check(folder).ok
