"""Sections II to IV: equations (1) to (10) against independent computations, row 14, and Figures 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.equations import functions as reference
from onelayer.equations.functions import Array
from onelayer.equations.optimisers import Adam, GradientDescent, Momentum
from onelayer.paper.backward import Network, backward_figure
from onelayer.paper.finding import HOLDS, REPAIRED, Check, Finding, Picture, ResultTable, Setting, largest
from onelayer.pictures.panels import attention_figure
from onelayer.pictures.scene import Scene

ROUNDING = 1e-12  # differences that float64 explains in sums of this length
Descent = GradientDescent | Momentum | Adam
TorchDescent = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
# Each rule beside torch's own; plain descent on a curvature of 25 is stable at rates below 2 / 25.
DESCENTS: dict[str, tuple[Callable[[], Descent], TorchDescent]] = {
    "gradient descent, eq (4)": (lambda: GradientDescent(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": (lambda: Momentum(0.02), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
    "Adam": (lambda: Adam(0.05), lambda p: torch.optim.Adam(p, 0.05)),
}


def foundations(setting: Setting) -> Finding:
    """Equations (1) to (4) and the named optimisers, each beside torch's own."""
    generator = np.random.default_rng(setting.seed)
    w = generator.normal(size=(4, 3))
    b = generator.normal(size=4)
    x = generator.normal(size=3)
    dense = reference.dense_layer(x, w, b, reference.relu)
    dense_gap = _gap(dense, torch.relu(F.linear(_t(x), _t(w), _t(b))))
    logits = generator.normal(size=(5, 4))
    label = generator.integers(0, 4, size=5)
    one_hot = np.eye(4)[label]
    samples = list(zip(logits, one_hot, strict=True))
    loss = reference.expected_loss(lambda p, y: reference.cross_entropy(y, p), reference.softmax, samples)
    single = reference.cross_entropy(one_hot[0], reference.softmax(logits[0]))
    # Torch takes logits and labels where the paper takes probabilities and one-hot vectors: another road to the number.
    entropies = F.cross_entropy(_t(logits), torch.from_numpy(label), reduction="none")
    entropy = entropies.numpy()
    checks = [
        Check("eq (1): |φ(Wx + b) − torch|", dense_gap, "<=", ROUNDING),
        Check("eq (2): |mean loss over samples − torch|", abs(loss - entropy.mean()), "<=", ROUNDING),
        Check("eq (3): |cross-entropy − torch|", abs(single - entropy[0]), "<=", ROUNDING),
    ]
    table = []
    for name, (ours, theirs) in DESCENTS.items():
        gap, losses = _descend(ours(), theirs)
        # Rounding of one step is carried on by the next ones, so the bound is wider than that of one formula.
        checks.append(Check(f"{name}: largest distance from torch over 100 steps", gap, "<=", 1e-9))
        table.append((name, losses[0], losses[10], losses[-1]))
    said = (
        "The equations of Section II are standard and right; each agrees with PyTorch to rounding, and so do the "
        "optimisers it names. Which update rule is ahead depends on the problem: on this quadratic, the plain one."
    )
    header = ("update rule", "loss at the start", "after 10 steps", "after 100 steps")
    return Finding(HOLDS, said, checks, [ResultTable(header, tuple(table), "A quadratic of condition number 25.")])


def _descend(ours: Descent, theirs: TorchDescent) -> tuple[float, list[float]]:
    """Largest distance between our iterates and torch's on L = sum_i c_i theta_i^2 / 2, and our losses."""
    curvature = np.array([1.0, 5.0, 25.0])
    theta = np.array([1.0, -1.0, 1.0])
    parameter = torch.nn.Parameter(torch.tensor(theta))
    optimiser = theirs([parameter])
    gap = 0.0
    losses = [float(curvature @ theta**2) / 2]
    for _ in range(100):
        theta = ours.step(theta, curvature * theta)
        # Each follows its own iterates, so a difference in the rule grows from step to step and is seen.
        parameter.grad = torch.tensor(curvature) * parameter.detach()
        optimiser.step()
        gap = largest([gap, _gap(theta, parameter.detach())])
        losses.append(float(curvature @ theta**2) / 2)
    return gap, losses


def attention(setting: Setting) -> Finding:
    """Equations (5) to (8) beside torch, and Figure 1 drawn from a layer that was built for the paper's own example."""
    generator = np.random.default_rng(setting.seed)
    x = generator.normal(size=(5, 6))
    heads = [reference.HeadMatrices(*generator.normal(size=(3, 6, 6))) for _ in range(3)]
    output = generator.normal(size=(18, 6))
    q = x @ heads[0].query
    k = x @ heads[0].key
    v = x @ heads[0].value
    weights = reference.attention_weights(q, k)
    z = reference.attention_output(weights, v)
    matrix = reference.self_attention(q, k, v)
    stock = _stock(q, k, v)
    softmax = torch.softmax(_t(q) @ _t(k).T / math.sqrt(6), -1)
    row_sums = weights.sum(1)
    by_heads = [_stock(x @ h.query, x @ h.key, x @ h.value) for h in heads]
    mixed = torch.cat(by_heads, -1) @ _t(output)
    all_heads = reference.multi_head_attention(x, heads, output)
    checks = [
        Check("eq (5): |weights − torch.softmax|", _gap(weights, softmax), "<=", ROUNDING),
        Check("eq (5): largest |row sum − 1|", float(np.abs(row_sums - 1).max()), "<=", ROUNDING),
        Check("eq (6): |Σ α v − torch|", _gap(z, stock), "<=", ROUNDING),
        Check("eq (7) beside eqs (5) and (6)", float(np.abs(matrix - z).max()), "<=", ROUNDING),
        # 18 columns of values are mixed once more by normal numbers: its sums are longer and larger.
        Check("eq (8): |MHA − torch|", _gap(all_heads, mixed), "<=", 1e-10),
    ]
    square = Box([0.0, 0.0], [2 * math.pi] * 2)
    result = approximate("sin(x1) + sin(x2)", square, 1e-3)
    shown_at = torch.tensor([1.0, 4.0], dtype=torch.float64)
    figure = attention_figure(Scene.of(result), shown_at)
    caption = (
        "Figure 1, live: the attention of a built layer for sin x₁ + sin x₂ at the input (1, 4). A query meets every "
        "key; the weights (width and colour) average the values; heads work in parallel and W^O adds them."
    )
    said = "Equations (5) to (8) are the usual definitions and agree with PyTorch's own attention to rounding."
    return Finding(HOLDS, said, checks, pictures=[Picture("figure-1", caption, figure, result)])


def _stock(query: Array, key: Array, value: Array) -> torch.Tensor:
    """Torch's own attention, which wants a batch: one of one sequence."""
    q, k, v = (_t(array)[None] for array in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v)[0]


def backpropagation(setting: Setting) -> Finding:
    """Row 14. Equations (9) and (10) are true for δ = ∂L/∂z and false for δ = ∂L/∂h, the paper's definition."""
    unit = Network([np.array([[1.0]])], [np.array([-2.0])])  # x = 1: z = -1, h = relu(z) = 0, L = h
    as_printed = _bias_gradient(unit, printed=True)
    repaired = _bias_gradient(unit, printed=False)
    step = 1e-6
    lifted = _raised(unit, step)
    lowered = _raised(unit, -step)
    truth = (lifted - lowered) / (2 * step)
    gap_repaired = largest(_against_autograd(seed, printed=False) for seed in range(30))
    gap_printed = largest(_against_autograd(seed, printed=True) for seed in range(30))
    checks = [
        Check("one dead unit: bias gradient by eq (10) with δ = ∂L/∂h", as_printed, "=", 1.0),
        Check("the same with δ = ∂L/∂z", repaired, "=", 0.0),
        Check("the truth, by a difference quotient", truth, "=", 0.0),
        Check("30 random networks: largest relative gap to autograd, δ = ∂L/∂z", gap_repaired, "<=", 1e-10),
        Check("the same as printed, largest", gap_printed, ">", 0.1),
    ]
    said = (
        "With the paper's δ = ∂L/∂h both formulas miss the factor φ′(zˡ) of the layer the error comes from: a unit "
        "that is switched off would still be trained. For δ = ∂L/∂z they are exact, to rounding, against automatic "
        "differentiation."
    )
    network = Network.random((3, 6, 6, 5, 2), seed=setting.seed)
    caption = (
        "Figure 2, live: a ReLU network with random weights. Solid: the forward pass with its activations (colour). "
        "Dashed: the backward pass; the numbers are the norms of δ and of the gradients that eqs (9) and (10) give."
    )
    figure = backward_figure(network, np.array([0.8, -0.5, 0.3]), np.array([1.0, 0.0]))
    return Finding(REPAIRED, said, checks, pictures=[Picture("figure-2", caption, figure)])


def _bias_gradient(unit: Network, *, printed: bool) -> float:
    """∂L/∂b of a network of one unit at x = 1 for L = h, whose slope in h is 1."""
    one = np.array([1.0])
    ((_, of_bias),) = unit.gradients(one, one, printed=printed)
    return float(of_bias[0])


def _raised(unit: Network, step: float) -> float:
    """The output of a network of one unit at x = 1, its bias moved by a step."""
    moved = Network(unit.weights, [unit.biases[0] + step])
    _, h = moved.forward(np.array([1.0]))
    return float(h[-1][0])


def _against_autograd(seed: int, *, printed: bool) -> float:
    """Largest relative gap between the formulas' gradients and torch's; ReLU after every layer, L = |h - y|²/2."""
    network = Network.random((4, 8, 8, 3), seed=seed)
    generator = np.random.default_rng(seed + 1)
    x = generator.normal(size=4)
    y = generator.normal(size=3)
    _, activations = network.forward(x)
    gradients = network.gradients(x, activations[-1] - y, printed=printed)
    weights = [_t(w).requires_grad_() for w in network.weights]
    biases = [_t(b).requires_grad_() for b in network.biases]
    h = _t(x)
    for w, b in zip(weights, biases, strict=True):
        h = torch.relu(F.linear(h, w, b))
    loss = ((h - _t(y)) ** 2).sum() / 2
    slopes = torch.autograd.grad(loss, [*weights, *biases])
    of_weights, of_biases = zip(*gradients, strict=True)
    # Relative to the largest entry; where every unit is off all gradients are zero, and the gap itself is taken.
    scale = largest(float(slope.abs().max()) for slope in slopes) or 1.0
    gaps = [_gap(ours, theirs) for ours, theirs in zip(of_weights + of_biases, slopes, strict=True)]
    return largest(gaps) / scale


def _t(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _gap(ours: Array, theirs: torch.Tensor) -> float:
    return float(np.abs(ours - theirs.numpy()).max())
