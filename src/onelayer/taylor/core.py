"""TaylorModel: a polynomial in the box's normalised coordinates and a remainder radius, for many boxes at once.

A function g on the box {c + r t : t in [-1, 1]^D} is enclosed by (p, R) when |g(t) - p(t)| <= R for every t. The
coefficients of p are rows of a float64 tensor (P, B, *event), polynomial index first; R is (B, *event). A model stores
only the variables it depends on (``support``) and only up to its current ``degree``, so functions of one coordinate
stay univariate until they meet another coordinate.

A softmax stays a quotient for as long as only linear maps act on it: ``den`` holds the denominators, the value is the
numerator over their product. Sums over tokens then happen before the one division, where large values cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.formats import coarsest
from onelayer.narrow import ACCUMULATORS
from onelayer.taylor import basis, fused, kernels, tables
from onelayer.taylor.opaque import IN_PLACE, INTEGERS, refusing
from onelayer.taylor.operators import Operators
from onelayer.taylor.registry import call, canonical_keywords, canonical_name, method
from onelayer.taylor.rounding import UNIT, gamma, inflate
from onelayer.taylor.subdivide import cell_bounds, default_cells


@dataclass(frozen=True)
class Space:
    """What all models of one evaluation share: order k, number of variables D, the executing type if any, and the
    sides of kinks that are assumed (taylor/sides.py)."""

    order: int
    dim: int
    execution: torch.dtype | None = None
    sides: Any = None

    def cap(self, variables: int) -> int:
        """Highest degree kept by a model of this many variables.

        Univariate models are small, and it is there that exponentials of steep logits meet large values: four degrees
        more cost little and shrink their remainders a thousandfold.
        """
        return 0 if variables == 0 else self.order + 4 * (variables == 1)


@refusing(IN_PLACE + INTEGERS)
class TaylorModel(Operators):
    """Rigorous Taylor models with a tensor's manners: shape (B, *event), float64, torch functions apply.

    coef: (P, *shape) in graded order over ``support``; rem: (*shape), nonnegative, inf or nan where undecided; den:
    denominators, each of the same number of dimensions with size 1 where it does not vary; hull: an interval that is
    known to contain the value, or None. Operations do not pass it on.

    Invariant of every operation: an entry that depends on an undecided one (``decided``) is itself undecided. So a
    finite remainder proves that the function is defined on the whole box, and an executed one that it never overflows.
    """

    __slots__ = ("_norms", "_total", "coef", "degree", "den", "hull", "rem", "space", "support")

    def __init__(
        self,
        coef: Tensor,
        rem: Tensor,
        space: Space,
        support: tuple[int, ...],
        degree: int,
        den: tuple[TaylorModel, ...] = (),
    ) -> None:
        if coef.dtype != torch.float64 or rem.dtype != torch.float64:
            raise TypeError("a Taylor model in any format but float64 would not cover its own rounding")
        if coef.shape[0] != basis.count(len(support), degree):
            raise TypeError(f"{len(coef)} rows are no polynomial of degree {degree} in {len(support)} variables")
        self.coef = coef
        self.rem = rem
        self.space = space
        self.support = support
        self.degree = degree
        self.den = den
        self.hull: tuple[Tensor, Tensor] | None = None
        self._norms: Tensor | None = None
        self._total: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of what is enclosed, batch first."""
        return self.rem.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.rem.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The type that code under proof would see: the executing one."""
        return self.space.execution or torch.float64

    @property
    def device(self) -> torch.device:
        """Where the coefficients are."""
        return self.rem.device

    @property
    def execution(self) -> torch.dtype | None:
        """The format that is executed; None for real arithmetic."""
        return self.space.execution

    @property
    def T(self) -> TaylorModel:
        """Its transpose."""
        return _operation("permute", self, *reversed(range(self.ndim)))

    @property
    def mT(self) -> TaylorModel:
        """The last two dimensions exchanged."""
        return _operation("transpose", self, -2, -1)

    @property
    def is_cuda(self) -> bool:
        """Whether the coefficients are on a GPU."""
        return self.rem.is_cuda

    is_nested = is_sparse = requires_grad = False

    def with_(self, coef: Tensor, rem: Tensor, den: tuple[TaylorModel, ...] | None = None) -> TaylorModel:
        """Same space, support and degree, other numbers; pending denominators are never dropped silently."""
        if den is None and self.den:
            raise TypeError("pending denominators must be passed on or carried out")
        return self._knowing(TaylorModel(coef, rem, self.space, self.support, self.degree, den or ()))

    def _knowing(self, model: TaylorModel) -> TaylorModel:
        """Another model with what is known of these coefficients, if they are the same; they are never changed."""
        if model.coef is self.coef:
            model._norms = self._norms
            model._total = self._total
        return model

    def with_hull(self, low: Tensor, high: Tensor) -> TaylorModel:
        """The same model of a value that is known to lie in [low, high]."""
        known = self.with_(self.coef, self.rem, self.den)
        known.hull = low, high
        return known

    def with_radius(self, radius: Tensor | float) -> TaylorModel:
        """The same enclosure made wider by ``radius``."""
        return self.with_(self.coef, inflate(self.rem + radius), self.den)

    def tagged(self, execution: torch.dtype | None) -> TaylorModel:
        """The same enclosure, whose further operations are executed in this type (None: exact real ones)."""
        space = self.space if self.space.execution == execution else replace(self.space, execution=execution)
        return self._knowing(TaylorModel(self.coef, self.rem, space, self.support, self.degree, self.den))

    def untag(self) -> TaylorModel:
        """The same enclosure, whose further operations are exact real ones instead of executed ones."""
        return self.tagged(None)

    def plain(self) -> TaylorModel:
        """The same function without pending denominators."""
        return _operation("quotient", self) if self.den else self

    def constant(self, value: float, radius: float = 0.0) -> TaylorModel:
        """A real number known to lie in value +- radius, as a model that mixes with this one."""
        return constant(value, self, tables.number(abs(radius), self.device))

    def norms(self) -> Tensor:
        """Absolute sums per degree, (degree + 1, *shape), rounded upwards."""
        if self._norms is None and kernels.ready(self.coef):
            self._norms, self._total = kernels.sums(self.coef, len(self.support), self.degree)
        if self._norms is None and fused.ready(self.coef) and len(self.support) > 1:
            self._norms, self._total = fused.sums(self.coef, len(self.support), self.degree)
        if self._norms is None:
            sizes = self.coef.abs()
            s = len(self.support)
            if s > 1:
                sums = sizes.new_empty(self.degree + 1, *sizes.shape[1:])
                for d in range(self.degree + 1):
                    torch.sum(sizes[basis.block(s, d)], 0, out=sums[d])
                sizes = inflate(sums)
            self._norms = sizes
        return self._norms

    def total(self) -> Tensor:
        """Bound of |polynomial| over the box: the sum of absolute coefficients."""
        norms = self.norms()
        if self._total is None:
            self._total = inflate(norms.sum(0))
        return self._total

    def magnitude(self) -> Tensor:
        """Bound of |value| (of the numerator) over the box by absolute sums alone."""
        return inflate(self.total() + self.rem)

    def decided(self) -> Tensor:
        """Where the enclosure says something: every coefficient and the remainder are finite."""
        return self.magnitude() < torch.inf

    def range(self) -> tuple[Tensor, Tensor]:
        """Rigorous (lower, upper) of the value over each box; monomials with even exponents count as [0, 1].

        The polynomial stays within it too: by a hull it is narrowed only up to the remainder.
        """
        if self.den:
            return self.plain().range()
        lower, upper = self._natural_range()
        if self.hull is not None:
            slack = inflate(self.rem)
            low = self.hull[0] - slack
            high = self.hull[1] + slack
            infinity = torch.full_like(lower, torch.inf)
            # What is not a number stays so: a hull does not define a value.
            lower = torch.maximum(lower, torch.nextafter(low, -infinity))
            upper = torch.minimum(upper, torch.nextafter(high, infinity))
        return lower, upper

    def _natural_range(self) -> tuple[Tensor, Tensor]:
        s = len(self.support)
        rounding = gamma(2 * len(self.coef))
        if kernels.ready(self.coef, self.rem):
            return kernels.interval(self.coef, self.norms(), self.total(), self.rem, s, self.degree, rounding)
        even = basis.even_rows(s, self.degree)
        center = self.coef[0]
        radius = self.norms()[1:].sum(0)
        if even:
            part = self.coef[tables.rows(even, self.device)]
            center = center + part.sum(0) / 2
            radius = radius - part.abs().sum(0) / 2
        reach = inflate(radius + self.rem + rounding * self.total())
        infinity = torch.full_like(center, torch.inf)
        return torch.nextafter(center - reach, -infinity), torch.nextafter(center + reach, infinity)

    def bound(self) -> Tensor:
        """Rigorous upper bound of |value| over each box, (B, *event)."""
        lower, upper = self.range()
        return torch.maximum(-lower, upper)

    def split_bound(self, cells: int | None = None) -> Tensor:
        """Like ``bound``, but the polynomial is re-expanded on ``cells`` cells per axis of the normalised box."""
        if self.den:
            return self.plain().split_bound(cells)
        s = len(self.support)
        cells = default_cells(s) if cells is None else cells
        if cells == 1:
            return self.bound()
        return inflate(cell_bounds(self.coef, s, self.degree, cells) + self.rem)

    def polynomial_and_remainder(self) -> tuple[Tensor, Tensor]:
        """Coefficients over all D variables, (P, *shape), and the remainder."""
        full = lift(self.plain(), tuple(range(self.space.dim)), self.space.cap(self.space.dim))
        return full.coef, full.rem

    def sensitivity(self) -> Tensor:
        """Estimate (not a bound) of each variable's part in the width, (B, D): sum |c_p| times its exponent."""
        if self.den:
            return self.plain().sensitivity()
        share = torch.zeros(self.shape[0], self.space.dim, dtype=torch.float64, device=self.device)
        if self.support:
            table = tables.exponents(len(self.support), self.degree, self.device)
            each = fused.weighted_sizes(self.coef, table).reshape(len(self.support), len(share), -1)
            share[:, tables.rows(self.support, self.device)] = each.amax(-1).T
        return share

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return call(canonical_name(func), *args, **canonical_keywords(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, how: str, *args: Any, **kwargs: Any) -> Any:
        if how != "__call__" or kwargs:
            raise UnsupportedOperation(f"numpy.{ufunc.__name__}.{how}", "write the function with torch operations")
        return call(canonical_name(ufunc), *args)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperation("numpy.array", "write the function with torch operations")

    def __float__(self) -> float:
        raise UnsupportedOperation("float", "a Taylor model is a set of functions, not a number; use torch operations")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return method(self, name)

    def __len__(self) -> int:
        return len(self.rem)

    def __iter__(self) -> Any:
        return iter(call("unbind", self))

    def __repr__(self) -> str:
        return f"TaylorModel(shape={tuple(self.shape)}, degree={self.degree}, support={self.support}, {self.space})"

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool", "a branch on the value of a Taylor model is not a function of the box")

    def operated(self, name: str, *args: Any) -> Any:
        """The operation of this name."""
        return call(name, *args)

    def __getitem__(self, index: Any) -> TaylorModel:
        return _operation("getitem", self, index)


def _operation(name: str, *args: Any) -> TaylorModel:
    return cast(TaylorModel, call(name, *args))


def constant(value: Any, like: TaylorModel, radius: Tensor | None = None) -> TaylorModel:
    """A number or tensor as a model of degree 0: exactly that number, up to ``radius``.

    An integer beyond 2^53 is enclosed: torch rounds it to a float, Python does not.
    """
    if isinstance(value, TaylorModel):
        return value
    given = _given(value, like.device)
    tensor = given.to(torch.float64)
    rem = torch.zeros_like(tensor) if radius is None else radius.expand_as(tensor)
    if not given.is_floating_point() or isinstance(value, Integral):
        rem = torch.where(tensor.abs() <= 2.0**53, rem, inflate(rem + 2 * UNIT * tensor.abs()))
    return TaylorModel(tensor[None], rem, like.space, (), 0)


def _given(value: Any, device: torch.device) -> Tensor:
    """A constant as a tensor of its own type; a Python number as a float64, where torch would make it a float32."""
    if isinstance(value, Tensor) and not value.is_complex():
        return value.detach().to(device)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return torch.from_numpy(value).to(device)
    if isinstance(value, Real):
        return tables.number(float(value), device)
    raise UnsupportedOperation(f"a constant of type {type(value).__name__}", "use real numbers and tensors of them")


def lift(model: TaylorModel, support: tuple[int, ...], degree: int) -> TaylorModel:
    """The same polynomial written over a larger support; degrees above ``degree`` move into the remainder."""
    model = truncate(model, degree)
    if model.support == support:
        return model
    positions = tuple(support.index(v) for v in model.support)
    coef = model.coef.new_zeros(basis.count(len(support), model.degree), *model.shape)
    rows = basis.lift_rows(positions, len(support), model.degree)
    coef[tables.rows(rows, model.device)] = model.coef
    return TaylorModel(coef, model.rem, model.space, support, model.degree, model.den)


def truncate(model: TaylorModel, degree: int) -> TaylorModel:
    """Drop the degrees above ``degree``; their absolute sums join the remainder."""
    if model.degree <= degree:
        return model
    rows = basis.count(len(model.support), degree)
    rem = inflate(model.rem + model.norms()[degree + 1 :].sum(0))
    return TaylorModel(model.coef[:rows], rem, model.space, model.support, degree, model.den)


def prune(model: TaylorModel) -> TaylorModel:
    """Forget variables, then degrees, whose coefficients are exactly zero in every box."""
    if not model.support or (len(model.support) == 1 and model.degree > 1):
        return model
    if kernels.ready(model.coef):
        used = kernels.used_rows(model.coef)
    else:
        used = (model.coef != 0).reshape(len(model.coef), -1).any(1).cpu().numpy()  # NaN counts as used
    if used.all():
        return model
    table = basis.exponents(len(model.support), model.degree)
    live = table[used]
    degree = int(live.sum(1).max(initial=0))
    keep = np.flatnonzero(live.any(0)).tolist()
    if degree == model.degree and len(keep) == len(model.support):
        return model
    rows = basis.lift_rows(tuple(keep), len(model.support), degree)
    some = len(keep) < len(model.support)
    coef = model.coef[tables.rows(rows, model.device)] if some else model.coef[: len(rows)]
    return TaylorModel(coef, model.rem, model.space, tuple(model.support[i] for i in keep), degree, model.den)


def spread(coef: Tensor, ndim: int) -> Tensor:
    """Coefficients (P, *shape) with leading event dimensions of size 1 so that they broadcast at ``ndim`` dims."""
    missing = ndim - (coef.ndim - 1)
    return coef.reshape(coef.shape[0], *[1] * missing, *coef.shape[1:]) if missing > 0 else coef


def joint_space(a: TaylorModel, b: TaylorModel) -> Space:
    """Space of a mixed operation: an executed operand makes an executed one, in the coarser of two formats."""
    if a.space is b.space or a.space == b.space:
        return a.space
    if (a.space.order, a.space.dim) != (b.space.order, b.space.dim):
        raise UnsupportedOperation("mixed Taylor models", "both operands must come from variables of one order")
    executions = [model.space.execution for model in (a, b) if model.space.execution is not None]
    if len({*executions} & {*ACCUMULATORS}) > 1:
        raise UnsupportedOperation(
            "float16 together with bfloat16", "neither has the range and the digits of the other"
        )
    return replace(a.space, execution=coarsest(executions) if executions else None)
