"""The attacks: each draws a claim, lets the package prove it, and hands it to the judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from flint import arb
from torch import Tensor

import onelayer as ol
from liar import formulas, hostile, places, programs
from liar.boxes import boxes
from liar.enclosures import enclosures
from liar.expressions import Expr, Undefined, as_code, text, torch_code, var
from liar.judge import Tally, Truth, judge, of_expression, of_text, try_points
from liar.layers import Flat, in_balls, random_layer

SECONDS = 20.0  # counts of boxes end a search, so that a case is the same on a slower machine
FORMATS = {"float64": torch.float64, "float32": torch.float32, "real": torch.float64}


@dataclass
class Case:
    """What was drawn, in words: enough to read a finding without running it again."""

    words: dict[str, Any]


def certified(model: Any, f: Any, box: ol.Box, rng: Random, case: Case, **options: Any) -> Any:
    """A certificate under some global setting, with a small budget."""
    keywords = {
        "eps": rng.choice([None, None, None, 1e-3, 1.0, 1e-10, 1e-14, 1e5]),
        "max_boxes": rng.choice([4, 16, 60]),
        "max_seconds": SECONDS,
        "order": rng.choice([2, 2, 3, 3, 4, 4, 6, None]),
        **options,
    }
    name = hostile.draw(rng)
    case.words |= {key: str(value) for key, value in keywords.items()} | {"setting": name}
    with hostile.setting(name):
        return ol.certify(model, f, box, **keywords)


def one_formula(rng: Random, case: Case) -> Tally:
    """A formula with a spike, a hole or lost digits, against itself, a neighbour, nothing, or a layer."""
    dim = rng.choice([1, 1, 1, 2, 2, 3])
    low, high = places.sides(rng, dim)
    execution = rng.choice(["float64", "float64", "float32", "real"])
    dtype = FORMATS[execution]
    drawn = formulas.attack(rng, low, high, 24 if execution == "float32" else 53)
    wanted, expression = drawn.expression, as_code(drawn.expression)
    kind = rng.choice(["self", "scaled", "shifted", "rest", "rest", "rest", "layer", "swapped", "swapped"])
    case.words |= {"f": text(wanted), "low": low, "high": high, "T": kind, "execution": execution}
    model, real = _counterpart(rng, kind, expression, as_code(drawn.rest), dim, dtype)
    if kind == "swapped":
        wanted = drawn.rest
    f: Any = text(wanted)
    if rng.random() < 0.4:
        wanted = as_code(wanted)
        f = torch_code(wanted, rng)
        case.words["as"] = "callable"
    outputs = [wanted]
    if isinstance(f, str) and rng.random() < 0.2:
        outputs.append(formulas.smooth(rng, dim))
        f, model, real = _two_outputs(f, model, real, outputs[1])
        case.words["f"] = f
    certificate = certified(model, f, ol.Box(low, high), rng, case, execution=execution)
    exact = real if execution == "real" else None
    read = of_text if isinstance(f, str) else of_expression
    truth = Truth(read(*outputs), None if exact else model, dtype, exact)
    points = try_points(certificate, truth, rng, outputs, drawn.centres)
    return judge(certificate, truth, points, rng)


def _counterpart(rng: Random, kind: str, expression: Expr, rest: Expr, dim: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """T, and T in balls: the expression itself (also where f will be the rest), next to it, its rest, or a layer."""
    if kind == "layer":
        layer = random_layer(rng, dim, dtype)
        if layer.config.layout == "tokens":
            layer = Flat(layer)
        return layer, lambda point: in_balls(getattr(layer, "layer", layer), point)
    tree = {
        "self": expression,
        "swapped": expression,
        "scaled": expression * rng.choice([1.0000001, 1.001, 0.9]),
        "shifted": expression + rng.choice([1e-9, 0.01, 1e-15, 1e-300]),
        "rest": rest,
    }[kind]
    return torch_code(tree, rng if rng.random() < 0.5 else None), of_expression(tree)


def _two_outputs(f: str, model: Any, real: Any, second: Expr) -> tuple[Any, Any, Any]:
    """The same claim with a second output, on which T is right up to rounding."""
    code, exact = torch_code(as_code(second)), of_expression(as_code(second))
    both = f"{f}; {text(second)}"
    return both, lambda x: torch.stack([model(x), code(x)], -1), lambda point: [*real(point), *exact(point)]


def one_program(rng: Random, case: Case) -> Tally:
    """T is torch code with every keyword, stock modules included; f is a plain formula. Judged as it runs."""
    dim = rng.choice([1, 2, 2, 3])
    low, high = (places.ordinary if rng.random() < 0.8 else places.sides)(rng, dim)
    execution = rng.choice(["float64", "float32"])
    dtype = FORMATS[execution]
    axis = rng.randrange(dim)
    centre = formulas.centre_in(rng, low[axis], high[axis], 24 if execution == "float32" else 53)
    model: Any
    if rng.random() < 0.35:
        model = programs.stock_module(rng, dim, dtype)
        case.words["T"] = str(model).replace("\n", " ")
    else:
        model = programs.random_program(rng, dim, (axis, centre) if rng.random() < 0.6 else None, asking=0.1)
        case.words["T"] = (*model.steps, model.centre)
    f = formulas.smooth(rng, dim) if rng.random() < 0.5 else 0.0 * var(0)
    case.words |= {"f": text(f), "low": low, "high": high, "execution": execution}
    box = ol.Box(low, high)
    if not _runs(model, box, dtype):
        return Tally()
    certificate = certified(model, text(f), box, rng, case, execution=execution)
    truth = Truth(of_expression(f), model, dtype)
    return judge(certificate, truth, try_points(certificate, truth, rng, [f], {axis: [centre]}), rng)


def one_recording(rng: Random, case: Case) -> Tally:
    """f is torch code: what the certificate says of f must hold of the code, to the rounding of smooth code."""
    dim = rng.choice([1, 2, 3])
    low, high = places.ordinary(rng, dim)
    axis = rng.randrange(dim)
    centre = formulas.centre_in(rng, low[axis], high[axis])
    code: Any = programs.random_program(rng, dim, (axis, centre) if rng.random() < 0.5 else None, 0.5, asking=0.1)
    case.words |= {"f": (*code.steps, code.centre), "low": low, "high": high}
    if rng.random() < 0.2:
        code = programs.stock_module(rng, dim, torch.float64)
        case.words["f"] = str(code).replace("\n", " ")
    box = ol.Box(low, high)
    if not _runs(code, box, torch.float64):
        return Tally()
    model = torch_code(formulas.smooth(rng, dim)) if rng.random() < 0.5 else torch_code(0.0 * var(0))
    certificate = certified(model, code, box, rng, case, execution="float64")
    truth = Truth(executed_balls(code), model)
    return judge(certificate, truth, try_points(certificate, truth, rng, [], {axis: [centre]}), rng)


def executed_balls(code: Callable[[Tensor], Tensor]) -> Callable[[Sequence[float]], list[arb]]:
    """The value of smooth code as a ball around what it returns in float64, alone and among neighbours."""

    def values(point: Sequence[float]) -> list[arb]:
        x = torch.tensor([point], dtype=torch.float64)
        with torch.no_grad():
            alone = code(x.clone()).double()
            near = code(x + 1e-13 * x.abs()).double()
        if not bool(torch.isfinite(alone).all()):
            raise Undefined("no value in float64")
        slack = 1e-10 * (1 + alone.abs()) + 4 * (near - alone).abs().nan_to_num(math.inf)
        return [arb(v, r) for v, r in zip(alone.flatten().tolist(), slack.flatten().tolist(), strict=True)]

    return values


@torch.no_grad()
def _runs(code: Callable[[Tensor], Tensor], box: ol.Box, dtype: torch.dtype) -> bool:
    """Whether torch itself can run the code on a batch of points."""
    try:
        value = code(torch.stack([box.center, box.lower, box.upper]).to(dtype))
    except Exception:
        return False
    return isinstance(value, Tensor) and value.shape == (3,) and value.is_floating_point()


def one_construction(rng: Random, case: Case) -> Tally:
    """A layer built for a small function, judged as it runs, then re-proved by the checker."""
    from liar.trips import round_trip

    dim = rng.choice([1, 1, 2])
    low = [rng.choice([-1.0, -0.5, 0.0, 0.9]) for _ in range(dim)]
    high = [a + rng.choice([0.1, 1.0, 1.3]) for a in low]
    if rng.random() < 0.3:
        low, high = places.sides(rng, dim)
    kind = rng.random()
    shape = formulas.pieces if kind < 0.3 else formulas.kinked
    drawn = formulas.attack(rng, low, high) if kind > 0.55 else formulas.Drawn(shape(rng, dim))
    dtype = rng.choice([torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16, "int8"])
    narrow = dtype not in (torch.float64, torch.float32)
    eps = rng.choice([1e-1, 3e-2] if narrow else [1e-2, 1e-3, 1e-4])
    case.words |= {"f": text(drawn.expression), "low": low, "high": high, "eps": eps, "dtype": str(dtype)}
    name = hostile.draw(rng)
    case.words["setting"] = name
    with hostile.setting(name):
        built = ol.approximate(text(drawn.expression), ol.Box(low, high), eps, dtype=dtype, max_seconds=SECONDS)
    truth = Truth(of_text(drawn.expression), built.model, built.model.dtype)
    points = try_points(built.certificate, truth, rng, [drawn.expression], drawn.centres)
    tally = judge(built.certificate, truth, points, rng)
    if built.certificate.status == "proved":
        tally += round_trip(built)
    return tally


def one_sequence(rng: Random, case: Case) -> Tally:
    """Sorting and tables: judged by sorting and by the table itself, re-proved, and forged."""
    from liar.folders import forge
    from liar.trips import round_trip

    if rng.random() < 0.5:
        n, low = rng.randint(2, 4), rng.choice([0.0, -1.0, 1e3, -8e307, 1e-320])
        high = low + rng.choice([1.0, 10.0, 1e-3, abs(low)])
        kind = rng.choice(["thresholds", "subsets"])
        dtype = rng.choice([torch.float64, torch.float32])
        case.words |= {"sort": n, "low": low, "high": high, "kind": kind, "dtype": str(dtype)}
        built = ol.sort(n, low, high, (high - low) / rng.choice([5, 20]), kind=kind, dtype=dtype)
        f = sorted_balls
        sides = [torch.full((n,), end, dtype=torch.float64) for end in (low, high)]
        points = places.representable(places.standard(*sides, rng, 30), *sides, built.model.dtype)
    else:
        size = [0.0, 1.0, -1.0, 0.5, 2.0, 1e-308, 1e308, -1e308, 5e-324, 1e-3, 1e6, 7.25]
        rows = sorted({rng.choice(size) + rng.choice([0.0, 0.0, 0.25]) for _ in range(rng.randint(2, 5))})
        values = [rng.choice(size) for _ in rows]
        recipe = rng.choice(["softmax", "relu"])
        case.words |= {"rows": rows, "values": values, "recipe": recipe}
        built = ol.memorize([[row] for row in rows], values, recipe=recipe)
        table = dict(zip(rows, values, strict=True))
        f = lambda point: [arb(table[point[0]])]  # noqa: E731
        points = torch.tensor(rows, dtype=torch.float64)[:, None]
    truth = Truth(f, built.model, built.model.dtype)
    tally = judge(built.certificate, truth, points, rng)
    tally += round_trip(built)
    tally += forge(rng, case, built.model, built.certificate, f, points)
    return tally


def sorted_balls(point: Sequence[float]) -> list[arb]:
    return [arb(value) for value in sorted(point)]


def one_claim(rng: Random, case: Case) -> Tally:
    from liar.claims import one_claim as made

    return made(rng, case)


def one_table(rng: Random, case: Case) -> Tally:
    from liar.tables import one_table as made

    return made(rng, case)


def one_graph(rng: Random, case: Case) -> Tally:
    from liar.graphs import one_graph as made

    return made(rng, case)


def one_hole(rng: Random, case: Case) -> Tally:
    from liar.holes import one_hole as made

    return made(rng, case)


def one_network(rng: Random, case: Case) -> Tally:
    from liar.networks import one_network as made

    return made(rng, case)


def one_trip(rng: Random, case: Case) -> Tally:
    from liar.trips import one_trip as made

    return made(rng, case)


def forged(rng: Random, case: Case) -> Tally:
    from liar.folders import forged_folder

    return forged_folder(rng, case)


ATTACKS: dict[str, tuple[Callable[[Random, Case], Tally], float]] = {
    "formula": (one_formula, 10.0),
    "program": (one_program, 6.0),
    "recording": (one_recording, 4.0),
    "enclosures": (enclosures, 2.0),
    "boxes": (boxes, 2.0),
    "folder": (forged, 2.0),
    "construction": (one_construction, 0.3),
    "sequence": (one_sequence, 0.3),
    "claim": (one_claim, 3.0),
    "table": (one_table, 1.5),
    "graph": (one_graph, 3.0),
    "hole": (one_hole, 1.0),
    "network": (one_network, 1.0),
    "trip": (one_trip, 2.0),
}
