"""Commands that learn: train, distill, study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from onelayer.cli.console import SUCCESS, show
from onelayer.cli.options import PICTURE, Json, MaxSeconds, Out, Seed, app, report
from onelayer.errors import OnelayerError
from onelayer.pictures.drawing import draw
from onelayer.result import Approximation, load
from onelayer.study import STUDIES, Findings, run_study
from onelayer.target import parse_domain
from onelayer.training.distill import distill
from onelayer.training.train import train
from onelayer.training.trained import Trained

Domain = Annotated[str | None, typer.Option(help='Box as lower:upper per coordinate, for example "0:2*pi, -1:1".')]
Steps = Annotated[int, typer.Option(help="First-order steps.")]
Heads = Annotated[int, typer.Option(help="Heads of the layer.")]
Width = Annotated[int, typer.Option("--d-model", help="Width of the layer, a multiple of the heads.")]
Hidden = Annotated[int, typer.Option(help="Hidden ReLU units.")]


@app.command("train")
def train_command(
    data: Annotated[str, typer.Argument(help="A formula (with --domain), or a CSV or Parquet file (with --target).")],
    domain: Domain = None,
    target: Annotated[str | None, typer.Option(help="Column of the file to predict.")] = None,
    start: Annotated[Path | None, typer.Option(help="Folder of a saved result to start from.")] = None,
    heads: Heads = 4,
    d_model: Width = 32,
    hidden: Hidden = 128,
    memory: Annotated[int, typer.Option(help="Memory tokens per head.")] = 0,
    depth: Annotated[int, typer.Option(help="More than 1: a stack of standard blocks, for comparison.")] = 1,
    optimiser: Annotated[str, typer.Option(help="sgd, momentum, adam or adamw.")] = "adam",
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    schedule: Annotated[str, typer.Option(help="cosine or constant.")] = "cosine",
    steps: Steps = 3000,
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 256,
    lbfgs_steps: Annotated[int, typer.Option("--lbfgs-steps", help="L-BFGS iterations at the end.")] = 0,
    test: Annotated[float | None, typer.Option(help="Share of a table's rows to hold out.")] = None,
    patience: Annotated[int | None, typer.Option(help="Measurements without improvement before stopping.")] = None,
    eps: Annotated[float | None, typer.Option(help="Error to prove after training.")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove the error after training, eps or not.")] = False,
    max_seconds: MaxSeconds = math.inf,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder for checkpoints; the same command goes on.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore a checkpoint that is there.")] = False,
    out: Out = None,
    dtype: Annotated[str, typer.Option(help="float64, float32 or bfloat16.")] = "float64",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Train a layer on a formula over a box, or on a table; prove its error if asked."""
    box = None if domain is None else parse_domain(domain)
    run = train(
        data, box, model=None if start is None else load(start), heads=heads, d_model=d_model, hidden=hidden,
        memory=memory, depth=depth, optimiser=optimiser, lr=lr, schedule=schedule, steps=steps, batch=batch,
        lbfgs_steps=lbfgs_steps, test=test, target=target, patience=patience, seed=seed, device=device, dtype=dtype,
        checkpoint=checkpoint, resume=not fresh, progress=True,
    )  # fmt: skip
    if eps is None and not certify:
        if out is not None:
            run.save(out)
        return _trained(run, as_json, out)
    result = run.approximation(eps, max_seconds=max_seconds, progress=True)
    return _proved(result, as_json, out, seen=run.final, training_seconds=run.seconds)


@app.command("distill")
def distill_command(
    teacher: Annotated[Path, typer.Argument(help="Folder of a saved result, or of a BERT-type encoder's files.")],
    domain: Domain = None,
    eps: Annotated[float | None, typer.Option(help="The error to prove against the teacher, with --domain.")] = None,
    texts: Annotated[Path | None, typer.Option(help="File with one text per line, for an encoder.")] = None,
    heads: Heads = 8,
    d_model: Width = 400,
    hidden: Hidden = 800,
    steps: Steps = 1000,
    max_seconds: MaxSeconds = math.inf,
    out: Out = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Put one layer in the place of a teacher: with a proof on a box, or with measured fidelity on texts."""
    if texts is None:
        saved = load(teacher)
        box = saved.box if domain is None else parse_domain(domain)
        if eps is None:
            raise OnelayerError("give --eps for a proof against a saved result, or --texts for an encoder")
        found = distill(saved.model, box, eps, max_seconds=max_seconds, seed=seed, progress=True)
        assert found.approximation is not None
        extra = {"teacher_parameters": found.teacher_parameters, "speed_up": found.speed_up}
        return _proved(found.approximation, as_json, out, **extra)
    from onelayer.training.encoder import SentenceEncoder

    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = distill(
        SentenceEncoder.from_folder(teacher), data=lines, heads=heads, d_model=d_model, hidden=hidden, steps=steps,
        seed=seed, device=device, progress=True,
    )  # fmt: skip
    fidelity = found.fidelity
    assert fidelity is not None
    numbers = {
        name: [estimate.value, estimate.low, estimate.high]
        for name in ("explained", "cosine", "rank")
        if (estimate := getattr(fidelity, name)) is not None
    }
    sizes = {"parameters": found.parameters, "teacher_parameters": found.teacher_parameters}
    show(str(found), {**numbers, "held_out": fidelity.count, **sizes, "speed_up": found.speed_up}, as_json=as_json)
    return SUCCESS


@app.command("study")
def study_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(STUDIES)}, or all.")],
    out: Annotated[Path, typer.Option(help="Folder for the rows and the figure.")] = Path("out") / "study",
    full: Annotated[
        bool, typer.Option("--full", help="More seeds, sizes and steps: minutes to an hour a study.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Worker processes; the rows do not depend on it.")] = 1,
    as_json: Json = False,
) -> int:
    """Run a study of training and size; an interrupted one goes on where it stopped."""
    if name != "all" and name not in STUDIES:
        raise OnelayerError(f"no study '{name}'; there are {', '.join(STUDIES)}, and all")
    out.mkdir(parents=True, exist_ok=True)
    chosen = list(STUDIES.values()) if name == "all" else [STUDIES[name]]
    found = [run_study(study, out, quick=not full, jobs=jobs, progress=True) for study in chosen]
    show("\n".join(_told(item) for item in found), {item.study.name: _data(item) for item in found}, as_json=as_json)
    return SUCCESS


def _told(found: Findings) -> str:
    return "\n".join([found.study.question, *(f"  {sentence}" for sentence in found.sentences), f"  {found.picture}"])


def _data(found: Findings) -> dict[str, Any]:
    return {
        "question": found.study.question,
        "findings": list(found.sentences),
        "rows": str(found.results),
        "picture": str(found.picture),
        "seconds": found.seconds,
    }


def _trained(run: Trained, as_json: bool, out: Path | None) -> int:
    saved = {} if out is None else {"saved": str(out)}
    data = {**run.final, "parameters": run.parameters, "seconds": run.seconds, "steps": run.settings["steps"], **saved}
    show("\n".join([str(run), *(f"{key} {value}" for key, value in saved.items())]), data, as_json=as_json)
    return SUCCESS


def _proved(result: Approximation, as_json: bool, out: Path | None, **extra: Any) -> int:
    if out is not None:
        result.save(out)
        draw(result, out / PICTURE)
        extra["saved"] = str(out)
    return report(result, as_json, **extra)
