"""Random networks, step by step, on boxes around the switches of their steps: the checker's enclosures against runs.

A switch is where a step changes its way: a kink, the 20 of a softplus, the end of a domain, overflow, underflow, two
equal numbers under a maximum, an entry that a softmax hides. Boxes are one number, three neighbours, or wide.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import torch
from flint import arb, ctx

from liar.judge import Tally
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.elements import underlying
from onelayer.checker.functions import Kinks
from onelayer.checker.network import StoredNetwork, StoredStep
from onelayer.checker.outcome import Rejected
from onelayer.checker.passes import NetworkPass
from onelayer.checker.precision import precise
from onelayer.checker.steps import Evaluation
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import BINARY, UNARY, NetworkProgram, Step

NETWORKS, POINTS = 40, 24  # of one case
JUDGED = 3000  # bits: more than any sum of two float64 numbers has
SWITCHES = (
    *(0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 6.0, 20.0, -20.0, 19.999999, 88.0, -88.0, -104.0, -17.0, 17.3, math.pi / 2),
    *(1e-45, 1e-38, -1e-38, 1e-30, 2e-20, 1e4, 1e19, -1e19),
)
SHARES = {"unary": 9, "numbered": 3, "binary": 3, "affine": 2, "softmax": 2, "norm": 1, "arrange": 1}
NUMBERS = (0.1, -0.3, 1e-50, 1e-46, 1e-40, 1e-10, 0.01, 1 / 3, 0.0, 1.0, -1.0, 2.0, 3.0, 1e10)


class Draft:
    """The steps of a network as they are drawn."""

    def __init__(self, rng: Random, dim: int, dtype: torch.dtype) -> None:
        self.rng, self.dtype = rng, dtype
        self.draw = np.random.default_rng(rng.randrange(2**31))
        self.steps: list[Step] = []
        self.widths = [dim]
        self.tensors: dict[str, torch.Tensor] = {}

    def stored(self, numbers: Any) -> str:
        """A stored tensor."""
        name = f"c{len(self.tensors)}"
        self.tensors[name] = torch.from_numpy(np.asarray(numbers, dtype=np.float64)).to(self.dtype)
        return name

    def number(self) -> float:
        """One that a step has for itself."""
        return self.rng.choice([*NUMBERS, self.rng.gauss(0, 1)])

    def add(self) -> None:
        """One step more."""
        rng = self.rng
        at = rng.randrange(len(self.widths)) if rng.random() < 0.3 else len(self.widths) - 1
        width = self.widths[at]
        kind = rng.choices([*SHARES], [*SHARES.values()])[0]
        step: Step = getattr(self, f"_{kind}")(at, width)
        self.steps.append(step)
        self.widths.append(step.shape[0])

    def _unary(self, at: int, width: int) -> Step:
        return Step(self.rng.choice(UNARY), (at,), (width,))

    def _numbered(self, at: int, width: int) -> Step:
        return Step(self.rng.choice(("scale", "shift", "leaky_relu", "elu")), (at,), (width,), self.number())

    def _binary(self, at: int, width: int) -> Step:
        alike = [place for place, other in enumerate(self.widths) if other == width]
        other: int | str = self.rng.choice(alike)
        if self.rng.random() < 0.5:
            other = self.stored(np.full(width, self.number()))
        pair = (at, other) if self.rng.random() < 0.5 else (other, at)
        return Step(self.rng.choice(BINARY), pair, (width,))

    def _affine(self, at: int, width: int) -> Step:
        out = self.rng.randint(1, 3)
        weights = self.draw.normal(size=(out, width)) * self.rng.choice([1, 1, 0.1, 20])
        args = [self.stored(np.round(weights) if self.rng.random() < 0.3 else weights)]
        args += [self.stored(self.draw.normal(size=out) * 20)] if self.rng.random() < 0.6 else []
        return Step("affine", (at, *args), (out,))

    def _softmax(self, at: int, width: int) -> Step:
        taking = tuple(sorted(self.rng.sample(range(width), self.rng.randint(1, width))))
        return Step("softmax", (at,), (width,), None, taking if self.rng.random() < 0.5 else None)

    def _norm(self, at: int, width: int) -> Step:
        args = (at, self.stored(self.draw.normal(size=width)), self.stored(np.zeros(width)))
        return Step("layer_norm", args, (width,), self.rng.choice([1e-5, 1e-12, 1e-3, 1e-30, 1.0]))

    def _arrange(self, at: int, width: int) -> Step:
        places = tuple(self.rng.randrange(width) for _ in range(self.rng.randint(1, 3)))
        return Step("arrange", (at,), (len(places),), None, places)

    def network(self) -> RecordedNetwork:
        """What was drawn."""
        tensors = self.tensors or {"format": torch.zeros(1, dtype=self.dtype, device="cpu")}
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        return RecordedNetwork(NetworkProgram((self.widths[0],), tuple(self.steps), shapes), tensors)


def one_network(rng: Random, case: Any) -> Tally:
    """Some networks, each on one box."""
    tally = Tally()
    for _ in range(NETWORKS):
        tally += _tried(rng, case)
        if tally.lies:
            break
    return tally


def _tried(rng: Random, case: Any) -> Tally:
    dtype = rng.choice([torch.float32, torch.float32, torch.float64])
    draft = Draft(rng, rng.choice([1, 1, 2, 3]), dtype)
    for _ in range(rng.randint(1, 6)):
        draft.add()
    network = draft.network()
    sides = [_side(rng, np.float32 if dtype == torch.float32 else np.float64) for _ in range(draft.widths[0])]
    case.words |= {"T": network.program.text(), "low": [low for low, _, _ in sides], "high": [up for _, _, up in sides]}
    case.words["tensors"] = {name: network.tensor(name).tolist() for name in network.names}
    steps = tuple(StoredStep(s.op, s.args, s.shape, s.number, s.places) for s in network.program.steps)
    tensors = {name: network.tensor(name).double().numpy() for name in network.names}
    tag, format_name = ("F32", "float32") if dtype == torch.float32 else ("F64", "float64")
    stored = StoredNetwork(network.program.input_shape, steps, tensors, tag, "")
    order = rng.choice([1, 2, 4])
    with precise():
        x = [coordinate(i, low, high, order) for i, (low, _, high) in enumerate(sides)]
        try:
            found = Evaluation(stored, NetworkPass(f"{format_name} execution"))(x, Kinks())
        except Rejected:
            return Tally()
        known = [(underlying(item).range(), error) for item, error in zip(found.items, found.errors, strict=True)]
    points = torch.tensor([[_between(rng, side, at, dtype) for side in sides] for at in range(POINTS)], dtype=dtype)
    with torch.no_grad():
        runs = network(points).double().reshape(POINTS, -1)
    return _held(known, points, runs)


def _held(known: list[tuple[arb, arb]], points: torch.Tensor, runs: torch.Tensor) -> Tally:
    tally = Tally()
    for at, (values, error) in enumerate(known):
        if not (values.is_finite() and error.is_finite()):
            continue
        with ctx.workprec(JUDGED):
            low, high = values.lower() - error.upper(), values.upper() + error.upper()
            column = runs[:, at].tolist()
            outside = [p for p, run in enumerate(column) if not math.isfinite(run) or arb(run) < low or arb(run) > high]
        tally.count["enclosures"] += len(column)
        tally.lies += [
            f"entry {at} is {column[p]!r} at {points[p].tolist()}, enclosed by [{float(low)!r}, {float(high)!r}]"
            for p in outside[:1]
        ]
    return tally


def _side(rng: Random, kind: Any) -> tuple[float, float, float]:
    """A switch, and the ends of an interval around it."""
    middle = kind(rng.choice([*SWITCHES, rng.gauss(0, 3)]))
    how = rng.random()
    if how < 0.3:
        return float(middle), float(middle), float(middle)
    if how < 0.6:
        return float(np.nextafter(middle, kind(-np.inf))), float(middle), float(np.nextafter(middle, kind(np.inf)))
    width = kind(abs(float(middle)) * 10 ** rng.uniform(-7, 0) + 10 ** rng.uniform(-8, 0))
    return float(kind(middle - width)), float(middle), float(kind(middle + width))


def _between(rng: Random, side: tuple[float, float, float], at: int, dtype: torch.dtype) -> float:
    """Ends and middle first, then any number of the format."""
    low, _, high = side
    if at < len(side):
        return side[at]
    near = float(torch.tensor(rng.uniform(low, high), dtype=torch.float64).to(dtype))
    return min(max(near, low), high)
