"""What a command about a model takes: a folder of a saved result or claim, or a foreign file with a domain."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import onelayer as ol
from onelayer.errors import OnelayerError

Model = Annotated[Path, typer.Argument(help="Folder of a saved result, or a model.onnx, .pt2 or .safetensors.")]
DomainOption = Annotated[
    str | None, typer.Option("--domain", help='Box of a foreign model: "0:2*pi, -1:1", or "v=1:2, c=3:10".')
]
ArchitectureOption = Annotated[
    str | None, typer.Option("--architecture", help='Of weights in .safetensors: "mlp:2,32,32,1:tanh".')
]
ClaimOut = Annotated[
    Path | None, typer.Option("--out", help="Folder for the model and the claim, to check and report.")
]


class Opened(NamedTuple):
    """A model from ``path``, the box to ask about it on, and the function that its folder is about, if it is about one.

    Of a foreign file ``given`` are the texts of its domain and its architecture.
    """

    model: Any
    box: ol.Box
    path: Path
    target: Any = None
    given: tuple[str | None, str | None] = (None, None)

    def beside(self, other: Path) -> Opened:
        """Another model; a foreign file has the domain and the architecture that were given for this one."""
        return opened(other) if other.is_dir() else opened(other, *self.given)


def function_of(formula: str | None, saved: Opened) -> Any:
    """The function that is asked about: FORMULA, or the one that a folder has; one number in the model's shape."""
    from onelayer.network.network import RecordedNetwork
    from onelayer.recording.target import as_target

    text = saved.target if formula is None else formula
    if text is None:
        raise OnelayerError(f"{saved.path} holds no formula of its function; give one after it, for example 'sin(x)*y'")
    target = as_target(text, saved.box)
    if isinstance(saved.model, RecordedNetwork) and math.prod(saved.model.program.output_shape) == 1:
        return target.one_number(saved.model.program.output_shape)
    return target


def opened(path: Path, domain: str | None = None, architecture: str | None = None) -> Opened:
    """The model at ``path``; a folder has its own domain, a file needs one."""
    if path.is_dir():
        return _folder(path, domain, architecture)
    from onelayer.language.endpoints import parse_domain
    from onelayer.network.foreign import read_network

    network = read_network(path, architecture)
    if domain is None:
        raise OnelayerError(f'{path} has no domain of its own; give one, for example --domain "0:1, -1:1"')
    box = parse_domain(domain)
    shape = network.program.input_shape
    if tuple(box.shape) != shape:
        raise OnelayerError(f"{path} takes points of shape {shape}, the domain has {tuple(box.shape)}")
    return Opened(network, box, path, given=(domain, architecture))


def _folder(path: Path, domain: str | None, architecture: str | None) -> Opened:
    from onelayer.network.file import is_network

    if domain is not None or architecture is not None:
        raise OnelayerError("a folder has its own domain and architecture; leave both options out")
    if is_network(path):
        claimed = ol.load_claim(path)
        recorded = claimed.certificate.function if not claimed.certificate.about else None
        return Opened(claimed.model, claimed.box, path, recorded)
    saved = ol.load(path)
    return Opened(saved.model, saved.box, path, saved.target)
