"""Search on one axis: the best keys of a given size, and the smallest size that meets a tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch

from onelayer.build.lookup.families import Array, Keys, candidates, softmax, starts
from onelayer.build.lookup.freeslopes import FAST, THOROUGH, Descent, Projection, Round, equalise, tournament
from onelayer.build.lookup.sampling import MOST_PANELS, Sampler, peak, resolve
from onelayer.build.lookup.solve import minimax, rounding_cost
from onelayer.build.lookup.storage import rounded
from onelayer.build.lookup.ties import Tie, regular, ties
from onelayer.formats import format_of
from onelayer.observer import Observer

# Of eps that rounding may take before it decides.
ROUNDING_SHARE = 1 / 20
AXIS_LIMIT = 512  # no axis is tried with more tokens
# A fit that misses eps by this factor is not worth a second look.
FAR = 1000.0
# A fit that misses eps by less than this factor is worth a thorough search at its size.
NEAR = 10.0
# Share of eps by which a function may differ from its mirror image.
NO_PARITY = 1e-6
PARITY_POINTS = 129  # at which that is looked at
# Slope or bias, at least: fewer do not decide on them.
NODES_PER_KEY = 3
# Beyond this many tokens a step costs milliseconds and the families alone are scanned.
FREE_LIMIT = 48


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
    edges: Array  # panels that resolve the error

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.slopes)

    def better_than(self, other: Measured) -> bool:
        """Meeting eps first, then fewer tokens among those that meet it, then the smaller error."""
        if self.meets != other.meets:
            return self.meets
        if self.meets and self.size != other.size:
            return self.size < other.size
        return self.error + self.rounding < other.error + other.rounding


class AxisProblem:
    """g on one interval with a tolerance and an executing dtype: what is tried, and when it is accepted.

    ``unit`` is what rounding takes of large values, the unit roundoff of the dtype or more.
    """

    def __init__(self, sampler: Sampler, eps: float, dtype: torch.dtype, unit: float = 0.0) -> None:
        self.sampler = sampler
        self.eps = eps
        self.dtype = dtype
        self.unit = max(unit, format_of(dtype).unit)
        # What a fit aims at: rounding takes its share and half as much is left for what lies between the nodes.
        self.goal = (1 - 1.5 * ROUNDING_SHARE) * eps
        focus = sampler.focus()
        self.focus = None if focus is None else (focus.centre, focus.width)

    def projection(self, size: int, penalty: float) -> Projection:
        """The problem of ``size`` free keys at six nodes for each, at least, biases counted at the finest feature."""
        t, _, samples = self.sampler.points(6 * size + 40)
        return Projection(t, samples, penalty, self.focus[0] if self.focus else 0.0)

    def free(self, size: int, larger: Keys | None, rounds: Sequence[Round]) -> Measured:
        """Free slopes from every family, and from larger keys made smaller."""
        problem = self.projection(size, 4 * self.unit)
        goal = self.goal
        scan = starts(size, self.focus, self.sampler.crowded)[:: 1 + size // 24]
        field = tournament(problem, scan, goal, rounds)
        if larger is not None and field[0].loss > goal * goal:
            # In a field of their own: what is left of a good fit leads early and would crowd the others out.
            smaller = deflated(problem, larger, size)
            field += tournament(problem, smaller, goal, rounds[2:])
            field.sort(key=lambda runner: runner.loss)
        best = self.measure(problem.unpack(field[0].parameters))
        if best.error <= self.eps and not best.meets:
            best = _better(best, self.dearer(best))
        for runner in field[:2]:
            if not best.meets and runner.loss < 16 * self.eps * self.eps:
                best = _better(best, self.polish(problem, runner, goal))
        return best

    def polish(self, problem: Projection, runner: Descent, goal: float) -> Measured:
        """Equalise the error; where it peaks between the nodes, look closer there and go on."""
        found: list[Measured] = []
        for _ in range(3):
            parameters, error = equalise(problem, runner, goal)
            seen = self.measure(problem.unpack(parameters))
            found.append(seen)
            if seen.meets or seen.error < 1.1 * error:
                break
            panels = len(seen.edges) - 1
            each = max(4, math.ceil(NODES_PER_KEY * len(parameters) / panels))
            t, _, samples = self.sampler.points_of(seen.edges, each)
            problem = Projection(t, samples, problem.penalty, problem.origin)
            runner = problem.descend(Descent(parameters), 20)
        return reduce(_better, found)

    def attempt(self, size: int, larger: Keys | None, rounds: Sequence[Round]) -> Measured:
        """Free slopes while a step is cheap, then the families."""
        if size <= FREE_LIMIT:
            return self.free(size, larger, rounds)
        return self.families(size)

    def families(self, size: int) -> Measured:
        """The best members of the fixed families."""
        t, _, samples = self.sampler.points(4 * size + 40)
        problem = Projection(t, samples, 4 * self.unit)
        # Backwards: the last ones follow the features of g, where these are uneven.
        scan = list(candidates(size, self.sampler.crowded))[:: -1 - size // FREE_LIMIT]
        ranked = sorted(scan, key=lambda keys: problem.at(problem.pack(keys)).loss)
        best = self.measure(ranked[0])
        for keys in ranked[1:3]:
            best = _better(best, self.measure(keys))
        return best

    def dearer(self, fit: Measured) -> Measured:
        """The first fit that meets eps when the cost of |v| is raised step by step, or the last."""
        for factor in (4, 16, 64):
            fit = self.descended(fit, factor * 4 * self.unit)
            if fit.meets:
                break
        return fit

    def smaller(self, fit: Measured) -> Measured:
        """The same number of tokens with smaller values where the tolerance has room: |v| is what rounding feeds on."""
        _, _, samples = self.sampler.points(40)
        scale = float(np.abs(samples).max())
        if not scale > 0:
            return fit
        for share in (1e-7, 1e-5, 1e-4, 1e-3):
            lighter = self.descended(fit, share * self.eps / scale)
            if not (lighter.meets and lighter.vmax < fit.vmax):
                break
            fit = lighter
        return fit

    def descended(self, fit: Measured, penalty: float) -> Measured:
        """A few steps from a fit with another cost of |v|."""
        problem = self.projection(fit.size, penalty)
        start = Descent(problem.pack(fit.keys))
        runner = problem.descend(start, 30)
        return self.measure(problem.unpack(runner.parameters))

    def tied(self, size: int, tie: Tie) -> Measured:
        """Keys that a tie leaves few numbers of, and values of the parity that goes with it."""
        t, _, samples = self.sampler.points(6 * size + 40)
        problem = Projection(t, samples, 4 * self.unit, tie=tie.matrix)
        field = tournament(problem, regular(size), self.goal, FAST)
        keys = problem.unpack(field[0].parameters, "tied")
        found = [self.measure(keys, tie.parity)]
        for runner in field[:2]:
            if not found[-1].meets and runner.loss < 16 * self.eps * self.eps:
                parameters, _ = equalise(problem, runner, self.goal)
                keys = problem.unpack(parameters, "tied")
                found.append(self.measure(keys, tie.parity))
        return reduce(_better, found)

    def parity(self) -> int:
        """1 where g is even about the middle of the axis, -1 where it is odd but for a constant, else 0."""
        _, _, inside = self.sampler.at(np.linspace(-1, 1, PARITY_POINTS))
        for parity, middle in ((1, 0.0), (-1, self._middle())):
            apart = inside - middle
            if np.abs(apart - parity * apart[::-1]).max() <= NO_PARITY * self.eps:
                return parity
        return 0

    def _middle(self) -> Array:
        """The value half way between those at the ends, about which an odd function is odd."""
        _, _, ends = self.sampler.at(np.array([-1.0, 1.0]))
        middle: Array = ends.mean(0)
        return middle

    def measure(self, keys: Keys, parity: int = 0) -> Measured:
        """Round the keys, solve and polish the values, round them, and look at hold-out points.

        Values of keys that are symmetric about the middle get the ``parity`` of g.
        """
        exact = to_interval(keys, self.sampler.lower, self.sampler.upper)
        slopes, biases = (rounded(part, self.dtype) for part in exact)
        _, x, samples = self.sampler.points(6 * len(keys) + 40)
        weights = softmax(x[:, None] * slopes + biases)
        values, _ = minimax(weights, samples, rounding_cost(weights, self.unit))
        if parity:
            middle = 0.0 if parity > 0 else self._middle()
            apart = values - middle
            values = middle + (apart + parity * apart[::-1]) / 2
        values = rounded(values, self.dtype)

        def difference(t: Array) -> Array:
            _, x, samples = self.sampler.at(t)
            fitted = softmax(x[:, None] * slopes + biases) @ values
            return fitted - samples

        edges = resolve(difference, self.sampler.edges, self.eps / 50, 2 * MOST_PANELS)
        error = peak(difference, edges)
        # Roundings that a weight meets: of its logit, relative to that, of the sum over the keys, and a few more.
        magnitude = np.abs(x[:, None] * slopes) + np.abs(biases) + len(keys) + 8
        sizes = np.abs(values)
        noise = float(((weights * magnitude) @ sizes).max())
        vmax = float(sizes.max())
        rounding = self.unit * max(noise, 2 * vmax)
        moderate = 2 * self.unit * vmax <= ROUNDING_SHARE * self.eps
        meets = error + rounding <= self.eps and moderate
        return Measured(keys, slopes, biases, values, error, rounding, vmax, meets, edges)


def smallest(problem: AxisProblem, max_tokens: int, thorough: bool, observer: Observer) -> Measured:
    """Climb from the least possible size until eps is met, bisect, then walk down until two misses in a row.

    Two, because symmetric functions like only even or only odd numbers of tokens. A size that missed by far is not
    tried again, nor is any below it: the best error never grows with the size. Once the
    ``observer`` says that it is over no new size is tried.
    """
    limit = min(max_tokens, AXIS_LIMIT)
    least = min(problem.sampler.least_tokens(problem.eps), limit)
    best, low, far = _climb(problem, least, limit, observer)
    while best.meets and best.size - low > 1 and not observer.over:
        middle = (low + best.size) // 2
        fit = problem.attempt(middle, best.keys, FAST)
        if not fit.meets:
            low = middle
        if fit.error > FAR * problem.eps:
            far = middle
        best = _better(best, fit)
    if thorough and best.meets:
        best = _walk_down(problem, best, max(far, least - 1), observer)
    return problem.smaller(best) if best.meets else best


def thriftiest(problem: AxisProblem, best: Measured, observer: Observer) -> Measured:
    """Keys that the fewest numbers fix: equally spaced or symmetric ones, with up to a third more tokens than ``best``.

    A token of free keys has three numbers. Fewer numbers are what interpolants are to be compared by, not what a layer
    computes faster with: that is the number of tokens.
    """
    parity = problem.parity()
    numbers = 3 * best.size - 2
    for size in range(best.size, best.size + best.size // 3 + 2):
        for tie in ties(size, parity):
            if best.meets and tie.numbers < numbers and not observer.over:
                fit = problem.tied(size, tie)
                if fit.meets:
                    best = fit
                    numbers = tie.numbers
    return best


def _walk_down(problem: AxisProblem, best: Measured, floor: int, observer: Observer) -> Measured:
    """One token less at a time, thoroughly, above a size that is known not to do, until two misses in a row."""
    misses = 0
    while best.size - misses - 1 > floor and misses < 2 and not observer.over:
        size = best.size - misses - 1
        fit = problem.attempt(size, best.keys, THOROUGH)
        misses = 0 if fit.meets else misses + 1
        best = _better(best, fit)
    return best


def _climb(problem: AxisProblem, least: int, limit: int, observer: Observer) -> tuple[Measured, int, int]:
    """The first fit of growing size that meets eps, or the best one; the largest size that missed; that missed by far.

    Gives up when more tokens cannot help: what is left is rounding, or the error falls too slowly for ``limit``. Then
    only a more thorough search at the best size may.
    """
    best = problem.measure(Keys(np.zeros(1), np.zeros(1), "constant"))
    low = 0
    far = 0
    size = least
    history = [(1, best.error)]
    step = 2 + least // 16
    while not best.meets and (not observer.over or len(history) == 1):
        fit = problem.attempt(size, None, FAST)
        best = _better(best, fit)
        observer.report("fitting", detail=f"{best.size} tokens reach {best.error:.2g}")
        history.append((size, best.error))
        only_rounding = fit.error <= fit.rounding
        if fit.meets or size == limit or only_rounding or _too_slow(history, problem.eps, limit):
            break
        low = size
        if fit.error > FAR * problem.eps:
            far = size
        size = min(size + step, limit)
        step = step * 4 // 3 + 1
    return _at_last(problem, best, observer), low, far


def _at_last(problem: AxisProblem, best: Measured, observer: Observer) -> Measured:
    """A near miss gets one thorough search at its own size."""
    if best.meets or observer.over or not best.error < NEAR * problem.eps:
        return best
    return _better(best, problem.attempt(best.size, None, THOROUGH))


def _too_slow(history: list[tuple[int, float]], eps: float, limit: int) -> bool:
    """Whether the error, falling geometrically as over the last four sizes, passes eps only beyond ``limit``."""
    if len(history) < 6:
        return False
    first, before = history[-4]
    last, now = history[-1]
    if not now > eps:
        return False
    rate = math.log(before / now) / (last - first)
    return math.log(now / eps) > rate * (limit - last)


def _better(first: Measured, second: Measured) -> Measured:
    return second if second.better_than(first) else first


def deflated(problem: Projection, keys: Keys, size: int, count: int = 4) -> list[Keys]:
    """Keys of the given size from larger ones: tokens dropped or neighbours merged, whichever hurts least at each step.

    The last step is taken in the ``count`` best ways.
    """
    order = np.argsort(keys.slopes)
    ranked = [Keys(keys.slopes[order], keys.biases[order], keys.family)]
    while len(ranked[0]) > size:
        whole = ranked[0]
        fewer = [whole.drop(token) for token in range(len(whole))]
        fewer += [whole.merge(token) for token in range(len(whole) - 1)]
        fewer.sort(key=lambda some: problem.at(problem.pack(some)).loss)
        ranked = fewer[:count]
    return ranked


def to_interval(keys: Keys, lower: float, upper: float) -> tuple[Array, Array]:
    """Keys in t of [-1, 1] rewritten for x of [lower, upper], slopes centred at 0 and the largest bias at 0."""
    centre = lower / 2 + upper / 2
    radius = upper / 2 - lower / 2
    shift = (keys.slopes.max() + keys.slopes.min()) / 2
    # An interval of no width has one point, where any slope will do.
    slopes = (keys.slopes - shift) / (radius or 1.0)
    biases = keys.biases - keys.biases.max()
    return slopes, biases - slopes * centre
