"""Every Taylor operation, by one table: executed values lie inside, every keyword is modelled or refused by name."""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from operation_rows import REFUSED, ROWS
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.language import analytic
from onelayer.language.facets import facets
from onelayer.language.knots import Facets, Spline
from onelayer.language.spline import spline
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import call, handler_of, supported

DOUBLE = torch.float64
EXECUTIONS = [torch.float64, torch.float32]
CONSTANTS = {
    "W": torch.tensor([[0.3, -1.1, 0.7, 2.0], [1.5, 0.1, -0.4, 0.2], [-0.6, 0.9, 1.3, -0.8]], dtype=DOUBLE),
    "V": torch.tensor([0.4, 1.3, 0.1], dtype=DOUBLE),
    "Q": torch.tensor([[0.5, -0.2, 1.1], [0.7, 0.3, -0.9]], dtype=DOUBLE),
}
BOOLS = {
    "mask": torch.tensor([[True, False, False], [False, True, False]]),
    "square": torch.tensor([[True, False], [True, True]]),
}
INSIDE = ("float",)  # only where float32 is executed is a cast to it the identity


def mha(constants: dict[str, Tensor]) -> Callable[..., Any]:
    """Multi-head attention over the two tokens of x, (B, 2, 3), with one head."""
    weight = torch.cat([constants["W"][:, :3], constants["W"][:, 1:], constants["W"][:, :3] * 0.3])
    parts = weight.chunk(3)
    bias = torch.arange(9, dtype=weight.dtype) / 8

    def call(x: Any, separate: bool = False, weights: bool = False, **options: Any) -> Any:
        tokens = x.transpose(0, 1)
        fixed = {"bias_k": None, "bias_v": None, "add_zero_attn": False, "dropout_p": 0.0, "training": False} | options
        if separate:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            fixed |= {"use_separate_proj_weight": True, **dict(zip(names, parts, strict=True))}
        out = F.multi_head_attention_forward(
            tokens, tokens, tokens, 3, 1, None if separate else weight, bias,
            out_proj_weight=weight[:3], out_proj_bias=constants["V"], **fixed,
        )  # fmt: skip
        return out[1] if weights else out[0].transpose(0, 1)

    return call


MESH = Facets(2, [-9, -9, 9, -9, 0, 9, 0.5, 0.7], [1, 2, -3, 5], [0, 1, 3, 1, 2, 3, 2, 0, 3])
TABLE = Spline([3, 1], [[-4.0, -2, -1, 0, 0.5, 2, 3, 4, 5], [-1.0, 0, 0.7, 1.5, 4]], np.sin(np.arange(15)))


def evaluate(text: str, x: Any) -> Any:
    constants = {name: value.to(x.dtype) for name, value in CONSTANTS.items()}
    names = {
        "torch": torch,
        "F": F,
        "A": analytic,
        "table": partial(spline, TABLE),
        "mesh": partial(facets, MESH),
        "operator": operator,
        "x": x,
        "mha": mha(constants),
        **constants,
        **BOOLS,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, names)


def points_in(lower: Tensor, upper: Tensor, count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """(count, B, 2, 3): corners and random points of the boxes that the executing type holds."""
    share = torch.rand(count, *lower.shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    share[0], share[1] = 0, 1
    points = (lower + share * (upper - lower)).clamp(lower, upper).to(dtype)
    inside = ((points.double() >= lower) & (points.double() <= upper)).flatten(1).all(1)
    return points[inside]


def lies(text: str, lower: Tensor, upper: Tensor, order: int, execution: torch.dtype | None) -> tuple[str | None, int]:
    """The first value outside a finite enclosure, if any, and how many entries were decided."""
    result = evaluate(text, variables(lower, upper, order, execution))
    low, high = result.range()
    finite = torch.isfinite(low) & torch.isfinite(high)
    for x in points_in(lower, upper, 4, execution or DOUBLE):
        value = evaluate(text, x).double()
        if tuple(value.shape) != tuple(low.shape):
            return f"{text}: shape {tuple(value.shape)}, enclosed {tuple(low.shape)}", 0
        slack = 0.0 if execution else 1e-13 * (1 + value.abs())  # torch itself rounds
        outside = finite & ~((low - slack <= value) & (value <= high + slack))
        if bool(outside.any()):
            return f"{text}: {value[outside][0]!r} outside [{low[outside][0]!r}, {high[outside][0]!r}]", 0
    return None, int(finite.sum())


def of_torch() -> list[str]:
    """Operations of torch: the difference of two networks is one of this package's, with tests beside its proofs."""
    return [name for name in supported() if handler_of(name).__module__.startswith("onelayer.taylor.")]


def boxes(width: float, count: int = 2) -> tuple[Tensor, Tensor]:
    lower = 0.15 + 1.2 * torch.rand(count, 2, 3, generator=torch.Generator().manual_seed(8), dtype=DOUBLE)
    lower = lower.float().double()
    return lower, lower + width


@pytest.mark.parametrize("name", of_torch())
def test_every_operation_has_a_row_that_uses_every_keyword(name: str) -> None:
    assert name in ROWS
    used: set[str] = set()
    for text in (*ROWS[name], *REFUSED.get(name, ())):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                used |= {keyword.arg for keyword in node.keywords if keyword.arg}
    parameters = list(inspect.signature(handler_of(name)).parameters.values())[1:]
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters)
    wanted = {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}
    assert wanted - used - GIVEN.get(name, set()) == set()


GIVEN = {  # positions, and what the helper of the rows names itself
    "getitem": {"index"},
    "multi_head_attention_forward": {
        *("key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias"),
        *("out_proj_weight", "out_proj_bias", "use_separate_proj_weight"),
        *("q_proj_weight", "k_proj_weight", "v_proj_weight"),
    },
}


@pytest.mark.parametrize("name", of_torch())
def test_every_argument_of_torch_is_declared(name: str) -> None:
    """All names in the schemas of the operator, apart from the result's buffers, dimension names and spellings."""
    declared = inspect.signature(handler_of(name)).parameters
    first = next(iter(declared))
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        kinds = [str(argument.type) for argument in schema.arguments]
        if schema.arguments[0].type.kind() != "TensorType" or any("Dimname" in kind for kind in kinds):
            continue
        text = str(schema)
        given = {a.name for a in schema.arguments if not a.is_out and f"!) {a.name}" not in text}
        spelled = given - {"self", "input", first, "end", "step", "generator", "layout", "pin_memory"}
        assert spelled - set(declared) - OTHER_SPELLINGS.get(name, set()) == set(), schema
    python = getattr(F, name, None)
    if inspect.isfunction(python):
        given = {p.name for p in inspect.signature(python).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD}
        assert given - {"input"} - set(declared) == set()


@pytest.mark.parametrize("name", supported())
def test_an_unknown_argument_is_refused_by_name(name: str) -> None:
    x = variables(*boxes(0.1), 2)
    for given in ((), (x,), (x, x)):
        with pytest.raises(UnsupportedOperation) as caught:
            call(name, *given, nonsense=1)
        assert "\n" not in str(caught.value)
        assert "nonsense" in str(caught.value)


OTHER_SPELLINGS = {  # names that no call in Python can use
    "einsum": {"tensors", "path", "a"},
    "elu": {"scale", "input_scale"},
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), frozenset({"data", "batch_sizes"})),  # packed
    "split": {"split_sizes"},
    "to": {"other"},
}


TRIALS = [
    (0.0, 1, torch.float32),
    (0.0, 2, torch.float64),
    (2.0**-20, 3, torch.float32),
    (2.0**-6, 2, torch.float64),
    (2.0**-6, 4, torch.float32),
    (2.0**-5, 3, None),
]


@pytest.mark.parametrize("name", ROWS)
def test_executed_values_lie_inside(name: str) -> None:
    """On points and on small boxes, at several orders, in both formats and in real arithmetic."""
    for text in ROWS[name]:
        decided = 0
        for width, order, execution in TRIALS:
            if name in INSIDE and execution != torch.float32:
                continue
            lie, count = lies(text, *boxes(width), order, execution)
            assert lie is None, (lie, width, order, execution)
            decided += count
        assert decided > 0


OF_ONE = re.compile(r"((?:torch|F|A)\.\w+)\((?:input=)?[^,()]*\bx\b[^,()]*(?:, inplace=False)?\)")
FOUND = [OF_ONE.fullmatch(text) for row in ROWS.values() for text in row]
# Functions of one argument, of x itself: a number beside it is rounded too.
ALONE = sorted({f"{match[1]}(x)" for match in FOUND if match})


@pytest.mark.parametrize("text", ALONE)
@pytest.mark.parametrize("execution", EXECUTIONS, ids=str)
def test_the_rounding_of_an_operation_alone_is_enclosed(text: str, execution: torch.dtype) -> None:
    """Nothing else is rounded at points of the format: no other remainder hides that of the operation."""
    chance = torch.Generator().manual_seed(3)
    size = 10 ** (4.5 * torch.rand(512, 1, generator=chance, dtype=DOUBLE) - 3)
    points = size * torch.randn(512, 3, generator=chance, dtype=DOUBLE)
    points = torch.cat([points, points.abs(), points.abs() / (1 + points.abs())]).to(execution)
    low, high = evaluate(text, variables(points, points, 1, execution)).range()
    finite = torch.isfinite(low) & torch.isfinite(high)
    value = evaluate(text, points).double()
    assert bool((~finite | ((low <= value) & (value <= high))).all())
    assert bool(finite.any())


SCALES = {
    torch.float64: (1e-320, 1e-200, 1e-150, 1e-9, 1e9, 1e100, 1e160, 1e307),
    torch.float32: (1e-44, 1e-38, 1e-25, 1e-9, 1e9, 1e18, 1e20, 1e37),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("execution", EXECUTIONS, ids=str)
def test_overflow_and_underflow_are_never_missed(name: str, execution: torch.dtype) -> None:
    """Where an executed value is no number, or lost its digits, nothing narrower is claimed."""
    if name in INSIDE and execution != torch.float32:
        return
    lower, upper = boxes(2.0**-12, count=len(SCALES[execution]))
    scale = torch.tensor(SCALES[execution], dtype=DOUBLE)[:, None, None]
    columns = torch.tensor([1e-25, 1e22, 1.0], dtype=DOUBLE).expand(len(scale), 2, 3)
    for text in ROWS[name]:
        for factor in (scale.expand(-1, 2, 3), columns, -scale.expand(-1, 2, 3)):
            ends = torch.stack([lower * factor, upper * factor]).to(execution).double().sort(0).values
            lie, _ = lies(text, ends[0], ends[1], 1, execution)
            assert lie is None, lie


@pytest.mark.parametrize("name", ROWS)
def test_what_is_undefined_stays_undecided(name: str) -> None:
    """Among three boxes one is no number: where torch then returns none, nothing is claimed, and the others hold."""
    lower, upper = boxes(2.0**-8, count=3)
    for execution in (torch.float32, None):
        if name in INSIDE and execution is None:
            continue
        poisoned = lower.clone()
        poisoned[1] = torch.nan
        for text in ROWS[name]:
            found = evaluate(text, variables(poisoned, poisoned + (upper - lower), 2, execution)).plain()
            value = evaluate(text, poisoned.to(execution or DOUBLE))
            decided = found.decided() & torch.isfinite(found.range()[0])
            assert not bool((decided & torch.isnan(value)).any()), text
            clean = evaluate(text, variables(lower, upper, 2, execution)).plain()
            if len(clean.shape) and clean.shape[0] == 3 and "iter(x)" not in text and "t().mT" not in text:
                assert torch.equal(found.decided()[[0, 2]], clean.decided()[[0, 2]]), text


PENDING = {
    "a softmax": "torch.softmax({}, -1)",
    "a softmax whose logits are constant": "torch.softmax(0 * {}, 1)",
    "a strongest key": "torch.softmax(torch.cat([40 + {}[..., :1], {}[..., 1:]], -1), -1)",
}


@pytest.mark.parametrize("pending", PENDING)
@pytest.mark.parametrize("name", ROWS)
def test_pending_denominators_are_carried(name: str, pending: str) -> None:
    weights = PENDING[pending].replace("{}", "x")
    for text in ROWS[name]:
        lie, _ = lies(f"(lambda x: {text})({weights})", *boxes(2.0**-7), 1, torch.float32)
        assert lie is None, lie
    product = f"{weights} * ({ROWS[name][0]})"
    try:
        evaluate(product, boxes(0.0)[0])
    except RuntimeError:
        return  # shapes that do not meet
    lie, _ = lies(product, *boxes(2.0**-7), 1, torch.float32)
    assert lie is None, lie


@pytest.mark.parametrize("name", ROWS)
def test_a_bounded_spike_hides_nothing(name: str) -> None:
    """S(x) (g(x) - g(c)) with S = 1 - tanh(1e8 (x - c))^2, which is 1 at c and 0 at every sample."""
    lower, _ = boxes(0.0, count=2)
    center = lower.clone()
    for text in ROWS[name]:
        there = evaluate(text, center.float()).double()
        if not bool(torch.isfinite(there).all()):
            continue
        for width in (2.0**-30, 0.25):
            x = variables(center - width, center + width, 1, torch.float32)
            spike = 1 - torch.tanh(1e8 * (x[:, 0, 0] - center[:, 0, 0].float())) ** 2
            inner = evaluate(text, x) - there
            if len(inner.shape) == 0 or inner.shape[0] != 2:
                continue
            low, high = (spike.reshape(2, *[1] * (inner.ndim - 1)) * inner).range()
            finite = torch.isfinite(low) & torch.isfinite(high)
            assert bool((~finite | ((low <= 0) & (high >= 0))).all()), (text, width)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("execution", EXECUTIONS, ids=str)
def test_what_is_not_modelled_is_refused_by_name(name: str, execution: torch.dtype) -> None:
    for text in REFUSED[name]:
        with pytest.raises(UnsupportedOperation) as caught:
            evaluate(text, variables(*boxes(0.1), 2, execution))
        assert "\n" not in str(caught.value), text
        assert caught.value.operation, text


def test_casts_to_float32_are_refused_where_they_round() -> None:
    for execution in (None, torch.float64):
        x = variables(*boxes(0.1), 2, execution)
        for text in (
            "x.float()",
            "x.to(torch.float32)",
            "x.sum(-1, dtype=torch.float32)",
            "torch.softmax(x, 1, dtype=torch.float32)",
        ):
            with pytest.raises(UnsupportedOperation, match="cast to float32"):
                evaluate(text, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_the_default_type_changes_nothing(dtype: torch.dtype) -> None:
    def enclosures() -> list[TaylorModel]:
        found = []
        for execution in (torch.float32, None):
            x = variables(*boxes(0.01, count=1), 1, execution)
            texts = [text for name, row in ROWS.items() for text in row if name not in INSIDE and "tensor(" not in text]
            found += [evaluate(text, x).plain() for text in texts]
        return found

    before = enclosures()
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        after = enclosures()
    finally:
        torch.set_default_dtype(old)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.coef, other.coef) or bool(torch.isnan(one.coef).any())
        assert torch.equal(one.rem.nan_to_num(math.inf), other.rem.nan_to_num(math.inf))
