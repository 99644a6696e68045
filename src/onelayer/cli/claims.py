"""Commands about what else is true of a saved model: bound, lipschitz, gradient-error, monotone, prove, equivalent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import onelayer as ol
from onelayer.cli.attended import attended, concluded
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.cli.options import Folder, Json, MaxSeconds, app, examples
from onelayer.errors import OnelayerError

if TYPE_CHECKING:
    from onelayer.observer import Observer

Limit = Annotated[float | None, typer.Option("--eps", help="The bound to prove; without it, the tightest enclosure.")]
BEST = "this is the best so far"


@app.command("bound", epilog=examples("onelayer bound out/wave", "onelayer bound out/wave --gap 0.001 --json"))
def bound_command(
    folder: Folder,
    gap: Annotated[float, typer.Option(help="How tight, as a share of the width of the range.")] = 0.01,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove the range of every output of a saved model on its domain."""
    with attended() as observer:
        saved = ol.load(folder)
        found = ol.bound(saved.model, saved.box, gap=gap, max_seconds=max_seconds, observer=observer)
    data = {"status": found.status, "low": found.low.tolist(), "high": found.high.tolist()}
    show(str(found), data, as_json=as_json)
    return concluded(SUCCESS if found.status == "proved" else NOT_PROVED, observer, BEST)


@app.command(
    "lipschitz", epilog=examples("onelayer lipschitz out/wave", "onelayer lipschitz out/wave --eps 5 --max-seconds 60")
)
def lipschitz_command(
    folder: Folder, eps: Limit = None, max_seconds: MaxSeconds = math.inf, as_json: Json = False
) -> int:
    """Prove the Lipschitz constant of a saved model on its domain, in the maximum norm."""
    return _certified(
        folder,
        lambda saved, observer: ol.lipschitz(saved.model, saved.box, eps, max_seconds=max_seconds, observer=observer),
        as_json,
    )


@app.command(
    "gradient-error", epilog=examples("onelayer gradient-error out/wave", "onelayer gradient-error out/wave --eps 0.01")
)
def gradient_error_command(
    folder: Folder, eps: Limit = None, max_seconds: MaxSeconds = math.inf, as_json: Json = False
) -> int:
    """Prove how far the slopes of a saved model are from those of its function."""

    def prove(saved: ol.Approximation, observer: Observer) -> ol.Certificate:
        if saved.target is None:
            raise OnelayerError(f"{folder} holds no formula of its function; compare the slopes in Python")
        return ol.gradient_error(saved.model, saved.target, saved.box, eps, max_seconds=max_seconds, observer=observer)

    return _certified(folder, prove, as_json)


@app.command(
    "equivalent", epilog=examples("onelayer equivalent out/wave out/student --eps 1e-3", "onelayer equivalent a b")
)
def equivalent_command(
    folder: Folder,
    other: Annotated[Path, typer.Argument(help="Folder of the result to compare with, on the domain of the first.")],
    eps: Limit = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove how far two saved models are from each other on the domain of the first."""
    return _certified(
        folder,
        lambda saved, observer: ol.equivalent(
            saved.model, ol.load(other).model, saved.box, eps, max_seconds=max_seconds, observer=observer
        ),
        as_json,
    )


@app.command(
    "monotone", epilog=examples('onelayer monotone out/wave "x1 +"', 'onelayer monotone out/wave "x1 +, x2 -"')
)
def monotone_command(
    folder: Folder,
    directions: Annotated[str, typer.Argument(help='Inputs and their signs, for example "x1 +, x2 -".')],
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove that a saved model rises (+) or falls (-) along inputs everywhere on its domain, or find where not."""
    asked = {part.strip()[:-1].strip(): part.strip()[-1:] for part in directions.split(",") if part.strip()}
    return _judged(
        folder,
        lambda saved, observer: ol.monotone(saved.model, saved.box, asked, max_seconds=max_seconds, observer=observer),
        as_json,
    )


@app.command(
    "prove", epilog=examples('onelayer prove out/wave "y1 >= -1 and y1 <= 1"', 'onelayer prove out/wave "y1 <= x1"')
)
def prove_command(
    folder: Folder,
    condition: Annotated[str, typer.Argument(help="On outputs y1, y2, ... and inputs, joined by and, or, not.")],
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove a condition on the outputs of a saved model everywhere on its domain, or find where it fails."""
    return _judged(
        folder,
        lambda saved, observer: ol.prove(saved.model, saved.box, condition, max_seconds=max_seconds, observer=observer),
        as_json,
    )


def _judged(folder: Path, judge: Callable[[Any, Observer], Any], as_json: bool) -> int:
    with attended() as observer:
        found = judge(ol.load(folder), observer)
    data = {name: getattr(found, name) for name in ("status", "lower", "upper", "witness", "asked")}
    show(str(found), data, as_json=as_json)
    return concluded(SUCCESS if found.status == "proved" else NOT_PROVED, observer, BEST)


def _certified(folder: Path, prove: Callable[[Any, Observer], ol.Certificate], as_json: bool) -> int:
    with attended() as observer:
        found = prove(ol.load(folder), observer)
    show(str(found), json.loads(found.to_json()), as_json=as_json)
    return concluded(SUCCESS if found.proved else NOT_PROVED, observer, BEST)
