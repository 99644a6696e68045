"""Together: two networks of one program as one, so that what they share cancels before it is enclosed.

Beside the value a of the first network runs the difference d of the second from it, both as executed:

    affine      d' = d W_B^T + a (W_B - W_A)^T + b_B - b_A, and the rounding of either sum
    relu        relu(a + d) - relu(a) lies between 0 and d; it is d, or 0, where both signs are known
    arrange     the entries of d are moved like those of a

Enclosing A and B apart and subtracting would pay for every open kink and every remainder twice; here an open kink costs
at most half of |d|. Programs with other operations are enclosed apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onelayer.errors import OnelayerError
from onelayer.formats import WIDE
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import Step
from onelayer.network.record import record
from onelayer.proof.fit import formats_held
from onelayer.proof.objectives import Difference, Forward, Wrapped
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.registry import call, implements
from onelayer.taylor.rounding import executed, inflate

FOLLOWED = ("affine", "relu", "arrange")
# Narrow formats round between the steps, at places that this account of roundings does not know.
EXECUTIONS = (None, *(row.dtype for row in WIDE))
# Roundings per term of a sum, with room: a product and an addition.
SUMS = 2
# Roundings beside those of the sum: of the bias and of the difference, with room.
MORE = 8
UNIT = 2.0**-52  # twice the rounding of one difference of weights


class Together(Wrapped):
    """A(x) - B(x) for two networks with the same steps."""

    def __init__(self, a: Forward, b: Forward, first: RecordedNetwork, second: RecordedNetwork) -> None:
        super().__init__(a, b)
        self.first = first
        self.second = second

    @property
    def apart(self) -> Difference:
        """The same, each of the two enclosed as it stands."""
        return Difference(*self.models)

    def forward(self, x: Any) -> Any:
        """The difference; on enclosures both networks go step by step together."""
        if not isinstance(x, TaylorModel) or x.execution not in EXECUTIONS:
            return self.models[0](x) - self.models[1](x)
        return -call("network_difference", x, self)

    def difference(self, x: TaylorModel) -> TaylorModel:
        """B - A, with the rounding of the last subtraction."""
        no_difference = x.untag() * 0.0
        values: list[tuple[TaylorModel, TaylorModel]] = [(x, no_difference)]
        for at, step in enumerate(self.first.program.steps, start=1):
            values.append(self._step(step, at, values))
        difference = values[-1][1].plain()
        difference.rem = executed(difference.rem, difference.magnitude(), 2, x.execution)
        return difference.tagged(x.execution)

    def _step(
        self, step: Step, at: int, values: list[tuple[TaylorModel, TaylorModel]]
    ) -> tuple[TaylorModel, TaylorModel]:
        a, d = values[int(step.args[0])]
        if step.op == "affine":
            return self._affine(step, a, d)
        if step.op == "relu":
            return call("relu", a), _bent(a, d)
        moved_a = self.first.arranged(step, [a], at, len(a))
        moved_d = self.first.arranged(step, [d], at, len(a))
        return moved_a, moved_d

    def _affine(self, step: Step, a: TaylorModel, d: TaylorModel) -> tuple[TaylorModel, TaylorModel]:
        names = [str(name) for name in step.args[1:]]
        ours = [self.first.tensor(name).double() for name in names]
        theirs = [self.second.tensor(name).double() for name in names]
        gap = theirs[0] - ours[0]
        from_d: TaylorModel = call("linear", d, theirs[0])
        found = from_d + call("linear", a.untag(), gap)
        size = a.magnitude()
        other = inflate(a.magnitude() + d.magnitude())
        # The gap between two weights is itself rounded.
        slack = size @ gap.abs().T * UNIT
        # What the sums of either network may reach on the way, for the rounding of their execution.
        our_reach = size @ ours[0].abs().T
        their_reach = other @ theirs[0].abs().T
        if len(names) > 1:
            offset = theirs[1] - ours[1]
            found = found + offset
            slack = slack + offset.abs() * UNIT
            our_reach = our_reach + ours[1].abs()
            their_reach = their_reach + theirs[1].abs()
        found = found.plain().with_radius(inflate(slack))
        roundings = SUMS * gap.shape[1] + MORE
        for sums in (our_reach, their_reach):
            found.rem = executed(found.rem, inflate(sums), roundings, a.execution)
        parameters = [self.first.tensor(name) for name in names]
        return call("linear", a, *parameters), found


@implements("network_difference")
def network_difference(x: TaylorModel, pair: Together) -> TaylorModel:
    """B - A as an operation of its own: the bounds that it computes on the way are no part of the forward pass."""
    return pair.difference(x)


def _bent(a: TaylorModel, d: TaylorModel) -> TaylorModel:
    """relu(a + d) - relu(a): between 0 and d, for relu rises by at most its argument."""
    both = a.untag() + d
    low, high = a.range()
    low_b, high_b = both.range()
    on = (low >= 0) & (low_b >= 0)
    off = (high <= 0) & (high_b <= 0) & ~on
    # All of d where both are on, nothing where both are off, else the middle between 0 and d.
    share = 0.5 + 0.5 * on.to(torch.float64) - 0.5 * off.to(torch.float64)
    half = 0.5 * d.magnitude()
    radius = torch.where(on | off, torch.zeros_like(low), half)
    return (d * share).with_radius(radius)


def together(a: Forward, b: Forward, shape: tuple[int, ...]) -> Together | None:
    """Both models as one, where they are networks with the same steps, all of which are followed; else None."""
    if not isinstance(a, nn.Module) or not isinstance(b, nn.Module) or formats_held(a) != formats_held(b):
        return None
    try:
        first = record(a, shape)
        second = record(b, shape)
    except OnelayerError:
        return None
    same = first.program.steps == second.program.steps
    if not same or not all(map(_followed, first.program.steps)):
        return None
    return Together(a, b, first, second)


def _followed(step: Step) -> bool:
    """Whether the difference of two networks is followed through this step; an arrangement only of one array."""
    if step.op not in FOLLOWED or len(step.args) > 3:
        return False
    return step.op != "arrange" or len(step.args) == 1
