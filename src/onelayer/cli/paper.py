"""The command that executes the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onelayer.cli.attended import kept_when_interrupted, moving
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.cli.options import Json, Seed, app, examples

if TYPE_CHECKING:
    from onelayer.paper.report import PaperReport


@app.command(
    "paper", epilog=examples("onelayer paper --quick --out report", "onelayer paper --only theorem --out report")
)
def paper_command(
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and its numbers.")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes: a few minutes on two cores.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Run this experiment again, for example 5 or theorem; may be repeated.")
    ] = None,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Processes for the experiments that consist of many trainings.")] = 2,
    as_json: Json = False,
) -> int:
    """Run every claim of the paper and write one HTML page; a run that was stopped goes on where it was."""
    with moving() as observer, kept_when_interrupted(out):
        from onelayer.paper import report

        found = report.write_report(out, quick=quick, only=only or (), seed=seed, jobs=jobs, observer=observer)
    data = {
        "page": str(found.page),
        "confirmed": found.confirmed,
        "seconds": found.seconds,
        "computed": list(found.computed),
        "experiments": [{key: record[key] for key in ("key", "verdict", "checks")} for record in found.records],
    }
    show("\n".join(_lines(found, every=bool(only))), data, as_json=as_json)
    return SUCCESS if found.confirmed else NOT_PROVED


def _lines(found: PaperReport, *, every: bool) -> list[str]:
    """A line per experiment, with the checks that failed, or with ``every`` check below it."""
    from onelayer.paper.registry import chosen

    titles = {experiment.key: experiment.title for experiment in chosen(())}
    lines = []
    for record in found.records:
        title = titles.get(str(record["key"]), "")
        lines.append(f"{record['key']:>14}  {record['verdict']:<12}  {title}")
        lines += [f"{'':16}{_sentence(check)}" for check in record["checks"] if every or not check["holds"]]
    kept = len(found.records) - len(found.computed)
    return [*lines, f"{found.page}  ({len(found.computed)} run, {kept} kept, {found.seconds:.0f} s)"]


def _sentence(check: dict[str, object]) -> str:
    mark = "" if check["holds"] else "  FAILED"
    from onelayer.paper.finding import measured

    return f"{check['what']}: {measured(check)} {check['relation']} {check['bound']!r}{mark}"
