"""What all recorded values have in common: the numbers beside them, and what Python may not ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from torch import Tensor

if TYPE_CHECKING:
    from onelayer.recording.symbolic import Recording

CONTROL = "Python control flow or conversion on values of x cannot be recorded; write f with torch functions of x"
WRITTEN = "code may go another way by the digits of x; leave out what prints it or makes a text of it"
CHOOSE = "choose with torch.where(x > 0, a, b)"
# What Python's syntax asks of tensors by a method of the class.
_ASKED = (
    *("iand", "ior", "ixor", "lshift", "rshift", "ilshift", "irshift", "rlshift", "rrshift", "invert"),
    *("and", "rand", "or", "ror", "xor", "rxor", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
    *("floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul", "rmatmul", "abs", "neg", "pos"),
    *("array", "complex", "float", "int", "index", "contains", "reversed", "setitem", "delitem"),
)


class Recorded:
    """What f computes with while it is recorded; ``beside`` is what it is in numbers, where that is known."""

    inner: Any  # the tensor: itself, or what an array of NumPy is made of
    beside: Any = None
    numbered: tuple[type, ...] = (Tensor,)  # the classes of numbers that it stands for

    def refuse(self, operation: str, hint: str) -> NoReturn:
        """Refuse what cannot be recorded of it, even where the code of f catches the error."""
        tape: Recording = self.inner.tape
        tape.refuse(operation, hint)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.refuse("pickle", CONTROL)

    def __repr__(self) -> NoReturn:
        self.refuse("str(x)", WRITTEN)

    def __format__(self, spec: str) -> NoReturn:
        self.refuse("format(x)", WRITTEN)

    def absent(self, name: str) -> NoReturn:
        """An attribute that it lacks: refused where numbers have it, since code may ask whether there is one.

        By names with underscores Python and libraries ask for protocols: who asks goes on without.
        """
        if not name.startswith("__") and any(hasattr(kind, name) for kind in self.numbered):
            self.refuse(name, "recorded numbers have no such attribute")
        raise AttributeError(f"recorded numbers have no attribute {name}")


def refuse_the_rest(kind: type[Recorded]) -> None:
    """Refuse what Python's syntax asks of a tensor and ``kind`` has no method for.

    Python would take another way than on numbers: m &= n would bind a new m, where torch writes into the old one, which
    others may hold.
    """
    for name in (f"__{word}__" for word in _ASKED):
        if not any(name in vars(parent) for parent in kind.__mro__):
            setattr(kind, name, _refusing(name))


def _refusing(name: str) -> Callable[..., Any]:
    def refused(self: Recorded, *args: Any) -> NoReturn:
        self.refuse(name, CONTROL)

    return refused
