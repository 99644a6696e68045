"""Section VI in practice: training against building, depth against width, and other kinds of attention.

The measurements are those of the studies (onelayer study NAME); here they are read as verdicts on what the paper says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from onelayer.paper.finding import (
    FAILS,
    HOLDS,
    REPAIRED,
    Check,
    Finding,
    Picture,
    ResultTable,
    Setting,
    largest,
    number,
    smallest,
)
from onelayer.study import STUDIES
from onelayer.study.built import built_memory
from onelayer.study.laws import Law, best_law
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.study import Findings, run_study
from onelayer.study.trainability import AS_GOOD, TARGETS

Rows = Sequence[dict[str, Any]]
SIZES = {"heads": "heads", "width": "d_model"}
NOUNS = {"heads": "the number of heads", "width": "the width"}
METHODS = ("trained", "built")
KEPT = {2: "holds", 1: "holds for one of the two", 0: "does not hold"}


def training(setting: Setting) -> Finding:
    """Does the trained error fall with heads, with width? The law is fitted to all seeds, with its 95 % interval.

    It holds if both intervals say so, for one of the two if only one does, and fails if neither does.
    """
    found = {name: study(name, setting) for name in SIZES}
    laws = {}
    rows = []
    for name, method in product(SIZES, METHODS):
        law = _law(found[name], name, method)
        laws[name, method] = law
        rows.append(_law_row(found[name], name, method, law))
    trained, built = (_errors(found, method) for method in METHODS)
    best = {method: _least(rows, method) for method in METHODS}
    times_better = best["trained"] / best["built"]
    built_laws = {name: laws[name, "built"] for name in SIZES}
    checks = [
        Check("least number of seeds of a trained size", _fewest(trained), ">=", 3),
        *_falling(built_laws),
        Check("least trained error over least built error", times_better, ">", 1),
    ]
    fallen = {name: laws[name, "trained"].decreasing for name in SIZES}
    ahead = {name: _ahead(built[name], trained[name]) for name in SIZES}
    said = _training_sentence(fallen, ahead, best)
    notes = _notes(found)
    header = ("against", "layers", "runs", "largest error", "smallest error", "law", "rate at least", "rate at most")
    verdict = {2: HOLDS, 1: REPAIRED, 0: FAILS}[sum(fallen.values())]
    tables = [ResultTable(header, tuple(rows))]
    pictures = _size_pictures(found)
    return Finding(verdict, said, checks, tables, pictures, notes, spent(*found.values()))


def _least(rows: Sequence[tuple[Any, ...]], method: str) -> float:
    """The smallest error in the rows of a method."""
    return smallest(float(row[4]) for row in rows if row[1] == method)


def _errors(found: dict[str, Findings], method: str) -> dict[str, dict[Any, list[float]]]:
    """The errors of a method by size, for every study."""
    return {name: by(found[name].rows, SIZES[name], method=method) for name in SIZES}


def _fewest(errors: dict[str, dict[Any, list[float]]]) -> int:
    """The least number of runs of one size."""
    return min(len(runs) for sizes in errors.values() for runs in sizes.values())


def _falling(laws: dict[str, Law]) -> list[Check]:
    """The built error falls with every size, whatever the interval of its rate leaves open."""
    what = "rate at which the built error falls with {}, lower end of its interval"
    return [Check(what.format(NOUNS[name]), law.low, ">", 0) for name, law in laws.items()]


def _size_pictures(found: dict[str, Findings]) -> list[Picture]:
    caption = "sin x₁ + sin x₂: largest error seen against {}, every seed of the trained layers beside the built ones."
    return [Picture(name, caption.format(NOUNS[name]), item.figure()) for name, item in found.items()]


def _notes(found: dict[str, Findings]) -> list[str]:
    notes = []
    for name, item in found.items():
        notes += [f"{name}, {sentence}" for sentence in item.sentences]
    return notes


def _law_row(found: Findings, name: str, method: str, law: Law) -> tuple[Any, ...]:
    """A line of the table: runs, extreme errors, and the law with its interval."""
    errors = [row["sup"] for row in found.rows if row["method"] == method]
    form = f"exp({-law.rate:.3g} size)"
    if law.kind == "power":
        form = f"size^{-law.rate:.3g}"
    return name, method, len(errors), max(errors), min(errors), form, law.low, law.high


def _ahead(built: Mapping[Any, list[float]], trained: Mapping[Any, list[float]]) -> list[bool]:
    """Per size, whether the built layer has the smaller median error."""
    return [median(built[size]) < median(errors) for size, errors in trained.items()]


def _training_sentence(fallen: Mapping[str, bool], ahead: Mapping[str, list[bool]], best: Mapping[str, float]) -> str:
    words = []
    for name in SIZES:
        does = "decreases" if fallen[name] else "does not decrease beyond the spread of the seeds"
        words.append(f"{does} with {NOUNS[name]}")
    kept = KEPT[sum(fallen.values())]
    of_heads, of_widths = ahead["heads"], ahead["width"]
    heads = f"{sum(of_heads)} of {len(of_heads)} numbers of heads"
    widths = f"{sum(of_widths)} of {len(of_widths)} widths"
    return (
        f"The error of trained layers {' and '.join(words)}: the sentence {kept} for training on "
        "this function. Layers built without training are in the same figures: of the same size, they have the smaller "
        f"error for {heads} and for {widths}. The least error seen is {number(best['trained'])} after training and "
        f"{number(best['built'])} by construction."
    )


def _law(found: Findings, name: str, method: str) -> Law:
    rows = [row for row in found.rows if row["method"] == method]
    sizes = [row[SIZES[name]] for row in rows]
    errors = [row["sup"] for row in rows]
    return best_law(sizes, errors)


def digits(setting: Setting) -> Finding:
    """Handwritten digits: the hand-written NumPy backward beside torch under four rules, and a one-layer classifier."""
    found = study("digits", setting)
    runs = [row for row in found.rows if row["method"] == "numpy and torch"]
    classifier = next(row for row in found.rows if row["method"] == "classifier")
    losses = {row["optimiser"]: row["numpy_loss"] for row in runs}
    columns = ("optimiser", "rate", "steps", "numpy_loss", "torch_loss")
    rows = tuple(tuple(row[name] for name in columns) for row in runs)
    # np.max, unlike max, is nan where one of them is.
    apart = float(np.max([row["largest_difference"] for row in runs]))
    ahead = losses["adam"] / losses["sgd"]
    # A quick run trains for fewer steps.
    wanted = setting.pick(0.95, 0.98)
    checks = [
        Check("largest difference of the loss, NumPy against torch", apart, "<=", 1e-9),
        Check("late loss by Adam over that by plain SGD on the same batches", ahead, "<", 1),
        Check("share of test digits read by one layer", classifier["accuracy"], ">=", wanted),
        Check("its parameters", classifier["parameters"], "<=", 50_000),
    ]
    said = (
        "The backward pass of the whole layer, written by hand in NumPy, trains to the same losses as torch, step by "
        "step. On the same batches Adam is ahead of plain SGD, at one rate for each rule that was tried by hand; "
        "gradient descent sees all pictures at every step. One layer, trained, reads handwritten digits."
    )
    header = ("update rule", "rate", "steps", "late loss by NumPy", "late loss by torch")
    caption = "Late loss: the mean over the last tenth of the steps."
    drawn = "Loss of every step on 8 × 8 digits, for the update rules that the paper names."
    picture = Picture("losses", drawn, found.figure())
    return _finding(HOLDS, said, checks, [ResultTable(header, rows, caption)], picture, found)


def _finding(
    verdict: str, said: str, checks: list[Check], tables: list[ResultTable], picture: Picture, found: Findings
) -> Finding:
    """A verdict from one study: its figure, its sentences as notes, and the time that its cells took."""
    return Finding(verdict, said, checks, tables, [picture], found.sentences, spent(found))


def trainability(setting: Setting) -> Finding:
    """The same architecture built, trained from random weights, and trained from the built start."""
    found = study("trainability", setting)
    starts = ("built", "trained", "trained from built")
    built, trained, warm = (by(found.rows, "target", start=start) for start in starts)
    rows = []
    times = {}
    # The built layer has no seed: its error is one number.
    for target, (error, *_) in built.items():
        name = TARGETS[target]
        from_random = trained[target]
        best = smallest(from_random)
        rows.append((name, error, median(from_random), best, min(warm[target])))
        times[name] = best / error
    furthest = "best trained error over the built one, on the function where they are furthest apart"
    seeds = min(len(errors) for errors in trained.values())
    checks = [
        Check(furthest, largest(times.values()), ">", AS_GOOD),
        Check("random starts per function", seeds, ">=", 3),
    ]
    said = (
        "Existence and training are two things, as the paper warns. The very same architecture has weights that are "
        f"known and proved to be good; from random weights, training {_found_and_missed(times)}."
    )
    header = ("function", "built", "trained, median", "trained, best seed", "trained from the built weights")
    picture = Picture("starts", "Largest error seen of one architecture, from three starts.", found.figure())
    return _finding(HOLDS, said, checks, [ResultTable(header, tuple(rows))], picture, found)


def _found_and_missed(times: Mapping[str, float]) -> str:
    missed = " and ".join(name for name, factor in times.items() if factor > AS_GOOD)
    found = " and ".join(name for name, factor in times.items() if factor <= AS_GOOD)
    parts = []
    if missed:
        parts.append(f"did not find them for {missed}")
    if found:
        parts.append(f"found them for {found}")
    return " and ".join(parts)


def _depth_sentence(gains: dict[str, float], clear: list[str]) -> str:
    """``gains``: error of one block over that of the best deeper stack; ``clear``: where no two runs overlap."""
    better = [target for target, gain in gains.items() if gain > 1]
    listed = ", ".join(f"{target}: {gain:.2g}" for target, gain in gains.items())
    return (
        f"At equal parameters a deeper stack had the smaller median error on {len(better)} of {len(gains)} functions "
        f"(error of one block over that of the best deeper stack: {listed}). Every run of that stack beat every run of "
        f"one block on {' and '.join(clear) or 'none of them'}. That one layer is enough in principle is shown by the "
        "built layers above."
    )


def depth(setting: Setting) -> Finding:
    """Trained stacks of 1 to L blocks of equal size, on an additive function and on a nested one."""
    found = study("depth", setting)
    targets = dict.fromkeys(row["target"] for row in found.rows)
    errors = {target: by(found.rows, "depth", target=target) for target in targets}
    rows = []
    gains = {}
    clear = []
    for target, stacks in errors.items():
        deeper = [errors for blocks, errors in stacks.items() if blocks > 1]
        best = min(deeper, key=median)
        gains[target] = median(stacks[1]) / median(best)
        # Medians of a few seeds may differ by chance; a gain is clear where not even the extremes overlap.
        if max(best) < min(stacks[1]):
            clear.append(target)
        rows += [_depth_row(found.rows, target, blocks, values) for blocks, values in stacks.items()]
    counts = [row[3] for row in rows]
    checks = [
        Check("largest over smallest number of parameters", max(counts) / min(counts), "<=", 1.5),
        Check("functions", len(errors), ">=", 2),
    ]
    said = _depth_sentence(gains, clear)
    header = ("function", "blocks", "width", "parameters", "runs", "median sup error seen", "least", "largest")
    picture = Picture("depth", "Largest error seen against blocks at equal parameters.", found.figure())
    verdict = HOLDS if clear else FAILS
    return _finding(verdict, said, checks, [ResultTable(header, tuple(rows))], picture, found)


def _depth_row(rows: Rows, target: str, blocks: int, errors: list[float]) -> tuple[Any, ...]:
    """A line of the table: size of the stack, and its errors over the seeds."""
    # All seeds of a stack have one size: any of its rows tells it.
    chosen = next(row for row in rows if row["target"] == target and row["depth"] == blocks)
    size = (chosen["d_model"], chosen["parameters"], len(errors))
    return target, blocks, *size, median(errors), min(errors), max(errors)


def kinds(setting: Setting) -> Finding:
    """softmax, top-k and linear attention on the same function: values solved and trained; solved with more tokens."""
    found = study("kinds", setting)
    trained, built = (by(found.rows, "kind", method=method) for method in METHODS)
    middle = {kind: median(errors) for kind, errors in trained.items()}
    rows = tuple((kind, min(errors), middle.get(kind, "–")) for kind, errors in built.items())
    tokens = setting.pick((8, 32), (8, 16, 32, 64))
    grown = {}
    for kind in built:
        grown[kind] = [_built_error(kind, count) for count in tokens]
    checks = []
    for kind in ("softmax", "top-2", "top-4", "linear, order 8"):
        checks.append(Check(f"{kind}, built: best sup error seen; f has size 2", smallest(grown[kind]), "<", 0.1))
    # More tokens at least halve the error of attention that chooses; linear attention cannot use them.
    growing = (("softmax", ">", 2), ("top-2", ">", 2), ("linear, order 2", "<", 1.5))
    for kind, relation, limit in growing:
        fewest, *_, most = grown[kind]
        what = f"{kind}: error with {tokens[0]} tokens over that with {tokens[-1]}"
        checks.append(Check(what, fewest / most, relation, limit))
    closest, *_, furthest = sorted(middle, key=lambda kind: middle[kind])
    said = (
        "An observation on one function, not a theorem. Sparse attention carries over when it is built: top-k is "
        "discontinuous, but its error falls as tokens are added. Linear attention carries over only with enough "
        "features: its output is a quotient of two elements of one space of features, fixed by the feature map and "
        "the width of the head, and more tokens do not enlarge it. Trained layers, whose heads are wider than the "
        f"built ones, come closest with {closest} attention and stay furthest away with {furthest}."
    )
    header = ("attention", "built: sup error seen", "trained: median sup error seen")
    sizes = ("attention, built", *(f"{count} tokens a head" for count in tokens))
    lines = tuple((kind, *errors) for kind, errors in grown.items())
    tables = [ResultTable(header, rows), ResultTable(sizes, lines)]
    picture = Picture("kinds", "Largest error seen by kind of attention, built and trained.", found.figure())
    return _finding(REPAIRED, said, checks, tables, picture, found)


def _built_error(kind: str, tokens: int) -> float:
    waves = PROBLEMS["waves"]
    seen = seen_error(built_memory(waves, tokens, kind), waves)
    return float(seen["sup"])


def study(name: str, setting: Setting) -> Findings:
    """Rows and figure of a study; its cells are kept in the folder of the report, so that a stopped run goes on."""
    with ExitStack() as stack:
        folder = setting.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        return run_study(STUDIES[name], folder, quick=setting.quick, jobs=setting.jobs)


def spent(*found: Findings) -> float:
    """Seconds that the cells of these studies took, whenever they ran."""
    return sum(item.seconds for item in found)


def by(rows: Rows, key: str, **settings: Any) -> dict[Any, list[float]]:
    """Errors of the rows with these settings, by row[key]."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        if all(row[name] == value for name, value in settings.items()):
            found.setdefault(row[key], []).append(float(row["sup"]))
    return found
