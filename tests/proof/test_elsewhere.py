"""In float64, where exact arithmetic is computed, a module is the function that it is in its own format, or refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onelayer as ol
from onelayer.errors import ModelAssumptionError, OnelayerError

BOX = ol.Box([0.0], [1.0])


class Scaled(nn.Module):
    """A function of a point, in a module with a weight of one."""

    def __init__(self, code: Callable[[Any], Any], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=dtype), requires_grad=False)
        self.code = code

    def forward(self, x: Any) -> Any:
        return self.code(x * self.weight)[..., 0]


def by_its_unit(x: Any) -> Any:
    """Of slope 1.19 in float32, and of 2.2e-9 in float64."""
    return x * (torch.finfo(x.dtype).eps * 1e7)


CLAIMS: dict[str, Callable[[nn.Module], Any]] = {
    "lipschitz": lambda model: ol.lipschitz(model, BOX),
    "monotone": lambda model: ol.monotone(model, BOX, {"x1": "+"}),
    "gradient error": lambda model: ol.gradient_error(model, "0*x1", BOX, 1e-3),
    "bound": lambda model: ol.bound(model, BOX, execution="real"),
    "certify": lambda model: ol.certify(model, "0*x1", BOX, 1e-3, execution="real"),
    "prove": lambda model: ol.prove(model, BOX, "y1 <= 0.5", execution="real"),
    "equivalent": lambda model: ol.equivalent(model, Scaled(lambda x: 0 * x, torch.float64), BOX, 1e-3),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_code_that_asks_for_its_format_is_another_function_elsewhere(claim: str) -> None:
    """A slope of at most 2.3e-9 was proved of a T with T(1) = 1.19."""
    with pytest.raises(ModelAssumptionError, match="another function in float64"):
        CLAIMS[claim](Scaled(by_its_unit))


def test_what_it_is_in_its_own_format_is_proved() -> None:
    model = Scaled(by_its_unit)
    assert float(ol.bound(model, BOX).high) >= float(model(torch.ones(1, 1)))
    assert ol.lipschitz(Scaled(by_its_unit, torch.float64), BOX).upper < 1e-8
    assert ol.lipschitz(Scaled(torch.tanh), BOX).upper < 1.06


def test_the_own_eps_of_a_norm_is_in_exact_arithmetic_that_of_either_format() -> None:
    """At 1e-6 a norm of float32 returns 0.003 where one of float64 returns 1: that was proved of both."""
    box = ol.Box([1e-6], [2e-6])
    for dtype in (torch.float32, torch.float64):
        model = Scaled(lambda x: F.rms_norm(x, (1,)), dtype)
        found = ol.bound(model, box, execution="real")
        assert float(found.low) <= float(model(torch.tensor([[1e-6]], dtype=dtype))) <= float(found.high)


def zero(x: Any) -> Any:
    return 0 * x[..., 0]


def in_float32(x: Any) -> Any:
    """x itself, by a product that torch has for points in float32 alone."""
    return x @ torch.eye(x.shape[-1], dtype=torch.float32)


def test_a_function_given_in_float32_that_asks_for_its_format_is_refused() -> None:
    """f(1) = 1.19 was proved to be 2.2e-9."""
    module = Scaled(by_its_unit)
    for f in (module, lambda x: module(in_float32(x))):
        for door in (partial(ol.certify, zero), ol.approximate):
            with pytest.raises(OnelayerError, match="f is another function in float64"):
                door(f, BOX, 0.5)
    assert ol.certify(zero, module.double(), BOX, 0.5).proved


def test_a_norm_by_the_unit_of_its_format_is_refused() -> None:
    """At 5e-6 its outputs are 0.014 in float32, and 1.0 was proved."""
    box = ol.Box([1e-6] * 2, [1e-5] * 2)
    module = nn.RMSNorm(2)
    for f in (module, lambda x: module(in_float32(x))):
        for door in (partial(ol.certify, lambda x: 0 * x), ol.approximate):
            with pytest.raises(OnelayerError, match="eps is the unit of the format"):
                door(f, box, 0.5)
    assert ol.approximate(module.double(), box, 0.5).certificate.proved
    assert ol.approximate(nn.RMSNorm(2, eps=1e-6), box, 0.5).certificate.proved


def test_a_function_given_in_float32_that_does_not_is_proved() -> None:
    module = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1))
    for f in (module, lambda x: module(x)):
        assert ol.certify(module, f, BOX, 1e-4).proved
