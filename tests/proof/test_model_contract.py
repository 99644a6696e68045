"""What a proof assumes of T is tried before the search, and a model that breaks it is refused with the point."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onelayer import Box, OnelayerError, approximate
from onelayer.errors import ModelAssumptionError, UnsupportedOperation
from onelayer.language.formula import parse
from onelayer.layer.memory import PlainMemory
from onelayer.proof.certify import certify
from onelayer.proof.claims import convex, lipschitz, monotone
from onelayer.proof.contract import POINTS, examine
from onelayer.proof.error import ErrorFunction, error_function
from onelayer.proof.stepwise import Accompanied
from onelayer.recording.target import as_target
from onelayer.taylor.core import TaylorModel

SIDE = Box([-1.0], [1.0])
SQUARE = Box([-1.0, -1.0], [1.0, 1.0])


def scaled_by_batch(x: Any) -> Any:
    centred = x - x.mean(0)
    return (centred / torch.sqrt((centred * centred).mean(0) + 1e-5))[..., 0]


MIXING: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x[..., 0] - x.mean(0)[..., 0],
    "softmax": lambda x: torch.softmax(x, 0)[..., 0],
    "first point": lambda x: x[0, 0] + 0.0 * x[..., 0],
    "neighbour": lambda x: x.flip(0)[..., 0],
    "batch normalisation": scaled_by_batch,
}


@pytest.mark.parametrize("execution", ["float64", "float32", "real"])
@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_its_batch_is_refused(name: str, execution: str) -> None:
    with pytest.raises(ModelAssumptionError, match=r"at x = .*in another batch"):
        certify(MIXING[name], "0*x", SIDE, 5.0, execution=execution)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: torch.relu(1.5 - (0 * x[..., 0] + 1).sum(0)),
        lambda x: x[..., 0] - x[..., 0].amax(0),
        lambda x: x[0, 0],
        lambda x: x.flip(0)[..., 0],
    ],
)
def test_mixing_where_no_sample_falls_is_refused(mixed: Callable[[Any], Any]) -> None:
    """Beside a box without a value the enclosure is lost, wherever the mixing can be seen in numbers."""

    def spiked(x: Any) -> Any:
        return (1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2) * mixed(x)

    with pytest.raises(ModelAssumptionError, match="in another batch"):
        certify(spiked, "0*x", SIDE, 1e-2)


def test_a_model_without_a_batch_dimension_is_refused() -> None:
    with pytest.raises(ModelAssumptionError, match="each point must have its own row"):
        certify(lambda x: x[0], "0*x", SIDE, 5.0)


def test_mixing_far_from_the_usual_batch_size_is_seen() -> None:
    """Right for every batch but those of one point."""
    with pytest.raises(ModelAssumptionError, match="in another batch"):
        certify(lambda x: x[..., 0] * (1.0 if len(x) > 1 else 0.5), "x", SIDE, 5.0)


class Counting:
    """Another value at every call, as dropout has."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x[..., 0] * (1.0 + 1e-9 * self.calls)


def test_a_model_that_changes_from_call_to_call_is_refused() -> None:
    with pytest.raises(ModelAssumptionError, match="two values for the same batch"):
        certify(Counting(), "x", SIDE, 5.0)


def test_dropout_hidden_in_a_function_is_refused_by_name() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(2, 1, 4, batch_first=True).double()  # in training mode
    with pytest.raises(OnelayerError, match="training mode"):
        certify(lambda x: encoder(x[:, None, :])[:, 0, 0], "x1", SQUARE, 10.0)


def test_another_value_than_on_enclosures_is_refused() -> None:
    with pytest.raises(ModelAssumptionError, match="operations on enclosures exclude"):
        certify(lambda x: x[..., 0] * (1.001 if isinstance(x, Tensor) else 1.0), "x", SIDE, 5.0)


def test_another_value_than_on_enclosures_or_with_tangents_has_no_slopes_either() -> None:
    class Turned(nn.Module):
        """-x, but x to whoever follows its operations."""

        def forward(self, x: Any) -> Any:
            return x[..., 0] * (-1.0 if type(x) in self.turned else 1.0)

    all_but_duals = (Tensor, TaylorModel, Accompanied)
    for turned, complaint in (((Tensor,), "operations on enclosures exclude"), (all_but_duals, "derivatives")):
        model = Turned()
        model.turned = turned
        for claim in (lipschitz, convex, partial(monotone, directions={"x1": "+"})):
            with pytest.raises(ModelAssumptionError, match=complaint):
                claim(model, SIDE)


def test_a_model_that_depends_on_the_default_dtype_is_refused() -> None:
    with pytest.raises(ModelAssumptionError, match="default dtype"):
        certify(lambda x: x[..., 0] * torch.tensor(0.1), "x", SIDE, 5.0)
    with pytest.raises(ModelAssumptionError, match="default dtype"):
        certify(lambda x: x[..., 0].to(torch.zeros(1)), "x", SIDE, 5.0)  # float32 in an ordinary process
    tenth = torch.tensor(0.1, dtype=torch.float64)
    assert certify(lambda x: x[..., 0] * tenth, "0.1*x", SIDE, 1e-9).proved


def test_the_rounding_of_constants_counts() -> None:
    """A sum of constants has another value in another order, on another machine: each of them is covered."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2**17, generator=generator, dtype=torch.float64)
    noise = torch.cat([half, -half])[torch.randperm(2**18, generator=generator)]  # sums to zero, up to rounding
    found = certify(lambda x: x[..., 0] + 1e12 * noise.sum(), "x", SIDE, 1e-3, max_boxes=8)
    assert not found.proved
    for order in range(3):
        shuffled = noise[torch.randperm(2**18, generator=torch.Generator().manual_seed(order))]
        assert 1e12 * abs(float(shuffled.sum())) <= found.upper


LEFT, RIGHT = torch.tensor([4097.0, 1.0, -4097.0]), torch.tensor([4097.0, 1.0, 4097.0])


@pytest.mark.parametrize(
    "product",
    [
        lambda: LEFT @ RIGHT,
        lambda: torch.dot(LEFT, RIGHT),
        lambda: torch.sum(input=LEFT * RIGHT),
        lambda: (LEFT * RIGHT).mean(0) * 3.0,
        lambda: torch.einsum("k,k->", LEFT, RIGHT),
        lambda: torch.einsum("k,k->", [LEFT, RIGHT]),
        lambda: torch.nn.functional.linear(LEFT, RIGHT[None])[0],
    ],
)
@pytest.mark.parametrize("execution", ["float32", "float64"])
def test_a_product_of_float32_constants_is_covered_in_every_order(execution: str, product: Callable[[], Any]) -> None:
    spike = 1e8 * (0.7313 - 0.5)

    def model(x: Any) -> Any:
        hidden = (1 - torch.tanh(1e8 * (x[..., 0] - 0.5) - spike) ** 2) * (product() - 1)
        return hidden.to(x.dtype) if isinstance(x, Tensor) else hidden

    found = certify(model, "0*x", Box([0.5], [1.0]), 1e-2, execution=execution, max_boxes=64)
    assert not found.proved  # some orders of the sum give 1, some 0 or 2


def activation(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Flatten(0))


@pytest.mark.parametrize(
    "layer",
    [nn.LeakyReLU(0.2, inplace=True), nn.ReLU(inplace=True), nn.ELU(inplace=True)],
    ids=lambda m: type(m).__name__,
)
def test_an_activation_in_place_is_refused_by_name(layer: nn.Module) -> None:
    """It changes every name and view that its input has; enclosures do not."""
    with pytest.raises(UnsupportedOperation, match="inplace"):
        certify(activation(layer), "max(x, 0)", SIDE)


def test_lower_is_below_the_supremum_at_a_kink() -> None:
    found = certify(activation(nn.LeakyReLU(0.2)), "max(x, 0)", SIDE, gap=0.01)
    assert 0.19 < found.lower <= 0.2 <= found.upper


@pytest.mark.parametrize(
    "model",
    [
        lambda x: (x[..., 0], x[..., 0]),
        lambda x: None,
        lambda x: 3.0,
        lambda x: x[..., 0].long(),
        lambda x: x[..., 0].to(torch.complex128),
        lambda x: x[..., 0].float(),
        lambda x: x[..., 0] + "a",
        lambda x: x[..., 7],
        lambda x: x[..., 0].numpy() + 0 * x,
        lambda x: x[..., 0] if isinstance(x, Tensor) else x.nothing.of_this,
        lambda x: x[..., 0] if isinstance(x, Tensor) else None,
        lambda x: x[..., 0] if isinstance(x, Tensor) else {}[x.ndim],
        lambda x: x[..., 0] if isinstance(x, Tensor) else x,
    ],
)
@pytest.mark.parametrize("execution", ["float64", "real"])
def test_whatever_a_model_does_the_error_is_ours(model: Callable[[Any], Any], execution: str) -> None:
    with pytest.raises(OnelayerError) as caught:
        certify(model, "x", SIDE, 5.0, execution=execution)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"eps": math.nan},
        {"eps": "1e-3"},
        {"eps": -1.0},
        {"gap": math.nan},
        {"order": 2.5},
        {"max_boxes": 0},
        {"max_boxes": math.inf},
        {"max_seconds": math.nan},
        {"jobs": 0},
        {"jobs": "two"},
        {"execution": []},
        {"execution": torch.float16},
        {"device": "meta"},
        {"device": "nowhere"},
    ],
    ids=str,
)
def test_whatever_is_asked_the_error_is_ours(arguments: dict[str, Any]) -> None:
    with pytest.raises(OnelayerError):
        certify(lambda x: x[..., 0], "x", SIDE, **arguments)


def test_a_domain_that_is_no_box_is_refused() -> None:
    with pytest.raises(OnelayerError, match="Box"):
        certify(lambda x: x[..., 0], "x", [0.0, 1.0, 2.0])  # type: ignore[arg-type]


def test_the_number_of_points_is_stated() -> None:
    line = certify(lambda x: x[..., 0], "x", SIDE, 1e-3).assumptions[-1]
    assert "tested at 4,096 points on device cpu, and assumed of other devices" in line
    assert not any("tested" in line for line in certify(parse("x", 1), "x", SIDE, 1e-3).assumptions)


def test_a_slow_model_is_tested_at_fewer_points() -> None:
    big = torch.linspace(0, 1, 20_000, dtype=torch.float64)
    slow = error(lambda x: torch.exp(x * big).sum(-1) / 20_000)
    assert 64 <= examine(slow) < POINTS // 2


def test_a_layer_is_taken_as_built_only_as_it_stands() -> None:
    """A hook or a method in place of another one may do anything: such a layer is examined like foreign code."""
    built = approximate("sin(3*x)", SIDE, 1e-2).model
    assert examine(error(built)) < POINTS // 2
    hooked, patched = copy.deepcopy(built), copy.deepcopy(built)
    hooked.register_forward_hook(lambda layer, args, y: y - y.mean(0))
    plain = patched.stream
    patched.stream = lambda e: plain(e) * (1.0 if len(e) > 1 else 0.5)  # type: ignore[method-assign]
    for changed in (hooked, patched):
        with pytest.raises(ModelAssumptionError, match="in another batch"):
            certify(changed, "sin(3*x)", SIDE, 5.0)


@pytest.mark.parametrize("training", [True, False])
def test_a_model_compiled_in_place_is_refused(training: bool) -> None:
    """torch calls what compile() left in place of forward, and copies lose it."""
    model = nn.Sequential(nn.Linear(1, 1)).double().train(training)
    model[0]._compiled_call_impl = lambda x: x - x.mean(0)
    with pytest.raises(OnelayerError, match="compiled"):
        certify(model, "0*x", SIDE, 5.0)


class Swapped(PlainMemory):
    """Memory tokens that may be others at every call."""


class Answering(nn.Parameter):
    """A weight that answers torch functions itself."""


def test_a_layer_with_a_part_of_another_type_is_foreign() -> None:
    swapped, answering = (approximate("sin(3*x)", SIDE, 1e-2).model.materialize() for _ in range(2))
    memory = swapped.memory_of(0)
    assert memory is not None
    swapped.memory["0"] = Swapped(*memory.plain_tokens())
    answering.W_E = Answering(answering.W_E.detach())
    for changed in (swapped, answering):
        assert examine(error(changed)) > POINTS // 2


def error(model: Callable[[Any], Any], box: Box = SIDE, dtype: torch.dtype = torch.float64) -> ErrorFunction:
    return error_function(model, as_target("0*x1", box), box, dtype, torch.device("cpu"))


def test_a_box_without_numbers_of_the_format_is_no_crash() -> None:
    found = certify(lambda x: x[..., 0], "x", Box([1.1], [1.1]), 1e-3, execution="float32")
    assert found.lower == 0


def test_assignment_in_place_is_refused_by_name() -> None:
    """y += 1 changes every tensor that shares the memory of y."""

    def model(x: Any) -> Any:
        z = 2 * x
        y = z.mT
        y += 1.0
        return z[..., 0]

    with pytest.raises(UnsupportedOperation, match="iadd"):
        certify(model, "2*x", SIDE, 5.0)


def test_zero_eps_and_small_budgets_end() -> None:
    for eps, boxes in itertools.product((0.0, None), (1, 2, 3)):
        found = certify(lambda x: torch.sin(x[..., 0]), "x", SIDE, eps, max_boxes=boxes)
        assert found.lower <= 1 - math.sin(1.0) <= found.upper


class Beside(nn.Module):
    """A module that carries a tensor in a format of which NumPy knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.register_buffer("beside", torch.ones(2, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        return x[..., 0] * self.scale


def test_every_format_of_a_state_is_hashed() -> None:
    assert len(certify(Beside(), "x", SIDE, 1e-3).weights_sha256) == 64
