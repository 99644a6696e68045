"""NumPy functions that mean something else than torch's of the same name, or have none, on recorded numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from onelayer.errors import UnsupportedOperation
from onelayer.language.functions import interpolate
from onelayer.recording.algebra import add, div, mul, sub, unary
from onelayer.recording.choices import truth, where
from onelayer.recording.dispatch import dispatch
from onelayer.recording.network import matmul
from onelayer.recording.symbolic import Recording, Symbolic, lift, positions


def _variance(name: str) -> Callable[..., Any]:
    """np.var and np.std divide by n - ddof, ddof being 0."""

    def spread(tape: Recording, a: Any, dim: Any = None, *, ddof: float = 0, keepdim: bool = False) -> Any:
        settings = {"correction": ddof, "keepdim": keepdim}
        return dispatch(getattr(torch, name), name, (a, dim), settings)

    return spread


def _median(tape: Recording, a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The middle value, or the mean of the two in the middle; torch takes the lower one of two."""
    x = lift(tape, a)
    if not (dim is None or isinstance(dim, int)) or (dim is None and keepdim):
        raise UnsupportedOperation("np.median(axis)", "give one axis, or none without keepdims")
    flat = Symbolic(tape, x.ids.reshape(-1)) if dim is None else x
    along = -1 if dim is None else dim
    ordered = _sort(tape, flat, along)
    count = ordered.shape[along]
    low, high = (Symbolic(tape, ordered.ids.select(along, at)) for at in ((count - 1) // 2, count // 2))
    middle = low if count % 2 else mul(tape, add(tape, low, high), 0.5)
    return Symbolic(tape, middle.ids.unsqueeze(along)) if keepdim else middle


def _split(tape: Recording, ary: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """So many parts, or parts that begin at those places; torch.split takes their sizes."""
    return dispatch(torch.tensor_split, "tensor_split", (ary, indices_or_sections, dim), {})


def _meshgrid(tape: Recording, *xi: Any, indexing: str = "xy") -> Any:
    """The coordinates of a grid, by default with the first two dimensions exchanged; copies, as in NumPy."""
    axes = [lift(tape, one).ids.reshape(-1) for one in xi]
    grids = torch.meshgrid(*axes, indexing=indexing)
    # Each has the format of its axis: whole numbers stay whole.
    return tuple(Symbolic(tape, ids.clone(), _kind_of(one)) for ids, one in zip(grids, xi, strict=True))


def _kind_of(value: Any) -> torch.dtype:
    if isinstance(value, Symbolic | torch.Tensor):
        return value.dtype
    return torch.int64 if np.asarray(value).dtype.kind in "iu" else torch.float64


def _dot(tape: Recording, a: Any, b: Any) -> Any:
    """The product of numbers, vectors and matrices; of more dimensions NumPy makes another one than of matrices."""
    left = lift(tape, a)
    right = lift(tape, b)
    if 0 in (left.ndim, right.ndim):
        return mul(tape, left, right)
    if max(left.ndim, right.ndim) > 2:
        raise UnsupportedOperation("np.dot of more than two dimensions", "write np.matmul or np.einsum")
    return matmul(tape, left, right)


def _vdot(tape: Recording, a: Any, b: Any) -> Any:
    """The sum of the products of all entries."""
    return matmul(tape, *(Symbolic(tape, lift(tape, one).ids.reshape(-1)) for one in (a, b)))


def _outer(tape: Recording, a: Any, b: Any) -> Any:
    """All products of the entries of two arrays, of any dimensions."""
    left, right = (lift(tape, one).ids.reshape(-1) for one in (a, b))
    return mul(tape, Symbolic(tape, left[:, None]), Symbolic(tape, right))


def _pad(tape: Recording, array: Any, pad_width: Any, mode: str = "constant", *, constant_values: float = 0) -> Any:
    """Entries around the entries: by default on every side of every axis, where torch counts axes from the last."""
    ids = lift(tape, array).ids.numpy()
    if mode == "constant":
        filler = tape.number(float(constant_values))
        padded = np.pad(ids, pad_width, constant_values=filler)
    elif mode in ("edge", "reflect", "symmetric", "wrap"):
        padded = np.pad(ids, pad_width, mode=mode)  # type: ignore[call-overload]
    else:
        raise UnsupportedOperation(f"np.pad(mode={mode!r})", "use 'constant', 'edge', 'reflect', 'symmetric' or 'wrap'")
    return Symbolic(tape, torch.from_numpy(padded))


def _flatten(tape: Recording, a: Any) -> Any:
    """One dimension; a copy, where torch may give a view."""
    return Symbolic(tape, lift(tape, a).ids.reshape(-1).clone())


def _turned(name: str) -> Callable[..., Any]:
    """np.flip and its like, np.diag of a matrix: views, where torch makes copies."""
    function = getattr(torch, name)

    def turned(tape: Recording, a: Any, *given: Any, **named: Any) -> Any:
        ids = lift(tape, a).ids
        # The matrix of a diagonal is new.
        if name == "diag" and ids.ndim == 1:
            return dispatch(function, name, (a, *given), named)
        return Symbolic(tape, tape.twins.taken(ids, lambda entries: function(entries, *given, **named)))

    return turned


def _flip(tape: Recording, m: Any, dim: Any = None) -> Any:
    every = range(lift(tape, m).ndim) if dim is None else dim
    return _turned("flip")(tape, m, dims=[every] if isinstance(every, int) else list(every))


def _reduced(name: str) -> Callable[..., Any]:
    """A sum or an extreme: what NumPy takes behind the axis, torch takes for something else."""

    def reduction(tape: Recording, a: Any, dim: Any = None, **named: Any) -> Any:
        settings = named if dim is None else {"dim": dim, **named}
        return dispatch(getattr(torch, name), name, (a,), settings)

    return reduction


def _sort(tape: Recording, a: Any, dim: int = -1) -> Any:
    return dispatch(torch.sort, "sort", (a, dim), {}).values


def _transpose(tape: Recording, a: Any, dims: Any = None) -> Any:
    order = reversed(range(a.ndim)) if dims is None else dims
    return dispatch(torch.permute, "permute", (a, list(order)), {})


def _norm(tape: Recording, x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    return dispatch(torch.linalg.norm, "linalg_norm", (x, ord, dim, keepdim), {})


def _exp2(tape: Recording, x: Any) -> Any:
    return dispatch(torch.pow, "pow", (lift(tape, 2.0), x), {})


def _logaddexp(tape: Recording, a: Any, b: Any) -> Any:
    total = add(tape, unary(tape, "exp", a), unary(tape, "exp", b))
    return unary(tape, "log", total)


def _interp(tape: Recording, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: the broken line through (xp, fp), constant beyond."""
    if left is not None or right is not None or period is not None:
        raise UnsupportedOperation("np.interp(left, right, period)", "leave them out")
    places = lift(tape, xp).ids.tolist()
    values = lift(tape, fp).ids.tolist()
    ids = lift(tape, x).ids
    found = [interpolate(tape, at, places, values) for at in ids.flatten().tolist()]
    return Symbolic(tape, positions(found, ids.shape))


def _polyval(tape: Recording, p: Any, x: Any) -> Any:
    """np.polyval: the first coefficient belongs to the highest power."""
    coefficients = lift(tape, p).ids.unbind(0)
    total = lift(tape, 0.0)
    for coefficient in coefficients:
        total = add(tape, mul(tape, total, x), Symbolic(tape, coefficient))
    return total


def select(tape: Recording, condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    """np.select: the first choice whose condition holds."""
    # From the last to the first: whoever is asked last, the first, decides.
    chosen = lift(tape, default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = where(tape, truth(tape, condition, "np.select"), choice, chosen)
    return chosen


def _trapezoid(tape: Recording, y: Any, x: Any = None, dx: Any = 1.0, dim: int = -1) -> Any:
    """np.trapezoid: the area below the broken line through values."""
    values = lift(tape, y)
    # One row of places belongs to the dimension that is summed, whichever that is.
    if x is not None and dim % values.ndim != values.ndim - 1:
        raise UnsupportedOperation("np.trapezoid(x, axis)", "sum along the last axis")
    left, right = _neighbours(tape, values, dim)
    steps = dx if x is None else _diff(tape, x)
    doubled = mul(tape, add(tape, left, right), steps)
    return dispatch(torch.sum, "sum", (mul(tape, doubled, 0.5), dim), {})


def _neighbours(tape: Recording, x: Symbolic, dim: int) -> tuple[Symbolic, Symbolic]:
    """All entries along a dimension but the last, and all but the first."""
    size = x.shape[dim]
    first = Symbolic(tape, x.ids.narrow(dim, 0, size - 1))
    second = Symbolic(tape, x.ids.narrow(dim, 1, size - 1))
    return first, second


def _ndtr(tape: Recording, x: Any) -> Any:
    """The distribution function of the normal distribution: erfc(-x / sqrt 2) / 2."""
    scaled = div(tape, x, -math.sqrt(2.0))
    return mul(tape, unary(tape, "erfc", scaled), 0.5)


def _diff(tape: Recording, a: Any, n: int = 1, dim: int = -1) -> Any:
    x = lift(tape, a)
    for _ in range(n):
        earlier, later = _neighbours(tape, x, dim)
        x = sub(tape, later, earlier)
    return x


def _angle(factor: float) -> Callable[..., Any]:
    return lambda tape, x: mul(tape, x, factor)


OWN: dict[str, Callable[..., Any]] = {
    "where": where,
    "var": _variance("var"),
    "std": _variance("std"),
    "sort": _sort,
    "median": _median,
    "split": _split,
    "array_split": _split,
    "meshgrid": _meshgrid,
    "dot": _dot,
    "vdot": _vdot,
    "outer": _outer,
    "pad": _pad,
    "flatten": _flatten,
    "flip": _flip,
    **{name: _turned(name) for name in ("fliplr", "flipud", "rot90", "diag")},
    **{name: _reduced(name) for name in ("sum", "prod", "mean", "any", "all")},
    **{name: _reduced(f"a{name}") for name in ("max", "min")},
    **{name: _reduced(name) for name in ("amax", "amin")},
    "transpose": _transpose,
    "norm": _norm,
    "exp2": _exp2,
    "logaddexp": _logaddexp,
    "interp": _interp,
    "polyval": _polyval,
    "select": select,
    "diff": _diff,
    "trapezoid": _trapezoid,
    "trapz": _trapezoid,
    "ndtr": _ndtr,
    "radians": _angle(np.pi / 180),
    "deg2rad": _angle(np.pi / 180),
    "degrees": _angle(180 / np.pi),
    "rad2deg": _angle(180 / np.pi),
    "reciprocal": lambda tape, x: div(tape, 1.0, x),
}
