"""The page to sign: it says what is proved and what is not, needs nothing else, and cannot be made to run anything."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import onelayer as ol
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.errors import OnelayerError
from onelayer.report import page as page_room
from onelayer.report import printing, words
from onelayer.report.page import write_report
from onelayer.result import Approximation

BOX = ol.Box([-1.0], [1.0])


@pytest.fixture(scope="module")
def made() -> Approximation:
    return ol.approximate("sin(3*x)", BOX, 1e-2)


def text_of(page: Path) -> str:
    class Reader(HTMLParser):
        text = ""

        def handle_data(self, data: str) -> None:
            self.text += data

    reader = Reader()
    reader.feed(page.read_text())
    return reader.text


def test_a_proved_result(made: Approximation, tmp_path: Path) -> None:
    page = made.report(tmp_path / "r.html", units={"x": "rad"}, title="Wave <b>")
    text = text_of(page)
    assert words.claim(made.certificate) in text
    assert "accepted" in text
    assert made.certificate.weights_sha256 in text
    assert re.search(r"x-1.01.0rad", text)
    assert "Prepared by" in text
    markup = page.read_text()
    assert "Wave &lt;b&gt;" in markup
    assert not re.search(r"<script|https?://|src=(?!\"data:)", markup)
    assert page.stat().st_size < 2_000_000


def summed(x: Any) -> Any:
    return x[0] + x[1] ** 2


SQUARE = ol.Box([0, 0], [1, 1])


def test_a_claim_that_rests_on_a_declaration_says_so_in_its_sentence(tmp_path: Path) -> None:
    a = ol.approximate(ol.BlackBox(summed, [1, 2], structure="additive"), SQUARE, 0.2)
    text = text_of(a.report(tmp_path / "r.html"))
    assert a.certificate.proved
    assert "provided that what is declared" in words.claim(a.certificate)
    assert text.count("provided that what is declared") >= 2
    assert "The reference itself has no formula" in text
    assert "Function in place of the reference" in text


@pytest.mark.parametrize("how", [{"lipschitz": "estimate"}, {"lipschitz": [1, 2], "structure": "estimate"}])
def test_an_estimate_is_never_said_to_hold(how: dict[str, Any]) -> None:
    claimed = ol.approximate(ol.BlackBox(summed, **how), SQUARE, 0.5).certificate
    assert claimed.status == "estimated"
    assert words.claim(claimed).startswith("NOT proved")
    assert "no proof" in words.claim(claimed)
    assert "not a proof" in words.method(claimed)


def test_a_point_is_printed_with_all_its_digits() -> None:
    assert words.listed((1 / 3, 2.0), ("v", "w")) == "v = 0.3333333333333333, w = 2.0"


@pytest.mark.filterwarnings("ignore:the model returns shape")
def test_a_function_that_is_cut_short_is_marked(tmp_path: Path) -> None:
    long = " + ".join(f"0.000000000{at}*sin({at}*x)" for at in range(1, 200))
    net = torch.nn.Linear(1, 1).double()
    found = ol.certify(net, long, BOX, gap=0.9)
    found.save(tmp_path / "net")
    text = text_of(write_report(tmp_path / "net"))
    assert "characters in all" in text


def test_a_memorised_table_is_said_to_be_recalled_at_its_rows_alone(tmp_path: Path) -> None:
    made = ol.memorize([[0.0], [1.0], [2.5]], [0.5, 2.5, -1.0])
    text = text_of(made.report(tmp_path / "r.html"))
    assert "For every row of the table" in text
    assert "Of all other points of the domain it says nothing." in text
    for word in ("every point", "everywhere", "holds between"):
        assert word not in text
    assert "at the rows of the table alone" in str(made.certificate)
    assert "at the rows of the table alone" in made.outcome()


def test_names_and_units_of_the_box(tmp_path: Path) -> None:
    a = ol.approximate("2*speed + mass", ol.Box({"speed[m/s]": (0, 3), "mass": (1, 2)}), 1e-2)
    text = text_of(a.report(tmp_path / "r.html", units={"mass": "kg"}))
    assert "speed0.03.0m/s" in text
    assert "mass1.02.0kg" in text


def test_what_is_not_proved_is_said(made: Approximation, tmp_path: Path) -> None:
    refuted = ol.certify(made.model, made.target, BOX, 1e-9)
    text = text_of(write_report(Approximation(made.model, refuted, made.target), tmp_path / "r.html"))
    assert "is NOT met" in text
    real = ol.certify(made.model, made.target, BOX, 1e-2, execution="real")
    assert "NOT included" in words.scope(real)
    cut = ol.certify(made.model, made.target, BOX, 1e-9, max_boxes=1, max_seconds=0)
    if cut.status == "undecided":
        assert "NOT decided" in words.claim(cut)


def test_a_folder_that_lies_is_reported_as_rejected(made: Approximation, tmp_path: Path) -> None:
    forged = replace(made.certificate, lower=made.certificate.upper)
    folder = Approximation(made.model, forged, made.target).save(tmp_path / "wave")
    text = text_of(write_report(folder, tmp_path / "r.html"))
    assert "rejected" in text
    assert "Do not rely on it" in text


def test_the_command(made: Approximation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made.save(tmp_path / "wave")
    assert run(app, ["report", str(folder), "--unit", "x=m/s"]) == 0
    assert (folder / "report.html").exists()
    assert ol.check(folder).ok
    for wrong in (["--unit", "q=m"], ["--unit", "x"], ["--out", str(tmp_path / "r.txt")]):
        assert run(app, ["report", str(folder), *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_without_a_place_to_write(made: Approximation) -> None:
    with pytest.raises(OnelayerError, match="where to write"):
        write_report(made)


@pytest.mark.skipif(not any(map(shutil.which, printing.BROWSERS)), reason="no Chromium found")
def test_printed(made: Approximation, tmp_path: Path) -> None:
    assert made.report(tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")


def test_no_browser_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(printing, "BROWSERS", ())
    with pytest.raises(OnelayerError, match="needs Chromium"):
        printing.print_page("<p>", tmp_path / "r.pdf")


def test_what_lies_beside_a_proof_is_not_read(made: Approximation, tmp_path: Path) -> None:
    """A file of a terabyte, whose hash takes hours; and one that is too large for a proof, in one line."""
    folder = made.save(tmp_path / "a")
    with open(folder / "notes.txt", "wb") as beside:
        beside.truncate(2**40)
    page = write_report(folder, tmp_path / "a.html")
    assert "notes.txt" not in page.read_text()
    with open(folder / "boxes.bin", "wb") as boxes:
        boxes.truncate(2**40)
    with pytest.raises(OnelayerError, match=r"boxes\.bin is larger than the limit"):
        write_report(folder, tmp_path / "b.html")


def test_a_folder_that_changes_while_it_is_reported_has_no_report(
    made: Approximation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.save(tmp_path / "a")
    honest = page_room.check

    def changing(*given: Any, **options: Any) -> Any:
        (folder / "function.txt").write_text("sin(4*x)")
        return honest(made.save(tmp_path / "b"), **options)

    monkeypatch.setattr(page_room, "check", changing)
    with pytest.raises(OnelayerError, match="was changed while"):
        write_report(folder, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
