"""The command line. Each command is a thin shell around the function of the same name."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from onelayer import __version__
from onelayer.certify import Certificate, certify
from onelayer.certify.check import check
from onelayer.console import NOT_PROVED, SUCCESS, run, show
from onelayer.construct import approximate
from onelayer.draw import draw
from onelayer.errors import OnelayerError
from onelayer.result import Approximation, load
from onelayer.target import parse_domain, parse_point

PICTURE = "picture.png"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
Folder = Annotated[Path, typer.Argument(help="Folder of a saved result.")]
Domain = Annotated[str, typer.Option("--domain", help='Box as lower:upper per coordinate, for example "0:2*pi, -1:1".')]
MaxSeconds = Annotated[float, typer.Option(help="Stop after this time with the best enclosure found.")]
Jobs = Annotated[int, typer.Option(help="Worker threads of the proof; the result does not depend on it.")]
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onelayer {__version__}")
        raise typer.Exit(SUCCESS)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Build one-layer Transformers from functions, and prove how far they are from them."""


@app.command("approximate")
def approximate_command(
    formula: Annotated[str, typer.Argument(help='The function, for example "sin(x1) + sin(x2)".')],
    domain: Domain,
    eps: Annotated[float, typer.Option(help="The error to prove, in the maximum norm.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the model, the proof and the picture.")] = None,
    dtype: Annotated[str, typer.Option(help="float64 or float32: weights and certified execution.")] = "float64",
    max_tokens: Annotated[int, typer.Option(help="Most memory tokens to use.")] = 20_000,
    max_seconds: MaxSeconds = math.inf,
    seed: Annotated[int, typer.Option(help="Seed of the sample points.")] = 0,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> int:
    """Build a layer for FORMULA on a box and prove its error."""
    if dtype not in DTYPES:
        raise OnelayerError(f"dtype must be float64 or float32, got {dtype}")
    box = parse_domain(domain)
    result = approximate(
        formula,
        box,
        eps,
        dtype=DTYPES[dtype],
        max_tokens=max_tokens,
        max_seconds=max_seconds,
        seed=seed,
        jobs=jobs,
        progress=True,
    )
    if out is not None:
        result.save(out)
        draw(result, out / PICTURE)
    return _report(result, as_json, **({} if out is None else {"saved": str(out)}))


@app.command("certify")
def certify_command(
    folder: Folder,
    eps: Annotated[float | None, typer.Option(help="The error to prove; without it, the tightest enclosure.")] = None,
    order: Annotated[int | None, typer.Option(help="Order of the Taylor models, 1 to 8.")] = None,
    real: Annotated[bool, typer.Option("--real", help="Exact arithmetic instead of the executed rounding.")] = False,
    max_seconds: MaxSeconds = math.inf,
    save: Annotated[bool, typer.Option("--save", help="Replace the saved certificate by the new one.")] = False,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> int:
    """Prove the error of a saved model anew, for another eps if given."""
    saved = load(folder)
    if saved.target is None:
        raise OnelayerError(f"{folder} holds no formula of its function; certify it from Python, where f is at hand")
    certificate = certify(
        saved.model,
        saved.target,
        saved.box,
        eps,
        order=order,
        execution="real" if real else "model dtype",
        max_seconds=max_seconds,
        jobs=jobs,
        progress=True,
    )
    result = Approximation(saved.model, certificate, saved.target)
    if save:
        result.save(folder)
    return _report(result, as_json)


@app.command("check")
def check_command(
    folder: Folder,
    every: Annotated[bool, typer.Option("--all", help="Check every box, however many.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample of boxes of a large proof.")] = 0,
    as_json: Json = False,
) -> int:
    """Re-prove a saved result from its files alone, in ball arithmetic."""
    report = check(folder, all=every, seed=seed, progress=True)
    show(str(report), {**asdict(report), "fraction": report.fraction}, as_json=as_json)
    return SUCCESS if report.ok else NOT_PROVED


@app.command("eval")
def eval_command(
    folder: Folder,
    point: Annotated[str, typer.Argument(help='Coordinates, for example "1.0, pi/2"; several points after ";".')],
    as_json: Json = False,
) -> int:
    """Evaluate a saved model at points."""
    result = load(folder)
    points = _points(point, result.box.dim)
    x = torch.tensor(points, dtype=result.model.dtype).reshape(-1, *result.box.shape)
    values = result.model(x)
    inside = [bool(flag) for flag in result.box.contains(x.to(torch.float64))]
    rows = [
        {"x": at, "value": value, "in_domain": covered}
        for at, value, covered in zip(points, values.tolist(), inside, strict=True)
    ]
    lines = [
        f"{value}" + ("" if covered else "  (outside the certified domain)")
        for value, covered in zip(values.tolist(), inside, strict=True)
    ]
    show("\n".join(lines), {"points": rows, "upper": result.certificate.upper}, as_json=as_json)
    return SUCCESS


@app.command("draw")
def draw_command(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="Picture file (.png, .svg, .pdf); default in the folder.")] = None,
    as_json: Json = False,
) -> int:
    """Draw f, T and the error of a saved result."""
    path = out or folder / PICTURE
    draw(load(folder), path)
    show(f"{path}", {"picture": str(path)}, as_json=as_json)
    return SUCCESS


def _points(text: str, dim: int) -> list[list[float]]:
    points = []
    for part in filter(str.strip, text.split(";")):
        row = parse_point(part)
        if len(row) != dim:
            raise OnelayerError(f'a point of this model has {dim} coordinates, "{part.strip()}" has {len(row)}')
        points.append(row)
    if not points:
        raise OnelayerError('give at least one point, for example "1.0, 2.0"')
    return points


def _report(result: Approximation, as_json: bool, **extra: Any) -> int:
    certificate, size = result.certificate, result.size()
    text = [str(certificate), _size_line(size, certificate)]
    if result.wanted_tokens is not None:
        text.append(f"eps needs about {result.wanted_tokens:,} tokens; raise --max-tokens or --max-seconds")
    text += [f"{key} {value}" for key, value in extra.items()]
    data = {**json.loads(certificate.to_json()), **size, "wanted_tokens": result.wanted_tokens, **extra}
    show("\n".join(text), data, as_json=as_json)
    return SUCCESS if certificate.proved else NOT_PROVED


def _size_line(size: dict[str, int], certificate: Certificate) -> str:
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in size.items())
    return f"{counts}; order {certificate.order}, {certificate.seconds:.2f} s of proof"


def main() -> None:
    """Entry point of the ``onelayer`` command."""
    sys.exit(run(app))


if __name__ == "__main__":
    main()
