"""Whatever is typed ends in a proof, an honest certificate, or one line: extremes of every option, and random lines."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from onelayer.cli.console import DEBUG, guarded, run
from onelayer.cli.options import app

PROVED, OPEN, REFUSED = 0, 1, 2
HUGE = "1180591620717411303424"
# 1 at 0.95371, and a product of numbers below the smallest one beside it.
LOST = "(exp(-500*x)*exp(-500*x))*exp(700*x)*exp(300*x)*exp(-(1e8*(x-0.95371))**2)"


def approximate(formula: str, domain: str = "0:1", eps: str = "1e-3", *more: str) -> list[str]:
    return ["approximate", formula, f"--domain={domain}", f"--eps={eps}", *more]


def sort(*more: str, length: str = "4", eps: str = "0.1") -> list[str]:
    return ["sort", f"--length={length}", f"--eps={eps}", *more]


TOKENS, NARROW = ("--layout", "tokens"), ("--dtype", "float32")
# The arguments, the exit status, and a word that has to be said.
BUILT: dict[str, tuple[list[str], int, str]] = {
    "constant kink": (approximate("abs(0)+x"), PROVED, "proved"),
    "constant kink and a curve": (approximate("relu(0)-cosh(x)"), PROVED, "proved"),
    "constant kink alone": (approximate("relu(0)"), PROVED, "proved"),
    "constant kink of tokens": (approximate("abs(0)+x", "0:1, 0:1", "1e-3", *TOKENS), PROVED, "proved"),
    "irrational constant of tokens": (approximate("pi+x+e*y", "0:1, 0:1", "1e-3", *TOKENS), PROVED, "proved"),
    "a constant": (approximate("3"), PROVED, "proved"),
    "nothing": (approximate("x-x"), PROVED, "proved"),
    "a point that is no float32": (approximate("x", "1.1:1.1", "1e-3", *NARROW), REFUSED, "no float32 number"),
    "a side without float32": (approximate("x", "1.0000000001:1.0000000002", "1", *NARROW), REFUSED, "float32"),
    "a point of tokens": (approximate("x", "1.1:1.1", "1e-3", *NARROW, *TOKENS), REFUSED, "no float32 number"),
    "a point": (approximate("sin(x)", "1.1:1.1"), PROVED, "proved"),
    "values near overflow": (approximate("exp(x)", "700:709.7"), REFUSED, "f reaches"),
    "values near overflow, large eps": (approximate("exp(x)", "700:709.7", "1e300"), REFUSED, "f reaches"),
    "a factor of 1e308": (approximate("1e308*x"), REFUSED, "f reaches 1e+308"),
    "a weight of 1e308": (approximate("1e308*(sin(x)+sin(y))", "0:0.1,0:0.1", "1e300", *TOKENS), REFUSED, "f reaches"),
    "beyond float32": (approximate("1e39*x", "0:1", "1e30", *NARROW), REFUSED, "f reaches 1e+39"),
    "large values": (approximate("1e290*exp(x)", "0:1", "1e287"), PROVED, "proved"),
    "small values": (approximate("1e-280*exp(x)", "0:1", "1e-283"), PROVED, "proved"),
    "products that underflow": (approximate(LOST, "0.9:1"), OPEN, "undecided"),
    "roots of negative numbers": (approximate("sqrt(-(x*x))", "1e-200:2e-200"), OPEN, "undecided"),
    "large inverse": (approximate("1/x", "1e-300:2e-300", "1e290"), OPEN, "undecided"),
    "one subnormal wide": (approximate("x", "0:5e-324"), PROVED, "proved"),
    "one subnormal wide and close": (approximate("x", "0:5e-324", "5e-324"), OPEN, "sup|T - f|"),
    "subnormal kink": (approximate("abs(x)", "-1e-320:1e-320", "1e-322"), OPEN, "sup|T - f|"),
    "subnormal inverse": (approximate("1/x", "1e-308:2e-308", "1e300"), REFUSED, "f reaches"),
    "product of large sides": (approximate("x*y", "0:1e150,0:1e150", "1e290"), PROVED, "sup|T - f|"),
    "a box beyond reach": (approximate("x", "-1e308:1e308", "1"), REFUSED, "the box reaches 1e+308"),
    "a box beyond reach of tokens": (approximate("max(x,y)", "0:1e308,0:1e308", "1", *TOKENS), REFUSED, "box"),
    "eps below all rounding": (approximate("sin(x)", "0:1", "1e-320", "--max-tokens", "5"), OPEN, "sup|T - f|"),
    "eps beyond all values": (approximate("sin(x)", "0:1", "1e308"), PROVED, "proved"),
    "a seed beyond 64 bits": (approximate("x", "0:1", "1", "--seed", HUGE), REFUSED, "--seed"),
    "a negative seed": (approximate("x", "0:1", "1", "--seed=-1"), REFUSED, "--seed"),
    "tokens without end": (approximate("x", "0:1", "1", "--max-tokens", HUGE), PROVED, "proved"),
    "no tokens": (approximate("x", "0:1", "1", "--max-tokens", "0"), REFUSED, "--max-tokens"),
    "jobs without end": (approximate("x", "0:1", "1", "--jobs", HUGE), PROVED, "proved"),
    "negative jobs": (approximate("x", "0:1", "1", "--jobs=-5"), REFUSED, "--jobs"),
    "no jobs": (approximate("x", "0:1", "1", "--jobs", "0"), REFUSED, "jobs"),
    "no time": (approximate("x", "0:1", "1e-3", "--max-seconds", "1e-300"), PROVED, "proved"),
    "undefined time": (approximate("x", "0:1", "1", "--max-seconds", "nan"), REFUSED, "max_seconds"),
    "negative time": (approximate("x", "0:1", "1", "--max-seconds=-1"), REFUSED, "max_seconds"),
    "unknown layout": (approximate("x", "0:1", "1", "--layout", ""), REFUSED, "layout"),
    "too many coordinates": (approximate("x1", ",".join(["0:1"] * 300)), REFUSED, "254"),
    "very many coordinates": (approximate("x1", ",".join(["0:1"] * 22_000), "1", *TOKENS), REFUSED, "254"),
    "no formula": (approximate(""), REFUSED, "column 1"),
    "no domain": (approximate("x", ""), REFUSED, "column 1"),
    "a colon": (approximate("x", ":"), REFUSED, "column 1"),
    "three ends": (approximate("x", "0:1:2"), REFUSED, "column 4"),
    "a comma too many": (approximate("x", "0:1,"), REFUSED, "column 5"),
    "a foreign letter": (approximate("é"), REFUSED, "column 1"),
    "a foreign digit": (approximate("x", "０:1"), REFUSED, "column 1"),
    "a null byte": (approximate("x\x00"), REFUSED, "column 2"),
    "sort at the largest numbers": (sort("--lower=-8e307", "--upper=8e307", eps="1e300"), REFUSED, "8e+307"),
    "sort subsets at the largest numbers": (
        sort("--lower=-8e307", "--upper=8e307", "--kind=subsets", eps="1e300"), REFUSED, "8e+307"
    ),
    "sort at the largest float32": (sort("--lower=-3e38", "--upper=3e38", *NARROW, eps="1e37"), REFUSED, "3e+38"),
    "sort subnormal numbers": (sort("--upper=1e-320", eps="1e-321"), REFUSED, "too narrow"),
    "sort subnormal numbers, large eps": (sort("--upper=1e-320", eps="1"), REFUSED, "too narrow"),
    "sort subsets of subnormal numbers": (sort("--upper=1e-320", "--kind=subsets", eps="1"), REFUSED, "too narrow"),
    "sort no float32 numbers": (sort("--lower=1.00000000001", "--upper=1.00000000002", *NARROW), REFUSED, "float32"),
    "sort one float32 number": (sort("--lower=1", "--upper=1.00000000001", *NARROW, eps="1e-3"), PROVED, "proved"),
    "sort finer than float32": (sort("--lower=1", "--upper=1.00001", *NARROW, eps="1e-8"), REFUSED, "do not fit"),
    "sort as finely as never": (sort("--kind=thresholds", eps="5e-324"), REFUSED, "thresholds"),
    "sort finer than memory": (sort("--kind=thresholds", eps="1.2e-5"), REFUSED, "thresholds"),
    "sort subsets as finely as never": (sort("--kind=subsets", eps="1e-300"), OPEN, "sup|T - f|"),
    "sort numbers of size 1e290": (sort("--upper=1e290", eps="1e289"), PROVED, "proved"),
    "sort numbers of size 1e-290": (sort("--upper=1e-290", eps="1e-291"), PROVED, "proved"),
    "sort nothing": (sort(length="0"), REFUSED, "length"),
    "sort without end": (sort(length=HUGE), REFUSED, "length"),
    "sort a billion": (sort(length="1000000000"), REFUSED, "length"),
    "sort to nan": (sort("--upper=nan"), REFUSED, "finite"),
    "sort to inf": (sort("--upper=inf"), REFUSED, "finite"),
    "sort backwards": (sort("--upper=-1"), REFUSED, "lo < hi"),
    "sort in no way": (sort("--kind="), REFUSED, "thresholds, subsets"),
    "nothing typed": ([], PROVED, "--help"),
    "an empty command": ([""], REFUSED, "command"),
    "an unknown command": (["sotr"], REFUSED, "sotr"),
    "an option without a value": (["approximate", "x", "--eps"], REFUSED, "--eps"),
    "training beyond memory": (["train", "x", "--domain=0:1", "--hidden", HUGE], REFUSED, "--hidden"),
    "training without end": (["train", "x", "--domain=0:1", "--steps", HUGE], REFUSED, "--steps"),
    "training on no device": (["train", "x", "--domain=0:1", "--device", "meta"], REFUSED, "device"),
    "training to nan": (["train", "x", "--domain=0:1", "--lr", "nan"], REFUSED, "lr"),
    "studying nothing": (["study", ""], REFUSED, "no study"),
}  # fmt: skip

TABLES: dict[str, tuple[str | bytes, int, str]] = {
    "largest inputs": ("x,y\n1e308,1.5\n-1e308,2.5\n1e-308,0.5\n0,1\n", REFUSED, "X reaches 1e+308"),
    "largest inputs of labels": ("x,y\n1e308,a\n-1e308,b\n1e-308,c\n0,a\n", REFUSED, "X reaches 1e+308"),
    "largest outputs": ("x,y\n1,1.7e308\n2,-1.7e308\n3,0.5\n", REFUSED, "Y reaches 1.7e+308"),
    "large numbers": ("x,y\n1e300,1e299\n-1e300,2e299\n0,1\n", PROVED, "proved"),
    "inputs of all sizes": ("x,y\n1e300,1\n-1e300,2.5\n1e-300,0.5\n0,1\n1e-310,3\n", OPEN, "sup|T - f|"),
    "subnormal inputs": ("x,y\n5e-324,1.5\n1e-323,2.5\n0,0.5\n1e-320,0.25\n", OPEN, "sup|T - f|"),
    "subnormal outputs": ("x,y\n1,5e-324\n2,1e-323\n3,0\n", OPEN, "undecided"),
    "one row": ("x,y\n1,2.5\n", PROVED, "proved"),
    "no row": ("x,y\n", REFUSED, "at least one row"),
    "nothing": ("", REFUSED, "at least one row"),
    "a row twice": ("x,y\n1,2.5\n1,2.5\n", PROVED, "proved"),
    "two outputs": ("x,y\n1,2.5\n1,3.5\n", REFUSED, "equal inputs"),
    "nan among inputs": ("x,y\nnan,2.5\n1,3\n", REFUSED, "row 1"),
    "nan among numbers": ("x,y\n2,nan\n1,3.5\n", REFUSED, "row 1"),
    "inf among numbers": ("x,y\n2,3.5\n1,1e999\n", REFUSED, "row 2"),
    "inf among names": ("x,y\n2,dev\n1,inf\n", PROVED, "proved"),
    "a missing value": ("x,y\n2,\n1,3.5\n", REFUSED, "row 1"),
    "no text": (b"x,y\n\xff\xfe,1\n", REFUSED, "UTF-8"),
    "a null byte": (b"x,y\n\x00,1\n2,3\n", REFUSED, ""),
    "a column twice": ("x,x\n1,2\n", REFUSED, "once"),
    "only the target": ("y\n1\n", REFUSED, "input columns"),
    "no target": ("x,z\n1,2\n", REFUSED, "no column"),
    "a ragged row": ("x,y\n1\n", REFUSED, "line 2"),
}  # fmt: skip


def answered(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    """Exit status and what was said; one line on stderr where the input was refused, and never an internal error."""
    capfd.readouterr()
    status = run(app, arguments)
    out, err = capfd.readouterr()
    assert status in (PROVED, OPEN, REFUSED), (arguments, status, err)
    assert "internal error" not in err, (arguments, err)
    assert "Traceback" not in out + err, (arguments, err)
    if status == REFUSED:
        assert len(err.strip().splitlines()) == 1, (arguments, err)
        assert len(err.strip()) > len("onelayer: ")
    else:
        assert err == "", (arguments, err)
        assert out.strip()
    return status, out + err


@pytest.mark.parametrize("name", BUILT)
def test_extremes_of_the_options(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, status, word = BUILT[name]
    found, said = answered(capfd, arguments)
    assert found == status, said
    assert word in said


@pytest.mark.parametrize("name", TABLES)
def test_extremes_of_tables(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content, status, word = TABLES[name]
    table = tmp_path / "table.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    found, said = answered(capfd, ["memorize", str(table), "--target", "y"])
    assert found == status, said
    assert word in said
    for more in (["--recipe=relu"], ["--recipe=softmax"], ["--dtype=float32"], ["--seed", HUGE], ["--recipe="]):
        found, said = answered(capfd, ["memorize", str(table), "--target", "y", *more])
        assert status != REFUSED or found == REFUSED, said


def test_files_that_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe.csv")
    out, pipe = str(tmp_path / "file"), str(tmp_path / "pipe.csv")
    lines = [
        *(["memorize", name, "--target", "y"] for name in (str(tmp_path), pipe, "/dev/zero", "", "\x00", "no.parquet")),
        *([*approximate("x"), "--out", name] for name in (out, "/dev/null", "/proc/a/b", "\x00", "n" * 300)),
        *([verb, name] for verb in ("check", "certify", "draw", "explain") for name in (out, "\x00", "n" * 5000)),
        ["eval", out, "1"],
        ["export", out, "--to", "torch", "--out", out],
        *(["train", name, "--target", "y"] for name in (str(tmp_path), pipe)),
        *(["distill", str(tmp_path), "--texts", name] for name in (str(tmp_path), pipe)),
    ]
    for line in lines:
        assert answered(capfd, line)[0] == REFUSED, line


def test_numbers_of_a_saved_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "line")
    assert answered(capfd, [*approximate("x+1"), "--out", folder])[0] == PROVED
    for point in ("nan", "1e400", "-", "1,2", "é", "\x00", "x1", "1;2;x"):
        assert answered(capfd, ["eval", folder, point])[0] == REFUSED
    for point in ("1e308", "5e-324", "0;" * 500):
        assert answered(capfd, ["eval", folder, point])[0] == PROVED
    for option in ("eps=nan", "eps=-1", "eps=inf", "order=0", f"order={HUGE}", "max-seconds=nan", "jobs=0", "jobs=-2"):
        assert answered(capfd, ["certify", folder, f"--{option}"])[0] == REFUSED
    assert answered(capfd, ["certify", folder, "--eps=5e-324"])[0] == OPEN


NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    "2",
    "1e-3",
    "1e-320",
    "5e-324",
    "1e300",
    "1.7e308",
    "1e309",
    "nan",
    "inf",
    HUGE,
    "x",
]
PARTS = [
    "x",
    "x1",
    "x2",
    "0",
    "1e308",
    "1e-308",
    "pi",
    "abs(0)",
    "sin(x)",
    "abs(x)",
    "relu(x-0.5)",
    "1/x",
    "sqrt(x)",
    "exp(x)",
]
SIDES = ["0", "1", "-1", "0.3", "1e-320", "5e-324", "1e300", "-1e300", "1e308", "pi", "700", "1e-300", ""]
OPTIONS = ["--max-tokens", "--seed", "--jobs", "--eps", "--dtype", "--layout"]
WORDS = ["float32", "float64", "tokens", "packed", "", "é"]


def random_line(chance: random.Random) -> list[str]:
    """A command line of plausible parts, most of them extreme."""
    if chance.random() < 0.3:
        kind = chance.choice(["thresholds", "subsets", ""])
        ends = [f"--{end}={chance.choice(NUMBERS)}" for end in ("lower", "upper") if chance.random() < 0.7]
        length, eps = chance.choice(["1", "2", "5", "0", HUGE]), chance.choice(["0.1", "1e-2", "1e289", *NUMBERS])
        return sort(f"--kind={kind}", *ends, *chance.choice([(), NARROW]), length=length, eps=eps)
    operators = ["+", "-", "*", "/", "**", ","]
    text = "".join(chance.choice(PARTS) + chance.choice(operators) for _ in range(chance.randrange(3))) + chance.choice(
        PARTS
    )
    sides = [f"{chance.choice(SIDES)}:{chance.choice(SIDES)}" for _ in range(chance.choice([1, 1, 2]))]
    more: list[str] = []
    for _ in range(chance.randrange(3)):
        option = chance.choice(OPTIONS)
        more += [f"{option}={chance.choice(WORDS if option in ('--dtype', '--layout') else NUMBERS)}"]
    eps = chance.choice(["0.1", "1e-2", "1e-3", *NUMBERS])
    return approximate(text, ", ".join(sides), eps, "--max-tokens=40", "--max-seconds=0.3", *more)


def random_lines(seed: int) -> Iterator[list[str]]:
    chance = random.Random(seed)
    while True:
        yield random_line(chance)


@pytest.mark.parametrize(("seed", "count"), [(1, 60), pytest.param(2, 3000, marks=pytest.mark.slow)])
def test_random_lines(seed: int, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    found = [0, 0, 0]
    for _, line in zip(range(count), random_lines(seed), strict=False):
        found[answered(capfd, line)[0]] += 1
    assert min(found) > 0


def test_what_nobody_thought_of_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("two\nlines")

    monkeypatch.delenv(DEBUG, raising=False)
    assert guarded(fails, as_json=False) == REFUSED
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "internal error (KeyError" in err
    monkeypatch.setenv(DEBUG, "1")
    assert guarded(fails, as_json=False) == REFUSED
    assert "Traceback" in capfd.readouterr().err
