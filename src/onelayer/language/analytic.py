"""Functions that torch lacks or has with poles of its own: removed singularities, cube root, logarithm of gamma.

    sinrel(u) = sin(u) / u, 1 at 0          exprel(u) = (exp(u) - 1) / u, 1 at 0

Both are entire: sinrel is the mean of cos(ut) and exprel that of exp(ut) over 0 <= t <= 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import torch
from flint import arb
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from onelayer.float64 import ELEMENTARY, TINY, UNIT
from onelayer.language.intervals import Interval, where_defined

FIRST_MINIMUM = 4.4934  # a little before sinrel stops to fall, at 4.49340... where tan(u) = u
LOWEST = 0.2173  # sinrel > -LOWEST: its least value is -0.21723...
SHIFT = 10  # Stirling's series is taken at x >= SHIFT, where nine terms leave less than 1e-17
# B_2k / (2k (2k - 1)), k = 1 ... 9: each is one rounding of a quotient of integers below 2^53.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188)
HALF_LOG_2PI = 0.9189385332046728  # log(2 pi) / 2, rounded to nearest
LEAST_GAMMA = -0.12148629053584962  # lgamma at 1.4616..., rounded down
TURN = 1.4616  # lgamma falls up to 1.46163..., within 1e-4 of this


def _open(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function, handed first to arguments that have a version of it of their own, as torch's functions are."""

    @wraps(function)
    def called(x: Tensor) -> Tensor:
        if has_torch_function_unary(x):
            handed: Tensor = handle_torch_function(called, (x,), x)
            return handed
        return function(x)

    return called


def _one_at_zero(quotient: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A quotient by x whose limit at 0 is 1; slopes pass through the side that is chosen alone."""

    def value(x: Tensor) -> Tensor:
        # A quotient 0 / 0 on the side that is not chosen would still make the slope nan.
        safe = torch.where(x == 0, torch.ones_like(x), x)
        return torch.where(x == 0, torch.ones_like(x), quotient(safe))

    return value


@_open
def sinrel(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0."""
    return _one_at_zero(lambda u: torch.sin(u) / u)(x)


@_open
def exprel(x: Tensor) -> Tensor:
    """(exp(x) - 1) / x, 1 at 0."""
    return _one_at_zero(lambda u: torch.expm1(u) / u)(x)


@_open
def cbrt(x: Tensor) -> Tensor:
    """The real cube root; one step of Newton takes back what the exponent 1/3 lost by its rounding."""
    size = x.abs()
    positive = torch.where(size > 0, size, torch.ones_like(x))
    y = positive ** (1 / 3)
    y = y - (y - size / (y * y)) / 3
    return torch.where(x == 0, x, torch.copysign(y, x))


@_open
def lgamma(x: Tensor) -> Tensor:
    """log(gamma(x)) for x > 0, no number elsewhere: there gamma has poles and changes its sign."""
    return torch.where(x > 0, torch.lgamma(x), torch.nan)


def sinrel_number(x: float) -> float:
    """sinrel of a float."""
    if x:
        return math.sin(x) / x
    return 1.0


def exprel_number(x: float) -> float:
    """exprel of a float."""
    if x:
        return math.expm1(x) / x
    return 1.0


def lgamma_number(x: float) -> float:
    """lgamma of a positive float."""
    if not x > 0:
        raise ValueError("lgamma of a number that is not positive")
    return math.lgamma(x)


def sinrel_ball(x: arb) -> arb:
    """sinrel of a ball."""
    return x.sinc()


def exprel_ball(x: arb) -> arb:
    """exprel of a ball. Around zero it is within |u|/2 exp(|u|) of 1: its slope is a mean of t exp(ut)."""
    if not x.contains(0):
        return x.expm1() / x
    reach = x.abs_upper()
    distance = (reach / 2) * reach.exp()
    return arb(1) + arb(0, 1) * distance


def cbrt_ball(x: arb) -> arb:
    """The cube root of a ball: it rises, so its ends are those of the ends."""
    if not x.is_finite():
        return x
    if x.is_exact():
        return _root(x)
    return _root(x.lower()).union(_root(x.upper()))


def _root(x: arb) -> arb:
    if x == 0:
        return arb(0)
    if x > 0:
        return x.root(3)
    return -(-x).root(3)


def lgamma_ball(x: arb) -> arb:
    """lgamma of a ball of positive numbers."""
    if x > 0:
        return x.lgamma()
    return arb("nan")


def sinrel_image(low: Tensor, high: Tensor) -> Interval:
    """Even, falling up to 4.49 from zero, never below -0.2173, and no larger than 1 / |x|."""
    near = torch.maximum(low, -high).clamp(min=0).abs()  # zero may come with a sign
    far = torch.maximum(-low, high)
    size = (1 / near) * (1 + 4 * UNIT)  # infinite at zero
    top = sinrel(near)
    bottom = sinrel(far)
    # Before its first minimum it falls from near to far; beyond, only the three bounds are used.
    falling = far < FIRST_MINIMUM
    highest = top + ELEMENTARY * 2 * top.abs() + TINY
    lowest = bottom - ELEMENTARY * 2 * bottom.abs() - TINY
    above = torch.where(falling, highest, size.clamp(max=1.0)).clamp(max=1.0)
    below = torch.where(falling, lowest, -size.clamp(max=LOWEST))
    return where_defined(high - low < torch.inf, (below, above))


def lgamma_image(low: Tensor, high: Tensor) -> Interval:
    """Convex with its one minimum near 1.4616."""
    (first, first_error), (last, last_error) = log_gamma(low), log_gamma(high)
    above = torch.maximum(first + first_error, last + last_error)
    below = torch.minimum(first - first_error, last - last_error)
    # An interval that may hold the minimum reaches down to it, whatever its ends say.
    turns = (low < TURN + 1e-4) & (high > TURN - 1e-4)
    below = torch.where(turns, below.clamp(max=LEAST_GAMMA), below)
    return where_defined(low > 0, (below, above))


def log_gamma(x: Tensor) -> tuple[Tensor, Tensor]:
    """lgamma of x > 0 and a bound of the absolute error, from the four operations and log alone.

    Stirling: lgamma(z) = (z - 1/2) log z - z + log(2 pi)/2 + sum_k B_2k / (2k (2k-1) z^(2k-1)), the error being below
    the first term left out; and gamma(x) = gamma(x + 10) / (x (x + 1) ... (x + 9)).
    """
    small = x < SHIFT
    z = torch.where(small, x + SHIFT, x)
    product = torch.ones_like(x)
    for step in range(SHIFT):
        product = product * torch.where(small, x + step, torch.ones_like(x))
    log_z = torch.log(z)
    log_product = torch.log(product)
    # Horner in 1 / z^2; the last coefficient bounds what is left out, at z >= 10 times 10^-17.
    tail = torch.zeros_like(x)
    for coefficient in reversed(STIRLING[:-1]):
        tail = tail / (z * z) + coefficient
    value = (z - 0.5) * log_z - z + HALF_LOG_2PI + tail / z - log_product
    # Each part carries at most forty roundings of its own size, product (twenty of them) as an absolute error.
    sizes = z * log_z.abs() + z + log_product.abs() + 4
    rounded = sizes * (64 * UNIT)
    return value, rounded + STIRLING[-1] * 1e-17
