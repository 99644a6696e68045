"""Approximation: a model with its certificate and its target, saved to and loaded from one folder."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from onelayer.box import Box
from onelayer.card import card, counted, folded, number_of
from onelayer.disk import as_path
from onelayer.door import door
from onelayer.errors import FileError, OnelayerError
from onelayer.formats import REAL, format_of
from onelayer.ground import pinned
from onelayer.guard import RAISE, WARN, Guarded
from onelayer.language.formula import parse
from onelayer.layer.file import load_model, weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lazy import late
from onelayer.lemmas.argument import Argument, OrderStatistics, from_text
from onelayer.network.file import is_network, network_sha256
from onelayer.network.network import RecordedNetwork
from onelayer.network.record import record
from onelayer.proof.certificate import Certificate, outward
from onelayer.proof.files import ARGUMENT, CERTIFICATE, TABLE, read_proof, read_table
from onelayer.proof.kept import Kept, state_of
from onelayer.proof.own import stands_as_built
from onelayer.proof.saved import load_claim, written
from onelayer.recording.sequences import order_statistics
from onelayer.recording.target import Target, as_target

# Folder of a claim about slopes within that of a result.
GRADIENT = "gradient"
SLOPES = {"kind": "slopes"}  # what such a claim is about
# Seconds: what most functions of a few inputs need, on a busy machine too.
LEAST_ADVICE = 120
# Times what was spent: ways are given slices of the time, so twice the time is hardly more for any of them.
LONGER = 8.0


@dataclass(frozen=True)
class Attempt:
    """One way that was tried: what came of it, how large it was, how long it took.

    ``note`` says why it failed if it did, else what its bounds rest on where that is more than the weights.
    """

    way: str
    status: str  # proved | refuted | undecided | failed
    lower: float
    upper: float
    parameters: int
    seconds: float
    note: str

    def __str__(self) -> str:
        if self.status == "failed":
            return f"{self.way}: {self.note} ({self.seconds:.1f} s)"
        bound = f"sup|T - f| in [{outward(self.lower, up=False)}, {outward(self.upper, up=True)}]"
        size = number_of(self.parameters, "parameters")
        parts = filter(None, (self.status, bound, self.note, size))
        return f"{self.way}: {', '.join(parts)} ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Approximation:
    """A one-layer Transformer and what is known of its distance to f.

    ``target`` is None after loading a proof whose function was not recorded. The certificate speaks of exactly these
    weights, executed in the format they are stored in, or of real arithmetic: both are checked here.
    ``wanted_tokens`` is set when a budget ended the construction before eps was reached: the predicted number of memory
    tokens that would do. ``history`` lists what was tried, in order. ``unreachable`` says why no layer reaches eps,
    where that is known.
    """

    model: OneLayerTransformer
    certificate: Certificate
    target: Target | None = None
    wanted_tokens: int | None = None
    history: tuple[Attempt, ...] = ()
    unreachable: str = ""
    # Of sup|dT/dx_i - df/dx_i|, where it was asked for.
    gradient: Certificate | None = None

    def __post_init__(self) -> None:
        # A result is believed as it stands, so what does not belong together is refused when it is put together.
        if self.gradient is not None and self.gradient.weights_sha256 != self.certificate.weights_sha256:
            raise OnelayerError("the two certificates were made for other weights; certify the model again")
        self.need_certified()
        executed = format_of(self.model.dtype).execution
        claimed = self.certificate.arithmetic
        if claimed not in (REAL, executed):
            raise OnelayerError(
                f"the certificate speaks of {claimed}, the weights are stored for {executed}; "
                "convert the model first and certify it then"
            )

    def need_certified(self) -> None:
        """OnelayerError unless the model has the weights that were certified, number by number and in their format.

        Nor may code stand in the place of its own, as a hook does.
        A module can be changed in place: ``model.float()`` does, and so does an optimiser. Whatever states the bound of
        the layer or guards its domain asks first.
        """
        if complaint := self._changed():
            raise OnelayerError(complaint)

    def _changed(self) -> str:
        """Why the model is not the one that was certified; nothing where it is."""
        if weights_sha256(self.model) != self.certificate.weights_sha256:
            return "the certificate was made for other weights than the model has; certify the model again"
        if not stands_as_built(self.model):
            return "the model has hooks, or code in place of its own; certify it as it is, and save that certificate"
        return ""

    @property
    def box(self) -> Box:
        """The domain on which the error is claimed."""
        return self.certificate.domain

    @door
    def __call__(self, x: Any, *, guard: str | bool | None = WARN) -> Any:
        """T at points of any kind of array; a point outside the certified domain warns once, or as ``guard`` says."""
        if guard == WARN:
            self.need_certified()
            return self._warning(x)
        return self.guarded(guard)(x)

    @cached_property
    def _warning(self) -> Guarded:
        # Kept, because it remembers that it has warned.
        return self.guarded(WARN)

    def outcome(self) -> str:
        """Whether eps was reached, in words; where not, what is known, what was tried and what would probably do."""
        self.need_certified()
        certificate = self.certificate
        condition = "".join(f", {text}" for text in (certificate.where, certificate.condition) if text)
        high = outward(certificate.upper, up=True, limit=certificate.eps if certificate.proved else None)
        if certificate.proved:
            return f"{self._reached()}: sup|T - f| <= {high}{condition}"
        seen = outward(certificate.lower, up=False)
        kind = "bound" if certificate.condition else "proved bound"
        known = f"best {kind} {high}{condition}, an error of {seen} was seen"
        tried = [f"tried {attempt}" for attempt in self.history]
        if certificate.status == "estimated":
            return "\n".join([f"estimated, not proved: {known}", *tried, "declare how fast f changes for a proof"])
        lines = [f"not reached in this budget: {known}", *tried, self._remedy()]
        return "\n".join(lines)

    def _reached(self) -> str:
        """What is, where the values are proved: slopes that were asked for too may be open."""
        if self.gradient is None or self.gradient.proved:
            return "reached"
        return f"reached for values alone, not for slopes ({self.gradient.sentence})"

    def _remedy(self) -> str:
        """Why eps was not reached, and what would probably reach it."""
        if self.unreachable:
            return f"{self.unreachable}: no layer, which is continuous, comes within eps"
        if self._lacks_tokens:
            reason = f"eps needs about {self.wanted_tokens:,} tokens"
        elif self.certificate.status == "undecided":
            reason = "the proof ran out of time or boxes"
        else:
            reason = "the fit ran out of time"
        options = []
        for name, value in self.advice().items():
            flag = name.replace("_", "-")
            options.append(f"{name}={value:,} (--{flag})")
        return f"{reason}; would probably do: {', '.join(options)}"

    def advice(self) -> dict[str, int]:
        """Arguments of ``approximate`` with which eps would probably be reached; none where it is or cannot be.

        benchmarks/advice.py counts how often that is so.
        """
        if self.certificate.status in ("proved", "estimated") or self.unreachable or self.certificate.eps is None:
            return {}
        # One way alone keeps no history; its certificate knows at least how long the proof took.
        spent = sum(attempt.seconds for attempt in self.history) or self.certificate.seconds
        longer = math.ceil(LONGER * spent)
        found = {"max_seconds": max(LEAST_ADVICE, longer)}
        if self._lacks_tokens and self.wanted_tokens is not None:
            # Twice what was predicted, since the prediction is an extrapolation.
            found["max_tokens"] = 2 * self.wanted_tokens
        return found

    @property
    def _lacks_tokens(self) -> bool:
        if self.wanted_tokens is None:
            return False
        return self.wanted_tokens > self.size()["tokens"]

    def size(self) -> dict[str, int]:
        """Heads, tokens, hidden units and parameters of the plain layer."""
        return self.model.size()

    @door
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, certificate.json, boxes.bin and function.txt into ``folder``; returns it.

        A claim about slopes goes into its folder ``gradient``, as a claim of its own about the same function.

        Everything is written beside the folder first. A new folder then appears at once. Into an existing one the files
        are moved one by one, the certificate last: at any moment the folder is the old proof, the new one, or refused.
        """
        self.need_certified()
        # Values first: slopes without them would be a claim about a layer that is not there.
        path = written(as_path(folder), self.model, self.certificate)
        beside = path / GRADIENT
        if self.gradient is not None:
            self.gradient.save(beside)
        elif (beside / CERTIFICATE).is_file():
            # A claim about the slopes of the layer that lay here before.
            shutil.rmtree(beside)
        return path

    @door
    def draw(self, path: str | os.PathLike[str] | None = None, *, f: Any = None) -> Any:
        """The main picture as a matplotlib figure; with a path it is also written there as PNG, SVG or PDF.

        ``f`` is needed only for a loaded proof whose function was not recorded.
        """
        self.need_certified()
        return late("pictures.drawing", "drawn")(self, path, f=f)

    @door
    def explain(self, **options: Any) -> Any:
        """What every head, memory token and hidden unit is for; options are those of ``onelayer.explain``."""
        return late("pictures.explanation", "explain")(self, **options)

    @door
    def check(self, **options: Any) -> Any:
        """Re-prove the certificate independently, from the files as they would be saved.

        The files lie in a temporary folder meanwhile; options are those of ``onelayer.check``. Where slopes are claimed
        too they are checked after the values, and the report is that of the first claim that is not accepted.
        """
        check = late("checker.check", "check")
        with tempfile.TemporaryDirectory(prefix="onelayer-") as folder:
            saved = self.save(Path(folder) / "result")
            report = check(saved, **options)
            if self.gradient is None or not report.ok:
                return report
            return check(saved / GRADIENT, **options)

    @door
    def guarded(self, guard: str | bool | None = RAISE) -> Guarded:
        """The model as a module that warns, raises (also: True) or clamps outside the certified domain.

        The model itself stays as it is: a layer knows no domain.
        """
        self.need_certified()
        return Guarded(self.model, self.box, guard)

    @door
    def export(self, to: str, path: str | os.PathLike[str], **options: Any) -> Any:
        """Write the layer as "c", "onnx", "torch", "hf" or "lens", or its certificate as "coq"; run and compare it.

        Options are those of ``onelayer.export.export``.
        """
        return late("export.exporter", "export")(self, to=to, out=path, **options)

    @door
    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Check independently, then write one page to sign, as .html or, where Chromium is found, .pdf.

        Options: ``title``, ``units`` by input, ``max_seconds`` of the check.
        """
        written: Path = late("report.page", "write_report")(self, path, **options)
        return written

    @door
    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """One page with the live view: drag a point and watch attention, values, hidden units and T(x) move."""
        self.need_certified()
        written: Path = late("pictures.live_page", "to_html")(self, path, title=title)
        return written

    def _repr_html_(self) -> str:
        rows = [
            ("claim", self.certificate.sentence),
            ("f", self.certificate.short_function),
            ("domain", repr(self.box)),
            ("arithmetic", self.certificate.executed),
            ("layer", counted(self.size())),
        ]
        if self.gradient is not None:
            rows.insert(1, (f"slopes, {self.gradient.status}", self.gradient.sentence))
        if changed := self._changed():
            rows.insert(0, ("NOT this model", changed))
        if self.wanted_tokens is not None:
            rows.append(("eps needs", f"about {self.wanted_tokens:,} tokens"))
        more = folded("certificate", self.certificate.to_json())
        return card("Approximation", rows, self.certificate.status, more)

    def __repr__(self) -> str:
        known = self._changed() or self.certificate
        return f"Approximation({counted(self.size(), ('heads', 'tokens'))}, {known})"


@door
@pinned()
def load(folder: str | os.PathLike[str]) -> Approximation:
    """The approximation saved in ``folder``: weights, certificate and boxes are checked against each other.

    What is loaded is a claim; ``check`` proves it anew from the files.
    """
    folder = as_path(folder)
    made = _loaded(folder)
    try:
        return replace(made, gradient=_gradient(folder, made.model, made.certificate))
    except FileError:
        raise
    except OnelayerError as error:
        raise FileError(f"{folder}: {error}") from error


def _loaded(folder: str | os.PathLike[str]) -> Approximation:
    """The layer and the claim about its values."""
    certificate = read_proof(Path(folder))
    # Claims about networks and slopes have files of the same names.
    if certificate.about or is_network(folder):
        raise FileError(f"{folder} holds a claim about a network; read it with ol.load_claim, or check and report it")
    model = load_model(folder)
    try:
        target = _target(certificate, model)
        _fits(certificate, model, target)
        return Approximation(model, certificate, target)
    except FileError:
        raise
    except OnelayerError as error:
        raise FileError(f"{folder}: {error}") from error


def _target(certificate: Certificate, model: OneLayerTransformer) -> Target | None:
    """The function that the claim is about, where it was recorded or an argument names it."""
    if certificate.recorded:
        text = certificate.function
        # What was saved may be longer than what a user may type: its own length is limit enough.
        formula = parse(text, certificate.domain.dim, limit=len(text))
        shaped = formula.shaped(model.config.input_shape, model.config.output_shape)
        return as_target(shaped, certificate.domain)
    if ARGUMENT in certificate.attachments:
        return _argued_target(from_text(certificate.attachments[ARGUMENT]))
    return None


def _gradient(folder: Path, model: OneLayerTransformer, certificate: Certificate) -> Certificate | None:
    """The claim about slopes beside a result, if there is one: it must speak of the same layer on the same domain."""
    beside = folder / GRADIENT
    if not (beside / CERTIFICATE).is_file():
        return None
    claimed = load_claim(beside)
    found = claimed.certificate
    same_function = found.function == certificate.function
    same_domain = found.domain == certificate.domain
    stated = found.about == SLOPES and same_function and same_domain
    # The layer, recorded again, must be that network to the last bit: no sample of points would see a narrow spike.
    if not stated or not _is_recording(claimed.model, model, certificate.shape):
        raise FileError(f"{beside} does not speak of the slopes of this layer and function on this domain")
    return replace(found, weights_sha256=certificate.weights_sha256, models=(Kept(model, state_of(model)),))


def _is_recording(network: Any, model: OneLayerTransformer, shape: tuple[int, ...]) -> bool:
    """Whether a network is what recording the layer gives: the same steps and the same numbers."""
    if not isinstance(network, RecordedNetwork):
        return False
    recorded = record(model, shape)
    return network_sha256(recorded) == network_sha256(network)


def _fits(certificate: Certificate, model: OneLayerTransformer, target: Target | None) -> None:
    """Domain, function and table have the shapes of the model."""
    inputs = model.config.input_shape
    outputs = model.config.output_shape
    shapes = [certificate.shape]
    if target is not None:
        shapes.append(tuple(target.input_shape))
    if any(shape != inputs for shape in shapes):
        raise FileError(f"the model takes points of shape {inputs}, its certificate speaks of {shapes}")
    if TABLE in certificate.attachments:
        x, y = read_table(certificate.attachments[TABLE])
        if x.shape[1:] != inputs or y.shape[1:] != outputs:
            raise FileError(f"the rows of {TABLE} do not have the shapes {inputs} and {outputs} of the model")


def _argued_target(argument: Argument) -> Target | None:
    """The function that an argument names."""
    if isinstance(argument, OrderStatistics):
        return order_statistics(argument.length, argument.weights)
    return None
