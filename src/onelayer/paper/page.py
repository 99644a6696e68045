"""One self-contained HTML page from saved results: figures and live layers inside, one script, nothing fetched."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from onelayer import __version__
from onelayer.paper.finding import FAILS, HOLDS, REPAIRED, UNCONFIRMED, Experiment, measured, number
from onelayer.paper.record import AND, FIGURES, Record, machines
from onelayer.paper.registry import PROVERS, ROWS, SECTIONS, Section, experiments
from onelayer.pictures.live_page import live_script, resource
from onelayer.webpage import POLICY, allowing, webpage

TITLE = "The paper, executed"
PAPER = "Universal Approximation Theorem for a Single-Layer Transformer (Gumaan 2025, arXiv 2507.10581)"
BADGES = {HOLDS: "holds", REPAIRED: "repaired", FAILS: "fails", UNCONFIRMED: "unconfirmed"}
SIGNS = {HOLDS: "✓", REPAIRED: "↺", FAILS: "✗", UNCONFIRMED: "?"}
MEANINGS = {
    HOLDS: "as the paper says it",
    REPAIRED: "false or incomplete as printed; the corrected claim was run",
    FAILS: "a counterexample was run",
    UNCONFIRMED: "a check of the experiment did not hold in this run",
}
# A layer is computed when it comes into sight; without scripts, and on paper, its picture stands alone.
MOUNT = """
for (const host of document.querySelectorAll(".live-host")) {
  new IntersectionObserver((seen, watch) => {
    if (!seen.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    mountLive(host, JSON.parse(host.nextElementSibling.textContent));
  }, { rootMargin: "200px" }).observe(host);
}
"""


def render(records: Mapping[str, Record], folder: Path) -> str:
    """The page for the experiments that have a record; ``folder`` holds their figures."""
    style = files("onelayer.paper").joinpath("page.css").read_text(encoding="utf-8")
    shown = [section for section in SECTIONS if any(item.key in records for item in section.experiments)]
    told = "\n".join(_section(section, records, folder) for section in shown)
    body = f"""<nav aria-label="Contents">
{_contents(shown, records)}
</nav>
<main>
{_opening(records)}
<p>{escape(PROVERS)}</p>
{told}
{_closing(records)}
</main>"""
    # A page without live layers allows no script at all.
    if 'class="live-host"' not in told:
        return webpage(TITLE, style, body, POLICY)
    script = f"{live_script()}{MOUNT}"
    with_script = f"{body}\n<script>{script}</script>"
    return webpage(TITLE, style + resource("live.css"), with_script, allowing(script))


def badge(verdict: str) -> str:
    """A verdict as a coloured word."""
    return f'<span class="badge {BADGES[verdict]}">{SIGNS[verdict]} {escape(verdict)}</span>'


def _contents(shown: Iterable[Section], records: Mapping[str, Record]) -> str:
    lines = [f'<p class="brand"><a href="#top">{TITLE}</a></p>', "<ol>"]
    for section in shown:
        lines.append(f'<li><a href="#{section.name}">{escape(section.title)}</a><ol>')
        for item in section.experiments:
            if item.key in records:
                verdict = records[item.key]["verdict"]
                mark = f'<span class="mark {BADGES[verdict]}" title="{escape(verdict)}">{SIGNS[verdict]}</span>'
                lines.append(f'<li>{mark}<a href="#x-{item.key}">{_named(item)}</a></li>')
        lines.append("</ol></li>")
    return "\n".join([*lines, "</ol>"])


def _named(item: Experiment) -> str:
    if item.key in ROWS:
        return f"{item.key}. {escape(item.title)}"
    return escape(item.title)


def _opening(records: Mapping[str, Record]) -> str:
    counts = Counter(record["verdict"] for record in records.values())
    given = [verdict for verdict in BADGES if counts[verdict]]
    tally = "".join(f"<li>{badge(verdict)} <b>{counts[verdict]}</b> {MEANINGS[verdict]}</li>" for verdict in given)
    return f"""<header id="top">
<h1>{TITLE}</h1>
<p class="lead">Every claim of <em>{escape(PAPER)}</em> as an experiment that was run:
what is claimed, what was measured, and the command that measures it again.
A verdict is given only if every check of its experiment holds.</p>
<ul class="tally">{tally}</ul>
</header>
{_steps(records)}"""


def _steps(records: Mapping[str, Record]) -> str:
    """The table of the steps of the proof, each with its verdict; nothing where none was run."""
    known = {item.key: item for item in experiments()}
    rows = []
    for key in ROWS:
        if key in records:
            link = f'<a href="#x-{key}">{escape(known[key].claim)}</a>'
            verdict = f'<td class="verdict">{badge(records[key]["verdict"])}</td>'
            rows.append(f'<tr><td class="num">{key}</td><td>{link}</td>{verdict}</tr>')
    if not rows:
        return ""
    head = _head(("#", "what the paper says, in our words", "verdict"))
    body = "<tbody>" + "\n".join(rows) + "</tbody>"
    return f'<section><h2 id="steps">Step by step</h2><div class="wide"><table>{head}{body}</table></div></section>'


def _head(names: Iterable[str]) -> str:
    """The first row of a table."""
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def _section(section: Section, records: Mapping[str, Record], folder: Path) -> str:
    done = [item for item in section.experiments if item.key in records]
    parts = "\n".join(_experiment(item, records[item.key], folder) for item in done)
    title = f'<h2 id="{section.name}">{escape(section.title)}</h2>'
    return f"<section>{title}\n<p>{escape(section.about)}</p>\n{parts}</section>"


def _experiment(item: Experiment, record: Record, folder: Path) -> str:
    figures = "\n".join(_figure(figure, folder) for figure in record["figures"])
    tables = "\n".join(_table(table) for table in record["tables"])
    mode = "quick size" if record["quick"] else "full size"
    flag = " --quick" if record["quick"] else ""
    return f"""<article id="x-{item.key}">
<h3>{_named(item)} {badge(record["verdict"])}</h3>
<p class="place">{escape(item.place)}</p>
<blockquote><p>{escape(item.claim)}</p></blockquote>
<p>{escape(record["said"])}</p>{_notes(record["notes"])}
{tables}
{figures}
{_checks(record["checks"])}
<p class="again"><code>{escape(item.command + flag)}</code> <span>{record["seconds"]:.1f} s, {mode}</span></p>
</article>"""


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _checks(checks: Iterable[Mapping[str, Any]]) -> str:
    rows = "".join(map(_check, checks))
    head = _head(("check", "measured", "required", "holds"))
    return f'<div class="wide"><table class="checks">{head}<tbody>{rows}</tbody></table></div>'


def _check(check: Mapping[str, Any]) -> str:
    """A check as a row: what was measured, how much, what was required, and whether it holds."""
    what = f"<td>{escape(check['what'])}</td>"
    value = f"<td class='num'>{escape(measured(check))}</td>"
    required = f"<td class='num'>{escape(_relation(check))}</td>"
    holds = "<td class='yes'>✓</td>" if check["holds"] else "<td class='no'>✗</td>"
    return f"<tr>{what}{value}{required}{holds}</tr>"


def _relation(check: Mapping[str, Any]) -> str:
    sign = {"<=": "≤", ">=": "≥"}.get(check["relation"], check["relation"])
    return f"{sign} {number(check['bound'])}"


def _table(table: Mapping[str, Any]) -> str:
    rows = "".join(_row(row) for row in table["rows"])
    caption = f"<caption>{escape(table['caption'])}</caption>" if table["caption"] else ""
    return f'<div class="wide"><table>{caption}{_head(table["header"])}<tbody>{rows}</tbody></table></div>'


def _row(values: Iterable[Any]) -> str:
    cells = "".join(map(_cell, values))
    return f"<tr>{cells}</tr>"


def _cell(value: Any) -> str:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td{' class=num' if numeric else ''}>{escape(number(value))}</td>"


def _figure(figure: Mapping[str, Any], folder: Path) -> str:
    data = base64.b64encode(_bytes(folder, figure["file"])).decode()
    caption = escape(figure["caption"])
    image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>{_live(figure['live'], folder)}"


def _bytes(folder: Path, file: str) -> bytes:
    # The last part of the name alone: a record on disk cannot point out of the folder of figures.
    path = folder / FIGURES / Path(file).name
    return path.read_bytes()


def _live(file: str | None, folder: Path) -> str:
    """The layer of a figure, computed in the browser; its data cannot end the element that holds it."""
    if file is None:
        return ""
    # Read and written again: what is no JSON stops here, not in the browser.
    data = json.dumps(json.loads(_bytes(folder, file)), separators=(",", ":"))
    safe = data.replace("<", "\\u003c")
    return (
        '<section class="live-frame"><p class="place">The same layer, live: drag the point, watch the attention.</p>'
        f'<div class="live-host"></div><script type="application/json">{safe}</script></section>'
    )


def _closing(records: Mapping[str, Record]) -> str:
    seconds = sum(record["seconds"] for record in records.values())
    where = AND.join(machines([], *records.values()))
    return (
        f"<footer><p>onelayer {escape(__version__)}; {escape(where)}. {len(records)} experiments, {seconds:.0f} s "
        "of all processes together. The figures are also in the folder <code>figures</code>, the numbers in "
        "<code>results</code>.</p></footer>"
    )
