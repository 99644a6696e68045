"""The checker reads the text of a function itself: whatever is planted in the parser, it takes none for another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import onelayer as ol
from liar import formulas
from liar.expressions import text as written_text
from onelayer.checker.meanings import MEANINGS
from onelayer.checker.outcome import Rejected
from onelayer.checker.precision import precise
from onelayer.checker.reading import need_one_condition, need_one_function
from onelayer.checker.sentence import Sentence, Unread
from onelayer.errors import FormulaError
from onelayer.language import functions, parser, removable, tree
from onelayer.language.conditions import Positive
from onelayer.language.formula import parse
from onelayer.language.functions import FUNCTIONS
from onelayer.language.requirement import parse_requirement

Patch = pytest.MonkeyPatch
DOMAIN = ((-1.0, 0.25), (1.5, 2.0))
TEXTS = [
    "-x**2 + 2**-y - 2**3**0.5",
    "x - y - 1/3 - x/y/3*2",
    "t1 = x*y; t1**2 + 1; sqrt(1 + t1**2)",
    "where(0 < x < 1 and not y > 1 or x == y, mod(x, 0.3), clip(y, 0.5, 1))",
    "interp(x, [-1/2, 0, 1], [y, 2, -4]) + median(x, y, 0.5, x*y) + hypot(x, y, 1)",
    "spline(x, [1], [-1, 0, 1, 2], [5, 4]) + facets(x, y, [0, 0, 1, 0, 0, 1], [5, 4, 3], [0, 1, 2])",
    "(1 - cos(x))/x**2 + sin(x - y)/(y - x) + (sqrt(y) - sqrt(x))/(y - x) + tan(x)/x + x/(exp(x) - 1)",
    "atan2(y, x) + sign(x) + floor(3*x) + ceil(y) + x**(1/3*3) + abs(x)**0.25 + y**x + e**x - pi",
    "gelu(x)*silu(y) + softplus(x) + erfc(x) + sinc(x) + log2(y) + log10(y) + log1p(y) + expm1(x)",
    "gamma = x**2; gamma + factorial(y) + beta(y, y) + sec(x) + acosh(y + 1) + atanh(x/3) + asinh(x)",
    "x·y − 2×x ÷ 3",
    "((x)) + +x - -y + 1.e1 + .5 + 2.5E-1",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_readers_read_one_function(text: str) -> None:
    with precise():
        need_one_function(text, parse(text, 2), (), DOMAIN)


def test_every_function_has_a_meaning_of_its_own() -> None:
    assert set(MEANINGS) == set(FUNCTIONS)
    alone = {name: FUNCTIONS[name].least for name in FUNCTIONS}
    with precise():
        for name, count in alone.items():
            text = f"{name}({', '.join(['0.5 + x/8', '0.3 + y/9', '2 - x'][:count])})"
            need_one_function(text, parse(text, 2), (), DOMAIN)


def test_both_readers_agree_on_random_text() -> None:
    rng, read = Random(11), 0
    with precise():
        for _ in range(150):
            text = written_text(formulas.tree(rng, 2, rng.randint(1, 4)))
            try:
                formula = parse(text, 2)
            except FormulaError:
                continue
            need_one_function(text, formula, (), DOMAIN)
            read += 1
    assert read > 100


def _swapped_choice(patch: Patch) -> None:
    own = Positive.choose
    patch.setattr(Positive, "choose", lambda self, tape, a, b: own(self, tape, b, a))


def _strong_minus(patch: Patch) -> None:
    """-x**2 as (-x)**2."""
    own = parser.Parser._power

    def signed(self: parser.Parser) -> object:
        negative = False
        while self.next.kind == "op" and self.next.text in "+-":
            negative ^= self.take().text == "-"
        if not negative:
            return own(self)
        base = self._atom()
        base = self.tape.add("neg", base)
        return self.tape.power(base, self.number()) if self.accept("**") else base

    patch.setattr(parser.Parser, "_signed", signed)


def _power_to_the_left(patch: Patch) -> None:
    """2**3**y as (2**3)**y."""

    def power(self: parser.Parser) -> object:
        value = self._atom()
        while self.accept("**"):
            value = self.tape.power(value, self._atom())
        return value

    patch.setattr(parser.Parser, "_power", power)


def _other_mod(patch: Patch) -> None:
    """The sign of a, as C has it."""
    other = functions.written(lambda a, b: a + b * functions.floor(-a / b))
    patch.setitem(FUNCTIONS, "mod", other)


def _cancels_everything(patch: Patch) -> None:
    """x*y/x as y: it has no value at 0, which points do not show, and log(x)/log(x) as 1, which they do."""

    def put(self: removable.Cancelling, at: int, exponent: int) -> None:
        side, other = (self.above, self.below) if exponent > 0 else (self.below, self.above)
        shared = min(abs(exponent), other.get(at, 0))
        removable._take(other, at, shared)
        if abs(exponent) > shared:
            side[at] = side.get(at, 0) + abs(exponent) - shared

    patch.setattr(removable.Cancelling, "put", put)


def _wrong_limit(patch: Patch) -> None:
    """1 - cos(u) without one of its halves."""
    own = removable._subtracted

    def subtracted(tape: tree.Tape, first: int, second: int, sign: int) -> object:
        for found in own(tape, first, second, sign):
            yield removable.Vanishing(found.zero, found.rest[:1])

    patch.setattr(removable, "_subtracted", subtracted)


FAULTS: list[tuple[Callable[[Patch], None], str]] = [
    (_swapped_choice, "where(x > 0, x, 2*y)"),
    (_strong_minus, "-x**2 + y"),
    (_power_to_the_left, "2**3**y + x"),
    (_other_mod, "mod(x, 0.3) + y"),
    (_cancels_everything, "log(x)*sin(y)/log(x)/y"),
    (_wrong_limit, "(1 - cos(x))/x + y"),
]


@pytest.mark.parametrize(("plant", "text"), FAULTS)
def test_a_fault_in_the_parser_is_seen(plant: Callable[[Patch], None], text: str, monkeypatch: Patch) -> None:
    with precise():
        need_one_function(text, parse(text, 2), (), DOMAIN)
        plant(monkeypatch)
        with pytest.raises(Rejected, match="the function is"):
            need_one_function(text, parse(text, 2), (), DOMAIN)


def test_a_proof_of_what_the_parser_takes_for_f_is_rejected(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(FUNCTIONS, "square", functions.written(lambda x: x**3))
    result = ol.approximate("square(x) + y", ol.Box([0.5, 0], [1, 1]), eps=1e-2)
    assert result.certificate.status == "proved"
    result.save(tmp_path / "f")
    # What was proved is shown as it is, x**3; what was asked for is not that.
    assert ol.check(tmp_path / "f").ok
    asked = ol.check(tmp_path / "f", f="square(x) + y")
    assert not asked.ok
    assert "the function is" in str(asked)


@pytest.mark.parametrize(
    "text", ["y1 <= y2 + 0.1 and y1 >= 0", "not (y1 > 1 or y2 == y1)", "0 < y1 <= y2 < 3 or x > 1"]
)
def test_conditions_hold_where_their_margins_are_good(text: str) -> None:
    names = ["y1", "y2", "x"]
    with precise():
        need_one_condition(text, parse_requirement(text, names), names)
        turned = parse_requirement(f"not ({text})", names)
        with pytest.raises(Rejected, match="true to one reader and false to the other"):
            need_one_condition(text, turned, names)


UNREAD = ["x +", "2x", "(x", "x y", "where(x, 1, 2)", "x > 1", "f(x)", "x4", "sin x", "interp(x, [y], [0])", "1e999"]


@pytest.mark.parametrize("text", UNREAD)
def test_what_it_does_not_understand_is_not_read(text: str) -> None:
    with precise(), pytest.raises(Unread):
        Sentence(text, [(0.5, 1.5)]).outputs()


def test_names_are_those_of_the_domain() -> None:
    with precise():
        need_one_function("α - 2*rate_2", parse("α - 2*rate_2", 2, names=["α", "rate_2"]), ["α", "rate_2"], DOMAIN)
        with pytest.raises(Rejected):
            need_one_function("α - 2*rate_2", parse("α - 2*rate_2", 2, names=["rate_2", "α"]), ["α", "rate_2"], DOMAIN)
