"""A training run for a subprocess to be killed in: python interrupted.py FOLDER OPTIMISER."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from onelayer.box import Box
from onelayer.training.train import train
from onelayer.training.trained import Trained

RUN: dict[str, Any] = {"heads": 2, "d_model": 8, "hidden": 16, "batch": 32, "steps": 120, "every": 10, "seed": 3}


def run(folder: Path | None, optimiser: str) -> Trained:
    """160 steps in all: first-order ones, then L-BFGS."""
    torch.set_num_threads(1)
    return train(
        "sin(x1) * x2",
        Box([0, 0], [3, 1]),
        checkpoint=folder,
        optimiser=optimiser,
        lbfgs_steps=40,
        weight_decay=1e-4,
        **RUN,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
