"""Symbolic tensors: run a torch function once on them and its scalar operations are written onto a tape.

A symbolic tensor holds the tape position of every entry in an integer tensor, so operations that only move entries
(indexing, reshape, stack, ...) are torch's own, applied to the positions. Views share their positions as tensors share
their storage, and writing in place is writing positions: what f sees after it is what torch shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from flint import arb
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import UnsupportedOperation
from onelayer.expressed import Followed
from onelayer.formats import FLOAT32
from onelayer.language.conditions import Condition
from onelayer.language.tree import Tape
from onelayer.recording.exact import need_exact
from onelayer.recording.recorded import CHOOSE, CONTROL, Recorded, refuse_the_rest
from onelayer.recording.twins import Twins

CPU = torch.device("cpu")
ZERO, ONE = 0, 1  # positions of the numbers 0 and 1 on every recording
INFINITE = "an infinite mask may only be added to logits before softmax"
# The position that stands for a masked logit; only sums and softmax know it.
MINUS_INFINITY = -1

Dispatch = Callable[[Callable[..., Any], str, Sequence[Any], Mapping[str, Any]], Any]


@dataclass
class Recording(Tape):
    """The tape of one run of f on a batch of ``batch`` points of ``shape``: ``x`` is what f is given.

    Every point has variables of its own: coordinate j of point i is variable i * D + j. ``box`` is where f is to be
    recorded, None when nothing is known of x.
    """

    batch: int = 1
    shape: tuple[int, ...] = (1,)
    box: Box | None = None
    # What torch may have for its default; NumPy has float64.
    default: torch.dtype = FLOAT32.dtype
    # Whether f was given in a narrower format, in which the unit of the format is another number.
    narrower: bool = False
    # The numbers (batch, *shape) that torch computes with beside the recording (recording/beside.py); None: without.
    points: Tensor | None = None

    def __post_init__(self) -> None:
        self.numbers: list[float] = [] if self.points is None else self.points.flatten().tolist()
        self.balls: list[arb] = []  # of as many nodes as were asked for, at these points
        self.inside = False  # whether an operation is being recorded
        # Over the box, of as many nodes as were asked for: they are computed when a choice needs one.
        self.ranges: list[arb] = []
        self.conditions: list[Condition] = []  # of all comparisons so far
        self.twins = Twins()  # tensors that may share their memory
        self.refused: Exception | None = None  # the first that was raised on recorded values
        self.raising: set[str] = set()  # what numbers may raise, as the code found it (recording/unasked.py)
        # In this order, so that ZERO and ONE are their positions.
        self.number(0)
        self.number(1)
        count = self.batch * math.prod(self.shape)
        ids = [self.variable(at) for at in range(count)]
        self.x = Symbolic(self, positions(ids, (self.batch, *self.shape)))
        beside = torch.zeros(0, dtype=torch.float64, device=CPU) if self.points is None else self.points.clone()
        self.x.beside = None if self.points is None else beside
        self.followed = Followed(beside)  # what torch computes of the points

    def refuse(self, operation: str, hint: str) -> NoReturn:
        """Raise it, and remember it: code that catches it goes on by another path than it does on numbers."""
        error = UnsupportedOperation(operation, hint)
        self.refused = self.refused or error
        raise error

    def add(self, op: str, *args: int, value: float = 0) -> int:
        """The node of an operation on nodes."""
        if any(at < 0 for at in args):
            raise UnsupportedOperation("-inf", INFINITE)
        return super().add(op, *args, value=value)


class Symbolic(Recorded):
    """A tensor whose entries are nodes of ``tape``; ``ids`` are their positions, ``kind`` the format of its numbers."""

    # numpy must hand arithmetic with a symbolic tensor back to it instead of looping over entries.
    __array_ufunc__ = None
    # How a torch function is recorded; set where the operations are known.
    dispatch: Dispatch

    def __init__(self, tape: Recording, ids: Tensor, kind: torch.dtype = torch.float64) -> None:
        self.tape = tape
        self.ids = ids
        self.kind = kind

    inner = property(lambda self: self)
    shape = property(lambda self: self.ids.shape)
    ndim = property(lambda self: self.ids.ndim)
    dtype = property(lambda self: self.kind)
    device = property(lambda self: self.ids.device)
    layout = property(lambda self: self.ids.layout)
    requires_grad = property(lambda self: False)
    is_nested = property(lambda self: False)
    is_cuda = property(lambda self: False)
    T = property(lambda self: self._taken(lambda entries: entries.T))
    mT = property(lambda self: self._taken(lambda entries: entries.mT))

    def _taken(self, move: Callable[[Any], Any]) -> Symbolic:
        """Some of the entries, and of the numbers beside them."""
        found = Symbolic(self.tape, move(self.ids), self.kind)
        with self.tape.followed:
            found.beside = None if self.beside is None else move(self.beside)
        return found

    def dim(self) -> int:
        """Number of dimensions."""
        return self.ids.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one side of it."""
        if dim is None:
            return self.ids.size()
        return self.ids.size(dim)

    def numel(self) -> int:
        """Number of entries."""
        return self.ids.numel()

    def is_floating_point(self) -> bool:
        """Whether it stands for numbers of a floating format."""
        return self.kind.is_floating_point

    def is_complex(self) -> bool:
        """It stands for real numbers."""
        return False

    def where(self, condition: Any, other: Any) -> Any:
        """torch.where with itself as the first choice."""
        return torch.where(condition, self, other)  # type: ignore[call-overload]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Symbolic]:
        return (self[at] for at in range(len(self)))

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return cls.dispatch(func, func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        # What tensors of numbers answer by their place and layout.
        if name.startswith("is_") and not callable(getattr(Tensor, name, None)):
            return getattr(self.ids, name)
        method = getattr(Tensor, name, None)
        if name.startswith("__") or not callable(method):
            self.absent(name)
        dispatch = type(self).dispatch
        return lambda *args, **kwargs: dispatch(method, name, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Symbolic:
        place = _plain(index)
        return self._taken(lambda entries: entries[place])

    def __copy__(self) -> Symbolic:
        return self[...]

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.tape.refuse("copy.deepcopy(x)", "it copies memory past torch's operations; use x.clone()")

    def __setitem__(self, index: Any, value: Any) -> None:
        self.writable("x[...] = ")
        place = _plain(index)
        # Writing positions is writing entries: every view of them sees it.
        self.ids[place] = self._fitting("x[...] = ", lift(self.tape, value))
        self.tape.twins.written(self.ids)
        if self.beside is not None:
            with self.tape.followed:
                self.beside[place] = value.beside if isinstance(value, Recorded) else value

    def write(self, name: str, result: Any) -> Symbolic:
        """Take the entries of ``result``, in every view of this tensor too, as the in-place function ``name`` does."""
        self.writable(name)
        value = lift(self.tape, result)  # of a comparison the numbers 0 and 1
        if value.shape != self.shape:
            theirs, ours = tuple(value.shape), tuple(self.shape)
            raise UnsupportedOperation(name, f"shape {theirs} does not fit into {ours}")
        self.ids.copy_(self._fitting(name, value))
        self.tape.twins.written(self.ids)
        return self

    def _fitting(self, name: str, value: Symbolic) -> Tensor:
        """Positions of a value that is written here, which is refused where this tensor's format would round it."""
        need_exact(self.tape, name, value.ids, self.kind)
        return value.ids

    def writable(self, name: str) -> None:
        """Refuse to be written into where the entries are those of the argument of f."""
        own = self.ids.untyped_storage().data_ptr()
        given = self.tape.x.ids.untyped_storage().data_ptr()
        if own == given:
            self.tape.refuse(name, "it changes the argument of f in place; begin f with x = x.clone()")

    def __bool__(self) -> bool:
        self.tape.refuse("bool(x)", f"{CONTROL}; {CHOOSE}")

    def __float__(self) -> float:
        self.tape.refuse("float(x)", f"{CONTROL}, for example torch.sin instead of math.sin")

    def __int__(self) -> int:
        self.tape.refuse("int(x)", CONTROL)

    __index__ = __int__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.tape.refuse("numpy(x)", "write f with torch functions, or give lipschitz= for a NumPy function")

    def item(self) -> float:
        """Refused: what is recorded has no value yet."""
        return self.__float__()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: what is recorded has no value yet."""
        return self.__array__()

    tolist = numpy


class Truth(Recorded):
    """A tensor of bools that depend on x: ``ids`` are the places of its entries among the conditions of ``tape``.

    It chooses, in torch.where; everything else sees the number 1 where it holds and 0 elsewhere.
    """

    __array_ufunc__ = None

    def __init__(self, tape: Recording, ids: Tensor) -> None:
        self.tape = tape
        self.ids = ids

    @classmethod
    def of(cls, tape: Recording, conditions: Sequence[Condition], shape: Sequence[int]) -> Truth:
        """A tensor of these conditions."""
        first = len(tape.conditions)
        tape.conditions.extend(conditions)
        places = range(first, len(tape.conditions))
        return cls(tape, positions(places, shape))

    inner = property(lambda self: self)
    shape = property(lambda self: self.ids.shape)
    ndim = property(lambda self: self.ids.ndim)
    dtype = property(lambda self: torch.bool)
    device = property(lambda self: self.ids.device)

    @property
    def conditions(self) -> list[Condition]:
        """The entries in row-major order."""
        return [self.tape.conditions[at] for at in self.ids.flatten().tolist()]

    def numbers(self) -> Symbolic:
        """1 where an entry holds, 0 elsewhere."""
        chosen = [condition.choose(self.tape, ONE, ZERO) for condition in self.conditions]
        return Symbolic(self.tape, positions(chosen, self.ids.shape))

    def dim(self) -> int:
        """Number of dimensions."""
        return self.ids.ndim

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return Symbolic.dispatch(func, func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(Tensor, name, None)
        if name.startswith("__") or not callable(method):
            self.absent(name)
        return lambda *args, **kwargs: Symbolic.dispatch(method, name, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Truth:
        place = _plain(index)
        found = Truth(self.tape, self.ids[place])
        with self.tape.followed:
            found.beside = None if self.beside is None else self.beside[place]
        return found

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Truth]:
        return (self[at] for at in range(len(self)))

    def __copy__(self) -> Truth:
        return self[...]

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.tape.refuse("copy.deepcopy(x)", "it copies memory past torch's operations; use x.clone()")

    def __bool__(self) -> bool:
        self.tape.refuse("bool(x > ...)", f"{CONTROL}; {CHOOSE}")


def _operator(name: str) -> Callable[..., Any]:
    # Python looks operators up on the class: __getattr__ never hears of them. Tensor has not all of them either.
    return lambda self, *args: Symbolic.dispatch(getattr(Tensor, name), name, (self, *args), {})


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "floordiv", "mod"):
    for _form in ("", "r", "i"):
        _operation = f"__{_form}{_name}__"
        setattr(Symbolic, _operation, _operator(_operation))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "pos"):
    setattr(Symbolic, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("and", "or", "xor", "invert", "add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv"):
    setattr(Truth, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("and", "or", "xor"):  # in either order
    setattr(Truth, f"__r{_name}__", getattr(Truth, f"__{_name}__"))
# Without them Python compares identities, and answers False whatever the conditions are.
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Truth, f"__{_name}__", _operator(f"__{_name}__"))
for _class in (Symbolic, Truth):
    refuse_the_rest(_class)
# A class with __eq__ of its own loses its hash, and torch keeps arguments in sets.
Symbolic.__hash__ = object.__hash__  # type: ignore[method-assign]
Truth.__hash__ = object.__hash__  # type: ignore[method-assign]


def _plain(index: Any) -> Any:
    tape = find_tape(index)
    if tape is not None:
        tape.refuse("x[x]", "an index that depends on x is discontinuous")
    return index


def positions(ids: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Tape positions as a tensor of that shape."""
    return torch.tensor(ids, dtype=torch.int64, device=CPU).reshape(tuple(shape))


def lift(tape: Recording, value: Any) -> Symbolic:
    """Any number, tensor or symbolic tensor as a symbolic tensor on ``tape``; a float is exactly that float."""
    _need_own(tape, value)
    if isinstance(value, Symbolic):
        tape.twins.need_known(value.ids)
        return value
    if isinstance(value, Truth):
        return value.numbers()
    if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
        raise UnsupportedOperation("complex", "the formula language is real")
    numbers = value
    if isinstance(value, (np.ndarray, np.generic)):
        _need_doubles(value)
    if not isinstance(value, Tensor):
        numbers = torch.as_tensor(value, dtype=torch.float64, device=CPU)
    flat = numbers.detach().to(CPU, torch.float64).flatten().tolist()
    ids = [MINUS_INFINITY if n == -math.inf else tape.number(n) for n in flat]
    return Symbolic(tape, positions(ids, numbers.shape))


def _need_own(tape: Recording, value: Any) -> None:
    if isinstance(value, Symbolic | Truth) and value.tape is not tape:
        tape.refuse("a value of another call", "f must not keep what it computes for a later call")


def _need_doubles(value: np.ndarray[Any, Any] | np.generic) -> None:
    """Refuse an array of NumPy that float64 does not hold: torch would drop imaginary parts and digits."""
    if value.dtype.kind == "c":
        raise UnsupportedOperation("complex", "the formula language is real")
    if value.dtype.kind == "f" and value.dtype.itemsize > 8:
        raise UnsupportedOperation(str(value.dtype), "f is taken in float64; use float64 constants")


def find_tape(values: Any) -> Recording | None:
    """The tape of the first symbolic tensor among nested arguments."""
    if isinstance(values, (Symbolic, Truth)):
        return values.tape
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        found = (find_tape(value) for value in values)
        return next((tape for tape in found if tape is not None), None)
    return None
