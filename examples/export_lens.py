"""TransformerLens: run_with_cache shows which memory tokens a point looks at; explain says what they are for.

Expected output: export_lens.out
"""

from __future__ import annotations

import torch

import onelayer as ol
from onelayer.export.lens import to_lens
from onelayer.pictures.explanation import explain


def main() -> None:
    a = ol.approximate("sin(x)", ol.Box([0], [2 * torch.pi]), eps=1e-3)
    lens = to_lens(a)
    x = torch.tensor([[0.5], [3.0], [6.0]], dtype=torch.float64)
    values, cache = lens.run_with_cache(x)
    pattern = lens.patterns(cache)[0][:, 0]  # (points, tokens) out of cache["blocks.0.attn.hook_pattern"]
    tokens = explain(a).heads[0].axes[0].tokens
    for point, value, row in zip(x[:, 0].tolist(), values.tolist(), pattern, strict=True):
        bars = " ".join(f"{weight:.2f}" for weight in row.tolist())
        region = tokens[int(row.argmax())].region
        inside = region is not None and region[0] <= point <= region[1]
        print(f"x = {point:.1f}  T = {value:+.3f}  weights {bars}  strongest token's region holds x: {inside}")
    ours = a.model.attention_weights(x)[0][:, 0]
    print("pattern equals ours to 1e-9:", bool((pattern - ours).abs().max() < 1e-9))


if __name__ == "__main__":
    main()
