"""T step by step: every operation is executed beside its enclosure, and must return what that holds.

An operation is known by its name, and enclosed as what torch means by that name and its arguments. Where it is read
wrongly, T as a whole need not leave its enclosure at any point that is looked at: a factor that vanishes but for one
place in 10^8 hides what stands beside it. So T is run on enclosures that carry the numbers which are executed in them,
and every operation is applied to both.

Lemma: what passes is, at these points, enclosed by every operation as torch executes it, its shape and format included.

The numbers are followed as well (expressed.py): whether code that may ask what it is given computes the same expression
of them as of numbers alone is for the caller to compare.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.expressed import Followed
from onelayer.taylor.conditions import Comparison
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.opaque import IN_PLACE, INTEGERS, Opaque, refusing
from onelayer.taylor.registry import canonical_name

BINARY = ("add", "sub", "mul", "truediv", "pow", "matmul", "and", "or")
COMPARED = ("gt", "ge", "lt", "le", "eq", "ne")
UNARY = ("neg", "pos", "abs", "invert")


class Excluded(UnsupportedOperation):
    """An operation returned what its enclosure excludes, at the point of this number in the batch.

    Like whatever is refused it stands where the code of T catches it.
    """

    def __init__(self, name: str, row: int, what: str) -> None:
        super().__init__(name, what)
        self.row = row


@refusing(IN_PLACE + INTEGERS)
class Accompanied:
    """An enclosure, or what a comparison of some says, and what is executed in it; with a tensor's manners."""

    def __init__(self, enclosure: Any, numbers: Tensor, followed: Followed | None = None) -> None:
        self.enclosure = enclosure
        self.numbers = numbers
        # Where it begins, the numbers are the argument that is followed.
        self.followed = Followed(numbers) if followed is None else followed

    # Numbers of NumPy leave an operation to the other operand, as beside a tensor.
    __array_ufunc__ = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return _applied(canonical_name(func), func, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # What enclosures do not have is refused by them.
        ours = getattr(self.enclosure, name)
        if callable(ours):
            return lambda *args, **kwargs: _applied(name, _method(name), self, *args, **kwargs)
        with self.followed:
            theirs = getattr(self.numbers, name)
        return _paired(name, ours, theirs, self.followed)

    def __getitem__(self, index: Any) -> Any:
        return _applied("getitem", operator.getitem, self, index)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Any]:
        return iter(_applied("unbind", torch.unbind, self))

    def __bool__(self) -> bool:
        return bool(self.enclosure)  # refused

    def __float__(self) -> float:
        return float(self.enclosure)  # refused

    __hash__ = None  # type: ignore[assignment]  # nothing is equal to anything for sure


def _operator(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def applied(self: Accompanied, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        return _applied(name, function, *operands)

    return applied


for bare in (*BINARY, *COMPARED, *UNARY):
    setattr(Accompanied, f"__{bare}__", _operator(bare))
for bare in BINARY:
    setattr(Accompanied, f"__r{bare}__", _operator(bare, reflected=True))


def _method(name: str) -> Callable[..., Any]:
    return lambda owner, *args, **kwargs: getattr(owner, name)(*args, **kwargs)


def _applied(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function of both sides."""
    followed = next(_met((args, kwargs))).followed
    ours = function(*side_of(args, "enclosure"), **side_of(kwargs, "enclosure"))
    with followed:
        theirs = function(*side_of(args, "numbers"), **side_of(kwargs, "numbers"))
    return _paired(name, ours, theirs, followed)


def _met(value: Any) -> Iterator[Accompanied]:
    """Those among nested arguments."""
    if isinstance(value, Accompanied):
        yield value
    elif isinstance(value, Mapping):
        yield from _met(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _met(part)


def side_of(value: Any, side: str) -> Any:
    """Nested arguments with one side in the place of both."""
    if isinstance(value, Accompanied):
        return getattr(value, side)
    if isinstance(value, Mapping):
        return {key: side_of(part, side) for key, part in value.items()}
    if isinstance(value, list):
        return [side_of(part, side) for part in value]
    if type(value) is tuple:
        return tuple(side_of(part, side) for part in value)
    return value


def _paired(name: str, ours: Any, theirs: Any, followed: Followed) -> Any:
    """Both results as one, if the enclosure holds what was executed."""
    if isinstance(ours, TaylorModel):
        _need_inside(name, ours, theirs)
        return Accompanied(ours, theirs, followed)
    if isinstance(ours, Comparison):
        _need_alike(name, theirs, ours.shape, torch.bool)
        _complain(name, (ours.true & ~theirs) | (ours.false & theirs), theirs)
        return Accompanied(ours, theirs, followed)
    if isinstance(ours, Opaque):
        return Accompanied(ours, theirs, followed)
    if isinstance(ours, list | tuple) and type(ours) is not torch.Size:
        parts = [_paired(name, one, other, followed) for one, other in zip(ours, theirs, strict=True)]
        # Parts with names keep them.
        made: list[Any] | tuple[Any, ...] = getattr(ours, "_make", type(ours))(parts)
        return made
    return theirs


def _need_inside(name: str, ours: TaylorModel, theirs: Any) -> None:
    _need_alike(name, theirs, ours.shape, ours.dtype)
    low, high = ours.range()
    values = theirs.to(torch.float64)
    claimed = torch.isfinite(low) & torch.isfinite(high)
    _complain(name, claimed & ~((values >= low) & (values <= high)), theirs)


def _need_alike(name: str, theirs: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(theirs, Tensor) or theirs.shape != tuple(shape) or theirs.dtype != dtype:
        found = f"{tuple(theirs.shape)} in {theirs.dtype}" if isinstance(theirs, Tensor) else type(theirs).__name__
        raise Excluded(name, 0, f"returns {found}, and its enclosure {tuple(shape)} in {dtype}")


def _complain(name: str, wrong: Tensor, values: Tensor) -> None:
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].tolist())
        row = at[0] if at else 0
        raise Excluded(name, row, f"returns {values[at].item()!r}, which its enclosure excludes")
