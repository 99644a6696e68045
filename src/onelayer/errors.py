"""The errors a user can meet. Each message is one line: what was wrong and what would be right."""

from __future__ import annotations


class OnelayerError(ValueError):
    """Bad input of any kind. The command line prints the message alone and exits with status 2."""


class UnsupportedOperation(OnelayerError):
    """An operation outside the rigorous arithmetic (or the formula language). Never replaced by sampling."""

    def __init__(self, operation: str, hint: str = "") -> None:
        self.operation = operation
        super().__init__(f"operation '{operation}' is not supported" + (f": {hint}" if hint else ""))


class FormulaError(OnelayerError):
    """Text outside the formula language; the message names the column."""


class FileError(OnelayerError):
    """A saved file that is missing, corrupt, of another version, or hostile."""
