"""What is proved in the place of a claim about a black box of declared structure, and the claim that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.proof.certificate import Certificate, outward
from onelayer.recording.blackbox import BlackBox
from onelayer.recording.separable import Separated
from onelayer.recording.target import separated


@dataclass(frozen=True)
class Supposed:
    """The function to prove something of, and how closely; f itself and ``asked`` where nothing is supposed of f."""

    f: Any
    eps: float | None
    asked: float | None
    known: Separated | None = None

    @property
    def estimated(self) -> bool:
        """Whether a guess is supposed."""
        return self.known is not None and self.known.estimated

    def concluded(self, found: Certificate) -> Certificate:
        """The claim about what was asked for."""
        if self.known is None:
            return found
        known = self.known
        return found.supposing(self.asked, known.within, known.assumption, estimated=known.estimated)

    def note(self) -> str:
        """What a bound of the function that stands for f says nothing about: how far f is from it."""
        if self.known is None:
            return ""
        ground = "an estimate" if self.known.estimated else "what was declared"
        return f"of a function that f is within {outward(self.known.within, up=True)} of, by {ground}"


def supposed(f: Any, box: Box, eps: float | None, watch: Observer) -> Supposed:
    """A black box of declared structure by the known function that it is close to; anything else as it is."""
    if not isinstance(f, BlackBox) or f.structure is None:
        return Supposed(f, eps, eps)
    # The lines of a structure are refined to a share of eps.
    if eps is None:
        raise OnelayerError(
            "a black box with structure= is certified to an eps: how finely it is looked at depends on it"
        )
    known = separated(f, box, eps, watch)
    if known is None:
        return Supposed(f, eps, eps)
    return Supposed(known.formula, known.left_of(eps), eps, known)
