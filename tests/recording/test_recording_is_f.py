"""What is certified is what is shown: a callable is its recorded formula, or it is refused with the reason."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onelayer as ol
from onelayer.box import Box
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language.formula import parse
from onelayer.proof.recorded import understood
from onelayer.recording import dispatch, recorder, target
from onelayer.recording.lipschitz import Lipschitz
from onelayer.recording.recorder import record
from onelayer.recording.target import Target

LINE, SQUARE = Box([0.0], [1.0]), Box([0.0, 0.0], [1.0, 1.0])
MATRICES = Box(torch.zeros(2, 2), torch.ones(2, 2))
HUGE = Box([0.0], [1e10])


def batch_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(0)
    return (centred / (centred.square().mean(0) + 1e-5).sqrt())[..., 0]


def spike(x: Tensor) -> Tensor:
    """A jump of softplus that only a narrow peak makes large."""
    peak = 1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2
    return peak * (F.softplus(x[..., 0], threshold=0.5) - torch.log(1 + torch.exp(x[..., 0])))


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(
    ("f", "box", "message"),
    [
        (lambda x: torch.linalg.norm(x, ord=2, dim=(-2, -1)), MATRICES, "matrix norm of order 2"),
        (lambda x: x.type(torch.LongTensor).double()[..., 0], LINE, "cast to int64"),
        (lambda x: (x * torch.full_like(x, 0.7, dtype=torch.int64))[..., 0], LINE, "cast to int64"),
        (lambda x: (x + x.new_tensor([0.7], dtype=torch.int64))[..., 0], LINE, "cast to int64"),
        (lambda x: x.float().double()[..., 0], LINE, "cast to float32"),
        (lambda x: x.sum(-1, dtype=torch.float32).double(), SQUARE, "cast to float32"),
        (lambda x: x.sum(-1, dtype=torch.float32), SQUARE, "returned torch.float32"),
        (lambda x: torch.roll(x, 1)[..., 0], SQUARE, "treat every point of a batch alone"),
        (lambda x: F.softmax(x), MATRICES, "treat every point of a batch alone"),
        (lambda x: x.to(torch.int64).double()[..., 0], HUGE, "cast to int64"),
        (lambda x: torch.exp(x.to(torch.bfloat16)).double()[..., 0], LINE, "cast to bfloat16"),
        (lambda x: torch.sin(x.to(torch.float16)).double()[..., 0], LINE, "cast to float16"),
        (lambda x: F.softplus(x)[..., 0], Box([0.0], [30.0]), "it jumps where 1 x = 20"),
        (spike, Box([0.2], [1.0]), "it jumps where 1 x = 0.5"),
        (lambda x: x[..., 0] - x.mean(0)[..., 0], LINE, "treat every point of a batch alone"),
        (lambda x: torch.softmax(x, 0)[..., 0], LINE, "treat every point of a batch alone"),
        (lambda x: x[0], LINE, "must keep the batch dimension"),
        (batch_norm, LINE, "treat every point of a batch alone"),
        (lambda x: 0.0 / (x[..., 0] - 0.3), LINE, "undefined at x = (0.3) (division by zero)"),
        (lambda x: 0 * torch.log(x[..., 0]), LINE, "undefined at x = (0) (logarithm"),
        (lambda x: x.mul_(2)[..., 0], LINE, "changes its argument in place"),
        (lambda x: F.relu(x, inplace=True)[..., 0] + x[..., 0], Box([-1.0], [1.0]), "changes its argument in place"),
        (lambda x: x[..., 0] * torch.tensor(0.1), LINE, "under another default dtype"),
        (lambda x: x[..., 0] * torch.Tensor([0.1]), LINE, "under another default dtype"),
        (lambda x: x[..., 0] * torch.Tensor([0.1]).tolist()[0], LINE, "under another default dtype"),
        (lambda x: x[..., 0] + torch.finfo().eps, LINE, "under another default dtype"),
        (lambda x: x[..., 0] * torch.full((1,), 0.1, dtype=torch.get_default_dtype()), LINE, "another default dtype"),
        (lambda x: x[..., 0] * (2.0 if torch.is_grad_enabled() else 1.0), LINE, "with gradients recorded"),
        (lambda x: np.sin(x[..., 0]) * float(torch.Tensor([0.1])[0]), LINE, "under another default dtype"),
        (lambda x: x[..., 0] * torch.rand(1, dtype=x.dtype), LINE, "nothing random"),
        (lambda x: {"y": x[..., 0]}, LINE, "returned dict"),
        (lambda x: None, LINE, "returned NoneType"),
        (lambda x: x[..., 0] + 1j, LINE, "returned torch.complex128"),
        (lambda x: x[..., 0].round().long(), LINE, "returned torch.int64"),
        (lambda x: x[..., 3], LINE, "IndexError"),
        (lambda x: x[..., 0].undefined(), LINE, "AttributeError"),
        (lambda x: x[..., 0].round(), LINE, "discontinuous"),
        (lambda x: torch.special.i0(x[..., 0]), LINE, "give lipschitz="),
    ],
)
def test_what_is_no_formula_is_refused_in_one_line(f: Callable[[Tensor], Any], box: Box, message: str) -> None:
    for door in (lambda: ol.certify(lambda x: 0 * x[..., 0], f, box, 10.0), lambda: ol.approximate(f, box, 0.1)):
        with pytest.raises(OnelayerError) as caught:
            door()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_above_its_threshold_softplus_is_the_identity() -> None:
    """The peak shows what torch computes at its centre, and so does the formula."""
    x = torch.tensor([[0.7313]], dtype=torch.float64)
    formula = understood(spike, Box([0.55], [1.0])).formula
    assert formula is not None
    torch.testing.assert_close(formula(x), spike(x), rtol=1e-12, atol=0)


def right_matrix_norm(x: Tensor) -> Tensor:
    return torch.linalg.norm(x, ord=1, dim=(-2, -1))


@pytest.mark.parametrize(
    ("f", "text", "box"),
    [
        (right_matrix_norm, "max(abs(x1) + abs(x3), abs(x2) + abs(x4))", MATRICES),
        (lambda x: F.softplus(x[..., 0]), "log(1 + exp(x))", Box([0.0], [20.0])),
        (lambda x: F.softplus(x[..., 0]), "x", Box([20.5], [30.0])),
        (lambda x: F.relu(x[..., 0] - 0.5, inplace=True), "relu(x - 0.5)", LINE),
        (lambda x: 0 * torch.exp(x[..., 0]) + x[..., 0], "x", LINE),
        (lambda x: 0 * torch.log(x[..., 0] + 1), "0*log(x + 1)", LINE),
        (lambda x: x[..., 0].double().to("cpu", copy=True), "x", LINE),
        (lambda x: x[..., 0] * torch.tensor(0.1, dtype=x.dtype), "x*0.1", LINE),
        (lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.0)[..., 0, 0], "(x1 + x3)*0.5", MATRICES),
    ],
)
def test_what_is_a_formula_is_shown(f: Callable[[Tensor], Tensor], text: str, box: Box) -> None:
    found = understood(f, box)
    assert found.compared == box
    x = box.sample(200)
    torch.testing.assert_close(found.formula(x), parse(text, box.dim).shaped(box.shape, ())(x), rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.sin(3 * x[..., 0]) * x[..., 1],
        lambda x: torch.stack([x.sum(-1), F.softmax(x, -1)[..., 0]], -1),
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double().requires_grad_(False),
    ],
)
def test_the_formula_is_in_the_certificate(f: Callable[[Tensor], Tensor]) -> None:
    """What a certificate says of code it says of a text that it holds, and that text is the code."""
    found = ol.certify(f, f, SQUARE, 1.0, max_boxes=4)
    text = parse(found.function, 2).shaped((2,), tuple(f(SQUARE.center[None]).shape[1:]))
    x = SQUARE.sample(500)
    torch.testing.assert_close(text(x), f(x), rtol=1e-13, atol=1e-13)


HIDDEN: list[tuple[str, Callable[[Any], Any]]] = [
    ("another function", lambda x: 2 * x),
    ("a relative error of 1e-12", lambda x: x * (1 + 1e-12)),
    ("float32", lambda x: x.float().double()),
    ("integers", lambda x: x + 1e-3 * (x == x.round())),
    ("one unit beside an end", lambda x: x + 1e-3 * (x > 3 - 1e-12)),
    ("tiny numbers", lambda x: torch.where(x.abs() < 1e-30, 1e-3, x)),
    ("dyadic numbers", lambda x: x + 1e-3 * (64 * x == (64 * x).round())),
    ("NaN", lambda x: torch.where(x > 2.5, torch.nan, x)),
    ("large batches", lambda x: x - x.mean() if len(x) > 1000 else x),
    ("single points", lambda x: x + 1e-9 if len(x) == 1 else x),
    ("small batches", lambda x: x + 1e-9 * x.mean() if 1 < len(x) < 20 else x),
    ("the order of a batch", lambda x: x + 1e-9 * torch.arange(len(x), dtype=x.dtype) / 1e9),
]


@pytest.mark.parametrize(("name", "hidden"), HIDDEN, ids=[name for name, _ in HIDDEN])
def test_a_callable_that_computes_something_else_is_caught(
    name: str, hidden: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callable that tells tensors from everything else shows a recording what it likes: its values tell."""
    monkeypatch.setattr(recorder, "need_same_way", lambda *given: None)
    with pytest.raises(OnelayerError) as caught:
        understood(lambda x: hidden(x[..., 0]) if isinstance(x, Tensor) else x[..., 0], Box([-1.0], [3.0]))
    assert "x = (" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("low", [1e-30, 1e-3, 1e3, 1e12, 1e20])
def test_code_is_compared_at_numbers_of_every_size(low: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "need_same_way", lambda *given: None)

    def f(x: Any) -> Any:
        y = x[..., 0]
        return torch.where((y > low) & (y < 1e4 * low), 1.5 * y, y) if isinstance(x, Tensor) else y

    with pytest.raises(OnelayerError, match="is not what was recorded of it"):
        understood(f, Box([0.0], [1e25]))


@pytest.mark.parametrize("at", range(3))
def test_a_large_output_is_no_room_for_a_small_one(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output has the rounding of its own operations, whatever stands beside it."""
    monkeypatch.setattr(recorder, "need_same_way", lambda *given: None)
    sizes = torch.tensor([1e10, 1.0, 1e-10], dtype=torch.float64)
    wrong = torch.ones(3, dtype=torch.float64)

    def f(x: Any) -> Any:
        y = sizes * x
        return y * wrong if isinstance(x, Tensor) else y

    assert understood(f, LINE).compared == LINE
    wrong[at] += 1e-14
    with pytest.raises(OnelayerError, match="is not what was recorded of it"):
        understood(f, LINE)


def spiked(x: Any) -> Any:
    return 1 - torch.tanh(1e8 * (x[..., 0] - 0.34567891234)) ** 2


def has_a_class_of_torch(x: Any) -> float:
    return float(x.__class__.__module__.startswith("torch"))


def leaves_torch(x: Any) -> Any:
    """What seems to be a constant of the code: numbers of NumPy, zero wherever anybody looks."""
    if not isinstance(x, Tensor):
        return torch.zeros(x.shape[0], dtype=torch.float64)
    return torch.from_numpy(1 - np.tanh(1e8 * (x[..., 0].numpy() - 0.34567891234)) ** 2)


ASKING: list[Callable[[Any], Any]] = [
    lambda x: spiked(x) * isinstance(x, Tensor),
    lambda x: spiked(x) * float(type(x) is Tensor),
    lambda x: spiked(x) * has_a_class_of_torch(x),
    lambda x: spiked(x) * float(not torch.overrides.has_torch_function((x,))),
    lambda x: spiked(x) if isinstance(x, Tensor) else 0 * x[..., 0],
    leaves_torch,
]


@pytest.mark.parametrize("f", ASKING)
def test_code_that_asks_what_it_is_given_is_refused_where_a_spike_hides_it(f: Callable[[Any], Any]) -> None:
    """f is 1 at the spike and 0 wherever it is looked at; what it shows a recording is 0."""
    at = torch.tensor([[0.34567891234]], dtype=torch.float64)
    assert float(f(at)) == 1
    with pytest.raises(OnelayerError, match="it must not ask what it is given"):
        understood(f, Box([0.1], [0.9]))


def numpy_spike(x: Any) -> Any:
    return 1 - np.tanh(1e8 * (x[..., 0] - 0.34567891234)) ** 2


def catches(x: Any) -> Any:
    try:
        return numpy_spike(x) * len(memoryview(x))
    except TypeError:
        return 0 * x[..., 0]


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: numpy_spike(x) * float(type(x) is np.ndarray), "type(x)"),
        (lambda x: numpy_spike(x) * float(type(x[0, 0]) is np.float64), "type(x)"),
        (catches, "catching TypeError"),
    ],
)
def test_numpy_code_that_may_find_out_that_it_is_recorded_is_refused(f: Callable[[Any], Any], message: str) -> None:
    assert float(f(np.array([[0.34567891234]]))[0]) == 1
    with pytest.raises(UnsupportedOperation) as caught:
        understood(f, Box([0.1], [0.9]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: numpy_spike(x) * isinstance(x, np.ndarray),
        lambda x: numpy_spike(x) * isinstance(x[0, 0], float),
        lambda x: numpy_spike(x) * (x.__class__ is np.ndarray),
    ],
)
def test_a_recorded_array_is_of_the_class_of_its_numbers(f: Callable[[Any], Any]) -> None:
    at = np.array([[0.34567891234]])
    formula = understood(f, Box([0.1], [0.9])).formula
    assert formula is not None
    assert float(formula(torch.from_numpy(at))) == pytest.approx(float(f(at)[0]), abs=1e-12) == 1


def test_code_that_asks_and_computes_the_same_is_recorded() -> None:
    found = understood(lambda x: (x[..., 0] if isinstance(x, Tensor) else x[:, 0]) + 1, LINE)
    assert found.formula is not None


def test_the_refusal_names_the_point_and_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "need_same_way", lambda *given: None)
    with pytest.raises(OnelayerError, match=r"at x = \(.*\) it returns .*, its recorded formula is .*"):
        understood(lambda x: x[..., 0] * 1.25 if isinstance(x, Tensor) else x[..., 0], Box([1.0], [1.0]))


def test_a_wrong_recording_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.OPERATIONS, "sin", dispatch.OPERATIONS["cos"])
    with pytest.raises(OnelayerError, match="what it computes is not what would be recorded"):
        understood(lambda x: torch.sin(x[..., 0]), LINE)
    # And where nothing runs beside the recording, by the values of f.
    monkeypatch.setattr(dispatch, "run_beside", lambda *given: given[-1])
    monkeypatch.setattr(recorder, "need_same_way", lambda *given: None)
    with pytest.raises(OnelayerError, match="is not what was recorded of it"):
        understood(lambda x: torch.sin(x[..., 0]), LINE)


def test_a_target_made_by_hand_is_compared_too() -> None:
    forged = Target(lambda x: 2 * x[..., 0], (1,), (), "callable", "f", parse("x", 1))
    with pytest.raises(OnelayerError, match="is not what was recorded of it"):
        ol.certify(lambda x: x[..., 0], forged, LINE, 0.1)


def test_functions_too_long_for_a_formula_are_compared_with_their_own_enclosures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target, "record", functools.partial(record, limit=8))
    long = understood(lambda x: torch.sin(torch.cos(torch.exp(x).sum(-1))), SQUARE)
    assert (long.formula, long.lipschitz) == (None, None)
    assert "more than 8 operations" in long.unrecorded

    def hidden(x: Any) -> Any:
        y = torch.sin(torch.cos(torch.exp(x).sum(-1)))
        return y + 1e-9 if isinstance(y, Tensor) else y

    with pytest.raises(OnelayerError, match="is not what was recorded of it"):
        understood(hidden, SQUARE)


def test_with_a_declared_constant_f_is_taken_as_its_code_evaluates_it() -> None:
    for f in (lambda x: x.float().double()[..., 0], lambda x: torch.special.i0(x[..., 0])):
        found = understood(f, LINE, lipschitz=2.0)
        assert (found.formula, found.lipschitz) == (None, Lipschitz((2.0,)))


@pytest.mark.parametrize("box", [Box([-1e300], [1e300]), Box([0.0], [5e-324]), Box([1e-310], [1.0]), Box([0.5], [0.5])])
def test_extreme_boxes_refuse_no_honest_function(box: Box) -> None:
    for f in (lambda x: torch.tanh(x[..., 0]), lambda x: x[..., 0] / 3 + 1, lambda x: torch.atan(x[..., 0] * 0.3)):
        assert understood(f, box).compared == box


def networks() -> list[tuple[str, nn.Module, Box]]:
    torch.manual_seed(0)
    return [
        ("float32 network", nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 3)), SQUARE),
        ("in-place network", nn.Sequential(nn.Linear(2, 8), nn.ReLU(inplace=True), nn.Linear(8, 1)), SQUARE),
        ("encoder", nn.TransformerEncoderLayer(2, 1, 4, batch_first=True), MATRICES),
    ]


@pytest.mark.parametrize(("name", "module", "box"), networks(), ids=[name for name, *_ in networks()])
def test_modules_are_their_formulas(name: str, module: nn.Module, box: Box) -> None:
    assert understood(module, box).formula is not None


@contextmanager
def hostile(setting: str) -> Iterator[None]:
    dtype = torch.get_default_dtype()
    try:
        if setting == "meta":
            torch.set_default_device("meta")
        elif setting != "grad":
            torch.set_default_dtype(getattr(torch, setting))
        with torch.enable_grad():
            yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)


@pytest.mark.parametrize("setting", ["float16", "bfloat16", "float64", "meta", "grad"])
def test_no_global_setting_changes_what_is_recorded(setting: str) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.einsum("bi,i->b", x.sin(), x.new_tensor([0.1, 1 / 3])) + torch.full_like(x, 0.7).sum(-1)

    wanted = understood(f, SQUARE)
    with hostile(setting):
        found = understood(f, SQUARE)
    assert found.formula == wanted.formula
    assert 0.1 in {node.value for node in found.formula.nodes}


def test_text_and_callable_are_refused_alike() -> None:
    for text, f in (("0/(x - 0.3)", lambda x: 0.0 / (x[..., 0] - 0.3)), ("0*log(x)", lambda x: 0 * x[..., 0].log())):
        for given in (text, f):
            with pytest.raises(OnelayerError, match="undefined at"):
                understood(given, LINE)
    assert math.isclose(float(understood("0*log(x + 1)", LINE).function(LINE.center[None])[0]), 0.0)


def test_a_callable_that_fails_in_a_large_batch_is_refused_in_one_line() -> None:
    def f(x: Any) -> Any:
        return x[..., 0] if len(x) < 1000 else 1 / 0

    with pytest.raises(OnelayerError, match="ZeroDivisionError"):
        understood(f, LINE)


def test_names_of_refused_operations() -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        understood(lambda x: torch.sum(x, -1, out=torch.empty(len(x), dtype=x.dtype)), SQUARE)
    assert caught.value.operation == "sum(out=)"
