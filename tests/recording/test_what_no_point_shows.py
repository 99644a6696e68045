"""Code that differs from a wrong recording on 10^-8 of the box: no comparison at points sees it, the recorder must."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from spikes import PLACE, Code, array, numpy_spike, point, refused, spike, understood_at_the_spike
from torch import Tensor

from onelayer.errors import OnelayerError


def alike(x: Tensor) -> Tensor:
    u = x[..., 0]
    return 1.0 * ((u > PLACE - 1e-9) == (u < PLACE + 1e-9)) + torch.sin(u)


def unlike(x: Tensor) -> Tensor:
    u = x[..., 0]
    return 1.0 * ((u > PLACE - 1e-9) != (u < PLACE + 1e-9)) + torch.sin(u)


def exclusive(x: Tensor) -> Tensor:
    u = x[..., 0]
    return torch.where((u > PLACE - 1e-9) ^ (u < PLACE + 1e-9), u, 2 * u)


def chosen_by_a_method(x: Tensor) -> Tensor:
    u = x[..., 0]
    every = torch.tensor(True, dtype=torch.bool)
    return 1.0 * every.where(spike(u) < 0.5, u > 2) + u


def compared_in_numpy(x: Any) -> Any:
    u = x[..., 0]
    return np.where((u > PLACE - 1e-9) == (u < PLACE + 1e-9), np.sin(u), np.cos(u))


@pytest.mark.parametrize("f", [alike, unlike, exclusive, chosen_by_a_method])
def test_conditions_are_compared_entry_by_entry(f: Code) -> None:
    value, said = understood_at_the_spike(f)
    assert value == pytest.approx(said, abs=1e-12)


def test_conditions_are_compared_in_numpy_too() -> None:
    value, said = understood_at_the_spike(compared_in_numpy, array)
    assert value == pytest.approx(said, abs=1e-12)


def place_of_the_largest(x: Tensor) -> Tensor:
    u = x[..., 0]
    first = torch.stack([spike(u), 0.0 * u + 0.5], -1).max(-1).indices == 0
    return 1.0 * first + u


def gathered_from_there(x: Tensor) -> Tensor:
    pair = torch.cat([x, x**2], -1)
    return torch.gather(pair, -1, pair.max(-1, keepdim=True).indices)[..., 0]


def attention_by_a_mask_of_x(x: Tensor) -> Tensor:
    pairs = torch.stack([x, 2 * x], -2)
    values = torch.stack([0 * x, 0 * x + 1], -2)
    seen = (spike(pairs) - spike(pairs).mT).abs() < 0.5
    return F.scaled_dot_product_attention(0 * pairs + 1, pairs, values, attn_mask=seen)[..., 0, 0]


def minus_infinity_beside_a_choice(x: Tensor) -> Tensor:
    u = x[..., 0]
    near = spike(u) > 0.5
    return torch.where(near, torch.sin(u), torch.cos(u)) * 0 + torch.exp(torch.where(near, -torch.inf, u))


def above_minus_infinity(x: Tensor) -> Tensor:
    u = x[..., 0]
    nothing = x.new_tensor(1.0) - 1
    return torch.where(u - 0.1 + nothing > -torch.inf, u, -u)


def triangle_of_conditions(x: Tensor) -> Tensor:
    u = x[..., 0, None]
    torch.where(spike(u) > 0.5, 1.0, 0.0)
    return torch.tril(u[..., None] < torch.ones(2, 2, dtype=x.dtype)).double().sum((-1, -2))


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (place_of_the_largest, "use the values"),
        (gathered_from_there, "use the values"),
        (attention_by_a_mask_of_x, "a mask that depends on x"),
        (minus_infinity_beside_a_choice, "infinite mask"),
        (above_minus_infinity, "infinite mask"),
        (triangle_of_conditions, "choose numbers by each comparison first"),
        (
            lambda x: 1.0 * torch.stack([x[..., 0] > 0.5, x[..., 0] > 0.2], -1).all(-1),
            "choose numbers by each comparison first",
        ),
    ],
)
def test_what_a_condition_has_no_formula_for_is_refused(f: Code, says: str) -> None:
    assert says in refused(f)


def swapped(p: Any) -> Any:
    q = p.copy()
    q[0] = p[0] + numpy_spike(p[0])
    first = q[0]  # a number, and no view
    q[0] = p[0]
    return first


def flattened(x: Any) -> Any:
    q = x + numpy_spike(x)
    flat = q.flatten()
    q[..., 0] = x[..., 0]
    return flat


def cast(x: Any) -> Any:
    q = x + numpy_spike(x)
    other = q.astype(float)
    q[..., 0] = x[..., 0]
    return other[..., 0]


def median_of_two(p: Any) -> Any:
    return np.median(np.stack([p[0], p[0] + numpy_spike(p[0])]))


def split(p: Any) -> Any:
    return np.split(np.stack([p[0], p[0], p[0], numpy_spike(p[0])]), [1, 3])[1].sum()


def grid(p: Any) -> Any:
    return np.meshgrid(np.stack([p[0], p[0] + numpy_spike(p[0])]), np.array([1.0, 2.0]))[0][0, 1]


def products_of_matrices(p: Any) -> Any:
    return np.vdot(np.ones((2, 2)), np.stack([np.stack([p[0], p[0]]), np.stack([numpy_spike(p[0]), p[0]])]))


@pytest.mark.parametrize("f", [swapped, median_of_two, split, grid, products_of_matrices])
def test_numpy_code_of_one_point_means_what_numpy_means(f: Code) -> None:
    value, said = understood_at_the_spike(f, point)
    assert value == pytest.approx(said, abs=1e-12)


@pytest.mark.parametrize("f", [flattened, cast])
def test_what_numpy_copies_sees_nothing_that_is_written_later(f: Code) -> None:
    value, said = understood_at_the_spike(f, array)
    assert value == pytest.approx(said, abs=1e-12)


def written_behind_a_view_that_runs_backwards(x: Any) -> Any:
    pair = np.stack([x[..., 0], x[..., 0]], -1)
    turned = pair[..., ::-1]
    pair[..., 0] = x[..., 0] + numpy_spike(x[..., 0])
    return turned[..., 1]


def written_behind_a_flip(x: Any) -> Any:
    pair = np.stack([x[..., 0], x[..., 0]], -1)
    turned = np.flip(pair, -1)
    pair[..., 0] = x[..., 0] + numpy_spike(x[..., 0])
    return turned[..., 1]


def reshaped(x: Tensor) -> Tensor:
    """A copy in torch, as the transposed matrix has no other layout, and a view of what is contiguous."""
    pair = torch.stack([x[..., 0] + spike(x[..., 0]), 0 * x[..., 0]]).mT * 1.0
    flat = pair.reshape(-1)
    pair[..., 0] = x[..., 0]
    return flat.reshape(-1, 2)[..., 0]


def reshaped_twice(x: Tensor) -> Tensor:
    flat = (x.clone() + spike(x)).reshape(-1)
    again = flat.reshape(-1, 1)
    flat[:] = x[..., 0]
    return again.contiguous()[..., 0]


def diagonal_of_a_corner_of_numpy(p: Any) -> Any:
    cube = np.stack([p[0] + at * numpy_spike(p[0]) for at in range(8)]).reshape(2, 2, 2)
    return np.linalg.diagonal(cube)[0, 1]


def product_of_a_tensor(p: Any) -> Any:
    return np.dot(np.stack([p[0]] * 4).reshape(2, 2), np.arange(8.0).reshape(2, 2, 2))[0, 1, 0]


def mixing_pieces(p: Any) -> Any:
    pair = np.stack([p[0], p[0] * 2])
    kept = np.stack([numpy_spike(p[0]), 0 * p[0]]) < 0.5
    return np.piecewise(pair, [kept], [lambda v: v.sum() + 0 * v, 0.0])[1]


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (written_behind_a_view_that_runs_backwards, "layout in memory"),
        (written_behind_a_flip, "layout in memory"),
        (reshaped, "layout in memory"),
        (reshaped_twice, "layout in memory"),
        (diagonal_of_a_corner_of_numpy, "numpy.linalg diagonal"),
        (product_of_a_tensor, "np.dot of more than two dimensions"),
        (mixing_pieces, "treat every entry alone"),
        (lambda x: np.piecewise(x, [x < 2], [lambda v: v.sum() + 0 * v])[..., 0], "treat every entry alone"),
        (lambda x: np.abs(x[..., 0] + numpy_spike(x[..., 0]) * np.array([1j])), "the formula language is real"),
        (lambda x: x[..., 0] + np.longdouble(1) / 3, "longdouble"),
    ],
)
def test_code_that_a_recording_cannot_follow_is_refused(f: Code, says: str) -> None:
    assert says in refused(f)


def written_where_it_is_known(x: Tensor) -> Tensor:
    rows = torch.zeros_like(x).reshape(-1)
    rows[:] = x[..., 0]
    rows *= 2
    view = rows.view(-1, 1)
    view += 1
    return rows


def test_one_twin_alone_may_be_written_into() -> None:
    value, said = understood_at_the_spike(written_where_it_is_known)
    assert value == said == 2 * PLACE + 1


def caught(x: Tensor) -> Tensor:
    u = x[..., 0]
    try:
        near = bool((spike(u) > 0.5).any())
    except OnelayerError:
        near = False
    return torch.sin(u) + float(near)


def caught_in_numpy(x: Any) -> Any:
    u = x[..., 0]
    try:
        near = float(np.max(numpy_spike(u))) > 0.5
    except Exception:
        near = False
    return np.sin(u) + near


def caught_as_unknown(x: Tensor) -> Tensor:
    try:
        return x[..., 0] + torch.special.i0(spike(x[..., 0])) - 1
    except OnelayerError:
        return x[..., 0]


def caught_as_an_index(x: Tensor) -> Tensor:
    table = torch.tensor([0.0, 1.0], dtype=x.dtype)
    try:
        return x[..., 0] + table[(spike(x[..., 0]) > 0.5).long()]
    except OnelayerError:
        return x[..., 0]


@pytest.mark.parametrize("f", [caught, caught_in_numpy, caught_as_unknown, caught_as_an_index])
def test_what_is_refused_stays_refused_where_the_code_catches_it(f: Code) -> None:
    assert "is not supported" in refused(f)


def rarely(x: Tensor) -> Tensor:
    return x[..., 0] + float(torch.rand((), dtype=x.dtype) < 1e-15)


def rarely_in_numpy(x: Any) -> Any:
    return np.sin(x[..., 0]) + (np.random.rand() < 1e-15)


@pytest.mark.parametrize("f", [rarely, rarely_in_numpy, lambda x: x[..., 0] + float(random.random() < 1e-15)])
def test_random_numbers_that_rarely_matter_are_refused(f: Code) -> None:
    assert "draws random numbers" in refused(f)


def seeded(x: Tensor) -> Tensor:
    generator = torch.Generator(device="cpu").manual_seed(1)
    weights = torch.rand(3, dtype=x.dtype, generator=generator)
    torch.manual_seed(7)
    return (x * weights).sum(-1) + torch.rand((), dtype=x.dtype)


def test_random_numbers_from_a_seed_of_its_own_are_constants() -> None:
    value, said = understood_at_the_spike(seeded)
    assert value == pytest.approx(said, abs=1e-12)
