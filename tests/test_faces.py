"""What a user holds and sees: methods of a result, cards of a notebook, the documented session."""

from __future__ import annotations

import doctest
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import onelayer as ol
from onelayer.card import card
from onelayer.errors import OnelayerError

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def made() -> ol.Approximation:
    return ol.approximate("sin(3*x)", ol.Box([-1], [1]), 1e-2)


class Balanced(HTMLParser):
    """Reads markup and keeps its open tags and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_draw_returns_the_figure_and_writes_it_when_asked(made: ol.Approximation, tmp_path: Path) -> None:
    assert isinstance(made.draw(), Figure)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(made.draw(tmp_path / "x.png"), Figure)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OnelayerError, match="must end in"):
        made.draw(tmp_path / "x.txt")


def test_a_notebook_shows_the_figure_by_itself(made: ol.Approximation) -> None:
    """Without pyplot nothing tells a kernel how to show a figure, so the figure does."""
    assert made.draw()._repr_png_().startswith(b"\x89PNG")


def test_methods_are_doors_to_the_functions(made: ol.Approximation, tmp_path: Path) -> None:
    assert made.check().ok
    assert str(made.explain()) == str(ol.explain(made))
    assert made.export("torch", tmp_path / "stock").difference < 1e-9
    with pytest.raises(OnelayerError, match="choose one of"):
        made.export("fortran", tmp_path / "x")
    assert ol.export.to_onnx.__name__ == "to_onnx"


def test_cards_are_whole_and_say_what_is_proved(made: ol.Approximation) -> None:
    for item in (made, made.certificate, made.model, made.explain()):
        read = Balanced(item._repr_html_())
        assert read.open == []
        assert read.text.startswith(type(item).__name__)
        assert not read.seen & {"script", "img", "link", "style"}
    assert made.certificate.sentence in Balanced(made._repr_html_()).text
    assert "proved" in Balanced(made.certificate._repr_html_()).text


def test_a_table_shows_its_columns() -> None:
    columns = {"<b>": [0.0, 0.0, 1.0, 1.0], "load": [0.0, 1.0, 0.0, 1.0], "torque": [1.0, 2.0, 3.0, 4.0]}
    read = Balanced(ol.Table.read(columns, inputs=["<b>", "load"], output="torque")._repr_html_())
    assert "<b>2 from 0 to 1" in read.text
    assert "torque4 from 1 to 4" in read.text
    assert "b" not in read.seen


def test_a_text_cannot_become_markup() -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    read = Balanced(card(hostile, [(hostile, hostile)], hostile))
    assert not read.seen & {"script", "img"}
    assert read.text.count(hostile) == 4


@pytest.mark.parametrize(("page", "examples"), [("result.md", 7), ("export.md", 3)])
def test_documented_sessions(page: str, examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest((DOCS / page).read_text(), {}, page, page, 0)
    assert len(test.examples) >= examples
    report: list[str] = []
    options = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    doctest.DocTestRunner(optionflags=options).run(test, out=report.append)
    assert not report, "".join(report)
