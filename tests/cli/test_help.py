"""Help, version and completion: instant, because nothing that computes is imported, and with examples to copy."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import typer

from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.language.formula import parse

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = ("torch", "matplotlib", "numpy", "scipy", "flint")
MODULES = f"""
import sys
from onelayer.cli import main
try:
    main()
finally:
    print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
"""


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; the last line of stderr lists what it imported of HEAVY."""
    command = [sys.executable, "-c", MODULES, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], [], ["approximate", "--help"]], ids=" ".join)
def test_no_library_is_imported_for_words(arguments: list[str]) -> None:
    done = started(*arguments)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "[]"


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, []) == 0
    out, err = capsys.readouterr()
    assert "Commands" in out
    assert err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_in_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, [command, "--help"]) == 0
    assert "Examples:" in capsys.readouterr().out
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    _, *lines = found.epilog.split("\n\n")
    assert lines
    for line in lines:
        name, called, *arguments = shlex.split(line)
        assert (name, called) == ("onelayer", command)
        given = found.make_context(called, arguments).params  # an unknown option or a missing argument is an error
        if given.get("formula") and not given["formula"].endswith(".csv"):  # or a table
            parse(given["formula"])


def test_completion_of_commands_and_values() -> None:
    done = started(_ONELAYER_COMPLETE="complete_bash", COMP_WORDS="onelayer appr", COMP_CWORD="1")
    assert done.stdout.split() == ["approximate"]
    done = started(_ONELAYER_COMPLETE="complete_bash", COMP_WORDS="onelayer approximate --dtype f", COMP_CWORD="3")
    assert done.stdout.split() == ["float64", "float32", "float16"]
    assert done.stderr.splitlines()[-1] == "[]"
    # The shell is named, not guessed from the process that runs the tests.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "True"}
    assert "complete -o" in started("--show-completion", "bash", **named).stdout


LONG = (
    ["approximate", "sin(x)", "--domain", "0:1", "--eps", "0.1"],
    ["sort", "--length", "4", "--eps", "0.1"],
    ["memorize", "no.csv", "--target", "y"],
    ["certify", "nowhere", "--eps", "0.1"],
    ["check", "nowhere"],
    ["check", "nowhere", "--formal"],
    ["bound", "nowhere"],
    ["lipschitz", "nowhere"],
    ["gradient-error", "nowhere", "x"],
    ["equivalent", "nowhere", "nowhere"],
    ["monotone", "nowhere", "x1=+"],
    ["convex", "nowhere"],
    ["prove", "nowhere", "y1 < 2"],
    ["report", "nowhere"],
    ["eval", "nowhere", "1"],
    ["draw", "nowhere"],
    ["explain", "nowhere"],
    ["export", "nowhere", "--to", "c", "--out", "x.c"],
    ["distill", "nowhere", "--eps", "0.1"],
    ["train", "sin(x)", "--domain", "0:1"],
    ["study", "width"],
    ["paper", "--quick"],
    ["zoo", "sort"],
)
MOVES = f"""
import sys
from onelayer.cli import attended
from onelayer.cli import console, options, main

def first(observer):
    print(sorted(set({HEAVY!r}) & set(sys.modules)))
    raise SystemExit

attended.observing = first
for arguments in {LONG!r}:
    try:
        console.run(options.app, arguments)
    except SystemExit:
        continue
    print(arguments, "showed nothing")
"""


def test_something_moves_before_any_library_is_loaded() -> None:
    """Loading takes seconds; a command that is silent meanwhile looks hung."""
    done = subprocess.run([sys.executable, "-c", MOVES], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[]"] * len(LONG), done.stderr
