"""The table of float formats against torch's and NumPy's own, and the checker's against it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onelayer.checker.formats import EXECUTED
from onelayer.errors import OnelayerError
from onelayer.formats import FLOAT32, FLOAT64, FORMATS, Format, are_formats, coarsest, format_of, named


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_numbers_of_a_format(row: Format) -> None:
    for info in (torch.finfo(row.dtype), np.finfo(row.name)):
        assert row.unit == info.eps / 2
        assert row.normal == info.tiny
        assert row.largest == info.max
    assert row.smallest == float(np.finfo(row.name).smallest_subnormal)
    assert format_of(row.dtype) is named(row.name) is row


def test_the_checker_has_the_same_formats_in_its_own_table() -> None:
    own = [(row.tag, row.arithmetic, row.kind, row.unit, row.normal, row.largest) for row in EXECUTED]
    assert own == [(row.tag, row.execution, np.dtype(row.name), row.unit, row.normal, row.largest) for row in FORMATS]


@pytest.mark.parametrize("bad", [torch.float16, torch.int64, "float64", None, [1]], ids=str)
def test_other_formats_are_refused_in_one_line(bad: object) -> None:
    assert not are_formats([bad])
    with pytest.raises(OnelayerError, match="dtype must be torch"):
        format_of(bad)


def test_the_coarsest_covers_the_others() -> None:
    assert coarsest([FLOAT64.dtype]) == torch.float64
    assert coarsest([FLOAT64.dtype, FLOAT32.dtype]) == torch.float32
