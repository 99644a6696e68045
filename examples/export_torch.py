"""Stock PyTorch: sin x1 + sin x2 inside nn.TransformerEncoderLayer, LayerNorm and all, proved by our certifier.

Expected output: export_torch.out
"""

from __future__ import annotations

import torch

import onelayer as ol
from onelayer.export.torch import to_torch

FORMULA = "sin(x1) + sin(x2)"


def main() -> None:
    box = ol.Box([0, 0], [2 * torch.pi] * 2)
    a = ol.approximate(FORMULA, box, eps=1e-6)
    print("built: ", a.certificate.status, "sup|T - f| <=", f"{a.certificate.upper:.1e}")
    x = box.sample(1000)
    for norm, eps in (("pre", 1e-4), ("post", 1e-5), ("none", 1e-6)):
        layer = to_torch(a, norm=norm)
        parity = (layer(x) - a.model(x)).abs().max().item()
        certificate = ol.certify(layer, FORMULA, box, eps)
        print(f"{norm:5s} {type(layer).__name__:12s} parity < 1e-9: {parity < 1e-9}   {certificate.status} < {eps:g}")
    print(to_torch(a).layer.__class__)


if __name__ == "__main__":
    main()
