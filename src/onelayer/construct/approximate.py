"""approximate: a function, a box and an eps in; a built layer with its proof out."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from onelayer.certify import Certificate, certify
from onelayer.certify.recorded import understood
from onelayer.construct.gather import gather
from onelayer.construct.lookup.blueprint import Blueprint, Budget, draw_up
from onelayer.construct.superpose import needs_superposition, superpose
from onelayer.domain import Box
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.result import Approximation

# Share of eps given to the fit; the rest is room for the proof, which pays for tightness with boxes, more so in more
# dimensions. No claim that the numbers are optimal.
FIT_SHARE = {1: 0.97, 2: 0.9, 3: 0.8, 4: 0.7}
HIGH_DIMENSION_SHARE = 0.5
ATTEMPTS = 5
FIT_TIME = 0.5  # share of max_seconds after which a fit has to do with what it found


@pinned()
def approximate(
    f: Any,
    domain: Box,
    eps: float,
    *,
    layout: str = "packed",
    dtype: torch.dtype = torch.float64,
    lipschitz: float | None = None,
    max_tokens: int = 20_000,
    max_boxes: int = 1_000_000,
    max_seconds: float = math.inf,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> Approximation:
    """Build a one-layer Transformer T and prove sup over ``domain`` of |T - f| <= ``eps``.

    No training: heads over memory tokens are fitted by least squares with minimax polish, kinks become ReLU units, and
    the tolerance of the fit is tightened until the proof goes through. When ``max_tokens`` or ``max_seconds`` end the
    work first, the result is the best model found with its honest certificate, and ``wanted_tokens`` says what eps
    would need.

    f           formula text, torch callable, nn.Module, or a NumPy function with ``lipschitz`` (maximum norm)
    layout      "packed": one query token carries the whole input and memory tokens do the work; "tokens": tokens stay
                tokens, positional heads gather the sequence and the ReLU network approximates (construct/gather.py);
                sums of curved functions of single tokens go through a number embedding (construct/superpose.py)
    dtype       torch.float64 or torch.float32: the format of the weights and the execution that is certified
    """
    _check(eps, layout, dtype, max_tokens, max_seconds)
    if layout == "tokens":
        if needs_superposition(f, domain):
            return superpose(f, domain, eps, dtype=dtype)
        return gather(
            f,
            domain,
            eps,
            dtype=dtype,
            seed=seed,
            max_boxes=max_boxes,
            max_seconds=max_seconds,
            jobs=jobs,
            progress=progress,
        )
    deadline = time.monotonic() + max_seconds
    target = understood(f, domain, lipschitz=lipschitz)
    share = FIT_SHARE.get(domain.dim, HIGH_DIMENSION_SHARE)
    tolerance = share * eps
    budget = Budget(dtype, max_tokens, seed, time.monotonic() + FIT_TIME * max_seconds)
    best: Approximation | None = None
    for _ in range(ATTEMPTS):
        blueprint = draw_up(target, domain, tolerance, budget)
        model = blueprint.build(dtype)
        left = max(0.0, deadline - time.monotonic())
        certificate = certify(
            model, target, domain, eps, max_boxes=max_boxes, max_seconds=left, jobs=jobs, progress=progress
        )
        attempt = Approximation(model, certificate, target, wanted_tokens=_wanted(blueprint, certificate))
        best = attempt if best is None or certificate.upper < best.certificate.upper else best
        out_of_budget = blueprint.error > tolerance or time.monotonic() >= deadline
        if certificate.proved or out_of_budget:
            break
        tolerance = _tightened(tolerance, share * eps, certificate)
    assert best is not None
    return best


def _tightened(tolerance: float, goal: float, certificate: Certificate) -> float:
    """A refuted fit was worse than estimated by lower / tolerance; an undecided one needs more room for the proof."""
    if certificate.status == "refuted":
        return tolerance * min(0.8, goal / certificate.lower)
    return tolerance / 2


def _wanted(blueprint: Blueprint, certificate: Certificate) -> int | None:
    return None if certificate.proved else blueprint.wanted


def _check(eps: float, layout: str, dtype: torch.dtype, max_tokens: int, max_seconds: float) -> None:
    if not (isinstance(eps, int | float) and 0 < eps < math.inf):
        raise OnelayerError(f"eps must be a number > 0, got {eps!r}")
    if layout not in ("packed", "tokens"):
        raise OnelayerError(f"layout must be 'packed' or 'tokens', got {layout!r}")
    if dtype not in (torch.float64, torch.float32):
        raise OnelayerError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
    if max_tokens < 1:
        raise OnelayerError(f"max_tokens must be at least 1, got {max_tokens}")
    if not max_seconds > 0:
        raise OnelayerError(f"max_seconds must be > 0, got {max_seconds}")
