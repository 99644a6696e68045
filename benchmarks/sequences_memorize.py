"""Memorised tables: recall, margin, stored numbers, memory and time, and training beside them; part of sequences.py."""

from __future__ import annotations

import resource
import time

import numpy as np
import report
import torch
from numpy.typing import NDArray

from onelayer.build.memorize import memorize
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

GIB = 2**30


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64], str]:
    """scikit-learn's digits if it is installed, else images of the same shape; random labels in any case."""
    labels = np.random.default_rng(0).integers(0, 10, 1797)
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return np.round(np.random.default_rng(1).random((1797, 64)) ** 2 * 16), labels, "like digits, random labels"
    return load_digits().data, labels, "digits, random labels"


def recall(name: str, x: NDArray[np.float64], y: NDArray, recipe: str | None, device: str) -> report.Row:
    """One table; the peak is that of the whole process so far, so tables come in order of size."""
    begun = time.process_time()
    made = memorize(x, y, recipe=recipe, device=device)
    spent = time.process_time() - begun
    found = made.recall_report
    assert found is not None
    row = {
        "table": name,
        "recipe": found.recipe,
        "rows": found.rows,
        "recalled": found.recalled,
        "status": made.certificate.status,
        "proved": found.error,
        "measured": found.measured,
        "margin": found.margin if found.margin is not None else "",
        "numbers": found.stored_numbers,
        "at least": found.lower_bound,
        "lipschitz": found.lipschitz,
        "seconds": found.seconds,
        "processor seconds": spent,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
    }
    if device != "cpu":
        row["peak GiB on the device"] = torch.cuda.max_memory_allocated() / GIB
    return row


def tables(full: bool, device: str) -> list[report.Row]:
    generator = np.random.default_rng(2)
    x, y, name = digits()
    rows = [recall(name, x, y, recipe, device) for recipe in ("relu", "softmax")]
    for columns in (1, 4):
        reals = generator.random((2000, columns)), generator.random(2000)
        rows += [recall(f"2,000 reals, {columns} columns", *reals, recipe, device) for recipe in ("relu", "softmax")]
    if full:
        count = 100_000 if device == "cpu" else 1_000_000
        large = generator.random((count, 16)), generator.integers(0, 10, count)
        rows.append(recall(f"{count:,} rows, 16 columns, labels", *large, None, device))
    return rows


def digits_lost(full: bool) -> list[report.Row]:
    """Both recipes against the number of rows: the relu recipe loses its digits to cancellation."""
    rows = []
    for count in (100, 300, 1000, 3000, 10_000, *([30_000] if full else [])):
        generator = np.random.default_rng(count)
        x, y = generator.random((count, 16)), generator.random(count)
        row: dict[str, object] = {"rows": count}
        for recipe in ("relu", "softmax") if count <= 10_000 else ("relu",):
            found = memorize(x, y, recipe=recipe).recall_report
            assert found is not None
            row |= {f"{recipe} proved": found.error, f"{recipe} measured": found.measured}
        rows.append(row)
    return rows


def trained(seconds: float, device: str) -> list[report.Row]:
    """The trained alternative: as many memory tokens from random keys and values, Adam on all rows at once."""
    x, y, name = digits()
    points, labels = torch.from_numpy(x).float().to(device), torch.from_numpy(y).to(device)
    generator = torch.Generator().manual_seed(0)
    memory = PlainMemory(torch.randn(1797, 65, generator=generator) / 8, torch.randn(1797, 10, generator=generator))
    layer = OneLayerTransformer.packed((64,), (10,), [memory], d_model=64, dtype=torch.float32).to(device)
    layer.requires_grad_(True)
    optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
    start, steps, right, loss = time.perf_counter(), 0, 0.0, torch.zeros(())
    while time.perf_counter() - start < seconds and right < 1:
        logits = layer((points - 8) / 8)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        right = float((logits.argmax(-1) == labels).float().mean())
    numbers = sum(parameter.numel() for parameter in layer.parameters())
    row = {"table": name, "layer": "trained", "numbers": numbers, "share recalled": right, "loss": float(loss.detach())}
    return [row | {"steps": steps, "seconds": time.perf_counter() - start}]


def run(full: bool, device: str) -> None:
    mark = "" if device == "cpu" else f"_{device}"
    report.write(f"sequences_memorize{mark}", tables(full, device), device=device)
    if device == "cpu":
        report.write("sequences_memorize_digits_lost", digits_lost(full))
    report.write(f"sequences_memorize_trained{mark}", trained(120.0 if full else 40.0, device), device=device)
