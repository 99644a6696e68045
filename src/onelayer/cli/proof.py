"""Commands about proofs: certify and check."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import onelayer as ol
from onelayer.cli.attended import BEST, attended, concluded, moving
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.cli.models import ArchitectureOption, ClaimOut, DomainOption, Model, function_of, opened
from onelayer.cli.options import Cluster, Device, Folder, Integers, Jobs, Json, MaxSeconds, app, examples, report
from onelayer.formats import MODEL_DTYPE, REAL
from onelayer.observer import observing
from onelayer.proof.cluster import connected


@app.command(
    "certify",
    epilog=examples(
        "onelayer certify out/wave --eps 1e-3",
        "onelayer certify out/wave --real --max-seconds 60 --save",
        "onelayer certify out/wave --eps 1e-5 --resume",
        'onelayer certify net.onnx "sin(x)*y" --domain "0:1, -1:1" --out out/net',
    ),
)
def certify_command(
    model: Model,
    formula: Annotated[str | None, typer.Argument(help="The function; a folder has its own.")] = None,
    eps: Annotated[float | None, typer.Option(help="The error to prove; without it, the tightest enclosure.")] = None,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    order: Annotated[int | None, typer.Option(help="Order of the Taylor models, 1 to 8.")] = None,
    real: Annotated[bool, typer.Option("--real", help="Exact arithmetic instead of the executed rounding.")] = False,
    max_seconds: MaxSeconds = math.inf,
    save: Annotated[bool, typer.Option("--save", help="Replace the saved certificate by the new one.")] = False,
    jobs: Jobs = -1,
    cluster: Cluster = None,
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="File for the state of a long proof; beside the model unless given.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of an earlier run.")] = False,
    as_json: Json = False,
) -> int:
    """Prove the error of a model: of a saved one anew, or of a foreign file against FORMULA on a domain."""
    with attended() as observer, connected(cluster) as executor:
        saved = opened(model, domain, architecture)
        target = function_of(formula, saved)
        _need_no_slopes(model, formula, save=save)
        beside = checkpoint or Path(f"{os.path.normpath(model)}.checkpoint")
        state = checkpoint
        if _resumable(saved.model, target, device):
            state = beside
        certificate = ol.certify(
            saved.model,
            target,
            saved.box,
            eps,
            order=order,
            execution=REAL if real else MODEL_DTYPE,
            max_seconds=max_seconds,
            jobs=jobs,
            executor=executor,
            device=device,
            observer=observer,
            checkpoint=state,
            resume=beside if resume else None,
        )
    extra = {}
    # A proof that was cut short goes to a place of its own, never over one that is there.
    place = out or (model if save and not observer.cancelled else None)
    if place is not None:
        extra["saved"] = str(certificate.save(place))
    kept = _left(state)
    if isinstance(saved.model, ol.OneLayerTransformer):
        judged = ol.Approximation(saved.model, certificate, target)
        return report(judged, as_json, observer, kept, built=False, **extra)
    show(str(certificate), json.loads(certificate.to_json()) | extra, as_json=as_json)
    return concluded(_status(proved=certificate.proved), observer, kept)


def _need_no_slopes(folder: Path, formula: str | None, *, save: bool) -> None:
    """Refuse a claim about another function where slopes of the old one are claimed: nothing would read the two."""
    from onelayer.result import GRADIENT

    if save and formula is not None and (folder / GRADIENT).is_dir():
        raise ol.OnelayerError(
            f"{folder} claims slopes of its own function too; keep the new claim elsewhere with --out"
        )


def _status(*, proved: bool) -> int:
    return SUCCESS if proved else NOT_PROVED


def _left(state: Path | None) -> str:
    """What an interrupted proof says that it leaves: its checkpoint, once it was long enough to write one."""
    if state is not None and state.is_file():
        return f"the state of the proof is in {state}, and --resume goes on"
    return BEST


def _resumable(model: object, target: Any, device: str) -> bool:
    """Whether the proof writes checkpoints: of a layer against a formula, on the CPU."""
    from onelayer.proof.certify import AUTO, graphics

    here = device == "cpu" or (device == AUTO and graphics() is None)
    return isinstance(model, ol.OneLayerTransformer) and target.formula is not None and here


@app.command(
    "check",
    epilog=examples(
        "onelayer check out/wave", "onelayer check out/wave --all --json", "onelayer check out/wave --formal"
    ),
)
def check_command(
    folder: Folder,
    every: Annotated[bool, typer.Option("--all", help="Check every box, however long it takes.")] = False,
    max_seconds: Annotated[float, typer.Option(help="Stop after this time: not contradicted, and how far.")] = 120.0,
    jobs: Jobs = -1,
    formal: Annotated[bool, typer.Option("--formal", help="As a Coq theorem, by Coq's kernel.")] = False,
    integers: Integers = "plain",
    as_json: Json = False,
) -> int:
    """Re-prove a saved result from its files alone, in ball arithmetic; or, in real arithmetic, by Coq.

    Exit status: 0 accepted (everything was re-proved), 1 not contradicted (time ended first) or rejected, 2 bad files,
    or with --formal no coqc.
    """
    if formal:
        with moving():
            from onelayer.export.kernel import check_formally

            judged = check_formally(folder, max_seconds=max_seconds, integers=integers)
        show(str(judged), asdict(judged), as_json=as_json)
        return _status(proved=judged.accepted)
    with attended() as observer:
        from onelayer.result import GRADIENT, load

        watch = observing(observer, math.inf if every else max_seconds)  # one deadline for both claims
        found = ol.check(folder, all=True, jobs=jobs, observer=watch)
        if found.ok and (folder / GRADIENT).is_dir():  # slopes are claimed too: the report is that of the last claim
            load(folder)  # refuses slopes of another layer
            found = ol.check(folder / GRADIENT, all=True, jobs=jobs, observer=watch)
    data = {**asdict(found), "ok": found.ok, "fraction": found.fraction}
    show(str(found), data, as_json=as_json)
    return concluded(_status(proved=found.ok), observer, "this is what the checker knows so far")
