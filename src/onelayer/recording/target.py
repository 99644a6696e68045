"""Target: whatever the user means by f, as a torch function on a box, with its formula where it has one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import FormulaError, OnelayerError, UnsupportedOperation, told
from onelayer.ground import DEFAULT_DTYPE, another, pinned
from onelayer.language.formula import Formula, parse
from onelayer.language.poles import find_pole
from onelayer.observer import Observer, Stopped
from onelayer.recording.blackbox import BlackBox
from onelayer.recording.callables import in_float64, met_in, not_torch, of_one_array, on_arrays
from onelayer.recording.curvature import Curvature, as_curvature
from onelayer.recording.evaluation import PROBED, Pace, continued, evaluate, pace_of
from onelayer.recording.evaluations import DEFAULT, Evaluations
from onelayer.recording.lipschitz import ESTIMATE, Lipschitz, as_lipschitz
from onelayer.recording.numpy_code import recordable
from onelayer.recording.recorder import EMPTY, FORMAT, TooLong, as_executed, record
from onelayer.recording.scattered import Scattered
from onelayer.recording.separable import Separated, separate
from onelayer.recording.sympy_code import from_sympy, is_sympy
from onelayer.recording.table import Table
from onelayer.recording.witnessed import Touched, Witnessed

SAMPLES = 256  # at which f is looked at before anything is built
CORNERS = 64  # of the 2^D, where functions are most often undefined


@dataclass(frozen=True)
class Target:
    """f on a box. ``function`` maps (..., *input_shape) to (..., *output_shape) in float64.

    ``formula`` is the recorded or given formula, None when f has too many operations for one or only a declared
    constant; ``unrecorded`` then says why. ``lipschitz`` is what was declared of its changes, or of those of its
    ``gradient``; it is None whenever a formula is known, because nothing needs to be taken on trust then. ``kind`` is
    "formula", "callable", "module" or "blackbox". ``compared`` is the box on which the values of a callable were
    compared with its formula; a proof needs that (proof/recorded.py). ``pace`` is how slow it is. ``executed`` has the
    operations of the code one by one, where its formula is without a removable singularity of theirs. ``narrower`` is
    the code as it was given, where it was for points of a narrower format than float64.
    """

    function: Callable[[Any], Any]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    kind: str
    description: str
    formula: Formula | None = None
    lipschitz: Lipschitz | Curvature | None = None
    unrecorded: str = ""
    compared: Box | None = field(default=None, compare=False)
    pace: Pace = field(default=Pace(), compare=False)
    gradient: Callable[[Tensor], Tensor] | None = None
    executed: Formula | None = None
    narrower: Any = field(default=None, compare=False)

    @property
    def paid(self) -> bool:
        """Whether f is known by its values alone, each of which may cost seconds."""
        return self.lipschitz is not None

    def one_number(self, shape: tuple[int, ...]) -> Target:
        """The same function with its one number in an output of ``shape``, such as (1,) for ()."""
        f = self.function
        event = len(self.input_shape)

        def function(x: Any) -> Any:
            batch = x.shape[: x.ndim - event]
            return f(x).reshape(*batch, *shape)

        formula = None if self.formula is None else self.formula.shaped(self.input_shape, shape)
        # A formula stays its own function, so that it is still known to be one.
        whole = formula if formula is not None and f is self.formula else function
        return replace(self, function=whole, output_shape=shape, formula=formula)

    def values(self, points: Tensor, observer: Observer) -> Tensor:
        """f at points (C, *input_shape), a slow one in parts; raises Stopped once the observer says it is over."""
        observer.check()
        return evaluate(self.function, points, self.pace, observer)


@pinned()
def as_target(f: Any, box: Box, *, lipschitz: Any = None, observer: Observer | None = None) -> Target:
    """Understand ``f``: formula text, Formula, Table, torch or NumPy callable, module, or anything with ``lipschitz``.

    A callable takes one array (..., D) or D arguments, in the order of the box or by the names of its coordinates.

    A callable is its recorded formula: what cannot be recorded is refused by the name of the operation, unless a
    constant is declared. Refused too, naming the place, is a function without finite values on the box, one that does
    not treat a batch point by point, and one whose values are not real floating numbers. Raises Stopped when the
    ``observer`` ends it before f is known at a few hundred points.
    """
    watch = observer or Observer()
    if isinstance(f, Target):
        if f.input_shape != tuple(box.shape):
            raise OnelayerError(f"the function takes points of shape {f.input_shape}, the box {tuple(box.shape)}")
        return f
    if isinstance(f, BlackBox):
        f = f.on(box)
        if f.gradient is None:
            return _from_values(f, box, watch)
        return _from_gradient(f, f.gradient, box, watch)
    if isinstance(f, Table | Scattered):
        return _from_table(f, box)
    # Before callables: a Lambda of SymPy is one too.
    f = from_sympy(f, box.dim, box.variables) if is_sympy(f) else f
    if isinstance(f, (str, Formula)):
        return _from_formula(f, box)
    if not callable(f):
        raise OnelayerError(f"f must be formula text, a torch function or a module, got {type(f).__name__}")
    return _from_callable(f, box, lipschitz, watch)


def _from_callable(f: Any, box: Box, declared: Any, watch: Observer) -> Target:
    """A module or torch function by its recording, a NumPy function by its declared constant."""
    if isinstance(f, nn.Module):
        # A copy: what the user holds keeps its format, its place and its mode.
        # Float64 holds narrower weights exactly, so the copy is the same function, evaluated more accurately.
        module = _copied(f).double().cpu().eval()
        narrower = f if any(map(_is_narrower, (*f.parameters(), *f.buffers()))) else None
        return _from_torch(module, box, "module", type(f).__name__, declared, watch, narrower)
    name = getattr(f, "__name__", type(f).__name__).replace("<lambda>", "f")
    f = of_one_array(f, box)
    points = looked_at(box)[:PROBED]
    # With a declared constant f is taken as its code evaluates it, in whatever format.
    given, f = f, in_float64(f, points) if declared is None else f
    # Torch code is recorded as it runs; what fails on tensors is tried on NumPy arrays.
    failure = not_torch(f, points, declared is None)
    if failure is None:
        return _from_torch(f, box, "callable", name, declared, watch, None if f is given else given)
    function, batched = on_arrays(f, points)
    if declared is None:
        return _from_numpy(f, function, batched, box, name, watch)
    return _from_blackbox(function, box, declared, name, watch)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise OnelayerError(f"a module is proved as a copy, and this one has none ({told(error)})") from error


def _from_blackbox(
    function: Callable[[Tensor], Tensor], box: Box, declared: Any, name: str, observer: Observer
) -> Target:
    """A function known by its values: whatever is evaluated is held against the declared constant."""
    lipschitz = as_lipschitz(declared, box, function)
    witnessed = Witnessed(function, name, lipschitz, box.dim)
    pace = _pace(witnessed, box, name)
    outputs = _examine(witnessed, box, name, pace, observer)
    return Target(witnessed, tuple(box.shape), outputs, "blackbox", name, None, lipschitz, pace=pace)


def _from_values(f: BlackBox, box: Box, observer: Observer) -> Target:
    """A black box with a declared constant."""
    return _from_blackbox(_values_of(f, box), box, f.lipschitz, f.description, observer)


def _from_gradient(f: BlackBox, gradient: Evaluations, box: Box, observer: Observer) -> Target:
    """A black box with its gradient: both are held against the declared curvature."""
    slopes = _values_of(gradient, box)
    curvature = as_curvature(f.curvature, box, slopes)
    touched = Touched(_values_of(f, box), slopes, f.name, curvature, box.dim)
    pace = _pace(touched, box, f.name)
    outputs = _examine(touched, box, f.name, pace, observer)
    slow = _pace(touched.gradient, box, f"the gradient of {f.name}")
    # A first look: a gradient that contradicts its curvature is refused before anything is built.
    evaluate(touched.gradient, looked_at(box)[:CORNERS], slow, observer)
    # A point of the search asks for both: the slower one sets the pace.
    pace = Pace(max(pace.call, slow.call), max(pace.point, slow.point))
    parts = (touched, tuple(box.shape), outputs, "blackbox", f.description)
    return Target(*parts, lipschitz=curvature, pace=pace, gradient=touched.gradient)


def separated(f: BlackBox, box: Box, eps: float, observer: Observer) -> Separated | None:
    """What its declared structure makes of a black box; None where a structure was to be estimated and none is seen."""
    values = _values_of(f.on(box), box)
    lipschitz = as_lipschitz(f.lipschitz, box, values)
    witnessed = Witnessed(values, f.name, lipschitz, box.dim)
    centre = box.center[None]
    shape = tuple(_call(witnessed, centre, f.name).shape[1:])
    return separate(witnessed, box, eps, lipschitz, f.structure or ESTIMATE, shape, observer)


def _values_of(f: Callable[[Any], Any], box: Box) -> Callable[[Tensor], Tensor]:
    """A function of NumPy points as a torch function."""

    def function(x: Tensor) -> Tensor:
        points = x.detach().cpu().double().reshape(-1, *box.shape)
        values = torch.from_numpy(f(points.numpy()))
        batch = x.shape[: x.ndim - len(box.shape)]
        return values.reshape(*batch, *values.shape[1:])

    return function


def _from_formula(f: str | Formula, box: Box) -> Target:
    formula = parse(f, box.dim, names=box.variables) if isinstance(f, str) else f
    if formula.dim != box.dim:
        raise FormulaError(f"the formula has {formula.dim} variables and the box {box.dim}; they must be equal")
    formula = formula.shaped(tuple(box.shape), formula.output_shape)
    description = " ".join(f.split()) if isinstance(f, str) else str(formula)
    _refuse_poles(formula, box, "f")
    _examine(formula, box, "f", Pace(), Observer())
    return Target(formula, formula.input_shape, formula.output_shape, "formula", description, formula)


def _from_table(table: Table | Scattered, box: Box) -> Target:
    """The interpolant of a table, on a box inside it: beyond its rows a table says nothing."""
    if box.names and table.box.names and box.variables != table.box.variables:
        given = ", ".join(box.variables[:8])
        known = ", ".join(table.box.variables[:8])
        raise OnelayerError(f"the box names {given} and the table {known}; use the same, in the same order")
    # Boxes of another dimension are refused with the formula, which knows its variables.
    if box.dim == table.box.dim and not table.covers(box):
        below = box.lower.flatten() < table.box.lower
        above = box.upper.flatten() > table.box.upper
        at = int((below | above).double().argmax())
        low = table.box.lower[at].item()
        high = table.box.upper[at].item()
        ends = f"{table.names[at]} = {low:g} and {high:g}"
        raise OnelayerError(f"the table ends at {ends}; choose a box inside it")
    return _from_formula(table.formula, box)


def _is_narrower(held: Tensor) -> bool:
    return held.is_floating_point() and held.dtype != torch.float64


def _from_torch(
    f: Callable[[Any], Any], box: Box, kind: str, name: str, declared: Any, observer: Observer, narrower: Any = None
) -> Target:
    """Torch code by its recording; ``narrower`` is the code that it was made of, for another format."""
    shape = tuple(box.shape)
    pace = _pace(f, box, name)
    formula, executed, unrecorded = None, None, ""
    try:
        _refuse_format(f, box, name, pace, observer)
        formula = record(f, shape, box=box, narrower=narrower is not None)
    except Stopped:
        raise
    # A formula of that length is no use; the code itself can still be run on enclosures.
    except TooLong as error:
        unrecorded = str(error)
    except OnelayerError as error:
        if declared is None:
            raise
        unrecorded = str(error)
    if formula is not None:
        _refuse_poles(formula, box, name)
        # Where the code divides 0 by 0 its formula may have a value: that function is the one that is proved.
        whole = continued(f, formula)
        executed = None if whole is f else as_executed(f, shape, box)
        f = whole
    # Nothing is taken on trust of a function whose formula is known.
    lipschitz = None if formula is not None or declared is None else as_lipschitz(declared, box, f)
    function = f if lipschitz is None else Witnessed(f, name, lipschitz, box.dim)
    outputs = _examine(function, box, name, pace, observer)
    _need_shape(formula, outputs, name)
    _need_one_function(f, formula, box, name)
    parts = (function, shape, outputs, kind, name, formula, lipschitz, unrecorded)
    return Target(*parts, pace=pace, executed=executed, narrower=narrower)


def _from_numpy(
    f: Callable[[Any], Any],
    function: Callable[[Tensor], Tensor],
    batched: bool,
    box: Box,
    name: str,
    observer: Observer,
) -> Target:
    """A NumPy function is the formula that its NumPy calls write, like any other callable."""
    shape = tuple(box.shape)
    code = recordable(f, batched)
    try:
        formula = record(code, shape, box=box, of_tensors=False)
    except UnsupportedOperation as error:
        raise UnsupportedOperation(error.operation, f"{error.hint}; or give lipschitz= for {name} as it is") from error
    _refuse_poles(formula, box, name)
    whole = continued(function, formula)
    executed = None if whole is function else as_executed(code, shape, box)
    pace = _pace(whole, box, name)
    outputs = _examine(whole, box, name, pace, observer)
    _need_shape(formula, outputs, name)
    return Target(whole, shape, outputs, "callable", name, formula, pace=pace, executed=executed)


def _need_shape(formula: Formula | None, outputs: tuple[int, ...], name: str) -> None:
    """In another shape the outputs of the formula would stand for other values."""
    if formula is not None and formula.output_shape != outputs:
        raise OnelayerError(f"{name} has outputs of shape {outputs}, and {formula.output_shape} as it is recorded")


def _need_one_function(f: Callable[[Any], Any], formula: Formula | None, box: Box, name: str) -> None:
    """What is not recorded is run under another default dtype of torch at a point: its caller may have that."""
    if formula is not None:
        return
    point = looked_at(box)[:1]
    usual = _call(f, point.clone(), name)
    with another(DEFAULT_DTYPE):
        again = _call(f, point.clone(), name)
    if not torch.equal(usual, again.to(usual.dtype)):
        raise OnelayerError(f"{name}: {DEFAULT}")


def _refuse_format(f: Callable[[Any], Any], box: Box, name: str, pace: Pace, observer: Observer) -> None:
    """What a recording cannot see: values in a narrower format, and an argument that is overwritten."""
    every = looked_at(box)
    for at, points in enumerate(torch.split(every, pace.batch(len(every)))):
        if at:
            observer.check()
        given = points.clone()
        values = _call(f, given, name)
        if not torch.equal(given, points):
            raise OnelayerError(f"{name} changes its argument in place; begin it with x = x.clone()")
        if values.dtype != torch.float64:
            raise OnelayerError(f"{name} returned {values.dtype} for float64 points; {FORMAT}")


def looked_at(box: Box) -> Tensor:
    """Centre, corners and quasi-random points of the box, (C, *shape)."""
    return torch.cat([box.center[None], box.corners(CORNERS), box.sample(SAMPLES)])


def _pace(function: Callable[[Any], Any], box: Box, name: str) -> Pace:
    return pace_of(lambda x: _call(function, x, name), looked_at(box))


def _examine(function: Callable[[Any], Any], box: Box, name: str, pace: Pace, observer: Observer) -> tuple[int, ...]:
    """The output shape of f, after checking finiteness and that each point of a batch is treated alone."""
    points = looked_at(box)
    values = evaluate(lambda x: _call(function, x, name), points, pace, observer).double()
    if values.ndim == 0 or values.shape[0] != points.shape[0]:
        given = f"{points.shape[0]} points of shape {tuple(box.shape)}"
        raise OnelayerError(
            f"{name} turned {given} into shape {tuple(values.shape)}; "
            "it must keep the batch dimension, as in x[..., 0] + x[..., 1]"
        )
    if 0 in values.shape:
        raise OnelayerError(EMPTY)
    finite = torch.isfinite(values).reshape(points.shape[0], -1).all(1)
    bad = torch.nonzero(~finite)
    if len(bad):
        where = place(points[int(bad[0, 0])])
        raise OnelayerError(f"{name} is not finite at x = {where}; choose a box on which it is continuous")
    # The first and the last of the batch: who mixes rows hardly leaves both alone. A proof looks at thousands.
    for at in (0, points.shape[0] - 1):
        alone = _call(function, points[at : at + 1].clone(), name).double()
        among = values[at : at + 1]
        scale = 1 + among.abs().max().item() if among.numel() else 1.0
        if alone.shape != among.shape or not torch.allclose(alone, among, rtol=0, atol=1e-5 * scale):
            raise OnelayerError(
                f"{name} gives another value at x = {place(points[at])} alone than in a batch; "
                "it must treat every point of the batch alone"
            )
    return tuple(values.shape[1:])


def _call(function: Callable[[Any], Any], points: Tensor, name: str) -> Tensor:
    try:
        with torch.no_grad():
            values = function(points)
    except OnelayerError:
        raise
    except Exception as error:
        failure = f"{told(error)}{met_in(error)}"
        raise OnelayerError(
            f"{name} failed on a batch of shape {tuple(points.shape)} ({failure}); it must take "
            "(..., *box.shape) with torch functions, torch.where(x > 0, a, b) for a branch, or be given lipschitz="
        ) from error
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = str(values.dtype) if isinstance(values, Tensor) else type(values).__name__
        raise OnelayerError(f"{name} returned {kind}; it must return a real floating tensor")
    if values.is_meta:
        raise OnelayerError(f"{name} returned a tensor of the device meta, which has no values")
    return values.detach().cpu()


def _refuse_poles(formula: Formula, box: Box, name: str) -> None:
    found = find_pole(formula, looked_at(box).reshape(-1, box.dim))
    if found is not None:
        reason, point = found
        where = place(point.reshape(tuple(box.shape)))
        raise OnelayerError(f"{name} is undefined at x = {where} ({reason}); choose a box on which it is continuous")


def place(point: Tensor) -> str:
    """A point in words: up to six coordinates."""
    numbers = [f"{value:.6g}" for value in point.flatten().tolist()]
    shown = numbers[:6] + ["..."] * (len(numbers) > 6)
    return f"({', '.join(shown)})"
