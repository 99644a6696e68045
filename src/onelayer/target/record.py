"""Record a torch function as a formula: run it once on symbolic tensors and keep the scalar operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import onelayer.target.network  # noqa: F401  (registers the operations of torch.nn)
from onelayer.errors import FormulaError, OnelayerError, UnsupportedOperation
from onelayer.target.formula import Formula
from onelayer.target.symbolic import Symbolic
from onelayer.target.tree import Tape

MAX_OPERATIONS = 200_000


def record(f: Callable[..., Any], input_shape: Sequence[int], *, limit: int = MAX_OPERATIONS) -> Formula:
    """The formula that ``f`` computes on points of ``input_shape``, with every float constant exactly that float.

    ``f`` maps (B, *input_shape) to (B, *output_shape) by torch functions. Python control flow on values, conversion to
    NumPy and operations outside the formula language raise UnsupportedOperation; so does a function of more than
    ``limit`` scalar operations.
    """
    if isinstance(f, Formula):
        return f.shaped(input_shape, f.output_shape)
    tape = Tape(limit=limit)
    tape.number(0)
    tape.number(1)
    count = int(torch.Size(input_shape).numel())
    ids = torch.tensor([tape.variable(at) for at in range(count)]).reshape(1, *input_shape)
    try:
        with torch.no_grad():
            result = f(Symbolic(tape, ids))
    except FormulaError as error:
        raise UnsupportedOperation("recording f", str(error)) from error
    except OnelayerError:
        raise
    except Exception as error:
        raise UnsupportedOperation("recording f", f"{type(error).__name__}: {_first_line(error)}") from error
    if isinstance(result, (tuple, list)) and len(result) == 1:
        result = result[0]
    if isinstance(result, Tensor):  # f does not depend on x
        result = Symbolic(tape, torch.tensor([tape.number(v) for v in result.flatten().tolist()]).reshape(result.shape))
    if not isinstance(result, Symbolic) or result.ndim == 0 or result.shape[0] != 1:
        shape = tuple(result.shape) if isinstance(result, Symbolic) else type(result).__name__
        raise UnsupportedOperation("recording f", f"a batch of one point gave {shape}; f must keep the batch dimension")
    return Formula.build(tape.nodes, result.ids.flatten().tolist(), tuple(input_shape), tuple(result.shape[1:]))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:200]
