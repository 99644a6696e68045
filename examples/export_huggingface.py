"""Hugging Face: a one-block GPT-2 whose vocabulary is the memory and whose key-value cache is the function.

Expected output: export_huggingface.out
"""

from __future__ import annotations

import tempfile

import torch
from transformers import GPT2LMHeadModel
from transformers.utils import logging

import onelayer as ol
from onelayer.export.gpt2 import OneLayerGPT2
from onelayer.export.huggingface import to_huggingface


def main() -> None:
    logging.disable_progress_bar()
    box = ol.Box([0, 0], [2 * torch.pi] * 2)
    a = ol.approximate("sin(x1) + sin(x2)", box, eps=1e-6)
    model = to_huggingface(a)
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    print(f"ours      T(1, 2) = {a.model(x).item():.6f}")
    print(f"wrapper   T(1, 2) = {model(x).logits.item():.6f}")

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = OneLayerGPT2.from_pretrained(folder)
        print("round trip is exact:", torch.equal(again(x).logits, model(x).logits))
        model.gpt2.save_pretrained(folder + "/gpt2")
        gpt2 = GPT2LMHeadModel.from_pretrained(folder + "/gpt2")

    # With transformers alone: read the memory once, keep the cache, then ask about points.
    cache = gpt2(input_ids=model.memory_ids, use_cache=True).past_key_values
    print("cache: heads, tokens =", tuple(cache.layers[0].keys.shape[1:3]))
    value = gpt2(inputs_embeds=model.inputs_embeds(x), past_key_values=cache).logits[0, -1, 0].item()
    print(f"GPT-2     T(1, 2) = {value:.6f}")


if __name__ == "__main__":
    main()
