"""Commands that use a saved result: eval, draw, explain, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import onelayer as ol
from onelayer.cli.attended import moving
from onelayer.cli.console import SUCCESS, show
from onelayer.cli.options import PICTURE, Folder, Integers, Json, app, examples, one_of
from onelayer.errors import OnelayerError

LIVE = "live.html"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onelayer {ol.__version__}")
        raise typer.Exit(SUCCESS)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Build one-layer Transformers from functions, and prove how far they are from them."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(
    "eval", epilog=examples('onelayer eval out/wave "0.5"', 'onelayer eval out/waves "1.0, pi/2; 0, 0" --json')
)
def eval_command(
    folder: Folder,
    point: Annotated[
        str, typer.Argument(help='Coordinates: "1.0, pi/2", or by name "v=1, c=4"; several points after ";".')
    ],
    as_json: Json = False,
) -> int:
    """Evaluate a saved model at points."""
    with moving():
        import torch

        from onelayer.build.memorize import labels, recall
        from onelayer.proof.covered import covered

        result = ol.load(folder)
        points = _points(point, result.box)
        x = torch.tensor(points, dtype=result.model.dtype, device="cpu").reshape(-1, *result.box.shape)
        values = result.model(x).tolist()
        inside = covered(result.certificate, x)
    # The point that the layer was given, rounded to its format: the value is there, and so is what is proved.
    given = x.to(torch.float64).flatten(1).tolist()
    rows = []
    for at, value, proved in zip(given, values, inside, strict=True):
        rows.append({"x": at, "value": value, "in_domain": proved})
    if labels(result) is not None:
        for row, label in zip(rows, recall(result, x), strict=True):
            row["label"] = label
    # The bound never stands without its status and what it rests on.
    proof = result.certificate
    beyond = "no row of the table: nothing is proved there" if proof.where else "outside the certified domain"
    lines = []
    for row in rows:
        warning = "" if row["in_domain"] else f"  ({beyond})"
        lines.append(f"{row.get('label', row['value'])}{warning}")
    data = {"points": rows, "upper": proof.upper, "status": proof.status, "claim": proof.sentence}
    data["arithmetic"] = proof.arithmetic
    show("\n".join(lines), data, as_json=as_json)
    return SUCCESS


@app.command(
    "draw",
    epilog=examples("onelayer draw out/wave", "onelayer draw out/wave --out wave.svg", "onelayer draw out/wave --html"),
)
def draw_command(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="File to write (.png, .svg, .pdf; .html with --html); default in the folder.")
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="The live view: drag a point, watch attention and T(x).")
    ] = False,
    as_json: Json = False,
) -> int:
    """Draw f, T and the error of a saved result; or write its live view, one page that needs nothing else."""
    path = out or folder / (LIVE if html else PICTURE)
    with moving():
        result = ol.load(folder)
        if html:
            result.to_html(path)
        else:
            ol.draw(result, path)
    show(f"{path}", {"page" if html else "picture": str(path)}, as_json=as_json)
    return SUCCESS


@app.command("explain", epilog=examples("onelayer explain out/wave", "onelayer explain out/wave --json"))
def explain_command(folder: Folder, as_json: Json = False) -> int:
    """Say what every head, memory token and hidden unit of a saved model is for."""
    with moving():
        explanation = ol.explain(ol.load(folder))
    show(str(explanation), explanation.as_dict(), as_json=as_json)
    return SUCCESS


@app.command(
    "export",
    epilog=examples(
        "onelayer export out/wave --to onnx --out wave.onnx",
        "onelayer export out/wave --to coq --out Wave.v",
    ),
)
def export_command(
    folder: Folder,
    to: Annotated[
        str,
        typer.Option(
            help="c, onnx, torch, hf, lens or coq.", autocompletion=one_of("c", "onnx", "torch", "hf", "lens", "coq")
        ),
    ],
    out: Annotated[Path, typer.Option(help="File or folder to write.")],
    integers: Integers = "plain",
    guard: Annotated[
        str | None, typer.Option(help="Outside the domain, for all but coq: warn, raise or clamp; default: nothing.")
    ] = None,
    named: Annotated[bool, typer.Option("--named", help="For onnx: one input per variable, by its name.")] = False,
    as_json: Json = False,
) -> int:
    """Write a saved model for another library, run that library, and compare; or its certificate as a Coq theorem."""
    with moving():
        from onelayer.export.exporter import export

        exported = export(folder, to=to, out=out, integers=integers, guard=guard, named=named)
    show(str(exported), exported.as_dict(), as_json=as_json)
    return SUCCESS


def _points(text: str, box: ol.Box) -> list[list[float]]:
    from onelayer.language.endpoints import parse_point

    points = [parse_point(part, box.variables) for part in filter(str.strip, text.split(";"))]
    if not points:
        raise OnelayerError('give at least one point, for example "1.0, 2.0"')
    for row in points:
        if len(row) != box.dim:
            raise OnelayerError(f"a point of this model has {box.dim} coordinates, got {len(row)}: {row}")
    return points
