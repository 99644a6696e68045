"""Natural intervals beside Taylor models: they hold, they save logarithms and roots, and a wrong one is caught."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.language.conjugates import cut
from onelayer.language.formula import Formula, parse
from onelayer.language.intervals import Image
from onelayer.language.operations import OPERATIONS
from onelayer.taylor import variables
from onelayer.taylor.hull import evaluate_hulled

UNARY = [row.name for row in OPERATIONS.values() if row.arity == 1 and row.name != "neg"]


def random_text(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(["x1", "x2", f"{chance.uniform(-2, 2):.2g}", "pi"])
    inner = [random_text(chance, depth - 1) for _ in range(2)]
    return chance.choice(
        [
            f"{chance.choice(UNARY)}({inner[0]})",
            f"({inner[0]}) {chance.choice('+-*/')} ({inner[1]})",
            f"({inner[0]})**{chance.choice([2, 3, 4, -1, -2])}",
            f"{chance.choice(['min', 'max'])}({inner[0]}, {inner[1]})",
        ]
    )


def outside(formula: Formula, low: Tensor, high: Tensor, seed: int) -> tuple[int, int]:
    """How many of the sampled values leave the range of the hulled model, and how many were looked at."""
    order = 1 + seed % 4
    result = evaluate_hulled(formula, variables(low, high, order), low, high)
    if not hasattr(result, "range"):
        return 0, 0
    lower, upper = result.range()
    chance = torch.Generator().manual_seed(seed)
    share = torch.rand(200, *low.shape, generator=chance, dtype=torch.float64)
    share[:4] = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)[:, None]
    values = formula((low + share * (high - low)).clamp(low, high))
    seen = torch.isfinite(values)
    slack = 1e-12 * (1 + values.abs())
    wrong = seen & ((values < lower - slack) | (values > upper + slack))
    return int(wrong.sum()), int(seen.sum())


def campaign() -> tuple[int, int]:
    wrong = looked = 0
    for seed in range(250):
        chance = random.Random(seed)
        try:
            formula = parse(random_text(chance, 3), 2)
        except OnelayerError:
            continue
        middle = torch.tensor([[chance.uniform(-2, 2) for _ in range(2)] for _ in range(8)], dtype=torch.float64)
        radius = torch.tensor([[10 ** chance.uniform(-3, 0.5)] for _ in range(8)], dtype=torch.float64)
        bad, seen = outside(formula, middle - radius, middle + radius, seed)
        wrong, looked = wrong + bad, looked + seen
    return wrong, looked


def test_ranges_hold_for_random_formulas() -> None:
    wrong, looked = campaign()
    assert wrong == 0
    assert looked > 100_000


@pytest.mark.parametrize(
    ("op", "lie"),
    [
        ("mul", lambda a, b: (a[0] * b[0], a[1] * b[1])),
        ("div", lambda a, b: (a[0] / b[1], a[1] / b[0])),
        ("abs", lambda a: (a[0].abs(), a[1].abs())),
    ],
)
def test_a_wrong_rule_is_caught(op: str, lie: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, op, replace(OPERATIONS[op], image=lie))
    assert campaign()[0] > 0


def test_signs_survive_wide_boxes() -> None:
    """x2 / x1 stays positive on a box where its Taylor model does not."""
    low = torch.tensor([[0.056, 100.0]], dtype=torch.float64)
    high = torch.tensor([[0.0625, 3218.0]], dtype=torch.float64)
    formula = parse("1/log(x2/x1)", 2)
    assert not torch.isfinite(formula(variables(low, high, 2)).range()[0]).all()
    lower, upper = evaluate_hulled(formula, variables(low, high, 2), low, high).range()
    assert 0 < float(lower) < float(upper) < 1


def test_root_at_zero_is_bounded() -> None:
    low, high = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 1e-6, dtype=torch.float64)
    lower, upper = evaluate_hulled(parse("sqrt(x)", 1), variables(low, high, 3), low, high).range()
    assert -1e-3 <= float(lower) <= 0
    assert 1e-3 <= float(upper) <= 2e-3


def test_ends_in_the_wrong_order_are_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that returns them says that nothing is known; their half distance as a radius is negative."""
    low, high = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    turned = replace(OPERATIONS["sinrel"], image=lambda x: (torch.full_like(x[0], 3.0), torch.full_like(x[0], 2.0)))
    monkeypatch.setitem(OPERATIONS, "sinrel", turned)
    lower, upper = evaluate_hulled(parse("sinrel(x)", 1), variables(low, high, 2), low, high).range()
    assert float(lower) <= 0.8415
    assert float(upper) >= 1.0
    ends = [(torch.tensor([a]), torch.tensor([b])) for a, b in ((0.0, 1.0), (2.0, 3.0))]
    assert [float(end) for end in cut(*ends)] == [0.0, 1.0]
