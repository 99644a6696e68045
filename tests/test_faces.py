"""What a user holds and sees: methods of a result, cards of a notebook, the documented session."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import onelayer as ol
from onelayer.card import card
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.errors import OnelayerError
from onelayer.pictures.live_page import live_data

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


def summed(x: Any) -> Any:
    return x[0] + x[1] ** 2


BLACK_BOXES = {
    "declared": (ol.BlackBox(summed, [1, 2]), 0.5, "conditional on the declared Lipschitz constant"),
    "structure": (ol.BlackBox(summed, [1, 2], structure="additive"), 0.2, "conditional on the declared structure"),
    "estimate": (ol.BlackBox(summed, "estimate"), 0.5, "no proof"),
    "guess": (ol.BlackBox(summed, [1, 2], structure="estimate"), 0.2, "no proof"),
}


@pytest.mark.parametrize("kind", BLACK_BOXES)
def test_what_a_bound_rests_on_stands_beside_it_wherever_it_is_shown(kind: str, tmp_path: Path) -> None:
    f, eps, condition = BLACK_BOXES[kind]
    a = ol.approximate(f, ol.Box([0, 0], [1, 1]), eps)
    page = a.to_html(tmp_path / "live.html").read_text().partition('<p class="sub">')[2].partition("</p>")[0]
    shown = [a.outcome(), repr(a), repr(a.certificate), page]
    shown += [Balanced(item._repr_html_()).text.partition("certificate{")[0] for item in (a, a.certificate)]
    for text in shown:
        assert condition in text
    assert "best proved" not in a.outcome()
    assert a.certificate.proved == ("reached: " in a.outcome())
    if a.certificate.within:
        assert all("of a function that f is within" in str(attempt) for attempt in a.history)
    assert "proved bound" not in live_data(a)["bound"]


def test_a_result_whose_slopes_are_not_proved_is_not_called_reached() -> None:
    a = ol.approximate("sin(x)", ol.Box([0], [1]), 1e-2, gradient_eps=0.1)
    slopes = ol.gradient_error(a.model, "sin(x)", a.box, 1e-12, max_seconds=0.5)
    slopes = replace(slopes, weights_sha256=a.certificate.weights_sha256)
    b = replace(a, gradient=slopes)
    assert a.outcome().startswith("reached: ")
    assert not b.outcome().startswith("reached: ")
    assert slopes.sentence in b.outcome()
    assert f"slopes, {slopes.status}" in Balanced(b._repr_html_()).text


def test_a_value_on_the_command_line_has_the_status_of_its_bound(
    made: ol.Approximation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = replace(made.certificate, status="undecided", eps=1e-9, resisted=None, lower=0.0, witness=None)
    replace(made, certificate=failed).save(tmp_path / "a")
    assert run(app, ["eval", str(tmp_path / "a"), "0.5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["arithmetic"]) == ("undecided", "float64 execution")
    assert shown["claim"] == failed.sentence


def test_a_claim_about_another_function_is_not_put_beside_slopes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = ol.approximate("sin(x)", ol.Box([0], [1]), 1e-2, gradient_eps=0.1)
    a.save(tmp_path / "a")
    assert run(app, ["certify", str(tmp_path / "a"), "x", "--save"]) == 2
    assert "--out" in capsys.readouterr().err
    assert ol.load(tmp_path / "a").gradient is not None


def test_a_card_says_which_arithmetic_is_proved(made: ol.Approximation) -> None:
    assert "float64 execution" in Balanced(made._repr_html_()).text.partition("certificate{")[0]


def test_a_witness_whose_digits_are_left_out_is_near(made: ol.Approximation) -> None:
    refuted = replace(made.certificate, status="refuted", eps=0.0, lower=1e-9, witness=(1 / 3,))
    assert " near (x = 0.333333)" in str(refuted) or " near (0.333333)" in str(refuted)
    assert " at (0.25)" in str(replace(refuted, witness=(0.25,)))


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
