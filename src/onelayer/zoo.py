"""The zoo: named layers whose algorithm is known and proved, to try an interpretability method on.

    ol.zoo.names()                       the names
    a = ol.zoo.load("sort", "small")     an Approximation: the layer, its certificate, its target
    print(ol.zoo.card("sort"))           what it computes, by which heads and units, in which sizes

Every layer is built, not trained, from its weights' own construction; the certificate bounds its distance to the named
function on the whole domain (a recalled table: on every row), and ``a.explain()`` names each head and unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations, product

import numpy as np

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, sort
from onelayer.card import card as html_card
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.result import Approximation

SIZES = ("small", "large")
FRANKE = (
    "3/4*exp(-((9*x1-2)**2+(9*x2-2)**2)/4) + 3/4*exp(-(9*x1+1)**2/49-(9*x2+1)/10)"
    " + 1/2*exp(-((9*x1-7)**2+(9*x2-3)**2)/4) - 1/5*exp(-(9*x1-4)**2-(9*x2-7)**2)"
)
NARROW = "0.5*relu(x1 - 0.3*x2 + 0.1) - 0.7*relu(x2 - 0.6) + 0.25*relu(0.4 - x1) + 0.1*x1"
WIDE = (
    "relu(x1 - x2 + 0.1) - 0.5*relu(x2 + x3 - 0.9) + 0.3*relu(0.5 - x3) + 0.8*relu(x1 + x3 - 1)"
    " - 0.4*relu(0.2 - x1 + 0.5*x2) + 0.6*relu(x2 - 0.75) - 0.2*x3"
)


@dataclass(frozen=True)
class Animal:
    """One layer of the zoo: what it computes, its algorithm in words, and how to build it in each size."""

    name: str
    computes: str
    algorithm: str
    sizes: Mapping[str, str]
    build: Callable[[str], Approximation] = field(repr=False)

    def __str__(self) -> str:
        sizes = [f"  {size:<6} {about}" for size, about in self.sizes.items()]
        return "\n".join([f"{self.name}: {self.computes}", f"  {self.algorithm}", *sizes])

    def _repr_html_(self) -> str:
        rows = [("computes", self.computes), ("algorithm", self.algorithm), *self.sizes.items()]
        return html_card(self.name, rows)


def names() -> list[str]:
    """The layers there are."""
    return list(ANIMALS)


def card(name: str) -> Animal:
    """What a layer computes and how; str() is its card."""
    if name not in ANIMALS:
        raise OnelayerError(f"the zoo has no {name!r}; it has {', '.join(ANIMALS)}")
    return ANIMALS[name]


def load(name: str, size: str = "small") -> Approximation:
    """The layer of that name and size with its proof, built anew; the same weights every time."""
    animal = card(name)
    if size not in SIZES:
        raise OnelayerError(f"size must be one of {', '.join(SIZES)}; got {size!r}")
    return animal.build(size)


def _unit(count: int) -> Box:
    return Box([0.0] * count, [1.0] * count)


def _each(count: int, tokens: Callable[[int], str]) -> Approximation:
    """A layer read at every position: position i (from 0) returns what ``tokens(i)`` says."""
    return gather("; ".join(tokens(i) for i in range(count)), _unit(count), 1e-6)


def _histogram(count: int, bins: int) -> Approximation:
    """Tents one bin wide: a number half way between two centres counts half in each."""
    centres = [k / (bins - 1) for k in range(bins)]
    tents = ["+".join(f"relu(1 - {bins - 1}*abs(x{j + 1} - {c!r}))" for j in range(count)) for c in centres]
    return superpose("; ".join(tents), _unit(count), 1e-3)


def _recall(keys: int, values: int) -> Approximation:
    """All prompts key, value, other key, other value, query, with what stood behind the queried key."""
    rows, answers = [], []
    for (first, second), mine, other in product(permutations(range(keys), 2), range(values), range(values)):
        for query, answer in ((first, mine), (second, other)):
            rows.append([first, mine, second, other, query])
            answers.append(answer)
    return memorize(np.array(rows, dtype=np.float64), np.array(answers, dtype=np.float64), recipe="softmax")


def _animal(
    name: str,
    computes: str,
    algorithm: str,
    small: tuple[str, Callable[[], Approximation]],
    large: tuple[str, Callable[[], Approximation]],
) -> Animal:
    made = dict(zip(SIZES, (small, large), strict=True))
    return Animal(name, computes, algorithm, {size: about for size, (about, _) in made.items()}, lambda s: made[s][1]())


def _all() -> list[Animal]:
    return [
        _animal(
            "sort",
            "the numbers in ascending order",
            "Small: one uniform head counts how many numbers lie below each threshold, units add the cells below the "
            "i-th. Large: one sharp head per subset takes its largest number, W_O adds them with alternating signs.",
            ("4 numbers to 0.05, thresholds", lambda: sort(4, 0.0, 1.0, 0.05, kind="thresholds")),
            ("8 numbers to 1e-3, subsets", lambda: sort(8, 0.0, 1.0, 1e-3, kind="subsets")),
        ),
        _animal(
            "reverse",
            "the numbers from the last to the first",
            "Head r fetches the token r places further; position i opens the units of the token it wants alone.",
            ("3 numbers to 1e-6", lambda: _each(3, lambda i: f"x{3 - i}")),
            ("6 numbers to 1e-6", lambda: _each(6, lambda i: f"x{6 - i}")),
        ),
        _animal(
            "cumulative sum",
            "at position i the sum of the first i numbers",
            "Head r fetches the token r places further; the units of position i add those that stand before it.",
            ("3 numbers to 1e-6", lambda: _each(3, lambda i: "+".join(f"x{j + 1}" for j in range(i + 1)))),
            ("6 numbers to 1e-6", lambda: _each(6, lambda i: "+".join(f"x{j + 1}" for j in range(i + 1)))),
        ),
        _animal(
            "histogram",
            "how many numbers lie in each bin, a number between two centres shared by both",
            "Ramps in the embedding are the bins; one uniform head adds them over the tokens.",
            ("4 numbers, 3 bins, to 1e-3", lambda: _histogram(4, 3)),
            ("8 numbers, 5 bins, to 1e-3", lambda: _histogram(8, 5)),
        ),
        _animal(
            "median",
            "the number in the middle",
            "Sharp heads take the largest of every large enough subset; W_O adds them with alternating signs.",
            ("3 numbers to 1e-3", lambda: median(3, 0.0, 1.0, 1e-3, kind="subsets")),
            ("7 numbers to 1e-3", lambda: median(7, 0.0, 1.0, 1e-3, kind="subsets")),
        ),
        _animal(
            "argmax copy",
            "the largest number, copied from where it stands",
            "One head whose logits are a large multiple of the numbers: all weight on the largest, which it copies.",
            ("4 numbers to 1e-3", lambda: maximum(4, 0.0, 1.0, 1e-3, kind="subsets")),
            ("16 numbers to 1e-6", lambda: maximum(16, 0.0, 1.0, 1e-6, kind="subsets")),
        ),
        _animal(
            "previous token",
            "at position i the number of position i - 1; at the first its own",
            "Head r fetches the token r places further; position i opens the units of its predecessor alone.",
            ("3 numbers to 1e-6", lambda: _each(3, lambda i: f"x{max(1, i)}")),
            ("6 numbers to 1e-6", lambda: _each(6, lambda i: f"x{max(1, i)}")),
        ),
        _animal(
            "induction",
            "key, value, key, value, query: the value that stood behind the queried key",
            "One memory token per prompt; at a prompt its own token takes all weight. Proved for every prompt.",
            ("2 keys, 3 values: 36 prompts", lambda: _recall(2, 3)),
            ("3 keys, 4 values: 192 prompts", lambda: _recall(3, 4)),
        ),
        _animal(
            "sine sum",
            "sin x1 + sin x2",
            "One head per coordinate looks up a table of tokens along it.",
            ("to 1e-3", lambda: _sines(1e-3)),
            ("to 1e-6", lambda: _sines(1e-6)),
        ),
        _animal(
            "Franke",
            "Franke's surface on the unit square",
            "Heads over grids of tokens: a softmax per axis, a value per pair.",
            ("to 0.1", lambda: approximate(FRANKE, _unit(2), 0.1, layout="packed", jobs=1)),
            ("to 0.01", lambda: approximate(FRANKE, _unit(2), 0.01, layout="packed", jobs=1)),
        ),
        _animal(
            "ReLU network",
            "a network with one hidden layer of ReLU units and a skip connection",
            "Its hidden units are the network's, one by one; the head is silent or affine.",
            ("2 inputs, 3 units, to 1e-6", lambda: approximate(NARROW, _unit(2), 1e-6, layout="packed", jobs=1)),
            ("3 inputs, 6 units, to 1e-3", lambda: approximate(WIDE, _unit(3), 1e-3, layout="packed", jobs=1)),
        ),
    ]


def _sines(eps: float) -> Approximation:
    return approximate("sin(x1) + sin(x2)", Box([0.0, 0.0], [6.25, 6.25]), eps, layout="packed", jobs=1)


ANIMALS = {animal.name: animal for animal in _all()}
