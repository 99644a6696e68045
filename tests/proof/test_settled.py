"""What torch makes of constants alone is settled, enclosed or refused by name: nothing is this machine's number."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operation_rows import ROWS
from torch import Tensor
from torch.overrides import get_testing_overrides

from liar.calls import POINTWISE
from onelayer import Box
from onelayer.errors import UnsupportedOperation
from onelayer.proof import settled
from onelayer.proof.certify import certify
from onelayer.proof.claims import lipschitz
from onelayer.proof.forward import enclose
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import canonical_name, supported

GENERATOR = torch.Generator().manual_seed(3)
W = torch.rand(3, 4, generator=GENERATOR, dtype=torch.float64) + 0.1
Q = torch.rand(2, 3, generator=GENERATOR, dtype=torch.float64) + 0.1
V, U = W[0], W[1]
MANY: dict[str, Callable[[], Any]] = {
    "addcmul": lambda: torch.addcmul(V, U, V),
    "addcdiv": lambda: torch.addcdiv(V, U, V),
    "lerp": lambda: torch.lerp(V, U, 0.3),
    "add alpha": lambda: torch.add(V, U, alpha=0.3),
    "floor_divide": lambda: torch.div(V, U, rounding_mode="floor"),
    "round decimals": lambda: torch.round(V, decimals=2),
    "atan2": lambda: torch.atan2(V, U),
    "sqrt": lambda: torch.sqrt(V),  # several units in vector libraries
    "erfc": lambda: torch.erfc(V),
    "sin_": lambda: V.clone().sin_(),
    "sin out": lambda: torch.sin(V, out=torch.zeros_like(V)),
    "exp of integers": lambda: torch.exp(torch.arange(3)).double(),
    "power of integers": lambda: (torch.arange(3) ** 0.5).double(),
    "sum of integers": lambda: torch.arange(3).sum(dtype=torch.float64)[None],
    "2 ** v": lambda: 2.0**V,
    "linspace": lambda: torch.linspace(0, 1, 4, dtype=torch.float64),
    "arange": lambda: torch.arange(0, 1, 0.1, dtype=torch.float64),
    "logspace": lambda: torch.logspace(0, 1, 4, dtype=torch.float64),
    "rand": lambda: torch.rand(3, dtype=torch.float64),
    "empty": lambda: torch.empty(3, dtype=torch.float64),
    "bernoulli": lambda: torch.bernoulli(V),
    "dropout": lambda: F.dropout(V),
    "fft": lambda: torch.fft.fft(V).real,
    "complex product": lambda: (torch.complex(V, U) * torch.complex(U, V)).real,
    "complex size": lambda: torch.complex(V, U).abs(),
    "sparse": lambda: torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.int64), V, (1,)).to_dense(),
    "solve": lambda: torch.linalg.solve(W[:, :3], V[:3]),
    "inv": lambda: torch.linalg.inv(W[:, :3]),
    "cross": lambda: torch.linalg.cross(V[:3], U[:3]),
    "cosine_similarity": lambda: F.cosine_similarity(W, W.flip(0)),
    "normalize": lambda: F.normalize(W),
    "interpolate": lambda: F.interpolate(W[None], size=9, mode="linear"),
    "var_mean": lambda: torch.var_mean(W)[0],
    "cumprod": lambda: torch.cumprod(V, 0),
    "trapezoid": lambda: torch.trapezoid(V),
    "renorm": lambda: torch.renorm(W, 2, 0, 0.5),
    "embedding": lambda: F.embedding(torch.tensor([0, 1]), W.clone(), max_norm=0.5),
    "index_add": lambda: V.index_add(0, torch.tensor([0, 0]), U[:2]),
    "numpy": lambda: torch.from_numpy(V.numpy()),
    "order of equals": lambda: torch.argsort(torch.ones(40, dtype=torch.float64)).double(),
    "last written": lambda: V.clone().index_put((torch.tensor([0, 0]),), U[:2]),
    "below the normal range": lambda: V * 1e-160 * (U * 1e-160),
    "isclose": lambda: torch.isclose(V, U).double(),
}
ALIKE: dict[str, Callable[[], Any]] = {
    "arithmetic": lambda: (1.0 - V * U / 3.0) / U,
    "in place": lambda: V.clone().mul_(U).add_(1.0).clamp_(0.0, 1.0).relu_(),
    "counted": lambda: torch.arange(4, dtype=torch.float64) + torch.arange(4).sum() // 2,
    "moved": lambda: torch.stack([V[1:], U.flip(0)[:3]]).T.reshape(-1).repeat(2),
    "chosen": lambda: torch.where(V > U, W, torch.maximum(U, V.max())).tril(),
    "sorted": lambda: V.sort().values[V.argsort()] + V.topk(2).values.amax(),
    "written": lambda: torch.zeros(4, dtype=torch.float64).index_fill(0, torch.tensor([1]), 2.0),
    "cast": lambda: V.float().double() + V.round(),
    "looked up": lambda: F.embedding(torch.tensor([0, 0]), W),
    "padded": lambda: F.pad(V, (1, 1)),
    "at rest": lambda: F.dropout(V, training=False),
}
TWO = variables(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), 2)


def under_proof(code: Callable[[], Any]) -> Any:
    """What code without an argument makes while a model around it is enclosed."""
    made = []

    def model(x: Any) -> Any:
        made.append(code())
        return x

    enclose(model, TWO, (1,))
    return made[0]


@pytest.mark.parametrize("name", MANY)
def test_what_rounds_more_than_once_is_enclosed_or_refused_by_name(name: str) -> None:
    try:
        made = under_proof(MANY[name])
    except UnsupportedOperation:
        return
    assert isinstance(made, TaylorModel)


@pytest.mark.parametrize("name", ALIKE)
def test_what_rounds_once_stays_a_number(name: str) -> None:
    made = under_proof(ALIKE[name])
    assert isinstance(made, Tensor)
    assert torch.equal(made, ALIKE[name]())


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'lerp of constants' .* compute it once outside the forward pass"):
        certify(lambda x: x[..., 0] * torch.lerp(V[0], U[0], 0.3), "x", Box([0.0], [1.0]), 5.0)


def test_the_lists_name_what_torch_has() -> None:
    """A name that is misspelled would settle nothing; one that is listed twice has two reasons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {canonical_name(function) for function in get_testing_overrides()}
    known |= {name.strip("_") for room in (torch, Tensor, F, torch._C) for name in dir(room)} | set(dir(torch))
    known |= {"set", "_set_grad_enabled", "linalg_diagonal", "fft_fftshift", "fft_ifftshift"}
    known |= {name + "_" for name in known}
    names = [*settled.ASKED.split(), *settled.MOVED.split(), *settled.CHOSEN.split(), *settled.SINGLE.split()]
    assert sorted(set(names) - known) == []
    assert len(names) == len(set(names))
    assert not set(names) & set(settled.WHOLE.split()) - {"setitem", "scatter"}


def test_what_is_called_one_rounding_is_one() -> None:
    """In float32 it is the value of float64, rounded: for one rounding of two such formats there is no other."""
    x = torch.rand(4096, generator=GENERATOR) * 4 - 1.5
    y = torch.rand(4096, generator=GENERATOR) + 0.1
    seen = 0
    for name in [*settled.CHOSEN.split(), *settled.SINGLE.split(), "round"]:
        function = getattr(torch, name, None) or getattr(F, name, None) or getattr(Tensor, name, None)
        for args in ((x,), (x, y)):
            try:
                narrow, wide = function(*args), function(*(arg.double() for arg in args))  # type: ignore[misc]
            except (TypeError, RuntimeError, ValueError):
                continue
            if (
                isinstance(narrow, Tensor)
                and narrow.is_floating_point()
                and name not in ("nextafter", "rdiv", "double")
            ):
                assert torch.equal(narrow.nan_to_num(), wide.to(narrow.dtype).nan_to_num()), name
                seen += 1
    assert seen > 25


SMALL = {"torch": torch, "F": F, "W": W, "V": W[0, :3], "Q": Q, "x": torch.stack([Q, Q.flip(1)])}
SMALL |= {"mask": Q > 0.5, "square": torch.tensor([[True, False], [True, True]])}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_calls_that_models_meet_are_enclosed_settled_or_refused_with_constants_alone(name: str) -> None:
    for text in ROWS[name]:
        _check(lambda text=text: eval(text, dict(SMALL)))


@pytest.mark.parametrize("name", sorted(POINTWISE))
def test_functions_of_constants_are_enclosed_settled_or_refused(name: str) -> None:
    _check(lambda: POINTWISE[name](Q))


def _check(code: Callable[[], Any]) -> None:
    try:
        made = under_proof(code)
    except UnsupportedOperation:
        return
    here = code()
    if isinstance(made, TaylorModel):
        made = made.plain()
        apart = (made.coef[0] - here).abs()
        assert (apart <= made.rem).all()
    elif isinstance(made, Tensor):
        assert torch.equal(made, here)


def test_elementary_functions_and_sums_are_never_settled() -> None:
    rounded = {name for name in supported() if settled.is_settled(name, (V,), {})}
    assert not rounded & {"exp", "sin", "tanh", "sum", "mean", "matmul", "linear", "softmax", "pow", "addmm", "var"}


def test_a_claim_about_slopes_says_which_numbers_single_operations_on_constants_make() -> None:
    """(1 + u)(1 - u) - 1 is -u^2, and 0 in float64: the slope of the real function of the weights is another one."""
    u = 2.0**-30
    weights = torch.tensor([1 + u, 1 - u], dtype=torch.float64)
    box = Box([0.5], [1.0])
    found = lipschitz(lambda x: x[..., 0] * ((weights[0] * weights[1] - 1) * 2.0**60), box)
    assert any("makes of constants alone" in line for line in found.assumptions)
    executed = certify(lambda x: x[..., 0], "x", box, 0.1)
    assert not any("makes of constants alone" in line for line in executed.assumptions)
