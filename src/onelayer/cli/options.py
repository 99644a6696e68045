"""The application and the options that commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from onelayer.card import counted
from onelayer.cli.attended import concluded
from onelayer.cli.console import NOT_PROVED, SUCCESS, show
from onelayer.formats import NAMES, WIDE, either
from onelayer.seeds import MAX_SEED

if TYPE_CHECKING:
    from onelayer.observer import Observer
    from onelayer.result import Approximation

PICTURE = "picture.png"


def examples(*lines: str) -> str:
    """The end of a command's help: command lines that can be copied, one per line."""
    return "\n\n".join(["Examples:", *lines])


def one_of(*words: str) -> Callable[[str], list[str]]:
    """What a shell completes an option to, from the letters typed so far."""

    def completed(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return completed


app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Build one-layer Transformers from functions, and prove how far they are from them.",
    epilog=examples(
        'onelayer approximate "sin(x1) + sin(x2)" --domain "0:2*pi, 0:2*pi" --eps 1e-3 --out out/waves',
        "onelayer check out/waves",
        "onelayer approximate --help",
    ),
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
Integers = Annotated[
    str,
    typer.Option(
        help="Arithmetic of a Coq proof: plain (fewest axioms) or machine (faster).",
        autocompletion=one_of("plain", "machine"),
    ),
]
Folder = Annotated[Path, typer.Argument(help="Folder of a saved result.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the model, the proof and the picture.")]
MaxSeconds = Annotated[float, typer.Option(help="Stop after this time with the best enclosure found.")]
Jobs = Annotated[int, typer.Option(min=-1, help="Processes that share a long proof; -1: one per core.")]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, or auto: a GPU where there is one and it pays.", autocompletion=one_of("cpu", "cuda", "auto")
    ),
]
Cluster = Annotated[str | None, typer.Option(help="Address of a Dask scheduler whose workers share the proof.")]
Dtype = Annotated[
    str,
    typer.Option(
        help=f"{either('', WIDE)}: weights and certified execution.", autocompletion=one_of(*(row.name for row in WIDE))
    ),
]
Storage = Annotated[
    str,
    typer.Option(
        help=f"{either()}: weights and certified execution; or int8: weights of 8 bits, executed in float32.",
        autocompletion=one_of(*NAMES, "int8"),
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of everything random.")]


class OptionOfRecord(NamedTuple):
    """An option that fills a field of a record: its annotation for the command line, and its default."""

    annotation: Any
    default: Any


def setting(kind: Any, default: Any, text: str, least: int | None = None, most: int | None = None) -> OptionOfRecord:
    """An option ``--name`` of this type, default, help and, for a number, range."""
    return OptionOfRecord(Annotated[kind, typer.Option(help=text, min=least, max=most)], default)


def options_of(command: Callable[..., Any]) -> list[Parameter]:
    """What a command takes by name, for the command line; ``**`` stands for what others add."""
    hints = get_type_hints(command, include_extras=True)
    return [
        item.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, item in signature(command).parameters.items()
        if item.kind is not Parameter.VAR_KEYWORD
    ]


def taking(options: Sequence[Parameter], run: Callable[..., int], like: Callable[..., Any]) -> Callable[..., int]:
    """``run`` as a command with these options, and with the name and the help of another function."""

    def command(**given: Any) -> int:
        return run(**given)

    command.__doc__ = like.__doc__
    command.__name__ = like.__name__
    command.__signature__ = Signature(options, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in options} | {"return": int}
    return command


def with_settings(settings: Mapping[str, OptionOfRecord]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Let a command with ``**settings`` take these options: records of many fields are not spelled out again."""
    more = []
    for name, item in settings.items():
        more.append(Parameter(name, Parameter.KEYWORD_ONLY, default=item.default, annotation=item.annotation))
    return lambda command: taking([*options_of(command), *more], command, command)


def keep(result: Approximation, out: Path | None, observer: Observer, *, picture: bool = True) -> dict[str, Any]:
    """Save a result where asked, with its picture unless that was interrupted; what there is to say of it."""
    if out is None:
        return {}
    with observer:
        observer.report("saving")
        result.save(out)
        if picture and not observer.cancelled:
            observer.report("drawing")
            result.draw(out / PICTURE)
    return {"saved": str(out)}


def _remedy(result: Approximation, *, built: bool) -> list[str]:
    """What is said of an eps that was not reached."""
    certificate = result.certificate
    final = certificate.proved or (certificate.status == "refuted" and not built)
    return [] if final or certificate.eps is None else [result.outcome()]


def report(
    result: Approximation, as_json: bool, observer: Observer, kept: str = "", *, built: bool = True, **extra: Any
) -> int:
    """Print the certificate and the size of a result; the exit status says whether it is proved, or was interrupted.

    ``kept`` is what an interrupted command says, unless the result was saved. A layer that was not ``built`` for this
    eps but judged stays refuted however long one waits: there is nothing to advise.
    """
    certificate = result.certificate
    size = result.size()
    counts = counted(size)
    text = [str(certificate), f"{counts}; {certificate.seconds:.2f} s of proof"]
    text += _remedy(result, built=built)
    text += [f"{key} {value}" for key, value in extra.items()]
    data = {**json.loads(certificate.to_json()), **size, "wanted_tokens": result.wanted_tokens, **extra}
    reached = certificate.proved
    if result.gradient is not None:
        reached = reached and result.gradient.proved
        text.insert(1, str(result.gradient))
        data["gradient"] = json.loads(result.gradient.to_json())
    show("\n".join(text), data, as_json=as_json)
    if "saved" in extra:
        kept = f"the best result so far is in {extra['saved']}"
    return concluded(SUCCESS if reached else NOT_PROVED, observer, kept or "this is the best result so far")
