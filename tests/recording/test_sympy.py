"""SymPy expressions that would be read as another function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
from sympy.utilities.lambdify import implemented_function

from onelayer.errors import OnelayerError
from onelayer.recording.sympy_code import from_sympy

X, Y = sympy.symbols("x y")


class clip(sympy.Function):  # type: ignore[misc]
    """Of another order of arguments than the language's."""


def nested() -> Any:
    found = X
    for _ in range(3000):
        found = sympy.sin(found, evaluate=False)
    return found


@pytest.mark.parametrize(
    ("build", "dim", "says"),
    [
        (lambda: X * sympy.Float("9007199254740993", 30) - 9007199254740992 * Y, 2, "is no float64"),
        (lambda: X * sympy.pi.evalf(30), 1, "is no float64"),
        (lambda: X * sympy.Float("1e-4000"), 1, "is no float64"),
        (lambda: sympy.Symbol("x") - sympy.Symbol("x", positive=True), 1, "have one name"),
        (lambda: sum(at * one for at, one in enumerate(sympy.symbols("a1:12"), start=1)), 11, "is not clear"),
        (lambda: sympy.Symbol("B") - 2 * sympy.Symbol("a"), 2, "is not clear"),
        (lambda: clip(0, X, 1), 1, "the class clip"),
        (nested, 1, "nested too deeply"),
    ],
)
def test_what_would_be_another_function_is_refused(build: Callable[[], Any], dim: int, says: str) -> None:
    with pytest.raises(OnelayerError, match=says):
        from_sympy(build(), dim)


def test_floats_and_plain_names_are_read() -> None:
    a1, a2 = sympy.symbols("a1 a2")
    assert str(from_sympy(0.1 * a1 - sympy.Float(2.5) * a2, 2)) == str(from_sympy(0.1 * X - 2.5 * Y, 2))
    assert str(from_sympy(sympy.Lambda((Y, X), Y - 2 * X), 2)) == str(from_sympy(X - 2 * Y, 2))


def test_a_function_with_code_of_its_own_is_refused_whatever_its_name() -> None:
    doubled = implemented_function("tanh", lambda value: 2 * value)
    with pytest.raises(OnelayerError, match="the class tanh"):
        from_sympy(doubled(X), 1)


def test_a_class_of_a_library_with_a_name_like_sympy_is_refused() -> None:
    foreign = type("sin", (sympy.Function,), {"__module__": "sympy_of_mine"})
    with pytest.raises(OnelayerError, match="the class sin"):
        from_sympy(foreign(X), 1)
