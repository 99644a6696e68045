"""Sums of one-variable functions inside one-variable functions, over any number of tokens, proved piece by piece.

python examples/superpose.py
"""

from __future__ import annotations

import tempfile

import torch

import onelayer as ol
from onelayer.build.sequences.superpose import superpose
from onelayer.card import number_of


def main() -> None:
    n = 32
    box = ol.Box([0.5] * n, [2.0] * n)
    functions = {
        "log-sum-exp": lambda x: torch.logsumexp(x, -1),
        "geometric mean": lambda x: x.log().mean(-1).exp(),
        "mean square": lambda x: x.square().mean(-1),
        "harmonic sum": lambda x: 1 / (1 / x).sum(-1),
    }
    for name, f in functions.items():
        a = superpose(f, box, 1e-2)
        units = number_of(a.size()["hidden_units"], "hidden units")
        print(f"{name} of {n}: {units}, {number_of(a.model.config.ramps, 'ramps')}, ", end="")
        print(f"{a.certificate.status} by {a.certificate.method}")
        with tempfile.TemporaryDirectory() as folder:
            a.save(f"{folder}/made")
            print("  checked:", ol.check(f"{folder}/made").ok)
    largest = superpose("max(x1, x2, x3)", ol.Box([-1] * 3, [1] * 3), 1e-2)
    x = torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)
    print(f"max: {float(largest.model(x)):.2f}, {largest.certificate.status} by {largest.certificate.method}")


if __name__ == "__main__":
    main()
