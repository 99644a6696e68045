"""A target taken apart into inner and outer functions, where it is of that form: what a composition can be built of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from onelayer.box import Box
from onelayer.build.nested.apart import Apart, take_apart
from onelayer.build.nested.gates import take_apart_widely
from onelayer.build.nested.spans import Spans
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.operations import OPERATIONS
from onelayer.language.tree import Tape
from onelayer.lemmas.univariate import at
from onelayer.recording.target import Target

# Of an axis, to predict its units without fitting it.
PREDICTION_POINTS = 513
# Points at which outer functions are looked at before anything is built.
SIGHTED = 256
# Of an outer function: beyond, its ridges are too many.
MOST_SUMS = 3


@dataclass(frozen=True)
class Composer:
    """A target taken apart, ready to be built for any eps."""

    target: Target
    box: Box
    apart: Apart
    dtype: torch.dtype
    seed: int = 0
    max_units: int = 20_000
    max_tokens: int = 20_000

    @property
    def rank(self) -> int:
        """The largest number of sums in one outer function."""
        return self.apart.rank

    @property
    def multiplies(self) -> bool:
        """Whether an inner function is a product, which takes a grid of tokens."""
        return self.apart.multiplies

    def predicted_units(self, eps: float) -> float:
        """About how many hidden units outer functions of one sum take; others are not predicted.

        N pieces err like (integral of sqrt|g''|)^2 / (16 N^2); groups share eps equally.
        """
        groups = [group for group in self.apart.groups if len(group.sums) == 1]
        spans = Spans(self.apart, self.box)
        total = 0.0
        for group in groups:
            low, high = spans.of_sum(group.sums[0])
            s = np.linspace(low, high, PREDICTION_POINTS)
            bend = np.abs(np.diff(at(group.outer, s), 2))
            # A chord over a step h errs by h^2 |g''| / 8: pieces in number follow the root of the bend.
            roots = np.sqrt(np.where(np.isfinite(bend), bend, 0.0))
            total += float(roots.sum()) / 4 * math.sqrt(len(groups) / eps)
        return total


def composer(
    target: Target, box: Box, dtype: torch.dtype, seed: int = 0, *, max_tokens: int = 20_000
) -> Composer | None:
    """The target as inner and outer functions; None when it is not of that form.

    Inner functions of one direction each are preferred, unless products of them leave outer functions of fewer sums.
    """
    if target.formula is None or target.lipschitz is not None:
        return None
    formula = target.formula.shaped((box.dim,), target.formula.output_shape)
    found: list[Apart] = []
    for read in (_taken_apart, take_apart_widely):
        try:
            found += read(formula, box)
        except OnelayerError:
            continue
    for apart in sorted(found, key=lambda one: max(1, one.rank)):
        groups = tuple(replace(group, outer=_continued(group.outer)) for group in apart.groups)
        continued = replace(apart, groups=groups)
        made = Composer(target, box, continued, dtype, seed, max_tokens=max_tokens)
        if apart.rank <= MOST_SUMS and _has_values(made):
            return made
    return None


def _taken_apart(formula: Formula, box: Box) -> list[Apart]:
    return [take_apart(formula, box)]


def _has_values(made: Composer) -> bool:
    """Whether outer functions have values where their sums may be, which is more than where they are together."""
    try:
        spans = Spans(made.apart, made.box)
        for group in made.apart.groups:
            sides = Box([spans.of_sum(part) for part in group.sums])
            points = torch.cat([sides.corners(64), sides.sample(SIGHTED)])
            if not bool(torch.isfinite(group.outer(points)).all()):
                return False
    except OnelayerError:
        return False
    return True


def _continued(formula: Formula) -> Formula:
    """The formula with asin and its like continued by constants: a sum may leave their domain by its rounding."""
    ending = {name for name, row in OPERATIONS.items() if row.within_one}
    if not any(node.op in ending for node in formula.nodes):
        return formula
    tape = Tape()
    places: list[int] = []
    for node in formula.nodes:
        args = [places[at] for at in node.args]
        if node.op in ending:
            above = tape.add("max", args[0], tape.number(-1.0))
            args = [tape.add("min", above, tape.number(1.0))]
        places.append(tape.add(node.op, *args, value=node.value))
    return Formula.build(tape.nodes, [places[at] for at in formula.outputs], (formula.dim,))
