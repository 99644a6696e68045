"""Distillation: proofs against deep teachers, fidelity with honest intervals, and a sentence encoder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.training.distill import distill_tokens, encoded, split
from onelayer.training.encoder import SentenceEncoder
from onelayer.training.fidelity import bootstrap, fidelity
from onelayer.training.stack import Stack

BOX = ol.Box([-1.0, -1.0], [1.0, 1.0])


def bert_state(width: int = 16, depth: int = 2, vocabulary: int = 60, length: int = 12) -> dict[str, torch.Tensor]:
    """Random weights under the names of Hugging Face's BertModel."""
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator) / size[-1] ** 0.5

    state = {"embeddings.word_embeddings.weight": draw(vocabulary, width) * 4}
    state |= {"embeddings.position_embeddings.weight": draw(length, width)}
    state |= {"embeddings.token_type_embeddings.weight": draw(2, width)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(depth):
        name = f"encoder.layer.{layer}"
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
        parts = [f"attention.self.{part}" for part in ("query", "key", "value")] + ["attention.output.dense"]
        for part in parts:
            state |= {f"{name}.{part}.weight": draw(width, width), f"{name}.{part}.bias": draw(width)}
        state |= {f"{name}.intermediate.dense.weight": draw(32, width), f"{name}.intermediate.dense.bias": draw(32)}
        state |= {f"{name}.output.dense.weight": draw(width, 32), f"{name}.output.dense.bias": draw(width)}
    for name in norms:
        state |= {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}
    return state


def random_ids(count: int, vocabulary: int = 60, length: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, vocabulary, (count, length), generator=generator)
    lengths = torch.randint(3, length + 1, (count, 1), generator=generator)
    return ids * (torch.arange(length) < lengths)


def test_untrained_student_is_the_least_squares_linear_map() -> None:
    teacher = SentenceEncoder(bert_state(), heads=4)
    ids = random_ids(300)
    outputs = encoded(teacher, ids)
    found = distill_tokens(ids, outputs, teacher, heads=2, d_model=18, hidden=4, steps=0, test=0.5)
    seen, held = split(300, 0.5, 0)
    present = (ids != 0).float()[..., None]
    mean = (teacher.table[ids] * present).sum(1) / present.sum(1)
    columns = torch.cat([mean, torch.ones(300, 1)], 1)
    wanted = columns[held] @ torch.linalg.lstsq(columns[seen], outputs[seen]).solution
    cosine = torch.nn.functional.cosine_similarity(found(ids[held]), wanted)
    assert float(cosine.min()) > 1 - 1e-4


def certified(teacher: Stack, box: ol.Box, eps: float) -> None:
    found = ol.distill(teacher, box, eps)
    assert found.road == "certified"
    assert found.approximation is not None
    assert found.approximation.certificate.status == "proved"
    assert found.approximation.certificate.upper <= eps
    assert found.teacher_parameters == teacher.size()["parameters"]
    assert found.speed_up > 0
    x = torch.cat([box.sample(2000, arcsine=True), box.corners()])
    with torch.no_grad():
        assert float((found(x) - teacher(x)).abs().max()) <= eps


@pytest.mark.slow
def test_certified_distillation_of_two_blocks() -> None:
    certified(Stack((1,), (), depth=2, d_model=2, heads=1, hidden=4, activation="gelu").eval(), ol.Box([-1], [1]), 1e-2)


@pytest.mark.slow
def test_certified_distillation_of_four_blocks() -> None:
    certified(Stack((2,), (), depth=4, d_model=4, heads=2, hidden=8, activation="gelu", seed=1).eval(), BOX, 5e-2)


def test_statistical_distillation_of_a_module() -> None:
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 4)).double()
    x = torch.randn(400, 3, dtype=torch.float64)
    found = ol.distill(teacher, data=x, test=0.25, steps=150, heads=2, d_model=16, hidden=32, memory=4, batch=64)
    assert found.road == "statistical"
    assert found.fidelity is not None
    assert found.fidelity.count == 100
    assert found.fidelity.explained.low <= found.fidelity.explained.value <= found.fidelity.explained.high
    assert found.fidelity.explained.value > 0.8
    assert found.fidelity.cosine is not None
    assert found.fidelity.cosine.value > 0.9
    assert "held-out" in str(found)


def test_encoder_is_hugging_faces_bert() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=12, layer_norm_eps=1e-12,
    )  # fmt: skip
    bert = transformers.BertModel(config).eval()
    bert.load_state_dict(bert_state(), strict=False)
    ids = random_ids(9)
    mask = ids != 0
    with torch.no_grad():
        hidden = bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    ours = SentenceEncoder(bert_state(), heads=4)(ids)
    assert torch.allclose(ours, torch.nn.functional.normalize(mean, dim=-1), atol=1e-5)


def test_one_layer_follows_a_sentence_encoder() -> None:
    teacher = SentenceEncoder(bert_state(), heads=4)
    ids = random_ids(600)
    outputs = encoded(teacher, ids)
    found = distill_tokens(ids, outputs, teacher, heads=2, d_model=32, hidden=64, steps=150, batch=64, lr=3e-3)
    assert found.fidelity is not None
    assert found.fidelity.cosine is not None
    assert found.fidelity.rank is not None
    assert found.fidelity.cosine.value > 0.6
    assert found.fidelity.rank.value > 0.3
    untrained = distill_tokens(ids, outputs, teacher, heads=2, d_model=32, hidden=64, steps=0)
    assert untrained.fidelity is not None
    assert untrained.fidelity.cosine is not None
    assert untrained.fidelity.cosine.value < found.fidelity.cosine.value
    assert untrained.fidelity.explained.value < found.fidelity.explained.value


def test_perfect_student_has_fidelity_one_and_noise_has_none() -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(200, 8, generator=generator)
    same = fidelity(teacher, teacher)
    assert same.explained.value == 1
    assert same.rank is not None
    assert same.rank.value == pytest.approx(1)
    noise = fidelity(teacher, torch.randn(200, 8, generator=generator))
    assert noise.explained.value < 0
    assert noise.rank is not None
    assert noise.rank.low < 0 < noise.rank.high


def test_bootstrap_interval_covers_the_mean() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(60):
        sample = generator.normal(size=80)
        interval = bootstrap(lambda rows, sample=sample: float(sample[rows].mean()), 80, seed=trial)
        hits += interval.low <= 0 <= interval.high
    assert hits >= 50


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.Linear(2, 1),), {}, "give a box and eps"),
        ((nn.Linear(2, 1), BOX), {}, "needs eps"),
        ((nn.Linear(2, 1),), {"data": torch.zeros(30, 2), "test": 1.5}, "share between"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(OnelayerError, match=message) as caught:
        ol.distill(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


# The folder of a sentence encoder comes from anybody: what lies in it is read, or refused in one line.
CONFIG = {"num_attention_heads": 4, "layer_norm_eps": 1e-12}


def folder(path: Path, config: Any = CONFIG, **changes: torch.Tensor | None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    state = {name: value for name, value in (bert_state() | changes).items() if value is not None}
    safetensors.torch.save_file(state, path / "model.safetensors")
    return path


def test_a_folder_of_links_is_read(tmp_path: Path) -> None:
    """The cache of Hugging Face is one."""
    original = folder(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for file in original.iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    found = SentenceEncoder.from_folder(tmp_path / "snapshot")
    assert found(torch.tensor([[3, 5, 0]])).shape == (1, 16)


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        "[" * 9999,
        {"num_attention_heads": 0, "layer_norm_eps": 1e-12},
        {"num_attention_heads": "4", "layer_norm_eps": 1e-12},
        {"num_attention_heads": 4, "layer_norm_eps": "x"},
        {"num_attention_heads": 5, "layer_norm_eps": 1e-12},
    ],
)
def test_settings_that_are_none(config: Any, tmp_path: Path) -> None:
    refused(folder(tmp_path, config))


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder.layer.1.output.dense.bias": None},
        {"encoder.layer.x.output.dense.bias": torch.zeros(3)},
        {"embeddings.LayerNorm.weight": torch.zeros(3)},
        {"embeddings.word_embeddings.weight": torch.zeros(())},
        {"embeddings.word_embeddings.weight": torch.zeros(0, 16)},
        {"embeddings.token_type_embeddings.weight": torch.zeros(0, 16)},
    ],
)
def test_weights_that_do_not_fit(changes: dict[str, torch.Tensor | None], tmp_path: Path) -> None:
    refused(folder(tmp_path, **changes))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.write_bytes(b"\xff{}")])
def test_files_that_are_none(name: str, make: Callable[[Path], Any], tmp_path: Path) -> None:
    if name == "tokenizer.json":
        pytest.importorskip("tokenizers")
    place = folder(tmp_path) / name
    place.unlink(missing_ok=True)
    make(place)
    refused(tmp_path)


def refused(path: Path) -> None:
    with pytest.raises(OnelayerError) as raised:
        SentenceEncoder.from_folder(path)
    assert "\n" not in str(raised.value)
