"""Rows 8, 11, 12, 13 and 15: positions, the identity through ReLU, residual corrections, skip connections and norms."""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.conductor import approximate
from onelayer.layer.lookup import Affine, Ridges, lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.layer.weights import weight_shapes
from onelayer.paper.finding import (
    FAILS,
    REPAIRED,
    Check,
    Finding,
    ResultTable,
    Setting,
    at_least,
    at_most,
    largest,
    smallest,
)
from onelayer.paper.layers import lookup_head, points, random_layer
from onelayer.proof.certify import certify


def no_positions(setting: Setting) -> Finding:
    """Row 8. Without positions equal rows stay equal: X = (0.7, 0.7) and f(X) = (0, 1) leave an error of one half."""
    x = torch.full((2, 1), 0.7, dtype=torch.float64)
    wanted = points(0.0, 1.0)[:, None]
    apart = []
    errors = []
    for seed in range(100):
        model = random_layer(2, 1, heads=3, d_model=6, hidden=16, residual=bool(seed % 2), seed=seed)
        out = model(x)
        apart.append(float((out[0] - out[1]).abs().max()))
        errors.append(float((out - wanted).abs().max()))
    square = Box([[0.0], [0.0]], [[1.0], [1.0]])
    repaired = approximate("0*x1; 1 + 0*x2", square, 1e-6, layout="tokens")
    checks = [
        Check("largest difference between the two output rows, 100 random layers", largest(apart), "<=", 1e-12),
        Check("smallest sup error among them", smallest(errors), ">=", 0.5 - 1e-12),
        Check("proved sup error with positions, on all of [0, 1]²", repaired.certificate.upper, "<=", 1e-6),
    ]
    said = (
        "The statement of Theorem 1 has no positional encoding, and without one a Transformer maps equal rows to equal "
        "rows. The function that sends every sequence to (0, 1) is continuous and stays half a unit away. With "
        "positions it is reached."
    )
    return Finding(REPAIRED, said, checks)


def relu_identity(setting: Setting) -> Finding:
    """Row 11. relu(z) is not z for z < 0. Two exact ways out: relu(z) - relu(-z), or relu(z + c) - c when z >= -c.

    The first has width 2d and holds everywhere; the second width d and holds on the bounded range only. Without biases
    width d is not enough: a sum of d = 1 terms a relu(w z) vanishes on a half line.
    """
    box = Box([-1], [1])
    z = "x + 0"
    plain = certify(_relu_layer([1.0], [0.0], [1.0], 0.0), z, box)
    two_units = _relu_layer([1.0, -1.0], [0.0, 0.0], [1.0, -1.0], 0.0)
    pair = certify(two_units, z, box)
    # The same layer on two ranges: the shift by 1 is right down to -1 only.
    shift = _relu_layer([1.0], [1.0], [1.0], -1.0)
    shifted = certify(shift, z, box)
    far = certify(shift, z, Box([-3], [1]))
    networks = (
        ("relu(z) on [−1, 1]", 1, plain),
        ("relu(z) − relu(−z) on [−1, 1]", 2, pair),
        ("relu(z + 1) − 1 on [−1, 1]", 1, shifted),
        ("relu(z + 1) − 1 on [−3, 1]", 1, far),
    )
    rows = tuple((name, units, at_least(proof.lower), at_most(proof.upper)) for name, units, proof in networks)
    checks = [
        Check("proved lower bound of the error of relu(z)", plain.lower, ">=", 1 - 1e-9),
        Check("proved error of relu(z) − relu(−z)", pair.upper, "<=", 1e-12),
        Check("proved error of relu(z + 1) − 1 on [−1, 1]", shifted.upper, "<=", 1e-12),
        Check("its error on [−3, 1]", far.lower, ">=", 2 - 1e-9),
    ]
    said = (
        "Setting the linear maps to the identity does not make a ReLU network the identity. Width 2d does it "
        "everywhere, as relu(z) − relu(−z). Width d does it on a bounded range if the biases shift that range to where "
        "ReLU is linear."
    )
    header = ("network", "units", "error at least", "error at most")
    return Finding(REPAIRED, said, checks, [ResultTable(header, rows)])


def _relu_layer(weight: list[float], bias: list[float], coefficient: list[float], offset: float) -> OneLayerTransformer:
    """sum of c relu(w x + b), and an offset."""
    ridges = Ridges(points(*weight)[:, None], points(*bias), points(*coefficient)[:, None])
    affine = Affine(torch.zeros(1, 1, dtype=torch.float64), points(offset))
    return lookup_model(1, (), [], ridges, affine)


def residual_correction(setting: Setting) -> Finding:
    """Row 12. A network that reads the attention output alone gives merged inputs one answer.

    f(x) = x; 0.10 and 0.40 lie in one region of centre 0.25. In the limit of infinite scaling attention returns
    exactly 0.25 for both, so after any FFN one of them is off by at least 0.15. At a finite scale the outputs
    differ, and the FFN would need the slope 0.3 / difference.
    """
    x = points(0.10, 0.40)[:, None]
    merged = []
    for seed in range(200):
        misses = _regions_then_ffn(seed)(x) - x
        merged.append(float(misses.abs().max()))
    rows = []
    centres = points(0.25, 0.75)
    for beta in (20.0, 50.0, 100.0, 200.0):
        head = lookup_head([centres], beta, centres[:, None])
        low, high = lookup_model(1, (), [head])(x)
        difference = float(high - low)
        rows.append((beta, difference, 0.3 / difference))
    stream = certify(_relu_layer([1.0], [0.0], [1.0], 0.0), "x + 0", Box([0], [1]))
    alike = "smallest error at 0.10 and 0.40 over 200 random networks on the attention output"
    checks = [
        Check(alike, smallest(merged), ">=", 0.15),
        Check("slope the network would need at β = 200", rows[-1][2], ">", 1e8),
        Check("proved error on [0, 1] when the network sees x through the residual stream", stream.upper, "<=", 1e-12),
    ]
    said = (
        "The sharper the attention, the more it merges; what it has merged, no position-wise network can tell apart. "
        "Refinement by the FFN has a sound meaning only if the FFN also sees x, through the residual connection."
    )
    header = ("β", "difference of the attention outputs", "slope the FFN would need")
    return Finding(FAILS, said, checks, [ResultTable(header, tuple(rows))])


def _regions_then_ffn(seed: int) -> OneLayerTransformer:
    """Hard attention to the centres 0.25 and 0.75, then a random FFN of 32 units without residual."""
    centres = points(0.25, 0.75)
    # Logit 2 c x - c^2: the nearest centre has the largest.
    keys = torch.stack([2 * centres, -(centres**2)], 1)
    memory = PlainMemory(keys, centres[:, None])
    model = OneLayerTransformer.packed((1,), (1,), [memory], hidden=32, attention="hardmax", seed=seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = weight_shapes(model.config)
    drawn = {}
    for name in ("W_1", "b_1", "W_2", "b_2"):
        drawn[name] = torch.randn(shapes[name], generator=generator, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    root = 2**0.5  # the layer divides logits by the root of d_k = 2
    reading = {"W_E": one, "W_Q": points(root, 0.0)[None], "b_Q": points(0.0, root)}
    model.set_weights(drawn | reading | {"W_O": one, "W_R": one})
    return model.requires_grad_(False)


def same_at_every_position(setting: Setting) -> Finding:
    """Row 13. FFN and W^O treat every position alone and alike; only attention moves numbers between positions."""
    elsewhere = []
    alike = []
    for seed in range(50):
        model = random_layer(3, 2, hidden=12, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        r = torch.randn(3, model.config.d_model, generator=generator, dtype=torch.float64)
        moved = r.clone()
        moved[1] += torch.randn(model.config.d_model, generator=generator, dtype=torch.float64)
        change = _after_attention(model, r) - _after_attention(model, moved)
        elsewhere.append(float(change[[0, 2]].abs().max()))
        equal = r[:1].expand(3, -1)
        alike.append(float(_after_attention(model, equal).std(0, correction=0).max()))
    swap = gather("x2; x1", Box([[0.0], [0.0]], [[1.0], [1.0]]), 1e-9)
    apart = "change at positions 1 and 3 when the stream moves at position 2, 50 random layers"
    checks = [
        Check(apart, largest(elsewhere), "=", 0.0),
        Check("spread over positions that hold the same stream", largest(alike), "<=", 1e-12),
        Check("proved error of attention transporting (x₁, x₂) to (x₂, x₁)", swap.certificate.upper, "<=", 1e-9),
    ]
    said = (
        "The FFN is a universal approximator of functions of one position, not of sequences, and W^O multiplies each "
        "position by the same matrix: neither can distribute a result to “the appropriate positions”. Attention by "
        "position can, which is the gather construction."
    )
    return Finding(FAILS, said, checks)


def _after_attention(model: OneLayerTransformer, r: Tensor) -> Tensor:
    """Everything after the stream: FFN and read-out, position by position, (N, d_model) -> (N, d)."""
    hidden = torch.relu(model.preactivations(r))
    return model.finish(model.affine(hidden, "2"))


def skips_and_norms(setting: Setting) -> Finding:
    """Row 15. LayerNorm of one number is zero: post-LN with d = 1 is constant. Wider streams survive it."""
    along = torch.linspace(-3, 3, 1001, dtype=torch.float64).reshape(-1, 1, 1)
    x = along.expand(-1, 3, 1) * points(1.0, -0.5, 2.0)[:, None]
    spreads = []
    for seed in range(20):
        model = random_layer(3, 1, heads=1, d_model=1, hidden=8, residual=True, norm="post", seed=seed)
        out = model(x)
        spread = out.amax((0, 1)) - out.amin((0, 1))
        spreads.append(float(spread.max()))
    box = Box([[-1.0]] * 3, [[1.0]] * 3)
    rows = []
    uppers = {}
    for norm in ("none", "pre", "post"):
        built = gather("x1*(x1+x2+x3)/3; x2*(x1+x2+x3)/3; x3*(x1+x2+x3)/3", box, 0.1, norm=norm)
        proof = built.certificate
        rows.append((norm, proof.status, at_most(proof.upper), built.model.config.d_model))
        uppers[norm] = proof.upper
    constant = "range of the output over 3,003 tokens, post-LN with d = 1, 20 random layers"
    checks = [Check(constant, largest(spreads), "=", 0.0)]
    for norm, upper in uppers.items():
        checks.append(Check(f"proved error of yᵢ = xᵢ mean(x) with norm {norm}, asked 0.1", upper, "<=", 0.1))
    said = (
        "Section III gives the block skip connections and LayerNorm; the proof uses neither. They are not harmless: "
        "with d = 1 a post-LN block is constant. With enough width the theorem survives them: the same function is "
        "built and proved without normalisation, with pre-LN and with post-LN."
    )
    header = ("LayerNorm", "status", "proved sup error", "width")
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))])
