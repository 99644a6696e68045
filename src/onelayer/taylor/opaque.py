"""What an evaluation on boxes yields beside numbers, and how its misuse is refused.

Python looks special methods up on the class and raises a TypeError where one is missing. Here such a method exists and
names what is not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from onelayer.errors import UnsupportedOperation

Owner = TypeVar("Owner", bound=type)

IN_PLACE_HINT = "it writes into a tensor that others may hold; use the result of an operation instead"
_NUMBER_HINT = "Taylor models have no rigorous version of it"


class MissingOperation(UnsupportedOperation, AttributeError):
    """An attribute that a tensor may have and a Taylor model has not; ``hasattr`` answers no."""


def _dunders(names: str) -> list[str]:
    """Special method names from their bare spellings."""
    return [f"__{name}__" for name in names.split()]


IN_PLACE = _dunders("iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift setitem delitem")
INTEGERS = _dunders("int index complex round trunc floor ceil divmod rdivmod mod rmod floordiv rfloordiv")
ARITHMETIC = _dunders("add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg pos abs")
CONTAINER = _dunders("float bool len iter getitem")
COMPARED = _dunders("lt le gt ge and rand or ror xor rxor invert")


def refusing(names: list[str]) -> Callable[[Owner], Owner]:
    """Give a class special methods that refuse by name."""

    def add(owner: Owner) -> Owner:
        for name in names:
            setattr(owner, name, _refusal(name))
        return owner

    return add


def _refusal(name: str) -> Callable[..., NoReturn]:
    spelled = name.strip("_")

    def refuse(self: Any, *args: Any) -> NoReturn:
        if isinstance(self, Opaque):
            self.refuse(spelled)
        hint = IN_PLACE_HINT if name in IN_PLACE else _NUMBER_HINT
        raise UnsupportedOperation(spelled, hint)

    return refuse


class Opaque:
    """A comparison, the place of a maximum, attention weights: something that may only go where it is understood.

    Every other use is refused by name: as an operand, as an index, as a number.
    """

    what = "a value"
    hint = "it depends on the point of the box"
    den: tuple[Any, ...] = ()  # nothing is divided yet, whoever asks

    def refuse(self, use: str) -> NoReturn:
        """Say that this use of it has no rigorous meaning."""
        raise UnsupportedOperation(f"{use} of {self.what}", self.hint)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise UnsupportedOperation(f"{getattr(func, '__name__', func)} of {cls.what}", cls.hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingOperation(f"{name} of {self.what}", self.hint)


@refusing(IN_PLACE + INTEGERS + ARITHMETIC + CONTAINER + COMPARED)
class Indices(Opaque):
    """Which entry was the largest: another one at another point of the box."""

    what = "indices"


@refusing(IN_PLACE + INTEGERS + ARITHMETIC + CONTAINER + COMPARED)
class AttentionWeights(Opaque):
    """The second result of multi-head attention."""

    what = "attention weights"
    hint = "they are not enclosed; use scaled_dot_product_attention or softmax"
