"""The checker's proof by composition, written from docs/constructions/superpose.md.

|T - D| <= sum_k [ sup |G_k - g_k| + Lip(G_k) sum |w| sup |phi^ - phi| + sum_u |c_u| sup |z_u - mu_u (s^ - t_u)| ]
plus the rounding of the execution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, combination, constant, coordinate, union
from onelayer.checker.attention import Vector
from onelayer.checker.form import LayerForm
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.ramps import ramp_lines
from onelayer.checker.rounding import Execution, largest
from onelayer.checker.univariate import above, below, distance, lines, range_of, steepest
from onelayer.checker.weights import Array, Stored
from onelayer.language.formula import Formula, parse
from onelayer.lemmas.argument import Atom, Composition, TokenTerm

FEW, CURVED = 12, 2  # variables up to which normalisations are expanded beyond first order, and how far
FORM = LayerForm("its composition")

Domain = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class EmbeddedAtom:
    """One embedded atom: ends of phi at every token, sup |phi^ - phi|, and the rounding of an executed phi^."""

    ends: list[tuple[arb, arb]]
    error: arb
    rounding: arb


@dataclass(frozen=True)
class MadeTerm:
    """A term as its units make it: knots and slopes of the units, sup |G_k - g_k| and Lip(G_k)."""

    knots: list[float]
    slopes: list[float]
    error: arb
    steepness: arb


def composition_bound(stored: Stored, composition: Composition, domain: Domain, execution: Execution) -> arb:
    """Upper bound of sup |T - D| for T as executed."""
    config = stored.config
    n = composition.length
    each = config["readout"] == "each"
    FORM.require(config["layout"] == "tokens", "other tokens")
    FORM.require((stored.length, stored.token_width) == (n, composition.width), "other tokens")
    FORM.require(each == composition.each and config["readout"] in ("each", "first"), "another read-out")
    FORM.require(config["hidden"] == len(composition.units) > 0, "another number of units")
    _readout_form(stored, composition.outputs)
    proof = _Proof(stored, composition, domain, execution)
    worst = ZERO
    for position in range(n) if each else [0]:
        worst = worst.max(proof.error(position))
    return worst


def _readout_form(stored: Stored, outputs: int) -> None:
    """Every output is one feature of the stream, to which the bias of the units adds nothing."""
    read = stored.tensors["W_R"]
    picks = ((read == 0) | (read == 1)).all() and (read.sum(0) == 1).all()
    FORM.require(bool(picks), "a read-out that mixes features")
    own = stored.tensors["b_2"] @ read  # exact, as the read-out picks features
    FORM.require(not own.any() and read.shape[1] == outputs, "other outputs")


class _Proof:
    def __init__(self, stored: Stored, composition: Composition, domain: Domain, execution: Execution) -> None:
        self.stored = stored
        self.composition = composition
        self.execution = execution
        self.layer = Layer(_without_ramps(stored), execution)
        variables = composition.length * len(composition.atoms) + composition.outputs
        self.order = CURVED if variables <= FEW else 1
        self.inner = [self._atom(c, domain) for c in range(len(composition.atoms))]
        self.tokens = [self._token(j) for j in range(composition.length)]
        self.outer = stored.tensors["W_2"] @ stored.tensors["W_R"]  # exact: the read-out picks features
        self.units = np.array(composition.units, dtype=int)
        self.seen: dict[int, MadeTerm] = {}

    def error(self, position: int) -> arb:
        """Bound over the outputs of one position."""
        z, r = self._unit_inputs(position)
        composition = self.composition
        active = composition.active(position)
        sums = [ZERO] * composition.outputs
        # What b_R and the constants of the terms leave: the units make the terms without their constants.
        rest = [arb(float(b)) for b in self.stored.tensors["b_R"]]
        for k in active:
            term = composition.terms[k]
            o = term.output
            s = self._sum(term, position)
            made = self._term(k, position, z, s)
            moved = made.steepness * self._drift(term, position)
            sums[o] = sums[o] + made.error + moved + self._mismatch(k, made, z, s)
            rest[o] = rest[o] - arb(term.constant)
        for u in np.flatnonzero(~np.isin(self.units, active)):
            highest = z.items[u].range() + z.errors[u]
            FORM.require(bool(highest <= 0), f"unit {u} is not shut at position {position + 1}")
        rounding = self._rounding(z, r)
        totals = [a + abs(b) + c for a, b, c in zip(sums, rest, rounding, strict=True)]
        return largest(totals)

    def _mismatch(self, k: int, made: MadeTerm, z: Vector, s: Taylor) -> arb:
        """sum_u |c_u| sup |z_u - mu_u (s^ - t_u)|: relu moves by no more than its argument."""
        output = self.composition.terms[k].output
        total = ZERO
        for u, knot, mu in zip(np.flatnonzero(self.units == k), made.knots, made.slopes, strict=True):
            wanted = s.scaled(arb(mu)).shifted(-arb(mu) * arb(knot))
            gap = (z.items[u] - wanted).range().abs_upper()
            total = total + abs(arb(float(self.outer[u, output]))) * gap
        return total

    def _term(self, k: int, position: int, z: Vector, s: Taylor) -> MadeTerm:
        """What the units of a term make of its sum; the same for all positions."""
        if k in self.seen:
            return self.seen[k]
        term = self.composition.terms[k]
        mine = np.flatnonzero(self.units == k)
        FORM.require(not np.delete(self.outer[mine], term.output, axis=1).any(), "a unit of two outputs")
        knots, slopes = [], []
        for u in mine:
            mu = _ratio(z.items[u], s)
            FORM.require(mu > 0, "a unit that falls with the sum of its term")
            slopes.append(mu)
            # Any float will do for a knot: what it misses is in the mismatch.
            offset = (s.scaled(arb(mu)) - z.items[u]).c[0]
            knots.append(float((offset / arb(mu)).mid()))
        order = sorted(range(len(knots)), key=lambda i: knots[i])
        changes = [arb(float(self.outer[mine[i], term.output])) * arb(slopes[i]) for i in order]
        low, high = self._range(term)
        ascending = [knots[i] for i in order]
        pieces = lines(ascending, changes, arb(term.constant), low, high)
        # Rows of other positions hold the same weights in another order, and so the same drift.
        drift = self._drift(term, position)
        reached = below(arb(low) - drift), above(arb(high) + drift)
        slope = steepest(lines(ascending, changes, arb(term.constant), *reached))
        self.seen[k] = MadeTerm(knots, slopes, distance(parse(term.text, 1), pieces), slope)
        return self.seen[k]

    def _sum_ends(self, rows: Sequence[Sequence[float]]) -> tuple[arb, arb]:
        """Ends of sum over tokens and inner functions of weight times value."""
        low = high = ZERO
        for token, row in enumerate(rows):
            for c, weight in enumerate(row):
                a, b = (arb(weight) * end for end in self.inner[c].ends[token])
                if weight < 0:
                    a, b = b, a
                low = low + a
                high = high + b
        return low, high

    def _range(self, term: TokenTerm) -> tuple[float, float]:
        """Ends of the values of s at all positions of the term; a sum of numbers >= 0 stays >= 0."""
        composition = self.composition
        places = [term.position] if term.position is not None else range(composition.length if composition.each else 1)
        ends = [self._sum_ends(composition.rows(term, place)) for place in places]
        bottom = min(0.0 if low.is_zero() else below(low) for low, _ in ends)
        top = max(above(high) for _, high in ends)
        return bottom, top if top > bottom else bottom + 1e-9 * (1 + abs(bottom))

    def _sum(self, term: TokenTerm, position: int) -> Taylor:
        """s^ of the term, in the embedded atoms."""
        parts = []
        for token, row in enumerate(self.composition.rows(term, position)):
            parts += [(arb(w), self.tokens[token].items[c]) for c, w in enumerate(row) if w]
        return combination(parts, ZERO, self.order)

    def _drift(self, term: TokenTerm, position: int) -> arb:
        total = ZERO
        for row in self.composition.rows(term, position):
            for c, weight in enumerate(row):
                total = total + abs(arb(weight)) * self.inner[c].error
        return total

    def _token(self, token: int) -> Vector:
        """The atoms of one token as variables over their ranges."""
        items, errors = [], []
        for c, atom in enumerate(self.inner):
            low, high = atom.ends[token]
            bottom = below(low - atom.error)
            top = above(high + atom.error)
            items.append(coordinate(token * len(self.inner) + c, bottom, top, self.order))
            errors.append(atom.rounding)
        return Vector(items, errors)

    def _unit_inputs(self, position: int) -> tuple[Vector, Vector]:
        """What the units of one position see, and its stream R."""
        layer = self.layer
        config = self.stored.config
        e = [self._embedded(j) for j in range(self.composition.length)]
        u = [layer.normalised(row, "1") for row in e] if config["norm"] == "pre" else e
        keys, values = ([layer.maps[name](row, self.execution) for row in u] for name in ("K", "V"))
        query = layer.maps["Q"](u[position], self.execution)
        averaged = layer.averages(query, keys, values, Kinks())
        r = layer.maps["O"](averaged, self.execution)
        if config["residual"]:
            r = layer.added(e[position], r)
        if config["norm"] == "post":
            r = layer.normalised(r, "1")
        inner = layer.normalised(r, "2") if config["norm"] == "pre" else r
        return layer.maps["1"](inner, self.execution), r

    def _embedded(self, token: int) -> Vector:
        """The features of one token: W_E applied to its numbers, or its atoms in the first columns."""
        config = self.stored.config
        t = self.stored.tensors
        layer = self.layer
        row = self.tokens[token]
        if config["embedding"] == "linear":
            e = layer.maps["E"](row, self.execution)
        else:
            others = [constant(arb(float(b)), self.order) for b in t["b_E"][len(row) :]]
            e = Vector(row.items + others, row.errors + [ZERO] * len(others))
        if config["positions"] == "none":
            return e
        return layer.moved(e, t["position"][token].tolist())

    def _rounding(self, z: Vector, r: Vector) -> list[arb]:
        """Of the outputs, with the units anywhere between 0 and their largest value; the stream adds what it holds."""
        layer = self.layer
        residual = self.stored.config["residual"]
        y = layer.maps["2"](self._opened(z), self.execution)
        y = layer.added(r, y) if residual else y
        if self.stored.config["norm"] == "post":
            return self._last_norm(z, r, y.errors)
        found = layer.maps["R"](y, self.execution).errors
        if not residual:
            return found
        # What the stream holds of the outputs before the units write them is no part of the sum of terms.
        offsets = [arb(float(b)) for b in self.stored.tensors["b_R"]]
        read = layer.maps["R"].real(r.items)
        leak = [item.shifted(-b).range().abs_upper() for item, b in zip(read, offsets, strict=True)]
        return [error + size for error, size in zip(found, leak, strict=True)]

    def _opened(self, z: Vector) -> Vector:
        """What the units return: anything up to their largest value, and 0 without error where shut as executed."""
        items, errors = [], []
        for item, error in z.entries():
            top = item.range().upper()
            shut = bool(top + error <= 0)
            items.append(constant(ZERO.union(top.max(ZERO)), self.order))
            errors.append(ZERO if shut else error)
        return Vector(items, errors)

    def _written(self) -> Array:
        """How W_2 writes each output into the stream: entries -1, 0, 1, so that the product with them is exact."""
        unit = np.abs(self.outer).argmax(0)
        columns = np.arange(self.composition.outputs)
        spread: Array = self.stored.tensors["W_2"][unit] / self.outer[unit, columns][:, None]
        exact = bool(np.isin(spread, (-1.0, 0.0, 1.0)).all())
        same = np.array_equal(self.outer @ spread, self.stored.tensors["W_2"])
        FORM.require(exact and same, "W_2 writes more than the outputs")
        return spread

    def _output_variables(self, z: Vector) -> list[Taylor]:
        """A variable of its own per output, as wide as the outer functions can make it."""
        first = self.composition.length * len(self.inner)
        tops = [item.range().upper().max(ZERO) for item in z.items]
        found = []
        for o in range(self.composition.outputs):
            sizes = (abs(arb(float(c))) * top for c, top in zip(self.outer[:, o], tops, strict=True))
            reach = above(sum(sizes, ZERO))
            found.append(coordinate(first + o, -reach, reach, self.order))
        return found

    def _last_norm(self, z: Vector, r: Vector, errors: list[arb]) -> list[arb]:
        """The same when outputs are normalised: as variables of their own, written into the stream as W_2 does."""
        outputs = self.composition.outputs
        spread = self._written()
        y = self._output_variables(z)
        base = r.items if self.stored.config["residual"] else [constant(ZERO, self.order)] * len(r)
        bias = [arb(float(b)) for b in self.stored.tensors["b_2"]]
        written = [[(arb(float(spread[o, m])), y[o]) for o in range(outputs)] for m in range(len(r))]
        items = [combination([(arb(1), item), *written[m]], bias[m], self.order) for m, item in enumerate(base)]
        read = self.layer.maps["R"](self.layer.normalised(Vector(items, errors), "2"), self.execution)
        offsets = [arb(float(b)) for b in self.stored.tensors["b_R"]]
        return [
            error + (item - own).shifted(-b).range().abs_upper()
            for item, own, b, error in zip(read.items, y, offsets, read.errors, strict=True)
        ]

    def _atom(self, c: int, domain: Domain) -> EmbeddedAtom:
        atom = self.composition.atoms[c]
        n = self.composition.length
        d = self.composition.width
        formula = parse(atom.text, 1)
        # The coordinate of the atom, of every token.
        own = slice(atom.coordinate, n * d, d)
        sides = list(zip(domain[0][own], domain[1][own], strict=True))
        if self.stored.config["embedding"] == "linear":
            plain = formula == parse("x", 1) and atom.coordinate == c and len(self.composition.atoms) == d
            FORM.require(plain, "atoms of a linear embedding other than the coordinates")
            return EmbeddedAtom([(arb(a), arb(b)) for a, b in sides], ZERO, ZERO)
        known = _ranges(formula, set(sides), atom.text)
        ends = [known[side] for side in sides]
        unused = self.stored.tensors["W_E"][:, len(self.composition.atoms) :]
        FORM.require(not unused.any(), "W_E")
        low = min(a for a, _ in sides)
        high = max(b for _, b in sides)
        pieces, total = ramp_lines(self.stored, c, atom.coordinate, low, high)
        return EmbeddedAtom(ends, distance(formula, pieces), self._ramp_rounding(c, atom, total))

    def _ramp_rounding(self, c: int, atom: Atom, total: arb) -> arb:
        """Error of the executed sum of ramps, ``total`` being the sum of their absolute weights."""
        count = int(self.stored.config["ramps"])
        own = slice(atom.coordinate * count, (atom.coordinate + 1) * count)
        weights = np.abs(self.stored.tensors["W_E"][own, c]).tolist()
        slopes = np.abs(self.stored.tensors["ramp_slope"][atom.coordinate]).tolist()
        # What a difference x - start loses below the normal range counts times slope and weight of its own ramp.
        steep = sum((arb(w) * arb(a) for w, a in zip(weights, slopes, strict=True)), ZERO)
        flushed = self.execution.tiny * (2 * total + steep + count)
        return self.execution.gamma(count + 5) * total + flushed


def _without_ramps(stored: Stored) -> Stored:
    """The same layer with an embedding that is not looked at, when it is piecewise: its matrix may be long."""
    if stored.config["embedding"] == "linear":
        return stored
    tensors = {name: value for name, value in stored.tensors.items() if name not in ("W_E", "b_E")}
    return Stored(stored.config, tensors, stored.dtype, stored.sha256)


def _ratio(z: Taylor, s: Taylor) -> float:
    """mu with z close to mu s + constant."""
    if not s.support:
        return 1.0
    support = union(z.support, s.support)
    wide = z.over(support)
    other = s.over(support)
    pairs = [(float(a.mid()), float(b.mid())) for a, b in zip(wide[1:], other[1:], strict=False)]
    # By least squares, whose terms are divided by the largest so that none overflows.
    size = max((abs(b) for _, b in pairs), default=0.0)
    if not 0 < size < math.inf:
        return 0.0
    bottom = sum((b / size) * (b / size) for _, b in pairs)
    return sum(a * (b / size) for a, b in pairs) / bottom / size


def _ranges(formula: Formula, sides: set[tuple[float, float]], text: str) -> dict[tuple[float, float], tuple[arb, arb]]:
    """The ends of a function's values on each interval, on all of which it must be defined."""
    known = {side: range_of(formula, *side) for side in sides}
    defined = all(end.is_finite() for ends in known.values() for end in ends)
    FORM.require(defined, f"{text} is not defined on its interval")
    return known
