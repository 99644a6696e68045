"""The table of float formats against torch's and NumPy's own, and the checker's against it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onelayer.checker.formats import EXECUTED
from onelayer.errors import OnelayerError
from onelayer.formats import BFLOAT16, FLOAT32, FLOAT64, FORMATS, Format, are_formats, coarsest, format_of, named


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_numbers_of_a_format(row: Format) -> None:
    infos = [torch.finfo(row.dtype)] if row is BFLOAT16 else [torch.finfo(row.dtype), np.finfo(row.name)]
    for info in infos:  # NumPy has no bfloat16
        assert row.unit == info.eps / 2
        assert row.normal == info.tiny
        assert row.largest == info.max
    above = torch.nextafter(torch.zeros(1, dtype=row.dtype), torch.ones(1, dtype=row.dtype))
    assert row.smallest == float(above)
    assert format_of(row.dtype) is named(row.name) is row


def test_the_checker_has_the_same_formats_in_its_own_table() -> None:
    own = [(row.tag, row.arithmetic, row.kind, row.unit, row.normal, row.largest) for row in EXECUTED]
    computing = [(row, row.computing) for row in FORMATS]
    assert own == [(a.tag, a.execution, np.dtype(b.name), b.unit, b.normal, b.largest) for a, b in computing]
    held = [None if a is b else (a.unit, a.underflow, a.largest) for a, b in computing]
    assert [row.held for row in EXECUTED] == held


@pytest.mark.parametrize("bad", [torch.float8_e5m2, torch.int64, "float64", None, [1]], ids=str)
def test_other_formats_are_refused_in_one_line(bad: object) -> None:
    assert not are_formats([bad])
    with pytest.raises(OnelayerError, match="dtype must be torch"):
        format_of(bad)


def test_the_coarsest_covers_the_others() -> None:
    assert coarsest([FLOAT64.dtype]) == torch.float64
    assert coarsest([FLOAT64.dtype, FLOAT32.dtype]) == torch.float32
