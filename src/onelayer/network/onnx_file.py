"""ONNX files as networks, read with distrust: one input, one output, operations of a table, nothing else.

The bytes are parsed by the onnx package (protocol buffers: data, no code). Weights outside the file, functions,
sub-graphs and operators of other domains are refused. Every node reads names that stand before it, so a graph with a
cycle is refused where it closes. Constants are folded here, in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelayer.disk import read_bounded
from onelayer.errors import FileError, OnelayerError, UnsupportedOperation, first_line
from onelayer.extras import require
from onelayer.network.apart import PAIR, apart
from onelayer.network.batches import Batch, for_one
from onelayer.network.builder import Known, NetworkWriter, Value, moved
from onelayer.network.counts import mixed
from onelayer.network.network import RecordedNetwork
from onelayer.network.onnx_rules import RULES
from onelayer.network.onnx_tables import ATTRIBUTES, BESIDE, FOLDED
from onelayer.network.stated import need_sides

MAX_BYTES = 2**31  # what protocol buffers can be
MAX_NODES = 2**14  # as many steps as a program may have
OLDEST = 13  # operator set: before, softmax had another meaning
Sides = dict[str, list[int | None]]  # of every array by its name; None where one is not known
KINDS = {1: torch.float32, 11: torch.float64}  # TensorProto.FLOAT and DOUBLE


def read_onnx(path: Path) -> RecordedNetwork:
    """The network of an ONNX file that maps (B, *shape) to (B, *outputs)."""
    onnx = require("onnx", "onnx")
    data = read_bounded(path, MAX_BYTES)
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # DecodeError of a library that need not be there
        raise FileError(f"{path} is not an ONNX file") from error
    try:
        _need_plain(model, onnx.defs.onnx_opset_version())
        sides = _inferred(onnx, model)
        return _network(model.graph, onnx.numpy_helper.to_array, sides)
    except OnelayerError as error:
        raise FileError(f"{path}: {error}") from error
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, MemoryError) as error:
        line = first_line(error, 120)
        raise FileError(f"{path}: its graph does not fit together ({type(error).__name__}: {line})") from error


def _need_plain(model: Any, newest: int) -> None:
    versions = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not OLDEST <= versions[0] <= newest:
        raise FileError(f"it has the operator set {versions}; {OLDEST} to {newest} are read")
    if model.functions or not 1 <= len(model.graph.node) <= MAX_NODES:
        raise FileError(f"a graph of 1 to {MAX_NODES:,} nodes without functions of its own is read")
    for item in model.graph.initializer:
        _need_inside(item)
    _need_no_default(model)


def _need_no_default(model: Any) -> None:
    # Before version 4 every stored tensor had to be an input as well.
    given = {item.name for item in model.graph.input} & {item.name for item in model.graph.initializer}
    if given and model.ir_version >= 4:
        raise FileError(f"the input {min(given)[:40]!r} has a default that a caller may replace; one input is read")


def _inferred(onnx: Any, model: Any) -> Sides:
    """The shapes that ONNX itself finds, of a model that is what it says a model is.

    What is not has no meaning that a network could share.
    """
    try:
        shaped = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(shaped)
    except Exception as error:  # of a library that need not be there, and whose errors have no common class
        line = first_line(error, 120)
        raise FileError(f"it is not valid ONNX ({line})") from error
    found = [
        item for item in (*shaped.graph.value_info, *shaped.graph.output) if item.type.tensor_type.HasField("shape")
    ]
    return {item.name: [_side(axis) for axis in item.type.tensor_type.shape.dim] for item in found}


def _side(axis: Any) -> int | None:
    return int(axis.dim_value) if axis.HasField("dim_value") else None


def _network(graph: Any, to_array: Callable[[Any], Any], sides: Sides) -> RecordedNetwork:
    network = _of_points(graph, to_array, None, sides)
    # Of batches of any size batches.py has shown it; two points, run symbolically, are held against what it allowed.
    if _any_batch(graph) and not apart(network, _of_points(graph, to_array, PAIR, {})):
        mixed()
    return network


def _any_batch(graph: Any) -> bool:
    """Whether the input takes batches of any size; one of a single point can mix nothing."""
    return int(_input(graph).type.tensor_type.shape.dim[0].dim_value) == 0


def _input(graph: Any) -> Any:
    """The one input that is not stored."""
    stored = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in stored]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise FileError(f"it has {len(inputs)} inputs and {len(graph.output)} outputs, one of each is read")
    return inputs[0]


def _of_points(graph: Any, to_array: Callable[[Any], Any], points: int | None, sides: Sides) -> RecordedNetwork:
    """The network of one point, or that of so many together, (points, *shape) to (points, *outputs)."""
    # An empty name stands for an optional input that is not given.
    known: dict[str, Any] = {"": None}
    known |= {item.name: _array(item, to_array) for item in graph.initializer}
    point = _input(graph)
    shape, kind = _signature(point)
    if points is None:
        write = NetworkWriter(shape, kind)
        known[point.name] = write.point
    else:
        # A batch of several points is one point of a larger network, whose own batch of one is taken off.
        write = NetworkWriter((points, *shape), kind)
        known[point.name] = moved(write.point, lambda v: v[0])
    batch = Batch(point.name) if points is None and _any_batch(graph) else None
    _run_all(write, graph, known, to_array, batch, sides)
    if batch is not None:
        batch.need_rows(graph.output[0].name)
    result = _result(graph, known)
    return write.network(result if points is None else moved(result, lambda v: v[None]))


def _result(graph: Any, known: dict[str, Any]) -> Known:
    written = graph.output[0].name
    if written not in known:
        raise FileError(f"no node writes the output {written[:40]!r}")
    found: Known = known[written]
    return found


def _run_all(
    write: NetworkWriter,
    graph: Any,
    known: dict[str, Any],
    to_array: Callable[[Any], Any],
    batch: Batch | None,
    sides: Sides,
) -> None:
    """Every node in the order of the file; what each writes becomes known, once, and has the shape that ONNX finds."""
    for node in graph.node:
        results = _run(write, node, known, to_array, batch)
        _need_written(node, results)
        # An output without a result, as the mask of a dropout, is refused where it is read.
        for name, value in zip(node.output, results, strict=False):
            if name in known:
                raise FileError(f"two nodes write {name[:40]!r}")
            need_sides(node.op_type, value, _apart_from_points(sides.get(name), name, batch))
            known[name] = value


def _need_written(node: Any, results: Sequence[Known]) -> None:
    """What a node writes beside the results of its rule may change what it means.

    A normalisation that also writes the statistics of its batch normalises by them.
    """
    wanted = sum(map(bool, node.output))
    if wanted > len(results) and node.op_type not in BESIDE:
        raise UnsupportedOperation(node.op_type[:40], f"with {wanted} results")


def _apart_from_points(sides: list[int | None] | None, name: str, batch: Batch | None) -> list[int | None] | None:
    """The sides without that of the points, which is another one in every batch."""
    lie = None if batch is None else batch.lies.get(name)
    if sides is None or lie is None:
        return sides
    return [None if at == lie.axis else side for at, side in enumerate(sides)]


def _array(item: Any, to_array: Callable[[Any], Any]) -> Any:
    _need_inside(item)
    return to_array(item)


def _need_inside(item: Any) -> None:
    if item.data_location or item.external_data:
        raise FileError(f"the weights {item.name[:40]!r} lie in another file; save the model in one")


def _signature(item: Any) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape of a point and format. The first axis is the batch: of any size, or of one point."""
    kind = item.type.tensor_type
    sizes = [int(axis.dim_value) for axis in kind.shape.dim]
    if kind.elem_type not in KINDS:
        raise FileError("the input must be float32 or float64")
    if len(sizes) < 2 or sizes[0] not in (0, 1) or not all(size >= 1 for size in sizes[1:]):
        raise FileError(f"the input has the shape {sizes}; a batch (any, or 1) and fixed sizes are read")
    return tuple(sizes[1:]), KINDS[kind.elem_type]


def _attributes(node: Any, to_array: Callable[[Any], Any]) -> dict[str, Any]:
    """Plain values by name; graphs are refused."""
    found: dict[str, Any] = {}
    for item in node.attribute:
        values = {1: item.f, 2: item.i, 3: item.s, 6: list(item.floats), 7: list(item.ints)}
        if item.type == 4:
            found[item.name] = _array(item.t, to_array)
        elif item.type in values:
            found[item.name] = values[item.type]
        else:
            raise UnsupportedOperation(node.op_type[:40], "its attributes hold graphs or other things")
    return found


def _run(
    write: NetworkWriter, node: Any, known: dict[str, Any], to_array: Callable[[Any], Any], batch: Batch | None
) -> Sequence[Known]:
    args = [_read(node, name, known) for name in node.input]
    settings = _attributes(node, to_array)
    _need_known(node, settings)
    results = _results(write, node, for_one(node.op_type, args), settings)
    return results if batch is None else batch.followed(node, args, settings, results)


def _results(write: NetworkWriter, node: Any, args: list[Any], settings: dict[str, Any]) -> Sequence[Known]:
    # Older versions say by their outputs alone how many parts there are.
    if node.op_type == "Split" and settings.setdefault("num_outputs", len(node.output)) != len(node.output):
        raise UnsupportedOperation("Split", "into as many parts as it has outputs")
    if node.op_type in FOLDED and not any(isinstance(arg, Value) for arg in args):
        return [FOLDED[node.op_type](*args)]
    if node.op_type not in RULES:
        raise UnsupportedOperation(node.op_type[:40], "a network has no such operation")
    found = RULES[node.op_type](write, args, settings)
    results = found if isinstance(found, list) else [found]
    if any(isinstance(result, Value) for result in results):
        _need_format(write, node, args)
    return results


def _need_format(write: NetworkWriter, node: Any, args: Sequence[Any]) -> None:
    """Numbers of a step of the network are of its format: other ones would be rounded to it, or compute in another.

    By the types of ONNX the data of a node is of the type of the first; what comes after may be axes or a shape. The
    exponent of a power may be of any type, and is one of a few numbers that every format holds.
    """
    if node.op_type == "Pow":
        return
    wanted = str(write.dtype).removeprefix("torch.")
    for at, arg in enumerate(args):
        kind = np.asarray(arg).dtype if isinstance(arg, np.ndarray | np.generic) else np.dtype(wanted)
        if kind.name != wanted and (at == 0 or kind.kind not in "iub"):
            raise UnsupportedOperation(
                node.op_type[:40], f"of constants that are {kind}, in a network of {write.dtype}"
            )


def _read(node: Any, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise FileError(f"node {node.op_type[:40]} reads {name[:40]!r}, which no node before it writes")
    return known[name]


def _need_known(node: Any, settings: dict[str, Any]) -> None:
    """The operator is of ONNX itself, and every attribute is one that its rule heeds."""
    if node.domain not in ("", "ai.onnx"):
        raise UnsupportedOperation(node.op_type[:40], f"operators of {node.domain[:40]!r} are not read")
    heeded = ATTRIBUTES.get(node.op_type, set())
    strange = sorted(set(settings) - heeded)
    if strange:
        raise UnsupportedOperation(node.op_type[:40], f"its attribute {strange[0][:40]!r} is not known")
