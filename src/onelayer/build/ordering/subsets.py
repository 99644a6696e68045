"""Order statistics of few tokens with linear embedding: one sharp head per subset, inclusion and exclusion in W^O.

The maximum over a subset S is the limit of one softmax average; the k-th smallest of n numbers is
sum over |S| >= k of (-1)^(|S|-k) C(|S|-1, k-1) max_S. The lemma and its proof stand in lemmas/subsets.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onelayer.build.arguments import ROOM
from onelayer.float64 import eye, full, numbers, ones, zeros
from onelayer.formats import format_of
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.subsets import MARGIN, combination, sharpness, used_subsets


def subset_layer(
    n: int, lo: float, hi: float, tolerance: float, weights: Sequence[float] | None, dtype: torch.dtype
) -> OneLayerTransformer:
    """The layer with one head per subset S that adds something: logit beta x_j for j in S, far below for the others.

    Features: x, the order statistics that W^O writes (one when there are ``weights``), when sorting the output, and the
    one-hot position. When sorting, unit k of the FFN passes the k-th statistic on at position k and is shut elsewhere:
    relu(s_k - base - gate (1 - [i = k])), with s_k - base > 0 and gate large enough.
    """
    sets = used_subsets(n, weights)
    sorts = weights is None
    coefficients = torch.from_numpy(combination(sets, weights))  # (S, outputs)
    outputs = coefficients.shape[1]
    reach = (hi - lo) or 1.0
    # Steeper than this the rounding of logits is all there is, and products would overflow.
    steepest = format_of(dtype).largest * ROOM / (1 + abs(lo) + abs(hi))
    wanted = sharpness(coefficients.numpy(), sets) / tolerance
    beta = min(max(1.0, wanted), steepest)
    d_model = 1 + outputs + (1 if sorts else 0) + n
    basis = eye(d_model)
    key = zeros(d_model, len(sets))
    key[0] = beta
    # Positions outside the subset: below by more than numbers can differ, and by a margin that softmax does not see.
    outside = torch.from_numpy(sets).T - 1
    key[-n:] = outside * (beta * (hi - lo) + MARGIN)
    output = zeros(len(sets), d_model)
    output[:, 1 : 1 + outputs] = coefficients
    named: dict[str, Tensor] = {
        "W_E": basis[:1],
        "W_Q": zeros(d_model, len(sets)),
        "b_Q": ones(len(sets)),
        "W_K": key,
        "W_V": basis[:, :1].repeat(1, len(sets)),
        "W_O": output,
        "W_R": basis[:, 1:2] if not sorts else basis[:, 1 + n : 2 + n],
        "b_R": numbers([lo - reach if sorts else 0.0]),
    }
    if sorts:
        # More than s_k - base, which is at most 2 reach up to the error of the heads.
        gate = 4 * reach
        first = zeros(d_model, n)
        first[1 : 1 + n] = eye(n)
        first[-n:] = gate * eye(n)
        named["W_1"] = first
        named["b_1"] = full((n,), -gate - (lo - reach))
        named["W_2"] = basis[1 + n : 2 + n].repeat(n, 1)
    config = Config(
        layout="tokens",
        input_shape=(n,),
        output_shape=(n,) if sorts else (),
        d_model=d_model,
        heads=(HeadShape(1, 1),) * len(sets),
        hidden=n if sorts else 0,
        residual=sorts,
        positions="one-hot",
        readout="each" if sorts else "first",
    )
    model = OneLayerTransformer(config, [None] * len(sets), dtype=dtype)
    model.set_weights(named)
    return model.requires_grad_(False)
