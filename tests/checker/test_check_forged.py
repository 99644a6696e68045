"""Claims that are false, signed anew: overflow, underflow, formats, refutations, spikes. Not one is accepted."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from stated_folders import refused
from torch import Tensor

from onelayer import __version__
from onelayer.box import Box
from onelayer.build.ordering.thresholds import threshold_layer
from onelayer.build.sequences.superpose import superpose
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.check import check
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model, weights_sha256
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import OrderStatistics, Recall, to_text
from onelayer.network.file import network_sha256
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import NetworkProgram, Step
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.files import ARGUMENT, TABLE, write_proof
from onelayer.proof.saved import written
from onelayer.proof.tree import BoxTree

F32, F64 = torch.float32, torch.float64
LEAF = 255


def claim(
    folder: Path,
    model: OneLayerTransformer,
    f: str,
    low: list[float],
    high: list[float],
    *,
    boxes: bool = True,
    **changes: Any,
) -> Path:
    """A folder that claims |T - f| <= upper on the box, whatever the truth, with every digest right."""
    tree = BoxTree(np.array(low), np.array(high), np.array([LEAF], dtype=np.uint8)) if boxes else None
    shape = model.config.input_shape
    fields: dict[str, Any] = {"status": "proved", "eps": changes["upper"], "lower": 0.0, "witness": None, "order": 4}
    fields |= {"arithmetic": f"{str(model.dtype).removeprefix('torch.')} execution", "method": "branch and bound"}
    certificate = Certificate(
        domain=Box(torch.tensor(low, dtype=F64).reshape(shape), torch.tensor(high, dtype=F64).reshape(shape)),
        function=f,
        weights_sha256=weights_sha256(model),
        boxes=1 if boxes else 0,
        seconds=0.0,
        version=__version__,
        proof=tree,
        **fields | changes,
    )
    save_model(model, folder)
    write_proof(folder, certificate)
    return folder


def tensor(values: Any, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(dtype)


def packed(
    dtype: torch.dtype, keys: Any, values: Any, *, norm: str = "none", residual: bool = True, **weights: Any
) -> OneLayerTransformer:
    """A packed layer of one number and one head; weights that are not given are zero, gains one."""
    embedding, hidden = weights["W_E"], len(weights.get("b_1", []))
    memory = PlainMemory(tensor(keys, dtype), tensor(values, dtype))
    model = OneLayerTransformer.packed(
        (1,), (), [memory], d_model=len(embedding[0]), dtype=dtype, residual=residual, norm=norm, hidden=hidden
    )
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "memory" not in name and "gain" not in name:
                value.zero_()
    model.set_weights({name: tensor(value, dtype) for name, value in weights.items()})
    return model.requires_grad_(False)


SILENT: dict[str, Any] = {"keys": [[0.0]], "values": [[0.0]]}


@pytest.mark.parametrize(("dtype", "power"), [(F64, 1022), (F32, 126)])
def test_a_power_of_two_overflows_too(dtype: torch.dtype, power: int, tmp_path: Path) -> None:
    """T = tanh by two tokens; 2^power x is exact only while it is finite."""
    scale, token = 2.0**power, [[1.0], [-1.0]]
    weights = {"W_E": [[scale]], "W_Q": [[1 / scale]], "W_O": [[1.0]], "W_R": [[1.0]]}
    model = packed(dtype, token, token, residual=False, **weights)
    assert not model(tensor([[5.0]], dtype)).isfinite().all()
    assert refused(claim(tmp_path, model, "tanh(x1)", [0.0], [8.0], upper=1e-5))


@pytest.mark.parametrize(("dtype", "size"), [(F64, 1.5e308), (torch.float16, 6e4)])
def test_zeros_do_not_hide_infinity(dtype: torch.dtype, size: float, tmp_path: Path) -> None:
    weights = {"W_E": [[1.0, 0.0]], "W_1": [[size], [0.0]], "b_1": [0.0], "W_R": [[1.0], [0.0]]}
    model = packed(dtype, **SILENT, **weights)
    assert model(tensor([[5.0]], dtype)).isnan().all()
    assert refused(claim(tmp_path, model, "x1", [0.0], [8.0], upper=1e-5))


@pytest.mark.parametrize(("dtype", "size"), [(F32, 1e20), (F64, 1e160)])
def test_a_variance_overflows(dtype: torch.dtype, size: float, tmp_path: Path) -> None:
    model = packed(dtype, **SILENT, norm="post", W_E=[[size, -size]], W_R=[[1.0], [0.0]])
    assert float(model(tensor([[1.5]], dtype))) == 0
    assert refused(claim(tmp_path, model, "1+0*x", [1.0], [2.0], upper=1e-3))


@pytest.mark.parametrize("height", [250.0, 280.0])
def test_a_narrow_layer_holds_what_a_normalisation_leaves_small(height: float, tmp_path: Path) -> None:
    """(x, -x) becomes about (1, -1), times 256: 65504 is the largest float16. Sizes alone promise neither."""
    f16 = torch.float16
    options: dict[str, Any] = {"norm": "post", "gain_1": [256.0, 256.0], "W_E": [[40.0, -40.0]]}
    model = packed(f16, **SILENT, **options, W_R=[[height], [0.0]])
    fits = bool(model(tensor([[1.5]], f16)).isfinite().all())
    assert fits == (height < 255)
    folder = claim(tmp_path, model, f"{256 * height}+0*x", [1.0], [2.0], upper=2000.0)
    assert refused(folder) != fits
    assert bounded_on(folder, 1.5, 1.5625) == fits


def bounded_on(folder: Path, low: float, high: float) -> bool:
    """Whether the checker bounds the error of a float16 execution on an interval, by enclosures alone."""
    stored = read_model(folder)
    execution = Execution.of("float16 execution", stored, ((low,), (high,)))
    return all(e.is_finite() for e in Layer(stored, execution)([coordinate(0, low, high, 2)], Kinks()).errors)


def test_zeros_do_not_hide_infinity_from_enclosures(tmp_path: Path) -> None:
    weights = {"W_E": [[1.0, 0.0]], "W_1": [[6e4], [0.0]], "b_1": [0.0], "W_R": [[1.0], [0.0]]}
    folder = claim(tmp_path, packed(torch.float16, **SILENT, **weights), "x1", [0.0], [8.0], upper=1e-5)
    assert bounded_on(folder, 0.0, 1.0)
    assert not bounded_on(folder, 0.0, 8.0)


@pytest.mark.parametrize(("dtype", "top", "length"), [(F64, 8e307, 4), (F64, 1e307, 32), (F32, 5e37, 8)])
def test_thresholds_overflow(dtype: torch.dtype, top: float, length: int, tmp_path: Path) -> None:
    edges = torch.linspace(0.0, 1.0, 13, dtype=dtype).double() * top
    model = threshold_layer(length, edges.to(dtype).double(), None, dtype)
    assert not model(tensor([[0.99 * top] * length], dtype)).isfinite().all()
    argument = OrderStatistics(length, "thresholds", None)
    sides = [0.0] * length, [top] * length
    attached = {ARGUMENT: to_text(argument)}
    options: dict[str, Any] = {"method": "lemma", "boxes": False, "order": 0, "attachments": attached}
    assert refused(claim(tmp_path, model, argument.stated(), *sides, upper=top / 10, **options))


def test_recall_overflows(tmp_path: Path) -> None:
    """Coefficients that cancel in real arithmetic and not in floating point."""
    x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.0, 1e308, 1e308, 1e308])
    weights = {"W_1": [[1.0, 1.0], [0.0, 0.0]], "b_1": [0.0, -1.0], "W_2": [[0.0, 1e308], [0.0, -1e308]]}
    model = packed(F64, **SILENT, W_E=[[1.0, 0.0]], W_R=[[0.0], [1.0]], **weights)
    assert not model(torch.tensor(x)).isfinite().all()
    argument = Recall("relu", 4, None)
    attached = {ARGUMENT: to_text(argument), TABLE: save({"X": x, "Y": y})}
    options: dict[str, Any] = {"method": "enumeration", "boxes": False, "order": 0, "attachments": attached}
    assert refused(claim(tmp_path, model, argument.stated(), [0.0], [3.0], upper=1e295, **options))


@pytest.mark.parametrize("weights", [(1e39, 1e-39), (1e38, 1.01e-44)])
def test_weights_that_do_not_survive_a_cast(weights: tuple[float, float], tmp_path: Path) -> None:
    model = packed(F64, **SILENT, W_E=[[weights[0]]], W_R=[[weights[1]]])
    text = f"{weights[0] * weights[1]!r}*x1"
    assert refused(claim(tmp_path, model, text, [0.5], [1.0], upper=1e-9, arithmetic="float32 execution"))


def test_float32_weights_do_not_run_in_float64(tmp_path: Path) -> None:
    model = packed(F32, **SILENT, W_E=[[1.0]], W_R=[[1.0]])
    assert refused(claim(tmp_path, model, "x1", [0.0], [1.0], upper=1e-14, arithmetic="float64 execution"))


def attends_to_itself(a: float, b: float, c: float) -> OneLayerTransformer:
    """T(x) = sigmoid(a x^2 + b x + c): one token attends to itself (value 1), and to memory (logit 0, value 0)."""
    memory = PlainMemory(torch.zeros(1, 4, dtype=F64), torch.zeros(1, 1, dtype=F64))
    model = OneLayerTransformer.tokens(
        (1, 1), (), d_model=2, d_k=4, d_v=1, memory=[memory], residual=False, hidden=0, readout="first", dtype=F64
    )
    weights = {
        "W_E": [[1.0, 0.0]], "b_E": [0.0, 1.0], "W_Q": [[2.0, 0, 0, 0], [0, 2.0, 0, 0]], "b_Q": [0.0] * 4,
        "W_K": [[a, 0, 0, 0], [b, c, 0, 0]], "b_K": [0.0] * 4, "W_V": [[0.0], [1.0]], "b_V": [0.0],
        "W_O": [[1.0, 0.0]], "b_O": [0.0, 0.0], "W_R": [[1.0], [0.0]], "b_R": [0.0],
    }  # fmt: skip
    model.set_weights({name: tensor(value, F64) for name, value in weights.items()})
    return model.requires_grad_(False)


@pytest.mark.parametrize("order", [2, 3, 4, 6])
@pytest.mark.parametrize(("centre", "upper"), [(298.79, 12.2), (-932573.0, 82860.0), (50.0, 40.0)])
def test_weights_of_a_softmax_stay_between_0_and_1(order: int, centre: float, upper: float, tmp_path: Path) -> None:
    for at, (a, b, c) in enumerate([(4.0, 8.0, 8.0), (8.2145393839815355, -3.8900435556287544, 4.5478198773174404)]):
        folder = claim(
            tmp_path / str(at), attends_to_itself(a, b, c), f"{centre}+0*x1", [-1.0], [1.0], upper=upper, order=order
        )
        assert refused(folder)


@pytest.mark.parametrize("status", ["refuted", "undecided"])
def test_an_error_that_cannot_be_bounded_confirms_nothing(status: str, tmp_path: Path) -> None:
    """T = 1 by two tokens of huge logits, or 0 by a normalisation whose rounding has no bound."""
    sharp = packed(
        F32, [[1.0], [1.0]], [[1.0], [1.0]], residual=False, W_E=[[3e8]], W_Q=[[1.1]], W_O=[[1.0]], W_R=[[1.0]]
    )
    large = packed(F32, **SILENT, norm="post", W_E=[[0.0]], b_E=[1e15], W_R=[[1.0]])
    for at, model in enumerate((sharp, large)):
        claimed = {"upper": math.inf, "eps": 1.0 if status == "refuted" else None, "lower": 1e30, "status": status}
        assert refused(claim(tmp_path / str(at), model, "1+0*x1", [0.0], [1.0], witness=(1.0,), **claimed))


def test_a_long_composition_is_not_refuted_by_words(tmp_path: Path) -> None:
    n = 6
    text = "exp(0.1*(" + "+".join(f"sin(3*x{j + 1})" for j in range(n)) + "))"
    a = superpose(text, Box([0.0] * n, [1.0] * n), 1e-6)
    false = replace(a.certificate, status="refuted", eps=1.0, lower=1e9, upper=1e10, witness=(0.5,) * n)
    save_model(a.model, tmp_path)
    write_proof(tmp_path, false)
    assert refused(tmp_path)


def test_products_that_underflow_are_amplified(tmp_path: Path) -> None:
    """Half of three times the smallest number is rounded to once or twice that number, then grows by 1e38."""
    least = 2.0**-149
    model = packed(F32, [[0.0], [0.0]], [[3 * least], [0.0]], residual=False, W_E=[[0.0]], W_O=[[1e38]], W_R=[[1e6]])
    real = 1.5 * least * float(np.float32(1e38)) * 1e6
    executed = float(model(tensor([[0.5]], F32)))
    assert abs(executed - real) > 0.04
    assert refused(claim(tmp_path, model, f"{real!r}+0*x1", [0.0], [1.0], upper=1e-3))


def test_a_gain_amplifies_what_a_normalisation_lost(tmp_path: Path) -> None:
    """Numbers of 1e-43 times 316 keep three digits; the gain makes them large."""
    gain, size = 3e38, 1e-43
    model = packed(F32, **SILENT, norm="post", W_E=[[1.0, -1.0]], gain_1=[gain, 1.0], W_R=[[1e6], [0.0]])
    x = float(np.float32(size))
    root = float(torch.tensor(x * x + 1e-5, dtype=F64).rsqrt())
    real = x * root * float(np.float32(gain)) * 1e6
    executed = float(model(torch.tensor([[x]], dtype=F32)))
    assert abs(executed - real) > 1e-2
    assert refused(claim(tmp_path, model, f"{real!r}+0*x1", [x], [x], upper=1e-3))


@pytest.mark.parametrize("size", [1.0, 1e10, 1e15])
def test_a_normalisation_of_one_number(size: float, tmp_path: Path) -> None:
    """x - mean vanishes in real arithmetic; x r - mean r need not."""
    model = packed(F32, **SILENT, norm="post", W_E=[[size]], W_R=[[1e20]])
    assert refused(claim(tmp_path, model, "0*x1", [0.9], [1.1], upper=1e-3))


SPIKE = "(1 - tanh(1e8*(x1 - 0.7313))**2)"


@pytest.mark.parametrize(
    "text",
    [
        SPIKE,
        f"{SPIKE}*x1",
        f"exp({SPIKE}) - 1",
        f"abs({SPIKE}*x1)",
        f"sqrt({SPIKE} + 1) - 1",
        f"max(0, {SPIKE} - 0.5)",
        f"{SPIKE}/(1 + x1**2)",
        f"0*log(x1 - 0.7313 + 1e-8*{SPIKE})",
        "1e-20/((x1 - 0.7313)**2 + 1e-20)",
        "exp(-(1e9*(x1 - 0.7313))**2)",
    ],
)
def test_a_spike_does_not_hide(text: str, tmp_path: Path) -> None:
    model = packed(F64, **SILENT, W_E=[[0.0]], W_R=[[0.0]])
    assert refused(claim(tmp_path, model, text, [0.5], [1.0], upper=0.2))


@pytest.mark.parametrize("text", ["sqrt(x1 - 0.5000000001)", "0*sqrt(-(x1*x1))", "0/(x1 - 0.75)", "0*log(x1 - 0.5)"])
def test_an_undefined_point_is_no_small_error(text: str, tmp_path: Path) -> None:
    model = packed(F64, **SILENT, W_E=[[0.0]], W_R=[[0.0]])
    assert refused(claim(tmp_path, model, text, [0.5], [1.0], upper=10.0))


@pytest.mark.parametrize("attention", ["topk", "hardmax"])
def test_other_attentions_are_refused_by_name(attention: str, tmp_path: Path) -> None:
    model = OneLayerTransformer.tokens((2,), (), d_model=2, attention=attention, top_k=1 if attention == "topk" else 0)
    folder = claim(tmp_path, model, "x1", [0.0, 0.0], [1.0, 1.0], upper=1e3)
    report = check(folder)
    assert not report.ok
    assert attention in report.reason


@pytest.mark.parametrize("dtype", [F32, torch.float16, torch.bfloat16])
def test_a_witness_that_no_forward_pass_can_be_given_refutes_nothing(dtype: torch.dtype, tmp_path: Path) -> None:
    """T = 0, and f is zero at the one number of the format in the box; beside it stands the witness, and f is steep."""
    held = float(torch.tensor(0.1, dtype=dtype))
    beside = held - 2.0**-40
    model = packed(dtype, **SILENT, W_E=[[0.0]], W_R=[[0.0]])
    false = {"status": "refuted", "eps": 0.5, "lower": 0.75, "upper": math.inf, "witness": (beside,)}
    assert refused(claim(tmp_path, model, f"{2.0**40!r}*(x1 - {held!r})", [beside], [held], **false))


@pytest.mark.parametrize(
    ("op", "number", "low", "upper"),
    [("scale", 2.0**130, 2.0**-110, 100.0), ("scale", 1e39, 1e-30, 1e3), ("scale", 2.0**-200, 2.0**100, 2.0**-110)],
)
def test_a_number_that_the_format_does_not_have_is_no_factor(
    op: str, number: float, low: float, upper: float, tmp_path: Path
) -> None:
    """As float32 they are infinite and zero, so T(x) = inf or 0; a product with a power of two is not always exact."""
    steps = Step(op, (0,), (1,), number), Step("sum", (1,), ())
    network = RecordedNetwork(NetworkProgram((1,), steps, {"format": (1,)}), {"format": torch.zeros(1)})
    at_low = float(network(torch.tensor([[low]])))
    assert not abs(at_low - number * low) <= upper
    plain = certify(network, f"{number!r}*x1", Box([low], [2 * low]), max_boxes=1)
    forged = replace(plain, status="proved", eps=upper, upper=upper, lower=0.0, witness=None)
    assert refused(written(tmp_path / "forged", network, forged))


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_errors_of_many_numbers_add_up_to_an_overflow(op: str, tmp_path: Path) -> None:
    """Of small real numbers, whose executed ones are not: each is a step of float32 at 2^116 too large."""
    large, step = 0.96875 * 2.0**116, 0.515625 * 2.0**92
    moves = [Step("shift", (at,), (1,), by) for at, by in enumerate([large, step, -large, -step])]
    many = Step("scale", (4,), (1,), 8e6), Step("arrange", (5,), (20000,), None, (0,) * 20000), Step(op, (6,), ())
    network = RecordedNetwork(NetworkProgram((1,), (*moves, *many), {"format": (1,)}), {"format": torch.zeros(1)})
    assert float(network(torch.tensor([[0.5]]))) == math.inf
    one = RecordedNetwork(NetworkProgram((1,), (Step("sum", (0,), ()),), {"format": (1,)}), {"format": torch.zeros(1)})
    plain = certify(one, "x1", Box([0.5], [0.5]), max_boxes=1)
    signed = {"function": "0", "weights_sha256": network_sha256(network), "lower": 0.0, "witness": None}
    forged = replace(plain, status="proved", eps=1e43, upper=1e43, **signed)
    assert refused(written(tmp_path / "forged", network, forged))


@pytest.mark.parametrize("dtype", [F64, F32])
def test_zeros_do_not_hide_a_quotient_without_a_value(dtype: torch.dtype, tmp_path: Path) -> None:
    """Features of linear attention underflow around one point alone: 0 / 0 there, and 0 times that."""
    place, steep, deep = 0.4375, 1e6, 2000.0
    memory = PlainMemory(tensor([[0.0, 0.0]], dtype), tensor([[1.0]], dtype))
    options: dict[str, Any] = {"attention": "linear", "feature": "elu", "residual": False, "dtype": dtype}
    model = OneLayerTransformer.packed((1,), (), [memory], d_model=1, **options).requires_grad_(False)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "memory" not in name:
                value.zero_()
    root = math.sqrt(2)
    queries = {"W_Q": [[steep * root, -steep * root]]}
    queries["b_Q"] = [(-steep * place - deep) * root, (steep * place - deep) * root]
    model.set_weights({name: tensor(v, dtype) for name, v in ({"W_E": [[1.0]], "b_R": [1.0]} | queries).items()})
    assert model(tensor([[place]], dtype)).isnan().all()
    assert model(tensor([[0.25]], dtype)).isfinite().all()
    assert refused(claim(tmp_path, model, "1+0*x", [0.0], [1.0], upper=1e-3))


def test_a_distance_that_real_arithmetic_does_not_confirm_is_refused(tmp_path: Path) -> None:
    """T is f: only the balls are wide, and nothing rounds that could excuse them."""
    model = packed(F64, **SILENT, W_E=[[1.0]], W_R=[[1.0]])
    false: dict[str, Any] = {"arithmetic": "real", "upper": 100.0, "lower": 5.0, "witness": (0.5,)}
    assert refused(claim(tmp_path, model, "(x1 + 1e40) - 1e40", [0.0], [1.0], **false))


@pytest.mark.parametrize(("lower", "verdict"), [(0.5, "accepted"), (0.5000001, "rejected")])
def test_a_point_is_known_however_much_cancels_there(lower: float, verdict: str, tmp_path: Path) -> None:
    """|T - f| = 0.5 in real arithmetic: balls of 128 bits lose f, and more bits do not."""
    model = packed(F64, **SILENT, W_E=[[1.0]], W_R=[[1.0]])
    stated: dict[str, Any] = {"arithmetic": "real", "upper": 100.0, "lower": lower, "witness": (0.5,)}
    report = check(claim(tmp_path, model, "(x1 + 1e40) - 1e40 + 0.5", [0.0], [1.0], **stated))
    assert report.verdict == verdict


def test_a_difference_beyond_all_floats_fills_no_ramp(tmp_path: Path) -> None:
    """(x + 1e308) 3e-309 is 0.6 to 0.63 in real arithmetic; in float64 it is infinity times the slope, clipped to 1."""
    one = tensor([[1.0]], F64)
    memory = PlainMemory(0 * one, 0 * one)
    options: dict[str, Any] = {"residual": True, "embedding": "piecewise", "ramps": 1}
    model = OneLayerTransformer.packed((1,), (), [memory], d_model=1, **options).requires_grad_(False)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.zero_()
    model.set_weights({"W_E": one, "W_R": one, "ramp_start": -1e308 * one, "ramp_slope": 3e-309 * one})
    real: dict[str, Any] = {"arithmetic": "real"}
    assert refused(claim(tmp_path / "full", model, "1", [1e308], [1.1e308], upper=0.3, **real))
    assert check(claim(tmp_path / "part", model, "0.6", [1e308], [1.1e308], upper=0.05, **real)).ok
