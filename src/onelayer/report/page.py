"""report: one self-contained HTML page about a result, for somebody who has to sign it."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from onelayer import __version__
from onelayer.checker.check import CheckReport, check
from onelayer.disk import replace_file
from onelayer.errors import OnelayerError
from onelayer.names import without_unit
from onelayer.pictures.drawing import drawn
from onelayer.pictures.scene import Scene
from onelayer.report import words
from onelayer.report.printing import print_page
from onelayer.result import Approximation, load

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
ICON = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
LIBRARIES = ("torch", "numpy", "python-flint")
MOST_COORDINATES = 64  # rows of the domain table; sequences have thousands
SIGNATURES = ("Prepared by, date", "Checked by, date", "Approved by, date", "Document number")
LONGEST = 4000  # characters of a formula that are printed


@dataclass(frozen=True)
class Subject:
    """What a page is about: a result, its files, the check of them, names and units of its inputs."""

    result: Approximation
    folder: Path
    checked: CheckReport
    names: Sequence[str]
    units: Mapping[str, str]


def write_report(
    a: Approximation | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Certified accuracy of a model",
    units: Mapping[str, str] | None = None,
    max_seconds: float = 120.0,
) -> Path:
    """Write the page about ``a``, a result or the folder of one, to ``path`` (.html, or .pdf where Chromium is found).

    The independent check is run first, for at most ``max_seconds``, and its verdict is printed whatever it is. A folder
    is checked as it lies there; a result in memory is checked as it would be saved. Without a path a folder gets
    report.html inside. ``units`` name the units of inputs, by input.
    """
    target = _target(a, path)
    if isinstance(a, Approximation):
        with tempfile.TemporaryDirectory(prefix="onelayer-") as place:
            page = _page(_subject(a, a.save(Path(place) / "result"), units or {}, max_seconds), title)
    else:
        page = _page(_subject(load(a), Path(a), units or {}, max_seconds), title)
    if target.suffix.lower() == ".pdf":
        return print_page(page, target)
    replace_file(target, page.encode())
    return target


def _target(a: Approximation | str | os.PathLike[str], path: str | os.PathLike[str] | None) -> Path:
    if path is None and isinstance(a, Approximation):
        raise OnelayerError('say where to write the report, for example a.report("report.html")')
    target = Path(path) if path is not None else Path(str(a)) / "report.html"
    if target.suffix.lower() not in (".html", ".htm", ".pdf"):
        raise OnelayerError(f"cannot write a report to '{target}': the name must end in .html or .pdf")
    return target


def _subject(a: Approximation, folder: Path, units: Mapping[str, str], max_seconds: float) -> Subject:
    """Names and units are those of the box where it has them; ``units`` adds to them or replaces them."""
    named = a.box.variables or (Scene.of(a).names if a.target is not None else a.box.labels)
    own = {without_unit(name): name.partition("[")[2].removesuffix("]") for name in a.box.names if "[" in name}
    unknown = [name for name in units if name not in named]
    if unknown:
        raise OnelayerError(f"there is no input '{unknown[0]}' to have a unit; inputs are {', '.join(named[:20])}")
    return Subject(a, folder, check(folder, max_seconds=max_seconds), list(named), {**own, **units})


def _page(subject: Subject, title: str) -> str:
    proof = subject.result.certificate
    style = files("onelayer.report").joinpath("page.css").read_text(encoding="utf-8")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    look = {"proved": "good", "refuted": "bad"}.get(proof.status, "open")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="{ICON}">
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="sub">Written {now} by onelayer {escape(__version__)}</p>
<div class="claim {look}"><b>{escape(proof.status)}</b><span>{escape(words.claim(proof))}</span></div>
<p>{escape(words.scope(proof))}</p>
{_reference(subject)}
{_domain(subject)}
{_picture(subject)}
{_worst(subject)}
<h2>Method</h2>
<p>{escape(words.method(proof))}</p>
{_assumptions(subject)}
{_check(subject)}
{_identity(subject)}
{_again()}
<div class="sign">{"".join(f"<div>{line}</div>" for line in SIGNATURES)}</div>
</main>
</body>
</html>
"""


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows)
    return f'<table class="facts"><tbody>{lines}</tbody></table>'


def _reference(subject: Subject) -> str:
    proof, model = subject.result.certificate, subject.result.model
    text = proof.function if len(proof.function) <= LONGEST else f"{proof.function[:LONGEST]} ..."
    size = subject.result.size()
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in size.items())
    layer = (
        f"One Transformer layer with {model.config.attention} attention: {counts}. Input {model.config.input_shape}, "
        f"output {model.config.output_shape or 'one number'}, stored as {str(model.dtype).removeprefix('torch.')}."
    )
    return f"<h2>Reference function</h2><pre>{escape(text)}</pre><h2>Model</h2><p>{escape(layer)}</p>"


def _domain(subject: Subject) -> str:
    box = subject.result.box
    low, high = box.lower.flatten().tolist(), box.upper.flatten().tolist()
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class='num'>{a!r}</td><td class='num'>{b!r}</td>"
        f"<td>{escape(subject.units.get(name, '-'))}</td></tr>"
        for name, a, b in list(zip(subject.names, low, high, strict=True))[:MOST_COORDINATES]
    )
    left = box.dim - MOST_COORDINATES
    more = f"<p>and {left:,} more inputs, in certificate.json.</p>" if left > 0 else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("input", "from", "to", "unit"))
    return (
        "<h2>Domain</h2><p>The claim is about every point of this domain, ends included, and about none outside it.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}'
    )


def _picture(subject: Subject) -> str:
    try:
        figure = drawn(subject.result)
    except OnelayerError as error:
        return f"<h2>Picture</h2><p>There is no picture: {escape(str(error))}.</p>"
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    about = (
        "Reference f, model T and their difference. The picture shows sampled values; the bound holds between them too."
    )
    image = f'<img src="data:image/png;base64,{data}" alt="Reference, model and difference over the domain">'
    return f"<h2>Picture</h2><figure>{image}<figcaption>{about}</figcaption></figure>"


def _worst(subject: Subject) -> str:
    proof = subject.result.certificate
    if proof.witness is None:
        return "<h2>Largest known difference</h2><p>No point with a difference above zero is recorded.</p>"
    rows = [
        ("difference", f"at least {proof.lower!r}"),
        ("at", words.listed(proof.witness, subject.names)),
        ("everywhere", f"at most {proof.upper!r}"),
    ]
    return f"<h2>Largest known difference</h2>{_facts(rows)}"


def _assumptions(subject: Subject) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in subject.result.certificate.assumptions)
    return f"<h2>Assumptions</h2><ul>{items or '<li>none beyond the correctness of the program</li>'}</ul>"


def _check(subject: Subject) -> str:
    found = subject.checked
    rows = [
        ("verdict", f"{found.verdict}. {words.verdict(found.verdict)}"),
        ("in detail", found.reason),
        ("time", f"{found.seconds:.1f} s"),
    ]
    about = (
        "A second program, given the files alone, tries to prove the statement again. It shares no arithmetic with the "
        "first one: it computes with balls of real numbers (Arb)."
    )
    return f"<h2>Independent check</h2><p>{about}</p>{_facts(rows)}"


def _identity(subject: Subject) -> str:
    proof = subject.result.certificate
    hashed = [
        (f"sha256 of {file.name}", hashlib.sha256(file.read_bytes()).hexdigest())
        for file in sorted(subject.folder.iterdir())
        if file.is_file() and file.suffix in (".json", ".bin", ".txt", ".safetensors", ".npz")
    ]
    rows = [
        ("weights and shape", f"sha256 {proof.weights_sha256}"),
        *hashed,
        ("proof made by", f"onelayer {proof.version}, {proof.seconds:.1f} s"),
        ("checked with", ", ".join(f"{name} {version(name)}" for name in LIBRARIES)),
        ("on", f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
    ]
    return f"<h2>Identity and versions</h2>{_facts(rows)}"


def _again() -> str:
    lines = (
        'pip install onelayer\nonelayer check FOLDER --all     # exit status 0: accepted\nonelayer eval FOLDER "POINT"'
    )
    return (
        "<h2>How to check again</h2><p>With the folder that holds the files named above:</p>"
        f"<pre>{escape(lines)}</pre><p>The hashes above must agree with <code>sha256sum FOLDER/*</code>.</p>"
    )
