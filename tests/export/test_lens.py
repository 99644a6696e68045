"""TransformerLens: run_with_cache names the patterns of our heads, and they are ours."""

from __future__ import annotations

import pytest
import torch

from onelayer.build.sort import sort
from onelayer.export.lens import to_lens
from onelayer.export.plan import plan
from onelayer.source import source_of

pytest.importorskip("transformer_lens", reason="the extra lens is not installed")


def test_values_and_patterns_agree(sample) -> None:
    lens = to_lens(sample.model, box=sample.box)
    values, cache = lens.run_with_cache(sample.points)
    assert sample.difference(values) <= sample.bar
    assert torch.equal(values, lens(sample.points))
    ours = sample.model.attention_weights(sample.points)
    theirs = lens.patterns(cache)
    assert len(theirs) == len(ours)
    # Weights of sharp heads feel the rounding of their logits, which are as large as the reach.
    rounding = 4 * torch.finfo(sample.model.dtype).eps * plan(source_of(sample.model, sample.box)).reach
    for pattern, weights in zip(theirs, ours, strict=True):
        assert (pattern - weights).abs().max() <= max(sample.bar, rounding)


def test_cache_names(plane) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    lens = to_lens(plane.model, box=plane.box)
    assert isinstance(lens.bridge, TransformerBridge)
    _, cache = lens.run_with_cache(plane.points[:2])
    for name in ("hook_resid_pre", "attn.hook_pattern", "attn.hook_z", "mlp.hook_post", "hook_resid_post"):
        assert f"blocks.0.{name}" in cache


@pytest.mark.parametrize("label", ["sort-float64", "median-float64"])
def test_hooks_reach_a_sequence_layer(zoo, label: str) -> None:
    """Silencing a head changes what the layer says; a hook that changes nothing does not."""
    sample = zoo(label)
    lens = to_lens(sample.model, box=sample.box)

    def silence(z: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.cat([torch.zeros_like(z[:, :, :1]), z[:, :, 1:]], dim=2)

    plain = lens.run_with_hooks(sample.points, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z)])
    assert sample.difference(plain) <= sample.bar
    muted = lens.run_with_hooks(sample.points, fwd_hooks=[("blocks.0.attn.hook_z", silence)])
    assert sample.difference(muted) > 0.01


def guards_outside(model, box) -> bool:
    far, near = (box.upper[None].to(model.dtype) + shift for shift in (1.0, 0.0))
    with pytest.raises(ValueError, match="1 of 1 points lie outside"):
        to_lens(model, box=box, guard="raise")(far)
    clamping = to_lens(model, box=box, guard="clamp")
    return torch.equal(*(clamping.run_with_cache(x)[0] for x in (far, near)))


def test_a_guard_decides_outside(plane) -> None:
    sorting = sort(3, 0.0, 1.0, 0.1)
    assert guards_outside(plane.model, plane.box)
    assert guards_outside(sorting.model, sorting.box)
