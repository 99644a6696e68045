"""Folders against the checker: honest ones it must accept, forged ones it may accept only where they are true."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from flint import arb, ctx

import onelayer as ol
from liar import formulas, places
from liar.expressions import text, var
from liar.judge import Tally, Truth, judge, of_expression, try_points
from liar.layers import in_balls, random_layer
from liar.trips import SECONDS, round_trip, sober
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model, weights_sha256
from onelayer.proof.files import write_proof
from onelayer.proof.tree import BoxTree
from onelayer.result import Approximation

FEW = 8
FORMATS = [torch.float64, torch.float32, torch.float64, torch.float32, torch.float16, torch.bfloat16]
ENCLOSURES = 0.3  # share of the cases that try the checker's enclosures alone
Forgery = Callable[[Random, Any, Any, float], tuple[Any, Any]]  # (model, certificate, an error seen) -> both, forged


def checked(model: Any, certificate: Any) -> Any:
    """The checker's report on a folder with this model and this claim."""
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        # A forger writes files that the package itself would not: of weights in another format than the claim's.
        save_model(model, folder)
        write_proof(Path(folder), certificate)
        return sober(ol.check(folder, max_seconds=SECONDS))


def forged_folder(rng: Random, case: Any) -> Tally:
    """A random layer with its certificate, then the same with one thing changed and everything signed again."""
    dim, dtype = rng.choice([1, 1, 2]), rng.choice(FORMATS)
    low, high = places.ordinary(rng, dim)
    model = random_layer(rng, dim, dtype)
    shape = model.config.input_shape
    expression = formulas.smooth(rng, dim) if rng.random() < 0.8 else 0.0 * var(0)
    box = ol.Box(*(torch.tensor(side, dtype=torch.float64).reshape(shape) for side in (low, high)))
    case.words |= {"T": str(model), "f": text(expression), "low": low, "high": high}
    if rng.random() < ENCLOSURES:
        return checker_enclosures(rng, model, low, high)
    certificate = ol.certify(model, text(expression), box, max_boxes=8, max_seconds=SECONDS, order=3)
    truth = Truth(of_expression(expression), model, dtype)
    points = try_points(certificate, truth, rng, [expression])
    tally = judge(certificate, truth, points, rng)
    tally += _honest(model, certificate)
    tally += forge(rng, case, model, certificate, truth.f, points)
    return tally


def forge(rng: Random, case: Any, model: Any, certificate: Any, f: Any, points: torch.Tensor) -> Tally:
    """One forgery of a true claim: where the checker accepts it, it has to be true."""
    tally = Tally()
    if not len(points):
        return tally
    name = rng.choice(list(FORGERIES))
    case.words["forged"] = name
    seen = _largest_error(model, f, points[: 2 * FEW])
    model, forged = FORGERIES[name](rng, copy.deepcopy(model), certificate, seen)
    tally.count["forgeries"] += 1
    if not checked(model, forged).ok:
        return tally
    tally.count["accepted forgeries"] += 1
    execution = {f"{str(dtype).removeprefix('torch.')} execution": dtype for dtype in FORMATS}.get(forged.arithmetic)
    if execution is None:
        truth = Truth(f, None, torch.float64, lambda point: in_balls(model, point))
    else:
        truth = Truth(f, model.to(execution), execution)
    box = forged.domain
    inside = places.representable(points, box.lower.flatten(), box.upper.flatten(), truth.dtype)
    tally.lies += [f"accepted though {lie}" for lie in judge(forged, truth, inside, rng).lies]
    return tally


@torch.no_grad()
def _largest_error(model: Any, f: Any, points: torch.Tensor) -> float:
    """The largest finite |T - f| at a few points."""
    runs = model(points.to(model.dtype).reshape(-1, *model.config.input_shape)).double().reshape(len(points), -1)
    worst = 0.0
    for point, run in zip(points.tolist(), runs.tolist(), strict=True):
        gaps = [abs(t - float(value.mid())) for t, value in zip(run, f(point), strict=True)]
        worst = max([worst, *(gap for gap in gaps if math.isfinite(gap))])
    return worst


def _honest(model: Any, certificate: Any) -> Tally:
    if not math.isfinite(certificate.upper):
        return Tally()
    if model.config.layout == "tokens" and any(head.memory == "grid" for head in model.config.heads):
        return Tally()
    return round_trip(Approximation(model, certificate))


def checker_enclosures(rng: Random, model: Any, low: list[float], high: list[float]) -> Tally:
    """The checker's own Taylor arithmetic on the layer: range and rounding enclose what T returns, bit by bit."""
    tally = Tally()
    dtype = str(model.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        save_model(model, folder)
        stored = read_model(Path(folder))
    order = rng.randint(1, 6)
    ends = [torch.tensor(side, dtype=torch.float64) for side in (low, high)]
    points = places.representable(places.standard(*ends, rng, 24), *ends, model.dtype)
    if not len(points):
        return tally
    with torch.no_grad():
        runs = model(points.to(model.dtype).reshape(-1, *model.config.input_shape)).double().flatten().tolist()
    bits, cap = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 128, 40
    try:
        layer = Layer(stored, Execution.of(f"{dtype} execution", stored, (tuple(low), tuple(high))))
        x = [coordinate(i, a, b, order) for i, (a, b) in enumerate(zip(low, high, strict=True))]
        found = layer(x, Kinks())
        value, error = found.items[0].range(), found.errors[0]
        for point, run in zip(points.tolist(), runs, strict=True):
            if not (value.is_finite() and error.is_finite()):
                break
            tally.count["enclosures"] += 1
            if not math.isfinite(run) or abs(arb(run) - value.mid()) > arb(value.rad()) + error.abs_upper():
                tally.lies.append(f"checker encloses {value} +- {error} at order {order}, T({point}) = {run!r}")
                break
    finally:
        ctx.prec, ctx.cap = bits, cap
    return tally


def _claim(model: Any, certificate: Any, **changes: Any) -> tuple[Any, Any]:
    """The claim with some fields changed, signed for these weights, without a witness unless one is given."""
    plain = {"lower": 0.0, "witness": None, "weights_sha256": weights_sha256(model), "resisted": None}
    changes = plain | changes
    upper = changes.get("upper", certificate.upper)
    status = "proved" if math.isfinite(upper) else "undecided"
    changes = {"status": status, "eps": upper if status == "proved" else None, **changes}
    return model, replace(certificate, **changes)


def _smaller_upper(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    return _claim(model, certificate, upper=seen * rng.choice([0.0, 0.5, 0.9, 0.999999]))


def _one_box(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    proof = certificate.proof
    if proof is None:
        return _smaller_upper(rng, model, certificate, seen)
    tree = BoxTree(proof.lower, proof.upper, np.array([255], dtype=np.uint8))
    return _claim(model, certificate, proof=tree, boxes=1, upper=seen * rng.choice([0.999, 1.0, 1.1]))


def _other_weights(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    with torch.no_grad():
        weight = rng.choice(list(model.parameters())).view(-1)
        at = rng.randrange(len(weight))
        weight[at] = rng.choice([float(weight[at]) * 2, 0.0, float(weight[at]) + 1, -float(weight[at]), 1e30, 1e-40])
    return _claim(model, certificate)


def _rescaled(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    """The same real function with the numbers in between multiplied by a power of two that may overflow or vanish."""
    top = {torch.float64: 1020, torch.float16: 14}.get(model.dtype, 124)
    factor = 2.0 ** (rng.choice([-1, 1]) * rng.randint(top // 2, top))
    own, config = model.own, model.config
    with torch.no_grad():
        if config.hidden and rng.random() < 0.5:
            own("W_1").mul_(factor), own("b_1").mul_(factor), own("W_2").div_(factor)
        elif not config.residual and config.norm == "none" and config.layout == "packed" and rng.random() < 0.5:
            own("W_E").mul_(factor), own("b_E").mul_(factor), own("W_Q").div_(factor)
        elif not config.hidden and not config.residual and config.norm == "none":
            own("W_O").mul_(factor), own("b_O").mul_(factor), own("W_R").div_(factor)
        else:
            for h in range(len(config.heads)):
                memory = model.memory_of(h)
                if memory is not None and config.layout == "packed":
                    memory.values.mul_(factor)
            own("W_O").div_(factor)
    return _claim(model, certificate)


def _dead_unit(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    """A hidden unit that nothing reads and that overflows."""
    if not model.config.hidden:
        return _rescaled(rng, model, certificate, seen)
    with torch.no_grad():
        model.own("W_1")[:, 0] = torch.finfo(model.dtype).max * rng.choice([0.9, 0.5, 1e-3])
        model.own("W_2")[0] = 0.0
    return _claim(model, certificate)


def _other_format(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    other = rng.choice(["real", *(f"{name} execution" for name in ("float64", "float32", "float16", "bfloat16"))])
    if rng.random() < 0.5:
        model = model.to(rng.choice([dtype for dtype in FORMATS if dtype != model.dtype]))
    return _claim(model, certificate, arithmetic=other)


def _false_refutation(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    witness = tuple(certificate.domain.center.flatten().tolist())
    lower = seen * rng.choice([1.01, 2.0, 1e9]) + rng.choice([0.0, 1e300 if model.dtype == torch.float64 else 1e30])
    upper = rng.choice([math.inf, lower * 2])
    return _claim(model, certificate, status="refuted", eps=lower / 2, lower=lower, upper=upper, witness=witness)


def _normalised_overflow(rng: Random, model: Any, certificate: Any, seen: float) -> tuple[Any, Any]:
    """Before a norm the scale of the stream does not matter, to real numbers."""
    if model.config.norm == "post":
        with torch.no_grad():
            factor = 2.0 ** rng.choice([60, 70, 520] if model.dtype == torch.float64 else [60, 70])
            for name in ("W_O", "b_O") if not model.config.residual else ("W_E", "b_E", "W_O", "b_O"):
                model.own(name).mul_(factor)
            if model.config.residual and model.config.layout == "packed":
                model.own("W_Q").div_(factor)
    return _claim(model, certificate)


FORGERIES: dict[str, Forgery] = {
    "smaller upper": _smaller_upper,
    "one box": _one_box,
    "other weights": _other_weights,
    "rescaled": _rescaled,
    "dead unit": _dead_unit,
    "other format": _other_format,
    "false refutation": _false_refutation,
    "normalised overflow": _normalised_overflow,
}
