"""Guard: a model that knows the domain of its certificate, and what it does outside."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.formats import Format, are_formats, format_of, named, spelled
from onelayer.points import dense, need_tensor, points_of

WARN, RAISE, CLAMP = "warn", "raise", "clamp"
GUARDS = (None, WARN, RAISE, CLAMP)


class OutsideDomain(OnelayerError):
    """A point outside the domain on which the error of a model is proved."""


class OutsideDomainWarning(UserWarning):
    """The same, as a warning: the value was computed, nothing is proved about it."""


class Guarded(nn.Module):
    """``model`` on ``box``: inside the box it is the model; outside ``guard`` decides.

    "warn" computes and warns the first time, "raise" (also: True) raises OutsideDomain with the first such point,
    "clamp" moves each coordinate to the nearest one of the box. nan is outside, and clamping leaves it nan. Points of a
    coarser format than the weights had are outside wherever they lie: the layer would compute in it, which nothing is
    proved about. A finer one is inside, since it keeps all that is assumed of the coarser. Autocast is off within.
    """

    lower_bits: Tensor
    upper_bits: Tensor

    def __init__(self, model: nn.Module, box: Box, guard: str | bool | None = RAISE) -> None:
        super().__init__()
        self.model = model
        self.guard = RAISE if guard is True else check_guard(guard or None)
        self.warned = False
        # Kept by name: the model may be converted later.
        self.format = format_of(_format(model)).name
        self.names = tuple(box.labels) if box.names else ()
        # As bits: ``float`` and ``half`` of a module round its numbers, and a bound may then lie outside the box.
        self.register_buffer("lower_bits", box.lower.clone().view(torch.int64), persistent=False)
        self.register_buffer("upper_bits", box.upper.clone().view(torch.int64), persistent=False)

    @property
    def lower(self) -> Tensor:
        """The lower bounds of the domain, in float64 whatever the model was converted to."""
        return self.lower_bits.view(torch.float64)

    @property
    def upper(self) -> Tensor:
        """The upper bounds."""
        return self.upper_bits.view(torch.float64)

    def forward(self, x: Any) -> Any:
        """The model, after what the guard does with points outside the domain."""
        if self.guard is None:
            return self.model(x)
        points = self._points(x)
        for used in (points.dtype, _format(self.model)):
            if _coarser(used, named(self.format)):
                self._tell(self._other_format(used))
        with torch.autocast(points.device.type, enabled=False):
            return self._inside(points, x)

    def _inside(self, points: Tensor, x: Any) -> Any:
        """The same for points of the right format."""
        # Not written with < and >: nan compares false, and it is outside.
        outside = ~((points >= self.lower) & (points <= self.upper))
        inside = not bool(outside.any())
        if inside and points is x:
            return self.model(x)
        # A list inside goes this way too: the model rounds it, and a face of the box may be no number of its format.
        if inside or self.guard == CLAMP:
            return self._clamped(points, x)
        self._tell(self._message(points, outside))
        return self.model(x)

    def _tell(self, message: str) -> None:
        """Raise, or warn the first time."""
        if self.guard == RAISE:
            raise OutsideDomain(message)
        if not self.warned:
            self.warned = True
            warnings.warn(message, OutsideDomainWarning, stacklevel=5)

    def _other_format(self, used: torch.dtype) -> str:
        return (
            f"the layer would compute in {spelled(used)}, and its error is proved in {self.format}: "
            f"give the points, and leave the model, in torch.{self.format}"
        )

    def _points(self, x: Any) -> Tensor:
        """Points as a tensor: the tensor itself, or the numbers of a NumPy array or a list."""
        if isinstance(x, Tensor):
            return dense(x)
        if isinstance(x, np.ndarray | list | tuple):
            return torch.as_tensor(points_of(x), device=self.lower.device)
        need_tensor(x)
        raise OnelayerError("a guarded model is for use, not for proofs; certify the model inside: guarded.model")

    def _clamped(self, points: Tensor, x: Any) -> Any:
        """The model at the points of ``x``, each coordinate at the nearest number of their format in the box."""
        if points is x:
            return self.model(self._moved(points, points.dtype))
        return self.model(self._moved(points, _format(self.model)).cpu().numpy())

    def _moved(self, points: Tensor, dtype: torch.dtype) -> Tensor:
        """Each coordinate at the nearest number of the format in the box."""
        low, high = _ends_in(dtype, self.lower, self.upper)
        above = torch.maximum(points, low.to(points))
        return torch.minimum(above, high.to(points))

    def _message(self, x: Tensor, outside: Tensor) -> str:
        rows = outside.reshape(-1, self.lower.numel())
        row = int(rows.any(1).nonzero()[0])
        at = int(rows[row].nonzero()[0])
        points = x.reshape(-1, self.lower.numel())
        value = float(points[row, at])
        low = float(self.lower.flatten()[at])
        high = float(self.upper.flatten()[at])
        count = int(rows.any(1).sum())
        name = self.names[at] if self.names else f"coordinate {at + 1}"
        first = f"the first is point {row}: {name} is {value!r}, not in [{low!r}, {high!r}]"
        return f"{count:,} of {len(rows):,} points lie outside the certified domain; {first}"

    def extra_repr(self) -> str:
        """What torch shows of it."""
        return f"guard={self.guard!r}"


def _format(model: nn.Module) -> torch.dtype:
    """The format of the weights."""
    return next(model.parameters()).dtype


def _coarser(used: torch.dtype, proved: Format) -> bool:
    """Whether a format has fewer bits or a smaller range than another; what is no format is the model's to refuse."""
    if not are_formats([used]):
        return False
    found = format_of(used)
    return found.bits < proved.bits or found.exponent < proved.exponent


def check_guard(guard: str | None) -> str | None:
    """The guard, if it is one."""
    if guard not in GUARDS:
        raise OnelayerError(f"guard must be 'warn', 'raise', 'clamp' or None, got {guard!r}")
    return guard


def carried(guard: str | None, box: Box, dtype: torch.dtype) -> dict[str, Any]:
    """A guard and its domain as plain data that an export can keep: both ends as numbers of the format, none outside.

    Nothing for no guard.
    """
    if check_guard(guard) is None:
        return {}
    ends = _ends_in(dtype, box.lower, box.upper)
    return {"guard": guard, "domain": [end.double().flatten().tolist() for end in ends]}


def _ends_in(dtype: torch.dtype, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The outermost numbers of the format between two float64 bounds."""
    low = inward(lower, dtype, up=True)
    high = inward(upper, dtype, up=False)
    return low, high


def inward(bound: Tensor, dtype: torch.dtype, *, up: bool) -> Tensor:
    """The number of the format nearest to a float64 bound that is not outside it: >= a lower one, <= an upper one."""
    near = bound.to(dtype)
    exact = near.double()
    beyond = exact < bound if up else exact > bound
    away = torch.full_like(near, torch.inf if up else -torch.inf)
    return torch.where(beyond, torch.nextafter(near, away), near)
