"""Ties between the keys of an axis: slopes and biases that few numbers fix.

Of M free keys 2 (M - 1) numbers matter: a line added to all logits cancels. Equally spaced slopes are one number, and
biases that are a parabola over the tokens one or two more (Gaussian heads); where the function is even or odd about
the middle of the axis, slopes and biases of mirrored tokens are the same number, and so are their values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onelayer.build.lookup.families import Array, Keys, bernstein, gaussians


@dataclass(frozen=True)
class Tie:
    """Keys (slopes, then biases) as a matrix (2M, n) times n numbers; ``parity`` of the values, 0 without one."""

    matrix: Array
    parity: int

    @property
    def numbers(self) -> int:
        """Numbers of keys and values that the tie leaves free."""
        keys = int(self.matrix.shape[1])
        tokens = len(self.matrix) // 2
        # Mirrored tokens share a value; the middle token of an odd number has one of its own if g is even, none if odd.
        values = {0: tokens, 1: (tokens + 1) // 2, -1: tokens // 2}
        return keys + values[self.parity]


def ties(size: int, parity: int) -> list[Tie]:
    """The ties of ``size`` tokens that suit a function of this parity, those of the fewest numbers first."""
    order = np.arange(size, dtype=np.float64)
    places: Array = (order - (size - 1) / 2)[:, None]
    spaced = _slopes(places)
    if parity:
        parabola = _biases(places**2)
        biases = _biases(_mirrored(size, 1))
    else:
        parabola = _biases(np.hstack([places, places**2]))
        # All but the first: a constant added to every bias changes no weight.
        biases = _biases(np.eye(size)[:, 1:])
    found = [np.hstack([spaced, parabola]), np.hstack([spaced, biases])]
    if parity:
        mirrored = _slopes(_mirrored(size, -1))
        found.append(np.hstack([mirrored, biases]))
    made = [Tie(matrix, parity) for matrix in found]
    return sorted(made, key=lambda tie: tie.numbers)


def regular(size: int) -> list[Keys]:
    """Equally spaced symmetric keys, from which tied ones descend."""
    keys = [bernstein(size, kappa) for kappa in (0.35, 0.5, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)]
    overlaps = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
    return keys + gaussians(size, overlaps, ghosts=(0.25, 1.0, 2.0, 3.0, 4.5))


def _slopes(columns: Array) -> Array:
    return np.vstack([columns, np.zeros_like(columns)])


def _biases(columns: Array) -> Array:
    return np.vstack([np.zeros_like(columns), columns])


def _mirrored(size: int, sign: int) -> Array:
    """A column for every pair of mirrored tokens, (size, n); biases are counted from those of the middle."""
    pairs = (size - 1) // 2 if sign > 0 else size // 2
    columns = np.eye(size)[:, :pairs]
    return columns + sign * columns[::-1]
