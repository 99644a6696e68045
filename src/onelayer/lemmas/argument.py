"""argument.json: what a proof by lemma, composition or enumeration stands on, beside the weights. Plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from onelayer.disk import strict_json
from onelayer.errors import FileError
from onelayer.language.compose import inside, total, weighted
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape
from onelayer.language.words import NOT_RECORDED, describe
from onelayer.lemmas.fields import are_sizes, need, need_gap, numbers, places, records, settle
from onelayer.lemmas.nested import Nested
from onelayer.lemmas.pieces import Pieces
from onelayer.lemmas.term import OfOneVariable

FORMAT = "onelayer argument"
FORMAT_VERSION = 1  # of argument.json


@dataclass(frozen=True)
class OrderStatistics:
    """f sorts n numbers (``weights`` None), or is sum_k weights[k] x_(k); ``construction`` names the lemma."""

    length: int
    construction: str  # thresholds | subsets
    weights: tuple[float, ...] | None

    KIND = "order statistics"

    def __post_init__(self) -> None:
        need(type(self.length) is int and self.length >= 1, "length must be a whole number >= 1")
        need(self.construction in ("thresholds", "subsets"), "construction must be 'thresholds' or 'subsets'")
        if self.weights is not None:
            given = numbers(self.weights)
            need(len(given) == self.length, "weights must be one finite number per order statistic")
            settle(self, weights=given)

    def stated(self) -> str:
        """What takes the place of a function in the certificate."""
        return f"{NOT_RECORDED}{describe(self.length, self.weights)}"


@dataclass(frozen=True)
class Recall:
    """The claim is about the rows of table.safetensors alone; ``recipe`` names the construction.

    ``classes`` is set for labels: output k stands for classes[k].
    """

    recipe: str  # softmax | relu
    rows: int
    classes: tuple[str | int | float | bool, ...] | None = None

    KIND = "recall"

    def __post_init__(self) -> None:
        need(self.recipe in ("softmax", "relu"), "recipe must be 'softmax' or 'relu'")
        need(type(self.rows) is int and self.rows >= 1, "rows must be a whole number >= 1")
        if self.classes is not None:
            listed = isinstance(self.classes, list | tuple)
            need(listed and len(self.classes) <= self.rows, "classes must be a list")
            plain = (type(name) in (str, int, float, bool) for name in self.classes)
            need(all(plain), "classes must be plain labels")
            settle(self, classes=tuple(self.classes))

    def stated(self) -> str:
        """What takes the place of a function in the certificate."""
        return f"{NOT_RECORDED}table of {self.rows:,} rows; the claim is about these rows alone"


@dataclass(frozen=True)
class Atom(OfOneVariable):
    """phi(x_q): a formula of one variable, applied to coordinate q of a token."""

    coordinate: int
    text: str


@dataclass(frozen=True)
class TokenTerm(OfOneVariable):
    """g(s) with s = sum over tokens j and atoms c of weights[j][c] phi_c(x_j), added to one output.

    The hidden units of the term make the function ``constant`` + sum of c relu(mu (s - t)), which is close to g.

    At position i of a layer that is read at each position, weights[j] belongs to token i + j (mod n) when ``position``
    is None, and to token j of a term that exists at position i = ``position`` alone.
    """

    position: int | None
    output: int
    weights: tuple[tuple[float, ...], ...]
    text: str
    constant: float


@dataclass(frozen=True)
class Composition:
    """D = sum of terms g(sum of atoms), n tokens of d numbers, read at each position or once; T approximates D.

    ``units`` names the term of every hidden unit. f is D itself when ``exact``; otherwise the boxes of the proof bound
    |f - D| by ``gap``.
    """

    length: int
    width: int
    outputs: int
    each: bool
    exact: bool
    gap: float
    atoms: tuple[Atom, ...]
    terms: tuple[TokenTerm, ...]
    units: tuple[int, ...]

    KIND = "composition"

    def __post_init__(self) -> None:
        need(are_sizes([self.length, self.width, self.outputs]), "sizes must be whole numbers >= 1")
        need(type(self.each) is bool and type(self.exact) is bool, "'each' and 'exact' must be true or false")
        need_gap(self.gap)
        atoms = records(Atom, self.atoms)
        terms = records(TokenTerm, self.terms)
        need(places([atom.coordinate for atom in atoms], self.width), "an atom of no coordinate")
        need(all(type(atom.text) is str for atom in atoms), "an atom without text")
        terms = tuple(self._checked(term, len(atoms)) for term in terms)
        units = tuple(self.units)
        need(places(units, len(terms)), "a unit of no term")
        settle(self, atoms=atoms, terms=terms, units=units)

    def _checked(self, term: TokenTerm, atoms: int) -> TokenTerm:
        at = term.position
        # A layer that is read once has one position, and its terms name none.
        need(at is None or (self.each and places([at], self.length)), "a term of no position")
        need(places([term.output], self.outputs), "a term of no output")
        need(type(term.text) is str, "a term without text")
        listed = isinstance(term.weights, list | tuple)
        need(listed and len(term.weights) == self.length, "weights need n rows")
        rows = tuple(numbers(row) for row in term.weights)
        need(all(len(row) == atoms for row in rows), "weights need one number per atom")
        (constant,) = numbers([term.constant])
        return TokenTerm(at, term.output, rows, term.text, constant)

    @property
    def positions(self) -> range:
        """The positions at which the layer is read."""
        return range(self.length if self.each else 1)

    def rows(self, term: TokenTerm, position: int) -> tuple[tuple[float, ...], ...]:
        """Weights of the term at a position, by token."""
        if term.position is not None or not self.each:
            return term.weights
        # One term stands for its shifts: the weights of the next position are those of this one, moved by a token.
        moved = ((token - position) % self.length for token in range(self.length))
        return tuple(term.weights[token] for token in moved)

    def active(self, position: int) -> list[int]:
        """Indices of the terms that exist at a position."""
        return [k for k, term in enumerate(self.terms) if term.position in (None, position)]

    def formula(self) -> Formula:
        """D on points of shape (n, d), flattened, with outputs in row-major order."""
        tape = Tape()
        n = self.length
        d = self.width
        values = {}
        for c, atom in enumerate(self.atoms):
            for token in range(n):
                x = tape.variable(token * d + atom.coordinate)
                values[token, c] = inside(tape, atom.formula, x)
        outputs = []
        for position in self.positions:
            sums: list[list[int]] = [[] for _ in range(self.outputs)]
            for k in self.active(position):
                term = self.terms[k]
                argument = _weighted_sum(tape, self.rows(term, position), values)
                sums[term.output].append(inside(tape, term.formula, argument))
            outputs += [total(tape, part) for part in sums]
        shape = () if len(outputs) == 1 else (len(outputs),)
        return Formula.build(tape.nodes, outputs, (n * d,), shape)


Argument = OrderStatistics | Recall | Composition | Nested | Pieces
_ARGUMENTS: tuple[type[Argument], ...] = (OrderStatistics, Recall, Composition, Nested, Pieces)
KINDS: dict[str, type[Argument]] = {kind.KIND: kind for kind in _ARGUMENTS}


def to_text(argument: Argument) -> bytes:
    """The content of argument.json."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": argument.KIND}
    text = json.dumps({**head, **asdict(argument)}, allow_nan=False)
    return (text + "\n").encode("ascii")


def from_text(text: bytes) -> Argument:
    """The argument in the bytes of argument.json; FileError on anything irregular."""
    data = strict_json(text, "argument.json")
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise FileError(f"argument.json is not an argument: its 'format' must be {FORMAT!r}")
    version = data.pop("format_version", None)
    # By type too: true equals 1 in Python, and is no version.
    if type(version) is not int or version != FORMAT_VERSION:
        raise FileError(f"argument.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    named = str(data.pop("kind", None))
    kind = KINDS.get(named)
    if kind is None or set(data) != set(kind.__dataclass_fields__):
        raise FileError("argument.json has an unknown kind or missing or unknown fields")
    try:
        return kind(**data)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileError(f"argument.json: {error}") from error


def _weighted_sum(tape: Tape, rows: Sequence[Sequence[float]], values: Mapping[tuple[int, int], int]) -> int:
    """The node of sum over tokens and atoms of weight times value."""
    parts = []
    for token, row in enumerate(rows):
        for c, w in enumerate(row):
            if w:
                parts.append(weighted(tape, w, values[token, c]))
    return total(tape, parts)
