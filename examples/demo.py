"""The main job in a few lines: build a one-layer Transformer for sin x1 + sin x2, prove its error, draw it.

Leaves the model, the proof and the picture in out/sin. Re-prove it any time with: onelayer check out/sin
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

import onelayer as ol


def main() -> None:
    f = lambda x: torch.sin(x[..., 0]) + torch.sin(x[..., 1])  # noqa: E731  any batched torch function
    box = ol.Box([0, 0], [2 * torch.pi] * 2)

    start = time.perf_counter()
    a = ol.approximate(f, box, eps=1e-6)
    print(a.certificate)
    print(a.model)
    print(f"built and proved in {time.perf_counter() - start:.1f} s")

    folder = Path("out") / "sin"
    a.save(folder)
    ol.draw(a, folder / "picture.png")
    print(ol.check(folder))
    print(f"model, proof and picture are in {folder}/")


if __name__ == "__main__":
    main()
