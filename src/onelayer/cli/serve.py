"""The command that serves the local web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelayer.cli.console import SUCCESS
from onelayer.cli.options import app, examples


@app.command("app", epilog=examples("onelayer app", "onelayer app --port 8001 --no-open --folder results"))
def app_command(
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 8000,
    folder: Annotated[Path, typer.Option(help="Where results are kept.")] = Path("onelayer-results"),
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> int:
    """Serve a page on this machine: a formula goes in, a proved Transformer comes out, to look into and to download."""
    from onelayer.app.serve import serve

    serve(port, folder=folder, open_page=open_page)
    return SUCCESS
