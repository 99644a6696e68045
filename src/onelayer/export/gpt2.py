"""The classes behind to_huggingface: a one-block GPT-2 whose vocabulary is the memory and whose cache is the function.

This module imports transformers; ``to_huggingface`` imports it when it is needed. Importing it yourself registers the
classes, so that AutoModel.from_pretrained opens a saved folder.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from onelayer.export.stock import guarded, pooled
from onelayer.guard import check_guard
from onelayer.layer.config import Config


class OneLayerGPT2Config(PreTrainedConfig):  # type: ignore[misc]
    """``layer`` is the Config of our layer as a dict, ``block`` the arguments of GPT2Config.

    ``guard`` says what happens outside ``domain``, [lower, upper]; None lets every point through.
    """

    model_type = "onelayer-gpt2"

    def __init__(
        self,
        layer: dict[str, Any] | None = None,
        block: dict[str, Any] | None = None,
        guard: str | None = None,
        domain: list[list[float]] | None = None,
        **kwargs: Any,
    ) -> None:
        self.layer = layer or {}
        self.block = block or {}
        self.guard = check_guard(guard)
        self.domain = domain
        super().__init__(**kwargs)


class OneLayerGPT2(PreTrainedModel):  # type: ignore[misc]
    """x (..., *input_shape) -> output with ``logits`` (..., *output_shape).

    ``gpt2`` is a stock GPT2LMHeadModel. Its vocabulary is the memory: running it once over token ids 0..M-1 fills the
    key-value cache, and that cache is the function. A point enters as ``inputs_embeds``, an affine map of its numbers;
    the first entries of the language head are the outputs.
    """

    config_class = OneLayerGPT2Config
    base_model_prefix = "onelayer"

    def __init__(self, config: OneLayerGPT2Config) -> None:
        super().__init__(config)
        self.layer = Config.from_dict(config.layer)
        block = GPT2Config(**config.block)
        features = self.layer.features
        length = self.layer.length
        if self.layer.embedding == "piecewise":
            clipped = nn.Linear(self.layer.token_width, 2 * features)
            self.ramps: nn.Module = nn.Sequential(clipped, nn.ReLU())
            features *= 2
        else:
            self.ramps = nn.Identity()
        self.embed = nn.Linear(features, block.n_embd, bias=False)
        self.start = nn.Embedding(length, block.n_embd)
        self.gpt2 = GPT2LMHeadModel(block)
        # Filled at the first call, and again when the model is moved or converted.
        self._stored: tuple[Tensor, Tensor] | None = None
        self.post_init()

    @property
    def memory_ids(self) -> Tensor:
        """Token ids of the memory, (1, M)."""
        count = self.config.block["n_positions"] - self.layer.length
        return torch.arange(count, device=self.device)[None]

    def cache(self, batch: int = 1) -> Any:
        """The key-value cache of the memory tokens for a batch; None for a layer without memory."""
        if not self.memory_ids.numel():
            return None
        stored = self._stored
        if stored is None or stored[0].dtype != self.dtype or stored[0].device != self.device:
            with torch.no_grad():
                filled = self.gpt2(input_ids=self.memory_ids, use_cache=True).past_key_values
            memory = filled.layers[0]
            stored = self._stored = (memory.keys, memory.values)  # (1, H, M, w)
        keys, values = (part.expand(batch, *part.shape[1:]) for part in stored)
        return DynamicCache([(keys, values)])

    def inputs_embeds(self, x: Tensor) -> Tensor:
        """Points (B, *input_shape) as tokens (B, N, n_embd)."""
        numbers = x.reshape(len(x), self.layer.length, self.layer.token_width)
        embedded: Tensor = self.embed(self.ramps(numbers)) + self.start.weight
        return embedded

    def guarded(self, x: Tensor) -> Tensor:
        """Points (B, *input_shape) after what the guard of the configuration does with those outside its domain."""
        if self.config.guard is None or self.config.domain is None:
            return x
        return guarded(x, self.config.guard, *self.config.domain, dtype=self.dtype)

    def forward(self, x: Tensor, past_key_values: Any = None, **kwargs: Any) -> SequenceClassifierOutput:
        """``past_key_values`` defaults to ``cache(batch)``; the call writes to it, as always in transformers."""
        layer = self.layer
        batch = x.shape[: x.ndim - len(layer.input_shape)]
        points = x.reshape(math.prod(batch), *layer.input_shape)
        flat = self.guarded(points).to(self.dtype)
        past = self.cache(len(flat)) if past_key_values is None else past_key_values
        seen = 0 if past is None else past.get_seq_length()
        # All tokens of the sequence hear each other and the memory: a mask of zeros in place of the causal one.
        size = (len(flat), 1, layer.length, seen + layer.length)
        everyone = torch.zeros(size, dtype=self.dtype, device=self.device)
        places = torch.arange(seen, seen + layer.length, device=self.device)
        result = self.gpt2(
            inputs_embeds=self.inputs_embeds(flat),
            past_key_values=past,
            attention_mask=everyone,
            position_ids=places[None],
            use_cache=past is not None,
            **kwargs,
        )
        outputs = pooled(result.logits, layer.readout)[..., : layer.readout_width]
        return SequenceClassifierOutput(
            logits=outputs.reshape((*batch, *layer.output_shape)),
            hidden_states=result.hidden_states,
            attentions=result.attentions,
        )


AutoConfig.register(OneLayerGPT2Config.model_type, OneLayerGPT2Config, exist_ok=True)
AutoModel.register(OneLayerGPT2Config, OneLayerGPT2, exist_ok=True)
