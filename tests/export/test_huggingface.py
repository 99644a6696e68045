"""Hugging Face: the cache is the function, folders round-trip, and the inner GPT-2 is the library's own."""

from __future__ import annotations

import pytest
import torch

from onelayer.export.huggingface import to_huggingface

transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def test_gpt2_agrees(sample) -> None:
    model = to_huggingface(sample.model, box=sample.box)
    assert type(model.gpt2) is transformers.GPT2LMHeadModel
    assert model.gpt2.config.n_layer == 1
    assert sample.difference(model(sample.points).logits) <= sample.bar


@pytest.mark.parametrize("name", ["vector-float64", "sort-float32"])
def test_round_trip(name: str, request, tmp_path) -> None:
    from onelayer.export.gpt2 import OneLayerGPT2

    sample = request.getfixturevalue("zoo")(name)
    model = to_huggingface(sample.model, box=sample.box)
    model.save_pretrained(tmp_path)
    assert {"config.json", "model.safetensors"} == {file.name for file in tmp_path.iterdir()}
    again = OneLayerGPT2.from_pretrained(tmp_path)
    assert again.dtype == sample.model.dtype
    assert torch.equal(again(sample.points).logits, model(sample.points).logits)
    auto = transformers.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(auto(sample.points).logits, model(sample.points).logits)


def test_cache_is_the_function(plane, tmp_path) -> None:
    """With transformers alone: fill the cache from the vocabulary, then ask the language model about a point."""
    model = to_huggingface(plane.model, box=plane.box)
    model.gpt2.save_pretrained(tmp_path)
    gpt2 = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    tokens = plane.model.config.heads[0].token_count
    cache = gpt2(input_ids=torch.arange(tokens)[None], use_cache=True).past_key_values
    assert cache.layers[0].keys.shape[:3] == (1, 2, tokens)
    x = plane.points[:1]
    value = gpt2(inputs_embeds=model.inputs_embeds(x), past_key_values=cache).logits[0, -1, 0]
    assert abs(value - plane.model(x)[0]) < 1e-9

    other = model.cache()
    other.layers[0].values = torch.zeros_like(other.layers[0].values)
    assert abs(float(model(x, past_key_values=other).logits) - float(plane.model.b_R)) < 1e-9


def test_attention_of_the_point_over_the_cache(plane) -> None:
    model = to_huggingface(plane.model, box=plane.box)
    model.set_attn_implementation("eager")
    model.gpt2.set_attn_implementation("eager")
    seen = model(plane.points, output_attentions=True).attentions[0]  # (B, H, 1, M + 1)
    for h, weights in enumerate(plane.model.attention_weights(plane.points)):
        assert (seen[:, h, 0, : weights.shape[-1]] - weights[:, 0]).abs().max() < 1e-9
        assert seen[:, h, 0, -1].max() < 1e-20  # the point does not hear itself


def test_a_guard_travels_with_the_folder(plane, tmp_path) -> None:
    from onelayer.export.gpt2 import OneLayerGPT2

    far, near = plane.box.upper[None].to(plane.model.dtype) + 1, plane.box.upper[None].to(plane.model.dtype)
    for guard in ("raise", "warn", "clamp"):
        to_huggingface(plane.model, box=plane.box, guard=guard).save_pretrained(tmp_path / guard)
    with pytest.raises(ValueError, match="1 of 1 points lie outside"):
        OneLayerGPT2.from_pretrained(tmp_path / "raise")(far)
    with pytest.warns(UserWarning, match="outside the domain of the layer"):
        OneLayerGPT2.from_pretrained(tmp_path / "warn")(far)
    clamping = OneLayerGPT2.from_pretrained(tmp_path / "clamp")
    assert torch.equal(clamping(far).logits, clamping(near).logits)
    assert plane.difference(clamping(plane.points).logits.detach()) <= plane.bar
