"""How many labels the attention of one layer can memorise: a count by rank."""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.layer.transformer import OneLayerTransformer


def attention_rank(model: OneLayerTransformer, x: Tensor, *, position: int = -1) -> int:
    """Rank of the attention weights of one position over the inputs x (N, *input_shape).

    Lemma. Let N inputs share a context, so that only the query at ``position`` differs and the n tokens attended to are
    the same. A linear read-out of the heads is then a linear function of the H n weights of that position, each head's
    summing to one: a space of dimension at most H (n - 1) + 1. With random heads the rank reaches it, and exactly that
    many arbitrary labels can be memorised.
    """
    with torch.no_grad():
        rows = [weights[:, position] for weights in model.attention_weights(x)]  # H x (N, n)
    features = torch.cat(rows, -1)
    # Columns of one size, so that a head with small weights counts as much as any other; zero columns stay zero.
    smallest = torch.finfo(features.dtype).tiny
    sizes = features.norm(dim=0).clamp(min=smallest)
    # Well above the rounding of float64, well below what random heads give.
    return int(torch.linalg.matrix_rank(features / sizes, rtol=1e-12))
