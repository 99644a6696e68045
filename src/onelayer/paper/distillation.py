"""Section VI-B: a deep stack in one layer, by both roads: built with a proof, and trained on its outputs."""

from __future__ import annotations

from onelayer.box import Box
from onelayer.paper.finding import HOLDS, Check, Finding, ResultTable, Setting, at_most
from onelayer.training.distill import distill
from onelayer.training.stack import Stack
from onelayer.training.train import train

TAUGHT = "exp(sin(2*x1))*x2/2 + x1*x2"
# A larger eps is no easier: its layer has too few tokens for the proof to end.
EPS = {True: 0.1, False: 0.05}
MOST_SECONDS = 900  # for the proof of one student
ELSEWHERE = (
    "Measured elsewhere, not in this run, and nothing proved: one layer of 5,658,496 parameters, trained on the "
    "vectors of a sentence encoder of six blocks (10,657,536 parameters), has cosine 0.9247 [0.924, 0.9253] with it on "
    "10,000 held-out texts; a linear map of the mean word embedding has 0.7263 [0.7252, 0.7276]. The numbers are in "
    "benchmarks/results/distill-sentences-full.json, by python benchmarks/distill.py sentences --full --device cuda"
)


def four_blocks(setting: Setting) -> Finding:
    """A trained stack of four GELU blocks on a square: one layer built and proved, one trained and measured."""
    box = Box([-1.0, -1.0], [1.0, 1.0])
    start = Stack((2,), (), depth=4, d_model=8, heads=2, hidden=16, activation="gelu", seed=setting.seed)
    teacher = train(TAUGHT, box, model=start, steps=300, batch=64, lr=3e-3, seed=setting.seed).model
    eps = EPS[setting.quick]
    built = distill(teacher, box, eps, max_seconds=MOST_SECONDS, seed=setting.seed)
    data = box.sample(2000, seed=setting.seed)
    steps = setting.pick(600, 3000)
    student = distill(teacher, data=data, heads=2, d_model=16, hidden=64, steps=steps, batch=128, seed=setting.seed)
    assert built.approximation is not None
    assert student.fidelity is not None
    upper = built.approximation.certificate.upper
    explained = student.fidelity.explained
    checks = [
        Check("certified: proved distance from the teacher on the whole square", upper, "<=", eps),
        Check("statistical: share of its variance explained on held-out inputs, lower end", explained.low, ">=", 0.99),
    ]
    said = (
        f"A stack of four blocks with {student.teacher_parameters:,} parameters, itself trained on a smooth function "
        "of two numbers, is replaced by one layer on two roads. Certified: the layer is built, and its distance from "
        "the teacher is proved on every point of the square. Statistical: the layer is trained on the teacher's "
        "outputs, and its fidelity is measured on inputs that it never saw, with a 95 % interval."
    )
    rows = (
        ("certified: built, with proof", built.parameters, f"sup error at most {at_most(upper)}"),
        ("statistical: trained on its outputs", student.parameters, f"explains {explained}"),
    )
    header = ("one layer", "parameters", "agreement with the teacher")
    return Finding(HOLDS, said, checks, [ResultTable(header, rows)], notes=[ELSEWHERE])
