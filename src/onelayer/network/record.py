"""record: a torch module as a network, by way of torch.export.

torch runs the module once on tensors without numbers and lists the operations it met (ATen). Each of them is written as
steps of ours (aten.py), or refused by name. Operations on weights alone are run here, once.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

import onelayer.network.windowed  # noqa: F401  (registers convolutions and poolings)
from onelayer.errors import OnelayerError, UnsupportedOperation, told
from onelayer.network.aten import holds_value, written_as
from onelayer.network.builder import NetworkWriter
from onelayer.network.network import RecordedNetwork


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
        return _converted(program, NetworkWriter(input_shape, dtype))
    # Arguments that no rule has end in one of these.
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise OnelayerError(f"the model cannot be written as a network ({told(error)})") from error


def _converted(program: Any, build: NetworkWriter) -> RecordedNetwork:
    constants = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    fed = {spec.arg.name: constants.get(spec.target) for spec in specs}
    known: dict[Any, Any] = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "placeholder":
                weights = fed.get(node.name)
                # An input without stored weights is the point.
                known[node] = build.point if weights is None else weights.detach().cpu().clone()
            elif node.op == "call_function":
                known[node] = _called(build, node, known)
            elif node.op == "output":
                results = torch.fx.node.map_arg(node.args[0], lambda at: known[at])
    if len(results) != 1 or isinstance(results[0], Tensor):
        raise OnelayerError("a network returns one tensor that depends on its point")
    return build.network(results[0])


def _called(build: NetworkWriter, node: Any, known: dict[Any, Any]) -> Any:
    given = (node.args, node.kwargs)
    args, kwargs = torch.fx.node.map_arg(given, lambda at: known[at])
    # Of weights and numbers alone: run once, here, and stored as a constant.
    if not holds_value((*args, *kwargs.values())):
        _need_kept(node, args, known)
        return node.target(*args, **kwargs)
    name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
    if name == "getitem":
        return args[0][args[1]]
    return written_as(build, name, args, kwargs)


def _need_kept(node: Any, args: Any, known: dict[Any, Any]) -> None:
    """What the operation changes, if anything, is not the model's own: its next call would return something else."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    own = {
        v.untyped_storage().data_ptr() for at, v in known.items() if at.op == "placeholder" and isinstance(v, Tensor)
    }
    if any(isinstance(x, Tensor) and x.untyped_storage().data_ptr() in own for x in args):
        raise UnsupportedOperation("a buffer that is changed in place", "a network is the same at every call")


def _memory(x: Any) -> int | None:
    """Where the numbers of a tensor lie."""
    if isinstance(x, Tensor):
        return x.untyped_storage().data_ptr()
    return None
