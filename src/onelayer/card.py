"""Card: what a notebook shows of an object, as HTML that reads on light and on dark pages; every text is escaped.

Colours are the page's own: text inherits, lines are half transparent, so no theme has to be known. Only the mark of a
status has colours of its own, dark enough for white letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Okabe and Ito's green, vermillion and a grey, darkened until white text on them has a contrast of 4.5 or more.
MARKS = {"proved": "#00704f", "accepted": "#00704f", "refuted": "#b34a00", "rejected": "#b34a00"}
OTHER = "#5f5f5f"
_LINE = "border-bottom:1px solid rgba(127,127,127,.35)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 12px 2px 0;{_LINE};background:none;color:inherit"


def card(title: str, rows: Iterable[tuple[str, str]], mark: str = "", body: str = "") -> str:
    """A title with the mark of a status, rows of name and text, and more HTML below them, ``body``, taken as it is."""
    lines = "".join(_row(name, text) for name, text in rows)
    table = f'<table style="border-collapse:collapse;margin:4px 0;color:inherit">{lines}</table>' if lines else ""
    head = f'<div style="font-weight:600">{escape(title)}{badge(mark)}</div>'
    return f'<div class="onelayer-card" style="max-width:62em;color:inherit">{head}{table}{body}</div>'


def _row(name: str, text: str) -> str:
    head = f'<th style="{_CELL};font-weight:600;white-space:nowrap">{escape(name)}</th>'
    cell = f'<td style="{_CELL};overflow-wrap:anywhere">{escape(text)}</td>'
    return f'<tr style="background:none">{head}{cell}</tr>'


def badge(word: str) -> str:
    """A status as a coloured mark; nothing for no word."""
    if not word:
        return ""
    look = f"background:{MARKS.get(word, OTHER)};color:#fff;border-radius:3px;padding:1px 7px;margin-left:8px"
    return f'<span style="{look};font-size:85%">{escape(word)}</span>'


def folded(summary: str, text: str) -> str:
    """Plain text behind a line that opens it."""
    block = f'<pre style="color:inherit;background:none;overflow-x:auto;margin:4px 0">{escape(text)}</pre>'
    return f"<details><summary>{escape(summary)}</summary>{block}</details>"


def number_of(count: int, things: str) -> str:
    """A number with its noun, which is given in the plural: "1 box", "1,803 boxes"."""
    # "boxes" loses two letters, "tokens" one: the only plurals of sizes and counts here.
    if count != 1:
        return f"{count:,} {things}"
    one = things.removesuffix("es") if things.endswith("xes") else things.removesuffix("s")
    return f"1 {one}"


def counted(size: dict[str, int], names: Sequence[str] = ()) -> str:
    """A size in words, without what is not there: "1 head, 12 tokens, 99 parameters"."""
    there = [name for name in names or size if size[name]]
    return ", ".join(number_of(size[name], name.replace("_", " ")) for name in there)
