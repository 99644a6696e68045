"""Studies: built layers that shrink their error, and every study end to end on its smallest cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onelayer.errors import OnelayerError
from onelayer.study import STUDIES
from onelayer.study.built import KINDS, built_heads, built_memory, built_ridges
from onelayer.study.depth import shape_for
from onelayer.study.digits import load_digits, varied
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.study import Study, run_study
from onelayer.training.stack import Stack

WAVES = PROBLEMS["waves"]
TINY = {"steps": 6, "batch": 16, "lbfgs_steps": 0, "budget": 600}


def shrunk(study: Study) -> Study:
    """The same study with runs of a few steps: what is tested is the way, not the errors."""

    def cells(quick: bool) -> list[dict[str, object]]:
        small = []
        for cell in study.cells(quick):
            settings = {name: TINY.get(name, value) for name, value in cell.items()}
            if settings not in small:
                small.append(settings)
        return small

    return replace(study, cells=cells)


QUICKEST = ("kinds", "depth", "digits")


@pytest.mark.parametrize(
    "name", [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow) for name in STUDIES]
)
def test_every_study_runs_draws_and_speaks(name: str, tmp_path: Path) -> None:
    found = run_study(shrunk(STUDIES[name]), tmp_path, quick=True)
    assert found.picture.stat().st_size > 5000
    assert len(found.rows) == len(found.results.read_text().splitlines())
    assert found.sentences
    assert all("nan" not in sentence for sentence in found.sentences)
    again = run_study(shrunk(STUDIES[name]), tmp_path, quick=True)
    assert again.rows == found.rows


def test_full_studies_have_at_least_three_seeds_and_more_cells() -> None:
    for name, study in STUDIES.items():
        assert len(study.cells(False)) >= len(study.cells(True)), name
    for name in ("heads", "width", "memory"):
        assert len({cell["seed"] for cell in STUDIES[name].cells(True) if "seed" in cell}) >= 3


def test_built_errors_fall_with_every_resource() -> None:
    heads = [seen_error(built_heads(WAVES, count), WAVES)["sup"] for count in (2, 8, 16)]
    ridges = [seen_error(built_ridges(WAVES, count), WAVES)["sup"] for count in (16, 64)]
    tokens = [seen_error(built_memory(WAVES, count), WAVES)["sup"] for count in (4, 8, 16)]
    assert heads[0] > 5 * heads[1] > 25 * heads[2]
    assert ridges[0] > 10 * ridges[1]
    assert tokens[0] > 10 * tokens[1] > 100 * tokens[2]


def test_built_kinds_have_the_kind_they_name() -> None:
    for kind, options in KINDS.items():
        assert built_memory(WAVES, 4, kind).config.attention == options["attention"]
    with pytest.raises(OnelayerError, match="attention must be one of"):
        built_memory(WAVES, 4, "dense")


def test_stacks_of_the_depth_study_have_nearly_equal_parameters() -> None:
    counts = []
    for depth in (1, 2, 4, 6):
        shape = shape_for(4, {"depth": depth, "budget": 40_000})
        counts.append(Stack((4,), (), depth=depth, heads=2, **shape).size()["parameters"])
    assert max(counts) < 1.1 * min(counts)


def test_digits_split_is_fixed_and_moves_are_moves() -> None:
    data = load_digits()
    assert len(data.y) == 1347
    assert len(data.test_y) == 450
    x, y = varied(data.x[:2], data.y[:2])
    assert x.shape == (30, 8, 8)
    assert (x[2, :, 1:] == data.x[0, :, :-1]).all()
    assert (x[6, 1:] == data.x[0, :-1]).all()
    assert y.tolist() == data.y[:2].tolist() * 15


@pytest.mark.slow
def test_one_layer_reads_digits() -> None:
    """At least 98 % of the fixed test set with at most 50,000 parameters."""
    cell = next(cell for cell in STUDIES["digits"].cells(False) if cell["method"] == "classifier")
    found = STUDIES["digits"].measure(cell)
    assert found["accuracy"] >= 0.98
    assert found["parameters"] <= 50_000
