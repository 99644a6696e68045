"""Random proofs of further kinds for the round trip: any layer, formats, layouts, slopes, refutations, extremes."""

from __future__ import annotations

from random import Random

import numpy as np
import torch

import onelayer as ol
from liar import formulas, places
from liar.expressions import text
from liar.layers import random_layer
from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sort import sort
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.result import Approximation

FORMATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SECONDS = 10.0


def drawn(rng: Random, dim: int) -> str:
    """Formula text: smooth, with a kink, or pieces of lines."""
    return text(rng.choice([formulas.smooth, formulas.smooth, formulas.kinked, formulas.pieces])(rng, dim))


def near(rng: Random, dim: int) -> Box:
    return Box(*places.ordinary(rng, dim))


def any_layer(rng: Random) -> Approximation:
    """Every attention, embedding and format, extreme weights among them, executed or in real arithmetic."""
    dim, dtype = rng.choice([1, 1, 2]), rng.choice(FORMATS)
    model = random_layer(rng, dim, dtype)
    if model.config.layout == "tokens" and any(head.memory == "grid" for head in model.config.heads):
        raise OnelayerError("grid memory beside tokens is no matter of the checker")
    sides = (torch.tensor(side, dtype=torch.float64) for side in places.ordinary(rng, dim))
    box = Box(*(side.reshape(model.config.input_shape) for side in sides))
    execution = rng.choice(["model dtype", "model dtype", "real"]) if dtype in FORMATS[:2] else "model dtype"
    limits = {"max_boxes": rng.choice([4, 8, 40]), "max_seconds": SECONDS, "order": rng.choice([None, 2, 3, 4])}
    found = certify(model, drawn(rng, dim), box, rng.choice([None, None, 0.5, 1e-3]), execution=execution, **limits)
    return Approximation(model, found)


def narrow(rng: Random) -> Approximation:
    dim, dtype = rng.choice([1, 1, 2]), rng.choice(["float16", "bfloat16", "int8"])
    return approximate(drawn(rng, dim), near(rng, dim), rng.choice([0.3, 0.1, 0.03]), dtype=dtype, max_seconds=SECONDS)


def laid_out(rng: Random) -> Approximation:
    """approximate in a layout that is asked for, functions of two outputs among them."""
    dim, dtype = rng.choice([1, 2, 2, 3]), rng.choice(FORMATS[:2])
    layout, f = rng.choice(["packed", "tokens", "tokens", "pieces"]), drawn(rng, dim)
    if layout == "pieces":
        f = text(formulas.pieces(rng, dim))
    elif rng.random() < 0.2:
        f = f"{f}; {drawn(rng, dim)}"
    return approximate(f, near(rng, dim), rng.choice([0.3, 0.1]), layout=layout, dtype=dtype, max_seconds=SECONDS)


def sloped(rng: Random) -> Certificate:
    """The second certificate of a layer whose slopes are proved too."""
    dim = rng.choice([1, 1, 2])
    f = text(formulas.smooth(rng, dim))
    made = approximate(f, near(rng, dim), 0.1, gradient_eps=rng.choice([1.0, 0.3]), max_seconds=SECONDS)
    if made.gradient is None:
        raise OnelayerError("no slopes were proved")
    return made.gradient


def of_layer(rng: Random) -> Certificate:
    """Slopes and curvature of a layer of this package, in every norm."""
    dim = rng.choice([1, 2])
    model, box = random_layer(rng, dim, rng.choice(FORMATS[:2])), near(rng, dim)
    limits = {"max_boxes": 20, "max_seconds": SECONDS, "order": rng.choice([2, 3, 4])}
    kind = rng.choice(["lipschitz", "lipschitz", "convex", "range"])
    if kind == "convex":
        return ol.convex(model, box, **limits).certificate
    if kind == "range":
        found = ol.bound(model, box, gap=0.1, **limits).certificate
        if found is None:
            raise OnelayerError("no range was proved")
        return found
    return ol.lipschitz(model, box, rng.choice([None, 1.0]), norm=rng.choice(["inf", 1, 2]), gap=0.3, **limits)


def refuted(rng: Random) -> Approximation:
    """A layer that was built for f, and is said to be f's neighbour, or nearer than it is."""
    dim = rng.choice([1, 1, 2])
    f, box = text(formulas.smooth(rng, dim)), near(rng, dim)
    made = approximate(f, box, 0.1, dtype=rng.choice(FORMATS[:2]), max_seconds=SECONDS)
    other = rng.choice([f"{f} + 0.2", f"({f})*1.5", f, f"{f} + 0.05*sin(30*x1)"])
    execution, eps = rng.choice(["model dtype", "real"]), rng.choice([1e-9, 1e-3, 0.05, 0.1])
    found = certify(made.model, other, box, eps, execution=execution, max_boxes=200, max_seconds=SECONDS)
    return Approximation(made.model, found)


def hurt(rng: Random) -> Approximation:
    """approximate on functions with spikes, holes and products that lose their digits, on boxes of every size."""
    dim = rng.choice([1, 1, 2])
    low, high = (places.ordinary if rng.random() < 0.7 else places.sides)(rng, dim)
    f = text(formulas.attack(rng, low, high).expression)
    eps, dtype = rng.choice([0.1, 0.01]), rng.choice(FORMATS[:2])
    return approximate(f, Box(low, high), eps, dtype=dtype, max_boxes=2000, max_seconds=3.0)


def extreme(rng: Random) -> Approximation:
    """Sorting and tables of numbers at the ends of the floats."""
    if rng.random() < 0.5:
        low = rng.choice([0.0, -1.0, 1e3, -8e307, 1e-320])
        high = low + rng.choice([1.0, 1e-3, abs(low)])
        kind, share = rng.choice(["thresholds", "subsets"]), rng.choice([5, 20])
        return sort(rng.randint(2, 5), low, high, (high - low) / share, kind=kind, dtype=rng.choice(FORMATS[:2]))
    draw = np.random.default_rng(rng.randrange(10**6))
    x = np.unique(draw.normal(size=(rng.randint(1, 30), rng.randint(1, 3))) * rng.choice([1e-150, 1e-6, 1e30]), axis=0)
    y = draw.normal(size=(len(x), rng.randint(1, 2))) * rng.choice([1e-5, 1.0, 1e8])
    return memorize(x, y, recipe=rng.choice(["softmax", "relu"]))


METHODS = {
    "layer": any_layer,
    "narrow": narrow,
    "layout": laid_out,
    "slopes": sloped,
    "claim of a layer": of_layer,
    "refuted": refuted,
    "hurt": hurt,
    "extreme": extreme,
}
# How many are tried in the quick suite.
QUICK = {"layer": 8, "narrow": 4, "layout": 3, "slopes": 2, "claim of a layer": 5, "refuted": 4, "hurt": 3}
QUICK |= {"extreme": 12}
