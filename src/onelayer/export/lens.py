"""TransformerLens: a layer behind a TransformerBridge, whose hooks name our heads' patterns.

A packed layer is the causal GPT-2 of ``to_huggingface``: memory tokens first, the point last. A layer over a sequence
is TransformerLens' own block with bidirectional attention and no normalisation, as for compiled (tracr) models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.door import door
from onelayer.export.huggingface import to_huggingface
from onelayer.export.plan import Plan, plan
from onelayer.export.stock import guarded, pooled
from onelayer.extras import require
from onelayer.ground import pinned
from onelayer.guard import carried
from onelayer.layer.config import Config
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.source import Exportable, guarded_box, need_softmax, source_of

PATTERN = "blocks.0.attn.hook_pattern"


@dataclass(frozen=True)
class Lens:
    """A layer in TransformerLens: memory tokens first, then the tokens of the sequence (one, if packed).

    ``bridge`` is a transformer_lens TransformerBridge, ``embedded`` takes points to their tokens (B, N, d_model).
    ``guard`` with its ``domain`` decides about points outside, as in ``to_huggingface``.
    """

    bridge: Any
    embedded: Callable[[Tensor], Tensor]
    memory: Tensor
    config: Config
    guard: str | None = None
    domain: Sequence[list[float]] = ()

    def stream(self, x: Tensor) -> Tensor:
        """Points (B, *input_shape) as the residual stream that enters the block, (B, M + N, d_model)."""
        inside = x if self.guard is None else guarded(x, self.guard, *self.domain, dtype=self.memory.dtype)
        memory = self.memory.expand(len(x), *self.memory.shape)
        return torch.cat([memory, self.embedded(inside)], dim=1)

    def __call__(self, x: Tensor) -> Tensor:
        """Values (B, *output_shape) at the points."""
        return self._values(self.bridge(self.stream(x), start_at_layer=0))

    def run_with_hooks(self, x: Tensor, **options: Any) -> Tensor:
        """Values at the points with hooks in place: ``fwd_hooks=[(name, function), ...]`` as in TransformerLens."""
        logits = self.bridge.run_with_hooks(self.stream(x), start_at_layer=0, **options)
        return self._values(logits)

    def run_with_cache(self, x: Tensor, **options: Any) -> tuple[Tensor, Any]:
        """Values (B, *output_shape) at the points, and the cache of all activations by name."""
        logits, cache = self.bridge.run_with_cache(self.stream(x), start_at_layer=0, **options)
        return self._values(logits), cache

    def patterns(self, cache: Any) -> list[Tensor]:
        """Weights of every head out of a cache, H x (B, N, S): tokens of the sequence if attended to, then memory."""
        pattern = cache[PATTERN]  # (B, H, M + N, M + N)
        start = len(self.memory)
        own = slice(start, None) if self.config.token_attention else slice(0, 0)
        found = []
        for h, head in enumerate(self.config.heads):
            rows = pattern[:, h, start:]
            found.append(torch.cat([rows[..., own], rows[..., : head.token_count]], dim=-1))
        return found

    def _values(self, logits: Tensor) -> Tensor:
        config = self.config
        of_sequence = logits[:, len(self.memory) :]
        seen = pooled(of_sequence, config.readout)[..., : config.readout_width]
        values: Tensor = seen.reshape(len(logits), *config.output_shape)
        return values


@door
@pinned()
def to_lens(a: Exportable, *, anchor: float | None = None, box: Box | None = None, guard: str | None = None) -> Lens:
    """``a`` as an object with ``run_with_hooks`` and ``run_with_cache``; ``anchor`` and ``box`` as in ``to_torch``.

    ``guard`` as in ``to_huggingface``.
    """
    require("transformer_lens", "lens")
    source = source_of(a, box)
    kept = carried(guard, guarded_box(a, source), source.model.dtype)
    need_softmax(source.model, "TransformerLens")
    if source.model.config.layout == "tokens":
        return replace(_sequence_lens(source.model, plan(source)), **kept)
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    model = to_huggingface(a, anchor=anchor, box=box)
    count = model.memory_ids.numel()
    memory = model.gpt2.transformer.wte.weight[:count].detach().clone()
    bridge = build_bridge_from_module(model.gpt2, "GPT2LMHeadModel", hf_config=model.gpt2.config, model_name="onelayer")
    bridge.requires_grad_(False)
    return Lens(bridge, model.inputs_embeds, memory, source.model.config, **kept)


def _sequence_lens(model: OneLayerTransformer, drawn: Plan) -> Lens:
    """The plan in TransformerLens' own block; all tokens hear each other, and nothing normalises them."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources import native

    dtype = model.dtype
    memory = drawn.memory.to(model.dtype)
    shape = TransformerBridgeConfig(
        n_layers=1,
        d_model=drawn.features,
        d_head=drawn.width,
        n_heads=drawn.heads,
        n_ctx=len(memory) + drawn.config.length,
        d_vocab=1,
        d_vocab_out=len(drawn.read),
        d_mlp=len(drawn.first),
        act_fn="relu",
        attention_dir="bidirectional",
        normalization_type=None,
        seed=0,
        dtype=dtype,
    )
    bridge = native.boot(shape, dtype=dtype, model_name="onelayer")
    weights = {name: tensor.to(dtype) for name, tensor in _native_weights(drawn).items()}
    bridge.load_state_dict(weights, strict=False)
    bridge.requires_grad_(False)
    embed = drawn.embed.to(dtype)
    start = drawn.start.to(dtype)

    def embedded(x: Tensor) -> Tensor:
        config = drawn.config
        numbers = x.to(dtype).reshape(len(x), config.length, config.token_width)
        # The embedding stays outside: a bridge begins with the residual stream.
        return model.ramped(numbers) @ embed.T + start

    return Lens(bridge, embedded, memory, drawn.config)


def _native_weights(drawn: Plan) -> dict[str, Tensor]:
    """The state of a NativeModel that computes a plan; its head has no bias, so the flag feature carries it."""
    read = drawn.read.clone()
    zero = torch.zeros_like(drawn.query_bias)
    # Feature 0 is one on every token of the sequence.
    read[:, 0] += drawn.read_bias
    length = len(drawn.memory) + drawn.config.length
    layer = {
        "attn.q": (drawn.query, drawn.query_bias),
        "attn.k": (drawn.key, zero),
        "attn.v": (drawn.value, zero),
        "attn.o": (drawn.output, drawn.output_bias),
        "mlp.fc_in": (drawn.first, drawn.first_bias),
        "mlp.fc_out": (drawn.second, drawn.second_bias),
    }
    weights = {}
    for name, (weight, bias) in layer.items():
        weights[f"layers.0.{name}.weight"] = weight
        weights[f"layers.0.{name}.bias"] = bias
    empty = torch.zeros(1, drawn.features, dtype=torch.float64, device="cpu")
    return weights | {"tok_embed.weight": empty, "pos.weight": empty.repeat(length, 1), "head.weight": read}
