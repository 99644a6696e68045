"""explain: regions, values and kinks read off the weights are what the layer does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import sort
from onelayer.errors import OnelayerError
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.pictures.explanation import explain, linear_text
from onelayer.pictures.panels import draw_attention
from onelayer.pictures.sequence_panels import inside
from onelayer.result import Approximation


@pytest.fixture
def known() -> tuple[torch.nn.Module, Box]:
    slopes = torch.tensor([-4.0, 0.0, 4.0]).double()
    biases = torch.tensor([0.0, 1.0, 0.0]).double()
    diagonal = torch.tensor([1.0, -2.0]).double()
    heads = [
        LookupHead([AxisKeys(0, slopes, biases)], torch.tensor([[1.0], [2.0], [3.0]]).double(), coefficient=10.0),
        LookupHead([AxisKeys(diagonal, slopes, biases)] * 2, torch.arange(9.0).double().reshape(3, 3, 1)),
    ]
    ridges = Ridges(
        torch.tensor([[1.0, -1.0], [1.0, 1.0]]).double(), torch.tensor([0.25, 9.0]).double(), torch.ones(2, 1)
    )
    affine = Affine(torch.tensor([[0.5, 0.0]]).double(), torch.tensor([7.0]).double())
    return lookup_model(2, (), heads, ridges, affine), Box([-1, -1], [1, 1])


def test_known_layer(known) -> None:
    model, box = known
    told = explain(model, box=box)
    first, second = told.heads
    assert first.axes[0].reads == "x1"
    assert [token.region for token in first.axes[0].tokens] == [(-1.0, -0.25), (-0.25, 0.25), (0.25, 1.0)]
    assert torch.tensor(first.values).flatten().tolist() == [10.0, 20.0, 30.0]
    assert second.axes[0].range == (-1.5, 1.5)
    assert second.axes[0].reads == "-0.5 x1 + x2"
    kink, always = told.units
    assert kink.purpose == "kink along x1 - x2 + 0.25 = 0"
    assert kink.coefficient == (1.0,)
    assert always.purpose.startswith("always active")
    assert told.matrix == [[0.5, 0.0]]
    assert told.offset == [7.0]


def test_the_story_adds_up_to_the_layer(known) -> None:
    """Rebuild the function from the explanation alone."""
    model, box = known
    told = json.loads(explain(model, box=box).to_json())
    x = box.sample(200)
    total = x @ torch.tensor(told["affine"]["matrix"]).double().T + torch.tensor(told["affine"]["offset"]).double()
    for head in told["heads"]:
        values = torch.tensor(head["values"]).double()
        for axis in reversed(head["axes"]):
            slopes = torch.tensor([token["slope"] for token in axis["tokens"]]).double()
            biases = torch.tensor([token["bias"] for token in axis["tokens"]]).double()
            u = x @ torch.tensor(axis["direction"]).double()
            weights = torch.softmax(u[:, None] * slopes + biases, -1)
            if values.shape[0] == len(x) and values.ndim > 2:
                values = torch.einsum("sm...k,sm->s...k", values, weights)
            else:
                values = torch.einsum("...mk,sm->s...k", values, weights)
        total = total + values
    for unit in told["hidden_units"]:
        bend = torch.relu(x @ torch.tensor(unit["normal"]).double() + unit["offset"])
        total = total + bend[:, None] * torch.tensor(unit["coefficient"]).double()
    assert (total[:, 0] - model(x)).abs().max() < 1e-12


def test_regions_are_where_a_token_weighs_most(plane) -> None:
    told = explain(plane.model, box=plane.box)
    x = plane.points
    for h, weights in enumerate(plane.model.attention_weights(x)):
        axis = told.heads[h].axes[0]
        u = x @ torch.tensor(axis.direction).double()
        for value, strongest in zip(u.tolist(), weights[:, 0].argmax(-1).tolist(), strict=True):
            region = axis.tokens[strongest].region
            assert region is not None
            assert region[0] - 1e-9 <= value <= region[1] + 1e-9


def test_every_model_is_explained(sample) -> None:
    told = explain(sample.model, box=sample.box)
    data = json.loads(told.to_json())
    assert len(data["heads"]) == len(sample.model.config.heads)
    assert len(data["hidden_units"]) == sample.model.config.hidden
    tokens = [torch.tensor(head["values"]).shape[:-1].numel() if head["values"] else 0 for head in data["heads"]]
    assert tokens == [head.token_count for head in sample.model.config.heads]
    assert told.heads[-1].purpose in str(told)


@pytest.mark.parametrize(
    ("build", "head", "unit"),
    [
        (lambda: sort(3, 0.0, 1.0, 0.2, kind="thresholds"), "counts", "fires while fewer than i of the 3 numbers"),
        (lambda: sort(3, 0.0, 1.0, 0.2, kind="subsets"), "x1 itself", "lets the number of rank 1 through"),
        (
            lambda: superpose("exp(x1 + x2)", Box([0, 0], [1, 1]), 0.05),
            "adds up",
            "exp(s), s = x1 + x2; bends at s = 0",
        ),
        (lambda: gather("x1*x2", Box([0, 0], [1, 1]), 0.05), "its own token", "s = x1 + x2; bends at s = 0"),
        (lambda: memorize([[0.0], [1.0], [3.0]], [1.0, 2.0, 0.0], recipe="softmax"), "stored row", ""),
        (lambda: memorize([[0.0], [1.0], [3.0]], [1.0, 2.0, 0.0], recipe="relu"), "silent", "projection s is"),
    ],
)
def test_sequences_are_told_in_words(build: Callable[[], Approximation], head: str, unit: str, tmp_path) -> None:
    """Every construction says what its heads and units do, and draws what they do at one input."""
    a = build()
    told = a.explain()
    assert told.algorithm in " ".join(str(told).split())
    assert head in told.heads[0].purpose
    assert unit in (told.units[0].purpose if told.units else "")
    assert json.loads(told.to_json())["algorithm"] == told.algorithm
    assert draw_attention(a, tmp_path / "inside.png").stat().st_size > 10_000


def test_the_words_about_thresholds_are_true() -> None:
    """A unit fires at position i exactly while fewer than i numbers lie below its cell."""
    a = sort(4, 0.0, 1.0, 0.2, kind="thresholds")
    x = torch.tensor([0.05, 0.5, 0.55, 0.95], dtype=torch.float64)
    seen = inside(a.model, x, 0)
    cells = a.model.config.ramps
    ends = a.model.own("ramp_start")[0]
    for g in range(cells):
        below = int((x < ends[g] - 1 / cells).sum())
        if not bool(((x >= ends[g] - 1 / cells) & (x <= ends[g])).any()):
            assert [unit > 1e-9 for unit in seen.units[:, g]] == [below < i for i in range(1, 5)]


def test_bare_model_needs_a_box(plane) -> None:
    with pytest.raises(OnelayerError, match="pass box="):
        explain(plane.model)


@pytest.mark.parametrize("weight", [-1.0, -0.9999999999999996, -1.0000000000000002])
def test_a_weight_that_would_be_shown_as_one_is_not_written(weight: float) -> None:
    """Its last digits are those of the machine that solved for it."""
    assert linear_text(torch.tensor([weight, 0.5], dtype=torch.float64), 0.3) == "-x1 + 0.5 x2 + 0.3"
