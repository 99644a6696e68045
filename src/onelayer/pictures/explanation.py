"""explain: what every head, token and hidden unit is for, read off the weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.card import card, folded
from onelayer.disk import spelled_out
from onelayer.door import door
from onelayer.ground import pinned
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Argument, from_text
from onelayer.pictures.written import written_box
from onelayer.proof.files import ARGUMENT
from onelayer.result import Approximation
from onelayer.source import Exportable, source_of

ROWS = 24  # of a printed table
PEAK_POINTS = 2049  # along an axis, at which the largest weight of a token is looked for: finer than a page can show


@dataclass(frozen=True)
class ExplainedToken:
    """One token of an axis: its logit is slope * u + bias.

    ``region`` is the interval of u in which its weight is the largest of its axis, None if there is none; ``peak`` is
    the place in the range of u where its weight is largest, and ``weight`` how large it gets there.
    """

    slope: float
    bias: float
    region: tuple[float, float] | None
    peak: float
    weight: float


@dataclass(frozen=True)
class ExplainedAxis:
    """Tokens that all look along one direction: u = direction . x, which fills ``range`` on the box."""

    reads: str
    direction: tuple[float, ...]
    range: tuple[float, float]
    tokens: list[ExplainedToken]


@dataclass(frozen=True)
class ExplainedHead:
    """A head over a grid of tokens: ``values`` (M_1, ..., M_r, K) are what its tokens add to the K outputs.

    ``axes`` is empty for a head whose tokens do not look along few directions; ``peaks`` then holds, per token, the
    sampled point of the box where its weight is largest, with that weight.
    """

    head: int
    purpose: str
    axes: list[ExplainedAxis]
    values: list[Any]
    peaks: list[tuple[list[float], float]]


@dataclass(frozen=True)
class ExplainedUnit:
    """A hidden unit: relu(normal . x + offset) times ``coefficient`` when it reads x alone, else ``normal`` is None."""

    unit: int
    purpose: str
    normal: tuple[float, ...] | None
    offset: float
    coefficient: tuple[float, ...]


@dataclass(frozen=True)
class Explanation:
    """The named weights of a layer; str() is the table, ``to_json`` the whole."""

    box: Box
    output_shape: tuple[int, ...]
    heads: list[ExplainedHead]
    units: list[ExplainedUnit]
    matrix: list[list[float]]
    offset: list[float]
    algorithm: str = ""  # what the parts do together, where the proof names the construction

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        domain = {"lower": self.box.lower.tolist(), "upper": self.box.upper.tolist()}
        found: dict[str, Any] = {"domain": domain}
        if self.box.names:
            found["names"] = list(self.box.names)
        found["output_shape"] = list(self.output_shape)
        if self.algorithm:
            found["algorithm"] = self.algorithm
        found["heads"] = [asdict(head) for head in self.heads]
        found["hidden_units"] = [asdict(unit) for unit in self.units]
        found["affine"] = {"matrix": self.matrix, "offset": self.offset}
        return found

    def to_json(self, indent: int | None = None) -> str:
        """The explanation as JSON text."""
        return json.dumps(spelled_out(self.as_dict()), indent=indent, allow_nan=False)

    def _repr_html_(self) -> str:
        rows = [("algorithm", self.algorithm)] if self.algorithm else []
        rows += [(f"head {head.head}", head.purpose) for head in self.heads[:ROWS]]
        rows += [(f"unit {unit.unit}", unit.purpose) for unit in self.units[:ROWS]]
        return card("Explanation", rows, body=folded("every token", str(self)))

    def __str__(self) -> str:
        from onelayer.pictures.explanation_table import table

        return table(self)


@door
@pinned()
def explain(a: Exportable, *, box: Box | None = None, samples: int = 4096) -> Explanation:
    """What every head, memory token and hidden unit of ``a`` does on its box.

    Regions of axis tokens are computed: the weights of an axis are a softmax of lines, so the largest weight belongs to
    the upper envelope. Peaks of tokens without axes are taken from ``samples`` quasi-random points.
    """
    from onelayer.pictures.named import Parts, named_parts

    source = source_of(a, box)
    model = source.model
    domain = written_box(source.domain, getattr(a, "target", None))
    own = {name: tensor.detach().double() for name, tensor in model.state_dict().items()}
    config = model.config
    # Only then is a query a line in x, and what heads and units read is written in the inputs.
    packed = config.layout == "packed" and config.norm == "none" and config.embedding == "linear"
    heads = [_head(model, own, h, domain, packed, samples) for h in range(len(config.heads))]
    # The affine part: everything that reaches the read-out without a head or a unit.
    through = own["W_R"]
    offset = own["b_O"] @ through + own["b_R"]
    matrix = torch.zeros(config.features, config.readout_width).double()
    if config.residual and packed:
        matrix = own["W_E"] @ through
        offset = offset + own["b_E"] @ through
    if config.hidden:
        offset = offset + own["b_2"] @ through
    units = [_unit(model, own, j, domain, packed) for j in range(config.hidden)]
    parts = Parts("", heads, units)
    argument = argument_of(a)
    if argument is not None:
        parts = named_parts(argument, parts, model, domain)
    affine = (matrix.T.tolist(), offset.tolist())
    return Explanation(domain, config.output_shape, parts.heads, parts.units, *affine, parts.algorithm)


def argument_of(a: Exportable) -> Argument | None:
    """The construction that the proof of a result names, if it is a proof by lemma."""
    if not isinstance(a, Approximation):
        return None
    text = a.certificate.attachments.get(ARGUMENT)
    return None if text is None else from_text(text)


def _head(
    model: OneLayerTransformer, own: dict[str, Tensor], h: int, box: Box, packed: bool, samples: int
) -> ExplainedHead:
    config = model.config
    shape = model.config.heads[h]
    v = sum(head.d_v for head in config.heads[:h])
    to_outputs = own["W_O"][v : v + shape.d_v] @ own["W_R"]  # (d_v, K)
    memory = model.memory_of(h)
    values = []
    if memory is not None:
        values = (memory.values.detach().double() @ to_outputs).tolist()
    axes: list[ExplainedAxis] | None = None
    if packed and isinstance(memory, GridMemory):
        axes = _axes(model, own, h, memory, box)
    if axes is not None:
        read = enumerated([axis.reads for axis in axes])
        return ExplainedHead(h, f"looks up a table over {read}", axes, values, [])
    if memory is None:
        return ExplainedHead(h, "averages tokens of the sequence", [], values, [])
    purpose = "averages tokens of the sequence and of the memory"
    if config.layout == "packed":
        purpose = "looks up scattered memory tokens"
    return ExplainedHead(h, purpose, [], values, _peaks(model, h, box, samples))


def _axes(
    model: OneLayerTransformer, own: dict[str, Tensor], h: int, memory: GridMemory, box: Box
) -> list[ExplainedAxis] | None:
    """The axes of a grid head whose logits along each axis are lines in one direction; None if one is not."""
    config = model.config
    shape = model.config.heads[h]
    k = sum(head.d_k for head in config.heads[:h])
    columns = slice(k, k + shape.d_k)
    query = own["W_Q"][:, columns]
    w_q = own["W_E"] @ query / math.sqrt(shape.d_k)  # (D, d_k)
    b_q = (own["b_E"] @ query + own["b_Q"][columns]) / math.sqrt(shape.d_k)
    found = []
    for keys in memory.axes:
        slopes = keys.detach().double() @ w_q.T  # (M_a, D)
        biases = keys.detach().double() @ b_q
        lengths = slopes.square().sum(1)
        strongest = slopes[lengths.argmax()]
        size = strongest.abs().max()
        # The direction of all slopes, its largest weight one: x1 - 0.5 x2 reads better than 7.3 x1 - 3.65 x2.
        if size == 0:
            direction = torch.zeros_like(strongest)
            direction[0] = 1
        else:
            direction = strongest / strongest[strongest.abs().argmax()]
        along = slopes @ direction / direction.square().sum()
        aside = (slopes - along[:, None] * direction).abs().max()
        if aside > 1e-9 * size:  # more than the rounding of these products
            return None
        found.append(_axis(direction, along, biases, box))
    return found


def _axis(direction: Tensor, slopes: Tensor, biases: Tensor, box: Box) -> ExplainedAxis:
    low = box.lower.flatten()
    high = box.upper.flatten()
    # A linear function has its ends over a box at two corners.
    start = float(torch.where(direction > 0, low, high) @ direction)
    end = float(torch.where(direction > 0, high, low) @ direction)
    grid = torch.linspace(start, end, PEAK_POINTS, dtype=torch.float64)
    weights = torch.softmax(grid[:, None] * slopes + biases, dim=-1)  # (G, M)
    best = weights.max(dim=0)
    peaks = grid[best.indices]
    regions = _envelope(slopes.tolist(), biases.tolist(), start, end)
    columns = (slopes.tolist(), biases.tolist(), regions, peaks.tolist(), best.values.tolist())
    tokens = [ExplainedToken(*row) for row in zip(*columns, strict=True)]
    return ExplainedAxis(along(box, direction), tuple(direction.tolist()), (start, end), tokens)


def _envelope(slopes: list[float], biases: list[float], start: float, end: float) -> list[tuple[float, float] | None]:
    """Where each line slope * u + bias is the highest of all on [start, end]: an interval, or None."""
    regions: list[tuple[float, float] | None] = []
    lines = list(zip(slopes, biases, strict=True))
    for m, (slope, _) in enumerate(lines):
        # A line is above all flatter ones from their last crossing on, and above steeper ones up to the first.
        flatter = [_crossing(lines[m], line) for line in lines if line[0] < slope]
        steeper = [_crossing(lines[m], line) for line in lines if line[0] > slope]
        low = max([*flatter, start])
        high = min([*steeper, end])
        seen = low < high or (low == high and len(lines) == 1)
        shown = seen and not _hidden(lines, m)
        regions.append((low, high) if shown else None)
    return regions


def _hidden(lines: list[tuple[float, float]], m: int) -> bool:
    """Whether a parallel line is above line m, or equal to it and named before."""
    slope, bias = lines[m]
    parallel = [(-line[1], n) for n, line in enumerate(lines) if line[0] == slope]
    return min(parallel) < (-bias, m)


def _crossing(line: tuple[float, float], other: tuple[float, float]) -> float:
    """Where two lines (slope, bias) of different slopes meet."""
    return (other[1] - line[1]) / (line[0] - other[0])


def _peaks(model: OneLayerTransformer, h: int, box: Box, samples: int) -> list[tuple[list[float], float]]:
    points = box.sample(samples)
    with torch.no_grad():
        rows = model.attention_weights(points.to(model.dtype))[h].double()  # (S, N, tokens)
    # Tokens of the memory stand behind those of the sequence; of these every position has its own query.
    count = model.config.heads[h].token_count
    of_memory = rows[..., rows.shape[-1] - count :]
    best = of_memory.amax(1).max(dim=0)
    places = points[best.indices].flatten(1)
    return list(zip(places.tolist(), best.values.tolist(), strict=True))


def _unit(model: OneLayerTransformer, own: dict[str, Tensor], j: int, box: Box, packed: bool) -> ExplainedUnit:
    column = own["W_1"][:, j]
    coefficient = tuple((own["W_2"][j] @ own["W_R"]).tolist())
    bias = float(own["b_1"][j])
    hears_heads = bool((own["W_O"] @ column).any())
    alone = packed and model.config.residual and not hears_heads
    if not alone:
        return ExplainedUnit(j, "bends what the heads and the tokens add up to", None, bias, coefficient)
    normal = own["W_E"] @ column
    offset = bias + float((own["b_E"] + own["b_O"]) @ column)
    radius = float(normal.abs() @ (box.width.flatten() / 2))
    middle = float(normal @ box.center.flatten()) + offset
    reads = along(box, normal, offset)
    if abs(middle) < radius:
        purpose = f"kink along {reads} = 0"
    else:
        purpose = f"{'always' if middle > 0 else 'never'} active: {reads}"
    return ExplainedUnit(j, purpose, tuple(normal.tolist()), offset, coefficient)


def enumerated(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *others, last = parts
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def along(box: Box, direction: Tensor, offset: float = 0.0) -> str:
    """Text of direction . x + offset with the names and units of the box."""
    return linear_text(direction, offset, box.labels if box.names else ())


def linear_text(direction: Tensor, offset: float = 0.0, names: Sequence[str] = ()) -> str:
    """Text of direction . x + offset, for example "x1 - 0.5 x2", or with the names of the variables."""
    called = names or [f"x{i + 1}" for i in range(len(direction))]
    weighted = zip(direction.tolist(), called, strict=True)
    terms = [(weight, name) for weight, name in weighted if weight]
    if offset or not terms:
        terms.append((offset, ""))
    return signed_sum((weight, _term(abs(weight), name)) for weight, name in terms)


def signed_sum(terms: Iterable[tuple[float, str]]) -> str:
    """Terms, each with a number of its sign, as text: "-a + b"; the first has no plus and no space."""
    text = ""
    for number, term in terms:
        sign = "-" if number < 0 else "+"
        text += f" {sign} {term}" if text else f"{sign.strip('+')}{term}"
    return text or "0"


def _term(size: float, name: str) -> str:
    """A weight and its variable, or a number alone; a weight that would be shown as one is not written."""
    shown = f"{size:.4g}"
    if not name:
        return shown
    return name if shown == "1" else f"{shown} {name}"
