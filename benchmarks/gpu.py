"""What a GPU does: evaluation of grid memory, enclosures, whole proofs. Both sides of every ratio in one run.

    python benchmarks/gpu.py [--models FOLDER] [--seconds 60]

FOLDER keeps the layers that are proved, saved on the first run. The CPU's side is one core. The roofline is that of the
float32 multiply-adds of the card at its highest clock, for the work that evaluation has to do: logits, exponentials
(eight operations each) and the contraction.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import report
import torch
import torch.nn.functional as F
from grid_memory import grid_model
from scaling import share_of_range, some_boxes
from suite import BOREHOLE, OTL, Problem
from torch import Tensor

import onelayer as ol
from onelayer.ground import pinned
from onelayer.layer import heads
from onelayer.layer.attention import _grid_average, grid_average
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.proof.certify import certify
from onelayer.proof.error import error_function
from onelayer.recording.target import as_target

QUERIES, SIDE = 2**18, 64
LANES = 128  # float32 multiply-adds of one multiprocessor in a cycle
CALLS = (2**18, 2**20)
ENCLOSED = (
    ("OTL", OTL, 0.01, 2),
    ("OTL", OTL, 0.01, 3),
    ("borehole", BOREHOLE, 0.01, 2),
    ("borehole", BOREHOLE, 0.01, 3),
)
PROVED = (("borehole", BOREHOLE, 0.001, 3), ("OTL", OTL, 0.0003, 3))
MOST_BOXES = 6_000_000


def milliseconds(run: Callable[[], Any], repeats: int = 20) -> float:
    """Median of runs on the GPU, after two that are not counted."""
    taken = []
    for at in range(repeats + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if at >= 2:
            taken.append(start.elapsed_time(end))
    return sorted(taken)[len(taken) // 2]


def evaluation() -> list[dict[str, Any]]:
    """2^18 queries over 64 x 64 tokens: stock attention over all of them, the eager factorised form, the kernel."""
    model = grid_model((SIDE, SIDE), torch.float32).cuda()
    memory, plain = model.memory_of(0), model.materialize().memory_of(0)
    if not (isinstance(memory, GridMemory) and isinstance(plain, PlainMemory)):
        raise TypeError("a grid and the same tokens written out were expected")
    x = 2 * torch.rand(QUERIES, 2, generator=torch.Generator().manual_seed(0)) - 1
    with torch.no_grad():
        query = heads.query(model, 0, model.embed(x.cuda().float()[:, None, :]))  # (Q, 1, d_k)
        axes, values = list(memory.axes), memory.values
        exact = _grid_average(query.double(), [axis.double() for axis in axes], values.double()).flatten()
        keys, written = plain.keys[None, None], plain.values[None, None]

        def stock() -> Tensor:
            return F.scaled_dot_product_attention(query.reshape(1, 1, QUERIES, -1), keys, written, scale=1.0)

        ways: dict[str, Callable[[], Tensor]] = {
            "stock attention": stock,
            "eager, factorised": lambda: _grid_average(query, axes, values),
            "fused kernel": lambda: grid_average(query, axes, values),
        }
        card = torch.cuda.get_device_properties(0)
        peak = card.multi_processor_count * LANES * 2 * getattr(card, "clock_rate", 1.98e6) * 1e3
        work = QUERIES * (2 * SIDE * SIDE + 2 * SIDE * (2 * query.shape[-1] + 8))
        rows: list[dict[str, Any]] = []
        for name, way in ways.items():
            taken = milliseconds(way)
            error = (way().flatten().double() - exact).abs().max().item()
            rows.append({"way": name, "ms": taken, "error": error})
            rows[-1]["times faster than stock"] = rows[0]["ms"] / taken
            rows[-1]["share of roofline"] = work / (taken * 1e-3) / peak
    return rows


def layer(name: str, problem: Problem, share: float, folder: Path) -> Any:
    """The layer for this share of the range of f, from the folder or built now and kept there."""
    path = folder / f"{name.lower()}_{share}"
    if not path.exists():
        built = ol.approximate(problem.formula, problem.box, share_of_range(problem, share), layout="packed")
        built.save(path)
    return ol.load(path).model


def raw(name: str, model: Any, problem: Problem, order: int) -> list[dict[str, Any]]:
    """Enclosures in one call: on one core, on the GPU operation by operation, and replayed as a graph."""
    target = as_target(problem.formula, problem.box)
    here, there = (
        error_function(model, target, problem.box, torch.float64, torch.device(device)) for device in ("cpu", "cuda")
    )
    low, high = some_boxes(problem, 2048)
    here.bounds(low, high, order)
    start = time.process_time()
    here.bounds(low, high, order)
    core = 2048 / (time.process_time() - start)
    rows = []
    for count in CALLS:
        low, high = (side.cuda() for side in some_boxes(problem, count))
        there.replays.most = count
        written, replay = partial(there._enclosed, low, high, order), partial(there.bounds, low, high, order)
        eager, replayed = (count / (1e-3 * milliseconds(run, repeats)) for run, repeats in ((written, 1), (replay, 4)))
        row = {"case": name, "order": order, "boxes": count, "one core": core, "GPU": eager, "GPU, replayed": replayed}
        rows.append({**row, "times one core": replayed / core})
    return rows


def proof(name: str, problem: Problem, share: float, order: int, model: Any, most: float) -> dict[str, Any]:
    """A whole proof on the GPU, or as far as it comes in so many seconds."""
    eps = share_of_range(problem, share)
    options: dict[str, Any] = {"max_boxes": MOST_BOXES, "max_seconds": most, "order": order}
    start = time.perf_counter()
    found = certify(model, problem.formula, problem.box, eps, device="cuda", **options)
    taken = time.perf_counter() - start
    row = {"case": name, "share of range": share, "order": order, "status": found.status, "boxes": found.boxes}
    return {**row, "seconds": taken, "boxes/s": found.boxes / taken}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, default=Path("out/gpu"))
    parser.add_argument("--seconds", type=float, default=60.0, help="of a whole proof")
    given = parser.parse_args()
    folder, most = given.models, given.seconds
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU", file=sys.stderr)
        return 2
    with pinned():
        report.write("gpu_evaluation", evaluation())
        calls = []
        for name, problem, share, order in ENCLOSED:
            calls += raw(f"{name}, {share:.2%}", layer(name, problem, share, folder), problem, order)
        report.write("gpu_enclosures", calls)
        proofs = [proof(*row, layer(*row[:3], folder), most) for row in PROVED]
        report.write("gpu_proofs", proofs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
