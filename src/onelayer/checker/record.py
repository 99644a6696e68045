"""What a saved certificate claims, and every rule that its fields keep: the checker's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

from onelayer.disk import MAX_AXES
from onelayer.errors import OnelayerError
from onelayer.formats import ARITHMETICS
from onelayer.language.words import recorded
from onelayer.names import check_names

SUP = "sup|T - f|"
STATUSES = ("proved", "refuted", "undecided")
CONDITIONAL = ("conditional on Lipschitz constant", "conditional on Lipschitz constant of the gradient")
BOXED = ("branch and bound", *CONDITIONAL)
METHODS = (*BOXED, "lemma", "composition", "enumeration")
MAX_ASSUMPTIONS = 64  # lines; a certificate states a handful
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Record:
    """lower <= sup over the domain of |T - f| <= upper, the sup taken over points and outputs alike.

    proved    eps is given and upper <= eps (strictness of print: see the certificate), or no eps was asked and the
              requested gap between lower and upper was reached
    refuted   eps is given and lower > eps: at ``witness`` the error is at least ``lower``
    undecided neither; ``resisted`` is a box (lower corner, upper corner) that could not be decided

    ``domain`` is (lower, upper), flattened in row-major order of the event ``shape``; so is the witness. ``names`` are
    those of the coordinates, none where they are x1 ... xD: what is claimed does not depend on them. NaN satisfies none
    of the comparisons below, so no record with a NaN can be built. Where ``within`` is positive f is assumed to be that
    close to ``function``, and the claim about f follows from ``stated``.
    """

    status: str
    eps: float | None
    lower: float
    upper: float
    witness: tuple[float, ...] | None
    resisted: tuple[tuple[float, ...], tuple[float, ...]] | None
    boxes: int
    order: int
    arithmetic: str
    shape: tuple[int, ...]
    domain: tuple[tuple[float, ...], tuple[float, ...]]
    function: str
    weights_sha256: str
    seconds: float
    version: str
    method: str
    assumptions: tuple[str, ...]
    names: tuple[str, ...] = ()
    claim: str = SUP
    about: Mapping[str, Any] = field(default_factory=dict)
    within: float = 0.0

    def __post_init__(self) -> None:
        # As they are shown, so that a text is read with the names that a person sees.
        object.__setattr__(self, "names", check_names(self.names, self.shape))
        for holds, complaint in self._rules():
            if not holds:
                raise OnelayerError(f"inconsistent certificate: {complaint}")

    def _rules(self) -> list[tuple[bool, str]]:
        """Every rule with the complaint of breaking it; comparisons are written so that NaN breaks them."""
        low, high = self.domain
        return [
            (self.status != "estimated", "an estimate is no proof and cannot be checked"),
            (self.status in STATUSES, f"status must be one of {', '.join(STATUSES)}"),
            (self.arithmetic in ARITHMETICS, f"arithmetic must be one of {', '.join(ARITHMETICS)}"),
            (self.method in METHODS, f"method must be one of {', '.join(METHODS)}"),
            (self.eps is None or 0 <= self.eps < math.inf, "eps must be a finite number >= 0"),
            (0 <= self.lower < math.inf, "lower must be a finite number >= 0"),
            (self.lower <= self.upper, "lower must not exceed upper"),
            (self.status != "proved" or self.upper < math.inf, "proved needs a finite upper bound"),
            (self._follows(), "the status does not follow from eps, lower and upper"),
            (self.status != "refuted" or self.witness is not None, "refuted needs a witness"),
            (self.lower == 0 or self.witness is not None, "lower > 0 needs a witness"),
            (0 <= self.boxes <= 2**28 and 0 <= self.order <= 64, "boxes and order must be counts"),
            (0 <= self.seconds < math.inf, "seconds must be a finite number >= 0"),
            (_shape(self.shape), f"the shape must have at most {MAX_AXES} positive sides"),
            (len(low) == len(high) and _size(self.shape) == len(low) >= 1, "the domain must match its shape"),
            (_ordered(low, high), "the domain must have finite bounds with lower <= upper"),
            (self.witness is None or _inside(self.witness, low, high), "the witness must lie in the domain"),
            (_box_inside(self.resisted, low, high), "the resisting box must lie in the domain"),
            (self.weights_sha256 == "" or bool(SHA256.fullmatch(self.weights_sha256)), "weights_sha256 is no sha256"),
            (len(self.assumptions) <= MAX_ASSUMPTIONS, "too many assumptions"),
            (self._supposes(), "a distance of f by assumption needs an assumption, and a claim above it"),
            (_settings(self.about), "it is about nothing that is known"),
        ]

    def _follows(self) -> bool:
        """Whether the status is the one that eps and the enclosure leave: a NaN leaves none."""
        if self.status == "refuted":
            return self.eps is not None and self.lower > self.eps
        if self.status == "proved":
            if self.eps is None:
                return self.upper < math.inf
            return self.lower <= self.upper <= self.eps
        return self.eps is None or self.lower <= self.eps < self.upper

    def _supposes(self) -> bool:
        """Whether nothing is supposed of f, or what is said of it."""
        if self.within == 0:
            return True
        return 0 < self.within <= self.upper and bool(self.assumptions) and not self.about

    def stated(self) -> Record:
        """What must be true of ``function`` for the claim about f to follow: |T - f| is within ``within`` of |T - s|.

        The numbers are rounded so that it follows from them in real arithmetic. A claim that is not decided asks for no
        eps: its bounds are what is checked.
        """
        if self.within == 0:
            return self
        less = partial(_moved, by=-Fraction(self.within))
        more = partial(_moved, by=Fraction(self.within))
        upper = less(self.upper) if math.isfinite(self.upper) else self.upper
        lower = more(self.lower) if self.lower else 0.0
        moves: dict[str, Callable[[float], float]] = {"proved": less, "refuted": more}
        eps = None
        if self.eps is not None and self.status in moves:
            eps = moves[self.status](self.eps)
        return replace(self, within=0.0, upper=upper, lower=lower, eps=eps)

    @property
    def recorded(self) -> bool:
        """Whether ``function`` is the text of f in the formula language."""
        return recorded(self.function)


def _moved(value: float, by: Fraction) -> float:
    """The float nearest to value + by that has moved at least that far."""
    exact = Fraction(value) + by
    near = float(exact)
    if by < 0:
        return math.nextafter(near, -math.inf) if Fraction(near) > exact else near
    return math.nextafter(near, math.inf) if Fraction(near) < exact else near


def _shape(shape: tuple[int, ...]) -> bool:
    return len(shape) <= MAX_AXES and all(side >= 1 for side in shape)


def _size(shape: tuple[int, ...]) -> int:
    """Numbers in a point, 0 for what is no shape: the product of endless sides is never formed."""
    return math.prod(shape) if _shape(shape) else 0


def _ordered(low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    if len(low) != len(high):
        return False
    return all(-math.inf < a <= b < math.inf for a, b in zip(low, high, strict=True))


def _inside(point: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    if not len(point) == len(low) == len(high):
        return False
    return all(a <= x <= b for a, x, b in zip(low, point, high, strict=True))


def _box_inside(corners: Any, low: Any, high: Any) -> bool:
    """Whether a box, if there is one, is a box and lies in the domain."""
    if corners is None:
        return True
    return _ordered(*corners) and all(_inside(side, low, high) for side in corners)


# What each kind of claim has beside its name, and whether a value may stand there.
_ABOUT: dict[str, dict[str, Callable[[Any], bool]]] = {
    "range": {"low": lambda value: _listed(value, float), "high": lambda value: _listed(value, float)},
    "difference": {},
    "lipschitz": {"norm": lambda value: value in ("inf", "1", "2")},
    "slopes": {},
    "monotone": {
        "inputs": lambda value: _listed(value, int) and min(value) >= 0 and len(set(value)) == len(value),
        "signs": lambda value: _listed(value, int) and set(value) <= {1, -1},
    },
    "convex": {},
    "condition": {"text": lambda value: isinstance(value, str) and 0 < len(value) <= 4096},
}


def _listed(value: Any, kind: type[Any]) -> bool:
    """A list of numbers of one type, at least one, all finite."""
    if not isinstance(value, list) or not value:
        return False
    return all(type(x) is kind and math.isfinite(x) for x in value)


def _settings(about: Mapping[str, Any]) -> bool:
    """Whether a claim is about something known: nothing, or a kind with its settings."""
    if not about:
        return True
    wanted = _ABOUT.get(str(about.get("kind")))
    if wanted is None or set(about) != {"kind", *wanted}:
        return False
    if not all(test(about[name]) for name, test in wanted.items()):
        return False
    return _matching([value for value in about.values() if isinstance(value, list)], ordered="low" in about)


def _matching(lists: list[list[Any]], ordered: bool) -> bool:
    """Whether lists have one length, and of two that are the ends of intervals the first is below."""
    if len({len(item) for item in lists}) > 1:
        return False
    return not ordered or all(a < b for a, b in zip(*lists, strict=True))
