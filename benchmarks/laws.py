"""Laws of the search: how boxes and memory grow as eps falls, and a proof of ten million boxes.

    python benchmarks/laws.py [--quick]          # boxes ~ eps^(-D/(k+1)), fitted and drawn
    python benchmarks/laws.py --million 10       # one proof of so many million boxes and its check

Lemma behind the law: a Taylor model of order k on a box of side h errs by O(h^(k+1)), and a box of side h takes h^D of
the volume. A fit needs several eps at one fixed order; the layer is built once, far below the smallest eps.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import report

import onelayer as ol
from onelayer.proof.certify import certify

FORMULAS = {2: "sin(3*x1)*cos(2*x2)", 3: "sin(x1 + x2)*cos(x3)"}  # of one variable models keep four degrees more
LAYER_EPS = {2: 1e-9, 3: 1e-6}
SERIES = {  # dimension, order: the eps of a fit
    (2, 1): (1e-3, 1e-4, 1e-5),
    (2, 2): (1e-4, 1e-5, 1e-6, 1e-7),
    (2, 3): (1e-5, 1e-6, 1e-7, 1e-8),
    (3, 2): (3e-3, 3e-4, 3e-5),
    (3, 3): (3e-4, 3e-5, 3e-6),
}
MILLION = 3.2  # boxes of the two-dimensional proof at order 1, times eps
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "laws.png"


def layer(dim: int) -> tuple[Any, str, ol.Box]:
    box = ol.Box([0.0] * dim, [1.0] * dim)
    return ol.approximate(FORMULAS[dim], box, LAYER_EPS[dim]).model, FORMULAS[dim], box


def peak_megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 1024


def fitted(dim: int, order: int, eps: tuple[float, ...]) -> dict[str, Any]:
    """Boxes of the proofs of one series, and the exponent of a least-squares line through their logarithms."""
    model, f, box = layer(dim)
    boxes = []
    for bound in eps:
        found = certify(model, f, box, bound, order=order, max_boxes=10_000_000)
        if not found.proved:
            raise SystemExit(f"not proved: D = {dim}, order {order}, eps = {bound}: {found}")
        boxes.append(found.boxes)
    exponent, _ = np.polyfit(np.log(eps), np.log(boxes), 1)
    return {
        "D": dim,
        "order": order,
        "eps": " ".join(f"{bound:g}" for bound in eps),
        "boxes": " ".join(map(str, boxes)),
        "exponent": float(exponent),
        "law": -dim / (order + 1),
        "peak MB": peak_megabytes(resource.getrusage(resource.RUSAGE_SELF)),
    }


def drawn(rows: list[dict[str, Any]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    for row in rows:
        eps = [float(value) for value in row["eps"].split()]
        boxes = [int(value) for value in row["boxes"].split()]
        (line,) = axes.loglog(eps, boxes, "o", label=f"D = {row['D']}, order {row['order']}")
        middle = math.exp(np.mean(np.log(boxes))), math.exp(np.mean(np.log(eps)))
        axes.loglog(eps, [middle[0] * (value / middle[1]) ** row["law"] for value in eps], color=line.get_color())
    axes.set_xlabel("eps")
    axes.set_ylabel("boxes of the proof")
    axes.set_title("Dots: proofs. Lines: slope -D/(k+1)")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110, metadata={"Software": None})


def large(millions: float) -> None:
    """One proof of about so many million boxes in two dimensions, and its check: seconds, peak memory, bytes of files.

    Memory is that of the process that proves, its workers, and the process that checks, each at its largest.
    """
    model, f, box = layer(2)
    eps, start = MILLION / (millions * 1e6), time.perf_counter()
    found = certify(model, f, box, eps, order=1, max_boxes=int(8e6 * millions))
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        found.save(folder)
        size = sum(os.path.getsize(file) for file in Path(folder).iterdir())
        for worker in multiprocessing.active_children():  # counted once they have gone
            worker.join()
        proving, workers = (
            peak_megabytes(resource.getrusage(who)) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        row = {
            "status": found.status,
            "boxes": found.boxes,
            "eps": eps,
            "seconds": seconds,
            "boxes/s": found.boxes / seconds,
            "peak MB": proving,
            "worker MB": workers,
            "file MB": size / 2**20,
            **checked(folder),
        }
    report.write(f"laws_{millions:g}_million", [row])


CHECK = """
import json, resource, sys, onelayer
found = onelayer.check(sys.argv[1], all=True)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # since this program began
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([found.verdict, int(peak.split()[1]) / 1024, workers / 1024]))
"""


def checked(folder: str) -> dict[str, Any]:
    """What a process of its own says that checks the folder to the end, its seconds and its megabytes at the peak."""
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", CHECK, folder], capture_output=True, text=True, check=True)
    verdict, peak, workers = json.loads(run.stdout)
    taken = time.perf_counter() - start
    return {"check": verdict, "check seconds": taken, "check MB": peak, "check worker MB": workers}


def main() -> None:
    if "--million" in sys.argv:
        large(float(sys.argv[sys.argv.index("--million") + 1]))
        return
    quick = "--quick" in sys.argv
    chosen = {key: eps[: 2 if quick else None] for key, eps in SERIES.items()}
    rows = [fitted(dim, order, eps) for (dim, order), eps in chosen.items()]
    report.write("laws_quick" if quick else "laws", rows)
    if not quick:
        drawn(rows)


if __name__ == "__main__":
    main()
