"""Handwritten digits by one layer: the hand-written NumPy backward beside torch, and a classifier by the trainer.

A picture is 8 tokens (rows) of 8 numbers (pixels). The data come with scikit-learn; the split is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray

from onelayer.equations.functions import Array, softmax
from onelayer.equations.layer import backward, forward
from onelayer.equations.optimisers import Adam, GradientDescent, Momentum, minibatches
from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.style import NORMAL, SERIES, new_figure, outside_legend, tidy
from onelayer.study.rows import select
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.start import fresh_layer
from onelayer.training.train import train

# One rate each, tried by hand; the plain rule on all pictures at once blows up within 400 steps at 0.5.
RATES = {"gradient descent": 0.2, "sgd": 0.2, "momentum": 0.05, "adam": 5e-3}
TEST_SHARE, SPLIT_SEED = 0.25, 0  # a quarter held out, by one split for all methods
NOISE = 0.1  # of a pixel, whose range is 1
MOVES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # a pixel in each direction, and none


@dataclass(frozen=True)
class Digits:
    """Pictures (B, 8, 8) scaled to [0, 1] and their labels, split into training and test rows."""

    x: Array
    y: NDArray[np.int64]
    test_x: Array
    test_y: NDArray[np.int64]


def load_digits() -> Digits:
    """The 1,797 digits of scikit-learn; a quarter, drawn once by class, is the test set."""
    try:
        from sklearn import datasets, model_selection
    except ImportError as error:
        raise OnelayerError("the digits come with scikit-learn: pip install onelayer[sklearn]") from error
    data = datasets.load_digits()
    pictures = data.images / 16.0  # pixels are whole numbers from 0 to 16
    how = {"test_size": TEST_SHARE, "random_state": SPLIT_SEED, "stratify": data.target}
    x, test_x, y, test_y = model_selection.train_test_split(pictures, data.target, **how)
    return Digits(x, y, test_x, test_y)


def varied(x: Array, y: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """The pictures, copies moved by one pixel up, down, left and right, and of all of these two copies with noise."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    # A window of 8 x 8 pixels that starts one row earlier shows the picture one row lower.
    windows = [padded[:, 1 - down : 9 - down, 1 - right : 9 - right] for down, right in MOVES]
    moved = np.concatenate(windows)
    generator = np.random.default_rng(0)
    copies = [moved]
    for _ in range(2):
        noise = NOISE * generator.normal(size=moved.shape)
        copies.append(np.clip(moved + noise, 0, 1))
    return np.concatenate(copies), np.tile(y, len(copies) * len(MOVES))


def cells(quick: bool) -> list[Cell]:
    """The runs of the study."""
    steps = 60 if quick else 600
    result: list[Cell] = [
        {"method": "numpy and torch", "optimiser": name, "rate": rate, "steps": steps, "batch": 64}
        for name, rate in RATES.items()
    ]
    reading: Cell = {"method": "classifier", "steps": 300 if quick else 3000, "batch": 128, "seed": 0}
    return [*result, reading]


def measure(cell: Cell) -> Mapping[str, Any]:
    """One run."""
    if cell["method"] == "classifier":
        return _classifier(cell)
    return _both(cell)


def _classifier(cell: Cell) -> Mapping[str, Any]:
    """One pre-norm layer that reads the class off its first token, AdamW, pictures moved and blurred by noise."""
    data = load_digits()
    run = train(
        varied(data.x, data.y), test=(data.test_x, data.test_y), d_model=48, heads=8, hidden=192, optimiser="adamw",
        weight_decay=0.5, lr=5e-3, steps=cell["steps"], batch=cell["batch"], seed=cell["seed"], dtype="float32",
        layer={"norm": "pre", "readout": "first"},
    )  # fmt: skip
    return {"accuracy": run.accuracy, "parameters": run.parameters, "test_rows": len(data.test_y)}


def _both(cell: Cell) -> Mapping[str, Any]:
    """The same start, the same batches, the same rule; gradients by hand in NumPy and by autograd in torch.

    A loss is the mean over the last tenth of the steps: that of one batch is noise. A NaN in either run is a NaN here.
    """
    data = load_digits()
    start = fresh_layer((8, 8), (10,), heads=2, d_model=16, hidden=32, norm="pre", seed=0)
    by_hand = list(_numpy_losses(start, data, cell))
    by_torch = list(_torch_losses(start, data, cell))
    tenth = max(1, len(by_hand) // 10)
    differences = np.abs(np.subtract(by_hand, by_torch))
    return {
        "numpy_loss": float(np.mean(by_hand[-tenth:])),
        "torch_loss": float(np.mean(by_torch[-tenth:])),
        "largest_difference": float(np.max(differences)),
        "losses": by_hand,
        "parameters": start.size()["parameters"],
    }


def _batches(data: Digits, cell: Cell) -> Iterator[NDArray[np.int64]]:
    if cell["optimiser"] == "gradient descent":
        while True:
            yield np.arange(len(data.y))
    yield from minibatches(len(data.y), cell["batch"], seed=0)


def _numpy_losses(start: OneLayerTransformer, data: Digits, cell: Cell) -> Iterator[float]:
    """Training loss of every step; the backward pass of equations/layer.py."""
    weights = {name: value.detach().numpy().copy() for name, value in start.state_dict().items()}
    rules: dict[str, Any] = {name: _rule(cell) for name in weights}
    batches = _batches(data, cell)
    for _ in range(cell["steps"]):
        rows = next(batches)
        tape = forward(start.config, weights, data.x[rows])
        probability = softmax(tape.out)
        label = np.eye(10)[data.y[rows]]
        # Eq (3), averaged; its derivative by the logits is the difference of the two distributions.
        yield float(-np.mean(np.log(probability[label > 0])))
        upstream = (probability - label) / len(rows)
        gradients = backward(start.config, weights, tape, upstream)
        for name in weights:
            weights[name] = rules[name].step(weights[name], gradients[name])


def _rule(cell: Cell) -> GradientDescent | Momentum | Adam:
    if cell["optimiser"] == "adam":
        return Adam(cell["rate"])
    if cell["optimiser"] == "momentum":
        return Momentum(cell["rate"])
    return GradientDescent(cell["rate"])


def _torch_losses(start: OneLayerTransformer, data: Digits, cell: Cell) -> Iterator[float]:
    model = OneLayerTransformer(start.config)
    model.load_state_dict(start.state_dict())
    momentum = 0.9 if cell["optimiser"] == "momentum" else 0.0
    optimiser: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=cell["rate"], momentum=momentum)
    if cell["optimiser"] == "adam":
        optimiser = torch.optim.Adam(model.parameters(), lr=cell["rate"])
    batches = _batches(data, cell)
    for _ in range(cell["steps"]):
        rows = next(batches)
        logits = model(torch.from_numpy(data.x[rows]))
        loss = F.cross_entropy(logits, torch.from_numpy(data.y[rows]))
        yield float(loss.detach())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    drawing = new_figure(7, 4.8)
    plot = drawing.subplots()
    for row, colour in zip(select(rows, method="numpy and torch"), SERIES, strict=False):
        plot.plot(row["losses"], color=colour, linewidth=1.2, label=f"{row['optimiser']}, rate {row['rate']}")
    plot.set_yscale("log")
    tidy(plot, x="step", y="cross-entropy of the batch", grid=True)
    drawing.suptitle("Digits, one layer trained by the hand-written NumPy backward", fontsize=NORMAL)
    outside_legend(plot)
    return drawing


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    both = select(rows, method="numpy and torch")
    worst = float(np.max([row["largest_difference"] for row in both]))
    best_first = sorted(both, key=lambda row: row["numpy_loss"])
    order = ", ".join(f"{row['optimiser']} {row['numpy_loss']:.3g}" for row in best_first)
    sentences = [
        f"the losses of NumPy and torch differ by at most {worst:.3g} at any step of any rule",
        f"loss at the end of {both[0]['steps']} steps, best first: {order}",
    ]
    for row in select(rows, method="classifier"):
        share = row["accuracy"]
        rows_seen = row["test_rows"]
        size = row["parameters"]
        sentences.append(f"one-layer classifier: {share:.2%} of {rows_seen} test digits with {size:,} parameters")
    return sentences


DIGITS = Study(
    "digits", "Does training by hand-written backward agree with torch, and how well does one layer read digits?",
    cells, measure, figure, findings,
)  # fmt: skip
