"""Recurrent layers of torch.nn, step after step, whatever their numbers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onelayer.errors import UnsupportedOperation

ALIKE = "use batch_first=True, one direction, eval mode"  # what a recurrent layer over points is here


@dataclass(frozen=True)
class Recurrence:
    """The arguments of torch.lstm and its like that say how a layer runs."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    def weights(self, params: Sequence[Any], ndim: int) -> list[Sequence[Any]]:
        """Those of each layer, for inputs (points, times, features); UnsupportedOperation for a layer of another kind.

        A point is one sequence, so its times come second.
        """
        random = self.train and self.dropout
        if self.bidirectional or not self.batch_first or ndim != 3 or random:
            raise UnsupportedOperation("a recurrent layer of this kind", ALIKE)
        # Weights for the input and for the state, and a bias for each of them.
        each = 4 if self.has_biases else 2
        if len(params) != each * self.num_layers:
            raise UnsupportedOperation("a recurrent layer with projections", "use proj_size=0")
        return [params[at : at + each] for at in range(0, len(params), each)]


def unrolled(
    cell: Callable[..., Any], steps: Sequence[Any], states: Sequence[Any], weights: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[Any]]:
    """The outputs of the last layer at every time, and the last state of every layer; an LSTM has pairs of them."""
    # The outputs of one layer are the inputs of the next, and take their places.
    outputs = list(steps)
    last = []
    for state, own in zip(states, weights, strict=True):
        for time, given in enumerate(outputs):
            state = cell(given, state, *own)
            outputs[time] = state[0] if isinstance(state, tuple) else state
        last.append(state)
    return outputs, last
