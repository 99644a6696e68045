"""TransformerLens: run_with_cache names the patterns of our heads, and they are ours."""

from __future__ import annotations

import pytest
import torch

from onelayer.errors import OnelayerError
from onelayer.export.lens import to_lens
from onelayer.export.plan import plan
from onelayer.source import source_of

pytest.importorskip("transformer_lens", reason="the extra lens is not installed")


def test_values_and_patterns_agree(packed_sample) -> None:
    sample = packed_sample
    lens = to_lens(sample.model, box=sample.box)
    values, cache = lens.run_with_cache(sample.points)
    assert sample.difference(values) <= sample.bar
    ours = sample.model.attention_weights(sample.points)
    theirs = lens.patterns(cache)
    assert len(theirs) == len(ours)
    # Weights of sharp heads feel the rounding of their logits, which are as large as the reach.
    rounding = 4 * torch.finfo(sample.model.dtype).eps * plan(source_of(sample.model, sample.box)).reach
    for pattern, weights in zip(theirs, ours, strict=True):
        assert (pattern - weights[:, 0]).abs().max() <= max(sample.bar, rounding)


def test_cache_names(plane) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    lens = to_lens(plane.model, box=plane.box)
    assert isinstance(lens.bridge, TransformerBridge)
    _, cache = lens.run_with_cache(plane.points[:2])
    for name in ("hook_resid_pre", "attn.hook_pattern", "attn.hook_z", "mlp.hook_post", "hook_resid_post"):
        assert f"blocks.0.{name}" in cache


def test_tokens_are_refused(zoo) -> None:
    sample = zoo("sort-float64")
    with pytest.raises(OnelayerError, match="causally"):
        to_lens(sample.model, box=sample.box)
