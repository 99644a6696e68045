"""Optional libraries: imported when a feature needs them, named in one line when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from onelayer.errors import OnelayerError


def require(module: str, extra: str) -> ModuleType:
    """The module of that name, or OnelayerError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        # The library is what a user can install, not the module of it that was missing.
        library = module.partition(".")[0]
        raise OnelayerError(
            f'this needs {library}, which is not installed; run: pip install "onelayer[{extra}]"'
        ) from error
