"""Certificate: what is proved about sup|T - f|, by which boxes, in which arithmetic."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

from onelayer.box import Box
from onelayer.card import card, number_of
from onelayer.door import door
from onelayer.errors import FileError, OnelayerError
from onelayer.float64 import at_most
from onelayer.formats import REAL
from onelayer.language.formula import parse
from onelayer.language.words import recorded
from onelayer.lazy import late
from onelayer.proof.claim import CONDITIONAL, CURVED, ESTIMATED, FIELDS, SUP, decide, from_json, to_json
from onelayer.proof.rules import rules
from onelayer.proof.tree import BoxTree

MOST_RENAMED = 10_000  # characters of a formula that is read again to be shown
BOXES = "branch and bound"
ROWS = "enumeration"
# By method, what a bound rests on that is no theorem about the weights.
CONDITIONS = {
    CONDITIONAL: "conditional on the declared Lipschitz constant",
    CURVED: "conditional on the given gradient and its declared Lipschitz constant",
    ESTIMATED: "by an estimated Lipschitz constant, which is no proof",
}
MOST_SHOWN = 200  # characters of a formula on one line
MOST_COORDINATES = 8  # of a point on one line


# Beyond the rounding of one sum and one product.
BELOW, ABOVE = 1 - 2.0**-50, 1 + 2.0**-50


@dataclass(frozen=True)
class Certificate:
    """lower <= sup over ``domain`` of |T - f| <= upper, the sup taken over all points and all outputs.

    ``status`` is "proved" iff upper <= eps (without an eps: iff the enclosure is as tight as was asked), "refuted" iff
    lower > eps, with the ``witness`` point, and "undecided" otherwise, with a ``resisted`` box. NaN is never a bound.
    What would be proved but rests on a guess at how fast f changes is "estimated".
    ``arithmetic`` says which T is meant: "real" for exact arithmetic on the stored weights, "float64 execution" or
    "float32 execution" for the numbers that a forward pass in that format returns. ``proof`` holds the leaf boxes,
    ``attachments`` the files that a lemma, a composition or a memorised table is checked from. ``about`` says what is
    enclosed where that is not |T - f| (proof/about.py); ``models`` are the models as they were then (proof/kept.py),
    for :meth:`save`.
    Where ``within`` is positive f itself has no formula: it is that close to ``function`` if the assumptions hold, and
    what is proved of ``function`` is proved with that much to spare.
    """

    status: str
    eps: float | None
    lower: float
    upper: float
    witness: tuple[float, ...] | None
    boxes: int
    order: int
    arithmetic: str
    domain: Box
    function: str
    weights_sha256: str
    seconds: float
    version: str
    method: str = BOXES
    resisted: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    assumptions: tuple[str, ...] = ()
    proof: BoxTree | None = field(default=None, repr=False)
    attachments: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)
    claim: str = SUP
    about: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    models: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    within: float = 0.0

    def __post_init__(self) -> None:
        # Whoever builds one, a proof, a file or a user, is held to the same rules.
        for holds, complaint in rules(self):
            if not holds:
                raise OnelayerError(f"inconsistent certificate: {complaint}")

    @classmethod
    def settled(
        cls,
        *,
        eps: float | None,
        lower: float,
        upper: float,
        reached: bool = True,
        resisted: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
        **facts: Any,
    ) -> Certificate:
        """The certificate of lower <= sup <= upper with the status that follows from them.

        ``reached`` says whether an enclosure without an eps is as tight as was asked. ``facts`` are the other fields.
        """
        # The package imports this module to have its version.
        from onelayer import __version__

        eps = None if eps is None else at_most(eps)
        status = decide(eps, lower, upper, method=facts.get("method", BOXES), reached=reached)
        where = resisted if status == "undecided" else None
        return cls(status=status, eps=eps, lower=lower, upper=upper, resisted=where, version=__version__, **facts)

    def supposing(self, eps: float | None, within: float, assumption: str, *, estimated: bool) -> Certificate:
        """The claim about an f that an assumption puts ``within`` a distance of the function that this one is about.

        Lemma: |T - f| differs from |T - s| by at most the distance, so the bounds of sup|T - s| move by it.
        """
        # Rounded down twice and up once: what is stated must hold whatever the sums were rounded to.
        lower = 0.0
        if self.lower > within:
            lower = max(0.0, (self.lower * BELOW - within) * BELOW)
        upper = (self.upper + within) * ABOVE
        eps = None if eps is None else at_most(eps)
        method = ESTIMATED if estimated else self.method
        status = decide(eps, lower, upper, method=method, reached=self.status == "proved")
        return replace(
            self,
            status=status,
            eps=eps,
            lower=lower,
            upper=upper,
            method=method,
            resisted=self.resisted if status == "undecided" else None,
            assumptions=(*self.assumptions, assumption),
            within=within,
        )

    @property
    def proved(self) -> bool:
        """Whether the status is "proved"."""
        return self.status == "proved"

    @property
    def recorded(self) -> bool:
        """Whether ``function`` is the text of f, so that a saved proof needs nothing but its files."""
        return recorded(self.function)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point of the domain."""
        return tuple(self.domain.shape)

    @property
    def corners(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper corner of the domain, flattened in row-major order."""
        low = self.domain.lower.flatten().tolist()
        high = self.domain.upper.flatten().tolist()
        return tuple(low), tuple(high)

    def plain(self) -> dict[str, Any]:
        """The fields of the claim as JSON has them: the domain by its shape, corners and names."""
        known = {name: getattr(self, name) for name in FIELDS if name != "domain"}
        known["domain"] = self.corners
        known["names"] = self.domain.names
        known |= {"claim": self.claim, "about": dict(self.about), "within": self.within}
        return known

    def to_json(self) -> str:
        """The claim without the boxes, as JSON."""
        return to_json(self.plain())

    @classmethod
    @door
    def from_json(cls, text: str, function: str | None = None) -> Certificate:
        """The inverse of :meth:`to_json`; ``function`` is needed if its text was too long to be inside."""
        try:
            return cls.from_plain(from_json(text, function)[0])
        except FileError:
            raise
        except OnelayerError as error:
            raise FileError(f"certificate.json: {error}") from error

    @classmethod
    def from_plain(
        cls, claim: Mapping[str, Any], proof: BoxTree | None = None, attachments: Mapping[str, bytes] | None = None
    ) -> Certificate:
        """The inverse of :meth:`plain`, with the boxes and the files beside it."""
        known = dict(claim)
        shape = known.pop("shape")
        names = known.pop("names")
        low, high = known.pop("domain")
        if not math.prod(shape) == len(low) == len(high):
            raise OnelayerError("inconsistent certificate: the domain must match its shape")
        lower = np.array(low, dtype=np.float64).reshape(shape)
        upper = np.array(high, dtype=np.float64).reshape(shape)
        box = Box(lower, upper, names=names)
        return cls(domain=box, proof=proof, attachments=attachments or {}, **known)

    @door
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model as plain data, the claim and its boxes into ``folder``, for ``check``, ``report`` and others.

        A model of another kind than ours is written as a network of known operations (docs/file-format.md).
        """
        written: Path = late("proof.saved", "save_claim")(self, folder)
        return written

    @property
    def sentence(self) -> str:
        """The claim in one line, without the status: "sup|T - f| <= 9.071e-07 < 1e-06", where, and what it rests on."""
        return ", ".join(filter(None, (self._claim(), self.where, self.condition)))

    @property
    def where(self) -> str:
        """Where on the domain the claim holds: "" for everywhere. A table says nothing of f between its rows.

        It belongs beside every bound that is shown, as the condition does.
        """
        return "at the rows of the table alone" if self.method == ROWS else ""

    @property
    def condition(self) -> str:
        """What a claim rests on beside the rounding of its execution, "" where that is nothing.

        It belongs beside every bound that is shown: nobody may take for proved what rests on a declaration or a guess.
        """
        if self.within:
            guessed = "by an estimate of the structure of f or its Lipschitz constant, which is no proof"
            declared = "conditional on the declared structure of f and its Lipschitz constant"
            return guessed if self.method == ESTIMATED else declared
        return CONDITIONS.get(self.method, "")

    @property
    def named_function(self) -> str:
        """The text of f with the names that the domain gives to its variables; as it is where that is long."""
        if not self.domain.names or not self.recorded or len(self.function) > MOST_RENAMED:
            return self.function
        return parse(self.function, self.domain.dim).text(self.domain.variables)

    @property
    def short_function(self) -> str:
        """The text of f with the names of its variables, abridged for a line."""
        return abridged(self.named_function, MOST_SHOWN)

    def _repr_html_(self) -> str:
        work = f", {self._boxes()}, {self.seconds:.2f} s" if self.boxes else ""
        rows = [
            ("claim", self.sentence),
            ("f", self.short_function),
            ("domain", repr(self.domain)),
            ("arithmetic", self.executed),
            ("proof", f"{self.method}{work}"),
            ("weights", f"sha256 {self.weights_sha256}"),
        ]
        if self.witness is not None:
            least = outward(self.lower, up=False)
            rows.append(("largest error known", f"{least} {self._at(self.witness)}"))
        rows += [("assumed", text) for text in self.assumptions]
        return card("Certificate", rows, self.status)

    @property
    def executed(self) -> str:
        """The arithmetic that the claim speaks of, in words."""
        return "exact real arithmetic" if self.arithmetic == REAL else self.arithmetic

    def _boxes(self) -> str:
        return number_of(self.boxes, "boxes") if self.boxes else ""

    @property
    def headline(self) -> str:
        """The claim in one line with its status, by what it is shown and what it is about."""
        by_what = self._boxes() or f"by {self.method}"
        parts = (f"{self.status}: {self._claim()}", self.where, by_what, self.executed, self.condition)
        return ", ".join(filter(None, parts))

    def __str__(self) -> str:
        return f"Certificate({self.headline})"

    __repr__ = __str__

    def _point(self, x: tuple[float, ...]) -> str:
        return point(x, self.domain.variables)

    def _at(self, x: tuple[float, ...]) -> str:
        """Where a bound is reached: "at" a point that is printed whole, "near" one of which digits are left out."""
        whole = len(x) <= MOST_COORDINATES and all(float(f"{value:.6g}") == value for value in x)
        return f"{'at' if whole else 'near'} {self._point(x)}"

    def _claim(self) -> str:
        if self.status in ("proved", "estimated") and self.eps is not None:
            # The decimal is rounded up, but never beyond eps: both signs that are printed are true.
            high = outward(self.upper, up=True, limit=self.eps)
            sign = "<" if float(high) < self.eps else "<="
            return f"{self.claim} <= {high} {sign} {self.eps!r}"
        if self.status == "refuted" and self.witness is not None:
            low = outward(self.lower, up=False, limit=self.eps)
            return f"{self.claim} >= {low} > {self.eps!r} {self._at(self.witness)}"
        asked = "" if self.eps is None else f", asked for {self.eps!r}"
        where = ""
        if self.resisted is not None:
            where = f", resisted near {self._point(middle(self.resisted))}"
        return f"{self._known()}{asked}{where}"

    def _known(self) -> str:
        low = outward(self.lower, up=False)
        if math.isfinite(self.upper):
            return f"{low} <= {self.claim} <= {outward(self.upper, up=True)}"
        if self.lower > 0:
            return f"{self.claim} >= {low}, no upper bound"
        return f"no bound of {self.claim} is known"


def abridged(text: str, most: int) -> str:
    """A formula on a line of so many characters: the numbers of a table go first, then what is beyond the end."""
    line = " ".join(text.split())
    if len(line) > most:
        line = re.sub(r"(, \[[^\]]*\])+", ", table", line)
    if len(line) > most:
        return f"{line[: most - 3]}..."
    return line


def outward(value: float, *, up: bool, limit: float | None = None) -> str:
    """A short decimal >= value (``up``) or <= value, so that what is printed is true as well.

    It gets as many digits as it needs to be within 0.1 % and on its side of ``limit``, at least three; the exact float
    if none will.
    """
    # Zero and infinity are their own decimals, and no digits bring one closer.
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    for digits in range(3, 17):
        with localcontext() as context:
            context.prec = digits
            context.rounding = ROUND_CEILING if up else ROUND_FLOOR
            rounded = +Decimal(value)
        exact = Decimal(value)
        close = abs(rounded - exact) <= exact / 1000
        right = limit is None or (rounded <= Decimal(limit) if up else rounded > Decimal(limit))
        if close and right:
            mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
            return f"{mantissa}e{int(exponent):+03d}"
    return repr(value)


def interval(low: float, high: float) -> str:
    """An enclosure for people: six digits, rounded outward, so that what is printed is true as well."""
    return f"[{_six_digits(low, ROUND_FLOOR)}, {_six_digits(high, ROUND_CEILING)}]"


def _six_digits(value: float, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    with localcontext() as context:
        context.prec = 6
        context.rounding = rounding
        return f"{float(+Decimal(value)):.6g}"


def middle(box: tuple[tuple[float, ...], tuple[float, ...]]) -> tuple[float, ...]:
    """Centre of a box given by its corners."""
    # Halved before they are added: the sum of two large ends would overflow.
    return tuple(a / 2 + b / 2 for a, b in zip(*box, strict=True))


def point(x: tuple[float, ...], names: Sequence[str] = ()) -> str:
    """A point for people: six digits, long points abridged; each number behind its name where there are names."""
    before = [f"{name} = " for name in names] or [""] * len(x)
    numbers = zip(before[:MOST_COORDINATES], x[:MOST_COORDINATES], strict=True)
    shown = [f"{name}{value:.6g}" for name, value in numbers]
    shown += ["..."] if len(x) > MOST_COORDINATES else []
    return f"({', '.join(shown)})"
