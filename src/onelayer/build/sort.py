"""sort and order statistics: a length, an interval and an eps in; a layer with its proof out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import check_box, check_choice, check_dtype, check_ends, check_eps, narrowest
from onelayer.build.ordering.subsets import subset_layer
from onelayer.build.ordering.thresholds import threshold_layer
from onelayer.build.ordering.witness import hardest
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.float64 import linspace, numbers
from onelayer.formats import spelled
from onelayer.ground import pinned
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import OrderStatistics
from onelayer.lemmas.order import relu_form, threshold_range, thresholds_error
from onelayer.lemmas.subsets import LONGEST, coefficients_by_size, subsets_error
from onelayer.observer import Observer, observing
from onelayer.proof.argued import argued_certificate
from onelayer.proof.certify import function_text
from onelayer.recording.sequences import order_statistics
from onelayer.result import Approximation

KINDS = ("auto", "thresholds", "subsets")
# Heads: all subsets of twelve numbers; twice as many for each number more.
MAX_SUBSETS = 2**12
# The attention of longer sequences does not fit an ordinary memory.
MAX_LENGTH = 2**14
# Thresholds: an eps of a sixty-five thousandth of the range.
MAX_CELLS = 2**16
# In the largest matrix of a layer of thresholds: 2 GiB of float64 numbers.
MAX_NUMBERS = 2**28
# Each with more thresholds, by as much as the last bound was above eps.
ATTEMPTS = 4
# Of eps, for the sharpness of heads over subsets: the rest is room for rounding.
SHARP_SHARE = 0.9


@door
@pinned()
def sort(
    n: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """A layer that sorts n numbers of [lo, hi] into ascending order within ``eps``, with its proof.

    ``thresholds``: numbers are embedded by G ramps, averaged by one uniform head, and counted by 2 G ReLU units, with
    G about (hi - lo)/eps whatever n. ``subsets``: numbers enter linearly, one sharp head per subset of positions, for
    n <= 12; its size does not depend on eps. ``auto``: the one with fewer parameters that is proved.
    """
    wish = _Wish(n, lo, hi, eps, None, dtype)
    return _build(wish, kind, observing(observer, max_seconds))


@door
@pinned()
def order_statistic(
    n: int,
    k: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """The k-th smallest of n numbers of [lo, hi] within ``eps``, k = 1..n."""
    _check_place(k, n)
    weights = [float(j == k) for j in range(1, n + 1)]
    wish = _Wish(n, lo, hi, eps, weights, dtype)
    return _build(wish, kind, observing(observer, max_seconds))


@door
@pinned()
def minimum(
    n: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """The smallest of n numbers of [lo, hi] within ``eps``."""
    return order_statistic(n, 1, lo, hi, eps, kind=kind, dtype=dtype, max_seconds=max_seconds, observer=observer)


@door
@pinned()
def maximum(
    n: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """The largest of n numbers of [lo, hi] within ``eps``."""
    return order_statistic(n, n, lo, hi, eps, kind=kind, dtype=dtype, max_seconds=max_seconds, observer=observer)


@door
@pinned()
def median(
    n: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """The median of n numbers of [lo, hi] within ``eps``: the mean of the two middle ones when n is even."""
    _check_length(n)
    middle = {(n - 1) // 2, n // 2}
    share = 1 / len(middle)
    weights = [share if j in middle else 0.0 for j in range(n)]
    wish = _Wish(n, lo, hi, eps, weights, dtype)
    return _build(wish, kind, observing(observer, max_seconds))


@door
@pinned()
def top_k_sum(
    n: int,
    k: int,
    lo: float,
    hi: float,
    eps: float,
    *,
    kind: str = "auto",
    dtype: torch.dtype = torch.float64,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """The sum of the k largest of n numbers of [lo, hi] within ``eps``."""
    _check_place(k, n)
    weights = [float(j >= n - k) for j in range(n)]
    wish = _Wish(n, lo, hi, eps, weights, dtype)
    return _build(wish, kind, observing(observer, max_seconds))


def _check_length(n: int) -> None:
    if not (type(n) is int and 1 <= n <= MAX_LENGTH):
        raise OnelayerError(f"the length must be a whole number between 1 and {MAX_LENGTH:,}, got {str(n)[:40]}")


def _check_place(k: int, n: int) -> None:
    _check_length(n)
    if not (type(k) is int and 1 <= k <= n):
        raise OnelayerError(f"k must be a whole number between 1 and {n}, got {k!r}")


@dataclass(frozen=True)
class _Wish:
    """Numbers to put in order: how many, of which interval, how each place counts (None: all, sorted), and how well."""

    n: int
    lo: float
    hi: float
    eps: float
    weights: list[float] | None
    dtype: torch.dtype

    def check(self, kind: str) -> None:
        """OnelayerError unless it can be built."""
        check_eps(self.eps)
        check_dtype(self.dtype)
        _check_length(self.n)
        check_ends(self.lo, self.hi)
        check_box(Box([self.lo], [self.hi]), self.dtype)
        least = narrowest(self.dtype)
        if self.hi - self.lo < least:
            raise OnelayerError(
                f"the interval [{self.lo!r}, {self.hi!r}] is too narrow: thresholds need a width of {least:.1g} or more"
            )
        check_choice("kind", kind, KINDS)

    @property
    def box(self) -> Box:
        """All sequences of these numbers."""
        return Box([self.lo] * self.n, [self.hi] * self.n)

    @property
    def cells(self) -> float:
        """About how many cells the lemma of thresholds needs: it errs by a share of the width of one."""
        return (self.hi - self.lo) * self._share() / self.eps

    def _share(self) -> float:
        """Of a cell, how far the sum of the places may be off: half of the range of every place, as it counts."""
        if self.weights is None:
            return 1 - 1 / self.n
        share = 0.0
        for k, weight in enumerate(self.weights, start=1):
            low, high = threshold_range(self.n, k)
            share += abs(weight) * (high - low) / 2
        return share


def _build(wish: _Wish, kind: str, observer: Observer) -> Approximation:
    started = time.monotonic()
    wish.check(kind)
    target = order_statistics(wish.n, wish.weights)
    with observer:
        observer.report("building")
        kinds = _kinds(wish, kind)
        kind, model, upper = _best(wish, kinds, observer)
        observer.report("proving", upper=upper)
        witness = None if observer.over else hardest(model, target, wish.weights, wish.box)
    weights = None if wish.weights is None else tuple(wish.weights)
    argument = OrderStatistics(wish.n, kind, weights)
    certificate = argued_certificate(
        model,
        wish.box,
        wish.eps,
        argument,
        upper,
        witness,
        function=function_text(target),
        method="lemma",
        seconds=time.monotonic() - started,
    )
    return Approximation(model, certificate, target)


def _best(wish: _Wish, kinds: Sequence[str], observer: Observer) -> tuple[str, OneLayerTransformer, float]:
    """The first kind that is proved, or the one with the smallest bound; an error when no bound is to be had."""
    build = {"thresholds": _thresholds, "subsets": _subsets}
    built: list[tuple[str, OneLayerTransformer, float]] = []
    refusal: OnelayerError | None = None
    for kind in kinds:
        try:
            model, upper = build[kind](wish, observer)
        except OnelayerError as error:
            refusal = error
            continue
        built.append((kind, model, upper))
        if upper <= wish.eps or observer.over:
            break
    best = min((bound for _, _, bound in built), default=math.inf)
    # What was refused by name says more than a layer without any bound.
    if refusal is not None and not best < math.inf:
        raise refusal
    return min(built, key=lambda found: found[2])


def _kinds(wish: _Wish, kind: str) -> list[str]:
    """The constructions to try, fewest parameters first: about 7 G^2 for G thresholds, 4 per head and feature."""
    n = wish.n
    subsets = math.inf if n > LONGEST else _subset_count(n, wish.weights)
    if kind == "subsets" and subsets > MAX_SUBSETS:
        raise OnelayerError(
            f"kind 'subsets' needs one head per subset of {n} numbers, more than {MAX_SUBSETS:,}; use 'thresholds'"
        )
    if kind != "auto":
        return [kind]
    if subsets > MAX_SUBSETS:
        return ["thresholds"]
    features = 2 + 2 * n
    fewer = 4 * subsets * features <= 7 * wish.cells * wish.cells
    return ["subsets", "thresholds"] if fewer else ["thresholds", "subsets"]


def _subset_count(n: int, weights: list[float] | None) -> int:
    """How many subsets add something."""
    rows = coefficients_by_size(n, weights)
    sizes = [m for m, row in enumerate(rows, start=1) if any(row)]
    return sum(math.comb(n, m) for m in sizes)


def _thresholds(wish: _Wish, observer: Observer) -> tuple[OneLayerTransformer, float]:
    """The layer of fewest cells that the lemma proves, or the best one when rounding forbids eps."""

    def attempts() -> Iterator[tuple[OneLayerTransformer, float]]:
        cells = _cells(wish, wish.cells)
        for _ in range(ATTEMPTS):
            edges = _edges(wish, cells)
            model = threshold_layer(wish.n, edges, wish.weights, wish.dtype)
            upper = thresholds_error(model, wish.weights, wish.box)
            yield model, upper
            # Then rounding is in the way, not the number of cells.
            far = upper > 2 * wish.eps
            if upper <= wish.eps or far or observer.over:
                return
            cells = _cells(wish, cells * upper / wish.eps)

    return min(attempts(), key=lambda attempt: attempt[1])


def _cells(wish: _Wish, wanted: float) -> int:
    """The number of cells, if a layer of that many can be had."""
    levels = 2
    if wish.weights is not None:
        own, _ = relu_form(wish.weights)
        levels = max(1, len(own))
    # W_1 has a row per cell and a column per cell and level.
    limit = min(MAX_CELLS, math.isqrt(MAX_NUMBERS // levels))
    if not wanted <= limit:
        raise OnelayerError(
            f"eps {wish.eps:g} needs {wanted:.3g} thresholds, more than {limit:,}; use kind='subsets' or a larger eps"
        )
    return max(1, math.ceil(wanted))


def _edges(wish: _Wish, cells: int) -> Tensor:
    """lo = t_0 < ... < t_G >= hi, equally spaced up to the rounding of the format; t_0 need not be a number of it."""
    edges = linspace(wish.lo, wish.hi, cells + 1).to(wish.dtype)
    # The last ramp must end at or beyond hi, or a number there would be counted in part.
    if float(edges[-1]) < wish.hi:
        upwards = torch.tensor(torch.inf, dtype=wish.dtype, device="cpu")
        edges[-1] = torch.nextafter(edges[-1], upwards)
    steps = torch.cat([numbers([wish.lo]), edges[1:].double()])
    rising = (torch.diff(steps) > 0).all() and (torch.diff(edges) > 0).all()
    if not bool(rising):
        between = f"the {spelled(wish.dtype)} numbers of [{wish.lo!r}, {wish.hi!r}]"
        raise OnelayerError(f"{cells:,} thresholds do not fit between {between}; use a larger eps")
    return edges.double()


def _subsets(wish: _Wish, observer: Observer) -> tuple[OneLayerTransformer, float]:
    tolerance = SHARP_SHARE * wish.eps
    model = subset_layer(wish.n, wish.lo, wish.hi, tolerance, wish.weights, wish.dtype)
    observer.report("building", 0.5)
    return model, subsets_error(model, wish.weights, wish.box)
