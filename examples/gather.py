"""Functions of sequences whose tokens stay tokens: heads gather the sequence, ReLU units make the function.

python examples/gather.py
"""

from __future__ import annotations

import math
import tempfile

import torch

import onelayer as ol
from onelayer.build.sequences.gather import gather


def main() -> None:
    sines = ol.approximate("sin(x1) + sin(x2)", ol.Box([0, 0], [2 * math.pi] * 2), 1e-3, layout="tokens")
    print(f"sin + sin: {sines.size()['hidden_units']} hidden units, {sines.certificate.status}")
    cube = ol.Box([-1] * 4, [1] * 4)
    for residual in (True, False):
        for norm in ("none", "pre", "post"):
            a = gather(lambda x: x * x.mean(-1, keepdim=True), cube, 1e-2, residual=residual, norm=norm)
            kind = f"{'with' if residual else 'without'} residual stream, norm {norm}"
            print(f"x_i mean(x), {kind}: {a.size()['hidden_units']} hidden units, {a.certificate.status}")
    x = torch.tensor([1.0, -0.5, 0.25, 0.25], dtype=torch.float64)
    print("shifting the input shifts the output:", torch.allclose(a.model(x.roll(1)), a.model(x).roll(1), atol=1e-6))
    swap = ol.approximate("x2; x1", ol.Box([0, 0], [1, 1]), 1e-9, layout="tokens")
    print("swap:", " ".join(f"{value:.6f}" for value in swap.model(torch.tensor([0.25, 0.75], dtype=torch.float64))))
    with tempfile.TemporaryDirectory() as folder:
        sines.save(f"{folder}/sines")
        print("checked:", ol.check(f"{folder}/sines").ok)


if __name__ == "__main__":
    main()
