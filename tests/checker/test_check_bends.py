"""Claims about slopes at bends, and refutations of margins: what is said of one point is true of the model there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer.checker.check import CheckReport, check
from onelayer.network.file import network_sha256
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import NetworkProgram, Step
from onelayer.proof.about import words
from onelayer.proof.certificate import Certificate
from onelayer.proof.saved import load_claim, written
from onelayer.proof.tree import BoxTree
from onelayer.report.claimed import claim as sentence

# relu(x) - relu(-x), which is x, and relu(x) + relu(-x), of two numbers.
SIDES = (Step("relu", (0,), (2,)), Step("neg", (0,), (2,)), Step("relu", (2,), (2,)))
FIRST = Step("arrange", (4,), (1,), None, (0,))
LINE = (*SIDES, Step("sub", (1, 3), (2,)), FIRST)
ANGLE = (*SIDES, Step("add", (1, 3), (2,)), FIRST)
STEEPER = (*SIDES, Step("sub", (1, 3), (2,)), Step("scale", (0,), (2,), 1.5), Step("sub", (5, 4), (2,)))
AT_ZERO = (0.0, 0.0)


def stated(
    folder: Path, steps: tuple[Step, ...], about: dict[str, Any], box: ol.Box, function: str, **fields: Any
) -> CheckReport:
    """The checker's word on a claim about a network of two numbers, whatever the truth, with every digest right."""
    network = RecordedNetwork(NetworkProgram((2,), steps, {}), {})
    low, high = (side.numpy() for side in (box.lower, box.upper))
    kept: dict[str, Any] = {"arithmetic": "real", "lower": 0.0, "upper": math.inf, "witness": None}
    certificate = Certificate(
        domain=box,
        function=function,
        weights_sha256=network_sha256(network),
        boxes=1,
        order=4,
        seconds=0.0,
        version="",
        method="branch and bound",
        claim=words(about),
        about=about,
        proof=BoxTree(low, high, np.array([255], dtype=np.uint8)),
        **kept | fields,
    )
    return check(written(folder, network, certificate))


SQUARE = ol.Box([-1.0, -1.0], [1.0, 1.0])
RISING = {"kind": "monotone", "inputs": [0], "signs": [1]}
REFUTED: dict[str, Any] = {
    "lipschitz": (LINE, {"kind": "lipschitz", "norm": "inf"}, "0", 1.5, 2.0),
    "slopes": (LINE, {"kind": "slopes"}, "x1", 0.5, 1.0),
    "monotone": ((*STEEPER, Step("arrange", (6,), (1,), None, (0,))), RISING, "10", 10.0, 10.5),
}


@pytest.mark.parametrize("kind", REFUTED)
def test_both_sides_of_a_bend_are_no_slope_together(kind: str, tmp_path: Path) -> None:
    """At 0 the slope of relu(x) is 0 or 1, and that of relu(-x) is -1 or 0: x does not have the slope 2 there."""
    steps, about, function, eps, lower = REFUTED[kind]
    claim = {"status": "refuted", "eps": eps, "lower": lower, "witness": AT_ZERO}
    assert stated(tmp_path, steps, about, SQUARE, function, **claim).verdict != "accepted"


def test_a_bend_along_a_side_without_width_has_both_slopes(tmp_path: Path) -> None:
    about = {"kind": "lipschitz", "norm": "inf"}
    flat = ol.Box([0.0, 0.0], [0.0, 1.0])
    false = {"status": "proved", "eps": 0.5, "upper": 0.5}
    true = {"status": "proved", "eps": 1.001, "upper": 1.001}
    assert stated(tmp_path / "false", ANGLE, about, flat, "0", **false).verdict == "rejected"
    assert stated(tmp_path / "true", ANGLE, about, flat, "0", **true).verdict == "accepted"


FIVE_MORE = (Step("shift", (0,), (2,), 5.0),)
SAME = (Step("scale", (0,), (2,), 1.0),)
CONDITION = {"kind": "condition", "text": "y1 >= 0 and y2 > -5"}


@pytest.mark.parametrize(
    ("steps", "eps", "lower"),
    [
        # Farther than 1 from 1, because it is 5.
        (FIVE_MORE, 1.0, 4.0),
        # 4 away from 9, of which only 9 would be too much.
        (FIVE_MORE, 3.0, 4.0),
        # The margin of the first comparison is 0, which is enough; the second asks for more than 0, and has 5.
        (SAME, math.nextafter(9.0, 0.0), 9.0),
    ],
)
def test_a_refutation_of_margins_shows_one_that_fails(
    steps: tuple[Step, ...], eps: float, lower: float, tmp_path: Path
) -> None:
    level = "1" if eps == 1.0 else "9"
    claim = {"status": "refuted", "eps": eps, "lower": lower, "witness": AT_ZERO}
    about = CONDITION if steps == SAME else {"kind": "condition", "text": "y1 >= 0 and y2 >= 0"}
    assert stated(tmp_path, steps, about, SQUARE, level, **claim).verdict != "accepted"


def test_a_true_refutation_of_margins_is_accepted(tmp_path: Path) -> None:
    claim = {"status": "refuted", "eps": 9.0, "lower": 9.5, "witness": (-0.5, 0.0)}
    about = {"kind": "condition", "text": "y1 >= 0 and y2 >= 0"}
    assert stated(tmp_path, SAME, about, SQUARE, "9", **claim).verdict == "accepted"


class Pole(nn.Module):
    """5 and more, without a bound."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 5 + 1 / (x[..., 0] - 0.3333) ** 2


def test_what_is_not_decided_is_not_saved_as_refuted(tmp_path: Path) -> None:
    """Without a bound of the margins one that is far from M may be good: the report said "This is NOT so"."""
    verdict = ol.prove(Pole(), ol.Box([-1.0], [1.0]), "y1 >= 0", max_boxes=50)
    assert (verdict.status, verdict.certificate.status) == ("undecided", "undecided")
    folder = verdict.save(tmp_path / "claim")
    assert check(folder).verdict == "accepted"
    assert sentence(load_claim(folder).certificate).startswith("It was NOT decided")


def test_a_condition_is_about_what_it_looks_like(tmp_path: Path) -> None:
    """An input with a Cyrillic name that looks like y1 is positive; the output y1 is not."""
    away = (Step("scale", (0,), (2,), -1.0),)
    box = ol.Box([0.5, 0.5], [1.0, 1.0], names=["\u04431", "b"])
    about = {"kind": "condition", "text": "\u04431 >= 0"}
    assert stated(tmp_path, away, about, box, "1", status="proved", eps=1.0, upper=0.75).verdict == "rejected"
