"""Ranges of recorded nodes over the box of the recording, by interval arithmetic in balls."""

from __future__ import annotations

import math

from flint import arb

from onelayer.ground import ball_precision
from onelayer.language.balls import ball, below
from onelayer.recording.symbolic import Recording

# Of the balls of a range, a little more than float64 has.
_BITS = 64


def range_over(tape: Recording, at: int) -> tuple[float, float]:
    """Bounds of a node over the box of the recording, by interval arithmetic; infinite where nothing is known."""
    if tape.box is None:
        return -math.inf, math.inf
    low = tape.box.lower.flatten().tolist()
    high = tape.box.upper.flatten().tolist()
    if tape.nodes[at].op == "var":
        coordinate = int(tape.nodes[at].value) % len(low)
        return low[coordinate], high[coordinate]
    known = tape.ranges
    with ball_precision(_BITS):
        # Nodes are only ever appended: what is known of the first ones stays known.
        for node in tape.nodes[len(known) : at + 1]:
            if node.op == "var":
                coordinate = int(node.value) % len(low)
                ends = arb(low[coordinate]).union(arb(high[coordinate]))
                known.append(ends)
            else:
                known.append(ball(node, [known[arg] for arg in node.args]))
        found = known[at]
        if not found.is_finite():
            return -math.inf, math.inf
        return below(found.lower()), -below(-found.upper())
