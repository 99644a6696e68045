"""The command that lists the zoo, or builds one layer of it."""

from __future__ import annotations

from typing import Annotated

import typer

from onelayer.cli.attended import attended
from onelayer.cli.console import SUCCESS, show
from onelayer.cli.options import Json, Out, app, examples, keep, one_of, report


@app.command("zoo", epilog=examples("onelayer zoo", "onelayer zoo sort --size large --out out/sort"))
def zoo_command(
    name: Annotated[str | None, typer.Argument(help="A layer to build; without it, all are listed.")] = None,
    size: Annotated[str, typer.Option(help="small or large.", autocompletion=one_of("small", "large"))] = "small",
    out: Out = None,
    as_json: Json = False,
) -> int:
    """List the ground-truth layers with their algorithms, or build one with its proof."""
    if name is None:
        return _listed(as_json)
    with attended() as observer:
        from onelayer import zoo

        result = zoo.load(name, size, observer=observer)
    return report(result, as_json, observer, **keep(result, out, observer, picture=False))


def _listed(as_json: bool) -> int:
    from onelayer import zoo

    cards = [zoo.card(each) for each in zoo.names()]
    rows = []
    for each in cards:
        rows.append({"name": each.name, "computes": each.computes, "algorithm": each.algorithm, "sizes": each.sizes})
    show("\n\n".join(map(str, cards)), {"zoo": rows}, as_json=as_json)
    return SUCCESS
