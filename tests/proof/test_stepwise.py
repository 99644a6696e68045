"""T step by step: an operation that is read wrongly is found where no value of T shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelayer as ol
from onelayer.errors import ModelAssumptionError
from onelayer.proof.stepwise import Accompanied
from onelayer.taylor import registry, variables

BOX = ol.Box([0.1, 0.1], [0.9, 0.9])
PLACE = 0.34567890123456789


def spike(x: Any) -> Any:
    """A factor of one at a single place, and of zero at every point that is looked at."""
    return 1 - torch.tanh(1e8 * (x[..., 0] - PLACE)) ** 2


Code = Callable[[Any], Any]
unbind = registry.handler_of("unbind")
# Operation, code in which it counts at the spike alone, and how its enclosure is read wrongly.
READ_WRONGLY: dict[str, tuple[str, Code, Callable[..., Any]]] = {
    "another order": ("roll", lambda x: torch.roll(x, 1, -1)[..., 0], lambda x, shifts, dims: x),
    "a bound that is overlooked": ("clamp", lambda x: x[..., 1].clamp(0.2, 0.5), lambda x, low, high: x),
    "the wrong side": ("gt", lambda x: torch.where(x[..., 1] > 0.4, 1.0, x[..., 0]), registry.handler_of("lt")),
    "another function": ("sin", lambda x: x[..., 1].sin(), registry.handler_of("cos")),
    "an operator": ("matmul", lambda x: (x @ torch.eye(2, dtype=x.dtype).flip(0))[..., 0], lambda x, y: x),
    "a part of several": ("max", lambda x: x.max(-1).values, registry.handler_of("min")),
    "a part by its place": ("unbind", lambda x: torch.unbind(x, -1)[0], lambda x, dim: unbind(x, dim)[::-1]),
}


def under_a_spike(code: Code) -> Code:
    return lambda x: spike(x) * (code(x) - 5)


@pytest.mark.parametrize("execution", ["float64", "float32"])
@pytest.mark.parametrize("name", READ_WRONGLY)
def test_an_operation_that_is_read_wrongly_is_named(name: str, execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, code, wrong = READ_WRONGLY[name]
    model = under_a_spike(code)
    honest = ol.certify(model, "0*x1*x2", BOX, 100.0, execution=execution)
    assert honest.proved
    monkeypatch.setitem(registry._HANDLERS, operation, (wrong, False))
    with pytest.raises(ModelAssumptionError, match=rf"at x = .* {operation} returns .* excludes"):
        ol.certify(model, "0*x1*x2", BOX, 100.0, execution=execution)


def test_a_result_of_another_shape_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sum_ = registry.handler_of("sum")

    def kept(x: Any, dim: Any, keepdim: bool = False) -> Any:
        return sum_(x, dim, True)

    model = under_a_spike(lambda x: x.sum(-1).reshape(x.shape[:-1]))
    monkeypatch.setitem(registry._HANDLERS, "sum", (kept, False))
    with pytest.raises(
        ModelAssumptionError, match=r"sum returns \(\d+,\) in torch.float64, and its enclosure \(\d+, 1\)"
    ):
        ol.certify(model, "0*x1*x2", BOX, 100.0)


def test_code_that_catches_everything_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Any) -> Any:
        try:
            return spike(x) * x[..., 1].sin()
        except Exception:
            return 0 * x[..., 0]

    monkeypatch.setitem(registry._HANDLERS, "sin", (registry.handler_of("cos"), False))
    with pytest.raises(ModelAssumptionError):
        ol.certify(model, "0*x1*x2", BOX, 100.0)


class Many(nn.Module):
    """What a tensor is asked for, by attribute, method, function and operator."""

    def forward(self, x: Any) -> Any:
        rows, count = x.shape
        assert (len(x), x.ndim, x.size(-1), x.dim(), x.is_cuda) == (rows, count, 2, 2, False)
        y = torch.stack([x[:, 0], +x[:, 1]], 1) @ torch.ones(2, 2, dtype=x.dtype)
        y = (x.T.mT + y).unsqueeze(1).transpose(1, 2).squeeze(2)
        a, b = y.unbind(-1)
        first, *_ = [part.squeeze(1) for part in torch.split(y, 1, -1)]
        chosen = torch.where((a > 0.5) & ~(b < 0.2), 2 / a.clamp(min=0.1), abs(-b) ** 2)
        return (chosen + torch.max(y, -1).values - first.to(x.dtype)).reshape(rows)


def test_what_a_tensor_is_asked_for_is_answered_for_both() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(7, 2, generator=generator, dtype=torch.float64)
    y = Many()(Accompanied(variables(x - 0.01, x + 0.01, 2, execution=torch.float64), x))
    assert torch.equal(y.numbers, Many()(x))
    low, high = y.enclosure.range()
    assert isinstance(low, Tensor)
    assert bool(((low <= y.numbers) & (y.numbers <= high)).all())
    assert ol.certify(Many(), "0*x1*x2", BOX, 100.0).proved


@pytest.mark.parametrize("use", [bool, float, int, lambda x: x.__setitem__(0, 1.0), lambda x: x.no_such_thing])
def test_what_has_no_enclosure_is_refused(use: Callable[[Any], Any]) -> None:
    x = torch.zeros(1, 1, dtype=torch.float64)
    with pytest.raises(ol.errors.UnsupportedOperation):
        use(Accompanied(variables(x, x + 1, 1, execution=torch.float64), x))
