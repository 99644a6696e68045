"""Where the points of a batch lie in every array of a graph, for batches of any size at once.

Lemma: let every array have at most one axis whose size depends on the number B of points, of the size before * B *
after, and let its entries at point b depend on point b alone and not on B. Then what the rules below allow has this
property again, so by induction over the nodes a result of B rows is the network of one point, row by row. The sizes of
all other axes are the same for every B. Whatever has no rule here, or not such arguments, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onelayer.network.counts import Count, at_one, counted, mixed, settled
from onelayer.network.onnx_rules import NAMES, axes_of, whole_numbers
from onelayer.network.onnx_tables import FOLDED

# Arguments that are sizes, and may depend on the number of points.
SIZES = {"Reshape": (1,), "Expand": (1,), "ConstantOfShape": (0,), "Slice": (2,)}
END = 2**31 - 1  # what exporters write for the end of an axis, or more
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Lie:
    """The entries of axis number ``axis`` are those of (before, points, after), row by row."""

    axis: int
    before: int = 1
    after: int = 1


@dataclass(frozen=True)
class Traced:
    """A node with its arguments for one point, how the points lie in each, and its first result for one point."""

    args: Sequence[Any]
    lies: Sequence[Lie | None]
    settings: dict[str, Any]
    result: Any

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of the arguments; one that is not given has none."""
        return [tuple(arg.shape) if hasattr(arg, "shape") else () for arg in self.args]

    @property
    def rank(self) -> int:
        """Axes of the first argument."""
        return len(self.shapes[0])

    def axis(self, default: int) -> int:
        """The axis that the node names, counted from the front."""
        return int(self.settings.get("axis", default)) % self.rank

    def first(self, *forbidden: int) -> Lie:
        """How points lie in the first argument: in that alone, and along none of these axes."""
        lie, *rest = self.lies
        if lie is None or any(rest) or lie.axis in forbidden:
            mixed()
        return lie


class Batch:
    """How the points lie in every array of a graph, by its name."""

    def __init__(self, point: str) -> None:
        self.lies = {point: Lie(0)}

    def followed(self, node: Any, args: Sequence[Any], settings: dict[str, Any], results: Sequence[Any]) -> list[Any]:
        """The results of a node, whose points are known from now on."""
        found = Traced(args, [self.lies.get(name) for name in node.input], settings, results[0])
        if node.op_type == "Shape" and found.lies[0] is not None:
            return [settled(_sizes(found))]
        sizes = [args[at] for at in SIZES.get(node.op_type, ()) if at < len(args)]
        if any(found.lies) or any(map(counted, sizes)):
            rule = _RULES.get(node.op_type)
            lie = mixed() if rule is None else rule(found)
            # An empty name stands for an output that is not wanted.
            self.lies.update(dict.fromkeys(filter(None, node.output), lie))
        return [settled(result) for result in results]

    def need_rows(self, name: str) -> None:
        """The result has one row for each point."""
        if self.lies.get(name) != Lie(0):
            mixed()


def for_one(op: str, args: Sequence[Any]) -> list[Any]:
    """Arguments of a node as a batch of one point has them."""
    sizes = SIZES.get(op, ())
    return [at_one(arg) if at in sizes else arg for at, arg in enumerate(args)]


def _sizes(node: Traced) -> Any:
    """The shape, with the number of points where it is."""
    lie = node.first()
    sizes: list[Any] = list(node.shapes[0])
    sizes[lie.axis] = Count(lie.before * lie.after)
    found = np.empty(len(sizes), dtype=object)
    found[:] = sizes
    return found[node.settings.get("start", 0) : node.settings.get("end")]


def _broadcast(shapes: Sequence[Shape], lies: Sequence[Lie | None]) -> Lie:
    """Arrays entry by entry: the points lie in the same place in all, or an array is the same for all of them."""
    rank = max(map(len, shapes))
    pairs = list(zip(shapes, lies, strict=True))
    found = {replace(lie, axis=lie.axis + rank - len(shape)) for shape, lie in pairs if lie is not None}
    if len(found) != 1:
        mixed()
    (lie,) = found
    for shape, own in pairs:
        at = lie.axis - (rank - len(shape))
        if own is None and at >= 0 and shape[at] != 1:
            mixed()
    return lie


def _entrywise(node: Traced) -> Lie:
    return _broadcast(node.shapes, node.lies)


def _product(node: Traced) -> Lie:
    """Rows with columns, entry by entry, once what is summed over is taken away."""
    (first, second), (a, b) = node.shapes, node.lies
    if min(len(first), len(second)) < 2 or (a and a.axis == len(first) - 1) or (b and b.axis == len(second) - 2):
        mixed()
    return _broadcast([(*first[:-1], 1), (*second[:-2], 1, second[-1])], node.lies)


def _gemm(node: Traced) -> Lie:
    a, b, *rest = node.lies
    if b is not None or (a and a.axis != 0):
        mixed()
    return _broadcast([(node.shapes[0][0], 1), *node.shapes[2:]], [a, *rest])


def _reduced(node: Traced) -> Lie:
    axes = {axis % node.rank for axis in axes_of(list(node.args), node.settings) or range(node.rank)}
    lie = node.first(*axes)
    gone = 0 if node.settings.get("keepdims", 1) else sum(axis < lie.axis for axis in axes)
    return replace(lie, axis=lie.axis - gone)


def _weighed(node: Traced) -> Lie:
    return node.first(node.axis(-1))


def _layer_norm(node: Traced) -> Lie:
    return node.first(node.rank - 1)


def _batch_norm(node: Traced) -> Lie:
    return node.first(1)


def _reread(node: Traced, at: int) -> Lie:
    """The same entries in the same order in another shape, whose axis ``at`` holds the points.

    Entry (i, b, j) of outer x points x inner stands at that place in both shapes, so their outer and inner sizes agree.
    """
    lie = node.first()
    own = node.shapes[0]
    outer = math.prod(own[: lie.axis]) * lie.before
    inner = math.prod(own[lie.axis + 1 :]) * lie.after
    shape = tuple(node.result.shape)
    before, odd = divmod(outer, math.prod(shape[:at]))
    after, even = divmod(inner, math.prod(shape[at + 1 :]))
    if odd or even or before * after != shape[at]:
        mixed()
    return Lie(at, before, after)


def _reshaped(node: Traced) -> Lie:
    """The one size that depends on the points, or else the one that is left."""
    if any(node.lies[1:]):
        mixed()
    lie = replace(node, lies=node.lies[:1]).first()
    sizes = _plain(node.args[1])
    # Zero is the size that was there.
    kept = [lie.axis] if not node.settings.get("allowzero") and sizes[lie.axis : lie.axis + 1] == [0] else []
    holding = [*kept, *_places(sizes, None)] or _places(sizes, -1)
    return _reread(node, holding[0]) if len(holding) == 1 else mixed()


def _plain(sizes: Any) -> list[int | None]:
    """Sizes as a list, None where one depends on the points."""
    return [None if isinstance(size, Count) else size for size in np.asarray(sizes).reshape(-1).tolist()]


def _places(sizes: list[int | None], wanted: int | None) -> list[int]:
    return [at for at, size in enumerate(sizes) if size == wanted]


def _flattened(node: Traced) -> Lie:
    start = node.settings.get("axis", 1)
    before = start + node.rank if start < 0 else start
    return _reread(node, 0 if node.first().axis < before else 1)


def _squeezed(node: Traced) -> Lie:
    # Without axes that of the points would go where there is one point, and stay elsewhere.
    axes = {axis % node.rank for axis in axes_of(list(node.args), node.settings) or range(node.rank)}
    lie = node.first(*axes)
    return replace(lie, axis=lie.axis - sum(axis < lie.axis for axis in axes))


def _unsqueezed(node: Traced) -> Lie:
    lie = node.first()
    rank = len(node.result.shape)
    new = {axis % rank for axis in axes_of(list(node.args), node.settings) or ()}
    old = [axis for axis in range(rank) if axis not in new]
    return replace(lie, axis=old[lie.axis])


def _turned(node: Traced) -> Lie:
    lie = node.first()
    order = node.settings.get("perm") or list(range(node.rank))[::-1]
    return replace(lie, axis=list(order).index(lie.axis))


def _sliced(node: Traced) -> Lie:
    """All of the points, from the first one on."""
    lie = node.first()
    starts, ends = (np.asarray(node.args[at]).reshape(-1).tolist() for at in (1, 2))
    axes = axes_of(list(node.args), {}, 3) or list(range(len(starts)))
    steps = axes_of(list(node.args), {}, 4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if axis % node.rank == lie.axis:
            if (start, step) != (0, 1) or not _is_end(end, lie):
                mixed()
        elif isinstance(end, Count):
            mixed()
    return lie


def _is_end(end: Any, lie: Lie) -> bool:
    if isinstance(end, Count):
        return end.each == lie.before * lie.after
    return bool(end >= END)


def _gathered(node: Traced) -> Lie:
    axis = node.axis(0)
    lie = node.first(axis)
    more = np.ndim(node.args[1]) - 1 if axis < lie.axis else 0
    return replace(lie, axis=lie.axis + more)


def _split(node: Traced) -> Lie:
    return node.first(node.axis(0))


def _joined(node: Traced) -> Lie:
    lie = node.lies[0]
    if lie is None or lie.axis == node.axis(0) or any(one != lie for one in node.lies):
        mixed()
    return lie


def _expanded(node: Traced) -> Lie:
    """By sizes: an array of them entry by entry."""
    own, *of_sizes = node.lies
    if any(of_sizes):
        mixed()
    lie = _along(node.args[1], own)
    return _broadcast([node.shapes[0], tuple(whole_numbers(at_one(node.args[1])))], [own, lie])


def _filled(node: Traced) -> Lie | None:
    return mixed() if any(node.lies) else _along(node.args[0], None)


def _along(sizes: Any, own: Lie | None) -> Lie | None:
    """How points lie in an array of these sizes, which is as ``own`` from the last axis on, or one row for each."""
    places = _places(_plain(sizes), None)
    if not places:
        return None
    lie = own or Lie(0)
    if len(places) > 1 or whole_numbers(at_one(sizes))[places[0]] != lie.before * lie.after:
        mixed()
    return replace(lie, axis=places[0])


_OTHERS = ("Identity", "Dropout", "Cast", "LeakyRelu", "Elu", "Gelu", "Softplus", "Clip", "Min", "Max")
_ENTRYWISE = (*NAMES, *FOLDED, *_OTHERS)
_RULES: dict[str, Callable[[Traced], Lie | None]] = {
    **dict.fromkeys(_ENTRYWISE, _entrywise),
    **dict.fromkeys(("ReduceSum", "ReduceMean"), _reduced),
    "MatMul": _product,
    "Gemm": _gemm,
    "Softmax": _weighed,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Reshape": _reshaped,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Transpose": _turned,
    "Slice": _sliced,
    "Gather": _gathered,
    "Split": _split,
    "Concat": _joined,
    "Expand": _expanded,
    "ConstantOfShape": _filled,
}
