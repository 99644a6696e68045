"""How the recurrent cells and layers of torch.nn are written in the formula language, step after step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from onelayer.recording.algebra import add, mul, sub, unary
from onelayer.recording.dispatch import operation
from onelayer.recording.network import linear
from onelayer.recording.symbolic import Recording, Symbolic, lift
from onelayer.recurrence import Recurrence, unrolled

Cell = Callable[..., Any]


def _parts(tape: Recording, values: Symbolic, count: int) -> list[Symbolic]:
    return [Symbolic(tape, part) for part in values.ids.chunk(count, -1)]


def _gates(tape: Recording, x: Any, h: Any, weights: Sequence[Any]) -> Symbolic:
    """W x + V h with both biases."""
    w_ih, w_hh, b_ih, b_hh = weights
    return add(tape, linear(tape, x, w_ih, b_ih), linear(tape, h, w_hh, b_hh))


@operation("lstm_cell")
def lstm_cell(
    tape: Recording, input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Symbolic, Symbolic]:
    """c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')"""
    h, c = hx
    total = _gates(tape, input, h, (w_ih, w_hh, b_ih, b_hh))
    i, f, g, o = _parts(tape, total, 4)
    kept = mul(tape, unary(tape, "sigmoid", f), c)
    new = mul(tape, unary(tape, "sigmoid", i), unary(tape, "tanh", g))
    cell = add(tape, kept, new)
    shown = mul(tape, unary(tape, "sigmoid", o), unary(tape, "tanh", cell))
    return shown, cell


@operation("gru_cell")
def gru_cell(
    tape: Recording, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Symbolic:
    """h' = (1 - z) n + z h with n = tanh(a_n + r b_n), r and z sigmoids"""
    xr, xz, xn = _parts(tape, linear(tape, input, w_ih, b_ih), 3)
    hr, hz, hn = _parts(tape, linear(tape, hx, w_hh, b_hh), 3)
    r = unary(tape, "sigmoid", add(tape, xr, hr))
    z = unary(tape, "sigmoid", add(tape, xz, hz))
    n = unary(tape, "tanh", add(tape, xn, mul(tape, r, hn)))
    # (1 - z) n + z h with one product less.
    return add(tape, n, mul(tape, z, sub(tape, hx, n)))


def _elman(name: str) -> Cell:
    """h' = g(W x + V h + b) for g = tanh or relu."""

    def cell(
        tape: Recording, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> Symbolic:
        return unary(tape, name, _gates(tape, input, hx, (w_ih, w_hh, b_ih, b_hh)))

    return cell


rnn_tanh_cell = operation("rnn_tanh_cell")(_elman("tanh"))
rnn_relu_cell = operation("rnn_relu_cell")(_elman("relu"))


def _layer(cell: Cell) -> Cell:
    """A whole layer: the outputs at every time and the last states, as torch returns them."""

    def layer(
        tape: Recording,
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Symbolic, ...]:
        x = lift(tape, input)
        how = Recurrence(has_biases, num_layers, dropout, train, bidirectional, batch_first)
        weights = how.weights(params, x.ndim)
        pairs = isinstance(hx, tuple | list)
        # An LSTM has two states a layer, h and c, which travel together.
        given = [_rows(tape, part, 0) for part in (hx if pairs else [hx])]
        states = list(zip(*given, strict=True)) if pairs else given[0]
        steps, last = unrolled(partial(cell, tape), _rows(tape, x, 1), states, weights)
        rows = list(zip(*last, strict=True)) if pairs else [last]
        final = [_stacked(tape, row, 0) for row in rows]
        return _stacked(tape, steps, 1), *final

    return layer


def _rows(tape: Recording, values: Any, dim: int) -> list[Symbolic]:
    parts = lift(tape, values).ids.unbind(dim)
    return [Symbolic(tape, part) for part in parts]


def _stacked(tape: Recording, parts: Sequence[Symbolic], dim: int) -> Symbolic:
    return Symbolic(tape, torch.stack([part.ids for part in parts], dim))


lstm = operation("lstm")(_layer(lstm_cell))
gru = operation("gru")(_layer(gru_cell))
rnn_tanh = operation("rnn_tanh")(_layer(rnn_tanh_cell))
rnn_relu = operation("rnn_relu")(_layer(rnn_relu_cell))
