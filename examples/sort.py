"""Sort numbers with one attention layer: built, proved, saved, re-proved from its files.

python examples/sort.py
"""

from __future__ import annotations

import tempfile

import torch

import onelayer as ol
from onelayer.build.sort import median, top_k_sum


def main() -> None:
    for n in (4, 64, 256):
        a = ol.sort(n, 0.0, 1.0, eps=1e-2)
        print(f"n = {n}: {a.size()['hidden_units']} hidden units, {a.certificate}")
    few = ol.sort(6, -1.0, 1.0, eps=1e-6, kind="subsets")
    x = torch.tensor([0.5, -0.25, 0.5, 1.0, -1.0, 0.125], dtype=torch.float64)
    print("ties are nothing special:", " ".join(f"{value:.6f}" for value in few.model(x)))
    print(f"{few.size()['heads']} heads, one per subset: {few.certificate}")
    for name, made in {"median": median(9, 0, 1, 1e-2), "top 3": top_k_sum(9, 3, 0, 1, 3e-2)}.items():
        print(f"{name} of 9: {float(made.model(torch.arange(1, 10) / 10.0)):.3f}, {made.certificate.status}")
    with tempfile.TemporaryDirectory() as folder:
        few.save(f"{folder}/few")
        print("checked:", ol.check(f"{folder}/few").ok)


if __name__ == "__main__":
    main()
