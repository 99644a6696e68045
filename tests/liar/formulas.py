"""Random formulas: ordinary ones, and ones built to hurt.

A spike is a bounded function that is zero, to any sample, everywhere but at one point. Multiplied onto an expression
whose enclosure is wrong it shows nothing to a search by points; the liar knows the point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from liar.expressions import RULES, Expr, call, lift, var

FUNCTIONS = tuple(name for name, rule in RULES.items() if rule.text == f"{name}({{0}})")
NUMBERS = [0.0, 1.0, 2.0, 0.5, 0.1, 3.0, 1e-3, 1e3, 7.0, 1e-8, 1e8, 1 / 3, 1e-160, 1e150, 1e-300, 16777217.0]
EXPONENTS = [2, 3, 4, 5, -1, -2, -3, 7, 8, 33, 0.5, 1.5, -0.5, 0, 1.7]
BOUNDED = ("tanh", "sigmoid", "atan", "erf", "sin", "cos")


@dataclass
class Drawn:
    """An expression, what it is away from its spike, and the points (by coordinate) at which it was meant to hurt."""

    expression: Expr
    rest: Expr = field(default_factory=lambda: 0.0 * var(0))
    centres: dict[int, list[float]] = field(default_factory=dict)

    def mark(self, axis: int, centre: float) -> None:
        self.centres.setdefault(axis, []).append(centre)


def tree(rng: Random, dim: int, depth: int) -> Expr:
    """A random tree over everything the language knows."""
    kind = rng.random()
    if depth == 0 or kind < 0.12:
        if rng.random() < 0.75:
            return var(rng.randrange(dim))
        return Expr(rng.choice(("pi", "e"))) if rng.random() < 0.15 else lift(rng.choice(NUMBERS))
    if kind < 0.45:
        return call(rng.choice(FUNCTIONS), tree(rng, dim, depth - 1))
    if kind < 0.85:
        op = rng.choice(("add", "sub", "mul", "add", "sub", "mul", "div"))
        return call(op, tree(rng, dim, depth - 1), tree(rng, dim, depth - 1))
    if kind < 0.93:
        return tree(rng, dim, depth - 1) ** rng.choice(EXPONENTS)
    if kind < 0.95:
        return call("where", tree(rng, dim, depth - 1), smooth(rng, dim), smooth(rng, dim))
    return call(rng.choice(("min", "max", "hypot")), tree(rng, dim, depth - 1), tree(rng, dim, depth - 1))


def smooth(rng: Random, dim: int) -> Expr:
    """A smooth bounded function, the body of most attacks."""
    i, j = var(rng.randrange(dim)), var(rng.randrange(dim))
    a = round(rng.uniform(-2, 2), 3)
    choices = [i * a, i * j, call("sin", a * i + j), call("exp", i * 0.3), call("tanh", i - j), i * i - j, lift(1.0)]
    return rng.choice(choices) + rng.choice([lift(0.0), call("cos", j), lift(1.0)])


def spike(rng: Random, x: Expr, centre: float) -> Expr:
    """1 at the centre, 0 in every bound that a sample gives: 1 - tanh(k (x - c))^2 or exp(-(k (x - c))^2)."""
    sharpness = rng.choice([1e6, 1e8, 1e8, 1e10, 1e12]) / max(abs(centre), 1e-3)
    u = sharpness * (x - centre)
    return rng.choice([1.0 - call("tanh", u) ** 2, call("exp", -(u**2)), 1.0 / (1.0 + u**2)])


def lost_product(rng: Random, x: Expr, low: float, high: float) -> Expr:
    """A product of order one whose partial products leave the range of the floats, in one direction or the other."""
    size = max(abs(low), abs(high), 1e-3)
    if rng.random() < 0.5:
        sign = rng.choice([-1, 1])
        steps = [sign * rng.choice([300, 500, 700]) / size for _ in range(2)]
        rest = -sum(steps)
        share = rng.choice([0.3, 0.5, 0.7])
        factors = [call("exp", step * x) for step in (*steps, rest * share, rest * (1 - share))]
    else:
        power = rng.choice([160, 200, 300])
        tiny, huge = lift(float(f"1e-{power}")), lift(float(f"1e{power}"))
        factors = rng.choice([[tiny * x, tiny, huge, huge], [tiny, tiny * x, huge, huge], [huge, tiny, tiny * x, huge]])
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def hole(rng: Random, x: Expr, centre: float) -> Expr:
    """Something without a value at the centre, or beyond it."""
    d = x - centre
    return rng.choice([1.0 / d, call("log", d), call("sqrt", -(d * d) - 1e-30), call("log", d * d), d / d, d**-2])


def hole_zeroed(rng: Random, x: Expr, centre: float) -> Expr:
    """A hole hidden by a zero, or by cancellation."""
    d, u = x - centre, hole(rng, x, centre)
    return rng.choice([0.0 * u, u * 0.0, lift(0.0) / d, u - u, u**0, call("sqrt", -(d * d))])


def hole_bounded(rng: Random, x: Expr, centre: float) -> Expr:
    """A hole hidden by a bounded function."""
    u = hole(rng, x, centre)
    clipped = call("min", 0.5, call("max", u, -0.5))
    return rng.choice([call(rng.choice(BOUNDED), u), clipped, 1.0 / (1.0 + u * u), call("exp", -(u**2))])


def cancelled(rng: Random, u: Expr) -> Expr:
    """u again, by a detour that loses digits."""
    big = lift(rng.choice([1e8, 1e16, 1e150]))
    return rng.choice(
        [
            (u + big) - big,
            (u * big) / big,
            call("log", call("exp", u)),
            call("sqrt", u * u),
            (u + 2.0) ** 2 - (u * u + 4.0 * u),
            call("exp", u) * call("exp", -u) * u,
        ]
    )


def centre_in(rng: Random, low: float, high: float, dtype_bits: int = 53) -> float:
    """A point of the interval that the executing format holds, rarely a round one."""
    share = rng.choice([rng.random(), rng.random(), 0.5, 0.0, 1.0])
    value = min(max(low + share * (high - low), low), high)
    if dtype_bits == 24 and value:
        scale = 2.0 ** (math.frexp(value)[1] - 24)
        rounded = math.floor(value / scale) * scale if scale else value
        value = rounded if low <= rounded <= high else value
    return value


def bent(rng: Random, low: list[float], high: list[float]) -> Drawn:
    """A function of a kink, as steep as some boxes are narrow: their middle may lie beyond all values beside it."""
    axis = rng.randrange(len(low))
    x, centre, width = var(axis), centre_in(rng, low[axis], high[axis]), high[axis] - low[axis]
    u = 10 ** rng.uniform(0, 12) / max(width, 1e-300) * (x - centre)
    kink = rng.choice([call("abs", u), call("relu", u), call("max", u, -0.3 * u)])
    a = rng.choice([0.01, 0.1, 1.0])
    curves = [call("exp", -kink), call("log", kink + a), call("sqrt", kink + a), 1.0 / (kink + a), call("atan", kink)]
    curve = rng.choice([*curves, call("tanh", kink), (kink + a) ** 1.7, call("lgamma", kink + a)])
    drawn = Drawn(curve * rng.choice([lift(1.0), smooth(rng, len(low))]))
    drawn.mark(axis, centre)
    return drawn


KINDS = {  # with weights
    "tree": 8.0,
    "lost_product": 4.0,
    "hole_zeroed": 1.5,
    "hole_bounded": 1.5,
    "cancelled": 2.0,
    "spiked": 1.5,
    "bump": 1.5,
}


def attack(rng: Random, low: list[float], high: list[float], bits: int = 53) -> Drawn:
    """A formula on the box, one of the kinds above."""
    dim, axis = len(low), rng.randrange(len(low))
    x, centre = var(axis), centre_in(rng, low[axis], high[axis], bits)
    body = smooth(rng, dim)
    match rng.choices(list(KINDS), list(KINDS.values()))[0]:
        case "tree":
            return Drawn(tree(rng, dim, rng.randint(1, 4)))
        case "lost_product":
            product = lost_product(rng, x, low[axis], high[axis]) * spike(rng, x, centre)
            drawn = Drawn(product + body, body) if rng.random() < 0.5 else Drawn(product)
        case "hole_zeroed":
            drawn = Drawn(body + hole_zeroed(rng, x, centre), body)
        case "hole_bounded":
            drawn = Drawn(body + hole_bounded(rng, x, centre), body)
        case "cancelled":
            drawn = Drawn(cancelled(rng, body) * spike(rng, x, centre))
        case "spiked":
            drawn = Drawn(tree(rng, dim, 2) * spike(rng, x, centre))
        case _:
            drawn = Drawn(body + spike(rng, x, centre) * rng.choice([1.0, 1e-3, 1e3]), body)
    drawn.mark(axis, centre)
    return drawn


def kinked(rng: Random, dim: int) -> Expr:
    """Kinks, quotients and roots such as constructions meet."""
    x, y = var(rng.randrange(dim)), var(rng.randrange(dim))
    line = rng.choice([x - 0.5, 2.0 * x - y, x + y + 0.1, 0.3 * x - 1.0])
    return rng.choice(
        [
            call("abs", line),
            call("relu", line) * 0.5 + call("abs", call("abs", 2.0 * x - 1.0) - 0.3),
            call("max", line, y),
            x / (2.5 + y),
            call("sqrt", x + 2.0),
            call("hypot", x, 0.5),
            call("tanh", 3.0 * x) + y,
            x**3,
        ]
    )


def pieces(rng: Random, dim: int) -> Expr:
    """Nested minima and maxima of affine forms, such as sharp heads choose among."""

    def affine() -> Expr:
        total = lift(rng.choice([0.0, 0.25, -0.3, 0.7]))
        for at in range(dim):
            total = total + rng.choice([-1.0, 0.5, 2.0, 0.0]) * var(at)
        return total

    def nested(depth: int) -> Expr:
        if depth == 0:
            return affine()
        return call(rng.choice(["min", "max"]), nested(depth - 1), nested(rng.randrange(depth)))

    return rng.choice([nested(2), nested(3), call("abs", nested(2)) - call("relu", affine())])
