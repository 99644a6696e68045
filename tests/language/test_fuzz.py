"""No string makes the parser do anything but return a formula or raise FormulaError, quickly."""

from __future__ import annotations

import random
import string
import time

from onelayer.errors import FormulaError
from onelayer.language.endpoints import parse_domain
from onelayer.language.formula import parse

SEEDS = [
    "sin(x1) + sin(x2)",
    "exp(sin(pi*x) + y**2)",
    "a = x*y; b = a**2; a + b; min(a, b, 3)",
    "-x**2 / (1 + 25*x**2)",
    "hypot(x, y) - 1e-3*abs(z)",
    "9**9**9",
    "sigmoid(x1*x2 − 0.5)·tanh(x3)",
    "where(0 < x <= 1 and not (y == 2 or x > y), floor(x), mod(y, 3))",
    "interp(x, [0, 1, 3], [5, y, 4]) + clip(asin(x), -1, 1)",
    "sin(2*x*y)/(x*y) + (exp(x) - 1)/x - (1 - cos(y))/y**2 + log(1 + x)/x*lgamma(y)/sinc(z)",
    "gamma(x)*beta(x, y) + factorial(z) - pow(x, 2)/(x*y - x*z) + coth(x)*arctan2(y, x) + (x - y)/log(x/y)",
    "tanh(x)/x + x/(exp(x) - 1) + (sqrt(1 + x) - 1)/x + (x**2 - y**2)/(y - x) + sin(3*x)/sin(x)",
    "spline(x, y, [1, 1], [-1, 0, 1, 2], [-1, 0, 1, 2], [1, -2, 3, 4])",
    "facets(x, y, [0, 0, 1, 0, 0, 1, 1, 1], [5, 4, 3, -2], [0, 1, 2, 1, 2, 3])",
]
WORDS = r"""
    x y z x1 x2 x9 pi e sin cos exp log sqrt min max relu erf foo t a _ __class__ ( ) ( ) , ; = : + - * / ** ^
    floor gamma beta pow sec arctan2 degrees if else ² √
    where interp clip sinc lgamma cbrt exprel spline and or not < <= > >= == !=
    0 1 2 3 9 0.5 .5 5. 1e5 1e999 1e-999 00 % ! @ # $ & | ~ [ ] { } ' " \\ − · × π ² é 中 lambda eval( 99999999999999
"""
TOKENS = [*WORDS.split(), " ", "\n", "\t", "\0", "\u202e", "\ud800", "import os"]
COUNT = 100_000


def fuzzed(rng: random.Random) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return "".join(rng.choices(TOKENS, k=rng.randint(1, 14)))
    if kind == 1:
        text = list(rng.choice(SEEDS))
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(text) + 1)
            action = rng.randrange(3)
            if action == 0:
                text.insert(at, rng.choice(TOKENS))
            elif action == 1 and text:
                del text[min(at, len(text) - 1)]
            elif text:
                text[min(at, len(text) - 1)] = rng.choice(string.printable)
        return "".join(text)
    return "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randint(1, 12)))


def test_a_hundred_thousand_strings() -> None:
    rng = random.Random(20240)
    read = refused = several_lines = 0
    start = time.perf_counter()
    for _ in range(COUNT):
        text = fuzzed(rng)
        try:
            formula = parse(text)
        except FormulaError as error:
            refused += 1
            several_lines += "\n" in str(error)
            continue
        read += 1
        if read % 50 == 0:
            assert parse(str(formula), formula.dim) == formula
    assert read + refused == COUNT
    assert several_lines == 0
    assert read > COUNT // 100
    assert refused > COUNT // 2
    assert time.perf_counter() - start < 60


def test_domain_text_is_as_robust() -> None:
    rng = random.Random(7)
    outcomes = set()
    for _ in range(3000):
        text = rng.choice(["0:1, ", "", "-pi:pi,"]) + fuzzed(rng) + rng.choice([":1", ":", ""])
        try:
            parse_domain(text)
            outcomes.add("read")
        except FormulaError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
