"""The forward pass of T as a proof may use it: on private copies, one tensor out, or one line that says why not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.errors import ModelAssumptionError, OnelayerError, UnsupportedOperation, refusals_stand, told
from onelayer.proof.constants import Constants
from onelayer.proof.fit import converted, copied, moved, refuse_unfit
from onelayer.proof.own import is_own_layer
from onelayer.proof.stepwise import Accompanied, side_of
from onelayer.taylor.core import Space, TaylorModel, constant
from onelayer.taylor.dual import Dual, seeded

Forward = Callable[[Any], Any]


def settled(model: nn.Module, device: torch.device, execution: torch.dtype | None) -> nn.Module:
    """A copy of the module in eval mode on this device: what it keeps for later while it runs is not for its owner.

    A layer of this package keeps nothing; it and what cannot be copied are taken themselves where all is right.
    """
    refuse_unfit(model)
    if converted(model, execution):
        return moved(model, device, execution or torch.float64)
    elsewhere = any(t.device != device for t in (*model.parameters(), *model.buffers()))
    training = any(part.training for part in model.modules())
    if elsewhere or training:
        return copied(model).to(device).eval()
    if not is_own_layer(model):
        with suppress(Exception):
            return copy.deepcopy(model)
    return model


def has_modes(model: Any) -> bool:
    """Whether a module is in training mode and some part of it asks for its mode, as dropout and batch norms do."""
    if not isinstance(model, nn.Module):
        return False
    codes = [getattr(part.forward, "__code__", None) for part in model.modules() if part.training]
    # The name of an attribute that a function reads stands in its code, whatever it does with it.
    return any("training" in code.co_names for code in codes if code is not None)


def execute(model: Forward, x: Tensor, outputs: tuple[int, ...] | None = None) -> Tensor:
    """What T returns for the points x (C, *event), (C, *outputs) in the format of x.

    T gets its own copy of the points, so that it cannot change the ones under test, and is refused if it changes them:
    its enclosure changes nothing, and whoever gives the same points again would get the value at others.
    """
    given = x.clone()
    with _one_line("the model", x):
        y = model(given)
    if not torch.equal(given, x):
        raise ModelAssumptionError(
            "the model writes into the points that it is given; it must leave its input as it is, beginning with "
            "x = x.clone()"
        )
    if not isinstance(y, Tensor) or y.dtype != x.dtype:
        kind = str(y.dtype) if isinstance(y, Tensor) else type(y).__name__
        raise ModelAssumptionError(f"the model returns {kind} for points in {x.dtype}; it must return one such tensor")
    if y.is_meta:
        raise ModelAssumptionError("the model returns a tensor of the device meta, which has no values")
    _check_shape("the model", tuple(y.shape), len(x), outputs)
    return y.detach()


def enclose(function: Forward, x: TaylorModel, outputs: tuple[int, ...], name: str = "the model") -> Any:
    """A Taylor model of ``function`` on the boxes of x, (B, *outputs); a plain tensor where it ignores x."""
    # Constants on the way are enclosed too: what torch makes of them depends on the machine.
    with _one_line(name, x), refusals_stand(), Constants(x):
        y = function(x)
    # An integer or a tuple has no enclosure; a tensor of floats that ignores x is its own.
    if not isinstance(y, TaylorModel) and not (isinstance(y, Tensor) and y.is_floating_point()):
        raise UnsupportedOperation(f"{name} on Taylor models", f"it returns {type(y).__name__}")
    _check_shape(name, tuple(y.shape), len(x), outputs)
    return y


def followed(model: Forward, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """T run on points x (C, *event) with its derivatives: its values (C, K), and for each input its slopes (C, K)."""
    with _one_line("the model with its derivatives", x):
        with refusals_stand():
            y = model(seeded(x))
        dual = isinstance(y, Dual)
        values = (y.value if dual else y).detach().reshape(len(x), -1)
        tangents = y.tangents if dual else [None] * x[0].numel()
        # Without a tangent the output does not depend on that input.
        slopes = [torch.zeros_like(values) if t is None else t.reshape(len(x), -1) for t in tangents]
        return values, slopes


def execute_beside(model: Forward, boxes: TaylorModel, x: Tensor) -> tuple[Any, list[str]]:
    """T on boxes (C, *event), and the expression of a point in each that it computes (expressed.py).

    Raises Excluded where an operation leaves its enclosure.
    """
    given = Accompanied(boxes, x)
    with _one_line("the model", x), refusals_stand():
        found = model(given)
    return side_of(found, "enclosure"), given.followed.expressions(side_of(found, "numbers"))


def enclose_alone(model: Forward, boxes: TaylorModel) -> Any:
    """T on boxes as it stands, without an account of what it makes of constants."""
    with _one_line("the model", boxes), refusals_stand():
        return model(boxes)


def enclosed_at(
    function: Forward, x: Tensor, outputs: tuple[int, ...], execution: torch.dtype | None
) -> list[list[tuple[float, float]]]:
    """The outputs at points x (C, *event), of each point a centre and a radius each; inf or NaN: nothing is known.

    That holds for every execution in that format, whatever the batch, the order of sums or the settings; for the real
    function where ``execution`` is None.
    """
    exact = x.detach().double()
    # Boxes of width zero: polynomials of degree 0 in no variable, with a remainder of zero.
    space = Space(1, exact[0].numel(), execution)
    at = TaylorModel(exact[None], torch.zeros_like(exact), space, (), 0)
    y = enclose(function, at, outputs)
    y = y.plain() if isinstance(y, TaylorModel) else constant(y, at)
    if y.support:
        raise UnsupportedOperation("a function with variables of its own", "it must be a function of its argument")
    shape = (len(x), *outputs)
    centres = y.coef[0].expand(shape).reshape(len(x), -1)
    radii = y.rem.expand(shape).reshape(len(x), -1)
    rows = zip(centres.tolist(), radii.tolist(), strict=True)
    return [list(zip(*row, strict=True)) for row in rows]


def _check_shape(name: str, shape: tuple[int, ...], count: int, outputs: tuple[int, ...] | None) -> None:
    if shape[:1] != (count,) or (outputs is not None and shape[1:] != outputs):
        each = "*outputs" if outputs is None else ", ".join(map(str, outputs))
        wanted = f"(B, {each})"
        raise ModelAssumptionError(
            f"{name} turns a batch of B = {count} points into shape {shape}; each point must have its own row, {wanted}"
        )


@contextmanager
def _one_line(name: str, x: Any) -> Iterator[None]:
    """Errors of foreign code become one line of ours; running out of memory stays what it is."""
    try:
        yield
    # Who called knows what to do about memory: fewer boxes at a time.
    except (OnelayerError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        line = told(error)
        if isinstance(x, Tensor):
            given = f"a batch of shape {tuple(x.shape)} in {x.dtype}"
            raise OnelayerError(f"{name} failed on {given} ({line})") from error
        raise UnsupportedOperation(f"{name} on Taylor models", line) from error
