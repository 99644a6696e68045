"""distill: a teacher in, one wide layer out; with a proof on a box, or with measured fidelity on data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.door import door
from onelayer.errors import OnelayerError, told
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer, observing, observing_all
from onelayer.result import Approximation
from onelayer.training.encoder import PAD, SentenceEncoder, SentenceStudent
from onelayer.training.examples import TableSource
from onelayer.training.fidelity import Fidelity, fidelity
from onelayer.training.problem import TrainingProblem, digest
from onelayer.training.recipe import Recipe
from onelayer.training.scaling import no_scaling
from onelayer.training.start import fresh_layer
from onelayer.training.train import run_training, train
from onelayer.training.trained import Trained

CHUNK = 256  # texts per call of the teacher
TIMED_BATCH = 256  # texts per timed call
REPEATS = 7  # timed calls: their median does not see one that was disturbed
LEAST_ROWS = 20  # texts, below which nothing can be held out


@dataclass(frozen=True)
class Distilled:
    """One layer in place of a teacher.

    ``road`` is "certified" (``approximation`` holds the proof), "built" (its certificate is no proof) or "statistical"
    (``fidelity`` was measured on held-out data and nothing is proved). ``speed_up`` is the teacher's time over the
    student's on one batch, same machine and threads. Parameters of a table of embeddings that both share are counted
    for neither.
    """

    road: str
    model: nn.Module
    parameters: int
    teacher_parameters: int
    speed_up: float
    approximation: Approximation | None = None
    fidelity: Fidelity | None = None
    trained: Trained | None = None

    def __call__(self, x: Any) -> Any:
        return self.model(x)

    def __str__(self) -> str:
        known = self.approximation.certificate if self.approximation is not None else self.fidelity
        return (
            f"{self.road}: {known}; {self.parameters:,} parameters for {self.teacher_parameters:,}, "
            f"{self.speed_up:.3g} times as fast"
        )


@door
def distill(
    teacher: Any,
    domain: Box | None = None,
    eps: float | None = None,
    *,
    data: Any = None,
    test: float = 0.2,
    **options: Any,
) -> Distilled:
    """One wide layer in place of ``teacher``, by one of two roads.

    ``distill(teacher, box, eps)``: the teacher is a function on a box; the layer is built and sup|T - teacher| <= eps
    is proved. ``options`` are those of approximate.

    ``distill(teacher, data=X)``: the layer is trained on the teacher's outputs for X, and its fidelity is measured on
    the share ``test`` of X that training never saw. X is an array of inputs, or a list of texts for a SentenceEncoder.
    ``options`` are those of train, and for texts those of distill_tokens.
    """
    if (domain is None) == (data is None):
        raise OnelayerError("give a box and eps for a proof, or data= for a measured fidelity")
    if domain is not None and eps is None:
        raise OnelayerError("a certified distillation needs eps=, for example eps=1e-2")
    if not 0 < test < 1:
        raise OnelayerError(f"test must be a share between 0 and 1, got {test!r}")
    with observing_all(options) as watch:
        if domain is not None and eps is not None:
            return _certified(teacher, domain, eps, watch, options)
        if isinstance(teacher, SentenceEncoder):
            ids = teacher.tokenize(data, options.pop("length", 32))
            vectors = encoded(teacher, ids, watch)
            return distill_tokens(ids, vectors, teacher, test=test, observer=watch, **options)
        return _statistical(teacher, data, test, watch, options)


def _certified(teacher: Any, box: Box, eps: float, watch: Observer, options: Mapping[str, Any]) -> Distilled:
    result = approximate(teacher, box, eps, observer=watch, **options)
    # Formula text is no function to call; what was made of it is.
    recorded = result.target.function if result.target else teacher
    function = teacher if isinstance(teacher, nn.Module) else recorded
    x = box.sample(TIMED_BATCH)
    speed_up = seconds(function, x.to(_dtype(teacher)), watch) / seconds(result.model, x, watch)
    # A certificate that ended refuted, undecided or by an estimate certifies nothing.
    road = "certified" if result.certificate.proved else "built"
    return Distilled(road, result.model, result.size()["parameters"], _count(teacher), speed_up, approximation=result)


def _statistical(teacher: Any, data: Any, test: float, watch: Observer, options: Mapping[str, Any]) -> Distilled:
    if not callable(teacher):
        raise OnelayerError(f"a teacher is a module or a function, not {type(teacher).__name__}")
    x = _inputs(data)
    x = x.to(_dtype(teacher)) if x.is_floating_point() else x
    y = encoded(teacher, x, watch)
    seen, held = split(len(x), test, int(options.get("seed", 0)))
    examples = (x[seen].double(), y[seen].double())
    held_out = (x[held].double(), y[held].double())
    trained = train(examples, test=held_out, observer=watch, **options)
    dtype = next(trained.model.parameters()).dtype
    inputs = x[held].to(dtype)
    with torch.no_grad():
        student = trained.model(inputs)
    teacher_seconds = seconds(teacher, x[held][:TIMED_BATCH], watch)
    speed_up = teacher_seconds / seconds(trained.model, inputs[:TIMED_BATCH], watch)
    found = fidelity(y[held], student)
    return Distilled(
        "statistical", trained.model, trained.parameters, _count(teacher), speed_up, fidelity=found, trained=trained
    )


def distill_tokens(
    ids: Tensor,
    outputs: Tensor,
    teacher: SentenceEncoder,
    *,
    test: float = 0.2,
    heads: int = 8,
    d_model: int = 400,
    hidden: int = 800,
    steps: int = 2000,
    batch: int = 128,
    lr: float = 1e-3,
    weight_decay: float = 0.01,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint: str | None = None,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Distilled:
    """Train one pre-norm layer over the teacher's word embeddings to point where ``outputs`` (B, d) point.

    ``ids`` (B, n) are the tokens of the texts and ``outputs`` the teacher's vectors for them, computed before, so that
    a machine without the teacher's libraries can train. The loss is one minus the cosine. A layer at least as wide as a
    token starts from a linear map that is built (start_linear), a narrower one from random weights.
    """
    if len(ids) != len(outputs) or len(ids) < LEAST_ROWS:
        raise OnelayerError(f"a distillation needs one output per text and at least {LEAST_ROWS} texts, got {len(ids)}")
    recipe = Recipe("adamw", lr, "cosine", steps, batch, 0, weight_decay, "cosine", seed=seed, dtype="float32")
    seen, held = split(len(ids), test, seed)
    width = teacher.table.shape[1] + 1
    shape = (ids.shape[1], width)
    layer = fresh_layer(
        shape, (outputs.shape[1],), heads=heads, d_model=d_model, hidden=hidden, norm="pre", readout="mean",
        dtype=torch.float32, seed=seed,
    )  # fmt: skip
    if d_model >= width:
        _start_linear(layer, teacher.table.cpu(), ids[seen], outputs[seen])
    student = SentenceStudent(teacher.table.cpu(), layer)
    held_out = (ids[held], outputs[held].double())
    source = TableSource(ids[seen], outputs[seen].double(), held_out, seed)
    identity = f"{len(seen)} texts, sha256 {digest(ids, outputs)}"
    problem = TrainingProblem(source, recipe, tuple(ids.shape[1:]), tuple(outputs.shape[1:]), identity)
    watch = observing(observer, max_seconds)
    trained = run_training(problem, student, no_scaling(1, 1), device, checkpoint, watch)
    place = torch.device(device)
    guess = encoded(trained.model.to(place), ids[held].to(place))
    timed = ids[held][:TIMED_BATCH].to(place)
    speed_up = seconds(teacher.to(place), timed, watch) / seconds(trained.model, timed, watch)
    # The table of words is shared and counts for neither.
    blocks = _count(teacher) - teacher.table.numel()
    # Lengths were never taught: only where a vector points.
    pointing = torch.nn.functional.normalize(guess.double(), dim=-1)
    found = fidelity(outputs[held], pointing)
    size = layer.size()["parameters"]
    return Distilled("statistical", trained.model.cpu(), size, blocks, speed_up, fidelity=found, trained=trained)


def _start_linear(layer: OneLayerTransformer, table: Tensor, ids: Tensor, outputs: Tensor) -> None:
    """Start from what is built without training: the least-squares linear map of the mean word embedding.

    The residual stream carries the tokens to the read-out, attention and feed-forward network add nothing at first, and
    the 1 of every token carries the constant: the mean over positions points exactly where that linear map points.
    """
    means = []
    for part in torch.split(ids, CHUNK):
        present = (part != PAD).double()[..., None]  # (B, n, 1)
        words = present.sum(1)
        total = (table[part].double() * present).sum(1)
        # Padding counts for nothing, and the last number, which carries the constant, is 1.
        means.append(torch.cat([total, words], -1) / words)
    found = torch.linalg.lstsq(torch.cat(means), outputs.double().cpu()).solution  # (width, d)
    width = found.shape[0]
    d_model = layer.config.d_model
    read = torch.zeros(d_model, found.shape[1]).double()
    read[:width] = found
    zeros = {name: torch.zeros_like(layer.own(name)) for name in ("b_E", "position", "W_O", "W_2")}
    layer.set_weights({"W_E": torch.eye(width, d_model), "W_R": read, **zeros})


def split(count: int, test: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to learn from and rows held out, drawn by the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = max(1, round(test * count))
    return order[held:], order[:held]


@torch.no_grad()
def encoded(teacher: Callable[[Any], Any], x: Tensor, observer: Observer | None = None) -> Tensor:
    """The teacher's outputs, chunk by chunk, on the CPU; Stopped where the ``observer`` ends it before the last."""
    if isinstance(teacher, nn.Module):
        teacher.eval()
    parts = []
    for part in torch.split(x, CHUNK):
        if observer is not None:
            observer.check()
        parts.append(_taught(teacher, part))
    return torch.cat(parts)


def _inputs(data: Any) -> Tensor:
    """What a teacher is asked about, one input after another; OnelayerError for what are no numbers."""
    try:
        x = torch.as_tensor(data if isinstance(data, Tensor) else np.asarray(data)).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise OnelayerError(f"data must be numbers, one input after another: {told(error)}") from error
    if not x.ndim or not len(x) or x.is_complex():
        raise OnelayerError(f"data must be real numbers, one input after another, got the shape {tuple(x.shape)}")
    return x


def _taught(teacher: Callable[[Any], Any], x: Tensor) -> Tensor:
    """The outputs of a teacher for one batch, on the CPU; what fails in it is told in one line."""
    try:
        y = teacher(x)
    except OnelayerError:
        raise
    except Exception as error:
        raise OnelayerError(f"the teacher failed on a batch of shape {tuple(x.shape)}: {told(error)}") from error
    if not isinstance(y, Tensor) or y.is_complex() or y.is_meta:
        raise OnelayerError("a teacher must return one tensor per batch; wrap a model that returns more")
    if y.shape[:1] != x.shape[:1]:
        raise OnelayerError(f"a teacher must return a row per input, got {tuple(y.shape)} for {len(x)} inputs")
    return y.cpu()


@torch.no_grad()
def seconds(function: Callable[[Any], Any], x: Tensor, observer: Observer | None = None) -> float:
    """Median time of one call, after a warm-up; that of the warm-up where the ``observer`` has no time for more."""
    times: list[float] = []
    while len(times) <= REPEATS and not (times and observer is not None and observer.over):
        if x.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        function(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return max(float(np.median(times[1:] or times)), math.ulp(1.0))


def _dtype(teacher: Any) -> torch.dtype:
    """The format of a module's weights; float64 for anything else."""
    held = teacher.parameters() if isinstance(teacher, nn.Module) else ()
    return next((parameter.dtype for parameter in held if parameter.is_floating_point()), torch.float64)


def _count(teacher: Any) -> int:
    if isinstance(teacher, nn.Module):
        return sum(parameter.numel() for parameter in teacher.parameters())
    return 0
