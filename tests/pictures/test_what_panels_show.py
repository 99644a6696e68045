"""A panel shows what makes T: lines that sharp heads take, units where heads have no choice, no noise of rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

import onelayer as ol
from onelayer.card import number_of
from onelayer.pictures import panels
from onelayer.pictures.panels import attention_figure
from onelayer.pictures.scene import Scene
from onelayer.proof.certificate import abridged


def _titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize(
    ("count", "things", "text"),
    [
        (1, "boxes", "1 box"),
        (0, "boxes", "0 boxes"),
        (1, "hidden units", "1 hidden unit"),
        (1803, "rows", "1,803 rows"),
    ],
)
def test_a_number_with_its_noun(count: int, things: str, text: str) -> None:
    assert number_of(count, things) == text


def test_units_where_the_head_has_one_token() -> None:
    result = ol.approximate("abs(x - 0.3) + max(x, 0.5)", ol.Box("x=0:1"), 1e-6, jobs=1)
    _, units, error = result.draw().axes
    assert units.get_title(loc="left") == "what 2 hidden units add to T"
    adds = [line.get_ydata() for line in units.get_lines()]
    assert [float(max(curve)) for curve in adds] == pytest.approx([1.4, 0.5])
    assert "only rounding" in error.get_title(loc="left")
    assert error.get_ylim()[1] >= result.certificate.upper
    shown = _titles(attention_figure(Scene.of(result), torch.tensor([0.4], dtype=torch.float64)))
    assert shown == ["hidden units: 1 of 2 fire, and add"]


def test_lines_that_sharp_heads_take() -> None:
    figure = ol.approximate("max(min(x, 0.3), min(1 - x, 0.6))", ol.Box("x=0:1"), 1e-6, jobs=1).draw()
    assert "which of 7 lines" in _titles(figure)[1]


def test_a_sequence_shows_every_output_while_one_number_moves() -> None:
    figure = ol.sort(4, 0, 1, 0.05).draw()
    above, beside, below, _ = figure.axes
    assert above.get_title(loc="left") == "all 4 outputs while x1 moves, the others spread"
    assert "worst point" in beside.get_title(loc="left")
    assert len(above.get_lines()) == 8
    assert len(below.get_lines()) >= 4
    assert "12 of 30 outputs" in _titles(ol.sort(30, 0, 1, 0.05).draw())[0]


def test_loaded_formulas_keep_their_names(tmp_path: object) -> None:
    ol.approximate("abs(speed)", ol.Box("speed=-1:1"), 1e-6, jobs=1).save(f"{tmp_path}/a")
    assert "f = abs(speed)" in Scene.of(ol.load(f"{tmp_path}/a")).subline


def test_code_is_not_called_by_the_name_of_its_function() -> None:
    result = ol.approximate(lambda x: torch.abs(x[..., 0]), ol.Box("x=-1:1"), 1e-6, jobs=1)
    assert "f = <lambda>" not in Scene.of(result).subline
    assert "f = f" not in Scene.of(result).subline


def test_the_checker_counts_one_box() -> None:
    result = ol.approximate("x + 1", ol.Box("x=-1:1"), 1e-6, jobs=1)
    assert result.certificate.boxes == 1
    assert ", 1 box," in str(result.certificate)
    assert "re-proved on the one box" in str(result.check())


def test_the_numbers_of_a_table_are_not_written_into_titles() -> None:
    rows = {"speed": [float(k) for k in range(30)], "y": [k / 7 for k in range(30)]}
    table = ol.Table.read(rows, inputs=["speed"], output="y")
    made = ol.approximate(table, table.box, 0.5, jobs=1)
    assert made.certificate.short_function == "spline(speed, table)"
    assert "f = spline(speed, table)" in Scene.of(made).subline
    assert abridged("x + 1", 80) == "x + 1"
    assert abridged("x + 1" * 80, 20) == "x + 1x + 1x + 1x ..."


def test_bars_are_numbered_only_where_they_stand() -> None:
    made = ol.approximate("abs(x)", ol.Box("x=-1:1"), 1e-6, jobs=1)
    units = attention_figure(Scene.of(made), torch.tensor([0.5], dtype=torch.float64)).axes[-1]
    assert list(units.get_xticks()) == [1]


def test_a_sequence_is_looked_into_where_its_numbers_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr(panels, "attention_figure", lambda scene, x: seen.append(x) or Figure())
    panels.draw_attention(ol.sort(4, 0, 1, 0.05), tmp_path / "sort.png")
    assert len(set(seen[0].tolist())) == 4
