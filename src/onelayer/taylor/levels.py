"""Long formulas on Taylor models: all operations of one kind that do not need each other are carried out at once.

The level of a node is one more than the largest level of its arguments, so nodes of one level are independent. Those
that share level and operation become one operation on a model of as many entries. A sum whose partial sums nobody
else reads is one operation too: a recorded network of 10^5 scalar nodes is a few dozen operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from onelayer.language.constants import CONSTANTS
from onelayer.language.formula import Formula, Node
from onelayer.language.operations import operation
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import call

NUMBER, SUM = "num", "sum"
Values = list[TaylorModel | None]
Place = tuple[int, int]  # group, position in it


@dataclass(frozen=True)
class Gather:
    """Entries of earlier groups, joined one after another, then put in order."""

    parts: tuple[tuple[int, Tensor], ...]  # group, positions in it
    order: Tensor

    @classmethod
    def of(cls, places: Sequence[Place]) -> Gather:
        """Places sorted by group, so that each group is read once."""
        positions: dict[int, list[int]] = {}
        for group, at in places:
            positions.setdefault(group, []).append(at)
        ranked = sorted(range(len(places)), key=lambda at: places[at][0])  # stable: within a group as asked for
        parts = tuple((group, _indices(positions[group])) for group in sorted(positions))
        return cls(parts, torch.argsort(_indices(ranked)))

    def __call__(self, values: Values) -> TaylorModel:
        found = [cast(TaylorModel, values[group])[:, index] for group, index in self.parts]
        if len(found) == 1:
            return found[0]
        return cast(TaylorModel, call("cat", found, -1))[:, self.order]


@dataclass(frozen=True)
class NodeBatch:
    """Nodes of one level and operation: each argument is gathered, or a tensor of numbers."""

    op: str
    value: float
    args: tuple[Gather | Tensor, ...]
    terms: int = 0  # of each sum, numbers not counted

    def on(self, values: Values, x: TaylorModel) -> TaylorModel:
        """The results of all members on boxes, (B, K)."""
        zero = x[:, :1] * 0.0
        args = [arg(values) if isinstance(arg, Gather) else arg.to(x.device) for arg in self.args]
        if self.op == "var":
            return x[:, args[0]]
        if self.op == NUMBER:
            return zero + args[0]
        if self.op in CONSTANTS:
            constant = CONSTANTS[self.op]
            return zero + zero.constant(constant.value, constant.radius)
        if self.op == SUM:
            return self._total(args, zero)
        return self._applied(args, zero)

    def _applied(self, args: list[Any], zero: TaylorModel) -> TaylorModel:
        """An operation of the table; only infix ones take numbers beside models."""
        # torch's functions of several tensors take no bare numbers.
        row = operation(self.op, self.value)
        if row.infix is None or not any(isinstance(arg, TaylorModel) for arg in args):
            args = [arg if isinstance(arg, TaylorModel) else zero + arg for arg in args]
        return cast(TaylorModel, row.torch(*args))

    def _total(self, args: list[TaylorModel | Tensor], zero: TaylorModel) -> TaylorModel:
        """Sums of ``terms`` models each, listed member by member, and of the numbers."""
        total: Any = zero
        for arg in args:
            if isinstance(arg, TaylorModel):
                arg = call("sum", call("reshape", arg, len(arg), -1, self.terms), -1)
            total = total + arg
        return cast(TaylorModel, total)


class Levels:
    """A formula made ready for evaluation on boxes."""

    def __init__(self, formula: Formula) -> None:
        self.shape = formula.output_shape
        numbers = _numbers(formula.nodes)
        nodes = _summed(formula, numbers)
        places: dict[int, Place] = {}
        self.groups: list[NodeBatch] = []
        for members in _grouped(nodes, formula.outputs, numbers):
            at = len(self.groups)
            places |= {member: (at, k) for k, member in enumerate(members)}
            self.groups.append(_group([nodes[m] for m in members], members, numbers, places))
        self.outputs = Gather.of([places[output] for output in formula.outputs])
        self.freed = self._freed()

    def _freed(self) -> list[list[int]]:
        """After each group, those that nobody reads any more."""
        last = dict.fromkeys(range(len(self.groups)), 0)
        for at, group in enumerate(self.groups):
            gathers = [arg for arg in group.args if isinstance(arg, Gather)]
            last |= {read: at for gather in gathers for read, _ in gather.parts}
        last |= {read: len(self.groups) for read, _ in self.outputs.parts}
        freed: list[list[int]] = [[] for _ in range(len(self.groups) + 1)]
        for group_at, end in last.items():
            freed[end].append(group_at)
        return freed

    def __call__(self, x: TaylorModel) -> TaylorModel:
        """The formula on boxes: x (B, D) -> (B, *output_shape); undecided where any operation on the way is."""
        values: Values = []
        for at, group in enumerate(self.groups):
            values.append(group.on(values, x))
            for old in self.freed[at]:
                values[old] = None
        return cast(TaylorModel, call("reshape", self.outputs(values), len(x), *self.shape))


def _numbers(nodes: Sequence[Node]) -> dict[int, float]:
    """The nodes that are a float, or minus one: exact, whoever evaluates them."""
    found: dict[int, float] = {}
    for at, node in enumerate(nodes):
        if node.op == NUMBER:
            found[at] = node.value
        elif node.op == "neg" and node.args[0] in found:
            found[at] = -found[node.args[0]]
    return found


def _summed(formula: Formula, numbers: dict[int, float]) -> dict[int, Node]:
    """The nodes by position, partial sums that only one sum reads taken into it; the numbers among terms come last."""
    uses = Counter(formula.outputs)
    for node in formula.nodes:
        uses.update(node.args)
    found: dict[int, Node] = dict(enumerate(formula.nodes))
    terms: dict[int, list[int]] = {}
    # From the leaves up: a sum takes over the terms of partial sums that nobody else reads.
    for at, node in enumerate(formula.nodes):
        if node.op != "add":
            continue
        parts = []
        for arg in node.args:
            if arg in terms and uses[arg] == 1:
                parts.append(terms.pop(arg))
                del found[arg]
            else:
                parts.append([arg])
        terms[at] = _joined(parts)
    for at, args in terms.items():
        if len(args) > 2:
            numbers_last = sorted(args, key=lambda arg: arg in numbers)
            found[at] = Node(SUM, tuple(numbers_last))
    return found


def _joined(parts: list[list[int]]) -> list[int]:
    """The lists as one, the longest of them taken over: a chain of sums grows at one end."""
    longest, *others = sorted(parts, key=len, reverse=True)
    for part in others:
        longest.extend(part)
    return longest


def _grouped(nodes: dict[int, Node], outputs: Sequence[int], numbers: dict[int, float]) -> Iterator[list[int]]:
    """Members of each group, level by level; numbers only where they are outputs."""
    level = dict.fromkeys(numbers, 0)
    groups: dict[tuple[int, str, float, tuple[bool, ...]], list[int]] = {}
    for at, node in nodes.items():
        if at not in numbers:
            level[at] = 1 + max((level[arg] for arg in node.args), default=0)
            # All variables are one group: their numbers are positions in x, not parameters of an operation.
            value = 0.0 if node.op == "var" else node.value
            fixed = tuple(arg in numbers for arg in node.args)
            key = level[at], node.op, value, fixed
            groups.setdefault(key, []).append(at)
    constants = [at for at in outputs if at in numbers]
    if constants:
        yield constants
    for key in sorted(groups):
        yield groups[key]


def _group(
    nodes: Sequence[Node], members: Sequence[int], numbers: dict[int, float], places: dict[int, Place]
) -> NodeBatch:
    first = nodes[0]
    if members[0] in numbers:
        return NodeBatch(NUMBER, 0.0, (_floats([numbers[member] for member in members]),))
    if first.op == "var":
        return NodeBatch("var", 0.0, (_indices([int(node.value) for node in nodes]),))
    # One column per argument; members agree on which arguments are numbers.
    columns = list(zip(*(node.args for node in nodes), strict=True))
    if first.op == SUM:
        return _sums(columns, numbers, places)
    args = tuple(_argument(column, numbers, places) for column in columns)
    return NodeBatch(first.op, first.value, args)


def _argument(column: Sequence[int], numbers: dict[int, float], places: dict[int, Place]) -> Gather | Tensor:
    """One argument of all members: numbers as a tensor, or where to find the models."""
    if column[0] in numbers:
        return _floats([numbers[arg] for arg in column])
    return Gather.of([places[arg] for arg in column])


def _sums(columns: Sequence[Sequence[int]], numbers: dict[int, float], places: dict[int, Place]) -> NodeBatch:
    """Sums of equally many terms each; their models are listed member by member."""
    varying = [column for column in columns if column[0] not in numbers]
    fixed = [_argument(column, numbers, places) for column in columns if column[0] in numbers]
    models = [places[arg] for terms in zip(*varying, strict=True) for arg in terms]
    gathered = [Gather.of(models)] if models else []
    return NodeBatch(SUM, 0.0, (*gathered, *fixed), len(varying))


def _indices(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")


def _floats(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device="cpu")
