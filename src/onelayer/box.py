"""Box: the compact domain on which an error is claimed, a product of closed intervals of any event shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING as UP
from decimal import ROUND_FLOOR as DOWN
from decimal import Context
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.float64 import indices
from onelayer.ground import pinned
from onelayer.lazy import late
from onelayer.names import check_names, without_unit
from onelayer.points import dense

MOST_POINTS = 2**31  # that are asked for at once

Bounds = float | Sequence[Any] | np.ndarray[Any, Any] | Tensor


class Box:
    """The set {x : lower <= x <= upper}, elementwise, with bounds stored as float64.

    ``shape`` is the event shape of a point, for example ``(D,)`` for D numbers or ``(n, d)`` for a sequence. Every
    bound is finite and lower <= upper; an interval of width zero is a legal box. Also ``Box(m0=(1, 5), v=(1, 2))``,
    ``Box({"h[m]": (0, 2e4)})``, ``Box([(0, 1), (2, 3)])`` and ``Box("m0=1:5, v=1:2")``. ``names`` are the names of the
    coordinates of a vector, with their units in brackets, or () where there are none; they are no part of the set.
    """

    @door
    def __init__(
        self, lower: Any = None, upper: Bounds | None = None, *, names: Sequence[str] = (), **intervals: Any
    ) -> None:
        if upper is None:
            lower, upper, names = _written_out(lower, names, intervals)
        elif intervals:
            raise OnelayerError("a box has bounds or named intervals, not both: Box([0], [1]) or Box(x=(0, 1))")
        self.lower = _float64(lower, "lower")
        self.upper = _float64(upper, "upper")
        if self.lower.shape != self.upper.shape:
            raise OnelayerError(
                f"box bounds differ in shape: lower {tuple(self.lower.shape)}, upper {tuple(self.upper.shape)}; "
                "give both the same shape"
            )
        if self.lower.ndim == 0 or self.lower.numel() == 0:
            raise OnelayerError("a box needs at least one coordinate, for example Box([0], [1])")
        finite = torch.isfinite(self.lower) & torch.isfinite(self.upper)
        if not finite.all():
            raise OnelayerError("box bounds must be finite numbers (no nan, no inf): the domain must be compact")
        if (self.lower > self.upper).any():
            empty = (self.lower > self.upper).flatten()
            at = int(torch.nonzero(empty)[0, 0])
            low = self.lower.flatten()[at].item()
            high = self.upper.flatten()[at].item()
            raise OnelayerError(f"empty box: coordinate {at + 1} has lower {low:g} > upper {high:g}")
        self.names = check_names(names, tuple(self.lower.shape))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the coordinates without their units; () where they have none."""
        return tuple(map(without_unit, self.names))

    @property
    def labels(self) -> list[str]:
        """What to write beside an axis: the name and the unit, or x1 ... xD, x[i,j] for a sequence."""
        if self.names:
            return [name.replace("[", " [") for name in self.names]
        if self.lower.ndim == 1:
            return [f"x{i + 1}" for i in range(self.dim)]
        labels = []
        for index in np.ndindex(*self.shape):
            place = ",".join(str(k + 1) for k in index)
            labels.append(f"x[{place}]")
        return labels

    @property
    def sides(self) -> list[str]:
        """Every interval with its exact ends: "[0.0, 6.283185307179586]"."""
        ends = zip(self.lower.flatten().tolist(), self.upper.flatten().tolist(), strict=True)
        return [f"[{low!r}, {high!r}]" for low, high in ends]

    @door
    def named(self, names: Sequence[str]) -> Box:
        """The same set with other names."""
        return Box(self.lower, self.upper, names=names)

    @property
    def shape(self) -> torch.Size:
        """Event shape of a point."""
        return self.lower.shape

    @property
    def dim(self) -> int:
        """Number of real coordinates D."""
        return self.lower.numel()

    @property
    def center(self) -> Tensor:
        """The middle of every side."""
        # Halved first: the sum of two large bounds would overflow.
        return self.lower / 2 + self.upper / 2

    @property
    def width(self) -> Tensor:
        """The length of every side."""
        return self.upper - self.lower

    @door
    def contains(self, x: Tensor) -> Tensor:
        """Boolean per batch element of ``x`` with trailing event shape; NaN is outside."""
        points = dense(x)
        inside = (points >= self.lower) & (points <= self.upper)
        first_of_event = inside.ndim - self.lower.ndim
        return inside.flatten(first_of_event).all(-1)

    @door
    @pinned()
    def sample(self, count: int, *, seed: int = 0, arcsine: bool = False) -> Tensor:
        """``count`` scattered points, (count, *shape); ``arcsine`` crowds them towards the faces and corners."""
        unit = _unit_points(_whole("count", count, 1, MOST_POINTS), self.dim, _whole("seed", seed, 0, 2**63))
        if arcsine:
            unit = 0.5 - 0.5 * torch.cos(torch.pi * unit)
        low = self.lower.flatten()
        high = self.upper.flatten()
        width = self.width.flatten()
        points = low + unit * width
        # Finite bounds may be further apart than the largest number; a mean of them with weights does not overflow.
        finite = torch.isfinite(width)
        if not bool(finite.all()):
            between = low * (1 - unit) + high * unit
            points = torch.where(finite, points, between)
        # low + width may be rounded to beyond high.
        inside = torch.minimum(torch.maximum(points, low), high)
        return inside.reshape(-1, *self.shape)

    @door
    @pinned()
    def corners(self, limit: int = 4096) -> Tensor:
        """The 2^D corners, (C, *shape), or the first ``limit`` of them in binary order."""
        # Whole numbers have 63 bits, and to shift by more is undefined; the bits beyond are zero for any count here.
        count = min(_whole("limit", limit, 1, MOST_POINTS), 2 ** min(self.dim, 62))
        index = indices(count)[:, None]
        digit = indices(self.dim).clamp(max=62)
        bits = ((index >> digit) & 1).bool()
        low = self.lower.flatten()
        high = self.upper.flatten()
        corners = torch.where(bits, high, low)
        return corners.reshape(-1, *self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return False
        # Names are no part of the set.
        same_lower = torch.equal(self.lower, other.lower)
        return same_lower and torch.equal(self.upper, other.upper)

    def __hash__(self) -> int:
        lows = tuple(self.lower.flatten().tolist())
        highs = tuple(self.upper.flatten().tolist())
        return hash((lows, highs))

    def __repr__(self) -> str:
        if self.lower.ndim == 1 and self.dim <= 10:
            ends = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
            sides = [f"[{_shortest(a)}, {_shortest(b)}]" for a, b in ends]
            if not self.names:
                return f"Box({' x '.join(sides)})"
            named = map(" in ".join, zip(self.names, sides, strict=True))
            return f"Box({', '.join(named)})"
        hull = f"[{_shortest(float(self.lower.min()))}, {_shortest(float(self.upper.max()))}]"
        return f"Box(shape={tuple(self.shape)}, in {hull})"


def _shortest(end: float) -> str:
    """An end as it is: six digits where these are all, since a claim on what is shown is about the box itself."""
    short = f"{end:.6g}"
    return short if float(short) == end else repr(end)


# Whatever a user calls a box.
Domain = Box | str | Mapping[str, Any] | Sequence[Any]


def as_box(domain: Domain) -> Box:
    """A Box from a Box, text, a dict of intervals, a list of pairs, or one pair of numbers for one variable."""
    if isinstance(domain, Box):
        return domain
    # Two numbers are one interval; two pairs of numbers are two.
    listed = isinstance(domain, tuple | list) or (isinstance(domain, np.ndarray | Tensor) and domain.ndim > 0)
    two = listed and len(domain) == 2
    if two and all(np.ndim(end) == 0 for end in domain):
        return Box([domain])
    return Box(domain)


def inward(low: float, high: float, digits: int) -> str:
    """An interval with so many digits, rounded inward: a claim on a domain says nothing of points beyond its ends.

    All digits where the interval is too narrow for fewer.
    """
    above, below = (Context(digits, rounding).create_decimal(end) for end, rounding in ((low, UP), (high, DOWN)))
    if above > below:
        return f"[{low!r}, {high!r}]"
    return f"[{float(above):.{digits}g}, {float(below):.{digits}g}]"


def _written_out(
    given: Any, names: Sequence[str], intervals: Mapping[str, Any]
) -> tuple[list[Any], list[Any], Sequence[str]]:
    """Lower and upper bounds, and names, of a box that is given by its intervals."""
    if given is not None and intervals:
        raise OnelayerError("a box has intervals or named intervals, not both: Box([(0, 1)]) or Box(x=(0, 1))")
    if isinstance(given, str):
        text: Box = late("language.endpoints", "parse_domain")(given)
        return text.lower.tolist(), text.upper.tolist(), text.names
    if isinstance(given, Mapping) or given is None:
        given = intervals if given is None else given
        names = list(given)
        given = list(given.values())
    try:
        lows, highs = _ends(given)
    except (TypeError, ValueError) as error:
        raise OnelayerError(
            f"a box is given by pairs (lower, upper), got {repr(given)[:60]}; write Box([0, 0], [1, 1]), "
            'Box([(0, 1), (2, 3)]), Box(v=(1, 2)) or Box("v=1:2")'
        ) from error
    return lows, highs, names


def _ends(given: Any) -> tuple[list[Any], list[Any]]:
    """First and second numbers of pairs."""
    pairs = [(low, high) for low, high in given]
    lows = [low for low, _ in pairs]
    highs = [high for _, high in pairs]
    return lows, highs


def _whole(name: str, given: Any, least: int, most: int) -> int:
    """A whole number of that size; NumPy's too, which torch's generators do not take."""
    number = int(given) if isinstance(given, Integral) else least - 1
    if not least <= number <= most:
        raise OnelayerError(f"{name} must be a whole number from {least} to {most:,}, got {type(given).__name__}")
    return number


def _unit_points(count: int, dim: int, seed: int) -> Tensor:
    """Scrambled Sobol points of [0, 1]^D; random ones beyond the dimensions that Sobol's numbers are known for."""
    if dim > SobolEngine.MAXDIM:
        generator = torch.Generator("cpu").manual_seed(seed)
        return torch.rand(count, dim, generator=generator, dtype=torch.float64, device="cpu")
    engine = SobolEngine(dim, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    points: Tensor = engine.draw(count, dtype=torch.float64)
    # The engine makes its first point in torch's default dtype, so the same numbers could differ by global state.
    points[:1] = engine.shift.double() / 2.0**engine.MAXBIT
    return points


def _float64(value: Bounds, name: str) -> Tensor:
    try:
        # A tensor stays where it is, so that one without numbers can be recognised below.
        device = None if isinstance(value, Tensor) else "cpu"
        tensor = torch.as_tensor(value, dtype=torch.float64, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        shown = repr(value)[:60]
        raise OnelayerError(f"box {name} bounds must be numbers of one regular shape, got {shown}") from error
    if not _whole_as_given(value):
        raise OnelayerError(
            f"box {name} bounds beyond 2^53 must be float64 numbers: {repr(value)[:60]} would be rounded"
        )
    # Such a tensor has a shape and no numbers; to copy it would be an error of torch's own.
    if tensor.is_meta:
        raise OnelayerError(f"box {name} bounds are on the device 'meta', which holds no numbers; give them on the cpu")
    return tensor.detach().cpu().clone()


def _whole_as_given(value: Any) -> bool:
    """Whether float64 has the whole numbers in ``value``: rounded, a box would be another than the one asked for."""
    # Floats are as given already, and there may be many of them.
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return True
    if isinstance(value, Tensor):
        value = [] if value.is_meta or value.is_floating_point() else value.tolist()
    items = np.asarray(value, dtype=object).ravel().tolist()
    return all(int(float(item)) == item for item in items if isinstance(item, Integral))
