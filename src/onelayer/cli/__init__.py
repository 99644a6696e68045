"""The command line: ``onelayer`` and ``python -m onelayer``. Each command is a thin shell around a function."""

from __future__ import annotations

import sys

from onelayer.cli import build, claims, paper, proof, report, serve, train, use, zoo  # noqa: F401  (they register)
from onelayer.cli.console import run
from onelayer.cli.options import app


def main() -> None:
    """Entry point of the ``onelayer`` command."""
    sys.exit(run(app))
