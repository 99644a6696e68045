"""How a call of a torch function on symbolic tensors is understood: moved, cast, recorded, or refused by name.

Every operation declares the arguments of its torch signature that it understands; any other argument is refused by
name, so that nothing that changes the value goes unread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.formats import spelled
from onelayer.recording.beside import run_beside
from onelayer.recording.formats import settled
from onelayer.recording.recorded import CHOOSE
from onelayer.recording.symbolic import Recording, Symbolic, Truth, find_tape, lift


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Torch functions and methods that move entries of their first argument without computing.
STRUCTURAL = _words("""
    getitem reshape view reshape_as view_as unsqueeze squeeze flatten unflatten ravel expand expand_as broadcast_to
    permute transpose swapaxes swapdims movedim moveaxis t adjoint flip fliplr flipud roll rot90 chunk split
    tensor_split unbind narrow select index_select take_along_dim gather tile repeat repeat_interleave clone contiguous
    diagonal diag diag_embed tril triu unfold
""")
# Those that put the entries of several tensors together.
JOINING = _words("""
    stack cat concat concatenate hstack vstack column_stack meshgrid atleast_1d atleast_2d atleast_3d broadcast_tensors
    block_diag
""")
# Those of them that put zeros where there was no entry.
FILLING = _words("tril triu diag diag_embed")
# Those that give a view where the layout in memory allows it, and a copy elsewhere.
LAID_OUT = _words("reshape reshape_as flatten unflatten ravel contiguous")
SHAPED_LIKE = _words("reshape_as view_as expand_as")
IDENTITY = _words("detach requires_grad cpu positive pos")
CASTS = {
    "double": torch.float64,
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "byte": torch.uint8,
    "bool": torch.bool,
    "cfloat": torch.complex64,
    "cdouble": torch.complex128,
}
MOVING = STRUCTURAL | JOINING
CASTING = {*CASTS, "to", "type", "type_as"}
DISCONTINUOUS = _words("""
    round trunc frac fix sgn fmod argmax argmin argsort bucketize searchsorted equal isclose signbit
""")
HINTS = {
    "empty_like": "its values are undefined; use torch.zeros_like",
    "new_empty": "its values are undefined; use new_zeros",
    "det": "write the determinant out, as in a * d - b * c",
    "linalg_det": "write the determinant out, as in a * d - b * c",
    "cuda": "f is taken on the CPU; leave it out",
    "msort": "it sorts across the batch; use torch.sort(x, dim=-1).values",
    "copy_": "build the result with torch.stack or torch.cat",
}
NUMBERS_FIRST = "choose numbers by each comparison first"
UNKNOWN = "it is not in the formula language; write f with operations that are, or give lipschitz="
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}
Operation = TypeVar("Operation", bound=Callable[..., Any])
OPERATIONS: dict[str, Callable[..., Any]] = {}
_SIGNATURES: dict[str, tuple[inspect.Signature, frozenset[str]]] = {}


def operation(*names: str, neutral: str = "") -> Callable[[Operation], Operation]:
    """Register a function (tape, *args, **kwargs) that records the torch functions called ``names``.

    Its parameters have torch's names. One called ``inplace`` is obeyed here: the result is written into the first
    argument as well. ``neutral`` names further arguments, those that do not change any value.
    """

    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(names, function))
        known = (inspect.signature(function), _words(neutral))
        _SIGNATURES.update(dict.fromkeys(names, known))
        return function

    return register


def dispatch(func: Callable[..., Any], full_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record one torch function; whatever is raised is remembered, in case that the code catches it."""
    tape = find_tape((args, kwargs))
    if tape is None:
        raise UnsupportedOperation(full_name, "it was called without any value of x")
    # What an operation is made of was not called by f.
    outermost, tape.inside = not tape.inside, True
    try:
        result = _understood(tape, func, full_name, args, kwargs)
        return run_beside(tape, full_name, func, args, kwargs, result) if outermost else result
    except Exception as error:
        tape.refused = tape.refused or error
        raise
    finally:
        tape.inside = not outermost


def _understood(
    tape: Recording, func: Callable[..., Any], full_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The result of one torch function."""
    name, in_place = _spelled(full_name)
    # As a method it is of the first choice, and the condition comes second.
    if func is Tensor.where:
        args = _condition_first(args)
    if name in DISCONTINUOUS:
        raise UnsupportedOperation(name, f"it is discontinuous; {CHOOSE}, or use torch.floor, torch.sign")
    # A plain tensor holds numbers: there is no place in it for what depends on x.
    if in_place and not isinstance(args[0], Symbolic):
        raise UnsupportedOperation(full_name, "writing x into a plain tensor; build the result with torch.stack or cat")
    if name in CASTING:
        return _cast(name, args, kwargs)
    if name in IDENTITY:
        return args[0] if args else kwargs["input"]
    if name in MOVING:
        _refuse_elsewhere(name, args, kwargs)
        return _written(tape, func, name, in_place, args, kwargs)
    if name not in OPERATIONS:
        raise UnsupportedOperation(name, HINTS.get(name, HINTS.get(full_name, UNKNOWN)))
    return _recorded(tape, name, full_name, in_place, args, kwargs)


Symbolic.dispatch = staticmethod(dispatch)


def _condition_first(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of x.where(condition, other) in the order of torch.where."""
    if len(args) != 3:
        raise UnsupportedOperation("where", "write torch.where(condition, a, b)")
    first, condition, other = args
    return condition, first, other


def same_type(dtype: torch.dtype | None) -> None:
    """Refuse a cast: f is certified in float64, and a narrower float or an integer is another function."""
    if dtype not in (None, torch.float64):
        kind = spelled(dtype)
        raise UnsupportedOperation(
            f"cast to {kind}", "f is taken in float64; leave the cast out (module.double() for a module)"
        )


def _spelled(full_name: str) -> tuple[str, bool]:
    """The plain name of a function or operator, and whether it writes into its first argument."""
    name = full_name.strip("_")
    if full_name == "__setitem__":
        return name, True
    # x += y is __iadd__, and __invert__ begins alike: only what is known without the i counts.
    if full_name.startswith("__i") and name[1:] in OPERATIONS | dict.fromkeys(DISCONTINUOUS):
        return name[1:], True
    return name, full_name.endswith("_") and not full_name.endswith("__") and name not in IDENTITY


def _bound(tape: Recording, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments as the recorded version of the operation names them."""
    signature, neutral = _SIGNATURES[name]
    named = {_NUMPY_NAMES.get(key, key): value for key, value in kwargs.items() if key not in neutral}
    if named.get("out") is None:
        named.pop("out", None)
    for key in named:
        if key not in signature.parameters:
            raise UnsupportedOperation(f"{name}({key}=)", "this argument is not recorded; leave it out")
    try:
        return signature.bind(tape, *args, **named)
    except TypeError as error:
        raise UnsupportedOperation(name, str(error)) from None


def _recorded(
    tape: Recording, name: str, full_name: str, in_place: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    bound = _bound(tape, name, args, kwargs)
    result = settled(tape, name, bound.arguments, OPERATIONS[name](*bound.args, **bound.kwargs))
    # Whoever holds a view of the argument is to see the result too.
    if (in_place or bound.arguments.get("inplace")) and result is not args[0]:
        return args[0].write(full_name if in_place else f"{name}(inplace=True)", result)
    return result


def _same_as(value: Any, *, by_class: bool) -> None:
    """Refuse a cast to the type that an argument stands for; ``by_class``: also of a class of tensors."""
    if isinstance(value, torch.dtype):
        same_type(value)
    elif isinstance(value, Tensor | Symbolic):
        same_type(value.dtype)
    elif by_class:
        same_type(None if value in ("torch.DoubleTensor", torch.DoubleTensor) else _tensor_type(value))


def _cast(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Casts to float64 and moves between devices leave every value as it is; all other casts are refused."""
    x, *rest = args
    if isinstance(x, Truth):
        return x if _leaves_bools(name, rest, kwargs) else _cast(name, (_as_bools(x), *rest), kwargs)
    if name in CASTS:
        same_type(CASTS[name])
        return _in_float64(x)
    # x.type() asks, x.type(t) casts.
    if name == "type" and not rest and not kwargs:
        return "torch.DoubleTensor"
    for value in (*rest, *kwargs.values()):
        _same_as(value, by_class=name == "type")
    if not isinstance(x, Symbolic):
        return _lift_like(x, (args, kwargs))
    return _asked_for(name, x, rest, kwargs)


def _asked_for(name: str, x: Symbolic, rest: Sequence[Any], kwargs: Mapping[str, Any]) -> Symbolic:
    """x in float64 where that was asked for, and as a copy where that was."""
    found = _in_float64(x) if name == "type" or _names_a_type(rest, kwargs) else x
    return Symbolic(x.tape, found.ids.clone(), found.kind) if _asks_for_copy(rest, kwargs) else found


def _as_bools(x: Truth) -> Symbolic:
    """Numbers 0 and 1 in the format of comparisons."""
    return Symbolic(x.tape, x.numbers().ids, torch.bool)


def _leaves_bools(name: str, rest: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether conditions stay what they are: asked for as bools, or at a device."""
    moved = name == "to" and not (_names_a_type(rest, kwargs) or _asks_for_copy(rest, kwargs))
    return name == "bool" or moved


def _names_a_type(rest: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether x.to(...) asks for a format, and not for a device alone."""
    return any(isinstance(value, torch.dtype | Tensor | Symbolic) for value in (*rest, *kwargs.values()))


def _in_float64(x: Symbolic) -> Symbolic:
    """The same numbers in float64: the tensor itself, or a copy of one of another format."""
    if x.kind == torch.float64:
        return x
    # Torch's default may be float64: then it is the tensor itself.
    return Symbolic(x.tape, x.tape.twins.taken(x.ids, torch.clone))


def _asks_for_copy(rest: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    # Of two bools by position the first is non_blocking, which copies nothing.
    bools = [value for value in rest if isinstance(value, bool)]
    return bool(kwargs.get("copy", False)) or bools[1:] == [True]


def _lift_like(value: Any, near: Any) -> Symbolic:
    """A plain tensor as a symbolic one on the tape of the symbolic tensors among ``near``."""
    tape = find_tape(near)
    if tape is None:
        raise UnsupportedOperation("lift", "no value of x is involved")
    return lift(tape, value)


def _tensor_type(value: Any) -> torch.dtype:
    """The format behind a legacy name such as torch.LongTensor or "torch.cuda.FloatTensor"."""
    text = value
    if not isinstance(value, str):
        text = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
    kind = text.rsplit(".", 1)[-1].removesuffix("Tensor").lower()
    if kind not in CASTS:
        raise UnsupportedOperation("type", f"unknown format {text}")
    return CASTS[kind]


def _moved(tape: Recording, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply torch's own function to positions. Of a single tensor everything but its entries must be free of x."""
    if name in JOINING:
        return _joined(tape, func, name, args, kwargs)
    shaped = {key: _shape_of(name, value) for key, value in kwargs.items()}
    first, *rest = args if args else (shaped.pop("input", None),)
    rest = [_shape_of(name, value) for value in rest]
    # Which entry is taken would change with x, and so jump.
    if find_tape((rest, shaped)) is not None:
        raise UnsupportedOperation(name, "an index that depends on x is discontinuous")
    if isinstance(first, Truth):
        _refuse_filling(name)
        return Truth(tape, func(first.ids, *rest, **shaped))
    ids = lift(tape, first).ids
    kind = getattr(first, "dtype", torch.float64)
    if name in LAID_OUT:
        return Symbolic(tape, tape.twins.taken(ids, lambda entries: func(entries, *rest, **shaped)), kind)
    return _wrap(tape, name, func(ids, *rest, **shaped), kind)


def _written(
    tape: Recording, func: Any, name: str, in_place: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Entries moved, and where zeros come between them in place, written; all else in place changes a shape alone."""
    if in_place and name in FILLING:
        return args[0].write(f"{name}_", _moved(tape, getattr(torch, name), name, args, kwargs))
    return _moved(tape, func, name, args, kwargs)


def _refuse_elsewhere(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if "out" in kwargs or any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
        raise UnsupportedOperation(name, "neither out= nor a reinterpreting dtype can be recorded")


def _refuse_filling(name: str) -> None:
    # Position 0 is the number 0 among numbers, and among conditions the first of them.
    if name in FILLING:
        raise UnsupportedOperation(f"{name} of a comparison", f"{NUMBERS_FIRST}, torch.where(x > 0, 1, 0)")


def _joined(tape: Recording, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Torch's own function of several tensors, applied to the positions of each."""
    named = {key: _entries(tape, value) for key, value in kwargs.items()}
    given = [_entries(tape, arg) for arg in args]
    parts = {"given": args, **kwargs}
    return settled(tape, name, parts, _wrap(tape, name, func(*given, **named)))


def _shape_of(name: str, value: Any) -> Any:
    """A symbolic tensor that only gives its shape, as a plain one."""
    if name in SHAPED_LIKE and isinstance(value, Symbolic):
        return value.ids
    return value


def _entries(tape: Recording, value: Any) -> Any:
    if isinstance(value, Truth):
        raise UnsupportedOperation("stacked comparisons", f"{NUMBERS_FIRST}, torch.where(x > 0, 1, 0)")
    if isinstance(value, (Symbolic, Tensor)):
        return lift(tape, value).ids
    if isinstance(value, (list, tuple)) and any(isinstance(part, (Symbolic, Truth, Tensor)) for part in value):
        return [_entries(tape, part) for part in value]
    return value


def _wrap(tape: Recording, name: str, moved: Any, kind: torch.dtype = torch.float64) -> Any:
    if not isinstance(moved, Tensor):
        return tuple(_wrap(tape, name, part, kind) for part in moved)
    # Positions are whole numbers: what comes back in another type has computed with them.
    if moved.dtype != torch.int64:
        raise UnsupportedOperation(name, "it does more than move entries")
    return Symbolic(tape, moved, kind)
