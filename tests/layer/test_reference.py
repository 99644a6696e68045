"""The NumPy equations against the paper's own identities, PyTorch, autograd and central differences."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onelayer.equations import functions as reference
from onelayer.equations import layer as reference_layer
from onelayer.equations.functions import EQUATIONS, HeadMatrices
from onelayer.layer.transformer import OneLayerTransformer

many = settings(max_examples=120, deadline=None, derandomize=True)


def arrays(model: OneLayerTransformer) -> dict[str, Any]:
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


def batch(model: OneLayerTransformer, seed: int, count: int = 3) -> torch.Tensor:
    """Inputs strictly inside (0, 1): no ramp of the piecewise embedding is at a kink or beyond its table."""
    generator = torch.Generator().manual_seed(seed)
    return 0.05 + 0.9 * torch.rand(count, *model.config.input_shape, generator=generator, dtype=torch.float64)


@many
@given(st.data())
def test_layer_equals_reference(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    x = batch(model, 0)
    right = reference_layer.forward(model.config, arrays(model), x.numpy()).out
    found = model(x).detach().numpy()
    assert found.shape == right.shape
    assert np.abs(found - right).max() <= 1e-12 * max(1.0, np.abs(right).max())


@many
@given(st.data())
def test_backward_equals_autograd(strategies: dict[str, Any], data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    x = batch(model, 1).requires_grad_()
    out = model(x)
    slope = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    out.backward(slope)
    tape = reference_layer.forward(model.config, arrays(model), x.detach().numpy())
    found = reference_layer.backward(model.config, arrays(model), tape, slope.numpy())
    right = {name: parameter.grad for name, parameter in model.named_parameters()} | {"x": x.grad}
    assert set(right) <= set(found)
    for name, gradient in right.items():
        theirs = np.zeros(found[name].shape) if gradient is None else gradient.numpy()
        assert np.abs(found[name] - theirs).max() <= 1e-9 * max(1.0, np.abs(theirs).max()), name


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_backward_equals_central_differences(strategies: dict[str, Any], data: st.DataObject) -> None:
    """Along a random direction of all weights and inputs at once; the step stays clear of kinks almost surely."""
    model = data.draw(strategies["layers"])
    config, weights, x = model.config, arrays(model), batch(model, 3).numpy()
    generator = np.random.default_rng(4)
    tape = reference_layer.forward(config, weights, x)
    slope = generator.standard_normal(tape.out.shape)
    gradients = reference_layer.backward(config, weights, tape, slope)
    trained = [name for name in weights if not name.startswith("ramp")]
    direction = {name: generator.standard_normal(weights[name].shape) for name in trained}
    along_x = generator.standard_normal(x.shape)

    def loss(t: float) -> float:
        moved = weights | {name: weights[name] + t * direction[name] for name in trained}
        return float((reference_layer.forward(config, moved, x + t * along_x).out * slope).sum())

    right = sum(float((gradients[name] * direction[name]).sum()) for name in trained)
    right += float((gradients["x"] * along_x).sum())
    found = (8 * (loss(1e-4) - loss(-1e-4)) - (loss(2e-4) - loss(-2e-4))) / 12e-4
    assert abs(found - right) <= 1e-6 * max(1.0, abs(right))


def test_every_equation_is_there() -> None:
    assert list(EQUATIONS) == list(range(1, 11))
    for number, equation in EQUATIONS.items():
        assert (equation.__doc__ or "").startswith(f"Eq ({number}):")


def test_dense_layer_loss_and_cross_entropy() -> None:
    generator = np.random.default_rng(0)
    weight, bias, x = generator.standard_normal((3, 2)), generator.standard_normal(3), generator.standard_normal(2)
    h = reference.dense_layer(x, weight, bias, reference.relu)
    assert np.allclose(h, [max(0.0, sum(weight[i] * x) + bias[i]) for i in range(3)], rtol=0, atol=1e-15)
    probability = reference.softmax(h)
    label = np.array([0.0, 1.0, 0.0])
    right = torch.nn.functional.cross_entropy(torch.from_numpy(h), torch.tensor(1)).item()
    assert abs(reference.cross_entropy(label, probability) - right) < 1e-15
    assert reference.cross_entropy(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0.0
    samples = [(x, label), (2 * x, label)]
    mean = reference.expected_loss(lambda p, y: float(((p - y) ** 2).sum()), lambda v: v.repeat(3)[:3], samples)
    assert mean == np.mean([((x.repeat(3)[:3] - label) ** 2).sum(), (((2 * x).repeat(3)[:3] - label) ** 2).sum()])


def test_matrix_form_equals_sums() -> None:
    """Eq (7) is eqs (5) and (6); rows of eq (5) sum to one; eq (8) with one head and W^O = I is eq (7)."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((5, 4))
    head = HeadMatrices(*(generator.standard_normal((4, 4)) for _ in range(3)))
    weights = reference.attention_weights(x @ head.query, x @ head.key)
    assert np.abs(weights.sum(axis=1) - 1).max() < 1e-15
    z = reference.attention_output(weights, x @ head.value)
    assert np.abs(z - reference.self_attention(x @ head.query, x @ head.key, x @ head.value)).max() < 1e-14
    assert np.abs(z - reference.multi_head_attention(x, [head], np.eye(4))).max() < 1e-14


def test_multi_head_equals_the_layer() -> None:
    generator = np.random.default_rng(2)
    heads = [HeadMatrices(*(generator.standard_normal((6, 3)) for _ in range(3))) for _ in range(2)]
    output, x = generator.standard_normal((6, 6)), generator.standard_normal((4, 5, 6))
    names = {"W_Q": "query", "W_K": "key", "W_V": "value"}
    weights: dict[str, Any] = {
        name: [torch.from_numpy(getattr(head, part)) for head in heads] for name, part in names.items()
    }
    weights |= {"W_O": torch.from_numpy(output), "W_E": torch.eye(6), "W_R": torch.eye(6)}
    model = OneLayerTransformer.tokens((5, 6), (5, 6), d_model=6, heads=2, weights=weights)
    found = model(torch.from_numpy(x)).detach().numpy()
    assert np.abs(found - reference.multi_head_attention(x, heads, output)).max() < 1e-12


def test_backpropagation_by_equations_9_and_10() -> None:
    generator = np.random.default_rng(3)
    sizes = [3, 5, 4, 2]
    weights = [generator.standard_normal((b, a)) for a, b in pairwise(sizes)]
    biases = [generator.standard_normal(b) for b in sizes[1:]]
    x, y = generator.standard_normal(3), generator.standard_normal(2)
    found = reference.backpropagate(weights, biases, x, lambda h: 2 * (h - y))
    leaves = [torch.from_numpy(array).requires_grad_() for array in (*weights, *biases)]
    h = torch.from_numpy(x)
    for layer in range(3):
        h = leaves[layer] @ h + leaves[3 + layer]
        h = torch.relu(h) if layer < 2 else h
    ((h - torch.from_numpy(y)) ** 2).sum().backward()
    for layer, (d_weight, d_bias) in enumerate(found):
        assert np.abs(d_weight - leaves[layer].grad.numpy()).max() < 1e-12  # type: ignore[union-attr]
        assert np.abs(d_bias - leaves[3 + layer].grad.numpy()).max() < 1e-12  # type: ignore[union-attr]


def test_equations_9_and_10_fail_for_the_delta_the_paper_defines() -> None:
    """One ReLU unit, z = w x + b = -1, h = 0, L = h: dL/db is 0. The paper's delta = dL/dh = 1 makes eq (10) say 1."""
    weight, bias, x = np.array([[1.0]]), np.array([-2.0]), np.array([1.0])
    z = weight @ x + bias
    assert z == -1.0
    d_h = np.array([1.0])
    printed = reference.parameter_gradients(d_h, x)[1]
    right = reference.parameter_gradients(d_h * reference.relu_slope(z), x)[1]
    step = 1e-6
    loss = [reference.dense_layer(x, weight, bias + t, reference.relu)[0] for t in (step, -step)]
    assert (loss[0] - loss[1]) / (2 * step) == right == 0.0
    assert printed == 1.0

    # Two layers, L = h2: the first z is positive, the second negative, so nothing reaches the input.
    z1, z2, w2 = np.array([1.0]), np.array([-1.0]), np.array([[2.0]])
    printed_h1 = reference.backpropagated_error(w2, d_h, reference.relu_slope(z1))
    delta_z2 = d_h * reference.relu_slope(z2)
    assert printed_h1 == 2.0
    assert reference.backpropagated_error(w2, delta_z2, reference.relu_slope(z1)) == 0.0
