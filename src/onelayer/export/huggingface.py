"""Hugging Face: a one-block GPT-2 whose key-value cache is the function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.door import door
from onelayer.export.anchoring import ANCHORS, NORM_EPS, Anchoring
from onelayer.export.plan import Plan, plan, ramp_layers
from onelayer.extras import require
from onelayer.formats import spelled
from onelayer.ground import pinned
from onelayer.guard import carried
from onelayer.source import Exportable, guarded_box, need_softmax, source_of

if TYPE_CHECKING:
    from onelayer.export.gpt2 import OneLayerGPT2


@door
@pinned()
def to_huggingface(
    a: Exportable, *, anchor: float | None = None, box: Box | None = None, guard: str | None = None
) -> OneLayerGPT2:
    """``a`` as a PreTrainedModel around a stock GPT2LMHeadModel with one block; frozen, in the dtype of ``a``.

    ``save_pretrained`` and ``OneLayerGPT2.from_pretrained`` round-trip it through safetensors. ``anchor`` and ``box``
    are those of ``to_torch``. ``guard`` and the domain travel in its configuration: outside, "warn" computes and warns,
    "raise" raises ValueError, "clamp" moves each coordinate to the nearest one inside.
    """
    require("transformers", "hf")
    from onelayer.export.gpt2 import OneLayerGPT2, OneLayerGPT2Config

    source = source_of(a, box)
    need_softmax(source.model, "transformers")
    drawn = plan(source)
    size = ANCHORS[source.model.dtype] if anchor is None else anchor
    anchored = Anchoring.of(drawn, size)
    dtype = spelled(source.model.dtype)
    kept = carried(guard, guarded_box(a, source), source.model.dtype)
    block = _gpt2_arguments(drawn, anchored)
    config = OneLayerGPT2Config(layer=drawn.config.to_dict(), block=block, dtype=dtype, **kept)
    model = OneLayerGPT2(config)
    # Weights are laid out in float64 and rounded once, at the end.
    model.double()
    ramps = ramp_layers(source.model)
    embed = anchored.up @ drawn.embed
    weights = {f"gpt2.{name}": tensor for name, tensor in _gpt2_weights(drawn, anchored).items()}
    if ramps is not None:
        weights |= {"ramps.0.weight": ramps[0], "ramps.0.bias": ramps[1]}
        embed = embed @ ramps[2]
    weights |= {"embed.weight": embed, "start.weight": anchored.tokens(drawn.start)}
    model.load_state_dict(weights)
    model.to(source.model.dtype).requires_grad_(False).eval()
    return model


def _gpt2_arguments(drawn: Plan, anchored: Anchoring) -> dict[str, Any]:
    """Arguments of GPT2Config: one block, ReLU, no dropout, a vocabulary of memory tokens, an untied head."""
    return {
        "vocab_size": max(1, len(drawn.memory), len(drawn.read)),
        "n_positions": len(drawn.memory) + drawn.config.length,
        "n_embd": anchored.width,
        "n_layer": 1,
        "n_head": drawn.heads,
        "n_inner": len(drawn.first),
        "activation_function": "relu",
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": NORM_EPS,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt2_weights(drawn: Plan, anchored: Anchoring) -> dict[str, Tensor]:
    """The state of a GPT2LMHeadModel that computes a plan on anchored tokens; its Conv1D weights are (in, out)."""
    arguments = _gpt2_arguments(drawn, anchored)
    rows = arguments["vocab_size"]
    memory = torch.zeros(rows, anchored.width).double()
    head = torch.zeros(rows, anchored.width).double()
    memory[: len(drawn.memory)] = anchored.tokens(drawn.memory, exact=True)
    # The head has no bias: the flag feature, one on every token of the sequence, carries it.
    read = drawn.read.clone()
    read[:, 0] += drawn.read_bias
    head[: len(read)] = read @ anchored.down
    gain = torch.full((anchored.width,), anchored.gain, dtype=torch.float64)
    zero = torch.zeros_like(drawn.query_bias)
    projections = torch.cat([drawn.query, drawn.key, drawn.value])
    weights = {
        "transformer.wte.weight": memory,
        "transformer.wpe.weight": torch.zeros(arguments["n_positions"], anchored.width).double(),
        "transformer.h.0.attn.c_attn.weight": (projections @ anchored.down).T,
        "transformer.h.0.attn.c_attn.bias": torch.cat([drawn.query_bias, zero, zero]),
        "transformer.h.0.attn.c_proj.weight": (anchored.up @ drawn.output).T,
        "transformer.h.0.attn.c_proj.bias": anchored.up @ drawn.output_bias,
        "transformer.h.0.mlp.c_fc.weight": (drawn.first @ anchored.down).T,
        "transformer.h.0.mlp.c_fc.bias": drawn.first_bias,
        "transformer.h.0.mlp.c_proj.weight": (anchored.up @ drawn.second).T,
        "transformer.h.0.mlp.c_proj.bias": anchored.up @ drawn.second_bias,
        "lm_head.weight": head,
    }
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        weights[f"transformer.{norm}.weight"] = gain
        weights[f"transformer.{norm}.bias"] = torch.zeros_like(gain)
    return {name: tensor.contiguous() for name, tensor in weights.items()}
