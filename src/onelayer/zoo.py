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
from typing import Any

import numpy as np

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import maximum, median, sort
from onelayer.card import card as html_card
from onelayer.conductor import approximate
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.result import Approximation

Maker = Callable[..., Approximation]  # arguments of a size, and the observer
SIZES = ("small", "large")
# What some of them compute.
SINES = "sin(x1) + sin(x2)"
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
    make: Maker = field(repr=False)
    variants: Mapping[str, tuple[str, tuple[Any, ...]]] = field(repr=False)  # by size: in words, arguments of ``make``

    @property
    def sizes(self) -> dict[str, str]:
        """Each size in words."""
        return {size: about for size, (about, _) in self.variants.items()}

    def build(self, size: str, observer: Observer | None = None) -> Approximation:
        """The layer in that size."""
        _, arguments = self.variants[size]
        return self.make(*arguments, observer=observer)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.computes}", f"  {self.algorithm}"]
        for size, about in self.sizes.items():
            lines.append(f"  {size:<6} {about}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [("computes", self.computes), ("algorithm", self.algorithm), *self.sizes.items()]
        return html_card(self.name, rows)


def names() -> list[str]:
    """The layers there are."""
    return list(ANIMALS)


@door
def card(name: str) -> Animal:
    """What a layer computes and how; str() is its card."""
    if name not in ANIMALS:
        raise OnelayerError(f"the zoo has no {name!r}; it has {', '.join(ANIMALS)}")
    return ANIMALS[name]


@door
def load(name: str, size: str = "small", *, observer: Observer | None = None) -> Approximation:
    """The layer of that name and size with its proof, built anew; the same weights every time.

    ``observer`` follows the call and may cancel it, as that of ``approximate`` does.
    """
    animal = card(name)
    if size not in SIZES:
        raise OnelayerError(f"size must be one of {', '.join(SIZES)}; got {size!r}")
    return animal.build(size, observer)


def _unit(count: int) -> Box:
    return Box([0.0] * count, [1.0] * count)


def _each(tokens: Callable[[int, int], str]) -> Maker:
    """Layers read at every position: of so many numbers, position i (from 0) returns what ``tokens(count, i)`` says."""

    def make(count: int, observer: Observer | None) -> Approximation:
        text = "; ".join(tokens(count, i) for i in range(count))
        return gather(text, _unit(count), 1e-6, observer=observer)

    return make


_reverse = _each(lambda count, i: f"x{count - i}")
_cumulative_sum = _each(lambda _, i: "+".join(f"x{j + 1}" for j in range(i + 1)))
_previous = _each(lambda _, i: f"x{max(1, i)}")


def _histogram(count: int, bins: int, observer: Observer | None) -> Approximation:
    """Tents one bin wide: a number half way between two centres counts half in each."""
    tents = []
    for k in range(bins):
        centre = k / (bins - 1)
        each = [f"relu(1 - {bins - 1}*abs(x{j + 1} - {centre!r}))" for j in range(count)]
        tents.append("+".join(each))
    return superpose("; ".join(tents), _unit(count), 1e-3, observer=observer)


def _recall(keys: int, values: int, observer: Observer | None) -> Approximation:
    """All prompts key, value, other key, other value, query, with what stood behind the queried key."""
    rows = []
    answers = []
    pairs = permutations(range(keys), 2)
    for (first, second), mine, other in product(pairs, range(values), range(values)):
        for query, answer in ((first, mine), (second, other)):
            rows.append([first, mine, second, other, query])
            answers.append(answer)
    x = np.array(rows, dtype=np.float64)
    y = np.array(answers, dtype=np.float64)
    return memorize(x, y, recipe="softmax", observer=observer)


def _sorted(count: int, eps: float, kind: str, observer: Observer | None) -> Approximation:
    return sort(count, 0.0, 1.0, eps, kind=kind, observer=observer)


def _median(count: int, observer: Observer | None) -> Approximation:
    return median(count, 0.0, 1.0, 1e-3, kind="subsets", observer=observer)


def _maximum(count: int, eps: float, observer: Observer | None) -> Approximation:
    return maximum(count, 0.0, 1.0, eps, kind="subsets", observer=observer)


def _packed(text: str, box: Box, eps: float, observer: Observer | None) -> Approximation:
    # No race: which way wins it depends on the clock, and the weights are to be the same every time.
    return approximate(text, box, eps, layout="packed", jobs=1, observer=observer)


# Name, what it computes, the algorithm; who makes it; each of SIZES in words with the arguments of the maker.
ROWS: list[tuple[str, str, str, Maker, tuple[Any, ...], tuple[Any, ...]]] = [
    (
        "sort",
        "the numbers in ascending order",
        "Small: one uniform head counts how many numbers lie below each threshold, units add the cells below the "
        "i-th. Large: one sharp head per subset takes its largest number, W_O adds them with alternating signs.",
        _sorted,
        ("4 numbers to 0.05, thresholds", 4, 0.05, "thresholds"),
        ("8 numbers to 1e-3, subsets", 8, 1e-3, "subsets"),
    ),
    (
        "reverse",
        "the numbers from the last to the first",
        "Head r fetches the token r places further; position i opens the units of the token it wants alone.",
        _reverse,
        ("3 numbers to 1e-6", 3),
        ("6 numbers to 1e-6", 6),
    ),
    (
        "cumulative sum",
        "at position i the sum of the first i numbers",
        "Head r fetches the token r places further; the units of position i add those that stand before it.",
        _cumulative_sum,
        ("3 numbers to 1e-6", 3),
        ("6 numbers to 1e-6", 6),
    ),
    (
        "histogram",
        "how many numbers lie in each bin, a number between two centres shared by both",
        "Ramps in the embedding are the bins; one uniform head adds them over the tokens.",
        _histogram,
        ("4 numbers, 3 bins, to 1e-3", 4, 3),
        ("8 numbers, 5 bins, to 1e-3", 8, 5),
    ),
    (
        "median",
        "the number in the middle",
        "Sharp heads take the largest of every large enough subset; W_O adds them with alternating signs.",
        _median,
        ("3 numbers to 1e-3", 3),
        ("7 numbers to 1e-3", 7),
    ),
    (
        "argmax copy",
        "the largest number, copied from where it stands",
        "One head whose logits are a large multiple of the numbers: all weight on the largest, which it copies.",
        _maximum,
        ("4 numbers to 1e-3", 4, 1e-3),
        ("16 numbers to 1e-6", 16, 1e-6),
    ),
    (
        "previous token",
        "at position i the number of position i - 1; at the first its own",
        "Head r fetches the token r places further; position i opens the units of its predecessor alone.",
        _previous,
        ("3 numbers to 1e-6", 3),
        ("6 numbers to 1e-6", 6),
    ),
    (
        "induction",
        "key, value, key, value, query: the value that stood behind the queried key",
        "One memory token per prompt; at a prompt its own token takes all weight. Proved for every prompt.",
        _recall,
        ("2 keys, 3 values: 36 prompts", 2, 3),
        ("3 keys, 4 values: 192 prompts", 3, 4),
    ),
    (
        "sine sum",
        "sin x1 + sin x2",
        "One head per coordinate looks up a table of tokens along it.",
        _packed,
        ("to 1e-3", SINES, Box([0.0, 0.0], [6.25, 6.25]), 1e-3),
        ("to 1e-6", SINES, Box([0.0, 0.0], [6.25, 6.25]), 1e-6),
    ),
    (
        "Franke",
        "Franke's surface on the unit square",
        "Heads over grids of tokens: a softmax per axis, a value per pair.",
        _packed,
        ("to 0.1", FRANKE, _unit(2), 0.1),
        ("to 0.01", FRANKE, _unit(2), 0.01),
    ),
    (
        "ReLU network",
        "a network with one hidden layer of ReLU units and a skip connection",
        "Its hidden units are the network's, one by one; the head is silent or affine.",
        _packed,
        ("2 inputs, 3 units, to 1e-6", NARROW, _unit(2), 1e-6),
        ("3 inputs, 6 units, to 1e-3", WIDE, _unit(3), 1e-3),
    ),
]


def _animal(name: str, computes: str, algorithm: str, make: Maker, *sizes: Any) -> Animal:
    variants = {}
    for size, (about, *arguments) in zip(SIZES, sizes, strict=True):
        variants[size] = (about, tuple(arguments))
    return Animal(name, computes, algorithm, make, variants)


ANIMALS = {row[0]: _animal(*row) for row in ROWS}
