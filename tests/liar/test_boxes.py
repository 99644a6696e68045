"""Enclosures on many boxes at once: the spans are right, every operation is drawn, and planted faults are caught."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from flint import arb, ctx

import onelayer as ol
from liar import calls, formulas, run
from liar.expressions import PRECISIONS, RULES, Unclear, Undefined, call, exact, read_values, text, var
from liar.faults import constants_exact, products_exact, tiny_lost, undefined_is_bounded
from liar.spans import IMAGES, spans
from onelayer.language.formula import parse
from onelayer.language.operations import OPERATIONS
from onelayer.taylor import arithmetic, compiled, compose, elementary, kernels, piecewise, registry, variables

Patch = pytest.MonkeyPatch
BUDGET = 80  # cases in which a fault has to be found


def test_spans_hold_what_balls_say_and_are_thin() -> None:
    rng, known, thin = Random(5), 0, 0
    for _ in range(500):
        expression = formulas.tree(rng, 2, rng.randint(1, 4))
        points = torch.tensor([[rng.uniform(-3, 3), rng.uniform(0, 2)] for _ in range(6)] + [[0.0, 1.0], [0.5, -0.5]])
        ends = zip(*spans(expression, points.double()), strict=True)
        for point, (low, high) in zip(points.double().tolist(), ends, strict=True):
            try:
                value = exact(expression, point)
            except Undefined:
                assert low.isnan(), text(expression)
                continue
            except Unclear:
                continue
            if not low.isnan():
                assert arb(float(low)) <= value <= arb(float(high)), text(expression)
                known += 1
                thin += float(high - low) <= 1e-12 * abs(float(value.mid()))
    assert known > 2500
    assert thin > 0.9 * known


def test_every_operation_of_the_language_is_drawn() -> None:
    rng, drawn = Random(6), set[str]()
    for _ in range(1500):
        try:
            drawn |= {node.op for node in parse(text(formulas.tree(rng, 2, 3)), 2).nodes}
        except ol.OnelayerError:
            continue
    assert set(OPERATIONS) <= drawn
    assert set(RULES) == set(IMAGES)


def test_calls_that_come_seldom_are_those_that_are_refused() -> None:
    x = torch.tensor([[0.1, 0.3, -0.2]], dtype=torch.float64)
    for table in (calls.POINTWISE, calls.ROWS, calls.ENDS):
        for name, code in table.items():
            try:
                code(variables(x, x + 0.1, 2, execution=torch.float64))
            except (ol.OnelayerError, TypeError):
                assert name in calls.REFUSED
            else:
                assert name not in calls.REFUSED


@pytest.mark.parametrize("attack", ["boxes", "enclosures"])
def test_a_million_enclosures_hold(attack: str) -> None:
    """`make liar` makes a hundred times as many in a minute."""
    report = run.many_cases(31, range(40), attack)
    assert report.clean, report.findings
    assert report.count["enclosures"] > 1_000_000


def terms_dropped(patch: Patch) -> None:
    """What a product has beyond the order is forgotten."""
    patch.setattr(arithmetic, "dropped", lambda left, right, degree: 0.0)


def tail_halved(patch: Patch) -> None:
    tail = elementary.Elementary.tail
    patch.setattr(elementary.Elementary, "tail", lambda self, *args: tail(self, *args) / 4)


def kinks_straightened(patch: Patch) -> None:
    original = piecewise._across

    def planted(y: Any, lower: Any, upper: Any) -> Any:
        kink = original(y, lower, upper)
        return kink.with_(kink.coef, y.rem)

    patch.setattr(piecewise, "_across", planted)


def centre_forgotten(patch: Patch) -> None:
    """A series is bounded on the values of its argument, whether they reach its centre or not."""
    for name in ("_of_affine", "_of_polynomial"):
        original = getattr(compose, name)
        patch.setattr(compose, name, lambda g, x, low, high, original=original: original(g, x, *x.range()))


def wrong_image(patch: Patch) -> None:
    """The sine is thought to lie within a half."""
    sine = elementary.Elementary(
        "sin", elementary.SIN.series, elementary.SIN.bound, lambda ends: (ends[0] * 0 - 0.5, ends[0] * 0 + 0.5)
    )
    patch.setitem(registry._HANDLERS, "sin", (lambda x: compose.compose(sine, x), False))


def kernel_of_products(patch: Patch) -> None:
    """The compiled product forgets a run of its table."""
    original = compiled.product
    patch.setattr(compiled, "product", lambda runs, *rest: original(runs[:-1], *rest))


def kernel_of_sums(patch: Patch) -> None:
    """The compiled sum forgets the remainder of its second term."""
    original = compiled.add

    def planted(rows_a: Any, rows_b: Any, blocks: Any, a: Any, b: Any, rem_a: Any, rem_b: Any, *rest: Any) -> None:
        original(rows_a, rows_b, blocks, a, b, rem_a, 0 * rem_b, *rest)

    patch.setattr(compiled, "add", planted)


PLANTS: list[Callable[[Patch], None]] = [
    tiny_lost, undefined_is_bounded, products_exact, constants_exact, terms_dropped, tail_halved,
    kinks_straightened, centre_forgotten, wrong_image, kernel_of_products, kernel_of_sums,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    in_kernels = plant in (kernel_of_products, kernel_of_sums)
    if in_kernels and not kernels.INSTALLED:
        pytest.skip("numba is not installed")
    plant(monkeypatch)
    with kernels.backend(in_kernels):
        for number in range(BUDGET):
            found = {finding["what"] for finding in run.many_cases(0, [number], "boxes").findings}
            assert "crash" not in found  # the plant itself is broken
            if "lie" in found:
                return
    pytest.fail(f"not caught in {BUDGET} cases")


def test_a_quotient_is_read_as_its_limit_and_a_pole_is_not() -> None:
    """x^2 / tanh(x) is 0 at 0, as the package says of formula text; x / x is nothing there."""
    x = var(0)
    with ctx.workprec(PRECISIONS[0]):
        assert abs(read_values(x * x / call("tanh", x), [0.0])) < arb(2) ** -150
        for hole in (x / x, x * x / x, 1.0 / x):
            with pytest.raises(Undefined):
                read_values(hole, [0.0])
