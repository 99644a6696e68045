"""The judge: a claim against the truth at chosen points, f in balls and T as it runs, without any tolerance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from flint import arb, ctx
from torch import Tensor

from liar import places
from liar.expressions import (
    PRECISIONS,
    Expr,
    Unclear,
    Undefined,
    arguments_at_risk,
    ball_values,
    float_values,
    read_values,
)

Balls = Callable[[Sequence[float]], list[arb]]  # the outputs at one point, in the precision of the context
ALONE = 6
SMALL_BATCH = 5


@dataclass
class Tally:
    """What was tried and found. ``lies`` are false claims, ``rejections`` true ones that the checker denies."""

    count: Counter[str] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.count += other.count
        self.lies += other.lies
        self.rejections += other.rejections
        return self


@dataclass
class Truth:
    """f in balls; T as it runs in ``dtype``, or in balls for a claim about real arithmetic."""

    f: Balls
    execute: Callable[[Tensor], Tensor] | None = None
    dtype: torch.dtype = torch.float64
    real: Balls | None = None


def of_expression(*outputs: Expr) -> Balls:
    return lambda point: [ball_values(output, point) for output in outputs]


def of_text(*outputs: Expr) -> Balls:
    """The same for formula text, which is read with limits."""
    return lambda point: [read_values(output, point) for output in outputs]


def try_points(certificate: Any, truth: Truth, rng: Random, drawn: Sequence[Expr] = (), centres: Any = None) -> Tensor:
    """The adversarial points of a claim, (C, D): where formulas are delicate, where the proof is, and between."""
    box = certificate.domain
    low, high = box.lower.flatten(), box.upper.flatten()
    found = places.standard(low, high, rng, 36)
    found = torch.cat([found, places.marked(centres or {}, low, high, rng), places.of_proof(certificate, rng)])
    samples = low + (high - low) * torch.rand(
        128, len(low), dtype=torch.float64, generator=torch.Generator().manual_seed(rng.randrange(2**31))
    )
    for expression in drawn:
        for item in arguments_at_risk(expression)[:6]:
            found = torch.cat([found, places.zeros_of(item, low, high, samples)])
    found = places.representable(found, low, high, truth.dtype)
    if drawn and truth.execute is not None and len(found):

        def error(points: Tensor) -> Tensor:
            points = points.to(truth.dtype)
            assert truth.execute is not None
            run = truth.execute(points.reshape(-1, *box.shape)).double().reshape(len(points), -1)
            wanted = torch.stack([float_values(output, points) for output in drawn], -1)
            return (run - wanted).abs().amax(1)

        climbed = places.ascent(error, found, low, high, rng)
        found = torch.cat([found, places.representable(climbed, low, high, truth.dtype)])
    return found


@torch.no_grad()
def executions(truth: Truth, points: Tensor, shape: Sequence[int], rng: Random) -> list[list[list[float]]]:
    """For every point the outputs of T in one large batch, in small mixed batches, and for some alone."""
    assert truth.execute is not None
    x = points.to(truth.dtype).reshape(-1, *shape)

    def run(rows: Tensor) -> list[list[float]]:
        assert truth.execute is not None
        return truth.execute(rows.clone()).double().reshape(len(rows), -1).tolist()

    found = [[value] for value in run(x)]
    order = rng.sample(range(len(x)), len(x))[: 8 * SMALL_BATCH]
    for start in range(0, len(order), SMALL_BATCH):
        part = order[start : start + SMALL_BATCH]
        for at, value in zip(part, run(x[part]), strict=True):
            found[at].append(value)
    for at in order[:ALONE]:
        found[at] += run(x[at : at + 1])
    return found


def judge(certificate: Any, truth: Truth, points: Tensor, rng: Random) -> Tally:
    """Try upper at every point, lower at the witness, and the status against both."""
    tally = Tally()
    upper, eps = certificate.upper, certificate.eps
    if certificate.status == "proved" and eps is not None and not upper <= eps:
        tally.lies.append(f"proved with upper {upper} > eps {eps}")
    if certificate.status == "refuted" and not certificate.lower > eps:
        tally.lies.append(f"refuted with lower {certificate.lower} <= eps {eps}")
    tally.count[certificate.status] += 1
    if math.isfinite(upper) and len(points):
        tally.count["proofs"] += 1
        tally += _upper(certificate, truth, points, rng)
    if certificate.lower > 0:
        tally.count["witnesses"] += 1
        tally += _lower(certificate, truth)
    return tally


def _upper(certificate: Any, truth: Truth, points: Tensor, rng: Random) -> Tally:
    tally = Tally()
    shape = tuple(certificate.domain.shape)
    runs = executions(truth, points, shape, rng) if truth.execute is not None else [[] for _ in points]
    for point, values in zip(points.tolist(), runs, strict=True):
        tally.count["points"] += 1
        told = _false_at(certificate.upper, truth, point, values)
        if told == "unclear":
            tally.count["unclear"] += 1
        elif told:
            tally.lies.append(f"upper {certificate.upper!r} at {point}: {told}")
            break
    return tally


def _false_at(upper: float, truth: Truth, point: list[float], runs: list[list[float]]) -> str:
    """Empty where |T - f| <= upper, else what is wrong; "unclear" where no precision decides."""
    for run in runs:
        if not all(map(math.isfinite, run)):
            return f"T = {run}"
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            try:
                f = truth.f(point)
                t = [[arb(value) for value in run] for run in runs] if truth.real is None else [truth.real(point)]
            except Undefined as error:
                return f"undefined ({error})"
            except Unclear:
                continue
            if told := _miscounted(t, f):
                return told
            gaps = [abs(a - b) for run in t for a, b in zip(run, f, strict=True)]
            if all(gap <= arb(upper) for gap in gaps):
                return ""
            worst = next((gap for gap in gaps if gap > arb(upper)), None)
            if worst is not None:
                return f"|T - f| = {worst.str(8)}"
    return "unclear"


def _miscounted(runs: Sequence[Sequence[arb]], f: Sequence[arb]) -> str:
    """What is wrong where T has not as many outputs as f, else nothing."""
    counts = {len(run) for run in runs} - {len(f)}
    return f"{counts} outputs of T, {len(f)} of f" if counts else ""


def _lower(certificate: Any, truth: Truth) -> Tally:
    """lower <= |T - f| at the witness, which is a point of the box and of the format."""
    tally = Tally()
    box, point = certificate.domain, list(certificate.witness)
    x = torch.tensor([point], dtype=torch.float64)
    if not bool(box.contains(x.reshape(-1, *box.shape)).all()):
        tally.lies.append(f"witness {point} outside the box")
    if truth.real is None and not torch.equal(x.to(truth.dtype).double(), x):
        tally.lies.append(f"witness {point} is no point of {truth.dtype}")
    runs = _witnessed(truth, x.to(truth.dtype).reshape(-1, *box.shape)) if truth.real is None else []
    if not all(math.isfinite(value) for run in runs for value in run):
        return tally  # an error without a number is above every bound
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            try:
                f = truth.f(point)
                t = [truth.real(point)] if truth.real is not None else [[arb(value) for value in run] for run in runs]
            except Undefined as error:
                tally.lies.append(f"lower {certificate.lower!r} at {point}, where f is undefined ({error})")
                return tally
            except Unclear:
                continue
            if told := _miscounted(t, f):
                tally.lies.append(told)
                return tally
            gaps = [abs(a - b) for run in t for a, b in zip(run, f, strict=True)]
            if any(gap >= arb(certificate.lower) for gap in gaps):
                return tally
            if all(gap < arb(certificate.lower) for gap in gaps):
                size = max(float(gap.mid()) for gap in gaps)
                tally.lies.append(f"lower {certificate.lower!r} at {point}: |T - f| = {size!r}")
                return tally
    tally.count["unclear"] += 1
    return tally


def _witnessed(truth: Truth, x: Tensor) -> list[list[float]]:
    """Outputs of T at one point alone; stock modules run other code with gradients, to the last digit."""
    assert truth.execute is not None
    found = []
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found += truth.execute(x.clone()).detach().double().reshape(1, -1).tolist()
    return found
