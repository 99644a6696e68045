"""The suite can fail: each unsoundness planted here is caught by the same checks that pass without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import attention_layer, bilinear, lookup_head, network, order_statistics
from enclosure import Tally, enclosed, executed
from reference_arithmetic import ExecutedLib
from torch import Tensor

from onelayer import taylor
from onelayer.taylor import (
    arithmetic,
    attention,
    basis,
    compose,
    contraction,
    core,
    elementary,
    functions,
    kernels,
    normalize,
    piecewise,
    registry,
    rounding,
    subdivide,
)

Plant = Callable[[pytest.MonkeyPatch], None]
MODULES = (arithmetic, attention, compose, contraction, core, elementary, functions, normalize, piecewise, subdivide)


def everywhere(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Replace a name in every module that imported it."""
    for module in (*MODULES, rounding):
        if hasattr(module, name):
            patch.setattr(module, name, value)


def polynomials(x: Any, lib: Any) -> Any:
    u, v = x[..., 0], x[..., 1]
    w = lib.sin(u) * lib.exp(v)
    return lib.stack([u * v * u, w * w, (u - v) * (u * v + 1.0)], -1)


def quotients(x: Any, lib: Any) -> Any:
    u, v = x[..., 0], x[..., 1]
    return lib.stack([lib.exp(u) / (v + 1.3), 1.0 / (u * u + v * v + 0.1)], -1)


def roots(x: Any, lib: Any) -> Any:
    return lib.stack([lib.sqrt(x[..., 0] + 1.001), lib.log(lib.abs(x[..., 1]) + 0.01)], -1)


def domains(x: Any, lib: Any) -> Any:
    return lib.stack([lib.log(x[..., 0]), lib.sqrt(x[..., 1])], -1)


def waves(x: Any, lib: Any) -> Any:
    return lib.stack([lib.sin(x[..., 0] * 40.0), lib.tanh(x[..., 1] * 30.0)], -1)


def halves(x: Any, lib: Any) -> Any:
    return lib.stack([x[..., 0] ** 2 - x[..., 0], x[..., 0] ** 4 * x[..., 1] ** 2 - 0.3], -1)


def single(x: Any, lib: Any) -> Any:
    """One variable only: nothing but the tail of the series makes the remainder."""
    return lib.stack([lib.sin(x[..., 0] * 8.0), lib.exp(x[..., 0] * 5.0)], -1)


def steep(x: Any, lib: Any) -> Any:
    return lib.softmax(lib.stack([x[..., 0] * 500.0 + 125.0, x[..., 1] * 0.1], -1))


def tiny_scale(x: Any, lib: Any) -> Any:
    return lib.stack([lib.sqrt((x[..., 0] + 1.5) * scale) for scale in (1e-55, 1e-35)], -1)


RNG = np.random.default_rng
SUITE: dict[str, Any] = {
    "polynomials": polynomials,
    "quotients": quotients,
    "roots": roots,
    "domains": domains,
    "waves": waves,
    "halves": halves,
    "single": single,
    "tiny scale": tiny_scale,
    "steep": steep,
    "head": lookup_head(RNG(1), 2, 4.0),
    "sharp head": lookup_head(RNG(2), 2, 200.0),
    "attention": attention_layer(RNG(3), 2, 2, 2.0),
    "network": network(RNG(4), 2, 6, "relu"),
    "order": order_statistics(RNG(5), 2),
    "bilinear": bilinear(RNG(6), 2),
}


def run_suite(names: tuple[str, ...]) -> Tally:
    """The named cases on boxes of sizes 1e-9 to 1, and one execution in float32."""
    tally = Tally()
    for name in names:
        for width in (1e-9, 1e-2, 0.3, 1.0):
            lower = torch.from_numpy(RNG(9).uniform(-1, 1, size=(6, 2)))
            for order in (2, 5):
                tally += enclosed(SUITE[name], lower, lower + width, order, count=9)
            tally += executed(SUITE[name], ExecutedLib(torch.float32), torch.float32, lower, lower + width, 3, count=12)
    return tally


def drop_cross_terms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        arithmetic,
        "product_remainder",
        lambda a, b, degree, terms: arithmetic.dropped(a.norms(), b.norms(), degree) + a.rem * 0,
    )


def drop_truncated_terms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arithmetic, "dropped", lambda left, right, degree: 0.0)


def wrong_lagrange_factor(patch: pytest.MonkeyPatch) -> None:
    tail = elementary.Elementary.tail
    patch.setattr(elementary.Elementary, "tail", lambda self, *args: tail(self, *args) / 4)


def epsilon_in_denominator(patch: pytest.MonkeyPatch) -> None:
    original = arithmetic._quotient_remainder

    def planted(a: Any, b: Any, result: Any) -> Tensor:
        low, high = b.range()
        gap = torch.maximum(low, -high)
        return original(a, b, result) * gap / (gap + 1.0)

    patch.setattr(arithmetic, "_quotient_remainder", planted)


def ignore_rounding(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "gamma", lambda n: 0.0)
    everywhere(patch, "UNIT", 0.0)
    everywhere(patch, "ELEMENTARY", 0.0)


def relu_is_linear(patch: pytest.MonkeyPatch) -> None:
    original = piecewise._across

    def planted(y: Any, lower: Tensor, upper: Tensor) -> Any:
        kink = original(y, lower, upper)
        return kink.with_(kink.coef, y.rem)

    patch.setattr(piecewise, "_across", planted)


def nan_is_proved(patch: pytest.MonkeyPatch) -> None:
    original = rounding.inflate
    everywhere(patch, "inflate", lambda radius: original(radius).nan_to_num(0.0, 0.0))
    patch.setattr(
        compose,
        "within_image",
        lambda x, low, high, defined: x.with_(x.coef.nan_to_num(0.0, 0.0, 0.0), x.rem.nan_to_num(0.0, 0.0)),
    )


def drop_softmax_remainder(patch: pytest.MonkeyPatch) -> None:
    original = attention.compose

    def planted(g: Any, x: Any) -> Any:
        result = original(g, x)
        return result.with_(result.coef, result.rem * 0)

    patch.setattr(attention, "compose", planted)


def square_root_at_zero(patch: pytest.MonkeyPatch) -> None:
    """Derivatives of the root bounded as if the box stayed away from zero."""
    exact = elementary.SQRT

    def bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
        return exact.bound(lo.clamp(min=0.3), hi.clamp(min=0.3), n)

    def image(ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return ends[0] * torch.nan, ends[1] * torch.nan

    planted = elementary.Elementary("sqrt", exact.series, bound, image)
    patch.setitem(registry._HANDLERS, "sqrt", (lambda x: compose.compose(planted, x), False))


def wrong_binomial(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subdivide, "comb", lambda n, j: 1)
    patch.setattr(subdivide, "cell_matrices", subdivide.cell_matrices.__wrapped__)


def every_monomial_is_even(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(basis, "even_rows", lambda variables, degree: tuple(range(1, basis.count(variables, degree))))


def box_not_covered(patch: pytest.MonkeyPatch) -> None:
    """Remainder of the argument forgotten in a composed function."""
    original = compose._beyond

    def planted(g: Any, x: Any, *rest: Any) -> Tensor:
        return original(g, x.with_(x.coef, x.rem * 0), *rest)

    patch.setattr(compose, "_beyond", planted)


def waves_are_small(patch: pytest.MonkeyPatch) -> None:
    planted = elementary.Elementary(
        "sin", elementary.SIN.series, elementary.SIN.bound, lambda ends: (ends[0] * 0 - 0.5, ends[0] * 0 + 0.5)
    )
    patch.setitem(registry._HANDLERS, "sin", (lambda x: compose.compose(planted, x), False))


def execution_ignored(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "executed", lambda radius, *rest: radius)
    everywhere(patch, "relative_error", lambda dtype, roundings: 1e-30)


def numbers_become_float32(patch: pytest.MonkeyPatch) -> None:
    original = core.constant

    def planted(value: Any, like: Any, radius: Any = None) -> Any:
        value = torch.tensor(value, dtype=torch.float32, device="cpu") if isinstance(value, float) else value
        return original(value, like, radius)

    everywhere(patch, "constant", planted)


def difference_of_sums(patch: pytest.MonkeyPatch) -> None:
    """The sum of the other exponentials taken as a difference without its rounding."""
    patch.setattr(attention, "gamma", lambda n: 0.0)


def underflow_ignored(patch: pytest.MonkeyPatch) -> None:
    everywhere(patch, "UNDERFLOW", 0.0)
    everywhere(patch, "upward_power", lambda size, exponent: size**exponent)


def signed_weights_in_the_remainder(patch: pytest.MonkeyPatch) -> None:
    """Remainders contracted with W instead of |W|."""
    original = contraction._with_constant

    def planted(la: str, lb: str, out: str, a: Any, b: Any) -> Any:
        result = original(la, lb, out, a, b)
        return result.with_(result.coef, torch.einsum(f"{la},{lb}->{out}", a.rem, b.double()).abs(), result.den)

    patch.setattr(contraction, "_with_constant", planted)


def overlapping_called_disjoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contraction, "_product_rows", contraction.disjoint_rows)


PLANTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "remainder dropped in product": (drop_cross_terms, ("polynomials", "bilinear")),
    "truncated terms dropped": (drop_truncated_terms, ("polynomials",)),
    "wrong Lagrange factor": (wrong_lagrange_factor, ("single",)),
    "epsilon in a denominator": (epsilon_in_denominator, ("quotients", "head")),
    "rounding ignored": (ignore_rounding, ("polynomials", "head")),
    "relu taken linear": (relu_is_linear, ("network", "order")),
    "nan treated as proved": (nan_is_proved, ("domains",)),
    "softmax remainder dropped": (drop_softmax_remainder, ("head", "attention")),
    "square root at zero": (square_root_at_zero, ("roots",)),
    "wrong binomial in re-expansion": (wrong_binomial, ("halves",)),
    "all monomials even": (every_monomial_is_even, ("polynomials",)),
    "argument's remainder forgotten": (box_not_covered, ("polynomials", "roots", "waves")),
    "wrong image of a function": (waves_are_small, ("waves",)),
    "rounding of execution ignored": (execution_ignored, ("head",)),
    "numbers rounded to float32": (numbers_become_float32, ("polynomials", "quotients")),
    "rounding of a difference of sums": (difference_of_sums, ("steep",)),
    "underflow ignored": (underflow_ignored, ("tiny scale",)),
    "signed weights in the remainder": (signed_weights_in_the_remainder, ("head", "network")),
    "overlapping supports called disjoint": (overlapping_called_disjoint, ("bilinear",)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_the_suite_is_clean_without_plants(compiled: bool) -> None:
    with kernels.backend(compiled):
        tally = run_suite(tuple(SUITE))
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 5000


@pytest.mark.parametrize("name", PLANTS)
def test_planted_unsoundness_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in the plain way; faults in compiled kernels are planted in tests/taylor/test_kernels.py."""
    plant, cases = PLANTS[name]
    plant(monkeypatch)
    with kernels.backend(False):
        assert run_suite(cases).violations, f"not caught: {name}"


def test_narrow_boxes_of_variables_are_covered() -> None:
    """c + r t with t in [-1, 1] reaches both ends of every box, to the last bit."""
    lower = torch.from_numpy(RNG(0).normal(size=(2000, 2)))
    upper = lower + torch.from_numpy(10 ** RNG(1).uniform(-17, 3, size=(2000, 2)))
    low, high = taylor.variables(lower, upper, 1).range()
    assert bool(((low <= lower) & (high >= upper)).all())
