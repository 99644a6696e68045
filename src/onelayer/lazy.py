"""Names that are loaded on first use, so that importing a package costs nothing and the road stays one-way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def public(
    package: str, homes: Mapping[str, str], rooms: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public name is found in the module ``homes[name]`` of it.

    ``rooms`` are subpackages that are public themselves.
    """

    def load(name: str) -> Any:
        if name in rooms:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(f"onelayer.{homes[name]}"), name)
        # Kept, so that the next use finds the name without coming here.
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted([*homes, *rooms])


def late(home: str, name: str) -> Any:
    """The function ``name`` of the module ``onelayer.home``, found when a method that is a door to it is called.

    A result is made below the rooms that draw, export and report it; it knows them by name alone.
    """
    return getattr(import_module(f"onelayer.{home}"), name)
