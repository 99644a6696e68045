"""Proofs on a GPU: every construction, format and kind of f; the certificate of the CPU within the rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.build.lookup.solve import solve_axis, solved_on
from onelayer.errors import ModelAssumptionError
from onelayer.proof import cost
from onelayer.proof.certify import certify
from onelayer.proof.error import ErrorFunction

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

UNIT = ol.Box([0.0, 0.0], [1.0, 1.0])
CASES: dict[str, tuple[Any, ol.Box, float, dict[str, Any]]] = {
    "one axis": ("sin(pi*x)", ol.Box([-1.0], [1.0]), 1e-6, {}),
    "axes": ("sin(x1) + sin(x2)", ol.Box([0.0, 0.0], [6.0, 6.0]), 1e-3, {}),
    "grid": ("exp(x1*x2)", UNIT, 1e-3, {}),
    "grid in float32": ("cos(x1*x2)", UNIT, 1e-2, {"dtype": torch.float32}),
    "kink": ("abs(x1 - x2)", UNIT, 1e-3, {}),
    "quotient": ("1/(1 + x1*x1 + x2)", UNIT, 1e-3, {}),
    "two outputs": ("x1*x2; x1 - x2", UNIT, 1e-2, {}),
    "a function": (lambda x: torch.tanh(x[..., 0] * x[..., 1]), UNIT, 1e-3, {}),
    "a module": (torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)), UNIT, 1e-2, {}),
    "three axes": ("x1*x2 + sin(x3)", ol.Box([0.0] * 3, [1.0] * 3), 1e-2, {}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_certificate_of_the_cpu(name: str) -> None:
    f, box, eps, options = CASES[name]
    built = ol.approximate(f, box, eps, **options)
    here, automatic = (certify(built.model, f, box, eps, device=place) for place in ("cpu", "auto"))
    there = certify(built.model, f, box, eps, device="cuda", order=here.order)  # a GPU may choose another one
    assert here.status == there.status == automatic.status == "proved"
    assert here.boxes == there.boxes
    assert there.upper == pytest.approx(here.upper, rel=1e-3)
    assert ol.check(ol.Approximation(built.model, there, built.target).save(_folder())).verdict == "accepted"


def _folder() -> str:
    import tempfile

    return tempfile.mkdtemp() + "/proof"


def test_an_enclosure_without_eps_real_arithmetic_and_a_constant() -> None:
    built = ol.approximate("exp(x1*x2)", UNIT, 1e-3)
    for options in ({"execution": "real"}, {"gap": 0.2}):
        here, there = (certify(built.model, "exp(x1*x2)", UNIT, device=place, **options) for place in ("cpu", "cuda"))
        assert here.status == there.status == "proved"
        assert there.upper == pytest.approx(here.upper, rel=0.05)
    box = ol.Box([0.0], [1.0])
    line = ol.approximate("x", box, 1e-3).model
    found = certify(line, lambda x: np.sin(x[:, 0]), box, 0.5, lipschitz=1.0, device="cuda")
    assert found.status == "proved"


def test_a_false_claim_is_refuted() -> None:
    built = ol.approximate("cos(40*x)", ol.Box([0.0], [1.0]), 1e-6, max_tokens=3)
    found = certify(built.model, "cos(40*x)", ol.Box([0.0], [1.0]), 1e-6, device="cuda")
    assert found.status == "refuted"


def test_a_chunk_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    built, plain = ol.approximate("exp(x1*x2)", UNIT, 1e-3), ErrorFunction.enclose
    left = [2]

    def full(self: Any, low: Any, *others: Any) -> Any:
        if len(low) > 1 and left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("no memory")
        return plain(self, low, *others)

    monkeypatch.setattr(ErrorFunction, "enclose", full)
    found = certify(built.model, "exp(x1*x2)", UNIT, 1e-2, order=1, device="cuda")
    assert found.status == "proved"
    assert left == [0]


def test_a_layer_is_built_and_proved_there() -> None:
    found = ol.approximate("exp(x1*x2)", UNIT, 1e-3, device="cuda")
    assert found.certificate.status == "proved"
    assert found.model.device.type == "cpu"  # the layer itself is like any other


def test_large_fits_are_solved_there() -> None:
    draw = np.random.default_rng(0)
    weights, samples = draw.random((9000, 300)), draw.random((9000, 2))
    here = solve_axis(weights, samples, 1e-6)
    with solved_on(torch.device("cuda")):
        there = solve_axis(weights, samples, 1e-6)
    assert np.allclose(here, there, rtol=1e-9, atol=1e-9)


def test_assumptions_about_the_device() -> None:
    """Round to nearest, gradual underflow, no TF32: what the rounding analysis takes for granted."""
    one = torch.ones(1, dtype=torch.float64, device="cuda")
    unit = 2.0**-53
    assert float(one + unit) == 1.0
    assert float(one + 3 * unit) == 1.0 + 4 * unit
    for dtype in (torch.float64, torch.float32):
        tiny = torch.tensor([torch.finfo(dtype).tiny], dtype=dtype, device="cuda")
        assert float((tiny / 4) * 4) == float(tiny)
    x = torch.full((64, 64), 1 + 2.0**-12, dtype=torch.float32, device="cuda")
    assert float((x @ x)[0, 0]) == pytest.approx(64 * (1 + 2.0**-12) ** 2, rel=64 * 2.0**-24)
    y = torch.full((256, 256), 1 + 2.0**-30, dtype=torch.float64, device="cuda")
    assert float((y @ y)[3, 5]) == pytest.approx(256 * (1 + 2.0**-30) ** 2, rel=256 * 2.0**-53, abs=0)  # not emulated
    a, b = (torch.full((1,), value, dtype=torch.float64, device="cuda") for value in (1 + 2.0**-30, -1 - 2.0**-29))
    assert float(torch.addcmul(b, a, a)) in (0.0, 2.0**-60)  # fused or not, and nothing else
    assert cost._room(torch.device("cuda"))[0] > 0


def test_code_that_a_gpu_approximates_is_refused_there_and_certified_on_the_cpu() -> None:
    """There torch multiplies by a sixth of float32 in hardswish of float64."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(2, 2), torch.nn.Hardswish(), torch.nn.Linear(2, 1)
    model = torch.nn.Sequential(*layers).double().requires_grad_(False)

    def nothing(x: torch.Tensor) -> torch.Tensor:
        return 0.0 * x[..., :1]

    assert certify(model, nothing, UNIT, gap=1.0).status == "proved"
    with pytest.raises(ModelAssumptionError, match="its operations on enclosures exclude"):
        certify(model, nothing, UNIT, gap=1.0, device="cuda")
