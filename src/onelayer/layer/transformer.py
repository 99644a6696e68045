"""OneLayerTransformer: one multi-head attention layer, one feed-forward network, one linear read-out; nothing more."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.card import card, counted, number_of
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.formats import spelled
from onelayer.layer.attention import Softmax, attention_kind, grid_average
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.memory import GridMemory, Memory, PlainMemory
from onelayer.layer.weights import NamedWeights, Weights, weight_shapes
from onelayer.narrow import ACCUMULATORS, held, widened

NORM_EPS = 1e-5  # torch's own default
WRITTEN_OUT = "its keys are sums, rounded when they are written out; certify model.materialize(), which holds them"
# Elements of the largest intermediate array of one evaluation chunk: 32 MiB in float64, about a processor cache.
CHUNK = 2**22
# An accelerator needs more work per launch: 2 GiB in float64.
ACCELERATOR_CHUNK = 2**28


class OneLayerTransformer(Weights):
    """The layer of the paper, eqs (1) and (5)-(8), with optional memory tokens.

        E = embed(X)                  tokens + positional encoding, (..., N, d_model)
        A = MHA(E; memory) W_O + b_O  logits q . k / sqrt(d_k)
        R = [E +] A
        Y = [R +] FFN(R)              FFN(R) = relu(R W_1 + b_1) W_2 + b_2
        out = readout(Y)              Y W_R + b_R

    ``norm`` "pre" normalises what MHA and FFN read, "post" what the two sums give. Tokens are rows and every matrix
    multiplies from the right, as in the paper; heads lie side by side in W_Q, W_K, W_V (d_model, sum d_k or d_v) and
    below one another in W_O (sum d_v, d_model). ``model(x)`` takes x (..., *input_shape) to (..., *output_shape) in the
    dtype of x: weights of another dtype are converted first, which is exact from float32 to float64. In float16 and
    bfloat16 affine maps, heads, norms and sums are computed in float32, and each result is rounded once.
    """

    @classmethod
    def packed(
        cls,
        input_shape: Sequence[int],
        output_shape: Sequence[int],
        memory: Sequence[Memory],
        *,
        d_model: int | None = None,
        weights: NamedWeights | None = None,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        **options: Any,
    ) -> OneLayerTransformer:
        """One query token carries vec(X); head h attends to ``memory[h]`` alone.

        ``weights`` replaces initial weights by name (W_E, b_E, W_Q, ...; lists are joined over the heads); the other
        ``options`` are fields of Config: hidden, residual, norm, attention, top_k, feature, order, embedding, ramps.
        """
        config = Config(
            layout="packed",
            input_shape=tuple(input_shape),
            output_shape=tuple(output_shape),
            d_model=d_model or max(math.prod(input_shape), math.prod(output_shape)),
            heads=tuple(item.shape for item in memory),
            **options,
        )
        model = cls(config, memory, dtype=dtype, seed=seed)
        model.set_weights(weights or {})
        return model

    @classmethod
    def tokens(
        cls,
        input_shape: Sequence[int],
        output_shape: Sequence[int],
        *,
        d_model: int,
        heads: int = 1,
        d_k: int | None = None,
        d_v: int | None = None,
        memory: Sequence[Memory | None] | None = None,
        weights: NamedWeights | None = None,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        **options: Any,
    ) -> OneLayerTransformer:
        """One token per row of X (n, d); tokens attend to tokens, and to ``memory[h]`` where given.

        Heads have width d_model / heads unless ``d_k`` and ``d_v`` say otherwise; read-out is per position when the
        output shape starts with n, else from the mean, unless ``readout`` says otherwise.
        """
        width = max(1, d_model // heads)
        memory = list(memory) if memory is not None else [None] * heads
        plain = HeadShape(d_k or width, d_v or width)
        options.setdefault("readout", "each" if tuple(output_shape[:1]) == tuple(input_shape[:1]) else "mean")
        config = Config(
            layout="tokens",
            input_shape=tuple(input_shape),
            output_shape=tuple(output_shape),
            d_model=d_model,
            heads=tuple(plain if item is None else item.shape for item in memory),
            **options,
        )
        model = cls(config, memory, dtype=dtype, seed=seed)
        model.set_weights(weights or {})
        return model

    def forward(self, x: Any) -> Any:
        """(..., *input_shape) -> (..., *output_shape).

        Large batches of tensors run in chunks, so memory stays bounded whatever the number of queries and tokens;
        anything else that speaks torch functions, such as a Taylor model, runs through the same lines in one piece.
        NumPy arrays and lists of numbers give a NumPy array.
        """
        config = self.config
        if isinstance(x, (np.ndarray, list, tuple)):
            return self._on_arrays(x)
        batch = x.shape[: len(x.shape) - len(config.input_shape)]
        if tuple(x.shape[len(batch) :]) != config.input_shape:
            raise OnelayerError(f"input of shape {tuple(x.shape)} does not end with {config.input_shape}")
        if not x.dtype.is_floating_point:
            raise OnelayerError(f"input must be floating point, got {x.dtype}")
        if not isinstance(x, Tensor) or torch.compiler.is_compiling():
            return self._evaluate(x, batch)
        budget = CHUNK if x.device.type == "cpu" else ACCELERATOR_CHUNK
        count = math.prod(batch)
        step = max(1, budget // self._cost())
        if count <= step:
            return self._evaluate(x, batch)
        flat = x.reshape(count, *config.input_shape)  # (B, *input_shape)
        parts = [self._evaluate(part, part.shape[:1]) for part in torch.split(flat, step)]
        return torch.cat(parts).reshape((*batch, *config.output_shape))

    def _on_arrays(self, x: Any) -> Any:
        """Points as numbers outside torch, in the format of the weights; the values as a NumPy array."""
        try:
            numbers = np.asarray(x, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise OnelayerError(f"points must be numbers of one regular shape, got {repr(x)[:60]}") from error
        points = torch.as_tensor(numbers, dtype=self.dtype, device=next(self.parameters()).device)
        with torch.no_grad():
            return widened(self(points)).cpu().numpy()  # NumPy has no bfloat16

    def _evaluate(self, x: Tensor, batch: Sequence[int]) -> Tensor:
        config = self.config
        e = self.embed(x.reshape(*batch, config.rows, config.token_width))  # (..., N, d_model)
        r = self.stream(e)
        y = self._feed_forward(r) if config.hidden else r
        if config.readout == "mean":
            y = held(widened(y).sum(-2) * (1 / config.length), y)  # (..., d_model)
        elif config.readout != "each":
            y = y[..., 0 if config.readout == "first" else config.length - 1, :]
        return self.affine(y, "R").reshape((*batch, *config.output_shape))

    def embed(self, x: Tensor) -> Tensor:
        """(..., N, token_width) -> (..., N, d_model).

        In the pieces layout (..., 1, D) -> (..., N, d_model): every token is an affine map of the whole input.
        """
        e = self.affine(self.ramped(x), "E")
        if self.config.pieces:
            e = e.reshape(*e.shape[:-2], self.config.length, self.config.d_model)  # from (..., 1, N d_model)
        if self.config.positions == "none":
            return e
        return _sum(e, self.cast("position", x))

    def ramped(self, x: Tensor) -> Tensor:
        """(..., N, token_width) -> (..., N, features): a piecewise embedding sees each number through its ramps."""
        if self.config.embedding != "piecewise":
            return x
        start, slope = self.cast("ramp_start", x), self.cast("ramp_slope", x)  # (token_width, G)
        ramps = torch.clamp((widened(x).unsqueeze(-1) - widened(start)) * widened(slope), 0.0, 1.0)
        return held(ramps, x).reshape(*x.shape[:-1], self.config.features)

    def stream(self, e: Tensor) -> Tensor:
        """R, what the feed-forward network is added to, from the embedded tokens; both (..., N, d_model).

        One position of a layer of pieces, (..., 1, d_model).
        """
        a = self._attend(self._norm(e, "1") if self.config.norm == "pre" else e)
        r = _sum(self._asking(e), a) if self.config.residual else a
        if self.config.norm == "post":
            return self._norm(r, "1")
        return r

    def _asking(self, e: Tensor) -> Tensor:
        """The positions that ask: all of them, or of a layer of pieces the first, which alone is read."""
        if self.config.pieces:
            return e[..., :1, :]
        return e

    def preactivations(self, r: Tensor) -> Tensor:
        """What the ReLU units see of the stream R: (..., N, d_model) -> (..., N, hidden)."""
        return self.affine(self._norm(r, "2") if self.config.norm == "pre" else r, "1")

    def finish(self, y: Tensor) -> Tensor:
        """Read-out of every position, after the last normalisation if any: (..., N, d_model) -> (..., N, width)."""
        return self.affine(self._norm(y, "2") if self.config.norm == "post" and self.config.hidden else y, "R")

    def _attend(self, e: Tensor) -> Tensor:
        """MHA(E; memory) W_O + b_O: all heads at once when alike, else one by one."""
        if e.dtype in ACCUMULATORS:
            return self.affine(torch.cat([self._head(h, e) for h in range(len(self.config.heads))], dim=-1), "O")
        if self.alike():
            return self._attend_alike(e)
        return self._attend_each(e)

    def alike(self) -> bool:
        """Whether heads can be evaluated together; a single one is faster alone: its batches fold into one product."""
        first, *others = self.config.heads
        return len(others) > 0 and first.memory != "grid" and all(shape == first for shape in others)

    def _attend_alike(self, e: Tensor) -> Tensor:
        shape = self.config.heads[0]
        count = len(self.config.heads)

        def split(u: Tensor, width: int) -> Tensor:
            return u.reshape(*u.shape[:-1], count, width).transpose(-3, -2)  # (..., H, N, width)

        query = split(self.affine(self._asking(e), "Q"), shape.d_k) * (1 / math.sqrt(shape.d_k))
        sources = []
        if self.config.token_attention:
            sources.append((split(self.affine(e, "K"), shape.d_k), split(self.affine(e, "V"), shape.d_v)))
        if shape.memory == "plain":
            items = [self._plain(h, e) for h in range(count)]
            sources.append((torch.stack([k for k, _ in items]), torch.stack([v for _, v in items])))  # (H, M, width)
        z = attention_kind(self.config).average(query, sources).transpose(-3, -2)  # (..., N, H, d_v)
        return self.affine(z.reshape(*z.shape[:-2], count * shape.d_v), "O")

    def _attend_each(self, e: Tensor) -> Tensor:
        """One head at a time: each keeps to the inputs that its query reads, which keeps Taylor models small."""
        w_o = self.cast("W_O", e)
        b_o = self.cast("b_O", e)
        rows = torch.split(w_o, [shape.d_v for shape in self.config.heads])
        parts = (F.linear(self._head(h, e), own.transpose(0, 1)) for h, own in enumerate(rows))  # (..., N, d_model)
        return reduce(operator.add, parts) + b_o

    def _head(self, h: int, e: Tensor) -> Tensor:
        """Z_h of eq (8), (..., N, d_v): logits, weights and average in one piece, rounded once in a narrow format."""
        query = self._query(h, e)
        sources = self._token_sources(h, e)
        memory = self.memory_of(h)
        kind = attention_kind(self.config)
        if isinstance(memory, GridMemory) and isinstance(kind, Softmax):
            axes = [_as(axis, e) for axis in memory.axes]
            return held(grid_average(query, axes, _as(memory.values, e), sources), e)
        if isinstance(memory, GridMemory) and not isinstance(e, Tensor):
            raise UnsupportedOperation("a grid without softmax, of enclosures", WRITTEN_OUT)
        if memory is not None:
            sources.append(self._plain(h, e))
        return held(kind.average(query, sources), e)

    def _query(self, h: int, e: Tensor) -> Tensor:
        shape = self.config.heads[h]
        start = sum(head.d_k for head in self.config.heads[:h])
        query = self.affine(self._asking(e), "Q", slice(start, start + shape.d_k))
        return widened(query) * (1 / math.sqrt(shape.d_k))

    def _token_sources(self, h: int, e: Tensor) -> list[tuple[Tensor, Tensor]]:
        if not self.config.token_attention:
            return []
        heads = self.config.heads
        k = sum(head.d_k for head in heads[:h])
        v = sum(head.d_v for head in heads[:h])
        keys = self.affine(e, "K", slice(k, k + heads[h].d_k))
        return [(widened(keys), widened(self.affine(e, "V", slice(v, v + heads[h].d_v))))]

    def _plain(self, h: int, e: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.memory_of(h)
        if memory is None:
            raise OnelayerError(f"head {h} has no memory")
        keys, values = memory.plain_tokens(e.dtype)
        return widened(keys), widened(values)

    def _feed_forward(self, r: Tensor) -> Tensor:
        """[R +] relu(R W_1 + b_1) W_2 + b_2, eq (1) twice, normalised before or after as configured."""
        y = self.affine(torch.relu(self.preactivations(r)), "2")
        if self.config.residual:
            y = _sum(r, y)
        if self.config.norm == "post":
            return self._norm(y, "2")
        return y

    def _norm(self, x: Tensor, which: str) -> Tensor:
        gain = widened(self.cast(f"gain_{which}", x))
        shift = widened(self.cast(f"shift_{which}", x))
        return held(F.layer_norm(widened(x), (self.config.d_model,), gain, shift, NORM_EPS), x)

    def _cost(self) -> int:
        """Elements of the largest intermediate array per batch element."""
        config = self.config
        n = config.length
        own = n if config.token_attention else 0
        sizes = [n * config.d_model, n * config.hidden, n * config.features]
        for shape in config.heads:
            if shape.memory == "grid" and config.attention == "softmax":
                sizes.append(n * (shape.token_count // shape.tokens[0] * shape.d_v + sum(shape.tokens) + own))
            else:
                sizes.append(n * (shape.token_count + own) * (len(config.heads) if self.alike() else 1))
        return max(sizes)

    def attention_weights(self, x: Tensor) -> list[Tensor]:
        """Weights of every head, H x (..., N, S): first the N tokens of the sequence if they are attended to, then the
        memory tokens in row-major order. Rows sum to one."""
        config = self.config
        batch = x.shape[: len(x.shape) - len(config.input_shape)]
        e = self.embed(x.reshape(*batch, config.rows, config.token_width))  # (..., N, d_model)
        e = self._norm(e, "1") if config.norm == "pre" else e
        rows = []
        for h in range(len(config.heads)):
            keys = [keys for keys, _ in self._token_sources(h, e)]
            if self.memory_of(h) is not None:
                keys.append(self._plain(h, e)[0])
            rows.append(attention_kind(config).weights(self._query(h, e), keys))
        return rows

    def materialize(self) -> OneLayerTransformer:
        """The same function with every grid written out as plain memory tokens."""
        if self.dtype in ACCUMULATORS:
            kind = spelled(self.dtype)
            raise OnelayerError(
                f"a grid in {kind} has no plain form: sums of its keys are no {kind} numbers; "
                "write out model.float() instead"
            )
        memories = [self.memory_of(h) for h in range(len(self.config.heads))]
        plain = [None if memory is None else PlainMemory(*memory.plain_tokens()) for memory in memories]
        heads = tuple(
            shape if item is None else item.shape for shape, item in zip(self.config.heads, plain, strict=True)
        )
        model = OneLayerTransformer(self.config.replace(heads=heads), plain, dtype=self.dtype).to(self.device)
        model.set_weights({name: self.own(name) for name in weight_shapes(self.config)})
        return model.requires_grad_(any(parameter.requires_grad for parameter in self.parameters()))

    def _repr_html_(self) -> str:
        config = self.config
        rows = [
            ("maps", f"{config.input_shape} to {config.output_shape or 'one number'}"),
            ("layer", f"{config.layout}, {config.attention} attention, width {config.d_model}"),
            ("size", counted(self.size())),
            ("format", spelled(self.dtype)),
        ]
        return card("OneLayerTransformer", rows)

    def __repr__(self) -> str:
        size = self.size()
        config = self.config
        parts = [
            f"{config.layout} {config.input_shape} -> {config.output_shape}",
            number_of(size["heads"], f"{config.attention} heads"),
            number_of(size["tokens"], "memory tokens"),
            f"width {config.d_model}",
            number_of(size["hidden_units"], "hidden units"),
            number_of(size["parameters"], "parameters"),
            spelled(self.dtype),
        ]
        return f"OneLayerTransformer({', '.join(parts)})"


def _sum(a: Tensor, b: Tensor) -> Tensor:
    """a + b, rounded once."""
    return held(widened(a) + widened(b), a)


def _as(stored: Tensor, x: Tensor) -> Tensor:
    """A stored tensor in the format that a head computes in for x."""
    return widened(stored if stored.dtype == x.dtype else stored.to(x.dtype))
