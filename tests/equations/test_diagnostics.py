from __future__ import annotations

import numpy as np
import pytest
import torch

from onelayer.equations.diagnostics import diagnose, spectrum
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer


def test_spectrum_of_known_matrices() -> None:
    found = spectrum("diagonal", np.diag([1.0, -4.0, 2.0]))
    assert (found.rank, found.condition) == (3, 4.0)
    assert found.singular_values.tolist() == [4.0, 2.0, 1.0]
    assert found.eigenvalues is not None
    assert found.eigenvalues.tolist() == [-4.0, 2.0, 1.0]
    outer = spectrum("outer", np.outer([1.0, 2.0, 2.0], [3.0, 4.0]))
    assert (outer.rank, outer.condition, outer.eigenvalues) == (1, np.inf, None)
    assert outer.singular_values[0] == pytest.approx(15.0)
    rotation = spectrum("rotation", np.array([[0.0, -1.0], [1.0, 0.0]]))
    assert rotation.eigenvalues is not None
    assert np.abs(rotation.eigenvalues.imag).tolist() == [1.0, 1.0]


def test_heads_of_width_two_have_rank_two() -> None:
    """W^Q W^K^T and W^V W^O of a head have rank at most d_k and d_v, however wide the stream."""
    model = OneLayerTransformer.tokens((3, 2), (3,), d_model=6, heads=3, hidden=4)
    found = {item.name: item for item in diagnose(model)}
    assert len(found) == 3 * 2 + 3
    for h in range(3):
        assert found[f"head {h}: W_Q W_K^T"].rank == 2
        assert found[f"head {h}: W_V W_O"].rank == 2
        assert found[f"head {h}: W_V W_O"].shape == (6, 6)
    assert found["FFN: W_1"].rank == 4
    assert found["FFN: W_1 W_2"].condition == np.inf


def test_memory_stands_in_for_keys_and_values() -> None:
    grid = GridMemory([torch.randn(3, 2), torch.randn(4, 2)], torch.randn(3, 4, 1))
    model = OneLayerTransformer.packed((2,), (), [grid])
    found = {item.name: item.shape for item in diagnose(model)}
    assert found == {"head 0: W_Q keys^T": (2, 12), "head 0: values W_O": (12, 2)}
