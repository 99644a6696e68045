"""Ways to build f race in slices of the budget: cheap ones first, any proof first, then a smaller one while cheap.

A way that stalls is set aside, and what it found is kept: the result is the best of all ways, with the history of what
was tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from onelayer.build.lookup.blueprint import flat, straight
from onelayer.build.lookup.kinks import only_hinges
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import Composer, composer
from onelayer.build.pieces.sharp import sharpen, sharpener
from onelayer.build.sequences.gather import gather, reads_whole
from onelayer.build.sequences.superpose import needs_superposition, superpose
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.observer import Observer
from onelayer.portfolio.lookup import ATTEMPTS, lookups
from onelayer.portfolio.standing import Build, Standing
from onelayer.portfolio.task import Task, certified, concluded, proved
from onelayer.recording.jumps import Jump
from onelayer.recording.ramps import ramped
from onelayer.recording.target import as_target
from onelayer.result import Approximation

# A proof that stalls gets a fit this much closer: what a smaller eps would have had.
TIGHTER = 0.25
SMALL_JUMP = 0.1  # of eps: smaller jumps hinder no fit
# Of a jump is what a fit across it is given: no continuous function is within one half.
HALF_JUMP = 0.75
# Times eps: a bound that far needs time, not another fit.
CLOSE = 2.0
# Fits of a lookup before a composition that waits: what they miss it often has at once.
WAITED_FOR = 2
# Coordinates up to which one grid of tokens is cheap to fit and to prove.
FEW = 3
# Predicted hidden units beyond which a composition waits for the lookup.
MANY_UNITS = 800
# Of the time, for outer functions of several sums: their ridges come soon or hardly at all.
PURSUIT_SHARE = 0.25
# Of a lookup that is not the only way, a part of the time but at most these seconds: easy functions need less.
FIRST_SHARE, SLICE_SECONDS = 0.2, 40.0
# Boxes of its proof meanwhile: a second or two in four dimensions.
SLICE_BOXES = 10_000
# Seconds for a smaller one after a proof: as many as the proof took, within these. So short that a loose eps, for which
# a smaller one is tried in vain, takes hardly longer than a tight one, for which that is seen at once.
LEAST, MOST = 3.5, 15.0
# Coordinates up to which a grid of tokens has a chance to be smaller than a composition.
SMALL = 5
# Of the time, to look for jumps, and for kinks of affine functions.
LOOK = 0.25
KINKED = ("max", "min", "abs", "relu")


def race(task: Task, watch: Observer) -> Approximation:
    """The best result of all ways; OnelayerError when none of them leads anywhere."""
    found = Standing()
    formula = task.target.formula
    stand_in = None
    if formula is not None:
        stand_in = ramped(formula, task.domain, SMALL_JUMP * task.eps, watch.share(LOOK))
    if stand_in is not None:
        found.run("ramps across jumps", _ramps(task, *stand_in), watch.share(0.5))
    # Beyond a jump nothing is nearer than a ramp, so a ramp ends the race there even without a proof.
    settled = found.proved or task.jump is not None
    if found.best is None or not settled:
        _directly(found, task, watch)
    return found.result()


def _directly(found: Standing, task: Task, watch: Observer) -> None:
    """All ways to build f as it is written."""
    if task.jump is not None:
        found.run("lookup across a jump", _across(task, task.jump), watch.within(LEAST))
    elif task.storage is not None:
        found.run("lookup", _lookup(task, 1.0), watch)
    elif not (_kinked(task) and _sharp(found, task, watch)):
        _raced(found, task, _composer(task), watch)


def _ramps(task: Task, formula: Formula, jump: Jump) -> Build:
    """A layer for f with ramps in the place of its jumps, which are half of a jump away, compared with f itself."""
    # The ramp is half of the jump away from f; half of what is left is for the layer, the rest for the proof against f.
    room = max(task.eps, HALF_JUMP * jump.size) - jump.size / 2

    def build(slot: Observer) -> Iterator[Approximation]:
        smooth = as_target(formula, task.domain)
        ramp = replace(task, target=smooth, eps=room / 2, jump=None)
        found = Standing()
        _directly(found, ramp, slot.share(0.5))
        yield concluded(found.result().model, task, slot)

    return build


def _across(task: Task, jump: Jump) -> Build:
    """An affine function and one lookup about as close as a continuous function can be, and no more work than that."""
    nearest = HALF_JUMP * jump.size / task.eps

    def build(slot: Observer) -> Iterator[Approximation]:
        yield proved(straight(task.target, task.domain), task, slot)
        yield from itertools.islice(lookups(task, slot, nearest), 1)

    return build


def _raced(found: Standing, task: Task, composed: Composer | None, watch: Observer) -> None:
    """All ways but sharp heads: a composition first in many coordinates, after the lookup in few.

    A composition of products takes grids of tokens as a lookup does, so the lookup comes before it there too.
    """
    if composed is not None and _comes_first(composed, task) and _composed_first(found, task, composed, watch):
        return
    others = composed is not None or _kinked(task)
    slot = watch.share(FIRST_SHARE).within(SLICE_SECONDS) if others else watch.share(0.5)
    attempts = ATTEMPTS if composed is None else WAITED_FOR
    _first_lookup(found, task, others, attempts, slot)
    # Taken before another way runs, which leaves a ``cut`` of its own.
    cut = found.cut
    if composed is not None and not _comes_first(composed, task) and not found.proved:
        found.run("composition", _composition(composed, task), watch.share(0.4))
    _cut_lookup(found, task, cut, watch)
    _kept_tokens(found, task, watch)
    _last_lookup(found, task, others, watch)


def _comes_first(composed: Composer, task: Task) -> bool:
    """Whether a composition is tried before a lookup: not where it has the same tokens, proved axis by axis."""
    many = task.domain.dim > FEW
    return many and composed.rank > 0 and not composed.multiplies


def _composed_first(found: Standing, task: Task, composed: Composer, watch: Observer) -> bool:
    """Whether a composition proves it; in not too many coordinates, a lookup may still be smaller."""
    share = 0.5 if composed.rank == 1 else PURSUIT_SHARE
    found.run("composition", _composition(composed, task), watch.share(share))
    if found.proved and task.domain.dim <= SMALL:
        _smaller_lookup(found, task, watch)
    return found.proved


def _smaller_lookup(found: Standing, task: Task, watch: Observer) -> None:
    """A lookup after a proof by another way, for about as long as that took."""
    as_long = min(max(LEAST, found.seconds), MOST)
    found.run("lookup", _lookup(task, 1.0), watch.within(as_long))


def _first_lookup(found: Standing, task: Task, others: bool, attempts: int, slot: Observer) -> None:
    """A lookup, with few boxes where there are other ways."""
    first = replace(task, max_boxes=min(SLICE_BOXES, task.max_boxes)) if others else task
    found.run("lookup", _lookup(first, 1.0, attempts), slot)


def _cut_lookup(found: Standing, task: Task, cut: Approximation | None, watch: Observer) -> None:
    """The proof of a lookup goes on where time cut it off, unless another way was faster."""
    if cut is not None and not found.proved and not watch.over:
        found.run("lookup, proof", _again(cut, task), watch.share(0.5))


def _kept_tokens(found: Standing, task: Task, watch: Observer) -> None:
    """Tokens that stay tokens, for kinks that nothing else has proved and that the formula names.

    Pursuit of curved kinks takes a unit per sqrt(eps) and direction, thousands before it ends: it is set aside.
    """
    if not found.proved and not watch.over and _kinked(task) and _tokens_suit(task, watch):
        found.run("tokens", lambda slot: iter([tokens(task, slot)]), watch.share(0.5))


def _tokens_suit(task: Task, watch: Observer) -> bool:
    """Whether the formula itself says which units or embeddings its tokens take."""
    formula = task.target.formula
    if formula is None:
        return False
    return reads_whole(formula, task.domain) or needs_superposition(task.target, task.domain, watch)


def _last_lookup(found: Standing, task: Task, others: bool, watch: Observer) -> None:
    """A lookup with all the time left, where more may help; more closely where the first proof stalled far from eps."""
    if watch.over or found.proved or not (others or found.stalled or found.hurried):
        return
    if found.stalled and found.upper >= CLOSE * task.eps:
        found.run("lookup, closer", _lookup(task, TIGHTER), watch)
    else:
        found.run("lookup, longer", _lookup(task, 1.0), watch)


def _sharp(found: Standing, task: Task, watch: Observer) -> bool:
    """Whether sharp heads prove it; where units approximate curves, a lookup may still be smaller."""
    formula = task.target.formula
    f = flat(task.target, task.domain, watch)
    # A lookup takes hinges out exactly, each by one unit.
    if formula is not None and only_hinges(formula, f, task.domain):
        return False
    way = sharpener(task.target, task.domain, task.dtype, watch.share(LOOK))
    if way is None:
        return False
    found.run("sharp heads", lambda slot: iter([sharpen(way, task.eps, slot)]), watch.share(0.5))
    if found.proved and way.curved and task.domain.dim <= FEW:
        _smaller_lookup(found, task, watch)
    return found.proved


def tokens(task: Task, watch: Observer) -> Approximation:
    """The layer in which tokens stay tokens."""
    if needs_superposition(task.target, task.domain, watch):
        return superpose(task.target, task.domain, task.eps, dtype=task.dtype, observer=watch)
    return gather(
        task.target,
        task.domain,
        task.eps,
        dtype=task.dtype,
        seed=task.seed,
        max_boxes=task.max_boxes,
        jobs=task.jobs,
        observer=watch,
    )


def pieces(task: Task, watch: Observer) -> Approximation:
    """The layer of sharp heads; OnelayerError where f is not of that form."""
    way = sharpener(task.target, task.domain, task.dtype, watch)
    if way is None:
        raise OnelayerError(
            "layout 'pieces' is for kinks: max, min, abs and relu of affine functions, and functions of one sum of them"
        )
    return sharpen(way, task.eps, watch)


def _again(made: Approximation, task: Task) -> Build:
    """The proof of a layer whose fit had used up its time."""

    def build(slot: Observer) -> Iterator[Approximation]:
        yield replace(made, certificate=certified(made.model, task, slot))

    return build


def _lookup(task: Task, closer: float, attempts: int = ATTEMPTS) -> Build:
    return lambda slot: lookups(task, slot, closer, attempts)


def _composition(composed: Composer, task: Task) -> Build:
    return lambda slot: iter([compose(composed, task.eps, slot)])


def _composer(task: Task) -> Composer | None:
    """f as inner and outer functions, of several variables.

    Sums and products without outer functions are the heads of a lookup too, but proved axis by axis, which a lookup
    that meets kinks or oscillations is not.
    """
    found = composer(task.target, task.domain, task.dtype, task.seed, max_tokens=task.max_tokens)
    if found is None or (found.rank == 0 and task.domain.dim == 1):
        return None
    if found.predicted_units(task.eps) > MANY_UNITS:
        return None
    return found


def _kinked(task: Task) -> bool:
    """Whether f is a formula with kinks, on points that are sequences."""
    formula = task.target.formula
    if formula is None or len(task.domain.shape) > 2:
        return False
    return any(node.op in KINKED for node in formula.nodes)
