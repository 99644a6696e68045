"""Sequences: gather, superpose, sort, memorize and the count of memorisable labels, each with its proof.

python benchmarks/sequences.py                          every part at sizes that take minutes
python benchmarks/sequences.py sort memorize --full     100,000 sequences of each length, tables of 100,000 rows
python benchmarks/sequences.py sort memorize --full --device cuda     tables of 1,000,000 rows
"""

from __future__ import annotations

import argparse
import math
import time

import report
import sequences_memorize
import sequences_sort
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.tables.capacity import attention_rank
from onelayer.errors import OnelayerError
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.result import Approximation

TOKENS = 64
NAMES = [f"x{i + 1}" for i in range(TOKENS)]


def row(name: str, a: Approximation, eps: float, seconds: float) -> dict[str, object]:
    size = a.size()
    return {
        "function": name,
        "inputs": a.box.dim,
        "eps": eps,
        "status": a.certificate.status,
        "proved": a.certificate.upper,
        "seen": a.certificate.lower,
        "hidden units": size["hidden_units"],
        "ramps": a.model.config.ramps,
        "heads": size["heads"],
        "parameters": size["parameters"],
        "boxes": a.certificate.boxes,
        "seconds": seconds,
    }


def complex_product(x: Tensor) -> Tensor:
    m = x.mean(-2, keepdim=True)
    real = x[..., 0] * m[..., 0] - x[..., 1] * m[..., 1]
    return torch.stack([real, x[..., 0] * m[..., 1] + x[..., 1] * m[..., 0]], -1)


def kernel(x: Tensor) -> Tensor:
    return torch.exp(-((x - torch.roll(x, -1, -2)) ** 2).sum(-1))


def attention_without_softmax(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)) @ x


def gather_part(full: bool, device: str) -> None:
    """The two required functions, and three of our own on tokens of two numbers."""
    sines, cube = Box([0.0, 0.0], [2 * math.pi] * 2), Box([-1.0] * 4, [1.0] * 4)
    pair, three = Box(-torch.ones(2, 2), torch.ones(2, 2)), Box(-torch.ones(3, 2), torch.ones(3, 2))
    near = Box(-0.5 * torch.ones(2, 2), 0.5 * torch.ones(2, 2))
    cases: list[tuple[str, object, Box, float]] = [
        ("sin x1 + sin x2", "sin(x1) + sin(x2)", sines, 1e-3),
        ("sin x1 + sin x2", "sin(x1) + sin(x2)", sines, 1e-4),
        ("x_i mean(x)", lambda x: x * x.mean(-1, keepdim=True), cube, 1e-3),
        ("x_i times mean, complex, 3 tokens", complex_product, three, 1e-3),
        ("exp(-|x_i - x_{i+1}|^2), 2 tokens of 2", kernel, near, 1e-2),
        ("x x^T x, 2 tokens of 2", attention_without_softmax, pair, 3e-2),
    ]
    rows = []
    for name, f, box, eps in cases:
        start = time.perf_counter()
        rows.append(row(name, gather(f, box, eps), eps, time.perf_counter() - start))
    report.write("sequences_gather", rows)


def curse_part(full: bool, device: str) -> None:
    """Hidden units for exp(-|x|^2) on [-1, 1]^D: where the dimension wins."""
    rows = []
    for eps in (1e-1, 1e-2):
        for dim in range(1, 6 if full else 4):
            text = f"exp(-({'+'.join(f'x{i + 1}**2' for i in range(dim))}))"
            start = time.perf_counter()
            try:
                a = gather(text, Box([-1.0] * dim, [1.0] * dim), eps, max_boxes=20_000, max_seconds=120.0)
            except OnelayerError as error:
                rows.append({"function": "exp(-|x|^2)", "inputs": dim, "eps": eps, "status": str(error)[:60]})
                continue
            rows.append(row("exp(-|x|^2)", a, eps, time.perf_counter() - start))
    report.write("sequences_curse", rows)


def superpose_part(full: bool, device: str) -> None:
    """Functions of 64 tokens: boxes in 64 dimensions are hopeless, compositions take a second."""
    cases = [
        ("log-sum-exp", f"log({'+'.join(f'exp({x})' for x in NAMES)})", -1.0, 1.0),
        ("variance", f"({'+'.join(f'{x}**2' for x in NAMES)})/64 - (({'+'.join(NAMES)})/64)**2", -1.0, 1.0),
        ("geometric mean", f"exp(({'+'.join(f'log({x})' for x in NAMES)})/64)", 0.5, 2.0),
        ("l2 norm", f"sqrt({'+'.join(f'{x}**2' for x in NAMES)})", -1.0, 1.0),
    ]
    rows = []
    for name, text, low, high in cases:
        for eps in (1e-2, 1e-3, 1e-4) if full and name != "l2 norm" else (1e-3,):
            start = time.perf_counter()
            made = superpose(text, Box([low] * TOKENS, [high] * TOKENS), eps)
            rows.append(row(name, made, eps, time.perf_counter() - start))
    report.write("sequences_superpose", rows)


def capacity_part(full: bool, device: str) -> None:
    """Rank of the attention features of H random heads over n shared tokens against H (n - 1) + 1."""
    rows = []
    for heads, tokens in ((1, 4), (2, 8), (4, 8), (8, 16), (16, 16)):
        generator = torch.Generator().manual_seed(heads + tokens)
        memory = [
            PlainMemory(torch.randn(tokens, 4, generator=generator).double(), torch.zeros(tokens, 1).double())
            for _ in range(heads)
        ]
        model = OneLayerTransformer.packed((8,), (), memory, d_model=8, seed=1)
        x = torch.randn(2 * heads * tokens, 8, generator=generator, dtype=torch.float64)
        rows.append(
            {"heads": heads, "tokens": tokens, "rank": attention_rank(model, x), "H(n-1)+1": heads * (tokens - 1) + 1}
        )
    report.write("sequences_capacity", rows)


PARTS = {
    "gather": gather_part,
    "curse": curse_part,
    "superpose": superpose_part,
    "sort": sequences_sort.run,
    "memorize": sequences_memorize.run,
    "capacity": capacity_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    chosen = parser.parse_args()
    for name in chosen.parts or PARTS:
        PARTS[name](chosen.full, chosen.device)


if __name__ == "__main__":
    main()
