"""The form that a lemma asks of a layer: its fixed entries are compared exactly, shapes included."""

from __future__ import annotations

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
