"""Commands that build a layer: approximate, sort, memorize."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from onelayer.build.memorize import memorize
from onelayer.build.sort import sort
from onelayer.build.tables.table import read_table
from onelayer.cli.options import PICTURE, Dtype, Jobs, Json, MaxSeconds, Out, Seed, app, dtype_of, report
from onelayer.conductor import approximate
from onelayer.language.endpoints import parse_domain
from onelayer.pictures.drawing import draw

MOST_DRAWN = 16  # numbers to sort; slices through more inputs take minutes and are drawn on demand


@app.command("approximate")
def approximate_command(
    formula: Annotated[str, typer.Argument(help='The function, for example "sin(x1) + sin(x2)".')],
    domain: Annotated[str, typer.Option(help='Box as lower:upper per coordinate, for example "0:2*pi, -1:1".')],
    eps: Annotated[float, typer.Option(help="The error to prove, in the maximum norm.")],
    out: Out = None,
    layout: Annotated[str, typer.Option(help="packed (memory does the work) or tokens (sequences).")] = "packed",
    dtype: Dtype = "float64",
    max_tokens: Annotated[int, typer.Option(min=1, help="Most memory tokens to use.")] = 20_000,
    max_seconds: MaxSeconds = math.inf,
    seed: Seed = 0,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> int:
    """Build a layer for FORMULA on a box and prove its error."""
    result = approximate(
        formula,
        parse_domain(domain),
        eps,
        layout=layout,
        dtype=dtype_of(dtype),
        max_tokens=max_tokens,
        max_seconds=max_seconds,
        seed=seed,
        jobs=jobs,
        progress=True,
    )
    if out is None:
        return report(result, as_json)
    result.save(out)
    draw(result, out / PICTURE)
    return report(result, as_json, saved=str(out))


@app.command("sort")
def sort_command(
    length: Annotated[int, typer.Option(help="How many numbers to sort.")],
    eps: Annotated[float, typer.Option(help="The error to prove, in the maximum norm.")],
    lower: Annotated[float, typer.Option(help="Least number.")] = 0.0,
    upper: Annotated[float, typer.Option(help="Greatest number.")] = 1.0,
    kind: Annotated[str, typer.Option(help="thresholds (any length) or subsets (up to 10 numbers).")] = "thresholds",
    out: Out = None,
    dtype: Dtype = "float64",
    as_json: Json = False,
) -> int:
    """Build a layer that sorts, with its proof."""
    result = sort(length, lower, upper, eps, kind=kind, dtype=dtype_of(dtype))
    if out is None:
        return report(result, as_json)
    result.save(out)
    if length <= MOST_DRAWN:
        draw(result, out / PICTURE)
    return report(result, as_json, saved=str(out))


@app.command("memorize")
def memorize_command(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file with a header.")],
    target: Annotated[str, typer.Option(help="Column to recall from the others.")],
    recipe: Annotated[str | None, typer.Option(help="softmax or relu; chosen by size when not given.")] = None,
    out: Out = None,
    dtype: Dtype = "float64",
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    """Build a layer that recalls every row of a table, with its proof."""
    result = memorize(*read_table(table, target), recipe=recipe, dtype=dtype_of(dtype), seed=seed, progress=True)
    extra = {"recall": str(result.recall_report)}
    if out is None:
        return report(result, as_json, **extra)
    result.save(out)
    draw(result, out / PICTURE)
    return report(result, as_json, **extra, saved=str(out))
