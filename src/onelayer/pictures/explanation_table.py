"""The table of an explanation: one block per head, one row per token, then hidden units and the affine part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import torch

from onelayer.pictures.explanation import ROWS, ExplainedAxis, ExplainedHead, ExplainedUnit, Explanation, linear_text

WIDE = 110  # letters of a line of prose above the tables


def table(explanation: Explanation) -> str:
    """Plain text, at most ROWS rows per block; the JSON form has all of them."""
    blocks = [
        textwrap.fill(explanation.algorithm, WIDE),
        *_heads(explanation.heads),
        _units(explanation.units),
        _affine(explanation),
    ]
    return "\n\n".join(block for block in blocks if block)


def _heads(heads: Sequence[ExplainedHead]) -> list[str]:
    """A block per head with memory tokens, and one list of those that look at the sequence alone."""
    alone = [(str(head.head), head.purpose) for head in heads if not head.values]
    blocks = [_head(head) for head in heads if head.values]
    if alone:
        blocks.append(_block("heads over the tokens", ("head", "purpose"), alone[:ROWS], len(alone) - ROWS))
    return blocks


def _units(units: Sequence[ExplainedUnit]) -> str:
    rows = [(str(unit.unit), unit.purpose, _numbers(unit.coefficient)) for unit in units[:ROWS]]
    return _block("hidden units", ("unit", "purpose", "adds"), rows, len(units) - ROWS) if rows else ""


def _affine(explanation: Explanation) -> str:
    matrix = torch.tensor(explanation.matrix)
    if not (matrix.any() or any(explanation.offset)):
        return ""
    names = explanation.box.variables
    lines = [linear_text(row, offset, names) for row, offset in zip(matrix, explanation.offset, strict=True)]
    return "affine part: " + "; ".join(lines)


def _head(head: ExplainedHead) -> str:
    tokens = torch.tensor(head.values).shape[:-1] if head.values else ()
    title = f"head {head.head}: {head.purpose}" + (f", {' x '.join(map(str, tokens))} tokens" if tokens else "")
    if len(head.axes) == 1:
        rows = [(*row, _numbers(value)) for row, value in zip(_axis_rows(head.axes[0]), head.values, strict=True)]
        return _block(title, ("token", "largest on", "peak", "weight", "value"), rows[:ROWS], len(rows) - ROWS)
    if head.axes:
        parts = [title]
        for axis in head.axes:
            rows = _axis_rows(axis)
            shown = _block(
                f"axis {axis.reads}", ("token", "largest on", "peak", "weight"), rows[:ROWS], len(rows) - ROWS
            )
            parts.append(shown)
        flat = torch.tensor(head.values).flatten(0, -2)
        parts.append(f"values from {float(flat.min()):.4g} to {float(flat.max()):.4g}")
        return "\n".join(parts)
    flat_values = torch.tensor(head.values).flatten(0, -2).tolist() if head.values else []
    scattered = [
        (str(m), f"({_numbers(point)})", f"{weight:.3f}", _numbers(value))
        for m, ((point, weight), value) in enumerate(zip(head.peaks, flat_values, strict=True))
    ]
    return _block(title, ("token", "peak (sampled)", "weight", "value"), scattered[:ROWS], len(scattered) - ROWS)


def _axis_rows(axis: ExplainedAxis) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for m, token in enumerate(axis.tokens):
        region = "nowhere" if token.region is None else f"[{token.region[0]:.4g}, {token.region[1]:.4g}]"
        rows.append((str(m), region, f"{token.peak:.4g}", f"{token.weight:.3f}"))
    return rows


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _block(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], left: int) -> str:
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    lines = [title]
    for row in [header, *rows]:
        lines.append("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if left > 0:
        lines.append(f"  ... and {left:,} more")
    return "\n".join(lines) if rows else title
