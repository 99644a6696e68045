"""Random proofs of every method for round trips: whatever the package proves, its checker should accept.

Functions of one variable and several, layers of every kind and format, sorting, tables, compositions, superpositions,
claims about networks, slopes, refutations, and numbers at the ends of the floats.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

import onelayer as ol
from liar import formulas, places
from liar.expressions import text
from liar.layers import random_layer
from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, minimum, order_statistic, sort, top_k_sum
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.result import Approximation

Proof = Approximation | Certificate
FORMATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SECONDS = 10.0
SMOOTH = ["sin({})", "cos({})", "exp({})", "tanh({})", "1/(2 + ({})**2)", "sqrt(1.5 + sin({}))", "atan({})", "erf({})"]
KINKED = ["abs({})", "relu({})", "max({}, 0.2)", "min({}, sigmoid({}))", "log(2 + cos({}))", "abs(abs({}) - 0.3)"]
LINES = [
    "sqrt(x1 + 1)",
    "x1*abs(x1)",
    "abs(x1)**3",
    "1/(x1 + 1.5)",
    "log(x1 + 1.25)",
    "x1**5 - x1",
    "sin(4*x1)*exp(x1)",
]
SEQUENCES = ["x1*x2", "exp(x1 + x2)", "sin(x1) + cos(x2)", "abs(x1 + x2) + x1", "x1*x2; sin(x1)", "(x1 - x2)**2"]
SUMS = [
    "log(exp(x1) + exp(x2) + exp(x3))",
    "hypot(x1, x2, x3)",
    "exp(x1 + 2*x2)",
    "(sin(x1) + sin(x2) + sin(x3))**2",
    "exp(-(x1**2 + x2**2))",
    "cos(x1) + sqrt(2 + x2 + x3)",
]
LAWS = [
    "x1*x2/x3",
    "x1*exp(-x2)*sin(x3)",
    "sqrt(x1**2 + x2**2)",
    "x1/(1 + x2*x3)",
    "1/sqrt(1 - x1**2/(9*x2**2))",
    "x1*x2*x3*x4",
    "exp(-(x1 - x2)**2/x3)",
    "abs(x1 - x2) + x3*x1",
    "max(x1, x2, x3)",
    "x1**2 + x2**2 - 2*x1*x2*cos(x3)",
]
NORMS = ["none", "pre", "post"]


def dtype_of(rng: Random) -> torch.dtype:
    return rng.choice([torch.float64, torch.float64, torch.float32])


def interval(rng: Random) -> tuple[float, float]:
    low = rng.choice([-1.0, 0.0, -0.7, 0.25, round(rng.uniform(-1, 1), 2)])
    return low, low + rng.choice([0.25, 1.0, 1.3, round(rng.uniform(0.1, 2), 2)])


def formula(rng: Random, dim: int, depth: int) -> str:
    if depth == 0:
        return " + ".join(f"{rng.uniform(-2, 2):.3g}*x{i + 1}" for i in range(dim)) + f" - {rng.uniform(0, 1):.2g}"
    inner = formula(rng, dim, depth - 1)
    pattern = rng.choice(SMOOTH + SMOOTH + KINKED)
    outer = pattern.format(*[inner] * pattern.count("{}"))
    return rng.choice([outer, outer, f"{outer} * x{rng.randint(1, dim)}", f"{outer} - {rng.uniform(0, 1):.2f}*x1**3"])


def built(rng: Random) -> Approximation:
    """approximate on a function of one or two variables."""
    dtype = dtype_of(rng)
    eps = 10.0 ** -rng.randint(1, 4 if dtype == torch.float64 else 3)
    if rng.random() < 0.4:
        low = rng.choice([-1.0, -1.0, -0.5, 0.0])
        return approximate(rng.choice(LINES), Box([low], [low + rng.choice([0.3, 1.0, 1.3])]), eps, dtype=dtype)
    dim = rng.choice([1, 1, 2])
    sides = [interval(rng) for _ in range(dim)]
    box = Box([a for a, _ in sides], [b for _, b in sides])
    return approximate(formula(rng, dim, 1), box, 10 * eps, dtype=dtype, max_seconds=20)


def certified(rng: Random) -> Approximation:
    """A random layer against a random formula: packed or tokens, every norm and read-out, real or executed."""
    dim, dtype = rng.choice([1, 2]), dtype_of(rng)
    options = {"hidden": rng.choice([0, 3]), "residual": rng.random() < 0.5, "norm": rng.choice(NORMS)}
    seed = rng.randrange(999)
    torch.manual_seed(seed)
    if rng.random() < 0.5:
        memory = [
            PlainMemory(2 * torch.randn(3, 2).to(dtype), torch.randn(3, 2).to(dtype)) for _ in range(rng.randint(1, 2))
        ]
        model = OneLayerTransformer.packed((dim,), (), memory, d_model=3, dtype=dtype, seed=seed, **options)
    else:
        options |= {"positions": rng.choice(["learned", "one-hot"]), "readout": rng.choice(["mean", "first", "last"])}
        model = OneLayerTransformer.tokens((dim,), (), d_model=4, heads=2, dtype=dtype, seed=seed, **options)
    sides = [interval(rng) for _ in range(dim)]
    box = Box([a for a, _ in sides], [(a + b) / 2 for a, b in sides])
    execution = rng.choice(["model dtype", "model dtype", "real"])
    eps = rng.choice([None, 0.5, 3.0])
    text = formula(rng, dim, rng.choice([1, 2]))
    certificate = certify(model, text, box, eps, execution=execution, gap=0.3, max_boxes=80, max_seconds=20)
    return Approximation(model, certificate)


def ordered(rng: Random) -> Approximation:
    n, low = rng.randint(2, 5), rng.choice([0.0, -1.0, 0.3, 1e-3, -50.0])
    span, kind, dtype = rng.choice([1.0, 0.3, 7.0]), rng.choice(["thresholds", "subsets"]), dtype_of(rng)
    share = rng.choice([0.2, 0.05, 1e-2 if dtype == torch.float64 else 0.1])
    arguments = (low, low + span, span * share)
    k = rng.randint(1, n)
    make: Callable[[], Approximation] = rng.choice(
        [
            lambda: sort(n, *arguments, kind=kind, dtype=dtype),
            lambda: maximum(n, *arguments, kind=kind, dtype=dtype),
            lambda: minimum(n, *arguments, kind=kind, dtype=dtype),
            lambda: median(n, *arguments, kind=kind, dtype=dtype),
            lambda: order_statistic(n, k, *arguments, kind=kind, dtype=dtype),
            lambda: top_k_sum(n, k, *arguments, kind=kind, dtype=dtype),
        ]
    )
    return make()


def gathered(rng: Random) -> Approximation:
    low, high = interval(rng)
    options = {"residual": rng.random() < 0.7, "norm": rng.choice(NORMS), "dtype": dtype_of(rng)}
    return gather(rng.choice(SEQUENCES), Box([low] * 2, [high] * 2), rng.choice([0.5, 0.2, 0.05]), **options)


def superposed(rng: Random) -> Approximation:
    low, high = interval(rng)
    text = rng.choice(SUMS)
    dim = 3 if "x3" in text else 2
    return superpose(text, Box([low] * dim, [high] * dim), rng.choice([0.5, 0.1, 0.02]), dtype=dtype_of(rng))


def memorised(rng: Random) -> Approximation:
    made = np.random.default_rng(rng.randrange(10**6))
    rows, columns, outputs = rng.randint(1, 40), rng.randint(1, 4), rng.randint(1, 3)
    x = made.normal(size=(rows, columns)) * rng.choice([1.0, 1e-6, 1e4])
    y = made.integers(0, 9, size=rows) if rng.random() < 0.4 else made.normal(size=(rows, outputs)) * 10
    return memorize(x, y, recipe=rng.choice(["softmax", "relu", None]), dtype=dtype_of(rng))


def composed(rng: Random) -> Approximation:
    """approximate on laws of several variables: compositions, products of heads, cones, lookups, whatever is chosen."""
    text = rng.choice(LAWS)
    dim = max(at for at in range(1, 5) if f"x{at}" in text)
    sides = [rng.choice([(1.0, 2.0), (1.0, 3.0), (0.5, 1.5), (2.0, 2.5)]) for _ in range(dim)]
    box = Box([a for a, _ in sides], [b for _, b in sides])
    return approximate(text, box, rng.choice([0.1, 0.03]), dtype=dtype_of(rng), max_seconds=20)


def network(rng: Random) -> tuple[nn.Module, Box, int]:
    """A perceptron of torch on a small box."""
    dim, dtype = rng.choice([1, 2]), dtype_of(rng)
    torch.manual_seed(rng.randrange(999))
    inner = rng.choice([nn.Tanh, nn.Sigmoid, nn.ReLU, nn.GELU, nn.SiLU, nn.Softplus, nn.Softsign])
    model = nn.Sequential(nn.Linear(dim, 4), inner(), nn.Linear(4, 1), nn.Flatten(0)).to(dtype)
    sides = [interval(rng) for _ in range(dim)]
    return model, Box([a for a, _ in sides], [b for _, b in sides]), dim


def claimed(rng: Random) -> Certificate:
    """A claim of a network: its range, slopes, a condition, another network, or how far it is from a formula."""
    model, box, dim = network(rng)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(1.001)
    text, limits = formula(rng, dim, 1), {"max_boxes": 60, "max_seconds": 20}
    make: Callable[[], Any] = rng.choice(
        [
            lambda: ol.bound(model, box, gap=0.3, **limits),
            lambda: ol.lipschitz(model, box, gap=0.3, **limits),
            lambda: ol.gradient_error(model, text, box, gap=0.3, **limits),
            lambda: ol.monotone(model, box, {"x1": rng.choice("+-")}, **limits),
            lambda: ol.equivalent(model, other, box, 0.1, **limits),
            lambda: ol.prove(model, box, f"y1 <= {rng.choice([0.5, 1.0, 2.0])}", **limits),
            lambda: certify(model, text, box, gap=0.3, **limits),
        ]
    )
    found = make()
    return getattr(found, "certificate", found)  # of a range that was not proved there is none


def tabled(rng: Random) -> Approximation:
    """approximate on a table: a grid, linear or cubic, or rows in no order."""
    made = np.random.default_rng(rng.randrange(10**6))
    kind, at = rng.choice(["linear", "cubic", "scattered"]), np.sort(made.uniform(-1, 1, rng.randint(4, 7)))
    columns = {"x1": at, "y": np.sin(2 * at) + 0.1 * made.normal(size=len(at))}
    table = ol.Table.read(columns, inputs=["x1"], output="y", interpolate="cubic" if kind == "cubic" else "linear")
    return approximate(table, table.box, rng.choice([0.2, 0.05]), dtype=dtype_of(rng), max_seconds=20)


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


METHODS: dict[str, Callable[[Random], Proof]] = {
    "approximate": built,
    "certify": certified,
    "lemma": ordered,
    "gather": gathered,
    "superpose": superposed,
    "memorize": memorised,
    "compose": composed,
    "claim": claimed,
    "table": tabled,
    "layer": any_layer,
    "narrow": narrow,
    "layout": laid_out,
    "slopes": sloped,
    "claim of a layer": of_layer,
    "refuted": refuted,
    "hurt": hurt,
    "extreme": extreme,
}
# How many are tried in the quick suite; round trips by lot are in the same proportion.
QUICK = {"approximate": 8, "certify": 12, "lemma": 14, "gather": 6, "superpose": 8, "memorize": 14}
QUICK |= {"compose": 2, "claim": 8, "table": 2, "layer": 8, "narrow": 4, "layout": 3, "slopes": 2}
QUICK |= {"claim of a layer": 5, "refuted": 4, "hurt": 3, "extreme": 12}


def made(method: str, seed: int) -> Proof | None:
    """A proof, or None where the package declines to build one."""
    try:
        return METHODS[method](Random(f"{method} {seed}"))
    except OnelayerError:
        return None
