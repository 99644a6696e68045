"""From syntax tree to text that parses back to the same tree; shared parts become ``t1 = ...;`` lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from onelayer.language.knots import Content, literal
from onelayer.language.operations import POWER, operation
from onelayer.language.tree import Node

_MAX_HEIGHT = 16  # deeper expressions are named, so that the text stays far below the parser's nesting limit
_MAX_WIDTH = 4000  # and so are long ones
_PARTS = ("t", "u", "v", "w", "part_")  # first letters of such names: the first that no variable has
_NEG_LEVEL, _POWER_LEVEL, _ATOM_LEVEL = 2, 4, 5  # how strongly they bind: sums 1, products 2


class Written(NamedTuple):
    """A part of a formula: its text, how strongly its loosest operation binds, and the height of its tree."""

    text: str
    level: int
    height: int


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
    done: list[Written] = []
    for at, node in enumerate(nodes):
        args = [done[arg] for arg in node.args]
        text, level, height = _one(node, args, names)
        # Named parts keep the text as long as the tree: written out, what is shared would grow without bound.
        long = height > _MAX_HEIGHT or len(text) > _MAX_WIDTH
        shared = uses[at] > 1 and not _plain(node, nodes)
        if uses[at] and (long or shared):
            name = f"{part}{len(lines) + 1}"
            lines.append(f"{name} = {text}")
            text = name
            level = _ATOM_LEVEL
            height = 0
        done.append(Written(text, level, height))
    lines += [done[at].text for at in outputs]
    return ";\n".join(lines)


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
        return literal(node.value)
    return node.op


def _one(node: Node, args: Sequence[Written], names: Sequence[str]) -> Written:
    if not args:
        return Written(_leaf(node, names), _ATOM_LEVEL, 0)
    height = 1 + max(arg.height for arg in args)
    infix = operation(node.op, node.value).infix
    if infix is not None:
        left, right = args
        level = infix.level
        text = f"{_at(left, level)} {infix.sign} {_at(right, level + 1)}"
        # Left-associative chains keep their height: the parser reads them in a loop.
        return Written(text, level, max(left.height, right.height + 1, 1))
    if node.op == "where":
        condition, first, second = (arg.text for arg in args)
        return Written(f"where({condition} > 0, {first}, {second})", _ATOM_LEVEL, height)
    if node.op == "neg":
        return Written(f"-{_at(args[0], _POWER_LEVEL)}", _NEG_LEVEL, height)
    if node.op == POWER:
        base = _at(args[0], _ATOM_LEVEL)
        return Written(f"{base}**{int(node.value)}", _POWER_LEVEL, height)
    inside = ", ".join(arg.text for arg in args)
    if isinstance(node.value, Content):
        inside = f"{inside}, {node.value.text()}"
    return Written(f"{node.op}({inside})", _ATOM_LEVEL, height)


def _at(part: Written, level: int) -> str:
    """The part where something binds that strongly: in parentheses if it binds less."""
    if part.level >= level:
        return part.text
    return f"({part.text})"
