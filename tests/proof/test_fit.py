"""What a module holds: a proof never changes a number of it, and what it cannot read is refused in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.proof.fit import format_held, formats_held

BOX = ol.Box([0.0] * 3, [1.0] * 3)
LIMITS = {"max_boxes": 4, "max_seconds": 5.0}
DOORS: dict[str, Callable[[nn.Module], Any]] = {
    "certify": lambda model: ol.certify(model, "x1", BOX, 1.0, **LIMITS),
    "bound": lambda model: ol.bound(model, BOX, **LIMITS),
    "real": lambda model: ol.bound(model, BOX, execution="real", **LIMITS),
    "lipschitz": lambda model: ol.lipschitz(model, BOX, **LIMITS),
    "monotone": lambda model: ol.monotone(model, BOX, {"x1": "+"}, **LIMITS),
    "prove": lambda model: ol.prove(model, BOX, "y1 <= 2", **LIMITS),
    "equivalent": lambda model: ol.equivalent(model, model, BOX, **LIMITS),
}


class Code(nn.Module):
    """A function of a point and of a buffer, in a module whose weight is float32."""

    def __init__(self, code: Callable[[Any, Any], Any], held: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float32), requires_grad=False)
        if isinstance(held, torch.Tensor):
            self.register_buffer("held", held)
        else:
            self.held = held
        self.code = code

    def forward(self, x: Any) -> Any:
        return self.code(x[..., 0] * self.weight[0], self.held)


def test_no_imaginary_part_is_dropped() -> None:
    """``.to`` makes 1 of 1 + i: T(1) = 2, and y1 <= 1.2 was proved."""
    model = Code(lambda x, held: x * (held.real + held.imag)[0], torch.tensor([1 + 1j], dtype=torch.complex64)).eval()
    executed = float(model(torch.ones(1, 3)))
    assert executed == 2.0
    assert float(ol.bound(model, BOX, **LIMITS).high) >= executed
    assert ol.prove(model, BOX, "y1 <= 1.2", **LIMITS).status == "refuted"
    # Exact arithmetic needs numbers of another format, which a conversion would make of it.
    for door in ("real", "lipschitz"):
        with pytest.raises(OnelayerError, match="imaginary"):
            DOORS[door](model)


@pytest.mark.parametrize(("weight", "held"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_a_buffer_in_another_format_stays_in_it(weight: torch.dtype, held: torch.dtype) -> None:
    """2^24 + 1 is no float32: what the buffer makes of it is 1 or 0, and 0 or 1 was proved."""
    buffer = torch.tensor([2.0**24], dtype=held)
    model = Code(lambda x, held: x * ((held + 1) - 2.0**24)[0].to(x.dtype), buffer).eval()
    model.weight.data = model.weight.data.to(weight)
    executed = float(model(torch.ones(1, 3, dtype=weight)))
    assert executed == (1.0 if held == torch.float64 else 0.0)
    found = ol.bound(model, BOX, **LIMITS)
    assert float(found.low) <= executed <= float(found.high)
    # In exact arithmetic on what is stored there is no rounding.
    assert float(ol.bound(model, BOX, execution="real", **LIMITS).high) >= 1.0


def sparse(x: Any, held: Any) -> Any:
    return x


class Weighted(nn.Module):
    """A module with one weight, which it does not use."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Any) -> Any:
        return x


UNREADABLE: dict[str, Callable[[], nn.Module]] = {
    "not initialised": lambda: nn.Sequential(nn.LazyLinear(2)),
    "'meta'": lambda: nn.Linear(3, 2, device="meta"),
    "no dense tensor": lambda: Code(sparse, torch.eye(3).to_sparse()),
    "float8": lambda: Weighted(torch.ones(3).to(torch.float8_e4m3fn)),
    "complex128": lambda: Weighted(torch.ones(3, dtype=torch.complex128)),
    "cannot be copied": lambda: Code(sparse, threading.Lock()),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("why", UNREADABLE)
def test_what_a_proof_cannot_read_is_one_line(why: str, door: str) -> None:
    with pytest.raises(OnelayerError, match=why):
        DOORS[door](UNREADABLE[why]())


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_returns_no_numbers_is_one_line(door: str) -> None:
    class Nothing(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:, :0]

    with pytest.raises(OnelayerError):
        DOORS[door](Nothing())


def test_formats_are_those_of_the_weights_or_of_buffers_alone() -> None:
    model = Code(sparse, torch.ones(2, dtype=torch.bfloat16))
    assert formats_held(model) == [torch.float32]
    assert format_held(Code(sparse, torch.arange(3)).double()) == torch.float64
    alone = nn.Module()
    alone.register_buffer("held", torch.ones(2, dtype=torch.float32))
    assert format_held(alone) == torch.float32
    assert format_held(nn.Identity()) == format_held(len) == torch.float64
    with pytest.raises(OnelayerError, match="all its weights"):
        format_held(nn.Sequential(nn.Linear(2, 2).float(), nn.Linear(2, 2).double()))
