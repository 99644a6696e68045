"""Commands about what else is true of a model: ranges, slopes, directions, curvature, conditions, two models.

Each is a function of the opened model; what all of them take (a domain, a place to keep the claim and so on) ``claim``
adds. Types of results stay unsaid: reading them would load torch for a page of help.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import onelayer as ol
from onelayer.cli.attended import BEST, attended, concluded
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.cli.models import ArchitectureOption, ClaimOut, DomainOption, Model, Opened, function_of, opened
from onelayer.cli.options import Json, MaxSeconds, app, examples, one_of, options_of, taking

Limit = Annotated[float | None, typer.Option("--eps", help="The bound to prove; without it, the tightest enclosure.")]
Fields = Callable[[Any], dict[str, Any]]
Prove = Callable[..., Any]


def _asked(
    model: Model,
    domain: DomainOption = None,
    architecture: ArchitectureOption = None,
    out: ClaimOut = None,
    max_seconds: MaxSeconds = math.inf,
    as_json: Json = False,
) -> None:
    """What every command about a model takes."""


FIRST, *COMMON = options_of(_asked)


def claim(name: str, *lines: str, fields: Fields, only_proved: bool = False) -> Callable[[Prove], Prove]:
    """Make a command of a function (saved, ..., **how) that proves something; ``fields`` of it are what --json shows.

    A claim that was not proved says how far it got, and is kept too unless ``only_proved``.
    """

    def registered(prove: Prove) -> Prove:
        def run(model: Path, domain: Any, architecture: Any, out: Path | None, as_json: bool, **how: Any) -> int:
            with attended() as observer:
                found = prove(opened(model, domain, architecture), observer=observer, **how)
            proved = found.status == "proved"
            keeps = out is not None and (proved or not only_proved)
            saved = {"saved": str(found.save(out))} if keeps else {}
            show(str(found), fields(found) | saved, as_json=as_json)
            kept = f"the best so far is in {out}" if keeps else BEST
            return concluded(SUCCESS if proved else NOT_PROVED, observer, kept)

        own = [option for option in options_of(prove) if option.name != "saved"]
        app.command(name, epilog=examples(*lines))(taking([FIRST, *own, *COMMON], run, prove))
        return prove

    return registered


def _range(found: Any) -> dict[str, Any]:
    ends = {"low": found.low.tolist(), "high": found.high.tolist()}
    return {"status": found.status, **ends, "arithmetic": found.certificates[0].arithmetic}


def _certificate(found: ol.Certificate) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(found.to_json())
    return data


def _judgement(found: Any) -> dict[str, Any]:
    known = {name: getattr(found, name) for name in ("status", "lower", "upper", "witness", "asked")}
    return known | {"arithmetic": found.certificate.arithmetic}


@claim(
    "bound",
    "onelayer bound out/wave",
    'onelayer bound net.onnx --domain "-1:1, 0:2" --out out/net-range',
    fields=_range,
    only_proved=True,
)
def bound(
    saved: Opened,
    gap: Annotated[float, typer.Option(help="How tight, as a share of the width of the range.")] = 0.01,
    **how: Any,
) -> Any:
    """Prove the range of every output of a model on its domain."""
    return ol.bound(saved.model, saved.box, gap=gap, **how)


@claim(
    "lipschitz",
    "onelayer lipschitz out/wave",
    'onelayer lipschitz net.onnx --domain "-1:1, 0:2" --norm 2 --eps 5',
    fields=_certificate,
)
def lipschitz(
    saved: Opened,
    eps: Limit = None,
    norm: Annotated[
        str, typer.Option(help="Of distances: inf, 1 or 2.", autocompletion=one_of("inf", "1", "2"))
    ] = "inf",
    **how: Any,
) -> Any:
    """Prove the Lipschitz constant of a model on its domain."""
    return ol.lipschitz(saved.model, saved.box, eps, norm=norm, **how)


@claim(
    "gradient-error",
    "onelayer gradient-error out/wave",
    'onelayer gradient-error net.onnx "sin(x)*y" --domain "0:1, 0:1" --eps 0.1',
    fields=_certificate,
)
def gradient_error(
    saved: Opened,
    formula: Annotated[str | None, typer.Argument(help="The function; a folder has its own.")] = None,
    eps: Limit = None,
    **how: Any,
) -> Any:
    """Prove how far the slopes of a model are from those of a function."""
    return ol.gradient_error(saved.model, function_of(formula, saved), saved.box, eps, **how)


@claim(
    "equivalent",
    "onelayer equivalent out/wave out/student --eps 1e-3",
    'onelayer equivalent a.onnx b.onnx --domain "-1:1, 0:2"',
    fields=_certificate,
)
def equivalent(
    saved: Opened,
    other: Annotated[Path, typer.Argument(help="The model to compare with, on the domain of the first.")],
    eps: Limit = None,
    **how: Any,
) -> Any:
    """Prove how far two models are from each other on the domain of the first."""
    return ol.equivalent(saved.model, saved.beside(other).model, saved.box, eps, **how)


@claim(
    "monotone",
    'onelayer monotone out/wave "x1 +"',
    'onelayer monotone net.onnx "rpm +" --domain "rpm=0:1, v=1:2"',
    fields=_judgement,
)
def monotone(
    saved: Opened,
    directions: Annotated[str, typer.Argument(help='Inputs and their signs, for example "x1 +, x2 -".')],
    **how: Any,
) -> Any:
    """Prove that a model rises (+) or falls (-) along inputs everywhere on its domain, or find where not."""
    parts = filter(None, map(str.strip, directions.split(",")))
    asked = {part[:-1].strip(): part[-1:] for part in parts}
    return ol.monotone(saved.model, saved.box, asked, **how)


@claim("convex", "onelayer convex out/wave", 'onelayer convex net.onnx --domain "-1:1, 0:2"', fields=_judgement)
def convex(saved: Opened, **how: Any) -> Any:
    """Prove that every output of a model is convex on its domain, or find where not."""
    return ol.convex(saved.model, saved.box, **how)


@claim(
    "prove",
    'onelayer prove out/wave "y1 >= -1 and y1 <= 1"',
    'onelayer prove net.onnx "y1 <= x1" --domain "-1:1, 0:2"',
    fields=_judgement,
)
def prove(
    saved: Opened,
    condition: Annotated[str, typer.Argument(help="On outputs y1, y2, ... and inputs, joined by and, or, not.")],
    **how: Any,
) -> Any:
    """Prove a condition on the outputs of a model everywhere on its domain, or find where it fails."""
    return ol.prove(saved.model, saved.box, condition, **how)
