"""Commands about what else is true of a model: ranges, slopes, directions, curvature, conditions, two models."""

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
from onelayer.cli.models import ArchitectureOption, ClaimOut, DomainOption, Model, Opened, function_of, opened
from onelayer.cli.options import Json, MaxSeconds, app, examples, one_of

if TYPE_CHECKING:
    from onelayer.observer import Observer

Limit = Annotated[float | None, typer.Option("--eps", help="The bound to prove; without it, the tightest enclosure.")]
BEST = "this is the best so far"


@app.command(
    "bound",
    epilog=examples("onelayer bound out/wave", 'onelayer bound net.onnx --domain "-1:1, 0:2" --out out/net-range'),
)
def bound_command(
    model: Model,
    gap: Annotated[float, typer.Option(help="How tight, as a share of the width of the range.")] = 0.01,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove the range of every output of a model on its domain."""
    with attended() as observer:
        saved = opened(model, domain, architecture)
        found = ol.bound(saved.model, saved.box, gap=gap, max_seconds=max_seconds, observer=observer)
    data = {"status": found.status, "low": found.low.tolist(), "high": found.high.tolist()}
    show(str(found), data | _kept(found, out, found.status == "proved"), as_json=as_json)
    return concluded(SUCCESS if found.status == "proved" else NOT_PROVED, observer, BEST)


@app.command(
    "lipschitz",
    epilog=examples("onelayer lipschitz out/wave", 'onelayer lipschitz net.onnx --domain "-1:1, 0:2" --norm 2 --eps 5'),
)
def lipschitz_command(
    model: Model,
    eps: Limit = None,
    norm: Annotated[
        str, typer.Option(help="Of distances: inf, 1 or 2.", autocompletion=one_of("inf", "1", "2"))
    ] = "inf",
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove the Lipschitz constant of a model on its domain."""

    def prove(saved: Opened, observer: Observer) -> ol.Certificate:
        return ol.lipschitz(saved.model, saved.box, eps, norm=norm, max_seconds=max_seconds, observer=observer)

    return _certified(lambda: opened(model, domain, architecture), prove, out, as_json)


@app.command(
    "gradient-error",
    epilog=examples(
        "onelayer gradient-error out/wave", 'onelayer gradient-error net.onnx "sin(x)*y" --domain "0:1, 0:1" --eps 0.1'
    ),
)
def gradient_error_command(
    model: Model,
    formula: Annotated[str | None, typer.Argument(help="The function; a folder has its own.")] = None,
    eps: Limit = None,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove how far the slopes of a model are from those of a function."""

    def prove(saved: Opened, observer: Observer) -> ol.Certificate:
        f = function_of(formula, saved, model)
        return ol.gradient_error(saved.model, f, saved.box, eps, max_seconds=max_seconds, observer=observer)

    return _certified(lambda: opened(model, domain, architecture), prove, out, as_json)


@app.command(
    "equivalent",
    epilog=examples(
        "onelayer equivalent out/wave out/student --eps 1e-3", 'onelayer equivalent a.onnx b.onnx --domain "-1:1, 0:2"'
    ),
)
def equivalent_command(
    model: Model,
    other: Annotated[Path, typer.Argument(help="The model to compare with, on the domain of the first.")],
    eps: Limit = None,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove how far two models are from each other on the domain of the first."""

    def prove(saved: Opened, observer: Observer) -> ol.Certificate:
        file = not other.is_dir()
        second = opened(other, domain if file else None, architecture if file else None)
        return ol.equivalent(saved.model, second.model, saved.box, eps, max_seconds=max_seconds, observer=observer)

    return _certified(lambda: opened(model, domain, architecture), prove, out, as_json)


@app.command(
    "monotone",
    epilog=examples(
        'onelayer monotone out/wave "x1 +"', 'onelayer monotone net.onnx "rpm +" --domain "rpm=0:1, v=1:2"'
    ),
)
def monotone_command(
    model: Model,
    directions: Annotated[str, typer.Argument(help='Inputs and their signs, for example "x1 +, x2 -".')],
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove that a model rises (+) or falls (-) along inputs everywhere on its domain, or find where not."""
    asked = {part.strip()[:-1].strip(): part.strip()[-1:] for part in directions.split(",") if part.strip()}

    def judge(saved: Opened, observer: Observer) -> Any:
        return ol.monotone(saved.model, saved.box, asked, max_seconds=max_seconds, observer=observer)

    return _judged(lambda: opened(model, domain, architecture), judge, out, as_json)


@app.command("convex", epilog=examples("onelayer convex out/wave", 'onelayer convex net.onnx --domain "-1:1, 0:2"'))
def convex_command(
    model: Model,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove that every output of a model is convex on its domain, or find where not."""

    def judge(saved: Opened, observer: Observer) -> Any:
        return ol.convex(saved.model, saved.box, max_seconds=max_seconds, observer=observer)

    return _judged(lambda: opened(model, domain, architecture), judge, out, as_json)


@app.command(
    "prove",
    epilog=examples(
        'onelayer prove out/wave "y1 >= -1 and y1 <= 1"', 'onelayer prove net.onnx "y1 <= x1" --domain "-1:1, 0:2"'
    ),
)
def prove_command(
    model: Model,
    condition: Annotated[str, typer.Argument(help="On outputs y1, y2, ... and inputs, joined by and, or, not.")],
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> int:
    """Prove a condition on the outputs of a model everywhere on its domain, or find where it fails."""

    def judge(saved: Opened, observer: Observer) -> Any:
        return ol.prove(saved.model, saved.box, condition, max_seconds=max_seconds, observer=observer)

    return _judged(lambda: opened(model, domain, architecture), judge, out, as_json)


def _kept(found: Any, out: Path | None, worth: bool = True) -> dict[str, str]:
    """Save a claim where asked; what there is to say of it."""
    if out is None or not worth:
        return {}
    return {"saved": str(found.save(out))}


def _judged(
    model: Callable[[], Opened], judge: Callable[[Opened, Observer], Any], out: Path | None, as_json: bool
) -> int:
    with attended() as observer:
        found = judge(model(), observer)
    data = {name: getattr(found, name) for name in ("status", "lower", "upper", "witness", "asked")}
    show(str(found), data | _kept(found, out), as_json=as_json)
    return concluded(SUCCESS if found.status == "proved" else NOT_PROVED, observer, BEST)


def _certified(
    model: Callable[[], Opened],
    prove: Callable[[Opened, Observer], ol.Certificate],
    out: Path | None,
    as_json: bool,
) -> int:
    with attended() as observer:
        found = prove(model(), observer)
    show(str(found), json.loads(found.to_json()) | _kept(found, out), as_json=as_json)
    return concluded(SUCCESS if found.proved else NOT_PROVED, observer, BEST)
