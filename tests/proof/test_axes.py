"""Which boxes are tried for which: pieces of one box share the trial of the worst of them."""

from __future__ import annotations

import torch

from onelayer.proof.axes import families


def test_the_worst_piece_of_each_box_is_tried_for_all_of_them() -> None:
    inherited = torch.tensor([3.0, 5.0, 3.0, 5.0, 3.0], dtype=torch.float64)
    bound = torch.tensor([1.0, 2.0, 2.5, torch.inf, 2.5], dtype=torch.float64)
    found = families(inherited, bound)
    assert found.tried[found.member].tolist() == [2, 3, 2, 3, 2]


def test_pieces_of_boxes_without_a_bound_are_tried_one_by_one() -> None:
    inherited = torch.tensor([torch.inf, 3.0, torch.inf, torch.nan, 3.0], dtype=torch.float64)
    found = families(inherited, torch.ones(5, dtype=torch.float64))
    assert found.tried[found.member].tolist() == [0, 1, 2, 3, 1]
