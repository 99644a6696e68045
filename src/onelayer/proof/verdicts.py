"""What the claims beyond |T - f| answer with: a range, or a verdict with its least margin."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.about import words
from onelayer.proof.certificate import Certificate, interval
from onelayer.proof.certify import digest_of
from onelayer.proof.kept import Kept


def single_output(model: Any) -> TypeGuard[OneLayerTransformer]:
    """Whether it is a layer of this package with one output."""
    return isinstance(model, OneLayerTransformer) and math.prod(model.config.output_shape) == 1


@dataclass(frozen=True)
class Range:
    """low <= T <= high for every output, in the shape of the outputs; ``seen`` are values that T takes.

    ``status`` is proved when every end is as tight as was asked. ``certificates`` hold two proofs per output: of
    sup|T_k - c| for a c below all values, then for a c above them.
    """

    low: Tensor
    high: Tensor
    seen_low: Tensor
    seen_high: Tensor
    certificates: tuple[Certificate, ...]
    model: Kept = field(repr=False, compare=False)

    @property
    def certificate(self) -> Certificate:
        """The range of all outputs as one claim: sup over outputs of |y - centre| / radius <= 1.

        It follows from the proofs of the ends. Its boxes are those of the longest one: a partition on which a checker
        finds its own way.
        """
        if self.status != "proved":
            raise OnelayerError("a range is saved when both ends of every output are proved; raise max_seconds or gap")
        low = self.low.flatten().tolist()
        high = self.high.flatten().tolist()
        about = {"kind": "range", "low": low, "high": high}
        # The finest partition is the one on which a checker has least to cut.
        longest = max(self.certificates, key=lambda proof: proof.boxes)
        return replace(
            longest,
            eps=1.0,
            lower=0.0,
            upper=1.0,
            witness=None,
            function="; ".join(["0.0"] * len(low)),
            claim=words(about),
            about=about,
            weights_sha256=digest_of(self.model.unchanged()),
            models=(self.model,),
        )

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model and the range into ``folder``, for ``check`` and ``report``."""
        return self.certificate.save(folder)

    @property
    def status(self) -> str:
        """Proved if every certificate is."""
        if all(found.proved for found in self.certificates):
            return "proved"
        return "undecided"

    @property
    def lower(self) -> float:
        """The largest |T| seen."""
        largest = torch.maximum(self.seen_low.abs(), self.seen_high.abs())
        return float(largest.max())

    @property
    def upper(self) -> float:
        """A bound of |T|."""
        largest = torch.maximum(self.low.abs(), self.high.abs())
        return float(largest.max())

    @property
    def witness(self) -> tuple[float, ...] | None:
        """A point where the last output is near its least value."""
        return self.certificates[-1].witness

    def __str__(self) -> str:
        low = self.low.flatten().tolist()
        high = self.high.flatten().tolist()
        ends = [f"y{at} in {interval(a, b)}" for at, (a, b) in enumerate(zip(low, high, strict=True), start=1)]
        return f"Range({self.status}: {', '.join(ends)}, {self.certificates[0].executed})"

    __repr__ = __str__


@dataclass(frozen=True)
class Verdict:
    """Whether something holds everywhere: that no margin is negative.

    ``lower`` and ``upper`` enclose the least margin over points and over all that was asked: of ``monotone`` a slope
    with its sign, of ``prove`` what is left until the condition fails. Refuted iff upper < 0, and then ``witness`` is
    a point where it fails.
    """

    status: str
    lower: float
    upper: float
    witness: tuple[float, ...] | None
    certificates: tuple[Certificate, ...]
    asked: str

    @property
    def certificate(self) -> Certificate:
        """The proof: of sup|M - margins| <= M."""
        return self.certificates[0]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model and the claim into ``folder``, for ``check`` and ``report``."""
        return self.certificate.save(folder)

    def __str__(self) -> str:
        where = "" if self.status != "refuted" else f" at {self.witness}"
        margin = f"least margin in {interval(self.lower, self.upper)}"
        return f"Verdict({self.status}: {self.asked}, {margin}{where}, {self.certificate.executed})"

    __repr__ = __str__


def margin_above(size: float, distance: float) -> float:
    """A number that is not above size - distance, and has its sign."""
    # Floats are as dense as they are small: a difference of two that are not equal is never rounded to zero.
    lower = math.nextafter(size - distance, -math.inf)
    if distance < size:
        return max(lower, math.ulp(0.0))
    if distance == size:
        return max(lower, 0.0)
    return lower


def undecided(found: Certificate) -> Certificate:
    """The same certificate, where a distance above eps shows nothing."""
    if found.status != "refuted" or found.eps is None:
        return found
    return replace(found, status="undecided", lower=min(found.lower, found.eps))
