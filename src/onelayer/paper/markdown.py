"""The same results as text: a Markdown page with every claim, verdict, measured number and command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onelayer import __version__
from onelayer.paper.finding import Experiment, measured, number
from onelayer.paper.record import AND, Record, machines
from onelayer.paper.registry import PROVERS, ROWS, SECTIONS, Section, experiments

OPENING = """# The paper, executed

Every claim of *Universal Approximation Theorem for a Single-Layer Transformer* (Gumaan 2025, arXiv 2507.10581) as an
experiment: what is claimed, what was measured, and the command that measures it again. A verdict is given only if every
check holds. Written by `onelayer paper`, which also makes an HTML page with figures of it."""


def markdown(records: Mapping[str, Record]) -> str:
    """The page for the experiments that have a record."""
    known = {item.key: item for item in experiments()}
    done = [key for key in ROWS if key in records]
    rows = [(key, known[key].claim, f"**{records[key]['verdict']}**") for key in done]
    parts = [OPENING, PROVERS]
    if rows:
        parts += ["## Step by step", table(("#", "what the paper says, in our words", "verdict"), rows)]
    for section in SECTIONS:
        parts += _section(section, records)
    if records:
        parts.append(_closing(list(records.values())))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, records: Mapping[str, Record]) -> list[str]:
    """A heading and the experiments of the section that have a record; nothing if none has."""
    found = [item for item in section.experiments if item.key in records]
    parts = [f"## {section.title}", section.about] if found else []
    for item in found:
        parts += _experiment(item, records[item.key])
    return parts


def _closing(records: Sequence[Record]) -> str:
    full = sum(not record["quick"] for record in records)
    where = AND.join(machines([], *records))
    seconds = sum(record["seconds"] for record in records)
    return (
        f"{len(records)} experiments, {full} of them at full size, {seconds:,.0f} s of all processes together. "
        f"onelayer {__version__}; {where}."
    )


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    rule = "|" + "---|" * len(header)
    lines = [_line(header), rule, *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[Any]) -> str:
    # A bar inside a cell, as in |T - f|, would start a new one.
    written = [number(cell).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(written)} |"


def _experiment(item: Experiment, record: Record) -> list[str]:
    title = f"{item.key}. {item.title}" if item.key in ROWS else item.title
    parts = [
        f"### {title}: {record['verdict']}",
        f"*{item.place}.* {item.claim}",
        record["said"],
    ]
    if record["notes"]:
        parts.append("\n".join(f"* {note}" for note in record["notes"]))
    for found in record["tables"]:
        parts.append(table(found["header"], found["rows"]))
        if found["caption"]:
            parts.append(found["caption"])
    checks = []
    for check in record["checks"]:
        required = f"{check['relation']} {number(check['bound'])}"
        holds = "yes" if check["holds"] else "**no**"
        checks.append((check["what"], measured(check), required, holds))
    parts.append(table(("check", "measured", "required", "holds"), checks))
    size = " --quick" if record["quick"] else ""
    parts.append(f"`{item.command}{size}`")
    return parts
