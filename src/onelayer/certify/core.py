"""TaylorModel: a polynomial in the box's normalised coordinates and a remainder radius, for many boxes at once.

A function g on the box {c + r t : t in [-1, 1]^D} is enclosed by (p, R) when |g(t) - p(t)| <= R for every t. The
coefficients of p are rows of a float64 tensor (P, B, *event), polynomial index first; R is (B, *event). A model stores
only the variables it depends on (``support``) and only up to its current ``degree``, so functions of one coordinate
stay univariate until they meet another coordinate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onelayer.certify import basis
from onelayer.certify.rounding import gamma, inflate
from onelayer.certify.subdivide import cell_bounds, default_cells
from onelayer.errors import UnsupportedOperation

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def implements(*names: str) -> Callable[[Handler], Handler]:
    """Register the Taylor version of the torch functions (and tensor methods) of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def handler_for(name: str) -> Handler:
    """The Taylor version of a torch function; naming it when there is none."""
    if name not in HANDLERS:
        raise UnsupportedOperation(name, "Taylor models have no rigorous version of it")
    return HANDLERS[name]


@dataclass(frozen=True)
class Space:
    """What all models of one evaluation share: order k, number of variables D, and the executing type if any."""

    order: int
    dim: int
    execution: torch.dtype | None = None

    def cap(self, variables: int) -> int:
        """Highest degree kept by a model of this many variables."""
        return self.order if variables else 0


class TaylorModel:
    """Rigorous Taylor models with a tensor's manners: shape (B, *event), float64, torch functions apply.

    coef: (P, *shape) in graded order over ``support``; rem: (*shape), nonnegative, inf or nan where undecided.
    """

    def __init__(self, coef: Tensor, rem: Tensor, space: Space, support: tuple[int, ...], degree: int) -> None:
        self.coef = coef
        self.rem = rem
        self.space = space
        self.support = support
        self.degree = degree
        self._norms: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.rem.shape

    @property
    def ndim(self) -> int:
        return self.rem.ndim

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def device(self) -> torch.device:
        return self.rem.device

    @property
    def requires_grad(self) -> bool:
        return False

    @property
    def is_nested(self) -> bool:
        return False

    @property
    def execution(self) -> torch.dtype | None:
        return self.space.execution

    def constant(self, value: float, radius: float = 0.0) -> TaylorModel:
        """A real number within ``radius`` of ``value``: pi, e and quotients of constants in a formula."""
        return constant(value, self, torch.tensor(abs(radius), dtype=torch.float64, device=self.device))

    def with_(self, coef: Tensor, rem: Tensor) -> TaylorModel:
        """Same space, support and degree, other numbers."""
        return TaylorModel(coef, rem, self.space, self.support, self.degree)

    def untag(self) -> TaylorModel:
        """The same enclosure, whose further operations are exact real ones instead of executed ones."""
        return TaylorModel(self.coef, self.rem, replace(self.space, execution=None), self.support, self.degree)

    def norms(self) -> Tensor:
        """Absolute sums per degree, (degree + 1, *shape), rounded upwards."""
        if self._norms is None:
            s = len(self.support)
            sums = (
                self.coef.abs()
                if s <= 1
                else torch.stack(
                    [
                        torch.linalg.vector_norm(self.coef[basis.block(s, d)], ord=1, dim=0)
                        for d in range(self.degree + 1)
                    ]
                )
            )
            self._norms = inflate(sums)
        return self._norms

    def norm(self) -> Tensor:
        """Bound of |polynomial| over the box: the sum of absolute coefficients."""
        return inflate(self.norms().sum(0))

    def magnitude(self) -> Tensor:
        """Bound of |value| over the box by absolute sums alone."""
        return inflate(self.norms().sum(0) + self.rem)

    def range(self) -> tuple[Tensor, Tensor]:
        """Rigorous (lower, upper) of the value over each box; monomials with even exponents count as [0, 1]."""
        rest = self.coef[1:]
        even = even_rows(len(self.support), self.degree, self.device)
        size = rest.abs()
        both = (size * (~even).view(-1, *[1] * self.ndim)).sum(0)
        signed = rest * even.view(-1, *[1] * self.ndim)
        slack = gamma(len(rest)) * size.sum(0)
        down = inflate(both - signed.clamp(max=0).sum(0) + self.rem + slack)
        up = inflate(both + signed.clamp(min=0).sum(0) + self.rem + slack)
        center = self.coef[0]
        infinity = torch.full_like(center, torch.inf)
        return torch.nextafter(center - down, -infinity), torch.nextafter(center + up, infinity)

    def bound(self) -> Tensor:
        """Rigorous upper bound of |value| over each box, (B, *event)."""
        lower, upper = self.range()
        return torch.maximum(-lower, upper)

    def split_bound(self, cells: int | None = None) -> Tensor:
        """Like ``bound``, but the polynomial is re-expanded on ``cells`` cells per axis of the normalised box."""
        s = len(self.support)
        cells = default_cells(s) if cells is None else cells
        best = cell_bounds(self.coef, s, self.degree, cells)
        worst = best[0]
        for each in best[1:]:
            worst = torch.maximum(worst, each)
        return inflate(worst + self.rem)

    def polynomial_and_remainder(self) -> tuple[Tensor, Tensor]:
        """Coefficients over all D variables at full order, (P, *shape), and the remainder."""
        full = lift(self, tuple(range(self.space.dim)), self.space.order)
        return full.coef, full.rem

    def sensitivity(self) -> Tensor:
        """Estimate (not a bound) of each variable's part in the width, (B, D): sum |c_p| times its exponent."""
        share = torch.zeros(self.shape[0], self.space.dim, dtype=torch.float64, device=self.device)
        if self.support:
            table = torch.as_tensor(basis.exponents(len(self.support), self.degree), device=self.device).double()
            each = torch.tensordot(table.T, self.coef.abs(), dims=1).flatten(2)  # (s, B, events)
            share[:, list(self.support)] = (each.amax(-1) if each.ndim == 3 else each).T
        return share

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return handler_for(canonical_name(func))(*args, **canonical_keywords(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _method(self, name)

    def __len__(self) -> int:
        return len(self.rem)

    def __repr__(self) -> str:
        return f"TaylorModel(shape={tuple(self.shape)}, degree={self.degree}, support={self.support}, {self.space})"

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool", "a branch on the value of a Taylor model is not a function of the box")

    def __getitem__(self, index: Any) -> TaylorModel:
        return _call("getitem", self, index)

    def __neg__(self) -> TaylorModel:
        return _call("neg", self)

    def __abs__(self) -> TaylorModel:
        return _call("abs", self)

    def __add__(self, other: Any) -> TaylorModel:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> TaylorModel:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> TaylorModel:
        return _call("sub", self, other)

    def __rsub__(self, other: Any) -> TaylorModel:
        return _call("sub", other, self)

    def __mul__(self, other: Any) -> TaylorModel:
        return _call("mul", self, other)

    def __rmul__(self, other: Any) -> TaylorModel:
        return _call("mul", other, self)

    def __truediv__(self, other: Any) -> TaylorModel:
        return _call("div", self, other)

    def __rtruediv__(self, other: Any) -> TaylorModel:
        return _call("div", other, self)

    def __pow__(self, other: Any) -> TaylorModel:
        return _call("pow", self, other)

    def __rpow__(self, other: Any) -> TaylorModel:
        return _call("pow", other, self)

    def __matmul__(self, other: Any) -> TaylorModel:
        return _call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> TaylorModel:
        return _call("matmul", other, self)


def _call(name: str, *args: Any) -> TaylorModel:
    result: TaylorModel = handler_for(name)(*args)
    return result


def _method(model: TaylorModel, name: str) -> Handler:
    handler = handler_for(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(model, *args, **canonical_keywords(kwargs))

    return call


_ALIASES = {
    "truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg",
    "absolute": "abs", "arctan": "atan", "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim",
    "concat": "cat", "concatenate": "cat", "special_erf": "erf", "special_expit": "sigmoid",
    "special_softmax": "softmax", "special_log_softmax": "log_softmax", "special_logsumexp": "logsumexp", "special_expm1": "expm1",
    "special_log1p": "log1p", "clip": "clamp", "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul",
    "float": "double", "bool": "bool",
}  # fmt: skip


def canonical_name(func: Any) -> str:
    """The registry's name of a torch function: dunder and alias spellings removed."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", str(func))
    bare = name.strip("_") if name.startswith("__") else name
    return _ALIASES.get(bare, bare)


def canonical_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """NumPy spellings to torch spellings."""
    names = {"axis": "dim", "keepdims": "keepdim"}
    return {names.get(key, key): value for key, value in kwargs.items()}


def even_rows(variables: int, degree: int, device: torch.device) -> Tensor:
    """Which non-constant monomials have only even exponents, (P - 1,): their values fill [0, 1]."""
    return torch.as_tensor((basis.exponents(variables, degree)[1:] % 2 == 0).all(1), device=device)


def constant(value: Any, like: TaylorModel, radius: Tensor | None = None) -> TaylorModel:
    """A number or tensor as a model of degree 0 (exactly that number, up to ``radius``)."""
    if isinstance(value, TaylorModel):
        return value
    tensor = torch.as_tensor(value, device=like.device).detach().double()
    rem = torch.zeros_like(tensor) if radius is None else radius.expand_as(tensor)
    return TaylorModel(tensor[None], rem, like.space, (), 0)


def lift(model: TaylorModel, support: tuple[int, ...], degree: int) -> TaylorModel:
    """The same polynomial written over a larger support; degrees above ``degree`` move into the remainder."""
    if model.support == support and model.degree <= degree:
        return model
    model = truncate(model, degree)
    if model.support == support:
        return model
    positions = tuple(support.index(v) for v in model.support)
    coef = model.coef.new_zeros(basis.count(len(support), model.degree), *model.shape)
    coef[list(basis.lift_rows(positions, len(support), model.degree))] = model.coef
    return TaylorModel(coef, model.rem, model.space, support, model.degree)


def truncate(model: TaylorModel, degree: int) -> TaylorModel:
    """Drop the degrees above ``degree``; their absolute sums join the remainder."""
    if model.degree <= degree:
        return model
    rows = basis.count(len(model.support), degree)
    rem = inflate(model.rem + model.norms()[degree + 1 :].sum(0))
    return TaylorModel(model.coef[:rows], rem, model.space, model.support, degree)


def prune(model: TaylorModel) -> TaylorModel:
    """Forget variables, then degrees, whose coefficients are exactly zero in every box."""
    if not model.support:
        return model
    used = (model.coef != 0).flatten(1).any(1).cpu().numpy()  # NaN counts as used
    table = basis.exponents(len(model.support), model.degree)
    live = table[used]
    degree = int(live.sum(1).max()) if len(live) else 0
    keep = [i for i in range(len(model.support)) if len(live) and live[:, i].any()]
    if degree == model.degree and len(keep) == len(model.support):
        return model
    rows = basis.lift_rows(tuple(keep), len(model.support), degree)
    coef = model.coef[list(rows)] if len(keep) < len(model.support) else model.coef[: len(rows)]
    return TaylorModel(coef, model.rem, model.space, tuple(model.support[i] for i in keep), degree)


def spread(coef: Tensor, ndim: int) -> Tensor:
    """Coefficients (P, *shape) with leading event dimensions of size 1 so that they broadcast at ``ndim`` dims."""
    missing = ndim - (coef.ndim - 1)
    return coef.reshape(coef.shape[0], *[1] * missing, *coef.shape[1:]) if missing > 0 else coef


def joint_space(a: TaylorModel, b: TaylorModel) -> Space:
    """Space of a mixed operation; an executed operand makes an executed operation."""
    if a.space == b.space:
        return a.space
    if (a.space.order, a.space.dim) != (b.space.order, b.space.dim) and a.space.dim and b.space.dim:
        raise UnsupportedOperation("mixed Taylor models", "both operands must come from the same variables")
    return replace(a.space, execution=a.space.execution or b.space.execution)
