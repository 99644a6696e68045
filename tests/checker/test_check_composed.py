"""Of what rounding adds to a composition the checker knows at least as much as the package: at every position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from liar import drawn_proofs
from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose
from onelayer.checker import composition as checked
from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.lemmas import composition as lemma
from onelayer.lemmas.argument import Composition, from_text
from onelayer.lemmas.atoms import embedded_atoms
from onelayer.lemmas.forward import SLACK
from onelayer.lemmas.streams import outer_coefficients, unit_forms
from onelayer.result import Approximation

SECONDS = 4.0


def sides(rng: Random, dim: int) -> Box:
    """Boxes of every width, some far from zero, where float32 numbers are far apart."""
    low = [round(rng.choice([0.0, 0.0, 1.0, -3.0, 10.0]) + rng.uniform(-1, 1), 2) for _ in range(dim)]
    return Box(low, [a + rng.choice([0.01, 0.1, 0.3, 1.0]) for a in low])


def gathered(rng: Random) -> Approximation:
    f = "; ".join(drawn_proofs.formula(rng, 2, rng.choice([0, 1])) for _ in range(rng.choice([1, 2])))
    options = {"residual": rng.random() < 0.7, "norm": rng.choice(["none", "none", "pre", "post"]), "max_units": 600}
    eps = 10 ** rng.uniform(-4, -1)
    return gather(f, sides(rng, 2), eps, dtype=torch.float32, max_seconds=SECONDS, **options)


def superposed(rng: Random) -> Approximation:
    f = rng.choice([*drawn_proofs.SUMS, "abs(x1 + x2) + sin(x3)", "x1*x2*x3"])
    box = sides(rng, 3 if "x3" in f else 2)
    return superpose(f, box, 10 ** rng.uniform(-3.5, -1), dtype=torch.float32, max_seconds=SECONDS)


def in_tokens(rng: Random) -> Approximation:
    f = "; ".join(drawn_proofs.formula(rng, 2, 1) for _ in range(2))
    eps = 10 ** rng.uniform(-3, -1)
    return approximate(f, sides(rng, 2), eps, layout="tokens", dtype=torch.float32, max_seconds=SECONDS)


def in_package(made: Approximation, argument: Composition) -> list[float]:
    """The largest error by rounding and by units that are not quite their ramps, at each position."""
    atoms = embedded_atoms(made.model, argument, made.certificate.domain)
    forms, read = unit_forms(made.model, atoms), outer_coefficients(made.model)
    proof = lemma._CompositionProof(argument, atoms, forms, read, None)
    last = SLACK * proof.rounding(made.model)
    found = []
    for position in argument.positions:
        sums = np.zeros(argument.outputs)
        for k in argument.active(position):
            sums[argument.terms[k].output] += proof._mismatch(k, position)
        found.append(float(sums.max()) + last)
    return found


def in_checker(place: Path, made: Approximation, argument: Composition) -> list[float]:
    """The same, of the folder alone."""
    stored, box = read_model(place), made.certificate.domain
    domain = tuple(box.lower.flatten().tolist()), tuple(box.upper.flatten().tolist())
    execution = Execution.of("float32 execution", stored, domain)
    assert execution is not None
    proof = checked._Proof(stored, argument, domain, execution)
    found = []
    for position in argument.positions:
        z, r = proof._unit_inputs(position)
        sums = [float(error.upper()) for error in proof._rounding(z, r)]
        for k in argument.active(position):
            term = argument.terms[k]
            s = proof._sum(term, position)
            gap = proof._mismatch(k, proof._term(k, position, z, s), z, s)
            sums[term.output] += float(gap.upper())
        found.append(max(sums))
    return found


@pytest.mark.parametrize(("make", "count"), [(gathered, 8), (superposed, 5), (in_tokens, 6)])
def test_rounding_of_compositions_is_bounded_more_tightly_than_by_the_package(
    make: Callable[[Random], Approximation], count: int, tmp_path: Path
) -> None:
    compared = 0
    for seed in range(count):
        try:
            made = make(Random(f"composed {seed}"))
        except OnelayerError:  # more units than are allowed
            continue
        if made.certificate.method != "composition":
            continue
        place = made.save(tmp_path / str(seed))
        argument = from_text((place / "argument.json").read_text())
        if not isinstance(argument, Composition):
            continue
        with precise():
            own = in_checker(place, made, argument)
        for position, (most, found) in enumerate(zip(in_package(made, argument), own, strict=True)):
            assert found <= most, (seed, position)
            compared += 1
    assert compared >= count // 3
