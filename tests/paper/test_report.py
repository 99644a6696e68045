"""The report: one self-contained page, whole results, and a run that goes on after SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.paper.report import PaperReport, write_report

FAST = ("2", "9", "14")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> PaperReport:
    return write_report(tmp_path_factory.mktemp("paper") / "report", quick=True, only=FAST)


class Page(HTMLParser):
    """Collects what a browser would fetch, anchors and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.links: list[str] = []
        self.names: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        if "src" in given or tag == "link":
            self.sources.append(given.get("src") or given.get("href") or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
        if given.get("id"):
            self.names.append(given["id"] or "")
        if tag == "img":
            assert given["alt"]


def test_page_is_self_contained(report: PaperReport) -> None:
    page = Page(report.page.read_text(encoding="utf-8"))
    assert len(page.sources) >= 3
    assert all(source.startswith("data:image/") for source in page.sources)
    assert "script" not in page.tags
    assert len(set(page.names)) == len(page.names)
    assert all(link.startswith("#") and link[1:] in page.names for link in page.links)


def test_a_figure_of_a_layer_comes_with_the_layer(tmp_path: Path) -> None:
    page = write_report(tmp_path / "live", quick=True, only=["equations-5-8"]).page.read_text(encoding="utf-8")
    assert page.count('class="live-host"') == 1
    assert page.count("<script>") == 1
    assert "script-src 'sha256-" in page
    assert len(page) < 1_000_000


def test_page_shows_claims_verdicts_and_commands(report: PaperReport) -> None:
    text = report.page.read_text(encoding="utf-8")
    assert "Attention is permutation-invariant" in text
    assert "holds after repair" in text
    for key in FAST:
        assert f"onelayer paper --only {key}" in text


def test_figures_and_numbers_lie_beside_the_page(report: PaperReport) -> None:
    folder = report.page.parent
    assert {path.stem for path in (folder / "results").iterdir()} == set(FAST)
    assert {path.name for path in (folder / "figures").iterdir()} == {"2-weights.png", "14-figure-2.png"}
    saved = json.loads((folder / "results" / "9.json").read_text(encoding="utf-8"))
    assert all(check["holds"] for check in saved["checks"])
    assert not list(folder.rglob(".*"))


def test_a_result_without_its_figure_is_not_taken(report: PaperReport, tmp_path: Path) -> None:
    again = write_report(tmp_path / "r", quick=True, only=["2"])
    (again.page.parent / "figures" / "2-weights.png").unlink()
    assert "x-2" not in Page(write_report(tmp_path / "r", quick=True, only=["9"]).page.read_text()).names


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert run(app, ["paper", "--quick", "--only", "9", "--out", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["confirmed"] is True
    assert data["computed"] == ["9"]
    assert (folder / "index.html").is_file()
    assert run(app, ["paper", "--only", "0", "--out", str(folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert run(app, ["paper", "--only", "9", "--out", "/proc/onelayer"]) == 2


def test_interrupted_command_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onelayer.paper.report.write_report", interrupted)
    assert run(app, ["paper", "--quick", "--out", str(tmp_path)]) == 130
    assert "kept" in capsys.readouterr().err


CHILD = """
import time
from dataclasses import replace
from onelayer.paper import chosen, report
first, last = chosen(["2"])[0], chosen(["9"])[0]
report.chosen = lambda only: (first, replace(last, run=lambda setting: time.sleep(600)))
report.write_report({folder!r}, quick=True)
"""


def test_a_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "report"
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(folder=str(folder))], env=os.environ)
    try:
        first = folder / "results" / "2.json"
        for _ in range(600):
            if first.is_file():
                break
            time.sleep(0.1)
        content, made = first.read_bytes(), first.stat().st_mtime_ns
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert not (folder / "index.html").exists()
    monkeypatch.setattr("onelayer.paper.report.chosen", lambda only: _both())
    again = write_report(folder, quick=True)
    assert again.computed == ("9",)
    assert again.confirmed
    assert first.read_bytes() == content
    assert first.stat().st_mtime_ns == made
    assert write_report(folder, quick=True).computed == ()
    assert set(write_report(folder, quick=False).computed) == {"2", "9"}


def _both() -> tuple[object, ...]:
    from onelayer.paper.registry import experiments

    return tuple(item for item in experiments() if item.key in ("2", "9"))
