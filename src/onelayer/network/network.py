"""RecordedNetwork: a program with its tensors, as a torch module that runs on tensors, Taylor models and duals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

from onelayer.network.program import NetworkProgram, Step

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(torch, name) for name in ("neg", "abs", "relu", "exp", "log", "sqrt", "rsqrt", "reciprocal")},
    **{name: getattr(torch, name) for name in ("square", "sin", "cos", "tan", "atan", "tanh", "sigmoid", "erf")},
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
}
COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "minimum", "maximum", "matmul")
}


class RecordedNetwork(nn.Module):
    """A function of one point, run on a batch of them: every value has the batch in front, tensors do not."""

    def __init__(self, program: NetworkProgram, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.program = program
        # Names of programs may hold dots, which those of parameters must not.
        self.names = {name: f"t{at}" for at, name in enumerate(sorted(program.tensors))}
        for name, own in self.names.items():
            self.register_parameter(own, nn.Parameter(tensors[name].clone(), requires_grad=False))
        for at, step in enumerate(program.steps, start=1):
            if step.places is not None:
                places = torch.tensor(step.places, dtype=torch.int64, device="cpu")
                # In the module, so that it moves with it; not in its state, which is weights alone.
                self.register_buffer(f"places{at}", places, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The format of the tensors; float64 where there are none."""
        return next((p.dtype for p in self.parameters()), torch.float64)

    def tensor(self, name: str) -> Tensor:
        """A stored tensor by the name that the program gives it."""
        found: Tensor = getattr(self, self.names[name])
        return found

    def forward(self, x: Any) -> Any:
        """The result of the last step, (B, *output_shape)."""
        values = [x]
        for at, step in enumerate(self.program.steps, start=1):
            args = [self.tensor(arg) if isinstance(arg, str) else values[arg] for arg in step.args]
            values.append(self._run(step, args, at, len(x)))
        return values[-1]

    def _run(self, step: Step, args: list[Any], at: int, batch: int) -> Any:
        if step.op == "arrange":
            return self.arranged(step, args, at, batch)
        if all(isinstance(arg, str) for arg in step.args):  # of stored tensors alone: the same for every point
            args = [arg.expand(batch, *arg.shape) for arg in args]
        if step.op in FUNCTIONS:
            return FUNCTIONS[step.op](args[0])
        if step.op in COMBINED:
            return COMBINED[step.op](*args)
        return _OTHERS[step.op](self, step, args, at)

    def arranged(self, step: Step, args: list[Any], at: int, batch: int) -> Any:
        """Entries of values and tensors where step number ``at`` has them."""
        parts = []
        for name, arg in zip(step.args, args, strict=True):
            # A stored tensor is the same for every point.
            if isinstance(name, str):
                parts.append(arg.reshape(1, -1).expand(batch, arg.numel()))
            else:
                parts.append(arg.reshape(batch, -1))
        flat = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
        if step.places is not None:
            flat = torch.index_select(flat, 1, getattr(self, f"places{at}"))
        return flat.reshape(batch, *step.shape)

    @property
    def untouched(self) -> bool:
        """Whether its program says all of it: no subclass, no hook, no attribute in the place of a method."""
        patched = any(callable(getattr(RecordedNetwork, name, None)) for name in vars(self))
        everywhere = _has_any_global_hook()  # type: ignore[no-untyped-call]
        hooked = bool(everywhere or self._forward_hooks or self._forward_pre_hooks)
        return type(self) is RecordedNetwork and not patched and not hooked

    def extra_repr(self) -> str:
        """What torch shows of it."""
        program = self.program
        return f"{program.input_shape} -> {program.output_shape}, {len(program.steps)} steps"


def _number(step: Step) -> float:
    """The number of an operation that has one: a program is refused without it."""
    return 0.0 if step.number is None else step.number


def _softmax(network: RecordedNetwork, step: Step, args: list[Any], at: int) -> Any:
    """Of the last axis; entries that take no part get the weight zero."""
    if step.places is None:
        return torch.softmax(args[0], -1)
    places = getattr(network, f"places{at}")
    count = math.prod(step.shape)
    taking = torch.zeros(count, dtype=torch.bool, device=places.device)
    taking[places] = True
    left_out = ~taking.reshape(step.shape)
    return torch.softmax(args[0].masked_fill(left_out, -torch.inf), -1)


def _layer_norm(network: RecordedNetwork, step: Step, args: list[Any], at: int) -> Any:
    x, gain, offset = args
    return F.layer_norm(x, step.shape[-1:], gain, offset, _number(step))


_OTHERS: dict[str, Callable[[RecordedNetwork, Step, list[Any], int], Any]] = {
    "affine": lambda network, step, args, at: F.linear(*args),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "sum": lambda network, step, args, at: args[0].sum(-1),
    "mean": lambda network, step, args, at: args[0].mean(-1),
    "scale": lambda network, step, args, at: args[0] * _number(step),
    "shift": lambda network, step, args, at: args[0] + _number(step),
    "leaky_relu": lambda network, step, args, at: F.leaky_relu(args[0], _number(step)),
    "elu": lambda network, step, args, at: F.elu(args[0], _number(step)),
}
