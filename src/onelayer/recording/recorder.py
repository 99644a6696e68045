"""Record a torch function as a formula: run it once on symbolic tensors and keep the scalar operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import onelayer.recording.attention
import onelayer.recording.modules
import onelayer.recording.network
import onelayer.recording.recurrent
import onelayer.recording.windowed  # noqa: F401  (all register the operations of torch.nn)
from onelayer.box import Box
from onelayer.errors import FormulaError, OnelayerError, UnsupportedOperation, told
from onelayer.ground import DEFAULT_DTYPE, GRADIENTS, another, pinned
from onelayer.language.formula import Formula
from onelayer.language.tree import Node, prune
from onelayer.recording.beside import need_same_way, points_of
from onelayer.recording.callables import met_in
from onelayer.recording.symbolic import Recording, Symbolic, lift

MAX_OPERATIONS = 200_000  # beyond, a proof by formula takes hours
# Points of the run that shows that each is treated alone.
BATCH = 3
# Operations beyond which that run would be slow, and is of two points.
LONG = 20_000
FORMAT = "it must return float64; give dtype=x.dtype where it makes tensors"
EMPTY = "f has no output; it must return one number or more for each point"
ALONE = "f must treat every point of a batch alone, as in x[..., 0] + x[..., 1]"


class TooLong(UnsupportedOperation):
    """A function of more scalar operations than a formula may have."""


@pinned()
def record(
    f: Callable[..., Any],
    input_shape: Sequence[int],
    *,
    box: Box | None = None,
    limit: int = MAX_OPERATIONS,
    of_tensors: bool = True,
    narrower: bool = False,
) -> Formula:
    """The formula that ``f`` computes on points of ``input_shape``, with every float constant exactly that float.

    ``f`` maps (B, *input_shape) to (B, *output_shape) by torch functions. Python control flow on values, conversion to
    NumPy, casts and operations outside the formula language raise UnsupportedOperation; so does a function of more than
    ``limit`` scalar operations. Where torch's function has a case distinction, ``box`` is where it is recorded. What is
    no torch code (not ``of_tensors``) runs on recorded values alone. ``narrower``: it was given for another format.

    Lemma: f is run on one point and on a batch of three with variables of their own. If each row of the second result
    is the formula of the first in the variables of its own point, no operation that was recorded mixes points. One more
    run is under other settings of torch, so that f is one function whatever they are where it is called.
    """
    shape = tuple(input_shape)
    if isinstance(f, Formula):
        return f.shaped(shape, f.output_shape)
    # Once as it is, once under other settings, and once in a batch: three recordings, all compared node by node.
    chance = [_chance()]
    points = points_of(box, BATCH, shape)
    alone = partial(Recording, limit=limit, batch=1, shape=shape, box=box, narrower=narrower)
    first = alone(points=points[:1])
    found = _called(f, first)
    (formula,) = _rows(first, found)
    with another(DEFAULT_DTYPE, GRADIENTS):
        chance.append(_chance())
        (again,) = _run(f, alone())
    chance.append(_chance())
    if again != formula:
        raise OnelayerError(
            "f is another formula under another default dtype, with gradients recorded, or each time it is called; "
            "give dtype=x.dtype where it makes tensors, and nothing random"
        )
    # Each call moves the generators on: one that seeds them leaves them where the call before did.
    if chance[0] != chance[1] != chance[2]:
        raise OnelayerError("f draws random numbers; what it computes must depend on x alone")
    if of_tensors:
        need_same_way(first, f, found)
    # Two points tell as much where three would be slow.
    count = BATCH if len(formula.nodes) <= LONG else 2
    batch = Recording(limit=count * limit, batch=count, shape=shape, box=box, points=points[:count])
    if any(row != formula for row in _run(f, batch)):
        raise OnelayerError(f"in a batch of {count} points f is another function than at one; {ALONE}")
    return formula


@pinned()
def as_executed(f: Callable[..., Any], input_shape: Sequence[int], box: Box) -> Formula:
    """What ``f`` computes operation by operation, quotients 0/0 included: its rounding is that of its values."""
    tape = Recording(limit=MAX_OPERATIONS, batch=1, shape=tuple(input_shape), box=box, cancels=False)
    return _run(f, tape)[0]


def _called(f: Callable[..., Any], tape: Recording) -> Any:
    """f of the recorded points; whatever it raises becomes one line of ours."""
    try:
        found = f(tape.x)
        # On numbers nothing is refused: code that catches it computes something else there.
        if tape.refused is not None:
            raise tape.refused
        return found
    except FormulaError as error:
        # Too long is no mistake of f: its code can still be run on enclosures.
        if len(tape.nodes) >= tape.limit:
            raise TooLong("recording f", str(error)) from error
        raise UnsupportedOperation("recording f", str(error)) from error
    except UnsupportedOperation as error:
        raise UnsupportedOperation(error.operation, error.hint + met_in(error)) from error
    except OnelayerError:
        raise
    except Exception as error:
        shape = (tape.batch, *tape.shape)
        failure = f"{told(error)}{met_in(error)}"
        raise OnelayerError(f"f failed on a batch of shape {shape} ({failure})") from error


def _run(f: Callable[..., Any], tape: Recording) -> list[Formula]:
    """The formulas of the rows of f's result for a batch of points."""
    return _rows(tape, _called(f, tape))


def _rows(tape: Recording, result: Any) -> list[Formula]:
    """The formulas of the rows of a result."""
    if isinstance(result, Tensor):  # f does not depend on x
        if result.dtype != torch.float64:
            raise OnelayerError(f"f returned {result.dtype} for float64 points; {FORMAT}")
        result = lift(tape, result)
    if not isinstance(result, Symbolic):
        raise OnelayerError(f"f returned {type(result).__name__}; it must return one real floating tensor")
    if result.ndim == 0 or result.shape[0] != tape.batch:
        raise OnelayerError(
            f"f turned a batch of {tape.batch} points into shape {tuple(result.shape)}; "
            "it must keep the batch dimension"
        )
    if 0 in result.shape:
        raise OnelayerError(EMPTY)
    rows = lift(tape, result).ids.reshape(tape.batch, -1).tolist()
    outputs = tuple(result.shape[1:])
    return [_row(tape, at, ids, outputs) for at, ids in enumerate(rows)]


def _chance() -> tuple[bytes, ...]:
    """Where the random numbers of torch, Python and NumPy stand that code draws from without a generator of its own."""
    name, keys, *rest = np.random.get_state(legacy=True)
    stands = (torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode(), np.asarray(keys).tobytes())
    return (*stands, f"{name} {rest}".encode())


def _row(tape: Recording, at: int, ids: Sequence[int], output_shape: tuple[int, ...]) -> Formula:
    """The formula of row ``at`` in the variables of its own point; any other variable is an error."""
    if any(position < 0 for position in ids):
        raise UnsupportedOperation("-inf", "an infinite value is no value of f")
    size = torch.Size(tape.shape).numel()
    nodes, outputs = prune(tape.nodes, ids)
    for node in nodes:
        if node.op == "var" and int(node.value) // size != at:
            other = int(node.value) // size + 1
            raise OnelayerError(f"the value of f at point {at + 1} of a batch depends on point {other}; {ALONE}")
    # In a batch every point has variables of its own; a formula is written in those of one point.
    own = tuple(Node("var", (), int(node.value) % size) if node.op == "var" else node for node in nodes)
    return Formula(own, outputs, tape.shape, output_shape)
