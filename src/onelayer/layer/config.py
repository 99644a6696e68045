"""The shape of a one-layer Transformer as plain data: what a file stores beside the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from onelayer.errors import OnelayerError

LAYOUTS = ("packed", "tokens", "pieces")
ATTENTIONS = ("softmax", "topk", "hardmax", "linear")
FEATURES = ("taylor", "elu")
EMBEDDINGS = ("linear", "piecewise")
POSITIONS = ("none", "one-hot", "sinusoidal", "learned")
NORMS = ("none", "pre", "post")
READOUTS = ("each", "mean", "first", "last")
MEMORIES = ("none", "plain", "grid")
MAX_AXES = 32  # as many as NumPy has allowed for long
MAX_HEADS = 2**20  # a million; more is a hostile file


@dataclass(frozen=True)
class HeadShape:
    """Widths of one head and the shape of its memory: ``grid`` (M_1, ..., M_r), ``plain`` (M,) or ``none`` ()."""

    d_k: int
    d_v: int
    memory: str = "none"
    tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _positive(d_k=self.d_k, d_v=self.d_v)
        _choice("memory", self.memory, MEMORIES)
        _sizes("tokens", self.tokens)
        axes = len(self.tokens)
        right = {"none": axes == 0, "plain": axes == 1, "grid": axes >= 1}
        if not right[self.memory]:
            raise OnelayerError(f"memory '{self.memory}' cannot have token shape {self.tokens}")

    @property
    def token_count(self) -> int:
        """Memory tokens M of the head in the plain form."""
        if self.memory != "none":
            return math.prod(self.tokens)
        return 0


@dataclass(frozen=True)
class Config:
    """Everything about a layer except its numbers. Frozen, checked at construction, and JSON-able.

    ``input_shape`` is (D,) or any event shape for the packed layout, (n, d) or (n,) for the tokens layout.
    ``output_shape`` may be () for one number. ``hidden`` = 0 means no feed-forward network. ``ramps`` counts the pieces
    of the piecewise-linear number embedding. ``top_k`` belongs to attention ``topk``; ``feature`` and ``order`` to
    ``linear``. ``pieces`` counts the tokens of the pieces layout, in which each token is an affine map of the whole
    input; it is 0, and not written to files, in the others.
    """

    layout: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    d_model: int
    heads: tuple[HeadShape, ...]
    hidden: int = 0
    residual: bool = False
    norm: str = "none"
    embedding: str = "linear"
    ramps: int = 0
    positions: str = "none"
    readout: str = "first"
    attention: str = "softmax"
    top_k: int = 0
    feature: str = "taylor"
    order: int = 2
    pieces: int = 0

    def __post_init__(self) -> None:
        _choice("layout", self.layout, LAYOUTS)
        _choice("norm", self.norm, NORMS)
        _choice("embedding", self.embedding, EMBEDDINGS)
        _choice("positions", self.positions, POSITIONS)
        _choice("readout", self.readout, READOUTS)
        _choice("attention", self.attention, ATTENTIONS)
        _choice("feature", self.feature, FEATURES)
        _sizes("input_shape", self.input_shape)
        _sizes("output_shape", self.output_shape)
        _positive(d_model=self.d_model)
        # Types by ``is``, since true and 1.0 from a file would pass for the number 1.
        if type(self.hidden) is not int or self.hidden < 0:
            raise OnelayerError(f"hidden must be a whole number >= 0, got {self.hidden!r}")
        if type(self.residual) is not bool:
            raise OnelayerError(f"residual must be true or false, got {self.residual!r}")
        if not 1 <= len(self.heads) <= MAX_HEADS:
            raise OnelayerError(f"a Transformer layer needs at least one head and at most {MAX_HEADS:,}")
        self._check_layout()
        self._check_options()

    def _check_options(self) -> None:
        if (self.embedding == "piecewise") != (self.ramps > 0):
            raise OnelayerError(f"embedding '{self.embedding}' does not go with ramps={self.ramps}")
        if (self.attention == "topk") != (self.top_k > 0):
            raise OnelayerError(f"attention '{self.attention}' does not go with top_k={self.top_k}")
        # 32 is far beyond use: features grow like d_k to the order.
        even = type(self.order) is int and self.order % 2 == 0
        if not even or not 0 < self.order <= 32:
            raise OnelayerError(
                f"order must be 2, 4, ..., 32 (an even Taylor polynomial is positive), got {self.order!r}"
            )

    def _check_layout(self) -> None:
        if type(self.pieces) is not int or (self.layout == "pieces") != (self.pieces > 0):
            raise OnelayerError(f"layout '{self.layout}' does not go with pieces={self.pieces!r}")
        if self.layout == "pieces" and self.embedding != "linear":
            raise OnelayerError("the tokens of a pieces layer are affine: use embedding 'linear'")
        if self.layout == "tokens" and len(self.input_shape) not in (1, 2):
            raise OnelayerError(f"a tokens layer needs input shape (n, d) or (n,), got {self.input_shape}")
        # The code takes the last ``length`` features of a token.
        if self.positions == "one-hot" and self.d_model < self.length:
            raise OnelayerError(f"one-hot positions need d_model >= {self.length}, got {self.d_model}")
        self._check_readout()

    def _check_readout(self) -> None:
        """Refuse positions to read that the layout does not have."""
        if self.layout == "packed":
            self._check_packed()
        elif self.layout == "pieces" and self.readout != "first":
            raise OnelayerError("a pieces layer is read at its query token: use readout 'first'")
        elif self.readout == "each" and self.output_shape[:1] != self.input_shape[:1]:
            raise OnelayerError(
                f"readout 'each' needs an output shape that starts with {self.length}, got {self.output_shape}"
            )

    def _check_packed(self) -> None:
        if any(head.memory == "none" for head in self.heads):
            raise OnelayerError("every head of a packed layer needs memory tokens: its query attends to nothing else")
        if self.readout == "each":
            raise OnelayerError("a packed layer has one position: use readout 'first'")

    @property
    def length(self) -> int:
        """Number of tokens N of the sequence (1 when packed)."""
        return self.pieces or self.rows

    @property
    def rows(self) -> int:
        """Rows in which the input arrives: its tokens, or one row that holds all of it."""
        if self.layout == "tokens":
            return self.input_shape[0]
        return 1

    @property
    def token_width(self) -> int:
        """Real numbers carried by one input token."""
        return math.prod(self.input_shape) // self.rows

    @property
    def features(self) -> int:
        """Width of what the embedding matrix multiplies."""
        return self.token_width * max(1, self.ramps)

    @property
    def readout_width(self) -> int:
        """Real numbers read out of one position."""
        width = math.prod(self.output_shape)
        if self.readout == "each":
            return width // self.length
        return width

    @property
    def token_attention(self) -> bool:
        """Whether tokens attend to tokens (and W^K, W^V exist)."""
        return self.layout != "packed"

    def key_columns(self, h: int) -> slice:
        """Columns of head h in W_Q and W_K, in which heads lie side by side."""
        start = sum(head.d_k for head in self.heads[:h])
        return slice(start, start + self.heads[h].d_k)

    def value_columns(self, h: int) -> slice:
        """Columns of head h in W_V, which are its rows in W_O."""
        start = sum(head.d_v for head in self.heads[:h])
        return slice(start, start + self.heads[h].d_v)

    @property
    def alike(self) -> bool:
        """Whether heads can be evaluated together; a single one is faster alone: its batches fold into one product."""
        first, *others = self.heads
        if not others or first.memory == "grid":
            return False
        return all(shape == first for shape in others)

    def replace(self, **changes: Any) -> Config:
        """The same configuration with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; ``from_dict`` inverts it."""
        found = asdict(self)
        # Files of the other layouts are older than this field, and their hashes stay.
        if not self.pieces:
            del found["pieces"]
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """Config from untrusted JSON data; anything unexpected is an OnelayerError of one line."""
        known = {field.name for field in fields(cls)}
        # A layer of another layout does not name its pieces.
        if not isinstance(data, Mapping) or {*data, "pieces"} != known:
            raise OnelayerError("configuration fields differ from those of this version")
        heads = data["heads"]
        if not isinstance(heads, list | tuple):
            raise OnelayerError("configuration field 'heads' must be a list")
        plain = dict(data)
        plain["heads"] = tuple(_head_from(head) for head in heads)
        for name in ("input_shape", "output_shape"):
            plain[name] = _tuple(name, data[name])
        # Files of the other layouts do not write it.
        plain.setdefault("pieces", 0)
        for name in ("ramps", "top_k", "pieces"):
            if type(plain[name]) is not int or plain[name] < 0:
                raise OnelayerError(f"configuration field '{name}' must be a whole number >= 0")
        return cls(**plain)


def _head_from(data: Any) -> HeadShape:
    if not isinstance(data, Mapping) or set(data) != {field.name for field in fields(HeadShape)}:
        raise OnelayerError("a head of the configuration must have d_k, d_v, memory and tokens")
    tokens = _tuple("tokens", data["tokens"])
    return HeadShape(data["d_k"], data["d_v"], data["memory"], tokens)


def _tuple(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise OnelayerError(f"configuration field '{name}' must be a list of whole numbers")
    return tuple(value)


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OnelayerError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _sizes(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_AXES:
        raise OnelayerError(f"{name} must have at most {MAX_AXES} axes, got {len(shape)}")
    if any(type(size) is not int or size < 1 for size in shape):
        raise OnelayerError(f"{name} must be whole numbers >= 1, got {shape!r}")


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise OnelayerError(f"{name} must be a whole number >= 1, got {size!r}")
