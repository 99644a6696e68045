"""Operations run on numbers beside their recording: what is read wrongly, or shares other memory, no spike hides."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from spikes import PLACE, Code, array, numpy_spike, point, refused, spike, understood_at_the_spike
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.recording.recorder import record


def moved_without_waiting(x: Tensor) -> Tensor:
    kept = x.clone()
    same = kept.to(torch.float64, True)  # non_blocking, which copies nothing
    same += spike(same)
    return kept[..., 0]


def compared_in_place(x: Tensor) -> Tensor:
    near = spike(x)
    near.gt_(0.5)
    return near[..., 0]


def copied_deeply(x: Tensor) -> Tensor:
    other = copy.deepcopy(x)
    wave = torch.sin(other)
    other += 1
    return (spike(x) * (torch.cos(x) + wave))[..., 0]


def condition_copied_deeply(x: Tensor) -> Tensor:
    near = copy.deepcopy(spike(x) > 0.5)
    return torch.where(near, torch.cos(x), torch.sin(x))[..., 0]


@pytest.mark.parametrize("f", [moved_without_waiting, compared_in_place])
def test_what_is_written_is_seen_where_torch_shows_it(f: Code) -> None:
    value, said = understood_at_the_spike(f)
    assert value == pytest.approx(said, abs=1e-12)


@pytest.mark.parametrize("f", [copied_deeply, condition_copied_deeply])
def test_a_copy_past_the_operations_of_torch_is_refused(f: Code) -> None:
    with pytest.raises(OnelayerError, match=r"copy\.deepcopy\(x\).* use x\.clone\(\)"):
        understood_at_the_spike(f)


def joined_in_place(x: Tensor) -> Tensor:
    near = x < 2
    held = near
    near &= spike(x) < 0.5
    return torch.where(held, x, x + 1)[..., 0]


def laid_out_otherwise(x: Tensor) -> Tensor:
    pictures = x[..., None, None].repeat(1, 2, 2, 2)
    other = pictures.to(memory_format=torch.channels_last)
    other += spike(other)
    return pictures[..., 0, 0, 0]


def filled_in_place(x: Tensor) -> Tensor:
    pair = torch.stack([torch.stack([x[..., 0], spike(x[..., 0])], -1)] * 2, -2)
    flat = pair.reshape(-1, 4)
    pair.tril_()
    return flat[..., 1]


def asked_for_an_attribute(x: Tensor) -> Tensor:
    return x[..., 0] + (spike(x[..., 0]) if hasattr(x, "data") else 0)


class Keeping:
    """Keeps what it computes of one call for the next."""

    def __init__(self) -> None:
        self.last: list[Any] = []

    def __call__(self, x: Tensor) -> Tensor:
        before = self.last[-1] if self.last and self.last[-1].shape == x.shape else x
        self.last.append(x + spike(x))
        return before[..., 0]


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (joined_in_place, "__iand__"),
        (laid_out_otherwise, "whether it is a view"),
        (filled_in_place, "layout in memory"),
        (asked_for_an_attribute, "no such attribute"),
        (Keeping(), "f"),
        (lambda x: x[..., 0] + (spike(x[..., 0]) if (x > 2).nelement() < 0 else 0), "nelement"),
    ],
)
def test_what_takes_another_way_on_numbers_is_refused(f: Code, says: str) -> None:
    assert says in refused(f)


def outer_of_a_matrix(p: Any) -> Any:
    matrix = np.stack([p, p + numpy_spike(p), p]).reshape(3, 1) * np.array([1.0, 2.0])
    return np.outer(matrix, np.array([3.0, 5.0]))[2].sum()


def padded_matrix(p: Any) -> Any:
    matrix = np.stack([p[0], p[0], p[0] + numpy_spike(p[0]), p[0]]).reshape(2, 2)
    return np.pad(matrix, (1, 0))[1, 1] + np.pad(matrix, ((0, 0), (1, 0)), constant_values=2.0)[1, 1]


def chosen_around_a_slice(p: Any) -> Any:
    cube = np.stack([p[0] + at * numpy_spike(p[0]) for at in range(12)]).reshape(2, 3, 2)
    return cube[1, :, [0, 1]][0, 2]


def chosen_by_a_list_of_lists(p: Any) -> Any:
    pair = np.stack([p[0], p[0] + numpy_spike(p[0])])
    return np.stack([pair, pair + 1])[[[0, 1], [1, 0]]].sum()


def written_around_a_slice(p: Any) -> Any:
    cube = np.stack([p[0]] * 12).reshape(2, 3, 2)
    cube[1, :, [0, 1]] = np.stack([p[0] + at * numpy_spike(p[0]) for at in range(6)]).reshape(2, 3)
    return cube[1, 2, 0]


def row_that_is_a_copy(p: Any) -> Any:
    rows = np.stack([p, p + 1])
    row = rows[np.array(1)]
    row[0] = p[0] + 1 + numpy_spike(p[0])
    return rows[1, 0]


def grid_of_whole_numbers(p: Any) -> Any:
    across, along = np.meshgrid(np.stack([p[0], numpy_spike(p[0])]), [0, 1])
    return (across * along).sum()


@pytest.mark.parametrize(
    "f",
    [
        grid_of_whole_numbers,
        outer_of_a_matrix,
        padded_matrix,
        chosen_around_a_slice,
        chosen_by_a_list_of_lists,
        written_around_a_slice,
        row_that_is_a_copy,
    ],
)
def test_numpy_code_of_one_point_means_what_numpy_means(f: Code) -> None:
    value, said = understood_at_the_spike(f, point)
    assert value == pytest.approx(said, abs=1e-12)


def cast_without_a_copy(x: Any) -> Any:
    rows = x + 0.0
    same = rows.astype(float, copy=False)
    same[..., 0] = x[..., 0] + numpy_spike(x[..., 0])
    return rows[..., 0]


def test_a_cast_without_a_copy_is_the_array_itself() -> None:
    value, said = understood_at_the_spike(cast_without_a_copy, array)
    assert value == said == PLACE + 1


def written_twice(p: Any) -> Any:
    pair = np.stack([p[0], p[0]])
    pair[[0, 0]] = np.stack([p[0] + numpy_spike(p[0]), p[0]])
    return pair[0]


def test_an_entry_is_written_once() -> None:
    assert "written twice" in refused(written_twice)


def chosen_in_the_default_format(x: Tensor) -> Tensor:
    ones = torch.where(spike(x) > 0.5, 1.0, 2.0)
    return ones.double()[..., 0]


def chosen_where_x_is(x: Tensor) -> Tensor:
    near = (spike(x) > 0.5).to(x.device)
    return torch.where(near, torch.cos(x), torch.sin(x))[..., 0]


def test_a_condition_moved_to_its_own_place_is_itself() -> None:
    value, said = understood_at_the_spike(chosen_where_x_is)
    assert value == pytest.approx(said, abs=1e-12)


def test_a_cast_that_copies_under_one_default_alone_is_recorded() -> None:
    value, said = understood_at_the_spike(chosen_in_the_default_format)
    assert value == said == 1


def test_neither_cancelling_sums_nor_underflow_are_wrong_readings() -> None:
    def f(x: Tensor) -> Tensor:
        weights = torch.tensor([1e16, -1e16, 1.0, 1e16, -1e16], dtype=x.dtype)
        steep = torch.exp(-800 * (x + 1)) * 1e300
        return (x * weights).sum(-1) + steep[..., 0] - (x[..., 0] + 1e16 - 1e16)

    record(f, (1,), box=Box([0.0], [1.0]))
