"""Search on one axis: the best keys of a given size, and the smallest size that meets a tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from onelayer.construct.families import Array, Keys, candidates, softmax, starts
from onelayer.construct.freeslopes import FAST, THOROUGH, Descent, Projection, Round, equalise, tournament
from onelayer.construct.sampling import Sampler
from onelayer.construct.solve import minimax, rounding_cost

ROUNDING_SHARE = 1 / 20
FREE_LIMIT = 48  # beyond this many tokens a step costs milliseconds and the families alone are scanned


@dataclass(frozen=True)
class Measured:
    """Keys and values in the user's coordinate, rounded to the executing dtype, with errors at held-out points."""

    keys: Keys  # in t of [-1, 1]
    slopes: Array
    biases: Array
    values: Array
    error: float
    rounding: float
    vmax: float
    meets: bool

    @property
    def size(self) -> int:
        return len(self.slopes)

    def better_than(self, other: Measured) -> bool:
        """Meeting eps first, then fewer tokens among those that meet it, then the smaller error."""
        if self.meets != other.meets:
            return self.meets
        if self.meets and self.size != other.size:
            return self.size < other.size
        return self.error + self.rounding < other.error + other.rounding


class AxisProblem:
    """g on one interval with a tolerance and an executing dtype: what is tried, and when it is accepted."""

    def __init__(self, sampler: Sampler, eps: float, dtype: torch.dtype) -> None:
        self.sampler, self.eps, self.dtype = sampler, eps, dtype
        self.unit = torch.finfo(dtype).eps / 2
        focus = sampler.focus()
        self.focus = None if focus is None else (focus.centre, focus.width)

    def free(self, size: int, warm: Sequence[Keys], rounds: Sequence[Round]) -> Measured:
        """Free slopes from warm keys and from every family."""
        t, _, samples = self.sampler.points(6 * size + 40)
        problem = Projection(t, samples, 4 * self.unit, self.focus[0] if self.focus else 0.0)
        goal = (1 - 1.5 * ROUNDING_SHARE) * self.eps
        scan = starts(size, self.focus)[:: 1 + size // 24]
        runner = tournament(problem, [*warm, *scan], goal, rounds)
        best = self.measure(problem.unpack(runner.parameters))
        if not best.meets and runner.loss < (4 * self.eps) ** 2:
            parameters, _ = equalise(problem, runner, goal)
            best = _better(best, self.measure(problem.unpack(parameters)))
        return best

    def attempt(self, size: int, warm: Sequence[Keys], rounds: Sequence[Round]) -> Measured:
        """Free slopes while a step is cheap, then the families."""
        return self.free(size, warm, rounds) if size <= FREE_LIMIT else self.families(size)

    def families(self, size: int) -> Measured:
        """The best members of the fixed families."""
        t, _, samples = self.sampler.points(4 * size + 40)
        problem = Projection(t, samples, 4 * self.unit)
        scan = list(candidates(size))[:: 1 + size // FREE_LIMIT]
        ranked = sorted(scan, key=lambda keys: problem.at(problem.pack(keys)).loss)
        best = self.measure(ranked[0])
        for keys in ranked[1:3]:
            best = _better(best, self.measure(keys))
        return best

    def calm(self, fit: Measured) -> Measured:
        """The same number of tokens with smaller values where the tolerance has room: |v| is what rounding feeds on."""
        t, _, samples = self.sampler.points(6 * fit.size + 40)
        for ridge in (1e-7, 1e-5, 1e-4, 1e-3):
            problem = Projection(t, samples, ridge * self.eps / float(np.abs(samples).max()))
            runner = problem.descend(Descent(problem.pack(fit.keys)), 25)
            calmer = self.measure(problem.unpack(runner.parameters))
            if calmer.meets and calmer.vmax < fit.vmax:
                fit = calmer
            else:
                break
        return fit

    def measure(self, keys: Keys) -> Measured:
        """Round the keys, solve and polish the values, round them, and look at hold-out points."""
        slopes, biases = (
            rounded(part, self.dtype) for part in to_interval(keys, self.sampler.lower, self.sampler.upper)
        )
        _, x, samples = self.sampler.points(6 * len(keys) + 40)
        weights = softmax(x[:, None] * slopes + biases)
        values = rounded(minimax(weights, samples, rounding_cost(weights, self.unit))[0], self.dtype)
        _, x, samples = self.sampler.points(6 * len(keys) + 40, oversample=3)
        products = x[:, None] * slopes
        weights = softmax(products + biases)
        error = float(np.abs(weights @ values - samples).max())
        magnitude = np.abs(products) + np.abs(biases) + len(keys) + 8
        noise = float(((weights * magnitude) @ np.abs(values)).max())
        vmax = float(np.abs(values).max())
        rounding = self.unit * max(noise, 2 * vmax)
        meets = error + rounding <= self.eps and 2 * self.unit * vmax <= ROUNDING_SHARE * self.eps
        return Measured(keys, slopes, biases, values, error, rounding, vmax, meets)


def smallest(problem: AxisProblem, max_tokens: int, thorough: bool) -> Measured:
    """Climb from the least possible size until eps is met, bisect, then walk down until two misses in a row.

    Two, because symmetric functions like only even or only odd numbers of tokens.
    """
    least = min(problem.sampler.least_tokens(problem.eps), max_tokens)
    best, low = _climb(problem, least, max_tokens)
    while best.meets and best.size - low > 1:
        middle = (low + best.size) // 2
        fit = problem.attempt(middle, deflated(best.keys, middle), FAST)
        low = low if fit.meets else middle
        best = _better(best, fit)
    misses = 0
    while best.meets and thorough and best.size - misses > least and misses < 2:
        size = best.size - misses - 1
        fit = problem.attempt(size, deflated(best.keys, size), THOROUGH)
        misses = 0 if fit.meets else misses + 1
        best = _better(best, fit)
    return problem.calm(best) if best.meets else best


def _climb(problem: AxisProblem, least: int, max_tokens: int) -> tuple[Measured, int]:
    """The first fit of growing size that meets eps, or the best one, and the largest size that missed.

    Gives up when more tokens cannot help: what is left is rounding, or the error falls too slowly for ``max_tokens``.
    """
    best = problem.measure(Keys(np.zeros(1), np.zeros(1), "constant"))
    low, size, history = 0, max(least, 1), [(1, best.error)]
    growth = 1.0
    while not best.meets and low < max_tokens:
        fit = problem.attempt(size, [], FAST)
        best = _better(best, fit)
        history.append((size, best.error))
        if fit.meets or (fit.error <= fit.rounding) or _too_slow(history, problem.eps, max_tokens):
            break
        low, size = size, min(least + math.ceil(growth), max_tokens)
        growth *= 1.5
    return best, low


def _too_slow(history: list[tuple[int, float]], eps: float, max_tokens: int) -> bool:
    """Whether the error, falling geometrically as over the last four sizes, passes eps only beyond ``max_tokens``."""
    if len(history) < 6:
        return False
    (first, before), (last, now) = history[-4], history[-1]
    rate = math.log(before / now) / (last - first) if now > 0 else math.inf
    return now > eps and math.log(now / eps) > rate * (max_tokens - last)


def _better(first: Measured, second: Measured) -> Measured:
    return second if second.better_than(first) else first


def deflated(keys: Keys, size: int) -> list[Keys]:
    """Keys with tokens left out one at a time, in three ways: from the left, the middle and the right."""
    found = []
    for share in (0.0, 0.5, 1.0):
        fewer = Keys(np.sort(keys.slopes), keys.biases[np.argsort(keys.slopes)], keys.family)
        while len(fewer) > size:
            fewer = fewer.drop(round(share * (len(fewer) - 1)))
        found.append(fewer)
    return found


def to_interval(keys: Keys, lower: float, upper: float) -> tuple[Array, Array]:
    """Keys in t of [-1, 1] rewritten for x of [lower, upper], slopes centred at 0 and the largest bias at 0."""
    centre, radius = lower / 2 + upper / 2, upper / 2 - lower / 2
    shift = (keys.slopes.max() + keys.slopes.min()) / 2
    slopes = (keys.slopes - shift) / (radius or 1.0)
    return slopes, keys.biases - keys.biases.max() - slopes * centre


def rounded(values: Array, dtype: torch.dtype) -> Array:
    """The nearest numbers of the executing dtype, as float64."""
    nearest: Array = torch.from_numpy(np.ascontiguousarray(values)).to(dtype).to(torch.float64).numpy()
    return nearest
