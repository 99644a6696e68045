"""Honest certificates of random layers against random formulas are accepted; halved ones are not."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.errors import OnelayerError
from onelayer.layer.file import save_model
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.proof.files import read_proof, write_proof

SMOOTH = [
    "sin({})",
    "cos({})",
    "exp(-({})**2)",
    "tanh({})",
    "1/(2 + ({})**2)",
    "sqrt(1.5 + sin({}))",
    "atan({})",
    "erf({})",
]
KINKED = ["abs({})", "relu({})", "max({}, 0.2)", "min({}, sigmoid(x1))", "log(2 + cos({}))"]


def random_formula(rng: random.Random, dim: int, depth: int = 2) -> str:
    if depth == 0:
        return " + ".join(f"{rng.uniform(-2, 2):.3f}*x{i + 1}" for i in range(dim))
    inner = random_formula(rng, dim, depth - 1)
    outer = rng.choice(SMOOTH * 2 + KINKED).format(inner)
    return rng.choice([outer, f"{outer} * x{rng.randint(1, dim)}", f"{outer} - {rng.uniform(0, 1):.2f}*x1**3"])


def random_model(rng: random.Random, dim: int) -> OneLayerTransformer:
    torch.manual_seed(rng.randrange(10**6))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64)

    def axis(a: int) -> AxisKeys:
        tokens = rng.randint(2, 6)
        return AxisKeys(a, 4 * normal(tokens), normal(tokens))

    if rng.random() < 0.25:
        options = {"residual": True, "norm": rng.choice(["none", "post"]), "positions": "learned"}
        return OneLayerTransformer.tokens((dim,), (), d_model=4, hidden=3, seed=rng.randrange(99), **options)
    groups = rng.choice([[[a] for a in range(dim)], [list(range(dim))]])
    heads = []
    for group in groups:
        axes = [axis(a) for a in group]
        heads.append(LookupHead(axes, normal(*(len(part.slopes) for part in axes), 1)))
    if rng.random() < 0.4:
        return lookup_model(
            dim, (), heads, Ridges(normal(3, dim), normal(3), normal(3, 1)), Affine(normal(1, dim), normal(1))
        )
    return lookup_model(dim, (), heads, dtype=rng.choice([torch.float64, torch.float32]))


@pytest.mark.parametrize("seed", range(12))
def test_random_certificates(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    dim = rng.choice([1, 1, 2, 2, 3])
    low = [round(rng.uniform(-1, 0.5), 2) for _ in range(dim)]
    box = Box(low, [a + rng.choice([0.1, 0.5, 1.0]) for a in low])
    model, text = random_model(rng, dim), random_formula(rng, dim)
    try:
        certificate = certify(model, text, box, None, gap=0.3, max_boxes=600)
    except OnelayerError as error:
        pytest.fail(f"{text}: {error}")
    save_model(model, tmp_path)
    write_proof(tmp_path, certificate)
    report = check(tmp_path, max_seconds=30)
    assert report.ok, (text, str(certificate), report.reason)
    assert report.boxes_checked >= 1
    proof = read_proof(tmp_path)
    if proof.lower > 0:
        half = proof.lower / 2
        forged = dataclasses.replace(proof, status="proved", lower=half, upper=half, resisted=None)
        write_proof(tmp_path, forged)
        assert not check(tmp_path, max_seconds=30).ok
