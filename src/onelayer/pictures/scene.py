"""Scene: f, T and their difference on a box, seen in the output where they differ most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.box import Box
from onelayer.card import counted
from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.style import drawable
from onelayer.pictures.written import written_domain, written_names
from onelayer.proof.certificate import Certificate, abridged, outward
from onelayer.recording.target import Target, as_target, place
from onelayer.result import Approximation

Array = NDArray[np.float64]

SEARCH = 2048  # points among which the largest error is looked for
# A bound further away than this many times the largest error drawn is named in the legend instead of drawn to scale.
FAR = 6.0
# Errors within so many units in the last place of the largest value are the rounding of one forward pass of a small
# layer: a picture of them shows noise.
ULPS = 64
ROUNDED = 2.0**-30  # of the largest value of a function that is given as code
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples modulo 1 are spread evenly and in no order


@dataclass(frozen=True)
class Scene:
    """A model beside its target. Points are flat, (S, D); values are those of one output, ``output``, (S,).

    ``certificate`` is None for a model about which nothing is proved; pictures then say what was seen, not more.
    """

    model: Callable[[Any], Any]
    target: Target
    box: Box
    certificate: Certificate | None = None

    @classmethod
    def of(cls, approximation: Approximation, f: Any = None) -> Scene:
        """The scene of a result; ``f`` is needed only when its function was not recorded.

        What is drawn under a certificate is what it is about: its weights, and an ``f`` that obeys its bounds.
        """
        approximation.need_certified()
        target = approximation.target if f is None else as_target(f, approximation.box)
        if target is None:
            raise OnelayerError("the function of this proof was not recorded; give it as f= to draw it")
        scene = cls(approximation.model, target, approximation.box, approximation.certificate)
        if f is not None:
            scene._need_bounded(approximation.certificate)
        return scene

    def _need_bounded(self, proof: Certificate) -> None:
        """OnelayerError with a point at which f is further from T than is proved."""
        if proof.where:
            return
        points = self._searched
        if proof.witness is not None:
            points = torch.cat([torch.tensor([proof.witness], dtype=torch.float64), points])
        f, t = self.both(points)
        error = np.nanmax(np.abs(t - f), axis=1)
        row = int(np.nanargmax(error))
        beyond = error[row] > proof.upper + self._slack
        # The witness comes first.
        below = proof.witness is not None and error[0] < proof.lower - self._slack
        if beyond or below:
            at = 0 if below else row
            raise OnelayerError(
                f"that is not the function of this proof: it differs from T by {error[at]:.3g} at x = "
                f"{place(points[at])}, and {proof.sentence}"
            )

    @cached_property
    def dtype(self) -> torch.dtype:
        """The format in which the model is executed: that of its weights."""
        parameters = self.model.parameters() if isinstance(self.model, torch.nn.Module) else iter(())
        return next((p.dtype for p in parameters if p.is_floating_point()), torch.float64)

    @property
    def layout(self) -> str:
        """How the layer reads its input, empty for another model."""
        return self.model.config.layout if isinstance(self.model, OneLayerTransformer) else ""

    @cached_property
    def names(self) -> list[str]:
        """The names of the coordinates, as in the formula."""
        return written_names(self.box, self.target)

    @cached_property
    def free(self) -> list[int]:
        """Coordinates whose interval is more than a point."""
        found: list[int] = torch.nonzero(self.box.width.flatten() > 0).flatten().tolist()
        return found

    def bounds(self, coordinate: int) -> tuple[float, float]:
        """Ends of one coordinate."""
        low = self.box.lower.flatten()[coordinate]
        high = self.box.upper.flatten()[coordinate]
        return float(low), float(high)

    @cached_property
    def worst(self) -> tuple[Tensor, int]:
        """The point (D,) of the largest error known, the certificate's witness if it has one, and its output."""
        witness = None if self.certificate is None else self.certificate.witness
        if witness is not None:
            points = torch.tensor([witness], dtype=torch.float64)
        else:
            points = self._searched
        f, t = self.both(points)
        error = np.abs(t - f)
        row, output = np.unravel_index(int(np.nanargmax(error)), error.shape)
        return points[int(row)], int(output)

    @property
    def _searched(self) -> Tensor:
        """Points (S, D) among which the largest error is looked for."""
        # Errors of polynomials are largest at the ends: the arcsine law samples more there.
        sampled = self.box.sample(SEARCH, arcsine=True)
        return torch.cat([sampled, self.box.corners(256)]).reshape(-1, self.box.dim)

    @property
    def base(self) -> Tensor:
        """The point of the largest error that is known."""
        return self.worst[0]

    @property
    def output(self) -> int:
        """The output of the largest error that is known."""
        return self.worst[1]

    @cached_property
    def output_name(self) -> str:
        """How to write the chosen output: nothing for a scalar function, an index otherwise."""
        shape = self.target.output_shape
        if math.prod(shape) == 1:
            return ""
        index = np.unravel_index(self.output, shape)
        return f"[{','.join(str(int(k) + 1) for k in index)}]"

    def values(self, points: Tensor) -> tuple[Array, Array]:
        """f and T at points (S, D), in the chosen output, each (S,)."""
        f, t = self.both(points)
        return f[:, self.output], t[:, self.output]

    def both(self, points: Tensor) -> tuple[Array, Array]:
        """f and T at points (S, D), in all outputs, each (S, outputs)."""
        # f is taken at the points as the model sees them: in float32 their rounding is no error of the model.
        executed = points.to(self.dtype).reshape(-1, *self.box.shape)
        with torch.no_grad():
            exact = self.target.function(executed.double())
            output = self.model(executed)
        f, t = (part.reshape(len(points), -1).double().cpu().numpy() for part in (exact, output))
        drawable("f", f)
        drawable("T", t)
        return f, t

    def through(self, coordinates: Sequence[int], grids: Sequence[Array]) -> Tensor:
        """Points of the tensor grid in ``coordinates``, all others as in the worst point, (prod of sizes, D)."""
        mesh = torch.cartesian_prod(*[torch.from_numpy(np.ascontiguousarray(grid)) for grid in grids])
        points = self.base.repeat(len(mesh), 1)
        points[:, list(coordinates)] = mesh.reshape(len(mesh), -1)
        return points

    def leaves(self, coordinates: Sequence[int]) -> tuple[Array, Array] | None:
        """Corners in ``coordinates`` of the proof's boxes that contain the worst point in all others, (L, c) each."""
        proof = None if self.certificate is None else self.certificate.proof
        if proof is None:
            return None
        low, high = proof.boxes()
        others = [i for i in range(self.box.dim) if i not in coordinates]
        base = self.base.numpy()[others]
        contains = (low[:, others] <= base) & (base <= high[:, others])
        met = contains.all(1)
        kept = list(coordinates)
        return low[met][:, kept], high[met][:, kept]

    @property
    def headline(self) -> str:
        """The certificate's sentence, or what was seen."""
        if self.certificate is None:
            f, t = self.values(self.base[None])
            return f"nothing proved; largest error seen |T - f| = {abs(t[0] - f[0]):.3g}"
        return self.certificate.headline

    @property
    def about(self) -> str:
        """f, the domain and the size of the layer, each abridged."""
        text = abridged(self._function_text(), 70)
        known = self.target.kind == "formula" or not text.isidentifier()  # the name of a Python function says little
        parts = [f"f = {text}" if known else "f given as code", f"on {abridged(written_domain(self.box), 60)}"]
        if isinstance(self.model, OneLayerTransformer):
            parts.append(counted(self.model.size(), ("heads", "tokens", "hidden_units")))
        return "  |  ".join(parts)

    def _function_text(self) -> str:
        """f as it was written; a formula that was loaded has numbered variables, its certificate their names."""
        if self.certificate is not None and self.target.description == str(self.target.formula):
            return self.certificate.named_function
        return self.target.description

    @property
    def subline(self) -> str:
        """What it is about, and which output is drawn where there are several."""
        if not self.output_name:
            return self.about
        return f"{self.about}  |  output {self.output_name} of {math.prod(self.target.output_shape)} (the worst)"

    def only_rounding(self, observed: float) -> bool:
        """Whether errors up to ``observed`` are what one forward pass rounds, so that their shape means nothing."""
        return observed <= self._rounding

    @cached_property
    def _rounding(self) -> float:
        return ULPS * torch.finfo(self.dtype).eps * self._size

    @cached_property
    def _slack(self) -> float:
        """What code of f may round: far below what a picture shows of another function."""
        return max(self._rounding, ROUNDED * self._size)

    @cached_property
    def _size(self) -> float:
        f, _ = self.both(self.box.sample(SEARCH // 32).reshape(-1, self.box.dim))
        return float(np.nanmax(np.abs(f)))

    def error_limits(self, observed: float) -> tuple[float, list[tuple[str, float]]]:
        """Half height of an error axis, and the bounds to draw on it as (label, value).

        A bound much larger than anything drawn would flatten the picture; it is left to the caller to name it. Errors
        that are rounding alone are drawn on the scale of the bound: there, nothing is to be seen of them.
        """
        bounds = []
        proof = self.certificate
        if proof is not None:
            if math.isfinite(proof.upper):
                # Written rounded up: what is printed stays a bound.
                bounds.append((f"upper = {outward(proof.upper, up=True)}", proof.upper))
            if proof.eps is not None:
                bounds.append((f"eps = {proof.eps!r}", proof.eps))
        reach = FAR * observed
        if self.only_rounding(observed):
            least = min((value for _, value in bounds if value > 0), default=0.0)
            reach = max(reach, least)
        shown = [value for _, value in bounds if value <= reach]
        return max([observed, *shown]) * 1.12 or 1.0, bounds


def spread(box: Box) -> Tensor:
    """A point (D,) whose coordinates are spread over their intervals: it shows more of a sequence than a corner."""
    shares = torch.arange(1, box.dim + 1, dtype=torch.float64) * GOLDEN % 1
    return box.lower.flatten() + shares * box.width.flatten()
