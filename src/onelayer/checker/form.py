"""The form that a lemma asks of a layer: its fixed entries are compared exactly, shapes included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onelayer.checker.outcome import Rejected
from onelayer.checker.weights import Array


@dataclass(frozen=True)
class LayerForm:
    """What a layer must look like for an argument to speak of it; ``of`` names the argument in complaints."""

    of: str

    def require(self, holds: bool, complaint: str) -> None:
        """Rejected unless it holds: a weight that nobody looks at could be anything."""
        if not holds:
            raise Rejected(f"the layer does not have the form of {self.of}: {complaint}")

    def equal(self, found: Array, wanted: Array | float, name: str) -> None:
        """All entries equal one number, or an array of the same shape."""
        if isinstance(wanted, np.ndarray):
            same = np.array_equal(found, wanted)
        else:
            same = bool((found == wanted).all())
        self.require(same, f"{name} differs")

    def unit_changes(self, t: Mapping[str, Array], reads: Array, adds: Array) -> Array:
        """W_2 of hidden units, each of which reads one feature of the stream and adds to one other."""
        each = np.arange(len(reads))
        into = np.zeros_like(t["W_1"])
        into[reads, each] = 1.0
        out = np.zeros_like(t["W_2"])
        changes: Array = t["W_2"][each, adds]
        out[each, adds] = changes
        self.equal(t["W_1"], into, "W_1")
        self.equal(t["W_2"], out, "W_2")
        self.equal(t["b_2"], 0.0, "b_2")
        return changes
