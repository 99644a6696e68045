"""Taylor models enclose their functions: random expressions and layers on random boxes, checked in Arb and mpmath."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import random_boxes, random_case
from enclosure import Tally, enclosed, enclosed_mpmath

CHUNKS = 10
PER_CHUNK = 10_500
CHUNKS_SEED = 1_000_000


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_cases_are_enclosed(chunk: int, long_run: bool) -> None:
    """10 chunks of at least 10,500 checks each, ten times that in the long run; not one point outside."""
    wanted = PER_CHUNK * (10 if long_run else 1)
    tally, seed = Tally(), chunk * CHUNKS_SEED + (500_000 if long_run else 0)
    while tally.checks < wanted:
        rng = np.random.default_rng(seed)
        dim = int(rng.integers(1, 5))
        order = int(rng.integers(1, 9 if dim < 3 else 5))
        lower, upper = random_boxes(rng, 8, dim)
        found = enclosed(random_case(rng, dim), lower, upper, order, count=8, seed=seed)
        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
        tally += found
        seed += 1
    assert tally.checks >= wanted
    assert tally.undecided < 0.2 * tally.checks  # an enclosure that never commits itself would pass anything
    assert tally.unclear < 0.01 * tally.checks


def test_mpmath_agrees(long_run: bool) -> None:
    """A share of the same against 50 digits of mpmath, an arithmetic unrelated to Arb."""
    wanted = 20_000 if long_run else 2_000
    tally, seed = Tally(), 77_000_000
    while tally.checks < wanted:
        rng = np.random.default_rng(seed)
        dim = int(rng.integers(1, 4))
        lower, upper = random_boxes(rng, 3, dim)
        found = enclosed_mpmath(random_case(rng, dim), lower, upper, int(rng.integers(1, 7)), count=4, seed=seed)
        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
        tally += found
        seed += 1
    assert tally.checks >= wanted


@pytest.mark.parametrize(("dim", "order"), [(1, 16), (1, 8), (2, 8), (3, 8), (6, 3), (10, 2), (10, 1)])
def test_orders_and_dimensions(dim: int, order: int) -> None:
    tally, seed = Tally(), 31 * dim + order
    while tally.checks < 300:
        rng = np.random.default_rng(seed)
        lower = torch.from_numpy(rng.normal(size=(2, dim)))
        tally += enclosed(random_case(rng, dim), lower, lower + 0.2, order, count=4, seed=seed)
        seed += 1
    assert not tally.violations, tally.violations[:3]
