"""The linear algebra the paper names, Section II-A: rank, singular values, condition and eigenvalues of a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.equations.functions import Array
from onelayer.layer.transformer import OneLayerTransformer


@dataclass(frozen=True)
class Spectrum:
    """Singular values in falling order; eigenvalues by falling modulus, for square matrices only."""

    name: str
    shape: tuple[int, int]
    rank: int
    condition: float
    singular_values: Array
    eigenvalues: NDArray[np.complex128] | None


def spectrum(name: str, matrix: Array) -> Spectrum:
    """Rank counts singular values above eps * max(shape) * largest; condition is largest / smallest, or inf."""
    singular = np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)
    threshold = np.finfo(np.float64).eps * max(matrix.shape) * singular[0]
    rank = int((singular > threshold).sum())
    condition = float(singular[0] / singular[-1]) if rank == len(singular) else np.inf
    eigenvalues = None
    if matrix.shape[0] == matrix.shape[1]:
        found = np.linalg.eigvals(matrix).astype(np.complex128)
        order = np.argsort(-np.abs(found), kind="stable")
        eigenvalues = found[order]
    shape = (matrix.shape[0], matrix.shape[1])
    return Spectrum(name, shape, rank, condition, singular, eigenvalues)


def diagnose(model: OneLayerTransformer) -> list[Spectrum]:
    """Spectra of W^Q W^K^T (what logits see) and W^V W^O (what a token writes) per head, and of the FFN matrices.

    Heads without token attention have no W^K, W^V: their memory keys and values, written out, take that place.
    """
    weights = {name: value.detach().cpu().double().numpy() for name, value in model.state_dict().items()}
    found = []
    k = 0
    v = 0
    for h, shape in enumerate(model.config.heads):
        query = weights["W_Q"][:, k : k + shape.d_k]
        output = weights["W_O"][v : v + shape.d_v]
        if model.config.token_attention:
            key = weights["W_K"][:, k : k + shape.d_k]
            value = weights["W_V"][:, v : v + shape.d_v]
            found.append(spectrum(f"head {h}: W_Q W_K^T", query @ key.T))
            found.append(spectrum(f"head {h}: W_V W_O", value @ output))
        memory = model.memory_of(h)
        if memory is not None:
            keys, values = (tensor.detach().cpu().double().numpy() for tensor in memory.plain_tokens())
            found.append(spectrum(f"head {h}: W_Q keys^T", query @ keys.T))
            found.append(spectrum(f"head {h}: values W_O", values @ output))
        k = k + shape.d_k
        v = v + shape.d_v
    if model.config.hidden:
        found.append(spectrum("FFN: W_1", weights["W_1"]))
        found.append(spectrum("FFN: W_2", weights["W_2"]))
        found.append(spectrum("FFN: W_1 W_2", weights["W_1"] @ weights["W_2"]))
    return found
