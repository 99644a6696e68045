"""Words for the parts of a layer whose proof names its construction: what is counted, gathered, recalled, bent.

The argument of a proof (lemmas/argument.py) says which construction the weights are; the weights say where each unit
stands. Nothing here is proved: the proof is the certificate's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Argument, Composition, OrderStatistics, Recall
from onelayer.lemmas.nested import Inner, Nested
from onelayer.lemmas.pieces import Pieces, PieceSum
from onelayer.pictures.explanation import ExplainedHead, ExplainedUnit, linear_text, signed_sum

PROBES = 64  # points at which the sum of a term is compared with what its units see
LONG = 60  # characters of a formula inside a sentence


@dataclass(frozen=True)
class Parts:
    """A layer in words: its algorithm, then every head and unit by name."""

    algorithm: str
    heads: list[ExplainedHead]
    units: list[ExplainedUnit]

    def named(self, algorithm: str, heads: list[str], units: list[str]) -> Parts:
        """The same parts under other names; what has no new name keeps its own."""
        renamed_heads = [replace(old, purpose=new) for old, new in zip(self.heads, heads, strict=False)]
        renamed_units = [replace(old, purpose=new) for old, new in zip(self.units, units, strict=False)]
        other_heads = self.heads[len(heads) :]
        other_units = self.units[len(units) :]
        return Parts(algorithm, renamed_heads + other_heads, renamed_units + other_units)


def named_parts(argument: Argument, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """The parts of a layer under the names that its construction gives them."""
    return TELLERS[type(argument)](argument, parts, model, box)


def _order_statistics(argument: OrderStatistics, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    tell = _thresholds if argument.construction == "thresholds" else _subsets
    return tell(argument, parts, model, box)


def _thresholds(argument: OrderStatistics, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """Unit u of level l and cell g is relu(l - N_g), relative to the position i when sorting."""
    n = argument.length
    sorts = argument.weights is None
    ends = model.own("ramp_start")[0].double().tolist()
    starts = [float(box.lower.min()), *ends[:-1]]
    cells = list(zip(starts, ends, strict=True))
    levels = model.own("b_1").double().tolist()
    units = []
    for unit, level in zip(parts.units, levels, strict=True):
        # Units of one level stand side by side, a unit for every cell.
        low, high = cells[unit.unit % len(cells)]
        bar = f"{level:g}"
        if sorts:
            bar = f"i - {-level:g}" if level else "i"
        does = "adds the width of the cell" if unit.coefficient[0] > 0 else "takes back what is more than one"
        fires = f"fires while fewer than {bar} of the {n} numbers lie below"
        units.append(f"cell [{low:.4g}, {high:.4g}]: {fires}; {does}")
    heads = [f"counts: all {n} tokens weigh the same, so feature g is the share of numbers below threshold g"]
    if sorts:
        heads.append("tells where it is: position i attends to itself and copies i")
    what = "the i-th smallest number" if sorts else "the statistic"
    algorithm = (
        f"{len(cells)} thresholds cut [{cells[0][0]:.4g}, {cells[-1][1]:.4g}] into cells. The embedding marks, per "
        "number, the cells it lies below (a number inside a cell counts in part); attention counts the marks over all "
        f"tokens; the units add the widths of the cells that lie below {what}."
    )
    return parts.named(algorithm, heads, units)


def _subsets(argument: OrderStatistics, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """Head h looks at the positions whose mask is zero; unit k lets statistic k through at position k."""
    n = argument.length
    sorts = argument.weights is None
    masks = model.own("W_K")[-n:].T
    heads = []
    for row in masks.tolist():
        members = [f"x{j + 1}" for j, mask in enumerate(row) if mask == 0]
        alone = len(members) == 1
        heads.append(f"{members[0]} itself" if alone else f"the largest of {', '.join(members)}")
    units = [f"lets the number of rank {k + 1} through at position {k + 1}, shut elsewhere" for k in range(n)]
    ranked = "The number of rank k" if sorts else "The statistic"
    algorithm = (
        f"{len(heads)} sharp heads, each the largest of a few of the {n} numbers. {ranked} is an alternating sum of "
        "these maxima (inclusion and exclusion), written by W_O"
    )
    algorithm += "; one gate per position picks its own." if sorts else "."
    return parts.named(algorithm, heads, units if sorts else [])


def _composition(argument: Composition, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """Terms g(s), s a weighted sum of atoms over the tokens; unit u bends its term where s passes its knot."""
    n = argument.length
    gathers = len(model.config.heads) == n > 1 and model.config.embedding == "linear"
    if gathers:
        further = [f"looks {r} further, from the end back to the start" for r in range(1, n)]
        heads = ["looks at its own token", *further]
    else:
        heads = [f"adds up over all tokens: {_short(_atoms(argument))}"]
    sums = [_sum(argument, k, box.labels) for k in range(len(argument.terms))]
    knots = _knots(argument, model, box)
    units = [_piece(argument, k, sums[k], knots.get(u)) for u, k in enumerate(argument.units)]
    many = "a function" if len(argument.terms) == 1 else f"{len(argument.terms)} functions"
    way = "gathers the whole sequence at every position" if gathers else "adds up functions of single tokens"
    algorithm = f"Attention {way}; the units then make {many} of one sum each, piece by piece."
    return parts.named(algorithm, heads, units)


def _atoms(argument: Composition) -> str:
    """The functions of one number that attention adds up."""
    wide = argument.width > 1
    texts = []
    for atom in argument.atoms:
        name = f"x_{atom.coordinate + 1}" if wide else "x"
        texts.append(_inside(atom.text, name))
    return ", ".join(texts)


def _piece(argument: Composition, k: int, total: str, knot: float | None) -> str:
    """One unit of term k."""
    term = argument.terms[k]
    where = "" if term.position is None else f" at position {term.position + 1}"
    bends = ""
    if knot is not None:
        # Without the rounding of a knot at zero, and without its sign.
        bends = f"; bends at s = {round(knot, 12) + 0.0:.4g}"
    return f"a piece of {_short(_inside(term.text, 's'))}{where}, s = {_short(total)}{bends}"


def _sum(argument: Composition, k: int, names: Any) -> str:
    """The sum of a term as text."""
    terms = []
    term = argument.terms[k]
    for token, row in enumerate(argument.rows(term, term.position or 0)):
        for c, weight in enumerate(row):
            if weight:
                atom = argument.atoms[c]
                name = names[token * argument.width + atom.coordinate]
                size = "" if abs(weight) == 1 else f"{abs(weight):.4g} "
                terms.append((weight, f"{size}{_inside(atom.text, name)}"))
    return signed_sum(terms)


def _knots(argument: Composition, model: OneLayerTransformer, box: Box) -> dict[int, float]:
    """Where the sum of a unit's term makes it start: read off two points, since the unit sees a line in that sum."""
    config = model.config
    points = box.sample(PROBES).to(model.dtype)
    tokens = points.reshape(PROBES, config.length, config.token_width)
    with torch.no_grad():
        embedded = model.embed(tokens)
        seen = model.preactivations(model.stream(embedded)).double()  # (S, N, hidden)
    exact = tokens.double()
    atoms = [atom.formula(exact[..., atom.coordinate, None]) for atom in argument.atoms]  # C x (S, N)
    values = torch.stack(atoms, -1)
    found = {}
    for unit, k in enumerate(argument.units):
        term = argument.terms[k]
        at = term.position or 0
        weights = torch.tensor(argument.rows(term, at), dtype=torch.float64)
        s = (values * weights).sum((-1, -2))
        # The two sums furthest apart: rounding tilts the line between them least.
        low = int(s.argmin())
        high = int(s.argmax())
        start = float(seen[low, at, unit])
        rise = float(seen[high, at, unit] - seen[low, at, unit])
        if rise > 0:
            run = float(s[high] - s[low])
            found[unit] = float(s[low]) - start * run / rise
    return found


def _recall(argument: Recall, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """Softmax: one memory token per row. ReLU: a line through the rows in the order of one projection."""
    rows = f"{argument.rows:,} rows"
    if argument.recipe == "softmax":
        algorithm = f"One memory token per row of the table ({rows}): at a stored row its own token takes all weight."
        return parts.named(algorithm, ["finds the stored row nearest to x; token m is row m and holds its output"], [])
    bias = model.own("b_1").double()
    units = [f"bends at the stored row whose projection s is {-float(b):.4g}" for b in bias]
    algorithm = f"Inputs are projected to one number s that tells the {rows} apart; units draw the line through them."
    return parts.named(algorithm, ["silent: the units do the work"], units)


def _nested(argument: Nested, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """Heads are the curved inner functions, with the values they look up; units are pieces of the outer ones."""
    inner = [_inner_text(one, box) for one in argument.inner]
    # A plain one, direction . x itself, goes around attention and has no head.
    curved = [text for text, one in zip(inner, argument.inner, strict=True) if not one.plain]
    heads = [f"inner function {text}" for text in curved]
    sums = _sums(argument, inner)
    names = [f"u{k + 1}" for k in range(len(sums))] if len(sums) > 1 else ["u"]
    algorithm = "Heads make the inner functions, units the outer functions of their sums"
    if sums:
        equations = [f"{name} = {text}" for name, text in zip(names, sums, strict=True)]
        algorithm += f": {'; '.join(equations)}"
    found = replace(parts, heads=[_with_own_values(head, model) for head in parts.heads])
    ridges = _ridges(argument, names)
    units = [ridges[k] for k in argument.units]
    return found.named(f"{algorithm}.", heads[: len(parts.heads)], units)


def _sums(argument: Nested, inner: Sequence[str]) -> list[str]:
    """The sums of all outer functions, in the texts of their inner functions."""
    members = [one for part in argument.outer for one in part.sums]
    texts = [" + ".join(inner[c] for c in one) for one in members]
    return [text.replace("+ -", "- ") for text in texts]


def _ridges(argument: Nested, names: list[str]) -> list[str]:
    """The outer function that every ridge is a part of, and the sum of sums that it looks along."""
    found: list[str] = []
    for part in argument.outer:
        # Names are those of all sums, one outer function after the other.
        own = names[: len(part.sums)]
        names = names[len(part.sums) :]
        text = f"outer function {_of_sums(part.text, own)[:LONG]}"
        along = [linear_text(_direction(ridge.weights), 0.0, own) for ridge in part.ridges]
        # A single ridge is the outer function itself: its direction says nothing more.
        if len(along) > 1:
            found += [f"{text} along {one}" for one in along]
        else:
            found.append(text)
    return found


def _with_own_values(head: ExplainedHead, model: OneLayerTransformer) -> ExplainedHead:
    """A head that adds to sums, not to outputs: what its tokens hold."""
    memory = model.memory_of(head.head)
    if memory is None:
        return head
    return replace(head, values=memory.values.detach().double().tolist())


def _of_sums(text: str, names: Sequence[str]) -> str:
    """A formula of x1, x2, ... with the names of sums in their places, a factor of one left out."""
    named = re.sub(r"\bx(\d*)\b", lambda match: names[int(match[1] or 1) - 1], text)
    return re.sub(r"\(1 \* (u\d*)\)", r"\1", named)


def _inner_text(one: Inner, box: Box) -> str:
    """An inner function of the variables, a product in parentheses."""
    texts = []
    for factor in one.factors:
        reads = linear_text(_direction(factor.direction), 0.0, box.variables)
        texts.append(_inside(factor.text, reads))
    if len(texts) == 1:
        return texts[0]
    return " * ".join(f"({text})" for text in texts)


def _pieces(argument: Pieces, parts: Parts, model: OneLayerTransformer, box: Box) -> Parts:
    """The lines that a head chooses among, and the curves that units make."""
    heads = []
    for one in argument.heads:
        lines = [_line(line, box) for line in one.lines]
        heads.append(f"largest of {', '.join(lines)}")
    texts = [_inside(str(curve.formula), _piece_sum(curve.argument, box)) for curve in argument.curves]
    units = [f"curve {texts[k][:80]}" for k in argument.units]
    return parts.named("Sharp heads take the largest of a few lines; units bend sums of them.", heads, units)


def _line(line: Sequence[str], box: Box) -> str:
    numbers = [float(Fraction(a)) for a in line]
    return linear_text(_direction(numbers[:-1]), numbers[-1], box.variables)


def _piece_sum(one: PieceSum, box: Box) -> str:
    """A sum of heads and a line in words, for example "head 0 + x2"."""
    weights = _direction([float(Fraction(w)) for w in one.weights])
    line = _line(one.line, box)
    if not weights.any():
        return line
    names = [f"head {h}" for h in range(len(weights))]
    heads = linear_text(weights, names=names)
    if line == "0":
        return heads
    return f"{heads} + {line}".replace("+ -", "- ")


def _direction(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _inside(text: str, variable: str) -> str:
    """A formula of x1 with another text in its place."""
    inside = variable if re.fullmatch(r"[\w\[\],.]+", variable) else f"({variable})"
    found = re.sub(r"\bx1?\b", lambda _: inside, text)
    if inside[0] == "(":
        # sin((x + y)) has one pair too many.
        found = found.replace(f"({inside})", inside)
    return found


def _short(text: str) -> str:
    if len(text) <= LONG:
        return text
    return f"{text[: LONG - 4]} ..."


TELLERS: dict[type, Callable[[Any, Parts, OneLayerTransformer, Box], Parts]] = {
    OrderStatistics: _order_statistics,
    Composition: _composition,
    Recall: _recall,
    Nested: _nested,
    Pieces: _pieces,
}
