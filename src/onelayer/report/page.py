"""report: one self-contained HTML page about a result, for somebody who has to sign it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path

from onelayer import __version__
from onelayer.checker.check import check
from onelayer.disk import replace_file
from onelayer.door import door
from onelayer.errors import FileError, OnelayerError
from onelayer.ground import pinned
from onelayer.names import without_unit
from onelayer.network.file import is_network
from onelayer.observer import Observer
from onelayer.pictures.scene import Scene
from onelayer.proof.saved import Claimed, load_claim
from onelayer.report import sections, words
from onelayer.report.printing import print_page
from onelayer.report.sections import Subject
from onelayer.result import Approximation, load
from onelayer.webpage import webpage

SIGNATURES = ("Prepared by, date", "Checked by, date", "Approved by, date", "Document number")


@door
@pinned()
def write_report(
    a: Approximation | Claimed | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Certified accuracy of a model",
    units: Mapping[str, str] | None = None,
    max_seconds: float = 120.0,
    observer: Observer | None = None,
) -> Path:
    """Write the page about ``a``, a result or the folder of one, to ``path`` (.html, or .pdf where Chromium is found).

    The independent check is run first, for at most ``max_seconds``, and its verdict is printed whatever it is. A folder
    is checked as it lies there; a result in memory is checked as it would be saved. Without a path a folder gets
    report.html inside. ``units`` name the units of inputs, by input.
    """
    target = _target(a, path)
    if isinstance(a, Approximation | Claimed):
        with tempfile.TemporaryDirectory(prefix="onelayer-") as place:
            page = _page(_subject(a, a.save(Path(place) / "result"), units or {}, max_seconds, observer), title)
    else:
        before = sections.digests(Path(a))
        known = load_claim(a) if is_network(a) else load(a)
        page = _page(_subject(known, Path(a), units or {}, max_seconds, observer), title)
        # Loaded, checked and hashed one after the other: a page speaks of files that stayed what they were.
        if sections.digests(Path(a)) != before:
            raise FileError(f"{a} was changed while its report was written; write it again")
    if target.suffix.lower() == ".pdf":
        return print_page(page, target)
    replace_file(target, page.encode())
    return target


def _target(a: Approximation | Claimed | str | os.PathLike[str], path: str | os.PathLike[str] | None) -> Path:
    if path is None and isinstance(a, Approximation | Claimed):
        raise OnelayerError('say where to write the report, for example a.report("report.html")')
    target = Path(path) if path is not None else Path(str(a)) / "report.html"
    if target.suffix.lower() not in (".html", ".htm", ".pdf"):
        raise OnelayerError(f"cannot write a report to '{target}': the name must end in .html or .pdf")
    return target


def _subject(
    a: Approximation | Claimed,
    folder: Path,
    units: Mapping[str, str],
    max_seconds: float,
    observer: Observer | None,
) -> Subject:
    """Names and units are those of the box where it has them; ``units`` adds to them or replaces them."""
    usual = a.box.labels
    if isinstance(a, Approximation) and a.target is not None:
        usual = Scene.of(a).names
    named = a.box.variables or usual
    own = {}
    for name in a.box.names:
        # A name with its unit is kept as in v[m/s].
        _, bracket, unit = name.partition("[")
        if bracket:
            own[without_unit(name)] = unit.removesuffix("]")
    unknown = [name for name in units if name not in named]
    if unknown:
        raise OnelayerError(f"there is no input '{unknown[0]}' to have a unit; inputs are {', '.join(named[:20])}")
    verdict = check(folder, max_seconds=max_seconds, observer=observer)
    return Subject(a, folder, verdict, list(named), {**own, **units})


def _page(subject: Subject, title: str) -> str:
    proof = subject.result.certificate
    style = files("onelayer.report").joinpath("page.css").read_text(encoding="utf-8")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    look = {"proved": "good", "refuted": "bad"}.get(proof.status, "open")
    signatures = "".join(f"<div>{line}</div>" for line in SIGNATURES)
    body = f"""<main>
<h1>{escape(title)}</h1>
<p class="sub">Written {now} by onelayer {escape(__version__)}</p>
<div class="claim {look}"><b>{escape(proof.status)}</b><span>{escape(words.claim(proof))}</span></div>
<p>{escape(words.scope(proof))}</p>
{sections.reference(subject)}
{sections.domain(subject)}
{sections.picture(subject)}
{sections.worst(subject)}
<h2>Method</h2>
<p>{escape(words.method(proof))}</p>
{sections.assumptions(subject)}
{sections.checked(subject)}
{sections.identity(subject)}
{sections.again()}
<div class="sign">{signatures}</div>
</main>"""
    return webpage(title, style, body)
