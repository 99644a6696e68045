"""record: a torch module as a network, by way of torch.export.

torch runs the module once on tensors without numbers and lists the operations it met (ATen). Each of them is written as
steps of ours (aten.py), or refused by name. Operations on weights alone are run here, once. On numbers the module must
run the same operations (executed.py).
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import onelayer.network.windowed  # noqa: F401  (registers convolutions and poolings)
from onelayer.errors import OnelayerError, UnsupportedOperation, told
from onelayer.network.aten import holds_value, written_as
from onelayer.network.builder import NetworkWriter
from onelayer.network.executed import need_same
from onelayer.network.network import RecordedNetwork
from onelayer.network.stated import in_order, need_stated


def record(model: nn.Module, input_shape: tuple[int, ...]) -> RecordedNetwork:
    """The network of a module that maps (B, *input_shape) to (B, *outputs); OnelayerError where it is no such thing."""
    if isinstance(model, RecordedNetwork) and model.untouched:
        return model
    tensors = (*model.parameters(), *model.buffers())
    held = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    dtype = held[0] if held else torch.float64
    example = torch.zeros(1, *input_shape, dtype=dtype, device="cpu")
    try:
        with torch.no_grad():
            # A copy: the mode of the user's model is not to change.
            private = copy.deepcopy(model).eval()
            program = torch.export.export(private, (example,), strict=False)
    except Exception as error:
        raise OnelayerError(f"the model cannot be recorded as a network ({told(error)})") from error
    try:
        network = _converted(program, NetworkWriter(input_shape, dtype))
    # Arguments that no rule has end in one of these.
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise OnelayerError(f"the model cannot be written as a network ({told(error)})") from error
    try:
        need_same(copy.deepcopy(model).eval(), partial(_run, program), example)
    except OnelayerError:
        raise
    except Exception as error:
        raise OnelayerError(f"the model cannot be compared with what was recorded of it ({told(error)})") from error
    return network


def _run(program: Any, point: Tensor) -> Any:
    """The result of the program on numbers."""
    fed = _fed(program)
    known: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            known[node] = fed.get(node.name, point)
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda at: known[at])
            known[node] = node.target(*args, **kwargs)
        elif node.op == "output":
            return torch.fx.node.map_arg(node.args[0], lambda at: known[at])[0]
    return None


def _converted(program: Any, build: NetworkWriter) -> RecordedNetwork:
    fed = _fed(program)
    known: dict[Any, Any] = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "placeholder":
                own = node.name in fed
                known[node] = fed[node.name].detach().cpu().clone() if own else build.point
            elif node.op == "call_function":
                known[node] = _called(build, node, known)
                _need_stated(build, node, known[node])
            elif node.op == "output":
                results = torch.fx.node.map_arg(node.args[0], lambda at: known[at])
    if len(results) != 1 or isinstance(results[0], Tensor):
        raise OnelayerError("a network returns one tensor that depends on its point")
    return build.network(results[0])


def _fed(program: Any) -> dict[str, Tensor]:
    """The tensors that go in beside the point, by the names of their inputs; one that is not held is refused."""
    constants = {**program.state_dict, **program.constants}
    points = program.graph_signature.user_inputs
    held = [spec for spec in program.graph_signature.input_specs if spec.arg.name not in points]
    return {spec.arg.name: constants[spec.target] for spec in held}


def _called(build: NetworkWriter, node: Any, known: dict[Any, Any]) -> Any:
    given = (node.args, node.kwargs)
    args, kwargs = torch.fx.node.map_arg(given, lambda at: known[at])
    # Of weights and numbers alone: run once, here, and stored as a constant.
    if not holds_value((*args, *kwargs.values())):
        _need_kept(node, (*args, *kwargs.values()), known)
        return _emptied(node, node.target(*args, **kwargs))
    name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
    if name == "getitem":
        return args[0][args[1]]
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        raise UnsupportedOperation(name[:60], "a network has no such operation")
    return written_as(build, name, *in_order(schema, args, kwargs))


def _need_stated(build: NetworkWriter, node: Any, found: Any) -> None:
    """What was made of an operation has the shapes and the formats that torch found."""
    stated = node.meta.get("val")
    several = isinstance(found, list | tuple)
    pairs = zip(found, stated, strict=True) if several else [(found, stated)]
    for value, meta in pairs:
        if isinstance(meta, Tensor):
            need_stated(build, str(node.target), value, meta.shape, meta.dtype)


def _need_kept(node: Any, given: Any, known: dict[Any, Any]) -> None:
    """The next call would return the same: nothing is drawn, and what it changes is not the model's own."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        raise UnsupportedOperation(str(node.target)[:60], "a network draws no numbers")
    if not schema.is_mutable:
        return
    own = {
        v.untyped_storage().data_ptr() for at, v in known.items() if at.op == "placeholder" and isinstance(v, Tensor)
    }
    if any(isinstance(x, Tensor) and x.untyped_storage().data_ptr() in own for x in given):
        raise UnsupportedOperation("a buffer that is changed in place", "a network is the same at every call")


def _emptied(node: Any, found: Any) -> Any:
    """Memory as it was found holds anything: not a number until it is written, and refused where it is stored."""
    if "empty" not in str(node.target) or not isinstance(found, Tensor):
        return found
    if not found.is_floating_point():
        raise UnsupportedOperation(str(node.target)[:60], "memory that is not written yet; use zeros")
    return found.fill_(torch.nan)
