"""What margins of a condition err by when they are computed in a format from outputs and inputs, node by node.

Lemma: an operation returns the value at what it was given, within its own roundings; what its arguments err by passes
on as steps.py says of the same operation in a network. A number of the condition is rounded to the format first.
"""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.activations import ACTIVATIONS
from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.entries import PAIRS, Entries, Entry
from onelayer.checker.functions import Kinks
from onelayer.checker.passes import NetworkPass
from onelayer.checker.steps import Evaluation
from onelayer.language.formula import Formula, Node

STEPS = {"min": "minimum", "max": "maximum"}  # operations that steps have by other names


def margin_errors(
    margins: Formula, values: Sequence[Taylor], run: Evaluation, execution: NetworkPass, kinks: Kinks
) -> list[arb]:
    """A bound for each margin; infinite where an operation on its way is none of a network, or says no bound."""
    unknown = constant(arb("nan"), values[0].order), arb.pos_inf()
    cases = Kinks(kinks.cases)
    entries: list[Entry] = []
    for node in margins.nodes:
        args = [entries[at] for at in node.args]
        found = _leaf(node, values, execution) or _operation(node, args, run, execution, cases)
        entries.append(found or unknown)
    return [entries[at][1] for at in margins.outputs]


def _leaf(node: Node, values: Sequence[Taylor], execution: NetworkPass) -> Entry | None:
    if node.op == "var":
        return values[int(node.value)], ZERO
    if node.op == "num":
        number = float(node.value)
        return constant(arb(number), values[0].order), execution.cast(number) + execution.tiny
    return None


def _operation(
    node: Node, args: Sequence[Entry], run: Evaluation, execution: NetworkPass, kinks: Kinks
) -> Entry | None:
    name = STEPS.get(node.op, node.op)
    if name in PAIRS:
        return PAIRS[name](execution, args[0], args[1], kinks)
    if name == "pow" and node.value == 2:
        name = "square"
    if name not in ACTIVATIONS:
        return None
    ((item, error),) = args
    return run.activated(Entries([item], [error]), ACTIVATIONS[name], kinks).pairs()[0]
