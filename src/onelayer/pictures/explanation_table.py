"""The table of an explanation: one block per head, one row per token, then hidden units and the affine part."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from onelayer.ground import pinned
from onelayer.pictures.explanation import ROWS, ExplainedAxis, ExplainedHead, ExplainedUnit, Explanation, linear_text

WIDE = 110  # letters of a line of prose above the tables
AXIS = ("token", "largest on", "peak", "weight")


@dataclass(frozen=True)
class Block:
    """A title and a table of texts below it, which may be empty; ``left`` rows are not shown."""

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left: int = 0

    def __str__(self) -> str:
        if not self.rows:
            if not self.header:
                return textwrap.fill(self.title, WIDE)
            return self.title
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self.title]
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            text.append(f"  {'  '.join(cells)}".rstrip())
        if self.left:
            text.append(f"  ... and {self.left:,} more")
        return "\n".join(text)


def table(explanation: Explanation) -> str:
    """Plain text, at most ROWS rows per block; the JSON form has all of them."""
    return "\n\n".join("\n".join(map(str, group)) for group in _groups(explanation))


def blocks(explanation: Explanation) -> list[dict[str, Any]]:
    """The same as plain data, for a page that makes its own tables."""
    return [asdict(block) for group in _groups(explanation) for block in group]


@pinned()
def _groups(explanation: Explanation) -> list[list[Block]]:
    """Blocks that belong together: the algorithm, every head, the units, the affine part."""
    groups = [[Block(explanation.algorithm)] if explanation.algorithm else []]
    groups += _heads(explanation.heads)
    groups += [_units(explanation.units), _affine(explanation)]
    return [group for group in groups if group]


def _heads(heads: Sequence[ExplainedHead]) -> list[list[Block]]:
    """A block per head with memory tokens, and one list of those that look at the sequence alone."""
    alone = [(str(head.head), head.purpose) for head in heads if not head.values]
    groups = [_head(head) for head in heads if head.values]
    if alone:
        groups.append([_block("heads over the tokens", ("head", "purpose"), alone)])
    return groups


def _units(units: Sequence[ExplainedUnit]) -> list[Block]:
    rows = [(str(unit.unit), unit.purpose, _numbers(unit.coefficient)) for unit in units]
    if rows:
        return [_block("hidden units", ("unit", "purpose", "adds"), rows)]
    return []


def _affine(explanation: Explanation) -> list[Block]:
    matrix = torch.tensor(explanation.matrix)
    if not (matrix.any() or any(explanation.offset)):
        return []
    names = explanation.box.variables
    outputs = zip(matrix, explanation.offset, strict=True)
    lines = [linear_text(row, offset, names) for row, offset in outputs]
    return [Block("affine part: " + "; ".join(lines))]


def _head(head: ExplainedHead) -> list[Block]:
    values = torch.tensor(head.values)  # (M_1, ..., M_r, K)
    tokens = values.shape[:-1]
    many = "token" if tuple(tokens) == (1,) else "tokens"
    size = " x ".join(map(str, tokens))
    title = f"head {head.head}: {head.purpose}, {size} {many}"
    flat = values.flatten(0, -2)
    if len(head.axes) == 1:
        tokens_and_values = zip(_axis_rows(head.axes[0]), head.values, strict=True)
        rows = [(*row, _numbers(value)) for row, value in tokens_and_values]
        return [_block(title, (*AXIS, "value"), rows)]
    if head.axes:
        # The values are a table over all axes, too long for a page: only their range is told.
        along = [_block(f"axis {axis.reads}", AXIS, _axis_rows(axis)) for axis in head.axes]
        values_range = f"values from {float(flat.min()):.4g} to {float(flat.max()):.4g}"
        return [Block(title), *along, Block(values_range)]
    scattered: list[tuple[str, ...]] = []
    for (point, weight), value in zip(head.peaks, flat.tolist(), strict=True):
        row = (str(len(scattered)), f"({_numbers(point)})", f"{weight:.3f}", _numbers(value))
        scattered.append(row)
    return [_block(title, ("token", "peak (sampled)", "weight", "value"), scattered)]


def _axis_rows(axis: ExplainedAxis) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    scale = axis.range[1] - axis.range[0] or 1.0
    for m, token in enumerate(axis.tokens):
        ends = () if token.region is None else token.region
        # An end of 6e-13 on [-1, 1] is written as 0, and never as -0.
        rounded = [round(end / scale, 9) * scale + 0.0 for end in ends]
        shown = [f"{end:.4g}" for end in rounded]
        region = f"[{', '.join(shown)}]" if shown else "nowhere"
        rows.append((str(m), region, f"{token.peak:.4g}", f"{token.weight:.3f}"))
    return rows


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _block(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Block:
    left = max(len(rows) - ROWS, 0)
    return Block(title, header, tuple(rows[:ROWS]), left)
