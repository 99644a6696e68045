"""Long formulas level by level: the same function as node by node, and what a certificate states is what is proved."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch

from onelayer.box import Box
from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula, parse
from onelayer.language.operations import OPERATIONS
from onelayer.proof import error as error_module
from onelayer.proof.certify import certify
from onelayer.recording import target
from onelayer.recording.recorder import record
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.levels import Levels

ENDS = torch.tensor([[0.3, 1.2], [0.35, 1.25]], dtype=torch.float64)
TEXTS = [
    "sin(x1)*2 + sin(x2)*3 + sin(x1*x2) - 1/3",
    "x1; 0.5; -2; pi*x2; x1",
    "exp(x1 - x2) / (1 + x1**2) + hypot(x1, x2) - max(x1, 0.31)",
    "min(x1, x2, 2) + x2**-3 + sqrt(x1 + 0.25) + abs(x1 - 0.32)",
    "(((x1 + 1)*2 + x2)*3 + x1)*4 + log(x2)*log(x1 + 2) + atan(x2/x1)",
    "e**x1 + 2*pi - 2/3*x2 + (-0.5)*x1",
    "x1 + x2 + 3 + x1*x2 + 0.25; (x1 + x2 + 3)**2; 1 + 2 + 3 + 0*x1; sin(x1 + x2 + x1*x2 + 1) + (x1 + x2) + 5",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_enclosure_as_node_by_node(text: str) -> None:
    formula = parse(text, 2)
    low, high = ENDS[:1].expand(3, 2), ENDS[1:].expand(3, 2)
    x = variables(low, high, 4)
    one = Levels(formula)(x)
    other = torch.stack(evaluate(formula.nodes, formula.outputs, x), dim=-1).reshape(one.shape)
    for ends, wanted in zip(one.range(), other.range(), strict=True):  # degrees depend on what stands together
        torch.testing.assert_close(ends, wanted, rtol=1e-8, atol=1e-8)
    shares = torch.rand(3, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values = formula(low[:, None] + shares * (high - low)[:, None])
    lower, upper = (side[:, None] for side in one.range())
    assert bool(((values >= lower - 1e-13) & (values <= upper + 1e-13)).all())


def test_every_operation_has_its_place() -> None:
    """All rows of the table in one formula, with a number in each place of those that take two."""
    rng, x, parts = random.Random(0), ["x1", "x2", "0.75"], []
    for name, row in OPERATIONS.items():
        if row.infix is None and name.isidentifier() and row.arity <= 2:
            for _ in range(3):
                args = [rng.choice(x) for _ in range(row.arity)]
                args[rng.randrange(row.arity)] = rng.choice(["x1", "x2/2"])
                parts.append(f"{name}({', '.join(args)})")
    kept = [part for part in parts if _parses(part)]
    assert len(kept) > 40
    for part in kept:
        formula = parse(part, 2)
        model = variables(ENDS[:1], ENDS[1:], 3)
        one, (other,) = Levels(formula)(model), evaluate(formula.nodes, formula.outputs, model)
        for ends, wanted in zip(one.range(), other.range(), strict=True):
            torch.testing.assert_close(ends, wanted, rtol=1e-12, atol=1e-13, equal_nan=True)


def _parses(text: str) -> bool:
    try:
        parse(text, 2)
    except Exception:
        return False
    return True


def test_what_is_undefined_stays_undecided() -> None:
    """A hole beside a thousand sound terms, and one that a factor of zero would hide."""
    terms = " + ".join(f"sin(x1 + {k})" for k in range(50))
    for hole in ("log(x2 - 1.21)", "0*(1/(x1 - 0.32))", "tanh(1/(x1 - 0.32))"):
        y = Levels(parse(f"{terms} + {hole}", 2))(variables(ENDS[:1], ENDS[1:], 3))
        assert not bool(torch.isfinite(y.range()[1]).any()), hole


def test_a_long_function_is_certified_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that hides a spike from enclosures, too narrow for any sample: its formula has it, and that is proved."""
    monkeypatch.setattr(error_module, "MAX_NODES", 50)
    steps = torch.arange(1, 31, dtype=torch.float64)

    def long(x: Any) -> Any:
        return torch.sin(x[..., :1] * steps).sum(-1) / 90

    def spiked(x: Any) -> Any:
        spike = 1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2
        return long(x) + (0.0 if isinstance(x, TaylorModel) else 1.0) * spike

    formula = record(spiked, (1,))
    assert isinstance(formula, Formula)
    assert len(formula.nodes) > 50
    box = Box([0.73], [0.735])
    assert certify(lambda x: 0.0 * x[..., 0], spiked, box, 0.5, max_boxes=8, order=1).status != "proved"
    assert certify(lambda x: 0.0 * x[..., 0], long, box, 0.5, max_boxes=8, order=1).status == "proved"


def test_a_function_too_long_to_record_is_an_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "record", partial(record, limit=10))
    found = certify(lambda x: 0.0 * x[..., 0], lambda x: torch.sin(x).sum(-1), Box([0.0] * 8, [0.1] * 8), 1.0, order=1)
    assert found.function.startswith("not recorded")
    assert "too many operations" in found.assumptions[-1]
