"""Images of intervals in float64, rounded outward: the interval column of the table of operations.

An interval is a pair of float64 tensors (low, high). An image is NaN where the operation may have no value at some
point of its arguments' intervals; nothing else may be.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor

from onelayer.float64 import ELEMENTARY, TINY, UNIT

Interval = tuple[Tensor, Tensor]
Ends = Callable[[Tensor, Tensor], Interval]  # of the ends of one interval
Image = Callable[..., Interval]  # of one interval per argument

_LARGEST = torch.finfo(torch.float64).max
_WIDEN = 2.0**-50  # relative, four units: more than the one rounding of each end


def of_one(ends: Ends) -> Image:
    """A rule of the two ends as a rule of one interval."""
    return lambda x: ends(*x)


def outward(low: Tensor, high: Tensor) -> Interval:
    """Ends moved outward by the rounding of one operation."""
    return low - low.abs() * _WIDEN, high + high.abs() * _WIDEN


def increasing(g: Callable[[Tensor], Tensor]) -> Ends:
    """Image of an interval under an increasing function that torch computes within 4 ulp."""

    def image(low: Tensor, high: Tensor) -> Interval:
        below = g(low)
        above = g(high)
        # Twice the error of g: the sizes it is taken of, and these differences, are rounded too.
        low = below - below.abs() * (2 * ELEMENTARY) - TINY
        high = above + above.abs() * (2 * ELEMENTARY) + TINY
        return low, high

    return image


def decreasing(g: Callable[[Tensor], Tensor]) -> Ends:
    """The same for a decreasing function."""
    turned = increasing(g)
    return lambda low, high: turned(high, low)


def where_defined(defined: Tensor, ends: Interval) -> Interval:
    """The interval where the operation surely has a value, NaN elsewhere."""
    return torch.where(defined, ends[0], torch.nan), torch.where(defined, ends[1], torch.nan)


def add(a: Interval, b: Interval) -> Interval:
    """Sums do not underflow: a computed zero is exact."""
    return outward(a[0] + b[0], a[1] + b[1])


def sub(a: Interval, b: Interval) -> Interval:
    """a - b."""
    return outward(a[0] - b[1], a[1] - b[0])


def mul(a: Interval, b: Interval) -> Interval:
    """The least and greatest of the four products; a product that underflowed to zero is not exact.

    A product with a power of two rounds nothing, so that 1 times 1 is 1: where asin and sqrt end, that matters.
    """
    p, q = _every_pair(torch.stack(a), torch.stack(b))
    # 0 times anything in the interval is 0, also where the other end is infinite.
    zero = (p == 0) | (q == 0)
    ends = torch.where(zero, 0.0, p * q)
    exact = _is_power_of_two(p) | _is_power_of_two(q)
    rounded = torch.where(exact, 0.0, ends.abs() * _WIDEN)
    slack = rounded + TINY * (~zero).double()
    return _of_numbers((ends - slack).amin((0, 1)), (ends + slack).amax((0, 1)))


def _of_numbers(low: Tensor, high: Tensor) -> Interval:
    """Ends that may have overflowed: values are numbers, so a low end is none beyond the largest float; NaN stays."""
    return low.clamp(max=_LARGEST), high.clamp(min=-_LARGEST)


def _every_pair(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The ends (2, ...) of two intervals as (2, 1, ...) and (1, 2, ...), which every operation pairs."""
    missing = q.ndim - p.ndim
    p = p.reshape(2, 1, *[1] * missing, *p.shape[1:])
    q = q.reshape(1, 2, *[1] * -missing, *q.shape[1:])
    return p, q


def _is_power_of_two(x: Tensor) -> Tensor:
    return torch.frexp(x).mantissa.abs() == 0.5


def div(a: Interval, b: Interval) -> Interval:
    """a / b; NaN where b may vanish."""
    one = torch.ones_like(b[0])
    least = one / b[1]
    most = one / b[0]
    low, high = outward(least, most)
    # Of a power of two the inverse is exact, so that 1 / 1 is 1.
    low = torch.where(_is_power_of_two(b[1]), least, low) - TINY
    high = torch.where(_is_power_of_two(b[0]), most, high) + TINY
    # 1 / b has the sign of b: an end that was moved past zero goes back to it.
    positive = b[0] > 0
    negative = b[1] < 0
    low = torch.where(positive, low.clamp(min=0), low)
    high = torch.where(negative, high.clamp(max=0), high)
    # The inverse of a subnormal number overflows.
    low, high = _of_numbers(low, high)
    return where_defined(positive | negative, mul(a, (low, high)))


def neg(x: Interval) -> Interval:
    """-a."""
    return -x[1], -x[0]


def minimum(a: Interval, b: Interval) -> Interval:
    """The smaller of two."""
    return torch.minimum(a[0], b[0]), torch.minimum(a[1], b[1])


def maximum(a: Interval, b: Interval) -> Interval:
    """The larger of two."""
    return torch.maximum(a[0], b[0]), torch.maximum(a[1], b[1])


def absolute(low: Tensor, high: Tensor) -> Interval:
    """The absolute value."""
    return torch.maximum(low, -high).clamp(min=0), torch.maximum(-low, high)


def relu(low: Tensor, high: Tensor) -> Interval:
    """max(x, 0)."""
    return low.clamp(min=0), high.clamp(min=0)


def choice(u: Interval, a: Interval, b: Interval) -> Interval:
    """a where u > 0 and b elsewhere: one of them where u decides, both where it does not."""
    positive = u[0] > 0
    negative = u[1] <= 0
    lowest = torch.minimum(a[0], b[0])
    highest = torch.maximum(a[1], b[1])
    low = torch.where(positive, a[0], torch.where(negative, b[0], lowest))
    high = torch.where(positive, a[1], torch.where(negative, b[1], highest))
    unknown = torch.isnan(u[0]) | torch.isnan(u[1])
    return where_defined(~unknown, (low, high))


def floor(low: Tensor, high: Tensor) -> Interval:
    """The largest whole number below."""
    return torch.floor(low), torch.floor(high)


def power(exponent: int) -> Image:
    """x -> x**exponent for an integer."""
    if exponent < 0:
        positive = power(-exponent)
        return lambda x: div(_one(x), positive(x))
    if exponent == 0:
        return _one
    rises = increasing(lambda x: x**exponent)
    if exponent % 2:
        return of_one(rises)

    def even(x: Interval) -> Interval:
        below, above = rises(*absolute(*x))
        return below.clamp(min=0), above

    return even


def _one(x: Interval) -> Interval:
    """[1, 1], where x has values at all."""
    return where_defined(~(x[0].isnan() | x[1].isnan()), (torch.ones_like(x[0]), torch.ones_like(x[1])))


def sqrt(low: Tensor, high: Tensor) -> Interval:
    """Defined from zero on."""
    below, above = increasing(torch.sqrt)(low, high)
    return where_defined(low >= 0, (below.clamp(min=0), above))


def log(low: Tensor, high: Tensor) -> Interval:
    """The logarithm; NaN where the argument may not be positive."""
    return where_defined(low > 0, increasing(torch.log)(low, high))


def exp(low: Tensor, high: Tensor) -> Interval:
    """The exponential function."""
    below, above = increasing(torch.exp)(low, high)
    return below.clamp(min=0), above


def wave(g: Callable[[Tensor], Tensor]) -> Ends:
    """Of sin and cos: the value in the middle give or take the radius, within [-1, 1]; NaN of no finite interval.

    Both have slopes of at most 1; 64 roundings of numbers up to 1 cover those of the value and the middle's own.
    """

    def image(low: Tensor, high: Tensor) -> Interval:
        middle = low / 2 + high / 2
        reach = torch.maximum(high - middle, middle - low)
        radius = reach * (1 + 64 * UNIT) + 64 * UNIT * (1 + middle.abs())
        value = g(middle)
        below = (value - radius).clamp(min=-1.0)
        above = (value + radius).clamp(max=1.0)
        return where_defined(high - low < torch.inf, (below, above))

    return image


def tan(low: Tensor, high: Tensor) -> Interval:
    """The tangent; NaN where a pole may be inside."""
    return where_defined(between_poles(low, high), increasing(torch.tan)(low, high))


def between_poles(low: Tensor, high: Tensor) -> Tensor:
    """Whether [low, high] surely stays between two poles of tan."""
    # The zero of tan that is nearest; poles lie pi/2 from it.
    periods = torch.round((low / 2 + high / 2) / pi)
    middle = periods * pi
    away = torch.maximum(high - middle, middle - low)
    return away + middle.abs() * 2.0**-40 < 1.5707963  # below pi/2, by more than all rounding here
