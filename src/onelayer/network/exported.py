"""Programs of torch.export (.pt2) as networks, read from the archive without torch's own loader.

The archive is a zip of JSON (the graph) and raw bytes (the weights). torch.export.load would also unpickle the sample
inputs beside them; they are never opened here. An archive whose weights are pickled is refused.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_any, tree_leaves, tree_map_only

import onelayer.network.windowed  # noqa: F401  (registers convolutions and poolings)
from onelayer.disk import MAX_AXES, read_bounded, strict_json
from onelayer.errors import FileError, OnelayerError, UnsupportedOperation, first_line
from onelayer.network.aten import CASTS, RULES, SAME, holds_value, written_as
from onelayer.network.builder import NetworkWriter
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import MAX_VALUES
from onelayer.network.stated import in_order, need_stated

# Of the archive, packed or not: a small file may claim to be a large one.
MAX_BYTES = 2**31
MAX_JSON = 2**26  # bytes of its graph as text, some kilobytes a node
MAX_ENTRIES = 2**14  # files in the archive
# Numbers of torch's own list of scalar types.
KINDS: dict[int, np.dtype[Any]] = {5: np.dtype("<i8"), 7: np.dtype("<f4"), 8: np.dtype("<f8"), 12: np.dtype(bool)}
# Constants that a graph makes itself.
MADE = ("full", "zeros", "ones", "arange", "triu", "tril", "scalar_tensor")


def read_exported(path: Path) -> RecordedNetwork:
    """The network of an archive of torch.export.save, exported with a batch of one point."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bounded(path, MAX_BYTES))) as archive:
            return _Archive(archive, path).network()
    except OnelayerError as error:
        raise FileError(f"{path}: {error}") from error
    except zipfile.BadZipFile as error:
        raise FileError(f"{path} is not an archive of torch.export.save") from error
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, RuntimeError, NotImplementedError) as error:
        line = first_line(error, 120)
        raise FileError(f"{path} is not an archive that is understood ({type(error).__name__}: {line})") from error


class _Archive:
    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive = archive
        names = archive.namelist()
        if len(names) > MAX_ENTRIES or sum(item.file_size for item in archive.infolist()) > MAX_BYTES:
            raise FileError("the archive holds too many files, or too large ones")
        # Of two entries with one name different readers take different ones.
        if len(set(names)) < len(names):
            raise FileError("the archive holds two files of one name")
        models = [name for name in names if name.endswith("/models/model.json")]
        if len(models) != 1:
            raise FileError(
                "it is no program of torch.export. TorchScript files and pickled models can run code when they are "
                "loaded and are not read; use torch.export.save, torch.onnx.export, or safetensors with --architecture"
            )
        self.root = models[0].removesuffix("models/model.json")

    def network(self) -> RecordedNetwork:
        """The graph written as steps."""
        document = self._json("models/model.json")
        module = document["graph_module"]
        graph = module["graph"]
        weights = self._tensors("weights")
        constants = self._tensors("constants")
        # A name must mean one tensor: the graph knows them by name alone.
        if set(weights) & set(constants):
            raise FileError("the archive holds two tensors of one name")
        weights |= constants
        known: dict[str, Any] = {}
        write: NetworkWriter | None = None
        for spec in module["signature"]["input_specs"]:
            # A union in JSON: one key that says which, and its content.
            (kind, content), *_ = spec.items()
            name = content["arg"].get("name") or content["arg"]["as_tensor"]["name"]
            if kind == "user_input":
                write = self._input(write, graph["tensor_values"][name])
                known[name] = write.point
            else:
                stored = content.get("parameter_name") or content.get("buffer_name") or content["tensor_constant_name"]
                known[name] = weights[stored]
        kinds = [list(spec) for spec in module["signature"]["output_specs"]]
        if write is None or kinds != [["user_output"]]:
            raise FileError("a program with one input and one output is read")
        return _written(write, graph, known)

    def _input(self, before: NetworkWriter | None, meta: Mapping[str, Any]) -> NetworkWriter:
        sizes = [side.get("as_int") for side in meta["sizes"]]
        if before is not None or KINDS.get(meta["dtype"], np.dtype(bool)).kind != "f":
            raise FileError("a program with one input in float32 or float64 is read")
        if len(sizes) < 2 or sizes[0] != 1 or not all(isinstance(side, int) and side >= 1 for side in sizes):
            raise FileError("export the program with a batch of one point and fixed sizes")
        dtype = torch.float32 if meta["dtype"] == 7 else torch.float64
        return NetworkWriter(tuple(sizes[1:]), dtype)

    def _json(self, name: str) -> Any:
        info = self.archive.getinfo(self.root + name)
        if info.file_size > MAX_JSON:
            raise FileError(f"{name} is larger than {MAX_JSON:,} bytes")
        return strict_json(self.archive.read(info), name)

    def _tensors(self, folder: str) -> dict[str, Tensor]:
        name = f"data/{folder}/model_{folder}_config.json"
        if self.root + name not in self.archive.namelist():
            return {}
        entries = self._json(name)["config"].items()
        return {key: self._tensor(folder, key, entry) for key, entry in entries}

    def _tensor(self, folder: str, key: str, entry: Mapping[str, Any]) -> Tensor:
        meta = entry["tensor_meta"]
        shape = [side["as_int"] for side in meta["sizes"]]
        strides = [side["as_int"] for side in meta["strides"]]
        dense = meta["storage_offset"]["as_int"] == 0 and _row_major(shape, strides)
        if entry["use_pickle"] or not dense or meta["dtype"] not in KINDS or len(shape) > MAX_AXES:
            raise FileError(f"the tensor {key[:40]!r} is pickled, of another type, or not stored row by row")
        kind = KINDS[meta["dtype"]]
        data = self.archive.read(f"{self.root}data/{folder}/{entry['path_name']}")
        count = math.prod(shape)
        if len(data) < count * kind.itemsize:
            raise FileError(f"the tensor {key[:40]!r} is truncated")
        # A copy: what torch gets must be writable, and outlive the bytes of the archive.
        numbers = np.frombuffer(data, kind, count).reshape(shape).copy()
        return torch.from_numpy(numbers)


def _row_major(shape: list[int], strides: list[int]) -> bool:
    wanted = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    # The stride of an axis of length one is never taken: exporters write anything there.
    return all(a == b or side == 1 for a, b, side in zip(strides, wanted, shape, strict=True))


def _written(write: NetworkWriter, graph: Mapping[str, Any], known: dict[str, Any]) -> RecordedNetwork:
    """The network of the nodes, in their order."""
    for node in graph["nodes"]:
        _run(write, node, known, graph["tensor_values"])
    (output,) = graph["outputs"]
    return write.network(known[output["as_tensor"]["name"]])


def _run(write: NetworkWriter, node: Mapping[str, Any], known: dict[str, Any], metas: Mapping[str, Any]) -> None:
    library, _, rest = node["target"].removeprefix("torch.ops.").partition(".")
    if library != "aten":
        raise UnsupportedOperation(str(node["target"])[:60], "a network has no such operation")
    name, _, overload = rest.partition(".")
    op = getattr(getattr(torch.ops.aten, name), overload)
    found = _called(write, name, op, node["inputs"], known)
    kind, content = next(iter(node["outputs"][0].items()))
    several = kind == "as_tensors"
    names = [item["name"] for item in (content if several else [content])]
    results = dict(zip(names, found if several else [found], strict=True))
    for result, value in results.items():
        _need_stated(write, name, value, metas[result])
    known.update(results)


def _called(write: NetworkWriter, name: str, op: Any, inputs: Sequence[Mapping[str, Any]], known: Any) -> Any:
    """What an operation makes of its arguments: steps, or constants of constants."""
    names = [item["name"] for item in inputs]
    # Torch goes by the names; what has a place has it in the order of the schema.
    first = [item["name"] for item in inputs if item.get("kind") == 1]
    if len(set(names)) < len(names) or first != [item.name for item in op._schema.arguments[: len(first)]]:
        raise UnsupportedOperation(name[:60], "its arguments are not in their order")
    given = {item["name"]: _argument(item["arg"], known) for item in inputs}
    args, kwargs = in_order(op._schema, [], given)
    if holds_value((*args, *kwargs.values())):
        return written_as(write, name, args, kwargs)
    return _constant(name, op, args, kwargs)


def _need_stated(write: NetworkWriter, name: str, value: Any, meta: Mapping[str, Any]) -> None:
    """A result is what the program says of it: torch's default format may have been another one there."""
    need_stated(write, name, value, [side.get("as_int") for side in meta["sizes"]], _FORMATS.get(meta["dtype"]))


def _constant(name: str, op: Any, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """What torch itself makes of constants, in their own formats: the quotient of two integers is no float64.

    Tried without numbers first: a small program may ask for a large tensor.
    """
    if name not in {*MADE, *RULES, *SAME, *CASTS} - {"dropout", "feature_dropout"}:
        raise UnsupportedOperation(name[:60], "a saved network has no such operation")
    given = {key: value for key, value in kwargs.items() if value is not None}
    shapes, named = tree_map_only(Tensor, lambda value: value.to("meta"), (args, given))
    nowhere = {} if tree_any(_is_tensor, args) else {"device": "meta"}
    for value in tree_leaves(op(*shapes, **named, **nowhere)):
        if value.numel() > MAX_VALUES:
            raise UnsupportedOperation(name, f"a value has at most {MAX_VALUES:,} entries")
    return op(*args, **given)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


_PLAIN = ("as_int", "as_bool", "as_string", "as_ints", "as_floats", "as_bools")


def _argument(arg: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """One argument of a node: a number, a list, a value by its name. Symbols and code are refused."""
    (kind, content), *_ = arg.items()
    if kind not in _READ:
        raise UnsupportedOperation(kind, "export with fixed sizes")
    return _READ[kind](content, known)


# A format that is not among these becomes one that no network has, and is refused where it is used.
_FORMATS = {7: torch.float32, 8: torch.float64, 5: torch.int64, 12: torch.bool}
_READ: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    **dict.fromkeys(_PLAIN, lambda content, known: content),
    **dict.fromkeys(("as_none", "as_device", "as_layout", "as_memory_format"), lambda content, known: None),
    "as_float": lambda content, known: float(content),  # JSON has no infinity: it is a word there
    "as_tensor": lambda content, known: known[content["name"]],
    "as_tensors": lambda content, known: [known[item["name"]] for item in content],
    "as_scalar_type": lambda content, known: _FORMATS.get(content, torch.float16),
    "as_sym_int": lambda content, known: content["as_int"],
    "as_sym_ints": lambda content, known: [item["as_int"] for item in content],
}
