"""Commands that learn: train, distill, study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import onelayer as ol
from onelayer.cli.attended import attended, concluded, kept_when_interrupted, moving
from onelayer.cli.console import SUCCESS, show
from onelayer.cli.options import (
    Json,
    MaxSeconds,
    Out,
    Seed,
    app,
    examples,
    keep,
    one_of,
    report,
    setting,
    with_settings,
)
from onelayer.errors import OnelayerError
from onelayer.observer import observing
from onelayer.seeds import MAX_SEED
from onelayer.study import NAMES

if TYPE_CHECKING:
    from onelayer.observer import Observer
    from onelayer.result import Approximation
    from onelayer.study.study import Findings
    from onelayer.training.trained import Trained

Domain = Annotated[str | None, typer.Option(help='Box as lower:upper per coordinate, for example "0:2*pi, -1:1".')]
MOST_UNITS, MOST_BLOCKS, MOST_STEPS = 2**24, 2**10, 10**9  # beyond, no memory and no patience suffices
MOST_TEXT = 2**30  # bytes
TRAINING_TIME = 0.5  # share of the time after which the proof begins, where one is asked for

Device = Annotated[str, typer.Option(help="cpu or cuda.")]
# Of a distilled sentence encoder, whose layer is wider than that of a function on a box.
STUDENT = {
    "heads": setting(int, 8, "Heads of the layer.", 1, MOST_UNITS),
    "d_model": setting(int, 400, "Width of the layer, a multiple of the heads.", 1, MOST_UNITS),
    "hidden": setting(int, 800, "Hidden ReLU units.", 0, MOST_UNITS),
    "steps": setting(int, 1000, "First-order steps.", 0, MOST_STEPS),
}


# Fields of Recipe and Shape that the command line sets, with their help.
SETTINGS = {
    "heads": setting(int, 4, "Heads of the layer.", 1, MOST_UNITS),
    "d_model": setting(int, 32, "Width of the layer, a multiple of the heads.", 1, MOST_UNITS),
    "hidden": setting(int, 128, "Hidden ReLU units.", 0, MOST_UNITS),
    "memory": setting(int, 0, "Memory tokens per head.", 0, MOST_UNITS),
    "depth": setting(int, 1, "More than 1: a stack of standard blocks, for comparison.", 1, MOST_BLOCKS),
    "optimiser": setting(str, "adam", "sgd, momentum, adam or adamw."),
    "lr": setting(float | None, None, "Learning rate."),
    "schedule": setting(str, "cosine", "cosine or constant."),
    "steps": setting(int, 3000, "First-order steps.", 0, MOST_STEPS),
    "batch": setting(int, 256, "Examples per step.", 1, MOST_UNITS),
    "lbfgs_steps": setting(int, 0, "L-BFGS iterations at the end.", 0, MOST_STEPS),
    "patience": setting(int | None, None, "Measurements without improvement before stopping.", 1, MOST_STEPS),
    "dtype": setting(str, "float64", "float64, float32 or bfloat16."),
    "seed": setting(int, 0, "Seed of everything random.", 0, MAX_SEED),
}


@app.command(
    "train",
    epilog=examples(
        'onelayer train "sin(3*x)" --domain "-1:1" --steps 2000 --certify --out out/trained',
        "onelayer train table.csv --target price --test 0.2",
    ),
)
@with_settings(SETTINGS)
def train_command(
    data: Annotated[str, typer.Argument(help="A formula (with --domain), or a CSV or Parquet file (with --target).")],
    domain: Domain = None,
    target: Annotated[str | None, typer.Option(help="Column of the file to predict.")] = None,
    start: Annotated[Path | None, typer.Option(help="Folder of a saved result to start from.")] = None,
    test: Annotated[float | None, typer.Option(help="Share of a table's rows to hold out.")] = None,
    eps: Annotated[float | None, typer.Option(help="Error to prove after training.")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove the error after training, eps or not.")] = False,
    max_seconds: MaxSeconds = math.inf,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for checkpoints; the same command goes on.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore a checkpoint that is there.")] = False,
    out: Out = None,
    device: Device = "cpu",
    as_json: Json = False,
    **settings: Any,
) -> int:
    """Train a layer on a formula over a box, or on a table; prove its error if asked."""
    with attended() as observer:
        from onelayer.language.endpoints import parse_domain

        box = None if domain is None else parse_domain(domain)
        given = None if start is None else ol.load(start)
        proof = eps is not None or certify
        _need_layer(box, settings["depth"], proof=proof, out=out)
        watch = observing(observer, max_seconds)
        run = ol.train(
            data, box, model=given, test=test, target=target, device=_device(device), checkpoint=checkpoint,
            resume=not fresh, observer=watch.share(TRAINING_TIME) if proof else watch, **settings,
        )  # fmt: skip
        result = run.approximation(eps, observer=watch) if proof else None
    if result is not None:
        return _proved(result, as_json, out, observer, seen=run.final, training_seconds=run.seconds)
    if out is not None:
        run.save(out)
    kept = "the weights so far are used" if out is None else f"the weights so far are in {out}"
    return concluded(_trained(run, as_json, out), observer, kept)


@app.command(
    "distill",
    epilog=examples(
        "onelayer distill out/wave --eps 1e-3 --out out/student",
        "onelayer distill encoder/ --texts sentences.txt --steps 500",
    ),
)
@with_settings(STUDENT)
def distill_command(
    teacher: Annotated[Path, typer.Argument(help="Folder of a saved result, or of a BERT-type encoder's files.")],
    domain: Domain = None,
    eps: Annotated[float | None, typer.Option(help="The error to prove against the teacher, with --domain.")] = None,
    texts: Annotated[Path | None, typer.Option(help="File with one text per line, for an encoder.")] = None,
    max_seconds: MaxSeconds = math.inf,
    out: Out = None,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
    **settings: Any,
) -> int:
    """Put one layer in the place of a teacher: with a proof on a box, or with measured fidelity on texts."""
    if texts is None:
        if eps is None:
            raise OnelayerError("give --eps for a proof against a saved result, or --texts for an encoder")
        with attended() as observer:
            from onelayer.language.endpoints import parse_domain

            saved = ol.load(teacher)
            box = saved.box if domain is None else parse_domain(domain)
            found = ol.distill(saved.model, box, eps, max_seconds=max_seconds, seed=seed, observer=observer)
        if found.approximation is None:
            raise OnelayerError(f"{teacher} has no result to prove against; give --texts for an encoder")
        extra = {"teacher_parameters": found.teacher_parameters, "speed_up": found.speed_up}
        return _proved(found.approximation, as_json, out, observer, **extra)
    lines = _lines(texts)
    limits: dict[str, Any] = {"seed": seed, "max_seconds": max_seconds, **settings}
    with attended() as observer:
        from onelayer.training.encoder import SentenceEncoder

        encoder = SentenceEncoder.from_folder(teacher)
        found = ol.distill(encoder, data=lines, device=_device(device), observer=observer, **limits)
    fidelity = found.fidelity
    if fidelity is None:
        raise OnelayerError(f"{texts} has too few texts to hold any out; give more")
    data: dict[str, Any] = {}
    for name in ("explained", "cosine", "rank"):
        estimate = getattr(fidelity, name)
        if estimate is not None:
            data[name] = [estimate.value, estimate.low, estimate.high]
    data |= {"held_out": fidelity.count, "parameters": found.parameters}
    data |= {"teacher_parameters": found.teacher_parameters, "speed_up": found.speed_up}
    show(str(found), data, as_json=as_json)
    return SUCCESS


def _need_layer(box: ol.Box | None, depth: int, *, proof: bool, out: Path | None) -> None:
    """What cannot be proved or saved once it is trained is refused before, not after hours."""
    if proof and box is None:
        raise OnelayerError("a table has no function to prove against: --eps and --certify need a formula and --domain")
    if depth > 1 and (proof or out is not None):
        raise OnelayerError("a stack (--depth above 1) is for comparison: it is neither saved nor proved")


def _lines(path: Path) -> list[str]:
    """The texts of a file, one per line, empty ones left out."""
    from onelayer.disk import read_bounded

    try:
        text = read_bounded(path.resolve(), MOST_TEXT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OnelayerError(f"{path} is not a text file in UTF-8: {error}") from error
    return [line for line in text.splitlines() if line.strip()]


def _device(name: str) -> str:
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise OnelayerError(f"device must be cpu or cuda, got {name!r}")
    return name


@app.command("study", epilog=examples("onelayer study heads --jobs 2", "onelayer study all --full --out out/study"))
def study_command(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(NAMES)}, or all.", autocompletion=one_of(*NAMES, "all"))
    ],
    out: Annotated[Path, typer.Option(help="Folder for the rows and the figure.")] = Path("out") / "study",
    full: Annotated[
        bool, typer.Option("--full", help="More seeds, sizes and steps: minutes to an hour a study.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Worker processes; the rows do not depend on it.")] = 1,
    as_json: Json = False,
) -> int:
    """Run a study of training and size; an interrupted one goes on where it stopped."""
    if name != "all" and name not in NAMES:
        raise OnelayerError(f"no study '{name}'; there are {', '.join(NAMES)}, and all")
    with moving() as observer, kept_when_interrupted(out):
        from onelayer.study import STUDIES, run_study

        out.mkdir(parents=True, exist_ok=True)
        chosen = list(STUDIES.values()) if name == "all" else [STUDIES[name]]
        found = []
        for study in chosen:
            found.append(run_study(study, out, quick=not full, jobs=jobs, observer=observer))
    text = "\n".join(_told(item) for item in found)
    show(text, {item.study.name: _data(item) for item in found}, as_json=as_json)
    return SUCCESS


def _told(found: Findings) -> str:
    lines = [*found.sentences, str(found.picture)]
    return "\n".join([found.study.question, *(f"  {line}" for line in lines)])


def _data(found: Findings) -> dict[str, Any]:
    return {
        "question": found.study.question,
        "findings": list(found.sentences),
        "rows": str(found.results),
        "picture": str(found.picture),
        "seconds": found.seconds,
    }


def _trained(run: Trained, as_json: bool, out: Path | None) -> int:
    data = {**run.final, "parameters": run.parameters, "seconds": run.seconds, "steps": run.settings["steps"]}
    text = str(run)
    if out is not None:
        data["saved"] = str(out)
        text += f"\nsaved {out}"
    show(text, data, as_json=as_json)
    return SUCCESS


def _proved(result: Approximation, as_json: bool, out: Path | None, observer: Observer, **extra: Any) -> int:
    return report(result, as_json, observer, **extra, **keep(result, out, observer))
