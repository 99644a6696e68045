"""What the package proves, by whatever method, the checker accepts: random proofs of every method, not one rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from liar.drawn_proofs import METHODS, QUICK, made
from onelayer.box import Box
from onelayer.build.sequences.superpose import superpose
from onelayer.checker.check import CheckReport, check
from onelayer.conductor import approximate
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.result import Approximation

REFUSED_OFTEN = {"layer", "claim of a layer", "extreme", "hurt"}  # what the package declines to prove is no proof


def rounded_away(proof: Certificate, report: CheckReport) -> bool:
    """A refutation by the rounding of one order of sums, which another order does not confirm nor contradict."""
    return proof.status == "refuted" and report.verdict == "not contradicted"


def rejections(method: str, seeds: range, folder: Path) -> tuple[int, list[str]]:
    """How many proofs were checked, and what was said of those that were not accepted."""
    count, failed = 0, []
    for seed in seeds:
        a = made(method, seed)
        if a is None:
            continue
        count += 1
        a.save(folder / f"{method}{seed}")
        report = check(folder / f"{method}{seed}", all=True)
        proof = a.certificate if isinstance(a, Approximation) else a
        if not report.ok and not rounded_away(proof, report):
            failed.append(f"{seed}: {proof}: {report}")
    return count, failed


@pytest.mark.parametrize("method", METHODS)
def test_proofs_are_accepted(method: str, tmp_path: Path) -> None:
    count, failed = rejections(method, range(QUICK[method]), tmp_path)
    assert not failed, failed
    assert count > QUICK[method] // (5 if method in REFUSED_OFTEN else 2)


def steep() -> Approximation:
    """A float32 layer whose logits err by more than the values of its tokens lie apart."""
    generator = torch.Generator().manual_seed(0)
    keys = 1e8 * torch.randn(3, 2, generator=generator)
    values = torch.tensor([[10.0, 0.0], [-10.0, 0.0], [3.0, 0.0]])
    model = OneLayerTransformer.packed((2,), (), [PlainMemory(keys, values)], d_model=3, dtype=torch.float32, seed=1)
    return Approximation(model, certify(model, "x1*x2", Box([0.1, 0.1], [0.2, 0.3]), 5.5))


def constant_logit() -> Approximation:
    """A head in which a token whose logit is a constant weighs so much that no other one counts."""
    one = torch.ones(1, 1, dtype=torch.float64)
    memory = PlainMemory(torch.tensor([[0.0], [-1000.0]], dtype=torch.float64), torch.cat([one, 2 * one]))
    weights = dict.fromkeys(("W_E", "W_Q", "W_O", "W_R"), one)
    model = OneLayerTransformer.packed((1,), (), [memory], d_model=1, weights=weights)
    return Approximation(model, certify(model, "1", Box([1.0], [1.25]), 1e-3))


NAMED: dict[str, Callable[[], Approximation]] = {
    "logits that err by more than values differ": steep,
    "a constant logit that takes all the weight": constant_logit,
    "a root that begins on the box": lambda: approximate("sqrt(x1 + 1)", Box([-1.0], [0.3]), 1e-4),
    "an inner function that is constant": lambda: superpose(
        "(exp(x1) + sin(x2) + relu(x3))**2", Box([-1.0] * 3, [-0.25] * 3), 0.1
    ),
    "an inner function whose parts cancel": lambda: approximate(
        "tanh(x2 - x2) + 1", Box([-1.25, -1.25], [-1.0, -0.25]), 0.3, layout="tokens"
    ),
    "units of one position, shut at another": lambda: approximate(
        "sin(1.54*x2); x1*x2 + 1", Box([-0.98, 1.24], [-0.97, 1.54]), 0.1, layout="tokens", dtype=torch.float32
    ),
    "kinks of the same line, one of them written with more variables": lambda: approximate(
        "min(min(2*x1 + 0.5*x2 + 2*x3, -0.3 - x1 + 0.5*x2 + 2*x3), 3 + x1)",
        Box([-0.91, 0.33, -1.13], [0.09, 0.63, -0.13]),
        0.1,
        layout="packed",
    ),
    "ramps that touch": lambda: superpose("hypot(x1, x2, x3)", Box([0.0] * 3, [1.0] * 3), 0.1, dtype=torch.float32),
    "kinks of two inputs": lambda: approximate(
        "relu(x2 - 1)*0.5 + abs(abs(2*x1 - 1) - 0.3)", Box([-1.0, -0.5], [0.3, 0.8]), 1e-3
    ),
    "a spike that only its range bounds": lambda: approximate(
        "0.096*x + cos(x) + 0.001*(1 - tanh(1e10*(x - 0.99999928))**2)", Box([0.999999], [1.000001]), 0.01
    ),
    "a spike at the edge in float32": lambda: approximate(
        "0.758*x + cos(x) + 0.001*(1 - tanh(1e13*x)**2)", Box([0.0], [1.0]), 0.01, dtype=torch.float32
    ),
    "a kink looked up with large values": lambda: approximate(
        "abs(1.79*x1 - 0.39*x2 - 0.72)*x2", Box([-0.47, -0.7], [0.61, 0.6]), 1e-3
    ),
    "an inner function of one number, which is tiny": lambda: approximate(
        "log(9+(0.5*x1 + exp(x2/4.4964485201759276e+30) + x3 + sin(x4/9.557518607901946e-31) + x5/1e-08 + sin(x6))**2)",
        Box(
            [1.495410130191663, 1.4988161733919759e30, 1.9192651152008107, 9.557518607901946e-31, 0.0, 1.6],
            [4.486230390574988, 4.4964485201759276e30, 1.9192651152008107, 9.557518607901946e-31, 1e-08, 1.6],
        ),
        0.1,
    ),
    "a quotient whose expansion is no number": lambda: approximate(
        "x1*x1 * 16777217.0**(-2) * (1.0 / (1.0 + (1e13*(x1 - 0.001))**2))", Box([0.0, -0.73], [0.001, -0.72]), 1e-3
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_proofs_that_were_once_rejected(name: str, tmp_path: Path) -> None:
    a = NAMED[name]()
    assert a.certificate.status == "proved"
    report = check(a.save(tmp_path / "proof"), all=True)
    assert report.ok, report.reason


@pytest.mark.parametrize("seed", [1008, 1073, 1109, 1258, 1278, 1282, 1287, 2026114071])
def test_claims_that_were_once_rejected(seed: int, tmp_path: Path) -> None:
    """Differences of two networks in float32, kinks a thousandth apart, and slopes that are exact up to rounding."""
    assert rejections("claim", range(seed, seed + 1), tmp_path) == (1, [])


PARTS = 8  # so that as many processes can share the work


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("method", METHODS)
def test_many_proofs_are_accepted(method: str, part: int, tmp_path: Path) -> None:
    """4,600 draws in all, more than 3,000 proofs."""
    size = 5 * QUICK[method]
    count, failed = rejections(method, range(1000 + part * size, 1000 + (part + 1) * size), tmp_path)
    assert not failed, failed
    assert count > size // (5 if method in REFUSED_OFTEN else 2)
