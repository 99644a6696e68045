"""Recurrent cells and layers of torch.nn on Taylor models, step after step; sequences have a fixed length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from onelayer.recurrence import Recurrence, unrolled
from onelayer.taylor.arithmetic import combine, mul, size_of
from onelayer.taylor.contraction import einsum_of
from onelayer.taylor.core import TaylorModel, constant
from onelayer.taylor.modules import kernel
from onelayer.taylor.registry import call, implements
from onelayer.taylor.rounding import executed, inflate

Cell = Callable[..., Any]


def _gates(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[TaylorModel, TaylorModel]:
    """The two affine maps of a cell, of the input and of the state."""
    like = x if isinstance(x, TaylorModel) else h
    of_x = call("linear", constant(x, like), w_ih, b_ih)
    of_h = call("linear", constant(h, like), w_hh, b_hh)
    return of_x, of_h


def _total(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> TaylorModel:
    """Both maps together, which a kernel may take as one sum of all products and biases, in any order."""
    total = combine(*_gates(x, h, w_ih, w_hh, b_ih, b_hh), 1)
    reach = inflate(_reach(x, w_ih, b_ih) + _reach(h, w_hh, b_hh))
    terms = w_ih.shape[-1] + w_hh.shape[-1] + 2
    total.rem = executed(total.rem, reach, terms, total.execution)
    return total


def _reach(x: Any, weight: Any, bias: Any) -> Tensor:
    """The sum of absolute values of an affine map, which bounds all its partial sums."""
    products = einsum_of("...i,oi->...o", size_of(x), size_of(weight))
    return products if bias is None else products + size_of(bias)


@implements("lstm_cell")
def lstm_cell(
    x: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[TaylorModel, TaylorModel]:
    """c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')."""
    h, c = hx
    total = _total(x, h, w_ih, w_hh, b_ih, b_hh)
    # In the order in which torch stores them.
    i, f, g, o = call("chunk", total, 4, -1)
    kept = mul(call("sigmoid", f), c)
    entered = mul(call("sigmoid", i), call("tanh", g))
    cell = combine(kept, entered, 1)
    size = cell.magnitude() + 1
    hidden = mul(call("sigmoid", o), call("tanh", cell))
    return kernel(hidden, total, size), kernel(cell, total, size)


@implements("gru_cell")
def gru_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> TaylorModel:
    """h' = (1 - z) n + z h with n = tanh(a_n + r b_n), r and z sigmoids."""
    of_x, of_h = _gates(x, hx, w_ih, w_hh, b_ih, b_hh)
    _, _, xn = call("chunk", of_x, 3, -1)
    _, _, hn = call("chunk", of_h, 3, -1)
    # The candidate takes its two maps apart, one of them times r.
    both = _total(x, hx, w_ih, w_hh, b_ih, b_hh)
    opened, kept, _ = call("chunk", both, 3, -1)
    r = call("sigmoid", opened)
    z = call("sigmoid", kept)
    n = call("tanh", combine(xn, mul(r, hn), 1))
    mixed = combine(n, mul(z, combine(hx, n, -1)), 1)  # n + z (h - n)
    return kernel(mixed, of_x, mixed.magnitude() + 2)


def _elman(name: str) -> Cell:
    """h' = g(W x + V h + b) for g = tanh or relu."""

    def cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> TaylorModel:
        total = _total(x, hx, w_ih, w_hh, b_ih, b_hh)
        return kernel(call(name, total), total, total.magnitude() + 1)

    return cell


rnn_tanh_cell = implements("rnn_tanh_cell")(_elman("tanh"))
rnn_relu_cell = implements("rnn_relu_cell")(_elman("relu"))


def _layer(cell: Cell) -> Cell:
    """A whole layer: the outputs at every time and the last states, as torch returns them."""

    def layer(
        x: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        how = Recurrence(has_biases, num_layers, dropout, train, bidirectional, batch_first)
        weights = how.weights(params, x.ndim)
        pairs = isinstance(hx, tuple | list)
        states = list(zip(*hx, strict=True)) if pairs else list(hx)
        steps, last = unrolled(cell, call("unbind", x, 1), states, weights)
        rows = list(zip(*last, strict=True)) if pairs else [last]
        return call("stack", steps, 1), *(call("stack", row, 0) for row in rows)

    return layer


lstm = implements("lstm")(_layer(lstm_cell))
gru = implements("gru")(_layer(gru_cell))
rnn_tanh = implements("rnn_tanh")(_layer(rnn_tanh_cell))
rnn_relu = implements("rnn_relu")(_layer(rnn_relu_cell))
