"""From syntax tree to text that parses back to the same tree; shared parts become ``t1 = ...;`` lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from onelayer.language.knots import Content
from onelayer.language.operations import POWER, operation
from onelayer.language.tree import Node

_MAX_HEIGHT = 16  # deeper expressions are named, so that the text stays far below the parser's nesting limit
_MAX_WIDTH = 4000  # and so are long ones
_PARTS = ("t", "u", "v", "w", "part_")  # first letters of such names: the first that no variable has
_NEG_LEVEL, _POWER_LEVEL, _ATOM_LEVEL = 2, 4, 5  # how strongly they bind: sums 1, products 2


def _number_text(value: float) -> str:
    """The shortest decimal that reads back as the same float64."""
    if value < 1e15 and value == int(value):
        return str(int(value))
    return repr(value)


def _free_name(names: Sequence[str]) -> str:
    """What bindings are called, before their number: a letter that begins no variable."""
    taken = {re.sub(r"[0-9]+$", "", name) for name in names}
    return next((letter for letter in _PARTS if letter not in taken), "part_of_f_")


def write(nodes: Sequence[Node], outputs: Sequence[int], names: Sequence[str] = ()) -> str:
    """The statements of a formula: bindings first, then the outputs, separated by ``;``.

    Variables are called ``names``, or x1 ... xD.
    """
    part = _free_name(names)
    uses = Counter(chain.from_iterable(node.args for node in nodes))
    lines: list[str] = []
    done: list[tuple[str, int, int]] = []  # text, binding strength, height of the tree
    for at, node in enumerate(nodes):
        text, level, height = _one(node, [done[arg] for arg in node.args], names)
        long = height > _MAX_HEIGHT or len(text) > _MAX_WIDTH
        shared = uses[at] > 1 and not _plain(node, nodes)
        if uses[at] and (long or shared):
            name = f"{part}{len(lines) + 1}"
            lines.append(f"{name} = {text}")
            text = name
            level = _ATOM_LEVEL
            height = 0
        done.append((text, level, height))
    return ";\n".join([*lines, *(done[at][0] for at in outputs)])


def _plain(node: Node, nodes: Sequence[Node]) -> bool:
    """Leaves and negative literals are repeated, not named."""
    return not node.args or (node.op == "neg" and not nodes[node.args[0]].args)


def _leaf(node: Node, names: Sequence[str]) -> str:
    """A variable, a number or a constant."""
    if node.op == "var":
        at = int(node.value)
        if names:
            return names[at]
        return f"x{at + 1}"
    if node.op == "num":
        return _number_text(node.value)
    return node.op


def _one(node: Node, args: Sequence[tuple[str, int, int]], names: Sequence[str]) -> tuple[str, int, int]:
    if not args:
        return _leaf(node, names), _ATOM_LEVEL, 0
    height = 1 + max(arg[2] for arg in args)
    infix = operation(node.op, node.value).infix
    if infix is not None:
        # Left-associative chains keep their height: the parser reads them in a loop.
        height = max(args[0][2], args[1][2] + 1, 1)
        level = infix.level
        return f"{_at(args[0], level)} {infix.sign} {_at(args[1], level + 1)}", level, height
    if node.op == "where":
        return f"where({args[0][0]} > 0, {args[1][0]}, {args[2][0]})", _ATOM_LEVEL, height
    if node.op == "neg":
        return f"-{_at(args[0], _POWER_LEVEL)}", _NEG_LEVEL, height
    if node.op == POWER:
        return f"{_at(args[0], _ATOM_LEVEL)}**{int(node.value)}", _POWER_LEVEL, height
    inside = ", ".join(arg[0] for arg in args)
    if isinstance(node.value, Content):
        inside = f"{inside}, {node.value.text()}"
    return f"{node.op}({inside})", _ATOM_LEVEL, height


def _at(part: tuple[str, int, int], level: int) -> str:
    if part[1] >= level:
        return part[0]
    return f"({part[0]})"
