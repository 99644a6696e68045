"""Where a command cannot say what it found: a full disk, a reader that is gone, a closed stream, a locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onelayer.cli.console import BAD_INPUT, UNREAD, run
from onelayer.cli.options import app

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")


def started(words: str, streams: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    line = f'exec "{sys.executable}" -m onelayer {words} {streams}'
    settings = {**os.environ, **environment}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=settings, timeout=120)


@needs_full
@pytest.mark.parametrize("words", ["zoo", "zoo --json"])
def test_what_a_full_disk_does_not_take_is_no_success(words: str) -> None:
    found = started(words, ">/dev/full")
    assert found.returncode == BAD_INPUT
    assert found.stderr.startswith("onelayer: cannot write to stdout: ")
    assert len(found.stderr.splitlines()) == 1


def test_a_reader_that_is_gone_wants_no_words() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        found = subprocess.run(
            [sys.executable, "-m", "onelayer", "zoo"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120
        )
    finally:
        os.close(write)
    assert (found.returncode, found.stderr) == (UNREAD, "")


@needs_full
@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-"])
def test_without_a_place_for_the_line_the_status_says_it(streams: str) -> None:
    found = started('approximate "1/" --domain 0:1 --eps 1', streams)
    assert (found.returncode, found.stdout) == (BAD_INPUT, "")


def test_letters_that_a_terminal_lacks_are_spelled() -> None:
    found = started('approximate "sin(π" --domain 0:1 --eps 1', PYTHONIOENCODING="ascii")
    assert found.returncode == BAD_INPUT
    assert "internal error" not in found.stderr
    assert found.stderr.isascii()


@pytest.mark.parametrize("option", ["--dtype", "--kind"])
def test_bad_input_cannot_steer_a_terminal(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sort", "--length=3", "--eps=0.1", f"{option}=\x1b[31m\x00red" + "r" * 5000, "--json"]
    assert run(app, words) == BAD_INPUT
    seen = capsys.readouterr()
    assert seen.err.rstrip("\n").isprintable()
    assert len(seen.err) < 700
    assert json.loads(seen.out)["error"].isprintable()


def test_a_command_that_ran_out_of_time_prints_its_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    from onelayer.cli import console
    from onelayer.observer import Stopped

    def over() -> None:
        raise Stopped("the time is over")

    assert console.guarded(over, as_json=True) == console.NOT_PROVED
    assert "the time is over" in json.loads(capsys.readouterr().out)["error"]
