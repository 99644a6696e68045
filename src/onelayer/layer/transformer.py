"""OneLayerTransformer: one multi-head attention layer, one feed-forward network, one linear read-out; nothing more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.card import card, counted, number_of
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.formats import spelled
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.heads import asking, attended, weights_of
from onelayer.layer.memory import Memory, PlainMemory
from onelayer.layer.weights import NamedWeights, Weights, weight_shapes
from onelayer.narrow import ACCUMULATORS, held, widened
from onelayer.points import need_tensor, points_of

NORM_EPS = 1e-5  # torch's own default
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
    @door
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
        # The stream carries vec(X), then the output: as wide as the wider of the two.
        needed = max(math.prod(input_shape), math.prod(output_shape))
        config = Config(
            layout="packed",
            input_shape=tuple(input_shape),
            output_shape=tuple(output_shape),
            d_model=d_model or needed,
            heads=tuple(item.shape for item in memory),
            **options,
        )
        model = cls(config, memory, dtype=dtype, seed=seed)
        model.set_weights(weights or {})
        return model

    @classmethod
    @door
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
        per_position = tuple(output_shape[:1]) == tuple(input_shape[:1])
        options.setdefault("readout", "each" if per_position else "mean")
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
        need_tensor(x)
        batch = self._batch(x)
        if tuple(x.shape[len(batch) :]) != config.input_shape:
            raise OnelayerError(f"input of shape {tuple(x.shape)} does not end with {config.input_shape}")
        if not x.dtype.is_floating_point:
            raise OnelayerError(f"input must be floating point, got {x.dtype}")
        # A compiler plans memory by itself, and would unroll the loop over chunks.
        if not isinstance(x, Tensor) or torch.compiler.is_compiling():
            return self._evaluate(x, batch)
        budget = CHUNK if x.device.type == "cpu" else ACCELERATOR_CHUNK
        count = math.prod(batch)
        step = max(1, budget // self._cost())
        if count <= step:
            return self._evaluate(x, batch)
        flat = x.reshape(count, *config.input_shape)  # (B, *input_shape)
        chunks = torch.split(flat, step)
        parts = [self._evaluate(chunk, chunk.shape[:1]) for chunk in chunks]
        return torch.cat(parts).reshape((*batch, *config.output_shape))

    def _batch(self, x: Any) -> Any:
        """The batch shape of points (..., *input_shape)."""
        axes = len(x.shape) - len(self.config.input_shape)
        return x.shape[:axes]

    def _on_arrays(self, x: Any) -> Any:
        """Points as numbers outside torch, in the format of the weights; the values as a NumPy array."""
        points = torch.as_tensor(points_of(x), dtype=self.dtype, device=self.device)
        with torch.no_grad():
            values = self(points)
        # NumPy has no bfloat16, and to widen is exact.
        return widened(values).cpu().numpy()

    def _evaluate(self, x: Tensor, batch: Sequence[int]) -> Tensor:
        config = self.config
        tokens = x.reshape(*batch, config.rows, config.token_width)
        e = self.embed(tokens)  # (..., N, d_model)
        r = self.stream(e)
        y = self._feed_forward(r) if config.hidden else r
        # Positions are chosen before the last product, which is then taken once.
        if config.readout == "mean":
            total = widened(y).sum(-2)
            y = held(total * (1 / config.length), y)  # (..., d_model)
        elif config.readout != "each":
            position = 0 if config.readout == "first" else config.length - 1
            y = y[..., position, :]
        out = self.affine(y, "R")
        return out.reshape((*batch, *config.output_shape))

    def embed(self, x: Tensor) -> Tensor:
        """(..., N, token_width) -> (..., N, d_model).

        In the pieces layout (..., 1, D) -> (..., N, d_model): every token is an affine map of the whole input.
        """
        e = self.affine(self.ramped(x), "E")
        if self.config.pieces:
            batch = e.shape[:-2]  # of (..., 1, N d_model)
            e = e.reshape(*batch, self.config.length, self.config.d_model)
        if self.config.positions == "none":
            return e
        return _sum(e, self.cast("position", x))

    def ramped(self, x: Tensor) -> Tensor:
        """(..., N, token_width) -> (..., N, features): a piecewise embedding sees each number through its ramps."""
        if self.config.embedding != "piecewise":
            return x
        start = widened(self.cast("ramp_start", x))  # (token_width, G)
        slope = widened(self.cast("ramp_slope", x))
        beyond = widened(x).unsqueeze(-1) - start
        ramps = torch.clamp(beyond * slope, 0.0, 1.0)
        tokens = x.shape[:-1]
        return held(ramps, x).reshape(*tokens, self.config.features)

    def stream(self, e: Tensor) -> Tensor:
        """R, what the feed-forward network is added to, from the embedded tokens; both (..., N, d_model).

        One position of a layer of pieces, (..., 1, d_model).
        """
        seen = self._norm(e, "1") if self.config.norm == "pre" else e
        a = attended(self, seen)
        # To the tokens themselves, not to what a norm made of them for the heads.
        r = _sum(asking(self, e), a) if self.config.residual else a
        if self.config.norm == "post":
            return self._norm(r, "1")
        return r

    def preactivations(self, r: Tensor) -> Tensor:
        """What the ReLU units see of the stream R: (..., N, d_model) -> (..., N, hidden)."""
        seen = self._norm(r, "2") if self.config.norm == "pre" else r
        return self.affine(seen, "1")

    def finish(self, y: Tensor) -> Tensor:
        """Read-out of every position, after the last normalisation if any: (..., N, d_model) -> (..., N, width)."""
        # Without a feed-forward network there is no second sum to normalise.
        if self.config.norm == "post" and self.config.hidden:
            y = self._norm(y, "2")
        return self.affine(y, "R")

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
        normed = F.layer_norm(widened(x), (self.config.d_model,), gain, shift, NORM_EPS)
        return held(normed, x)

    def _cost(self) -> int:
        """Elements of the largest intermediate array per batch element."""
        config = self.config
        n = config.length
        own = n if config.token_attention else 0
        together = len(config.heads) if config.alike else 1
        per_token = [config.d_model, config.hidden, config.features]
        for shape in config.heads:
            if shape.memory == "grid" and config.attention == "softmax":
                # The weights of every axis, and the values after their first axis is contracted.
                contracted = shape.token_count // shape.tokens[0] * shape.d_v
                per_token.append(contracted + sum(shape.tokens) + own)
            else:
                per_token.append((shape.token_count + own) * together)
        return n * max(per_token)

    def attention_weights(self, x: Tensor) -> list[Tensor]:
        """Weights of every head, H x (..., N, S): first the N tokens of the sequence if they are attended to, then the
        memory tokens in row-major order. Rows sum to one."""
        config = self.config
        tokens = x.reshape(*self._batch(x), config.rows, config.token_width)
        e = self.embed(tokens)  # (..., N, d_model)
        e = self._norm(e, "1") if config.norm == "pre" else e
        return [weights_of(self, h, e) for h in range(len(config.heads))]

    def materialize(self) -> OneLayerTransformer:
        """The same function with every grid written out as plain memory tokens."""
        if self.dtype in ACCUMULATORS:
            kind = spelled(self.dtype)
            raise OnelayerError(
                f"a grid in {kind} has no plain form: sums of its keys are no {kind} numbers; "
                "write out model.float() instead"
            )
        heads: list[HeadShape] = []
        plain: list[Memory | None] = []
        for h, shape in enumerate(self.config.heads):
            memory = self.memory_of(h)
            written_out = None if memory is None else PlainMemory(*memory.plain_tokens())
            plain.append(written_out)
            heads.append(shape if written_out is None else written_out.shape)
        config = self.config.replace(heads=tuple(heads))
        model = OneLayerTransformer(config, plain, dtype=self.dtype).to(self.device)
        model.set_weights({name: self.own(name) for name in weight_shapes(config)})
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
