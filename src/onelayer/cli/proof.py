"""Commands about proofs: certify and check."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

import onelayer as ol
from onelayer.cli.attended import attended, concluded
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.cli.options import Cluster, Folder, Integers, Jobs, Json, MaxSeconds, app, examples, report
from onelayer.errors import OnelayerError
from onelayer.proof.cluster import connected


@app.command(
    "certify",
    epilog=examples(
        "onelayer certify out/wave --eps 1e-3",
        "onelayer certify out/wave --real --max-seconds 60 --save",
    ),
)
def certify_command(
    folder: Folder,
    eps: Annotated[float | None, typer.Option(help="The error to prove; without it, the tightest enclosure.")] = None,
    order: Annotated[int | None, typer.Option(help="Order of the Taylor models, 1 to 8.")] = None,
    real: Annotated[bool, typer.Option("--real", help="Exact arithmetic instead of the executed rounding.")] = False,
    max_seconds: MaxSeconds = math.inf,
    save: Annotated[bool, typer.Option("--save", help="Replace the saved certificate by the new one.")] = False,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    as_json: Json = False,
) -> int:
    """Prove the error of a saved model anew, for another eps if given."""
    with attended() as observer, connected(cluster) as executor:
        saved = ol.load(folder)
        if saved.target is None:
            raise OnelayerError(
                f"{folder} holds no formula of its function; certify it from Python, where f is at hand"
            )
        certificate = ol.certify(
            saved.model,
            saved.target,
            saved.box,
            eps,
            order=order,
            execution="real" if real else "model dtype",
            max_seconds=max_seconds,
            jobs=jobs,
            executor=executor,
            observer=observer,
        )
    result = ol.Approximation(saved.model, certificate, saved.target)
    if save and not observer.cancelled:  # an interrupted proof does not replace a finished one
        result.save(folder)
    return report(result, as_json, observer)


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
    formal: Annotated[bool, typer.Option("--formal", help="As a Coq theorem, by Coq's kernel.")] = False,
    integers: Integers = "plain",
    as_json: Json = False,
) -> int:
    """Re-prove a saved result from its files alone, in ball arithmetic; or, in real arithmetic, by Coq.

    Exit status: 0 accepted (everything was re-proved), 1 not contradicted (time ended first) or rejected, 2 bad files,
    or with --formal no coqc.
    """
    if formal:
        from onelayer.export.kernel import check_formally

        judged = check_formally(folder, max_seconds=max_seconds, integers=integers)
        show(str(judged), asdict(judged), as_json=as_json)
        return SUCCESS if judged.accepted else NOT_PROVED
    with attended() as observer:
        found = ol.check(folder, all=every, max_seconds=max_seconds, observer=observer)
    data = {**asdict(found), "ok": found.ok, "fraction": found.fraction}
    show(str(found), data, as_json=as_json)
    return concluded(SUCCESS if found.ok else NOT_PROVED, observer, "nothing was contradicted so far")
