"""Under six hostile states of the process every result is the same, to the last bit, and still encloses the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import random_boxes, random_case
from enclosure import enclosed, executed
from hostile import HOSTILE
from reference_arithmetic import ExecutedLib, TorchLib
from torch import nn
from torch.overrides import TorchFunctionMode

import onelayer as ol
from onelayer.ground import pinned
from onelayer.narrow import ACCUMULATORS
from onelayer.taylor import variables

CASES = 24
ARITHMETIC = [name for name in HOSTILE if name != "meta device"]  # on meta there is no number to start from


def products(x: Any) -> Any:
    """Its value needs more bits than a narrow format has, and it creates a tensor of its own."""
    weights = torch.tensor([[1.0, 2.0**-12], [2.0**-12, 1.0]], dtype=x.dtype, device="cpu")
    return torch.tanh(x @ weights).sum(-1)


def encoder() -> nn.Module:
    generator = torch.Generator().manual_seed(4)
    layer = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float32, device="cpu")
    return layer


def results() -> dict[str, Any]:
    """A proof of every kind, with the weights it is about."""
    box = ol.Box([-1.0, 0.25], [0.5, 1.0])
    built = {
        "lookup": ol.approximate("sin(3*x) + 1e-3*exp(x)", ol.Box([0.1], [1.0]), 1e-3),
        "callable": ol.approximate(lambda x: torch.relu(x[..., 0] - 0.3), ol.Box([0.0], [1.0]), 1e-2),
        "float32": ol.approximate("x1*x2", box, 0.05, dtype=torch.float32),
        "tokens": ol.approximate("x1 + 0.5*x2", box, 0.05, layout="tokens"),
        "sort": ol.sort(3, 0.0, 1.0, 0.05),
        "table": ol.memorize([[0.0, 1.0], [1.0, 0.5], [0.3, 0.2]], [1.0, 2.0, -0.1]),
    }
    found: dict[str, Any] = {name: replace(a.certificate, seconds=0.0) for name, a in built.items()}
    proofs = {
        "products": ol.certify(products, products, box, 1e-6, max_boxes=64),
        "subnormal": ol.certify(lambda x: x[..., 0], "x", ol.Box([1e-310], [2e-310]), 1e-300),
        "module": ol.certify(ENCODER, "x1", box, execution="float32", max_boxes=64),
        "real": ol.certify(ENCODER, "x1", box, execution="real", max_boxes=64),
    }
    return found | {name: replace(proof, seconds=0.0) for name, proof in proofs.items()}


ENCODER = encoder()


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    return results()


@pytest.mark.parametrize("name", HOSTILE)
def test_proofs_and_weights_are_the_same(name: str, usual: dict[str, Any]) -> None:
    with HOSTILE[name]():
        found = results()
    for kind, certificate in usual.items():
        assert found[kind] == certificate, kind


@pytest.mark.parametrize("name", HOSTILE)
def test_a_saved_proof_is_accepted(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    ol.approximate("sin(3*x)", ol.Box([0.1], [1.0]), 1e-3).save(folder / "usual")
    with HOSTILE[name]():
        assert ol.check(folder / "usual").ok
        loaded = ol.load(folder / "usual")
        loaded.save(folder / "again")
    for file in (folder / "usual").iterdir():
        assert file.read_bytes() == (folder / "again" / file.name).read_bytes()


def written(a: ol.Approximation, folder: Path) -> dict[str, tuple[bytes, str]]:
    """What every export writes without libraries of others, and how far it was seen from the layer."""
    targets = {"c": "layer.c", "onnx": "layer.onnx", "torch": "stock"}
    narrow = a.model.dtype in ACCUMULATORS
    found = {}
    for to, name in targets.items():
        # Stock torch rounds narrow formats elsewhere and is refused.
        if to == "torch" and narrow:
            continue
        made = a.export(to, folder / name)
        file = made.path / "model.safetensors" if made.path.is_dir() else made.path
        found[to] = (file.read_bytes(), repr(made.difference))
    found["explain"] = (str(a.explain()).encode(), "")
    return found


@pytest.fixture(scope="module")
def exported() -> dict[str, ol.Approximation]:
    """The first has weights below the normal range that count: the box is large."""
    return {
        "subnormal": ol.approximate("1e-309*x + 1e-309*abs(x)", ol.Box([-1e300], [1e300]), 1e-12),
        "float32": ol.approximate("sin(x)", ol.Box([0.0], [3.0]), 1e-3, dtype=torch.float32),
        "float16": ol.approximate("sin(x)", ol.Box([0.0], [3.0]), 1e-2, dtype=torch.float16),
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_exported_is_the_same(name: str, exported: dict[str, ol.Approximation], tmp_path: Path) -> None:
    for kind, a in exported.items():
        usual = written(a, tmp_path / "usual")
        with HOSTILE[name]():
            found = written(a, tmp_path / "found")
        assert found == usual, kind


def models(seed: int) -> Any:
    """A Taylor model of a random case on random boxes."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 4))
    lower, upper = random_boxes(rng, 4, dim)
    return random_case(rng, dim)(variables(lower, upper, int(rng.integers(1, 6))), TorchLib())


def same(one: Any, other: Any) -> bool:
    pairs = zip((one.coef, one.rem, *one.range()), (other.coef, other.rem, *other.range()), strict=True)
    return all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in pairs)


@pytest.mark.parametrize("name", [name for name in ARITHMETIC if name != "flushed denormals"])
def test_enclosures_are_the_same_even_without_the_pins(name: str) -> None:
    """The arithmetic names every format itself; the pinned ground is a second wall, not the only one."""
    for seed in range(CASES):
        usual = models(seed)
        with HOSTILE[name]():
            found = models(seed)
        assert same(usual, found), seed


@pytest.mark.parametrize("name", ARITHMETIC)
def test_enclosures_hold(name: str) -> None:
    with HOSTILE[name](), pinned():
        for seed in range(CASES):
            rng = np.random.default_rng(seed)
            dim = int(rng.integers(1, 4))
            lower, upper = random_boxes(rng, 4, dim)
            case, order = random_case(rng, dim), int(rng.integers(1, 6))
            found = enclosed(case, lower, upper, order, count=4, seed=seed)
            found += executed(case, ExecutedLib(torch.float32), torch.float32, lower, upper, order, count=4)
            assert not found.violations, f"seed {seed}: {found.violations[:3]}"


class NoDefaults(TorchFunctionMode):
    """Fails where torch itself would choose a format: a new tensor without dtype, a choice between Python numbers."""

    creating = frozenset({torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.tensor, torch.zeros})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if not issubclass(kind, torch.Tensor):
                with self:
                    return kind.__torch_function__(func, types, args, kwargs)
        if func in self.creating:
            assert "dtype" in kwargs, func
        if func is torch.where and len(args) == 3:
            assert any(isinstance(value, torch.Tensor) for value in args[1:]), "torch.where of two Python numbers"
        return func(*args, **kwargs)


def test_enclosures_choose_every_format_themselves() -> None:
    low = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    names = ("exp", "log", "sin", "tanh", "sigmoid", "atan", "erf", "sqrt", "rsqrt", "relu", "abs", "reciprocal", "tan")
    names += ("asin", "acos")
    with NoDefaults():
        for execution in (None, torch.float32):
            x = variables(low, low + 0.1, 4, execution=execution)
            for name in names:
                getattr(torch, name)(x).split_bound()
            y = torch.softmax(x @ torch.eye(2, dtype=torch.float64) * 3.0, -1)
            torch.nn.functional.layer_norm(y * x, (2,)).split_bound()
            (0.1**x + x**2.5 + torch.where(x > 0.2, x, 0.3)).sum(-1).bound()
