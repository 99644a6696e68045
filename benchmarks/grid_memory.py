"""Grid memory evaluated factorised against the same tokens written out, in one run.

python benchmarks/grid_memory.py            4,096 tokens x 10,000 queries; fails below a ratio of 10
python benchmarks/grid_memory.py --large    1,000,000 tokens x 1,000,000 queries, and the memory it takes
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import report
import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

QUERIES = 10_000
GRIDS = ((64, 64), (16, 16, 16), (8, 8, 8, 8))
REQUIRED = 10.0


def grid_model(counts: tuple[int, ...], dtype: torch.dtype) -> OneLayerTransformer:
    """A head of Gaussian bumps on a regular grid over [-1, 1]^D with random values."""
    generator = torch.Generator().manual_seed(0)
    axes = []
    for a, count in enumerate(counts):
        centre = torch.linspace(-1, 1, count, dtype=torch.float64)
        beta = count**2 / 4
        axes.append(AxisKeys(a, 2 * beta * centre, -beta * centre**2))
    values = torch.randn(*counts, 1, generator=generator, dtype=torch.float64)
    return lookup_model(len(counts), (), [LookupHead(axes, values)], dtype=dtype)


def stock_attention(model: OneLayerTransformer, x: Tensor) -> Tensor:
    """The same head by PyTorch's fused attention over the written-out tokens: one query per token of the sequence."""
    memory = model.memory_of(0)
    assert isinstance(memory, PlainMemory)
    query = model.affine(model.affine(x, "E"), "Q")[None, None]  # (1, 1, Q, d_k)
    return F.scaled_dot_product_attention(query, memory.keys[None, None], memory.values[None, None]).squeeze()


def seconds(evaluate: Callable[[], Tensor], repeats: int = 5) -> float:
    """Best of several runs after one to warm up."""
    evaluate()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        evaluate()
        times.append(time.perf_counter() - start)
    return min(times)


def compare() -> int:
    rows = []
    for dtype in (torch.float64, torch.float32):
        for counts in GRIDS:
            model = grid_model(counts, dtype)
            plain = model.materialize()
            x = (2 * torch.rand(QUERIES, len(counts), generator=torch.Generator().manual_seed(1)) - 1).to(dtype)
            factorised = seconds(lambda m=model, x=x: m(x))  # type: ignore[misc]
            written_out = seconds(lambda m=plain, x=x: m(x), 3)  # type: ignore[misc]
            fused = seconds(lambda m=plain, x=x: stock_attention(m, x), 3)  # type: ignore[misc]
            rows.append(
                {
                    "grid": " x ".join(map(str, counts)),
                    "dtype": str(dtype).removeprefix("torch."),
                    "queries": QUERIES,
                    "factorised_ms": 1e3 * factorised,
                    "plain_ms": 1e3 * written_out,
                    "fused_attention_ms": 1e3 * fused,
                    "plain_ratio": written_out / factorised,
                    "fused_ratio": fused / factorised,
                    "difference": (model(x) - plain(x)).abs().max().item(),
                }
            )
    ratio = min(min(row["plain_ratio"], row["fused_ratio"]) for row in rows)
    report.write("grid_memory", rows, smallest_ratio=ratio, required_ratio=REQUIRED)
    return int(ratio < REQUIRED)


def large() -> int:
    rows = []
    for counts in ((1000, 1000), (100, 100, 100)):
        model = grid_model(counts, torch.float64)
        x = 2 * torch.rand(10**6, len(counts), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        model(x)
        elapsed = time.perf_counter() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        grid = " x ".join(map(str, counts))
        rows.append({"grid": grid, "queries": 10**6, "seconds": elapsed, "peak_memory_growth_MiB": grown})
    report.write("grid_memory_large", rows)
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(large() if "--large" in sys.argv[1:] else compare())
