"""Trained: a model, what was measured on the way, and the way back to the road of proofs."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from onelayer.box import Box
from onelayer.card import number_of
from onelayer.disk import replace_file, spelled_out
from onelayer.errors import OnelayerError
from onelayer.layer.file import save_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer
from onelayer.proof.certify import certify
from onelayer.recording.target import Target
from onelayer.result import Approximation

HISTORY = "training.json"


@dataclass(frozen=True)
class Trained:
    """A trained model. Errors here were seen on examples; ``approximation`` proves one.

    ``history`` has one row per measurement: step, phase, loss, seconds, and sup and rmse (or accuracy and
    cross_entropy). ``final`` is the last measurement, on more points. ``classes`` names the outputs of a classifier.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    final: dict[str, float]
    settings: dict[str, Any]
    seconds: float
    target: Target | None = None
    box: Box | None = None
    classes: tuple[Any, ...] | None = field(default=None)

    def __call__(self, x: Any) -> Any:
        return self.model(x)

    @property
    def sup(self) -> float:
        """Largest error seen, in the maximum norm; a lower bound of the true one."""
        return self._seen("sup")

    @property
    def rmse(self) -> float:
        """Root mean square error on the test points."""
        return self._seen("rmse")

    @property
    def accuracy(self) -> float:
        """Share of test rows that are classified rightly."""
        return self._seen("accuracy")

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def approximation(
        self,
        eps: float | None = None,
        *,
        max_seconds: float = math.inf,
        jobs: int = -1,
        observer: Observer | None = None,
    ) -> Approximation:
        """The model with a certificate of sup|T - f|: of ``eps`` if given, else the tightest enclosure found.

        The result saves, draws and exports like a built one. Only a layer of this package that was trained on a
        function on a box has a certificate; ``certify`` itself takes other modules too.
        """
        if not isinstance(self.model, OneLayerTransformer):
            raise OnelayerError(
                "only a one-layer model becomes an Approximation; use certify(model, f, box) on a stack"
            )
        if self.target is None or self.box is None:
            raise OnelayerError(
                "a model trained on a table has no function to be certified against; train on f and a box"
            )
        certificate = certify(
            self.model, self.target, self.box, eps, max_seconds=max_seconds, jobs=jobs, observer=observer
        )
        return Approximation(self.model, certificate, self.target)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write model.safetensors and training.json (settings, history, final measures); returns the folder."""
        if not isinstance(self.model, OneLayerTransformer):
            raise OnelayerError("only a one-layer model is saved here; use safetensors for the state of a stack")
        path = Path(folder)
        save_model(self.model, path)
        document = {
            "settings": self.settings,
            "final": self.final,
            "seconds": self.seconds,
            "classes": None if self.classes is None else list(self.classes),
            "history": self.history,
        }
        replace_file(path / HISTORY, (json.dumps(spelled_out(document), indent=1, allow_nan=False) + "\n").encode())
        return path

    def _seen(self, name: str) -> float:
        if name not in self.final:
            raise OnelayerError(f"this run measured {', '.join(self.final)}, not {name}")
        return self.final[name]

    def __repr__(self) -> str:
        seen = ", ".join(f"{key} {value:.3g}" for key, value in self.final.items())
        size = number_of(self.parameters, "parameters")
        return f"Trained({type(self.model).__name__}, {size}, seen {seen}, {self.seconds:.1f} s)"
