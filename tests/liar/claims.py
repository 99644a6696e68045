"""Claims beyond |T - f| against what follows from them at points, which needs no derivative and no tolerance.

A range holds executed values; a condition holds of them. |T(x) - T(y)| <= L |x - y| of a Lipschitz constant, T(y) >=
T(x) of a slope that is not negative, |(T - f)(y) - (T - f)(x)| <= E |y - x| of slopes that differ by E at most, and a
chord that is not below of convexity: all in balls, for y next to x and far from it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from flint import arb, ctx
from torch import Tensor, nn

import onelayer as ol
from liar import formulas, places
from liar.expressions import PRECISIONS, Expr, Unclear, Undefined, as_code, ball_values, text, torch_code
from liar.judge import Tally

SECONDS = 6.0
NEAR = [2.0**-20, 2.0**-60, 2.0**-200]  # of the width of the box, at 400 bits and more
Broken = Callable[["Drawn"], str]  # what is false, or nothing


class Code(nn.Module):
    """Torch code as a module in a format; the buffer gives it one."""

    def __init__(self, code: Callable[[Any], Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.code = code
        self.weight = nn.Parameter(torch.ones(1, dtype=dtype), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return self.code(x)


class Drawn:
    """T as a tree, as a module, and a box with points."""

    def __init__(self, rng: Random, case: Any) -> None:
        self.rng, dim = rng, rng.choice([1, 1, 2])
        self.low, self.high = (places.ordinary if rng.random() < 0.7 else places.sides)(rng, dim)
        self.dtype = rng.choice([torch.float64, torch.float64, torch.float32])
        bits = 24 if self.dtype == torch.float32 else 53
        drawn = formulas.attack(rng, self.low, self.high, bits) if rng.random() < 0.6 else None
        self.tree: Expr = as_code(formulas.smooth(rng, dim) if drawn is None else drawn.expression)
        self.centres = {} if drawn is None else drawn.centres
        self.model = Code(torch_code(self.tree), self.dtype)
        self.box = ol.Box(self.low, self.high)
        case.words |= {"T": text(self.tree), "low": self.low, "high": self.high, "dtype": str(self.dtype)}

    @property
    def dim(self) -> int:
        return len(self.low)

    def points(self, dtype: torch.dtype | None = None) -> Tensor:
        """Some points of the box in a format, those that were meant to hurt among them."""
        low, high = (torch.tensor(side, dtype=torch.float64) for side in (self.low, self.high))
        found = torch.cat([places.standard(low, high, self.rng, 24), places.marked(self.centres, low, high, self.rng)])
        return places.representable(found, low, high, dtype or self.dtype)

    def pairs(self) -> list[tuple[list[arb], list[arb], int, arb]]:
        """Points x, y of the box that differ in one coordinate by h > 0."""
        found = []
        for point in self.points(torch.float64).tolist()[:40]:
            axis = self.rng.randrange(self.dim)
            width = self.high[axis] - self.low[axis]
            h = arb(width) * arb(self.rng.choice([*NEAR, 0.25]))
            x, y = [arb(v) for v in point], [arb(v) for v in point]
            y[axis] = x[axis] + h
            if y[axis] > arb(self.high[axis]):
                x[axis], y[axis] = x[axis] - h, arb(point[axis])
            if h > 0 and not x[axis] < arb(self.low[axis]):
                found.append((x, y, axis, h))
        return found


def value(tree: Expr, point: Sequence[arb]) -> arb:
    """T at a point of balls."""
    return ball_values(tree, point)  # type: ignore[arg-type]


def decided(test: Callable[[], bool | None]) -> bool | None:
    """The answer of the first precision that has one; None where none has, False also where T has no value."""
    for bits in PRECISIONS[:2]:
        with ctx.workprec(bits):
            try:
                answer = test()
            except Undefined:
                return False
            except Unclear:
                continue
            if answer is not None:
                return answer
    return None


def compared(a: arb, b: arb) -> bool | None:
    """Whether a <= b, where the balls tell."""
    return True if a <= b else False if a > b else None


def first_false(drawn: Drawn, test: Callable[[list[arb], list[arb], int, arb], bool | None]) -> str:
    """The first pair at which a consequence of a claim is false."""
    with ctx.workprec(PRECISIONS[0]):
        pairs = drawn.pairs()
    for x, y, axis, h in pairs:
        if decided(lambda: test(x, y, axis, h)) is False:  # noqa: B023
            return f"x{axis + 1} from {[v.str(12) for v in x]} by {h.str(5)}"
    return ""


def lipschitz(drawn: Drawn, claim: Any) -> str:
    return first_false(
        drawn, lambda x, y, axis, h: compared(abs(value(drawn.tree, y) - value(drawn.tree, x)), arb(claim.upper) * h)
    )


def slopes_of(f: Expr) -> Callable[[Drawn, Any], str]:
    def test(drawn: Drawn, claim: Any) -> str:
        rest = drawn.tree - f
        return first_false(
            drawn, lambda x, y, axis, h: compared(abs(value(rest, y) - value(rest, x)), arb(claim.upper) * h)
        )

    return test


def rising(axis: int, sign: int) -> Callable[[Drawn, Any], str]:
    def test(drawn: Drawn, claim: Any) -> str:
        def risen(x: list[arb], y: list[arb], at: int, h: arb) -> bool | None:
            return True if at != axis else compared(sign * value(drawn.tree, x), sign * value(drawn.tree, y))

        return "" if claim.status != "proved" else first_false(drawn, risen)

    return test


def convex(drawn: Drawn, claim: Any) -> str:
    def below(x: list[arb], y: list[arb], at: int, h: arb) -> bool | None:
        middle = [(a + b) / 2 for a, b in zip(x, y, strict=True)]
        return compared(2 * value(drawn.tree, middle), value(drawn.tree, x) + value(drawn.tree, y))

    return "" if claim.status != "proved" else first_false(drawn, below)


@torch.no_grad()
def executed(drawn: Drawn) -> list[tuple[list[float], float]]:
    points = drawn.points()
    runs = drawn.model(points.to(drawn.dtype)).double().reshape(-1).tolist()
    return list(zip(points.tolist(), runs, strict=True))


def ranged(drawn: Drawn, claim: Any) -> str:
    low, high = float(claim.low), float(claim.high)
    wrong = [(p, v) for p, v in executed(drawn) if math.isfinite(low) and math.isfinite(high) and not low <= v <= high]
    return f"T{wrong[0][0]} = {wrong[0][1]!r}" if wrong else ""


def holding(holds: Callable[[float], bool]) -> Callable[[Drawn, Any], str]:
    def test(drawn: Drawn, claim: Any) -> str:
        if claim.status == "proved":
            wrong = [(p, v) for p, v in executed(drawn) if not holds(v)]
            return f"T{wrong[0][0]} = {wrong[0][1]!r}" if wrong else ""
        if claim.status == "refuted":
            with torch.no_grad():
                x = torch.tensor([claim.witness], dtype=drawn.dtype)
                v = float(drawn.model(x)[0])
            return f"it holds at the witness {claim.witness}: {v!r}" if holds(v) else ""
        return ""

    return test


def apart(other: Callable[[Tensor], Tensor]) -> Callable[[Drawn, Any], str]:
    @torch.no_grad()
    def test(drawn: Drawn, claim: Any) -> str:
        points = drawn.points()
        both = [model(points.to(drawn.dtype)).double().reshape(-1).tolist() for model in (drawn.model, other)]
        for point, a, b in zip(points.tolist(), *both, strict=True):
            if math.isfinite(claim.upper) and not abs(arb(a) - arb(b)) <= arb(claim.upper):
                return f"|A - B| at {point}: {a!r}, {b!r}"
        return ""

    return test


def asked(drawn: Drawn, kind: str, case: Any) -> tuple[Callable[[], Any], Callable[[Drawn, Any], str]]:
    """How a claim of a kind is made, and how it is tried."""
    rng, model, box = drawn.rng, drawn.model, drawn.box
    options = {"max_seconds": SECONDS, "max_boxes": rng.choice([8, 40]), "order": rng.choice([2, 3, 4, None])}
    axis, sign = rng.randrange(drawn.dim), rng.choice([1, -1])
    level = rng.choice([0.0, 0.1, 1.0, -1.0, 1e-3])
    op = rng.choice(["<=", ">=", "<", ">"])
    case.words |= {"claim": kind, "axis": axis, "sign": sign, "condition": f"y1 {op} {level!r}"}
    tests: dict[str, Callable[[float], bool]] = {
        "<=": lambda v: v <= level,
        ">=": lambda v: v >= level,
        "<": lambda v: v < level,
        ">": lambda v: v > level,
    }
    f = formulas.smooth(rng, drawn.dim)
    other = Code(torch_code(drawn.tree * rng.choice([1.0, 1.0000001, 0.9]) + rng.choice([0.0, 1e-9])), drawn.dtype)
    case.words["f"] = text(f)
    kinds: dict[str, tuple[Callable[[], Any], Callable[[Drawn, Any], str]]] = {
        "bound": (lambda: ol.bound(model, box, **options), ranged),
        "lipschitz": (lambda: ol.lipschitz(model, box, norm=rng.choice(["inf", 1, 2]), **options), lipschitz),
        "gradient_error": (lambda: ol.gradient_error(model, text(f), box, **options), slopes_of(f)),
        "monotone": (
            lambda: ol.monotone(model, box, {f"x{axis + 1}": "+" if sign > 0 else "-"}, **options),
            rising(axis, sign),
        ),
        "convex": (lambda: ol.convex(model, box, **options), convex),
        "prove": (lambda: ol.prove(model, box, f"y1 {op} {level!r}", **options), holding(tests[op])),
        "equivalent": (lambda: ol.equivalent(model, other, box, **options), apart(other)),
    }
    return kinds[kind]


CLAIMS = ("bound", "lipschitz", "gradient_error", "monotone", "convex", "prove", "equivalent")


def one_claim(rng: Random, case: Any) -> Tally:
    """A claim about random code, tried; then saved and checked; then forged and checked."""
    drawn, kind = Drawn(rng, case), rng.choice(CLAIMS)
    make, broken = asked(drawn, kind, case)
    claim = make()
    tally = Tally()
    tally.count["proofs"] += int(claim.status == "proved" or math.isfinite(claim.upper))
    told = broken(drawn, claim) if math.isfinite(claim.upper) or claim.status != "undecided" else ""
    if told:
        tally.lies.append(f"{kind} {claim}: {told}")
    if claim.status == "proved" and rng.random() < 0.3:
        tally += saved_and_forged(drawn, kind, claim, broken)
    return tally


def saved_and_forged(drawn: Drawn, kind: str, claim: Any, broken: Callable[[Drawn, Any], str]) -> Tally:
    """The checker accepts the claim, or time ends; the claim made stronger it accepts only where that is true."""
    from liar.trips import sober, trip

    tally = Tally()
    certificate = getattr(claim, "certificate", claim)
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        try:
            place = certificate.save(Path(folder) / "claim")
        except ol.OnelayerError:  # code that no network says
            return tally
        tally += trip(place, f"{kind} {claim}", SECONDS)
        changed, forged = stronger(drawn.rng, kind, claim)
        if forged is None:
            return tally
        tally.count["forgeries"] += 1
        report = sober(ol.check(forged.save(Path(folder) / "forged"), max_seconds=SECONDS))
    told = broken(drawn, changed) if report.ok else ""
    if told:
        tally.lies.append(f"accepted though {kind} {changed}: {told}")
    return tally


def stronger(rng: Random, kind: str, claim: Any) -> tuple[Any, Any]:
    """The claim as it would be with less, and a certificate that says so."""
    certificate = getattr(claim, "certificate", claim)
    if kind in ("lipschitz", "gradient_error", "equivalent"):
        less = certificate.upper * rng.choice([0.5, 0.9, 0.0])
        changed = replace(certificate, upper=less, lower=0.0, witness=None, eps=less)
        return changed, changed
    if kind == "bound":
        middle, width = (claim.low + claim.high) / 2, (claim.high - claim.low) * rng.choice([0.2, 0.45])
        about = {"kind": "range", "low": [float(middle - width)], "high": [float(middle + width)]}
        changed = replace(claim, low=middle - width, high=middle + width)
        return changed, None if about["low"] >= about["high"] else replace(certificate, about=about)
    if kind == "monotone":
        signs = [-sign for sign in certificate.about["signs"]]
        about = {**certificate.about, "signs": signs}
        return claim, _worded(certificate, about)
    return claim, None


def _worded(certificate: Any, about: dict[str, Any]) -> Any:
    from onelayer.proof.about import words

    return replace(certificate, about=about, claim=words(about))
