"""Every file of a folder is hostile: whatever it says, the outcome is a true acceptance, a refusal, or one line."""

from __future__ import annotations

import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from folder_mutations import Folder, mutated
from folder_truth import falsehood

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.build.sort import median, sort
from onelayer.checker.check import UNEXPECTED, check
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.proof.certify import certify
from onelayer.result import Approximation, load

SECONDS = 2.0  # of checking
LONGEST = 30.0  # of one mutation, everything included, on a busy machine
MEMORY = 2**21  # KiB that the process may grow by


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folder]:
    """Small honest folders of every method."""
    line, square, cube = (Box([0.0] * n, [1.0] * n) for n in (1, 2, 3))
    waves = approximate("sin(x1) + x2*x2", square, 1e-1)
    made = {
        "waves": waves,
        "kink": approximate("abs(x1 - x2)", square, 1e-6),
        "quotient": approximate("x1/(1 + x2)", square, 1e-1),
        "narrow": approximate("cos(x1)", line, 1e-2, dtype=torch.float32),
        "refuted": Approximation(waves.model, certify(waves.model, "sin(x1) + x2*x2", square, 1e-9), waves.target),
        "sort": sort(3, 0.0, 1.0, 0.2, kind="thresholds"),
        "subsets": sort(3, 0.0, 1.0, 0.1, kind="subsets"),
        "median": median(3, 0.0, 1.0, 0.2),
        "table": memorize([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [0.5, 1.25, 0.75], recipe="softmax"),
        "labels": memorize([[0.0], [1.0], [2.0]], ["a", "b", "a"], recipe="relu"),
        "gather": gather("sin(x1 + x2)", square, 1e-1),
        "superpose": superpose("exp(x1 + x2 + x3)", cube, 1e-1),
    }
    root = tmp_path_factory.mktemp("honest")
    found = {}
    for name, result in made.items():
        path = result.save(root / name)
        found[name] = {file.name: file.read_bytes() for file in path.iterdir()}
    return found


def written(folder: Folder, path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in folder.items():
        (path / name).write_bytes(data)
    return path


def checked(path: Path) -> str:
    """The word of the checker, or that the files are bad; anything else is raised."""
    try:
        report = check(path, max_seconds=SECONDS)
    except OnelayerError as error:
        return one_line(error, "bad file")
    assert UNEXPECTED not in report.reason, report.reason
    return one_line(report, report.verdict)


def one_line(message: object, word: str) -> str:
    assert "\n" not in str(message)
    return word


def outcome(path: Path) -> str:
    """The word of the checker; an accepted folder is loaded, and true at points."""
    word = checked(path)
    try:
        result = load(path)
    except OnelayerError as error:
        if word == "accepted":
            raise
        return one_line(error, word)
    found = falsehood(result) if word == "accepted" else None
    assert found is None, found
    return word


def fuzzed(
    folders: dict[str, Folder], path: Path, seed: int, count: int, outcome: Callable[[Path], str] = outcome
) -> Counter[str]:
    """Mutations of one seed; the message of a failure says how to see it again."""
    rng, names = Random(seed), sorted(folders)
    words: Counter[str] = Counter()
    for at in range(count):
        name = names[at % len(names)]
        kind, folder = mutated(folders[name], rng, list(folders.values()))
        started = time.monotonic()
        try:
            words[outcome(written(folder, path))] += 1
        except Exception as error:
            kept = shutil.copytree(path, path.parent / f"kept-{seed}-{at}", dirs_exist_ok=True)
            raise AssertionError(f"seed {seed}, mutation {at} of {name}, {kind}: {error!r}; see {kept}") from error
        assert time.monotonic() - started < LONGEST, f"seed {seed}, mutation {at} of {name}, {kind} takes too long"
    return words


def test_honest_folders_are_accepted(folders: dict[str, Folder], tmp_path: Path) -> None:
    for name, folder in folders.items():
        assert outcome(written(folder, tmp_path / "folder")) == "accepted", name


def test_mutated_folders(folders: dict[str, Folder], tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = fuzzed(folders, tmp_path / "folder", 0, 500)
    assert words["bad file"] > 100
    assert words["rejected"] > 50
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_thousand_mutated_folders(folders: dict[str, Folder], tmp_path: Path, seed: int) -> None:
    assert fuzzed(folders, tmp_path / "folder", seed, 1000).total() == 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_commands_on_mutated_folders(folders: dict[str, Folder], tmp_path: Path, seed: int) -> None:
    """eval, draw and certify end with a status, never with another error."""
    rng, names = Random(1000 + seed), sorted(folders)
    for at in range(24):
        name = names[at % len(names)]
        path = written(mutated(folders[name], rng, list(folders.values()))[1], tmp_path / "folder")
        for command in (
            ["eval", str(path), "0.5, 0.5"],
            ["draw", str(path)],
            ["certify", str(path), "--max-seconds", "1"],
        ):
            assert run(app, command) in (0, 1, 2), command
