"""TransformerLens: the GPT-2 form of a layer behind a TransformerBridge, whose hooks name our heads' patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.export.huggingface import to_huggingface
from onelayer.extras import require
from onelayer.source import Exportable, source_of

PATTERN = "blocks.0.attn.hook_pattern"


@dataclass(frozen=True)
class Lens:
    """A packed layer in TransformerLens: memory tokens first, the point last, and the point reads them all.

    ``bridge`` is a transformer_lens TransformerBridge over the stock GPT-2; ``head_tokens`` the memory tokens per head.
    """

    bridge: Any
    embedded: Any
    memory: Tensor
    head_tokens: tuple[int, ...]
    output_shape: tuple[int, ...]

    def stream(self, x: Tensor) -> Tensor:
        """Points (B, *input_shape) as the residual stream that enters the block, (B, M + 1, d_model)."""
        points = self.embedded(x)
        return torch.cat([self.memory.expand(len(x), *self.memory.shape), points], dim=1)

    def run_with_cache(self, x: Tensor, **options: Any) -> tuple[Tensor, Any]:
        """Values (B, *output_shape) at the points, and the cache of all activations by name."""
        logits, cache = self.bridge.run_with_cache(self.stream(x), start_at_layer=0, **options)
        count = max(1, torch.Size(self.output_shape).numel())
        return logits[:, -1, :count].reshape(len(x), *self.output_shape), cache

    def patterns(self, cache: Any) -> list[Tensor]:
        """Weights of the point over its memory tokens, H x (B, M_h), out of a cache."""
        pattern = cache[PATTERN]  # (B, H, M + 1, M + 1)
        return [pattern[:, h, -1, :count] for h, count in enumerate(self.head_tokens)]


def to_lens(a: Exportable, *, anchor: float | None = None, box: Box | None = None) -> Lens:
    """``a`` as a TransformerLens object; ``anchor`` and ``box`` are those of ``to_torch``. Packed layers only."""
    require("transformer_lens", "lens")
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    config = source_of(a, box).model.config
    if config.layout != "packed":
        raise OnelayerError("TransformerLens runs GPT-2 causally: a layer whose tokens attend both ways does not fit")
    model = to_huggingface(a, anchor=anchor, box=box)
    memory = model.gpt2.transformer.wte.weight[: model.memory_ids.numel()].detach().clone()
    bridge = build_bridge_from_module(model.gpt2, "GPT2LMHeadModel", hf_config=model.gpt2.config, model_name="onelayer")
    bridge.requires_grad_(False)
    head_tokens = tuple(head.token_count for head in config.heads)
    return Lens(bridge, model.inputs_embeds, memory, head_tokens, config.output_shape)
