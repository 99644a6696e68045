"""Training: what it reaches, what it refuses, and the way from a trained layer to a proof."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.layer.file import load_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.training.recipe import LEARNING_RATES, Recipe
from onelayer.training.stack import Stack
from onelayer.training.start import fresh_layer
from onelayer.training.train import train

BOX = ol.Box([0.0, 0.0], [3.0, 1.0])
SMALL = {"heads": 2, "d_model": 8, "hidden": 32, "batch": 64}


def test_training_learns_and_is_certified(tmp_path: Path) -> None:
    run = train("x1 * x2", BOX, steps=300, lbfgs_steps=40, **SMALL)
    assert run.history[0]["sup"] > 3 * run.sup
    assert run.rmse < run.sup < 0.3
    assert run.history[-1]["phase"] == "l-bfgs"
    result = run.approximation(2 * run.sup, max_seconds=60)
    assert result.certificate.status == "proved"
    assert result.certificate.lower <= result.certificate.upper <= 2 * run.sup
    result.save(tmp_path / "product")
    again = ol.load(tmp_path / "product")
    x = BOX.sample(50)
    assert torch.equal(again.model(x), run.model(x))
    assert float((run.model(x) - x[:, 0] * x[:, 1]).abs().max()) <= result.certificate.upper


@pytest.mark.parametrize("optimiser", LEARNING_RATES)
def test_every_optimiser_lowers_the_loss(optimiser: str) -> None:
    run = train("sin(x1) + x2", BOX, optimiser=optimiser, steps=120, every=20, **SMALL)
    assert run.history[-1]["loss"] < 0.5 * run.history[0]["loss"]


def test_same_seed_same_weights_other_seed_other_weights() -> None:
    first, second, other = (train("x1 - x2", BOX, steps=10, seed=seed, **SMALL) for seed in (1, 1, 2))
    assert torch.equal(first.model.W_E, second.model.W_E)
    assert not torch.equal(first.model.W_E, other.model.W_E)


def test_scaling_is_folded_exactly_enough() -> None:
    """Measures are taken in unit coordinates before the fold; the folded model must agree with them on raw points."""
    box = ol.Box([1000.0, -0.001], [5000.0, 0.001])
    run = train("x1 / 100 + 1000 * x2", box, steps=50, batch=32, heads=2, d_model=8, hidden=16)
    assert isinstance(run.model, OneLayerTransformer)
    assert run.model.config.layout == "packed", "sides of very different length"
    x = torch.cat([box.sample(1 << 14, seed=11), box.sample(1 << 14, seed=12, arcsine=True), box.corners()])
    seen = float((run.model(x) - (x[:, 0] / 100 + 1000 * x[:, 1])).abs().max())
    assert seen == pytest.approx(run.sup, rel=1e-9)


def test_warm_start_from_a_construction_keeps_its_accuracy() -> None:
    built = ol.approximate("sin(x1) + x2", BOX, 1e-3)
    untouched = train("sin(x1) + x2", BOX, model=built, steps=0)
    x = BOX.sample(64)
    assert torch.equal(untouched.model(x), built.model(x))
    run = train("sin(x1) + x2", BOX, model=built, steps=5, lr=1e-7)
    assert run.sup < 1.1e-3
    assert not any(parameter.requires_grad for parameter in built.model.parameters())


def test_classifier_from_text_labels_and_held_out_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 3))
    labels = np.where(x[:, 0] + x[:, 1] > 0, "up", "down")
    run = train((x, labels), test=0.25, steps=80, memory=4, **SMALL)
    assert run.classes == ("down", "up")
    assert run.accuracy > 0.85
    path = run.save(tmp_path / "model")
    rows = torch.from_numpy(x)
    assert torch.equal(load_model(path)(rows), run.model(rows))
    with pytest.raises(OnelayerError, match="not sup"):
        _ = run.sup


def test_csv_file_and_its_target_column(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("a,b,y\n" + "".join(f"{i / 20},{(i * 7 % 20) / 20},{i / 20 - 0.5}\n" for i in range(40)))
    run = train(file, target="y", steps=60, memory=4, **SMALL)
    assert run.rmse < 0.3


def test_patience_stops_early_and_keeps_the_best() -> None:
    run = train("sin(9*x1) + x2", BOX, steps=4000, every=10, patience=2, lr=0.05, schedule="constant", **SMALL)
    assert run.history[-1]["step"] < 4000
    best = min(row["sup"] for row in run.history)
    assert run.sup < 1.5 * best


def test_bfloat16_trains_float32_weights() -> None:
    run = train("x1 * x2", BOX, steps=30, dtype="bfloat16", **SMALL)
    assert run.model.W_E.dtype == torch.float32
    assert np.isfinite(run.sup)


def test_depth_gives_a_stack_of_standard_blocks() -> None:
    run = train("x1 * x2", BOX, depth=2, steps=60, **SMALL)
    assert isinstance(run.model, Stack)
    assert run.model.size()["depth"] == 2
    x = BOX.sample(20)
    assert float((run.model(x) - x[:, 0] * x[:, 1]).abs().max()) <= 1.001 * run.sup
    with pytest.raises(OnelayerError, match="only a one-layer"):
        run.approximation(0.1)


def test_one_block_of_the_stack_is_our_layer() -> None:
    """nn.TransformerEncoderLayer with the norm first is the pre-norm layer with residual, weight for weight."""
    stack = Stack((3,), (), depth=1, d_model=8, heads=2, hidden=16, seed=5)
    layer = fresh_layer((3,), (), d_model=8, heads=2, hidden=16, norm="pre")
    block = stack.blocks[0]
    q, k, v = block.self_attn.in_proj_weight.T.split(8, dim=1)
    bq, bk, bv = block.self_attn.in_proj_bias.split(8)
    pairs = {
        "E": stack.embed,
        "O": block.self_attn.out_proj,
        "1": block.linear1,
        "2": block.linear2,
        "R": stack.readout,
    }
    weights = {"W_Q": q, "W_K": k, "W_V": v, "b_Q": bq, "b_K": bk, "b_V": bv, "position": stack.position}
    for name, linear in pairs.items():
        weights |= {f"W_{name}": linear.weight.T, f"b_{name}": linear.bias}
    layer.set_weights(weights)
    x = torch.randn(10, 3, dtype=torch.float64)
    assert torch.allclose(stack(x), layer(x), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("x1", BOX), {"optimiser": "newton"}, "optimiser must be one of adam"),
        (("x1", BOX), {"heads": 3, "d_model": 8}, "multiple of heads"),
        (("x1", BOX), {"steps": -1}, "steps must be"),
        (("x1", BOX), {"loss": "cross-entropy"}, "needs labels"),
        (("x1", BOX), {"lr": float("nan")}, "lr must be"),
        (("table.csv",), {}, "needs domain="),
        ((3,), {}, "give a function"),
        (("x1", BOX), {"model": 3}, "model must be"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(OnelayerError, match=message) as caught:
        train(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_divergence_is_named() -> None:
    with pytest.raises(OnelayerError, match="diverged"):
        train("x1 * x2", BOX, steps=100, optimiser="sgd", lr=1e3, **SMALL)


def test_cosine_schedule_warms_up_and_ends_near_zero() -> None:
    recipe = Recipe(steps=100, lr=1.0)
    rates = [recipe.rate(step) for step in range(100)]
    assert rates[0] < rates[4] == max(rates) == 1.0
    assert rates[-1] < 1e-3
