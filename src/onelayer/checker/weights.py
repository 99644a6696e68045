"""The checker's own reader of model.safetensors, written from docs/file-format.md; NumPy and safetensors only."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.checker.formats import BY_TAG, READ, WHOLE
from onelayer.disk import MAX_AXES, canonical_json, read_bounded, read_tensors
from onelayer.errors import FileError

MODEL = "model.safetensors"
MAX_BYTES = 2**32  # 4 GiB of weights
CHOICES = {
    "layout": ("packed", "tokens", "pieces"),
    "norm": ("none", "pre", "post"),
    "embedding": ("linear", "piecewise"),
    "positions": ("none", "one-hot", "sinusoidal", "learned"),
    "readout": ("each", "mean", "first", "last"),
    "attention": ("softmax", "topk", "hardmax", "linear"),
    "feature": ("taylor", "elu"),
}
COUNTS = ("d_model", "hidden", "ramps", "top_k", "order")
HEAD = {"d_k", "d_v", "memory", "tokens"}
SCALE = ".scale"
MOST_WHOLE = 127  # of an int8 weight, in steps of its scale
_TAGS = {np.dtype(kind): tag for tag, kind in READ.items()}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stored:
    """A model file: its configuration, its tensors as float64 (exactly), their stored type, and the digest of both."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    dtype: str
    sha256: str

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return _length(self.config)

    @property
    def token_width(self) -> int:
        """Numbers in one input token."""
        return int(math.prod(self.config["input_shape"])) // self.rows

    @property
    def rows(self) -> int:
        """Rows in which the input arrives."""
        return _rows(self.config)


def read_model(folder: Path) -> Stored:
    """The model of a saved folder, checked against its own configuration; FileError for anything irregular."""
    path = folder / MODEL
    metadata, raw = read_tensors(read_bounded(path, MAX_BYTES), str(path))
    # Alone: beside a second description the same bytes would be two models.
    if set(metadata) != {"onelayer"}:
        raise FileError(f"{path} has no readable description of its layer, or more than that")
    text = metadata["onelayer"]
    config = _config(path, text)
    shapes = expected_shapes(config)
    tags = {name: _tag(value) for name, value in raw.items()}
    whole = {name for name, tag in tags.items() if tag == WHOLE}
    if whole:
        shapes = _with_scales(path, shapes, whole)
    _check_shapes(path, raw, shapes)
    kind = _common_kind(path, tags, whole)
    digest = _digest(text, raw, tags)
    for name in sorted(whole):
        _need_scales(path, name, raw[name], raw[name + SCALE])
    return Stored(config, _numbers(raw, tags), kind, digest)


def _tag(value: Any) -> str:
    """How a tensor is stored; nothing where it is no format of weights."""
    return _TAGS.get(value.dtype.newbyteorder("="), "")


def _check_shapes(path: Path, raw: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse tensors other than those that the configuration prescribes."""
    found = {name: tuple(value.shape) for name, value in raw.items()}
    if found != shapes:
        names = {*found, *shapes}
        odd = sorted(name for name in names if found.get(name) != shapes.get(name))
        raise FileError(f"{path}: tensor {odd[0]} does not have the shape that the configuration prescribes")


def _common_kind(path: Path, tags: dict[str, str], whole: set[str]) -> str:
    """The one type in which all weights are stored that are not whole; float32 beside whole ones."""
    kinds = {tag for name, tag in tags.items() if name not in whole}
    if len(kinds) != 1 or not kinds <= set(BY_TAG) or (whole and kinds != {"F32"}):
        raise FileError(f"{path}: weights must be all {' or all '.join(BY_TAG)}")
    return kinds.pop()


def _with_scales(path: Path, shapes: dict[str, tuple[int, ...]], whole: set[str]) -> dict[str, tuple[int, ...]]:
    """Every matrix of an int8 layer is whole, and has a scale for each last index beside it."""
    matrices = {name for name, shape in shapes.items() if len(shape) >= 2}
    if whole != matrices:
        raise FileError(f"{path}: either every matrix is {WHOLE}, or none")
    scales = {name + SCALE: shapes[name][-1:] for name in matrices}
    return shapes | scales


def _need_scales(path: Path, name: str, whole: NDArray[Any], scales: NDArray[Any]) -> None:
    """Each scale is the one that the format gives to its column, and each weight the exact product, as in float32.

    A product that is no float32 number is no weight: zeros hide infinite ones in real arithmetic, but not in torch.
    """
    columns = whole.reshape(-1, whole.shape[-1]).astype(np.float64) * scales.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = np.array_equal(columns.astype(np.float32), columns)
    if not (exact and np.array_equal(column_scales(columns), scales)):
        raise FileError(f"{path}: the scales of int8 weight {name} are not those of its columns")


def column_scales(columns: Array) -> Array:
    """The largest power of two that divides a column where 127 times it is enough, else 1/127 of its largest entry."""
    mantissas, exponents = np.frexp(np.where(columns == 0, 1.0, columns))
    bits = np.ldexp(mantissas, 53).astype(np.int64)
    # bits & -bits is the lowest bit that is set.
    powers = np.ldexp((bits & -bits).astype(np.float64), exponents - 53)
    power = np.where(columns == 0, np.inf, powers).min(0)
    largest = np.abs(columns).max(0)
    found = np.where(largest <= MOST_WHOLE * power, power, (largest / MOST_WHOLE).astype(np.float32))
    return np.where(largest == 0, 1.0, found)


def _numbers(raw: dict[str, Any], tags: dict[str, str]) -> dict[str, Array]:
    """The weights as float64 numbers, exactly; whole numbers times their scales as float32 computes them."""
    found: dict[str, Array] = {}
    for name, value in raw.items():
        if tags[name] == WHOLE:
            value = value.astype(np.float32) * raw[name + SCALE].astype(np.float32)
        elif tags[name] == "BF16":
            value = (value.astype(np.uint32) << 16).view(np.float32)
        # A scale has done its work; what merely ends like one is a weight.
        scaled = name.endswith(SCALE) and tags.get(name.removesuffix(SCALE)) == WHOLE
        if not scaled:
            found[name] = value.astype(np.float64)
    return found


def _digest(text: str, raw: dict[str, Any], tags: dict[str, str]) -> str:
    digest = hashlib.sha256(f"{text}\n".encode())
    for name, value in sorted(raw.items()):
        shape = ",".join(map(str, value.shape))
        digest.update(f"{name} {tags[name]} {shape}\n".encode())
        # Little-endian, whatever the machine is.
        digest.update(value.astype(value.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _config(path: Path, text: str) -> dict[str, Any]:
    document = canonical_json(text, f"the description in {path}")
    if not isinstance(document, dict) or set(document) != {"config", "format", "version"}:
        raise FileError(f"{path} has no readable description of its layer")
    if document["format"] != "onelayer model" or type(document["version"]) is not int or document["version"] != 1:
        raise FileError(f"{path} is of another format version than 1")
    try:
        config: dict[str, Any] = document["config"]
        sound = _sound(config)
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} has an unreadable configuration") from error
    if not sound:
        raise FileError(f"{path} has a configuration outside the file format")
    return config


def _sound(config: dict[str, Any]) -> bool:
    """Whether every field has a value that docs/file-format.md allows; the later rules need the earlier ones."""
    return _typed(config) and _consistent(config) and _sound_heads(config)


def _typed(config: dict[str, Any]) -> bool:
    """Every field is there and has a value of its kind."""
    if set(config) - {"pieces"} != {*CHOICES, *COUNTS, "input_shape", "output_shape", "heads", "residual"}:
        return False
    chosen = all(config[name] in allowed for name, allowed in CHOICES.items())
    # type and not isinstance: true is an int, and no count.
    counted = all(type(config[name]) is int and config[name] >= 0 for name in COUNTS)
    shaped = all(_sizes(config[name]) for name in ("input_shape", "output_shape"))
    return chosen and counted and shaped and type(config["residual"]) is bool


def _consistent(config: dict[str, Any]) -> bool:
    """The fields fit together."""
    packed = config["layout"] != "tokens"
    each = config["readout"] == "each"
    pieces = config.get("pieces")
    rules = [
        "pieces" not in config or (type(pieces) is int and pieces > 0 and not config["ramps"]),
        (config["layout"] == "pieces") == (pieces is not None),
        pieces is None or config["readout"] == "first",
        config["d_model"] > 0,
        packed or len(config["input_shape"]) in (1, 2),
        not (packed and each),
        not each or config["output_shape"][:1] == config["input_shape"][:1],
        (config["embedding"] == "piecewise") == (config["ramps"] > 0),
        (config["attention"] == "topk") == (config["top_k"] > 0),
        config["order"] in range(2, 33, 2),
    ]
    return all(rules) and (config["positions"] != "one-hot" or config["d_model"] >= _length(config))


def _sound_heads(config: dict[str, Any]) -> bool:
    heads = config["heads"]
    if not isinstance(heads, list) or not heads:
        return False
    return all(_sound_head(head, config["layout"]) for head in heads)


def _sound_head(head: dict[str, Any], layout: str) -> bool:
    if set(head) != HEAD or not _sizes([head["d_k"], head["d_v"]]) or not _sizes(head["tokens"]):
        return False
    axes = len(head["tokens"])
    # A packed layer has no tokens of its own: without memory a head would average nothing.
    right = {"none": axes == 0 and layout != "packed", "plain": axes == 1, "grid": axes >= 1}
    return right.get(head["memory"], False)


def _length(config: dict[str, Any]) -> int:
    return int(config.get("pieces") or 0) or _rows(config)


def _rows(config: dict[str, Any]) -> int:
    """One row per token of a sequence; otherwise one row that holds the whole input."""
    if config["layout"] == "tokens":
        return int(config["input_shape"][0])
    return 1


def _sizes(values: Any) -> bool:
    if not isinstance(values, list) or len(values) > MAX_AXES:
        return False
    return all(type(value) is int and value >= 1 for value in values)


def expected_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor, as the table in docs/file-format.md has it."""
    heads = config["heads"]
    width = config["d_model"]
    hidden = config["hidden"]
    length = _length(config)
    token = math.prod(config["input_shape"]) // _rows(config)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (rows, columns) in _affine_maps(config, token, length).items():
        shapes |= {f"W_{name}": (rows, columns), f"b_{name}": (columns,)}
    if config["ramps"]:
        shapes |= {"ramp_start": (token, config["ramps"]), "ramp_slope": (token, config["ramps"])}
    if config["positions"] != "none":
        shapes["position"] = (length, width)
    if config["norm"] != "none":
        for which in ("1", "2") if hidden else ("1",):
            shapes |= {f"gain_{which}": (width,), f"shift_{which}": (width,)}
    for h, head in enumerate(heads):
        shapes |= _memory_shapes(f"memory.{h}", head)
    return shapes


def _affine_maps(config: dict[str, Any], token: int, length: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of every matrix that has a bias beside it."""
    heads = config["heads"]
    width = config["d_model"]
    hidden = config["hidden"]
    keys = sum(head["d_k"] for head in heads)
    values = sum(head["d_v"] for head in heads)
    read = math.prod(config["output_shape"]) // (length if config["readout"] == "each" else 1)
    pairs = {
        "E": (token * max(1, config["ramps"]), width * max(1, config.get("pieces", 0))),
        "Q": (width, keys),
        "O": (values, width),
        "R": (width, read),
    }
    if config["layout"] != "packed":
        pairs |= {"K": (width, keys), "V": (width, values)}
    if hidden:
        pairs |= {"1": (width, hidden), "2": (hidden, width)}
    return pairs


def _memory_shapes(name: str, head: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of one head's memory."""
    if head["memory"] == "none":
        return {}
    if head["memory"] == "plain":
        keys = {f"{name}.keys": (head["tokens"][0], head["d_k"])}
    else:
        keys = {f"{name}.axes.{a}": (m, head["d_k"]) for a, m in enumerate(head["tokens"])}
    return {**keys, f"{name}.values": (*head["tokens"], head["d_v"])}
