"""Networks through which something without a value passes: a claim from where there are values, moved to where not.

What bounds its result whatever it is given (a softmax, a normalisation, a weight of zero, the smaller of two numbers)
may forget that it was given nothing. The checker must not accept a claim there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onelayer as ol
from liar.judge import Tally
from liar.trips import trip
from onelayer.proof.files import read_proof, write_proof
from onelayer.proof.tree import BoxTree

# Functions that have values above zero alone, but for the last, and what is made of them beside x.
INNER: dict[str, Callable[[Tensor], Tensor]] = {
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
}
# Of any number, but executed it overflows far above: there the same must not be accepted of an execution.
OVERFLOWING, FAR = "exp", (800.0, 801.0)
ONES, ZEROS, NO_WEIGHT = torch.ones(2).double(), torch.zeros(2).double(), torch.tensor([[0.0, 1.0]]).double()
OUTER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": lambda u, x: torch.softmax(torch.stack([u, x], -1), -1)[..., 0],
    "layer_norm": lambda u, x: F.layer_norm(torch.stack([u, x], -1), (2,), ONES, ZEROS)[..., 1],
    "no weight": lambda u, x: F.linear(torch.stack([u, x], -1), NO_WEIGHT)[..., 0],
    "product": lambda u, x: torch.matmul(torch.stack([u, x], -1)[:, None], torch.stack([x * 0, x], -1)[..., None])[
        :, 0, 0
    ],
    "none of it": lambda u, x: u * (0 * x),
    "zero by it": lambda u, x: (0 * x) / u,
    "smaller": lambda u, x: torch.minimum(u, x - 100),
    "larger": lambda u, x: torch.maximum(u, x + 100),
    "flat": lambda u, x: torch.tanh(u) + torch.sigmoid(u) + torch.atan(u) + torch.erf(u) + torch.sin(u),
    "bent": lambda u, x: torch.relu(-u) + torch.abs(u) + F.gelu(u - 99),
    "mean": lambda u, x: torch.stack([u * 0, x], -1).mean(-1),
}
KINDS: dict[str, Callable[[nn.Module, ol.Box], Any]] = {
    "error": lambda model, box: ol.certify(model, "0*x", box, 1e3, execution="real"),
    "lipschitz": lambda model, box: ol.lipschitz(model, box, 1e3),
    "condition": lambda model, box: ol.prove(model, box, "y1 >= -1000").certificate,
    "execution": lambda model, box: ol.certify(model, "0*x", box, 1e3),
}


class Hole(nn.Module):
    """A bounded function of something that has no value below zero, or none in a format far above."""

    def __init__(self, inner: str, outer: str) -> None:
        super().__init__()
        self.inner, self.outer = INNER[inner], OUTER[outer]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x[..., 0]), x[..., 0])


def moved(certificate: Any, low: float, high: float) -> Any:
    """The same claim about another interval, as one box."""
    tree = BoxTree(np.array([low]), np.array([high]), np.array([255], dtype=np.uint8))
    there = {"domain": ol.Box([low], [high]), "proof": tree, "boxes": 1, "resisted": None}
    return replace(certificate, **there, lower=0.0, witness=None, upper=certificate.eps or 1e3)


def one_hole(rng: Random, case: Any) -> Tally:
    """An honest claim above zero, accepted; the same below, where nothing is defined, and across."""
    tally = Tally()
    inner, outer, kind = rng.choice([*INNER]), rng.choice([*OUTER]), rng.choice([*KINDS])
    low, high = rng.choice([(-2.0, -1.0), (-1e-9, 1.0), (-1e150, -1e149), (-1.0, -0.0)])
    if inner == OVERFLOWING:
        kind, (low, high) = "execution", FAR
    case.words |= {"inner": inner, "outer": outer, "claim": kind, "low": low, "high": high}
    model = Hole(inner, outer)
    found = KINDS[kind](model, ol.Box([1.5], [1.75]))
    somewhere = inner == OVERFLOWING and bool(model(torch.tensor([[end] for end in FAR]).double()).isfinite().all())
    if found.status != "proved" or somewhere:  # there is a value after all
        return tally
    tally.count["proofs"] += 1
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        place = found.save(Path(folder) / "claim")
        tally += trip(place, f"{kind} {found}")
        write_proof(place, moved(read_proof(place), low, high))
        report = ol.check(place)
        tally.count["forgeries"] += 1
    if report.ok:
        tally.lies.append(f"accepted though {outer} of {inner} has no value somewhere in [{low!r}, {high!r}]: {kind}")
    return tally
