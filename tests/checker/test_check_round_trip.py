"""What the package proves, by whatever method, the checker accepts: random proofs of every method, not one rejected."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawn_proofs
import numpy as np
import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, minimum, order_statistic, sort, top_k_sum
from onelayer.checker.check import CheckReport, check
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.result import Approximation

SMOOTH = ["sin({})", "cos({})", "exp({})", "tanh({})", "1/(2 + ({})**2)", "sqrt(1.5 + sin({}))", "atan({})", "erf({})"]
KINKED = ["abs({})", "relu({})", "max({}, 0.2)", "min({}, sigmoid({}))", "log(2 + cos({}))", "abs(abs({}) - 0.3)"]
LINES = [
    "sqrt(x1 + 1)",
    "x1*abs(x1)",
    "abs(x1)**3",
    "1/(x1 + 1.5)",
    "log(x1 + 1.25)",
    "x1**5 - x1",
    "sin(4*x1)*exp(x1)",
]
SEQUENCES = ["x1*x2", "exp(x1 + x2)", "sin(x1) + cos(x2)", "abs(x1 + x2) + x1", "x1*x2; sin(x1)", "(x1 - x2)**2"]
SUMS = [
    "log(exp(x1) + exp(x2) + exp(x3))",
    "hypot(x1, x2, x3)",
    "exp(x1 + 2*x2)",
    "(sin(x1) + sin(x2) + sin(x3))**2",
    "exp(-(x1**2 + x2**2))",
    "cos(x1) + sqrt(2 + x2 + x3)",
]
LAWS = [
    "x1*x2/x3",
    "x1*exp(-x2)*sin(x3)",
    "sqrt(x1**2 + x2**2)",
    "x1/(1 + x2*x3)",
    "1/sqrt(1 - x1**2/(9*x2**2))",
    "x1*x2*x3*x4",
    "exp(-(x1 - x2)**2/x3)",
    "abs(x1 - x2) + x3*x1",
    "max(x1, x2, x3)",
    "x1**2 + x2**2 - 2*x1*x2*cos(x3)",
]
NORMS = ["none", "pre", "post"]


def dtype_of(rng: random.Random) -> torch.dtype:
    return rng.choice([torch.float64, torch.float64, torch.float32])


def interval(rng: random.Random) -> tuple[float, float]:
    low = rng.choice([-1.0, 0.0, -0.7, 0.25, round(rng.uniform(-1, 1), 2)])
    return low, low + rng.choice([0.25, 1.0, 1.3, round(rng.uniform(0.1, 2), 2)])


def formula(rng: random.Random, dim: int, depth: int) -> str:
    if depth == 0:
        return " + ".join(f"{rng.uniform(-2, 2):.3g}*x{i + 1}" for i in range(dim)) + f" - {rng.uniform(0, 1):.2g}"
    inner = formula(rng, dim, depth - 1)
    pattern = rng.choice(SMOOTH + SMOOTH + KINKED)
    outer = pattern.format(*[inner] * pattern.count("{}"))
    return rng.choice([outer, outer, f"{outer} * x{rng.randint(1, dim)}", f"{outer} - {rng.uniform(0, 1):.2f}*x1**3"])


def built(rng: random.Random) -> Approximation:
    """approximate on a function of one or two variables."""
    dtype = dtype_of(rng)
    eps = 10.0 ** -rng.randint(1, 4 if dtype == torch.float64 else 3)
    if rng.random() < 0.4:
        low = rng.choice([-1.0, -1.0, -0.5, 0.0])
        return approximate(rng.choice(LINES), Box([low], [low + rng.choice([0.3, 1.0, 1.3])]), eps, dtype=dtype)
    dim = rng.choice([1, 1, 2])
    sides = [interval(rng) for _ in range(dim)]
    box = Box([a for a, _ in sides], [b for _, b in sides])
    return approximate(formula(rng, dim, 1), box, 10 * eps, dtype=dtype, max_seconds=20)


def certified(rng: random.Random) -> Approximation:
    """A random layer against a random formula: packed or tokens, every norm and read-out, real or executed."""
    dim, dtype = rng.choice([1, 2]), dtype_of(rng)
    options = {"hidden": rng.choice([0, 3]), "residual": rng.random() < 0.5, "norm": rng.choice(NORMS)}
    seed = rng.randrange(999)
    torch.manual_seed(seed)
    if rng.random() < 0.5:
        memory = [
            PlainMemory(2 * torch.randn(3, 2).to(dtype), torch.randn(3, 2).to(dtype)) for _ in range(rng.randint(1, 2))
        ]
        model = OneLayerTransformer.packed((dim,), (), memory, d_model=3, dtype=dtype, seed=seed, **options)
    else:
        options |= {"positions": rng.choice(["learned", "one-hot"]), "readout": rng.choice(["mean", "first", "last"])}
        model = OneLayerTransformer.tokens((dim,), (), d_model=4, heads=2, dtype=dtype, seed=seed, **options)
    sides = [interval(rng) for _ in range(dim)]
    box = Box([a for a, _ in sides], [(a + b) / 2 for a, b in sides])
    execution = rng.choice(["model dtype", "model dtype", "real"])
    eps = rng.choice([None, 0.5, 3.0])
    text = formula(rng, dim, rng.choice([1, 2]))
    certificate = certify(model, text, box, eps, execution=execution, gap=0.3, max_boxes=80, max_seconds=20)
    return Approximation(model, certificate)


def ordered(rng: random.Random) -> Approximation:
    n, low = rng.randint(2, 5), rng.choice([0.0, -1.0, 0.3, 1e-3, -50.0])
    span, kind, dtype = rng.choice([1.0, 0.3, 7.0]), rng.choice(["thresholds", "subsets"]), dtype_of(rng)
    share = rng.choice([0.2, 0.05, 1e-2 if dtype == torch.float64 else 0.1])
    arguments = (low, low + span, span * share)
    k = rng.randint(1, n)
    make: Callable[[], Approximation] = rng.choice(
        [
            lambda: sort(n, *arguments, kind=kind, dtype=dtype),
            lambda: maximum(n, *arguments, kind=kind, dtype=dtype),
            lambda: minimum(n, *arguments, kind=kind, dtype=dtype),
            lambda: median(n, *arguments, kind=kind, dtype=dtype),
            lambda: order_statistic(n, k, *arguments, kind=kind, dtype=dtype),
            lambda: top_k_sum(n, k, *arguments, kind=kind, dtype=dtype),
        ]
    )
    return make()


def gathered(rng: random.Random) -> Approximation:
    low, high = interval(rng)
    options = {"residual": rng.random() < 0.7, "norm": rng.choice(NORMS), "dtype": dtype_of(rng)}
    return gather(rng.choice(SEQUENCES), Box([low] * 2, [high] * 2), rng.choice([0.5, 0.2, 0.05]), **options)


def superposed(rng: random.Random) -> Approximation:
    low, high = interval(rng)
    text = rng.choice(SUMS)
    dim = 3 if "x3" in text else 2
    return superpose(text, Box([low] * dim, [high] * dim), rng.choice([0.5, 0.1, 0.02]), dtype=dtype_of(rng))


def memorised(rng: random.Random) -> Approximation:
    made = np.random.default_rng(rng.randrange(10**6))
    rows, columns, outputs = rng.randint(1, 40), rng.randint(1, 4), rng.randint(1, 3)
    x = made.normal(size=(rows, columns)) * rng.choice([1.0, 1e-6, 1e4])
    y = made.integers(0, 9, size=rows) if rng.random() < 0.4 else made.normal(size=(rows, outputs)) * 10
    return memorize(x, y, recipe=rng.choice(["softmax", "relu", None]), dtype=dtype_of(rng))


def composed(rng: random.Random) -> Approximation:
    """approximate on laws of several variables: compositions, products of heads, cones, lookups, whatever is chosen."""
    text = rng.choice(LAWS)
    dim = max(at for at in range(1, 5) if f"x{at}" in text)
    sides = [rng.choice([(1.0, 2.0), (1.0, 3.0), (0.5, 1.5), (2.0, 2.5)]) for _ in range(dim)]
    box = Box([a for a, _ in sides], [b for _, b in sides])
    return approximate(text, box, rng.choice([0.1, 0.03]), dtype=dtype_of(rng), max_seconds=20)


def network(rng: random.Random) -> tuple[nn.Module, Box, int]:
    """A perceptron of torch on a small box."""
    dim, dtype = rng.choice([1, 2]), dtype_of(rng)
    torch.manual_seed(rng.randrange(999))
    inner = rng.choice([nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU, nn.SiLU, nn.Softplus, nn.Softsign])
    model = nn.Sequential(nn.Linear(dim, 4), inner(), nn.Linear(4, 1), nn.Flatten(0)).to(dtype)
    sides = [interval(rng) for _ in range(dim)]
    return model, Box([a for a, _ in sides], [b for _, b in sides]), dim


def claimed(rng: random.Random) -> Certificate:
    """A claim of a network: its range, slopes, a condition, another network, or how far it is from a formula."""
    model, box, dim = network(rng)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(1.001)
    text, limits = formula(rng, dim, 1), {"max_boxes": 60, "max_seconds": 20}
    make: Callable[[], Any] = rng.choice(
        [
            lambda: ol.bound(model, box, gap=0.3, **limits),
            lambda: ol.lipschitz(model, box, gap=0.3, **limits),
            lambda: ol.gradient_error(model, text, box, gap=0.3, **limits),
            lambda: ol.monotone(model, box, {"x1": rng.choice("+-")}, **limits),
            lambda: ol.equivalent(model, other, box, 0.1, **limits),
            lambda: ol.prove(model, box, f"y1 <= {rng.choice([0.5, 1.0, 2.0])}", **limits),
            lambda: certify(model, text, box, gap=0.3, **limits),
        ]
    )
    found = make()
    return getattr(found, "certificate", found)  # of a range that was not proved there is none


def tabled(rng: random.Random) -> Approximation:
    """approximate on a table: a grid, linear or cubic, or rows in no order."""
    made = np.random.default_rng(rng.randrange(10**6))
    kind, at = rng.choice(["linear", "cubic", "scattered"]), np.sort(made.uniform(-1, 1, rng.randint(4, 7)))
    columns = {"x1": at, "y": np.sin(2 * at) + 0.1 * made.normal(size=len(at))}
    table = ol.Table.read(columns, inputs=["x1"], output="y", interpolate="cubic" if kind == "cubic" else "linear")
    return approximate(table, table.box, rng.choice([0.2, 0.05]), dtype=dtype_of(rng), max_seconds=20)


METHODS: dict[str, Callable[[random.Random], Approximation | Certificate]] = {
    "approximate": built,
    "certify": certified,
    "lemma": ordered,
    "gather": gathered,
    "superpose": superposed,
    "memorize": memorised,
    "compose": composed,
    "claim": claimed,
    "table": tabled,
    **drawn_proofs.METHODS,
}


def made(method: str, seed: int) -> Approximation | Certificate | None:
    """A proof, or None where the package declines to build one."""
    try:
        return METHODS[method](random.Random(f"{method} {seed}"))
    except OnelayerError:
        return None


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


QUICK = {"approximate": 8, "certify": 12, "lemma": 14, "gather": 6, "superpose": 8, "memorize": 14}
QUICK |= {"compose": 2, "claim": 8, "table": 2, **drawn_proofs.QUICK}
REFUSED_OFTEN = {"layer", "claim of a layer", "extreme", "hurt"}  # what the package declines to prove is no proof


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


NAMED: dict[str, Callable[[], Approximation]] = {
    "logits that err by more than values differ": steep,
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
