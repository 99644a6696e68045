"""Covered: which points a certificate is about. Those of its domain; of a table its rows, and none between them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onelayer.ground import pinned
from onelayer.proof.certificate import Certificate
from onelayer.proof.files import TABLE, read_table


@pinned()
def covered(certificate: Certificate, points: Tensor) -> list[bool]:
    """Whether the claim is about each of ``points`` (B, *shape), as they are given to the model."""
    exact = points.double()
    if not certificate.where:
        return [bool(inside) for inside in certificate.domain.contains(exact)]
    rows, _ = table_rows(certificate)
    known = {_key(row) for row in rows.numpy()}
    return [_key(point) in known for point in exact.numpy()]


def table_rows(certificate: Certificate) -> tuple[Tensor, Tensor]:
    """X (N, *shape) and Y (N, *outputs) of the table that a certificate by enumeration is about."""
    x, y = read_table(certificate.attachments[TABLE])
    return torch.from_numpy(x), torch.from_numpy(y)


def _key(point: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    # Zeros of both signs are one number.
    return (point + 0.0).tobytes()
