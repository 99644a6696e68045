"""What foreign code makes of constants alone while it is enclosed: the rounding of it counts, or it is refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onelayer.errors import UnsupportedOperation
from onelayer.formats import are_formats, coarsest, either
from onelayer.narrow import ACCUMULATORS
from onelayer.proof.settled import is_flushed, is_settled, is_whole, makes_whole
from onelayer.taylor.core import TaylorModel, constant
from onelayer.taylor.registry import call, canonical_keywords, canonical_name, inside, supported

ONCE = "compute it once outside the forward pass, as in __init__, and keep the tensor"


class Constants(TorchFunctionMode):
    """Operations on constants are part of the forward pass too: what rounds otherwise elsewhere does not count as here.

    Settled ones (settled.py) are left to torch. The others become models of degree 0, executed in the format of the
    constants where that is the coarser one; without a Taylor version they are refused by name.
    """

    # Operations on Taylor models themselves need no watching.
    watches_outside = True

    def __init__(self, x: TaylorModel) -> None:
        super().__init__()
        self.like = x

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Arithmetic of Taylor models computes bounds, not the forward pass.
        if inside() or not all(issubclass(kind, Tensor) for kind in types):
            return func(*args, **kwargs)
        name = canonical_name(func)
        if is_settled(name, args, kwargs):
            result = func(*args, **kwargs)
            if not is_flushed(name, result):
                return result
        elif is_whole(name, args, kwargs) and makes_whole(exact := func(*args, **kwargs)):
            return exact
        rest = dict(kwargs)
        return self._enclosed(name, _positional(name, args, rest), rest)

    def _enclosed(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result as a model of degree 0, or as several."""
        name, args = ("pow", args[::-1]) if name == "rpow" else (name, args)
        first = _first_real(args)
        if name not in supported() or first is None:
            raise UnsupportedOperation(f"{name} of constants", ONCE)
        executed, computed = self._formats(name, args)
        lifted = constant(args[first], self.like).tagged(computed)
        operands = (*args[:first], lifted, *args[first + 1 :])
        try:
            y = call(name, *operands, **canonical_keywords(kwargs))
        except UnsupportedOperation as refused:
            raise UnsupportedOperation(f"{refused.operation} of constants", ONCE) from refused
        return _tagged(y, executed)

    def _formats(self, name: str, args: tuple[Any, ...]) -> tuple[torch.dtype | None, torch.dtype | None]:
        """The format of the pass around the operation, and the one in which it rounds.

        Inside a layer of a narrow format, what is widened is computed on in the accumulator.
        """
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        formats = {arg.dtype for arg in tensors if arg.is_floating_point()}
        if not are_formats(formats):
            raise UnsupportedOperation(f"{name} of constants in {formats}", f"use {either()}")
        # In real arithmetic nothing rounds, whatever the constants are stored in.
        executed = self.like.execution
        if executed is None:
            return None, None
        wide = ACCUMULATORS.get(executed)
        executed = wide if wide is not None and formats == {wide} else executed
        return executed, coarsest([executed, *formats])


def _tagged(y: Any, executed: torch.dtype | None) -> Any:
    """What comes out of an operation, in the format of the pass around it."""
    if isinstance(y, tuple):
        return tuple(_tagged(part, executed) for part in y)
    return y.tagged(executed) if isinstance(y, TaylorModel) else y


def _positional(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The operands one after the other, whether they came by name or in a list."""
    args = (kwargs.pop("input"), *args) if "input" in kwargs else args
    if name == "einsum" and isinstance(args[1], list | tuple):
        return (args[0], *args[1])
    return args


def _first_real(args: tuple[Any, ...]) -> int | None:
    """The place of the first tensor of floats among the operands."""
    places = (at for at, arg in enumerate(args) if isinstance(arg, Tensor) and arg.is_floating_point())
    return next(places, None)
