"""Commands that build a layer: approximate, sort, memorize."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

import onelayer as ol
from onelayer.cli.attended import attended
from onelayer.cli.options import (
    Cluster,
    Device,
    Dtype,
    Jobs,
    Json,
    MaxSeconds,
    Out,
    Seed,
    Storage,
    app,
    examples,
    keep,
    one_of,
    report,
)
from onelayer.formats import named

MOST_DRAWN = 16  # numbers to sort; slices through more inputs take minutes and are drawn on demand


@app.command(
    "approximate",
    epilog=examples(
        'onelayer approximate "sin(3*x)" --domain "-1:1" --eps 1e-4 --out out/wave',
        'onelayer approximate "exp(-x**2 - y**2)" --domain "-1:1, -1:1" --eps 1e-3 --dtype float32 --json',
        "onelayer approximate engine.csv --inputs rpm,load --target torque --interpolate cubic --eps 0.5",
    ),
)
def approximate_command(
    formula: Annotated[str, typer.Argument(help='The function, for example "sin(x1) + sin(x2)", or a table.csv.')],
    eps: Annotated[float, typer.Option(help="The error to prove, in the maximum norm.")],
    domain: Annotated[
        str | None, typer.Option(help='Box per coordinate: "0:2*pi, -1:1", or "v=1:2, c=3:10"; a table has its own.')
    ] = None,
    inputs: Annotated[str, typer.Option(help="Input columns of a table, for example rpm,load.")] = "",
    target: Annotated[str, typer.Option(help="Output column of a table.")] = "",
    interpolate: Annotated[
        str, typer.Option(help="What a table is between its rows.", autocompletion=one_of("linear", "cubic"))
    ] = "linear",
    out: Out = None,
    layout: Annotated[
        str,
        typer.Option(
            help="auto (ways race), packed (memory does the work), tokens (sequences) or pieces (kinks).",
            autocompletion=one_of("auto", "packed", "tokens", "pieces"),
        ),
    ] = "auto",
    gradient_eps: Annotated[
        float | None, typer.Option(help="Prove every slope of T within this of the slope of f as well.")
    ] = None,
    dtype: Storage = "float64",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most memory tokens to use.")] = 20_000,
    max_seconds: MaxSeconds = math.inf,
    seed: Seed = 0,
    jobs: Jobs = -1,
    cluster: Cluster = None,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Build a layer for FORMULA on a box, or for a table on a full grid, and prove its error."""
    from onelayer.proof.cluster import connected

    with attended() as observer, connected(cluster) as executor:
        columns = [name.strip() for name in inputs.split(",") if name.strip()]
        f, box = _function(formula, domain, columns, target, interpolate)
        result = ol.approximate(
            f,
            box,
            eps,
            gradient_eps=gradient_eps,
            layout=layout,
            dtype=dtype,
            max_tokens=max_tokens,
            max_seconds=max_seconds,
            seed=seed,
            jobs=jobs,
            executor=executor,
            device=device,
            observer=observer,
        )
    return report(result, as_json, observer, **keep(result, out, observer))


def _function(formula: str, domain: str | None, inputs: list[str], target: str, interpolate: str) -> tuple[Any, ol.Box]:
    """The function that was asked for and its box: text needs a domain, a table has one, which may be cut."""
    from onelayer.language.endpoints import parse_domain
    from onelayer.recording.columns import SUFFIXES

    if Path(formula).suffix.lower() not in SUFFIXES:
        if inputs or target:
            raise ol.OnelayerError("--inputs and --target belong to a table: give a .csv or .parquet file first")
        if domain is None:
            raise ol.OnelayerError("a formula needs a domain, for example --domain 0:1")
        return formula, parse_domain(domain)
    if not inputs or not target:
        raise ol.OnelayerError("a table needs its columns: --inputs rpm,load --target torque")
    table = ol.Table.read(formula, inputs=inputs, output=target, interpolate=interpolate)
    return table, table.box if domain is None else parse_domain(domain)


@app.command(
    "sort",
    epilog=examples(
        "onelayer sort --length 8 --eps 0.01 --out out/sorted",
        "onelayer sort --length 5 --eps 1e-6 --kind subsets --lower -1 --upper 1",
    ),
)
def sort_command(
    length: Annotated[int, typer.Option(help="How many numbers to sort.")],
    eps: Annotated[float, typer.Option(help="The error to prove, in the maximum norm.")],
    lower: Annotated[float, typer.Option(help="Least number.")] = 0.0,
    upper: Annotated[float, typer.Option(help="Greatest number.")] = 1.0,
    kind: Annotated[
        str,
        typer.Option(
            help="auto (fewest parameters), thresholds (any length) or subsets (up to 12 numbers).",
            autocompletion=one_of("auto", "thresholds", "subsets"),
        ),
    ] = "auto",
    out: Out = None,
    dtype: Dtype = "float64",
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Build a layer that sorts, with its proof."""
    with attended() as observer:
        limits: dict[str, Any] = {"max_seconds": max_seconds, "observer": observer}
        result = ol.sort(length, lower, upper, eps, kind=kind, dtype=named(dtype).dtype, **limits)
    return report(result, as_json, observer, **keep(result, out, observer, picture=length <= MOST_DRAWN))


@app.command(
    "memorize",
    epilog=examples(
        "onelayer memorize table.csv --target species --out out/table",
        "onelayer memorize table.parquet --target price --recipe relu",
    ),
)
def memorize_command(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with a header.")],
    target: Annotated[str, typer.Option(help="Column to recall from the others.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="softmax or relu; chosen by size when not given.", autocompletion=one_of("softmax", "relu")),
    ] = None,
    out: Out = None,
    dtype: Dtype = "float64",
    max_seconds: MaxSeconds = math.inf,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Build a layer that recalls every row of a table, with its proof."""
    with attended() as observer:
        from onelayer.build.tables.table import read_named

        x, y, columns = read_named(table, target)
        limits: dict[str, Any] = {"max_seconds": max_seconds, "observer": observer}
        result = ol.memorize(x, y, recipe=recipe, dtype=named(dtype).dtype, seed=seed, names=columns, **limits)
    recalled = str(result.recall_report)
    return report(result, as_json, observer, recall=recalled, **keep(result, out, observer))
