"""The command that writes a report to sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onelayer.cli.attended import moving
from onelayer.cli.console import SUCCESS, show
from onelayer.cli.options import Folder, Json, app, examples
from onelayer.errors import OnelayerError


@app.command(
    "report",
    epilog=examples("onelayer report out/wave", "onelayer report out/wave --out wave.pdf --unit x=m/s"),
)
def report_command(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="File to write, .html or .pdf; default report.html inside.")] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Certified accuracy of a model",
    unit: Annotated[list[str] | None, typer.Option(help="Unit of an input, for example rpm=1/min; repeat it.")] = None,
    max_seconds: Annotated[float, typer.Option(help="Time for the independent check.")] = 120.0,
    as_json: Json = False,
) -> int:
    """Check a saved result independently and write one page about it, in words, ready to print and sign."""
    units = _units(unit or [])
    with moving() as observer:
        from onelayer.report.page import write_report

        path = write_report(folder, out, title=title, units=units, max_seconds=max_seconds, observer=observer)
    show(str(path), {"report": str(path)}, as_json=as_json)
    return SUCCESS


def _units(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for text, (name, sign, unit) in zip(given, pairs, strict=True):
        if not (name.strip() and sign and unit.strip()):
            raise OnelayerError(f"a unit is written name=unit, for example rpm=1/min; got {text!r}")
    return {name.strip(): unit.strip() for name, _, unit in pairs}
