"""Formula: a function of D real variables as a syntax tree, read from text or recorded from a callable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from onelayer.errors import FormulaError, MisleadingText, OnelayerError
from onelayer.language.evaluate import evaluate
from onelayer.language.lexemes import MAX_CHARACTERS
from onelayer.language.operations import operation
from onelayer.language.parser import Parser
from onelayer.language.text import write
from onelayer.language.tree import LEAVES, Node, prune
from onelayer.names import as_seen

__all__ = ["Formula", "Node", "parse"]


@dataclass(frozen=True)
class Formula:
    """f: R^D -> R^K. ``nodes`` list every operation after its arguments; ``outputs`` are the positions of the K values.

    Variables number the coordinates of a point of ``input_shape`` in row-major order; the K outputs fill
    ``output_shape`` likewise, () for a single number. ``formula(x)`` maps (..., *input_shape) to (..., *output_shape).
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if math.prod(self.output_shape) != len(self.outputs):
            raise FormulaError(f"{len(self.outputs)} outputs do not fill the shape {self.output_shape}")
        numbers = (int(node.value) + 1 for node in self.nodes if node.op == "var")
        needed = max(numbers, default=0)
        if needed > self.dim:
            raise FormulaError(f"the formula uses x{needed} but the input shape {self.input_shape} has {self.dim}")

    @classmethod
    def build(
        cls, nodes: Sequence[Node], outputs: Sequence[int], input_shape: Sequence[int], output_shape: Sequence[int] = ()
    ) -> Formula:
        """A formula of the used nodes in canonical order, so that functions written alike compare equal."""
        kept, places = prune(nodes, outputs)
        return cls(kept, places, tuple(input_shape), tuple(output_shape))

    @property
    def dim(self) -> int:
        """Number of real variables D."""
        return math.prod(self.input_shape)

    @property
    def kinked(self) -> bool:
        """Whether any operation may bend."""
        inner = (node for node in self.nodes if node.op not in LEAVES)
        return any(operation(node.op, node.value).kink for node in inner)

    def shaped(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> Formula:
        """The same formula for points and values of other shapes with the same number of entries."""
        if math.prod(input_shape) != self.dim:
            raise OnelayerError(f"a formula of {self.dim} variables does not fit points of shape {tuple(input_shape)}")
        return replace(self, input_shape=tuple(input_shape), output_shape=tuple(output_shape))

    def __call__(self, x: Any) -> Any:
        event = len(self.input_shape)
        if tuple(x.shape[x.ndim - event :]) != self.input_shape:
            raise OnelayerError(f"points of shape {tuple(x.shape)} given; the last axes must be {self.input_shape}")
        batch = tuple(x.shape[: x.ndim - event])
        points = x if event == 1 else x.reshape(*batch, self.dim)
        values = evaluate(self.nodes, self.outputs, points)
        if self.output_shape == ():
            return values[0]
        stacked = torch.stack(values, dim=-1)
        if len(self.output_shape) == 1:
            return stacked
        return stacked.reshape(*batch, *self.output_shape)

    def text(self, names: Sequence[str] = ()) -> str:
        """The formula in text, with names for its variables; x1 ... xD without."""
        return write(self.nodes, self.outputs, names)

    def __str__(self) -> str:
        return self.text()


def parse(text: str, dim: int | None = None, *, limit: int = MAX_CHARACTERS, names: Sequence[str] = ()) -> Formula:
    """Read formula text. ``dim`` is D; when None it is the largest variable that occurs (at least 1).

    ``names`` are those of the variables in their order, beside x1 ... xD.

    A decimal literal is the float64 nearest to it; ``pi`` and ``e`` are the real numbers. Text longer than ``limit``
    characters is refused, and so is text that reads otherwise than it looks: in which a Cyrillic letter makes a name of
    its own of what looks like x1. Errors name the column.
    """
    found = _parsed(text, dim, limit, names)
    looks = as_seen(text), [as_seen(name) for name in names]
    if looks != (text, list(names)) and not _same(found, *looks, limit):
        raise MisleadingText("letters of one alphabet stand for those of another; write each name in one alphabet")
    return found


def _same(found: Formula, text: str, names: Sequence[str], limit: int) -> bool:
    """Whether the text in other letters is the same formula."""
    if len(set(names)) < len(names):
        return False
    try:
        other = _parsed(text, found.dim, limit, names)
    except FormulaError:
        return False
    return (found.nodes, found.outputs) == (other.nodes, other.outputs)


def _parsed(text: str, dim: int | None, limit: int, names: Sequence[str]) -> Formula:
    """The formula of a text, whatever it looks like."""
    parser = Parser(text, dim, limit, names)
    outputs = parser.statements()
    # A formula of x3 alone is one of three variables; a constant is one of x1.
    count = dim if dim is not None else 1 + max(parser.used, default=0)
    if count < 1:
        raise FormulaError("a function needs at least one variable")
    shape = () if len(outputs) == 1 else (len(outputs),)
    return Formula.build(parser.tape.nodes, outputs, (count,), shape)
