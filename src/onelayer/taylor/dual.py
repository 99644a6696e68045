"""Dual: a value with its derivatives, through the same torch code (forward mode, exact, never differences).

A Dual holds y and its tangents dy/dx_1, ..., dy/dx_D, all tensors or all Taylor models. An operation is applied to the
value as it stands, and to the tangents by its derivative, written in operations that Taylor models know; so enclosures
of the tangents enclose the derivatives of the real function. A tangent that is None is zero. taylor/derivatives.py has
the rules.

Where a function bends (relu, abs, max) its derivative jumps, and both sides are enclosed: what is proved of a slope
holds for every limit of slopes (Clarke's derivative), and so for the Lipschitz constant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation, told
from onelayer.taylor.core import TaylorModel, constant
from onelayer.taylor.operators import Operators
from onelayer.taylor.registry import canonical_keywords, canonical_name, enclosing

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def derivative(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of the torch functions of these names: it gets the function itself, then its arguments."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


class Dual(Operators):
    """A value and one tangent per direction, with a tensor's manners."""

    def __init__(self, value: Any, tangents: Sequence[Any]) -> None:
        self.value = value
        self.tangents = tuple(tangents)

    @property
    def shape(self) -> torch.Size:
        """The shape of the value."""
        return torch.Size(self.value.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The format of the value."""
        return self.value.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """Where the value is."""
        return self.value.device  # type: ignore[no-any-return]

    @property
    def T(self) -> Any:
        """The dimensions in the opposite order."""
        return apply("permute", torch.permute, self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Any:
        """The last two dimensions exchanged."""
        return apply("transpose", torch.transpose, self, -2, -1)

    def constant(self, value: float, radius: float = 0.0) -> Any:
        """A real number known to lie in value +- radius, without slopes; where values are numbers, the float itself."""
        if isinstance(self.value, Tensor):
            number = torch.tensor(value, dtype=self.value.dtype, device=self.value.device)
        else:
            number = self.value.constant(value, radius)
        return Dual(number, [None] * len(self.tangents))

    def moved(self, value: Any, along: Callable[[Any], Any]) -> Dual:
        """This value, and every tangent as ``along`` carries it; one that is zero everywhere stays absent."""
        return Dual(value, [None if t is None else along(t) for t in self.tangents])

    carries_tangents = True
    # Numbers of NumPy leave an operation to the other operand, as beside a tensor.
    __array_ufunc__ = None

    def __len__(self) -> int:
        return self.shape[0]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return apply(canonical_name(func), func, *args, **canonical_keywords(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # What enclosures do not have is refused by them.
        own = getattr(self.value, name)
        if isinstance(own, Tensor | TaylorModel | Dual):
            raise UnsupportedOperation(f"the derivative of {name}", "it has no rule")
        # A fact about the value: code that asks for it must take the way that it takes with numbers.
        if not callable(own):
            return own

        def method(owner: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(owner, name)(*args, **kwargs)

        return lambda *args, **kwargs: apply(_plain_name(name), method, self, *args, **kwargs)

    def __iter__(self) -> Any:
        return iter(self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool", "a branch on a value has no derivative; use torch.where")

    def __getitem__(self, index: Any) -> Any:
        return apply("getitem", lambda x: x[index], self)

    def operated(self, name: str, *args: Any) -> Any:
        """The operation of this name, by its rule."""
        return apply(name, getattr(torch, name), *args)

    def __eq__(self, other: object) -> Any:
        raise UnsupportedOperation("a comparison for equality", "it has no derivative; use torch.where with < or >")

    def __ne__(self, other: object) -> Any:
        return self == other

    def __mod__(self, other: Any) -> Any:
        return apply("remainder", torch.remainder, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return apply("floor_divide", torch.floor_divide, self, other)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise UnsupportedOperation("assignment in place", "build the result with torch.stack or torch.cat")

    def __gt__(self, other: Any) -> Any:
        return self.value > value_of(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= value_of(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < value_of(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= value_of(other)


def _plain_name(name: str) -> str:
    return canonical_name(SimpleNamespace(__name__=name))


def apply(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The operation on duals, by its rule; one without a rule, or an argument that the rule has not, is refused."""
    if name not in RULES:
        raise UnsupportedOperation(f"the derivative of {name}", "it has no rule")
    for at, spelled in enumerate(("input", "other")):
        # The operands come first, whether torch is given their names or not.
        if spelled in kwargs and len(args) == at:
            args = (*args, kwargs.pop(spelled))
    if not directions(args, list(kwargs.values())):
        return _undirected(function(*value_of(args), **value_of(kwargs)))
    try:
        return RULES[name](function, *args, **kwargs)
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        raise UnsupportedOperation(f"the derivative of {name} with these arguments", told(error)) from error


def undirected(x: Any) -> Dual:
    """x as a dual without directions: every operation on it is the one on its value, and no slope is asked for."""
    return Dual(x, ())


def _undirected(found: Any) -> Any:
    """Results of an operation, likewise; facts stay what they are."""
    if isinstance(found, Tensor | TaylorModel | Dual):
        return undirected(found)
    if isinstance(found, list | tuple) and type(found) is not torch.Size:
        parts = [_undirected(part) for part in found]
        made: Any = getattr(found, "_make", type(found))(parts)
        return made
    return found


@enclosing()
def seeded(x: Any) -> Dual:
    """The coordinates of x (B, *event), tensor or Taylor model, as duals: the derivative of x_i by x_j is 1 or 0."""
    event = tuple(x.shape[1:])
    count = int(torch.Size(event).numel())
    units = torch.eye(count, dtype=torch.float64, device=x.device).reshape(count, 1, *event)
    tangents = [unit.expand(tuple(x.shape)).clone() for unit in units]
    if isinstance(x, TaylorModel):
        return Dual(x, [constant(unit, x) for unit in tangents])
    return Dual(x, [unit.to(x.dtype) for unit in tangents])


def value_of(x: Any) -> Any:
    """What stands in place of a dual when only its value is meant; lists and keywords are looked into."""
    if isinstance(x, Dual):
        return x.value
    if isinstance(x, list | tuple):
        return type(x)(value_of(item) for item in x)
    if isinstance(x, dict):
        return {key: value_of(item) for key, item in x.items()}
    return x


def directions(*args: Any) -> int:
    """How many tangents the duals among the arguments have."""
    for x in args:
        if isinstance(x, Dual):
            return len(x.tangents)
        if isinstance(x, list | tuple) and (count := directions(*x)):
            return count
    return 0


def tangent(x: Any, at: int) -> Any:
    """The tangent of an argument in one direction, None (zero) for a constant."""
    if isinstance(x, Dual):
        return x.tangents[at]
    return None


def total(*terms: Any) -> Any:
    """The sum of the terms that are not zero; None if all are."""
    found = [term for term in terms if term is not None]
    if not found:
        return None
    return reduce(operator.add, found)


def chained(function: Callable[..., Any], x: Dual, slope: Callable[[Any], Any]) -> Dual:
    """f(x) with tangents f'(x) dx; the slope is computed once."""
    factor = slope(x.value)
    return x.moved(function(x.value), lambda t: factor * t)


@enclosing()
def zeros_like(x: Any) -> Any:
    """Zero in the shape of a value: a constant among Taylor models, without slopes among duals."""
    if isinstance(x, Tensor):
        return torch.zeros_like(x)
    if isinstance(x, Dual):
        return Dual(zeros_like(x.value), [None] * len(x.tangents))
    return constant(torch.zeros(x.shape, dtype=torch.float64, device=x.device), x)


@enclosing()
def defined_with(slope: Any, value: Any) -> Any:
    """The slope where there is a value, undecided elsewhere: what the rules of operations say of it may be a number."""
    if isinstance(slope, Tensor):
        return torch.where(torch.isfinite(value), slope, torch.nan)
    # Outside log's domain 1 / x is a number all the same.
    slope = slope.plain()
    value = value.plain() if isinstance(value, TaylorModel) else constant(value, slope)
    return slope.with_(slope.coef, torch.where(value.decided(), slope.rem, torch.inf))
