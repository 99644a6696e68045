"""Rows 4, 6, 7, 9 and 10: what one head sees, what it returns, and with whom it competes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from onelayer.equations.functions import HeadMatrices, multi_head_attention
from onelayer.layer.lookup import lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.paper.finding import FAILS, REPAIRED, Check, Finding, ResultTable, Setting, largest, smallest
from onelayer.paper.layers import Array, points, random_layer, step_head


def two_tokens_per_logit(setting: Setting) -> Finding:
    """Row 4. A logit q_i . k_j contains the tokens i and j and no other: moving the third leaves it as it was."""
    changes = []
    odds = []
    weights = []
    for seed in range(20):
        model = random_layer(3, 2, positions="learned", seed=seed)
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(3, 2, generator=generator, dtype=torch.float64)
        moved = x.clone()
        moved[2] = 5 * torch.rand(2, generator=generator, dtype=torch.float64)
        change = _logits(model, x) - _logits(model, moved)
        of_pair = change[:, 0, 1]
        changes.append(float(of_pair.abs().max()))
        before = torch.stack(model.attention_weights(x))[:, 0]
        after = torch.stack(model.attention_weights(moved))[:, 0]
        # The odds of two weights do not see the common denominator, through which token 3 may speak.
        ratio = before[:, 1] / before[:, 0] * after[:, 0] / after[:, 1]
        odds.append(_change(ratio, torch.ones_like(ratio)))
        weights.append(_change(before, after))
    checks = [
        Check("largest change of the logit of pair (1, 2) when token 3 moves, 40 heads", largest(changes), "=", 0.0),
        Check(
            "largest relative change of the odds of weights α₁₂ : α₁₁ in the running layer", largest(odds), "<=", 1e-9
        ),
        Check("largest change of the weights themselves, by normalisation alone", largest(weights), ">", 0.1),
    ]
    said = (
        "The proof wants head i to fire exactly when the whole sequence lies in region R_i. A logit is a bilinear form "
        "in two tokens; the third token enters only through the common denominator. With one query token that carries "
        "the whole input (packed layout) every logit sees everything, which is how the package repairs this."
    )
    return Finding(FAILS, said, checks)


def _logits(model: OneLayerTransformer, x: torch.Tensor) -> torch.Tensor:
    """q_i . k_j / sqrt(d_k) of every head, (H, N, N), before any softmax."""
    e = model.embed(x)
    count = len(model.config.heads)
    d_k = model.config.heads[0].d_k

    def by_heads(name: str) -> torch.Tensor:
        rows: torch.Tensor = model.affine(e, name)  # (N, H d_k)
        return rows.reshape(-1, count, d_k).transpose(0, 1)  # (H, N, d_k)

    # The query is scaled before the product, as in the layer.
    scaled = by_heads("Q") * e.new_tensor(d_k**-0.5)
    return scaled @ by_heads("K").transpose(-1, -2)


def linear_values(setting: Setting) -> Finding:
    """Row 6. Without bias or memory MHA is linear on constant sequences, whatever W^Q and W^K do.

    All values of a constant sequence are equal, so weights that sum to one return x W^V. Linear means odd:
    T(1) = -T(-1), and f = |x| has T(1) = T(-1) = 1, so one of the two is off by at least 1.
    """
    generator = np.random.default_rng(setting.seed)
    defects, errors = [], []
    for _ in range(200):
        heads = [HeadMatrices(*(3 * generator.normal(size=(3, 1, 2)))) for _ in range(4)]
        output = generator.normal(size=(8, 1))
        # T(a x + b y) beside a T(x) + b T(y).
        x, y, a, b = generator.normal(size=4)
        mixed = _constant(a * x + b * y, heads, output)
        parts = a * _constant(x, heads, output) + b * _constant(y, heads, output)
        size = largest([1.0, np.abs(parts).max()])
        defects.append(np.abs(mixed - parts).max() / size)
        at_ends = [_constant(sign, heads, output) for sign in (1.0, -1.0)]
        errors.append(largest(np.abs(value - 1).max() for value in at_ends))
    repaired = lookup_model(1, (), [step_head(0.1, 400.0), step_head(-0.1, -400.0)])
    at = repaired(points(-1.0, 1.0)[:, None])
    linear = "largest relative defect of linearity on constant sequences, 200 random layers"
    left = float((at - 1).abs().max())
    checks = [
        Check(linear, largest(defects), "<=", 1e-12),
        Check("smallest sup error for f = abs(x) at x = ±1 among them", smallest(errors), ">=", 1 - 1e-12),
        Check("largest error there with memory tokens whose values are free", left, "<=", 1e-12),
    ]
    said = (
        "v_j = x_j W^V is tied to its token: the value of a region cannot be chosen. On constant sequences attention "
        "is a linear map, so |x| stays at distance 1 for any number of heads. Values become free with a bias and "
        "positions, or with memory tokens."
    )
    return Finding(FAILS, said, checks)


def _constant(x: float, heads: list[HeadMatrices], output: Array) -> Array:
    """MHA of the sequence (x, x, x), by eq (8)."""
    return multi_head_attention(np.full((3, 1), x), heads, output)


def dormant_heads(setting: Setting) -> Finding:
    """Row 7. A head returns an average of its values: it cannot be silent unless one of them is zero.

    Values at least 1: every output is at least 1, for any query and scale. With a sink, a token of value 0 and logit 0
    beside logits of at most -c, the output of M such tokens is at most M max|v| e^{-c}.
    """
    generator = torch.Generator().manual_seed(setting.seed)
    lowest = []
    for beta, _ in itertools.product((0.1, 1.0, 10.0, 100.0), range(25)):
        least, _ = _silent_output(generator, beta, sink=False)
        lowest.append(least)
    most = 8 * 2  # M max|v|: 8 tokens with values up to 2
    rows = []
    shares = []
    for beta in (1.0, 10.0, 30.0):
        least, most_seen = _silent_output(generator, beta, sink=True)
        rows.append((beta, least, most_seen))
        shares.append(most_seen / (most * math.exp(-beta)))
    *_, last = rows[-1]
    checks = [
        Check("smallest output of 100 random heads with values in [1, 2]", smallest(lowest), ">=", 1.0),
        Check("largest output with a zero-value sink at β = 30", last, "<=", most * math.exp(-30)),
        Check("bound M max|v| e^{-β} kept at every β", largest(shares), "<=", 1.0),
    ]
    said = (
        "Weights are positive and sum to one, so an unwanted head still returns a convex combination of its values: "
        "“no strong match” means an average, not silence. A sink, one token of value zero that takes the weight when "
        "nothing else matches, makes heads dormant up to e^{−β}."
    )
    header = ("β", "smallest output with a sink", "largest output with a sink")
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))])


def _silent_output(generator: torch.Generator, beta: float, *, sink: bool) -> tuple[float, float]:
    """Range of the outputs of a head of 8 tokens whose logits are at most -beta, and a sink of logit 0 if wanted."""
    tokens = torch.rand(8, generator=generator, dtype=torch.float64)
    slopes = 0.1 * beta * (2 * tokens - 1)  # of at most 0.1 beta, so that logits on [-1, 1] stay below -beta
    biases = -1.1 * beta * torch.ones(8, dtype=torch.float64)
    keys = torch.stack([slopes, biases], 1)
    values = 1 + torch.rand(8, 1, generator=generator, dtype=torch.float64)
    if sink:
        keys = torch.cat([keys, torch.zeros(1, 2, dtype=torch.float64)])
        values = torch.cat([values, torch.zeros(1, 1, dtype=torch.float64)])
    root = 2**0.5  # the layer divides logits by the root of d_k = 2
    # The query of x is (x, 1), so a key (slope, bias) has the logit slope x + bias.
    query = {"W_Q": points(root, 0.0)[None], "b_Q": points(0.0, root)}
    weights = query | dict.fromkeys(("W_E", "W_O", "W_R"), torch.ones(1, 1, dtype=torch.float64))
    model = OneLayerTransformer.packed((1,), (), [PlainMemory(keys, values)], weights=weights)
    model.requires_grad_(False)
    out = model(torch.linspace(-1, 1, 101, dtype=torch.float64)[:, None])
    return float(out.min()), float(out.max())


def equivariance(setting: Setting) -> Finding:
    """Row 9. Without positions T(PX) = P T(X): outputs travel with tokens. Invariance would be T(PX) = T(X)."""
    equivariant = []
    invariant = []
    pooled = []
    for seed in range(20):
        x = torch.randn(5, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        order = torch.randperm(5, generator=torch.Generator().manual_seed(seed + 1))
        model = random_layer(5, 2, hidden=8, seed=seed)
        out = model(x)
        exchanged = model(x[order])
        scale = float(out.abs().max())
        equivariant.append(_change(exchanged, out[order]) / scale)
        invariant.append(_change(exchanged, out) / scale)
        pooled.append(_change(exchanged.mean(0), out.mean(0)) / scale)
    checks = [
        Check("largest relative |T(PX) − P T(X)|, 20 random layers", largest(equivariant), "<=", 1e-12),
        Check("largest relative |T(PX) − T(X)|", largest(invariant), ">", 0.1),
        Check("largest relative change of the mean over positions", largest(pooled), "<=", 1e-12),
    ]
    said = (
        "Self-attention is permutation-equivariant: outputs travel with their tokens. It becomes invariant only "
        "after pooling over positions. The conclusion drawn from it, that order needs positional encodings, is right."
    )
    return Finding(REPAIRED, said, checks)


def keys_and_heads(setting: Setting) -> Finding:
    """Row 10. A head compares n keys, one per token, not M regions; and softmax never compares two heads."""
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(setting.seed), dtype=torch.float64)
    seen: set[int] = set()
    for heads in (1, 4, 16):
        layer = random_layer(3, 2, heads=heads, d_model=16, seed=1)
        seen.update(rows.shape[-1] for rows in layer.attention_weights(x))
    # Two equal layers, but that the second head of one is 1000 times louder.
    model, louder = (random_layer(3, 2, heads=2, d_model=4, seed=2) for _ in range(2))
    w_q = louder.own("W_Q").clone()
    w_q[:, 2:] *= 1000
    louder.set_weights({"W_Q": w_q})
    before = model.attention_weights(x)
    after = louder.attention_weights(x)
    keys = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    memory = PlainMemory(keys, torch.ones(7, 2))
    many = random_layer(3, 2, heads=1, d_model=2, memory=[memory]).attention_weights(x)[0]
    first, second = (_change(*pair) for pair in zip(before, after, strict=True))
    checks = [
        Check("keys seen by a head of a 3-token layer, with 1, 4 or 16 heads", max(seen), "=", 3),
        Check("change of head 1's weights when the logits of head 2 grow 1000-fold", first, "=", 0.0),
        Check("change of head 2's own weights", second, ">", 0.1),
        Check("keys in one softmax once 7 memory tokens are added", many.shape[-1], "=", 10),
    ]
    said = (
        "The proof lets region j's logit beat those of all other regions and of all other heads. A head has one key "
        "per token of the sequence, however many regions there are, and each head normalises alone: making one head "
        "1000 times louder leaves the others unchanged. Memory tokens put all regions into one softmax, where they do "
        "compete."
    )
    return Finding(FAILS, said, checks)


def _change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((before - after).abs().max())
