"""Whether many polynomials stay between bounds on [-1, 1]^s: bisection, and faces where they are monotone.

Lemma: a polynomial is within a bound on [-1, 1]^s if it is on both halves of one variable; one that is monotone in a
variable, if it is on both faces of that variable. On a half, t = (r +- 1)/2 and the absolute coefficients add up to no
more than before; so each step costs at most (degree + 3) roundings of their first sum.
"""

from __future__ import annotations

from functools import cache
from math import comb
from typing import Any

import numpy as np

from onelayer.checker.arithmetic import even_monomials, monomials
from onelayer.checker.spans import UNIT, Floats, above

PIECES = 256  # per polynomial
AT_ONCE = 2**21  # coefficients of all pieces that are looked at together

Move = tuple[tuple[Any, Any, float], ...]  # (rows, rows they go to, factor)
Pieces = tuple[Floats, Any, Floats]  # polynomials, whose pieces they are, and the bound of each


def stay_below(p: Floats, s: int, degree: int, allowed: Floats) -> Any:
    """For which of the polynomials (P, N) |p| <= allowed on [-1, 1]^s is shown."""
    count = p.shape[1]
    holds = np.ones(count, dtype=bool)
    spent = np.zeros(count, dtype=np.int64)
    # By one step: degree + 1 roundings of a coefficient, and one of the room that is left, which an open piece's sum of
    # coefficients exceeds.
    lost = above((degree + 3) * UNIT * above(np.abs(p).sum(0)))
    pending: list[Pieces] = [(p, np.arange(count), allowed)]
    while pending:
        piece, owner, room = pending.pop()
        spent += np.bincount(owner, minlength=count)
        # Written so that a NaN is open.
        open_ = ~_between(piece, s, degree, room)
        hopeful = (np.abs(piece[0]) <= room) & (spent[owner] < PIECES)
        holds[owner[open_ & ~hopeful]] = False
        open_ &= holds[owner]
        if open_.any() and s:
            mine = owner[open_]
            pending += _parts(piece[:, open_], s, degree, mine, room[open_] - lost[mine])
        elif open_.any():
            holds[owner[open_]] = False
    return holds


def _between(p: Floats, s: int, degree: int, room: Floats) -> Any:
    """Which of the polynomials their coefficients keep between -room and room: even monomials are never negative."""
    odd, even = _sorted(p, s, degree)
    swing = np.abs(odd).sum(0)
    top = p[0] + above(swing + np.maximum(even, 0.0).sum(0))
    bottom = p[0] - above(swing + np.maximum(-even, 0.0).sum(0))
    below = np.nextafter(top, np.inf) <= room
    return below & (np.nextafter(bottom, -np.inf) >= -room)


def _sorted(p: Floats, s: int, degree: int) -> tuple[Floats, Floats]:
    even = np.array(even_monomials(s, degree), dtype=bool)
    return p[1:][~even], p[1:][even]


def _parts(p: Floats, s: int, degree: int, owner: Any, room: Floats) -> list[Pieces]:
    """Both halves of each in its weightiest variable, or both faces of a variable in which it is monotone."""
    size = np.abs(p)
    monotone = np.zeros((s, p.shape[1]), dtype=bool)
    weight = _holding(s, degree) @ size
    for v in range(s):
        # The linear coefficient outweighs all that the derivative has beside it.
        bend = _slopes(s, degree)[v] @ size
        monotone[v] = size[1 + v] > above(bend)
    face = monotone.any(0)
    chosen = np.where(face, monotone.argmax(0), weight.argmax(0))
    found = []
    for v in range(s):
        for is_face in (True, False):
            mine = (chosen == v) & (face == is_face)
            if mine.any():
                own = p[:, mine]
                sides = [_moved(own, moves(s, v, degree, upper, is_face)) for upper in (False, True)]
                both = np.concatenate(sides, 1)
                found.append((both, np.tile(owner[mine], 2), np.tile(room[mine], 2)))
    return _chunks(found)


def _chunks(parts: list[Pieces]) -> list[Pieces]:
    """Joined as far as memory allows."""
    if not parts:
        return []
    p, owner, room = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
    step = max(2, AT_ONCE // len(p))
    chunks = (slice(i, i + step) for i in range(0, len(owner), step))
    return [(p[:, own], owner[own], room[own]) for own in chunks]


def _moved(p: Floats, move: Move) -> Floats:
    out = np.zeros_like(p)
    for source, target, factor in move:
        out[target] += factor * p[source]
    return out


@cache
def _holding(s: int, degree: int) -> Any:
    """(s, P): 1 where a monomial holds the variable."""
    return (np.array(monomials(s, degree)).reshape(-1, s) > 0).T.astype(np.float64)


@cache
def _slopes(s: int, degree: int) -> Any:
    """(s, P): the factor of a coefficient in a bound of the derivative, without the linear term itself."""
    exponents = np.array(monomials(s, degree)).reshape(-1, s)
    lone = (exponents.sum(1) == 1)[:, None]
    return np.where(lone, 0, exponents).T.astype(np.float64)


@cache
def moves(s: int, v: int, degree: int, upper: bool, is_face: bool) -> Move:
    """Coefficients on one half, t = (r +- 1)/2, or on one face, t = +-1, of variable v; grouped by powers of t."""
    exponents = monomials(s, degree)
    places = {e: at for at, e in enumerate(exponents)}
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at, e in enumerate(exponents):
        n = e[v]
        for j in range(1 if is_face else n + 1):
            place = places[(*e[:v], j, *e[v + 1 :])]
            groups.setdefault((n, j), []).append((at, place))
    found = []
    for (n, j), pairs in groups.items():
        sign = 1.0 if upper or (n - j) % 2 == 0 else -1.0
        factor = sign if is_face else sign * comb(n, j) / 2.0**n
        source, target = (np.array(side, dtype=np.intp) for side in zip(*pairs, strict=True))
        found.append((source, target, factor))
    return tuple(found)
