"""Claims on disk: the model as plain data, the claim and its boxes, in one folder. Whatever is loaded is a claim only.

A layer of ours is written as the layer that it is. Any other model is recorded as a network (network/record.py), which
must return what the model returns; the certificate then speaks of the network.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from onelayer.box import Box
from onelayer.disk import as_path
from onelayer.door import door
from onelayer.errors import FileError, ModelAssumptionError, OnelayerError
from onelayer.formats import REAL, format_of, spelled
from onelayer.ground import pinned
from onelayer.layer.file import FILE_NAME, load_model, save_model, weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lazy import late
from onelayer.network.file import is_network, load_network, network_sha256, save_network
from onelayer.network.network import RecordedNetwork
from onelayer.network.record import record
from onelayer.points import dense, need_tensor, points_of
from onelayer.proof.certificate import Certificate
from onelayer.proof.files import ATTACHMENTS, BOXES, CERTIFICATE, FUNCTION, OTHER, read_proof, write_proof
from onelayer.proof.fit import converted
from onelayer.proof.forward import enclosed_at, execute, settled
from onelayer.proof.kept import Kept, state_of
from onelayer.proof.own import is_own_layer, says_all
from onelayer.recording.target import place

# Room above what is attained: nearer than that no bound is stated.
ABOVE = 1 + 2.0**-10
# Units in the last place of the largest value: more than two analyses of rounding differ by.
ROOM = 256
# Of what a bound has above what is attained: two analyses of the rounding on the way differ by less.
SHARE = 0.125
POINTS = 64  # at which a recorded network is compared with its model


@dataclass(frozen=True)
class Claimed:
    """A model and what is claimed of it, as a folder holds them; ``other`` is the second model of a claim about two."""

    model: OneLayerTransformer | RecordedNetwork
    certificate: Certificate
    other: RecordedNetwork | None = None

    @property
    def box(self) -> Box:
        """The domain of the claim."""
        return self.certificate.domain

    def __call__(self, x: Any) -> Any:
        """The model at points (..., *input_shape), as tensors or as arrays."""
        if isinstance(x, np.ndarray | list | tuple):
            numbers = torch.from_numpy(points_of(x)).to(self.model.dtype)
            return self(numbers).detach().double().cpu().numpy()
        need_tensor(x)
        shape = self.certificate.shape
        batch = x.shape[: max(0, x.ndim - len(shape))]
        if (*batch, *shape) != tuple(x.shape) or x.dtype != self.model.dtype:
            kind = spelled(self.model.dtype)
            raise OnelayerError(
                f"the model takes points (..., {', '.join(map(str, shape))}) in {kind}, "
                f"got {tuple(x.shape)} in {spelled(x.dtype)}"
            )
        # A network takes one batch, and a layer any number of them.
        values = self.model(dense(x).reshape((-1, *shape)))
        return values.reshape((*batch, *values.shape[1:]))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the same files again."""
        return written(as_path(folder), self.model, self.certificate)

    def check(self, **options: Any) -> Any:
        """Re-prove the claim independently, from the files as they would be saved."""
        with tempfile.TemporaryDirectory(prefix="onelayer-") as folder:
            return late("checker.check", "check")(self.save(Path(folder) / "claim"), **options)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Check independently, then write one page to sign; options are those of ``Approximation.report``."""
        done: Path = late("report.page", "write_report")(self, path, **options)
        return done

    def __repr__(self) -> str:
        return f"Claimed({self.certificate})"


@door
def save_claim(certificate: Certificate, folder: str | os.PathLike[str]) -> Path:
    """Write the models and the proof of ``certificate`` into ``folder``; returns it."""
    folder = as_path(folder)
    if not certificate.models:
        raise OnelayerError("this certificate has no model beside it; save what certify, lipschitz and others return")
    model, *others = [held.unchanged() for held in certificate.models]
    # What a subclass or a hook adds is not in the weights of the layer: such a model is recorded like any other.
    if is_own_layer(model) and not certificate.about:
        return written(folder, model, certificate)
    network = recorded(model, certificate)
    about = replace(
        _relaxed(certificate, network),
        weights_sha256=network_sha256(network),
    )
    if others:
        other = recorded(others[0], certificate)
        with tempfile.TemporaryDirectory(prefix="onelayer-") as beside:
            second = save_network(other, beside, OTHER).read_bytes()
        about = replace(about, attachments={**about.attachments, OTHER: second})
    return written(folder, network, about)


def _relaxed(certificate: Certificate, network: RecordedNetwork) -> Certificate:
    """The same claim with room for another proof of it: a weaker one, so as true.

    Where an enclosure is exact up to rounding, a checker whose bound of the rounding is a little larger could prove
    nothing; where high orders come within a billionth of a value that is attained, one that cuts boxes would cut for
    ever. An eps that was asked for is kept.
    """
    if not math.isfinite(certificate.upper):
        return certificate
    most = math.inf
    if certificate.eps is not None and certificate.status == "proved":
        most = certificate.eps
    # Nothing rounds: a thousandth of the bound is room enough.
    if certificate.arithmetic == REAL:
        return replace(certificate, upper=min(most, ABOVE * certificate.upper))
    with torch.no_grad():
        points = _points(certificate.domain).to(network.dtype)
        values = execute(network, points).double()
    unit = ROOM * format_of(network.dtype).unit
    if certificate.about.get("kind") == "range":
        wider = _wider(certificate.about, values.reshape(len(values), -1), unit)
        return replace(certificate, about=wider)
    # Roundings of larger numbers on the way are a part of what the bound has above what is attained.
    rounded = SHARE * (certificate.upper - certificate.lower)
    room = unit * (float(values.abs().max()) + certificate.upper) + rounded
    roomy = max(certificate.upper + room, ABOVE * certificate.lower)
    return replace(certificate, upper=min(most, roomy))


def _wider(about: Mapping[str, Any], values: torch.Tensor, unit: float) -> dict[str, Any]:
    """A range made wider by some units of its own numbers, and of 1 where it leaves that much beside what was seen.

    Rounding of larger numbers on the way may be all that a range has beside the values; of small ones it is as small.
    """
    low = torch.tensor(about["low"], dtype=torch.float64, device=values.device)
    high = torch.tensor(about["high"], dtype=torch.float64, device=values.device)
    beside = torch.maximum(values.amin(0) - low, high - values.amax(0)).clamp(0.0, unit)
    size = torch.maximum(low.abs(), high.abs())
    room = unit * size + beside
    return {"kind": "range", "low": (low - room).tolist(), "high": (high + room).tolist()}


def _points(box: Box) -> torch.Tensor:
    half = POINTS // 2
    return torch.cat([box.center[None], box.corners(half), box.sample(half, seed=7)])


@door
def load_claim(folder: str | os.PathLike[str]) -> Claimed:
    """What is claimed in ``folder``, of a layer or a network; weights, certificate and boxes fit each other."""
    folder = as_path(folder)
    certificate = read_proof(folder)
    model = load_network(folder) if is_network(folder) else load_model(folder)
    # A claim is about its own weights: others beside it would borrow it.
    if digest(model) != certificate.weights_sha256:
        raise FileError(f"{folder}: the weights are not those of the certificate")
    shape = model.program.input_shape if isinstance(model, RecordedNetwork) else model.config.input_shape
    if tuple(shape) != certificate.shape:
        raise FileError(f"{folder}: the model takes points of shape {shape}, its domain has {certificate.shape}")
    other = load_network(folder, OTHER) if OTHER in certificate.attachments else None
    models = [model] if other is None else [model, other]
    held = tuple(Kept(one, state_of(one)) for one in models)
    return Claimed(model, replace(certificate, models=held), other)


def recorded(model: Callable[[Any], Any], certificate: Certificate) -> RecordedNetwork:
    """The network of a model; ModelAssumptionError with a point at which it returns something else."""
    if isinstance(model, RecordedNetwork) and says_all(model):
        return model
    box = certificate.domain
    module = model if isinstance(model, nn.Module) else _Called(model)
    network = _network(module, certificate)
    points = _points(box)
    x = points.to(network.dtype)
    if isinstance(model, nn.Module):
        model = settled(model, x.device, network.dtype)
    with torch.no_grad():
        values = execute(model, x)
        # Not bit by bit: torch may sum in another order than the recorded steps.
        again = execute(network, x)
        for at, (one, two) in enumerate(zip(values, again, strict=True)):
            if not torch.equal(one, two) and not _within(network, x[at : at + 1], one):
                raise ModelAssumptionError(f"the model is not what was recorded of it at x = {place(points[at])}")
    return network


def _network(module: nn.Module, certificate: Certificate) -> RecordedNetwork:
    """A module as a network, of which the claim is true.

    In real arithmetic exp of a float32 weight is no float32 number, and a network that holds the nearest one is another
    function. The proof took what float64 makes of it, within its rounding (constants.py), and so is it recorded. Where
    the module's own format holds every such number, the network is stored in that.
    """
    network = record(module, certificate.shape)
    if certificate.arithmetic != REAL or not converted(module, None):
        return network
    exact = record(settled(module, torch.device("cpu"), None), certificate.shape)
    if exact.program == network.program and _same_numbers(exact, network):
        return network
    return exact


def _same_numbers(a: RecordedNetwork, b: RecordedNetwork) -> bool:
    """Whether two networks of one program hold the same numbers, in whatever formats."""
    return all(torch.equal(a.tensor(name).double(), b.tensor(name).double()) for name in a.names)


def _within(network: RecordedNetwork, x: Any, values: Any) -> bool:
    """Whether the rounding of the network's operations leaves room for other values than it returned."""
    known = enclosed_at(network, x, tuple(values.shape), network.dtype)[0]
    # Twice the radius: the model may round at other places than what was recorded of it.
    pairs = zip(values.double().flatten().tolist(), known, strict=True)
    return all(abs(value - centre) <= 2 * radius for value, (centre, radius) in pairs)


def digest(model: OneLayerTransformer | RecordedNetwork) -> str:
    """The hash by which a certificate knows a saved model."""
    return network_sha256(model) if isinstance(model, RecordedNetwork) else weights_sha256(model)


class _Called(nn.Module):
    """A function as the module that torch.export wants."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """The function."""
        return self.function(x)


@pinned()
def written(path: Path, model: OneLayerTransformer | RecordedNetwork, certificate: Certificate) -> Path:
    """Write everything beside the folder, then move it: a new one appears at once, in an old one the claim is last.

    OnelayerError for a model that is not the one of the certificate: it was trained since, or converted.
    """
    if not says_all(model) or digest(model) != certificate.weights_sha256:
        raise OnelayerError("the model is not the one that was certified; certify it again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside it and not in a temporary folder: a move within one file system is one step.
        folder = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
        beside = Path(folder)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {path}: {error}") from error
    try:
        # A temporary folder is for its owner alone; a result is for whoever may read beside it.
        beside.chmod(0o755)
        if isinstance(model, RecordedNetwork):
            save_network(model, beside)
        else:
            save_model(model, beside)
        write_proof(beside, certificate)
        _move_folder(beside, path)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return path


def _move_folder(beside: Path, path: Path) -> None:
    """Files of a finished folder to where they belong; those that it does not have are removed there."""
    if not path.exists():
        os.rename(beside, path)
        return
    if not path.is_dir():
        raise FileError(f"cannot write {path}: it is not a folder; choose another name")
    # The certificate last: until it is there, the digests of the old one refuse the new files.
    for name in (FILE_NAME, BOXES, FUNCTION, *ATTACHMENTS, CERTIFICATE):
        if (beside / name).exists():
            os.replace(beside / name, path / name)
        else:
            (path / name).unlink(missing_ok=True)
