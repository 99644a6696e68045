"""Python's operators as operations by name: what Taylor models and duals have in common."""

from __future__ import annotations

from typing import Any, Self


class Operators:
    """Something that operations apply to; ``operated`` says how."""

    __slots__ = ()

    def operated(self, name: str, *args: Any) -> Self:
        """The operation of this name."""
        raise NotImplementedError

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        return self.operated("neg", self)

    def __abs__(self) -> Self:
        return self.operated("abs", self)

    def __add__(self, other: Any) -> Self:
        return self.operated("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return self.operated("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return self.operated("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self.operated("sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return self.operated("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self.operated("mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return self.operated("div", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.operated("div", other, self)

    def __pow__(self, other: Any) -> Self:
        return self.operated("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return self.operated("pow", other, self)

    def __matmul__(self, other: Any) -> Self:
        return self.operated("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.operated("matmul", other, self)

    def __gt__(self, other: Any) -> Any:
        return self.operated("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return self.operated("ge", self, other)

    def __lt__(self, other: Any) -> Any:
        return self.operated("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return self.operated("le", self, other)

    def __eq__(self, other: object) -> Any:
        return self.operated("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return self.operated("ne", self, other)

    __hash__ = None  # type: ignore[assignment]  # nothing is equal to anything for sure
