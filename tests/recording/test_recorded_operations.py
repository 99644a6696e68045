"""Every torch function that can be recorded, with every argument of its signature: equal to torch, or refused."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recorded_rows import RECORDED, REFUSED, UNNAMED
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language import analytic
from onelayer.recording.dispatch import CASTS, IDENTITY, JOINING, OPERATIONS, STRUCTURAL
from onelayer.recording.recorder import record
from onelayer.recording.symbolic import Symbolic
from onelayer.recording.target import as_target

W = torch.tensor([[0.3, -1.2, 0.7, 2.0], [1.1, 0.4, -0.6, 0.1], [-0.2, 0.9, 1.3, -0.8]], dtype=torch.float64)
V = W[:, 0]
M = torch.tensor([True, False, True])
BAN = torch.tensor([[False, True], [False, False]])  # keys that a query may not attend to
HEADS = (3, 1, torch.cat([W[:, :3], W[:, 1:], W[:, :3]]), torch.cat([V, V, V]), None, None, False, 0.0, W[:, :3].T, V)
NAMES = {
    "torch": torch,
    "F": F,
    "math": math,
    "W": W,
    "V": V,
    "M": M,
    "BAN": BAN,
    "HEADS": HEADS,
    "Z": torch.zeros,
    "analytic": analytic,
}
POSITIVE = torch.rand(3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1.5 + 0.3
SIGNED = torch.randn(3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def names() -> list[str]:
    return sorted(set(OPERATIONS) | STRUCTURAL | JOINING | IDENTITY | set(CASTS) | {"to", "type", "type_as"})


def rows(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, call) for name, calls in table.items() for call in calls.split("; ")]


def called(call: str, x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # F.softmax without a dimension
        return eval(call, dict(NAMES), {"x": x})


def arguments(name: str) -> set[str]:
    """Names of the arguments that the torch function takes beside the first."""
    found: set[str] = set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        kinds = [str(argument.type) for argument in schema.arguments]
        plain = [argument for argument in schema.arguments if argument.alias_info is None or not argument.is_out]
        tensors = bool(kinds) and kinds[0] in ("Tensor", "List[Tensor]") and "str" not in kinds[:1]
        if tensors and "Dimname" not in "".join(kinds) and not any(argument.is_out for argument in schema.arguments):
            found |= {argument.name for argument in plain[1:]}
    python = getattr(F, name, None)
    if inspect.isfunction(python):
        found = set(list(inspect.signature(python).parameters)[1:])
    return found - {"self", "names", *UNNAMED.get(name, set())}


@pytest.mark.parametrize("name", names())
def test_every_argument_of_every_operation_has_a_row(name: str) -> None:
    text = f"{RECORDED.get(name, '')}; {REFUSED.get(name, '')}"
    assert text != "; "
    missing = {argument for argument in arguments(name) if f"{argument}=" not in text}
    assert not missing


@pytest.mark.parametrize(("name", "call"), rows(RECORDED))
def test_recorded_calls_equal_torch(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    dispatch = Symbolic.dispatch

    def watched(func: Any, full_name: str, args: Any, kwargs: Any) -> Any:
        seen.append(full_name.strip("_"))
        return dispatch(func, full_name, args, kwargs)

    monkeypatch.setattr(Symbolic, "dispatch", staticmethod(watched))
    for data in (POSITIVE, SIGNED):
        box = Box(data.amin(0), data.amax(0))
        truth = called(call, data.clone())
        if not isinstance(truth, Tensor) or not bool(torch.isfinite(truth).all()):
            continue
        formula = record(lambda x: called(call, x), (2, 3), box=box)
        torch.testing.assert_close(formula(data), truth, rtol=1e-13, atol=1e-13)
    assert name in seen or name in ("getitem", "where")


@pytest.mark.parametrize(("name", "call"), rows(REFUSED))
def test_refused_calls_are_refused_in_one_line(name: str, call: str) -> None:
    with pytest.raises(OnelayerError) as caught:
        record(lambda x: called(call, x), (2, 3), box=Box(POSITIVE.amin(0), POSITIVE.amax(0)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", names())
def test_an_unknown_argument_is_refused_by_name(name: str) -> None:
    x = torch.ones(3, dtype=torch.float64)
    function = getattr(Tensor, name, None) or getattr(torch, name, None) or getattr(F, name, torch.sum)
    with pytest.raises(OnelayerError) as caught:
        record(lambda s: Symbolic.dispatch(function, name, (s, x), {"nonsense": 1}), (2, 3))
    assert "\n" not in str(caught.value)
    assert "nonsense" in str(caught.value) or name not in OPERATIONS


def otherwise(call: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    """x where the call is made, and another function at a spike where torch refuses it."""

    def f(x: Tensor) -> Tensor:
        try:
            call(x)
        except Exception:
            return x[..., 0] + 1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2
        return x[..., 0]

    return f


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.detach(nonsense=1),
        lambda x: x.cpu(3),
        lambda x: x.positive(3),
        lambda x: x.clone().requires_grad_("no"),
        lambda x: x.cuda(),
        lambda x: x[0].detach_(),
        lambda x: x.to(3),
        lambda x: x.double(3),
        lambda x: x.unsqueeze(7),
        lambda x: x.sum(9),
    ],
)
def test_what_torch_refuses_is_refused_where_the_code_catches_it(call: Callable[[Tensor], Any]) -> None:
    """What moves nothing was not run on numbers: code that catches torch's refusal is another function there."""
    with pytest.raises(OnelayerError):
        as_target(otherwise(call), Box([0.0], [1.0]))
