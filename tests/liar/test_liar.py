"""The liar is fit to judge: its arithmetic is right, a false claim is found, a true one is left alone."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from flint import ctx

import onelayer as ol
from liar import __main__ as liar_command
from liar import formulas, places, run, trips
from liar.attacks import ATTACKS
from liar.drawn_proofs import METHODS
from liar.expressions import Unclear, Undefined, as_code, ball_values, call, text, torch_code, var
from liar.judge import Truth, judge, of_expression, try_points
from liar.layers import in_balls, random_layer
from onelayer.checker.check import CheckReport
from onelayer.language.formula import parse


def test_text_code_and_balls_are_one_function() -> None:
    """Formula text through the package's parser, torch code and balls agree wherever float64 does not cancel."""
    rng, compared = Random(0), 0
    for _ in range(300):
        expression = formulas.tree(rng, 2, 2)
        points = torch.tensor([[0.3, 0.7], [1.25, 0.5]], dtype=torch.float64)
        parsed, code = (f(points) for f in (_parsed(text(expression)), torch_code(expression, rng)))
        for point, a, b in zip(points.tolist(), parsed.tolist(), code.tolist(), strict=True):
            try:
                with ctx.workprec(400):
                    value = float(ball_values(expression, point).mid())
            except (Undefined, Unclear):
                continue
            found = [number for number in (a, b) if math.isfinite(number)]
            if found and 1e-100 < abs(value) < 1e100:
                compared += 1
                # Each of these may lose digits on the way, the trees being what they are; a wrong function loses all.
                assert min(abs(number - value) for number in found) <= 1e-3 * abs(value), text(expression)
    assert compared > 200


def _parsed(formula: str) -> object:
    try:
        return parse(formula, 2)
    except ol.OnelayerError:
        return lambda points: torch.full((len(points),), math.nan, dtype=torch.float64)


def test_layers_in_balls_are_the_layers_that_run() -> None:
    rng = Random(1)
    for _ in range(60):
        model = random_layer(rng, 2, torch.float64)
        x = torch.tensor([[0.3, -0.7]], dtype=torch.float64)
        with torch.no_grad():
            ran = float(model(x.reshape(-1, *model.config.input_shape)))
        try:
            value = float(in_balls(model, x[0].tolist())[0].mid())
        except Unclear:
            continue
        scale = max(float(parameter.detach().abs().max()) for parameter in model.parameters())
        if scale < 1e6:
            assert ran == pytest.approx(value, rel=1e-8, abs=1e-9 * max(scale, 1.0) ** 3), model


def test_a_false_claim_is_found_and_a_true_one_is_not() -> None:
    rng, f = Random(2), formulas.spike(Random(3), var(0), 0.7313)
    box = ol.Box([0.5], [1.0])
    zero = torch_code(0.0 * var(0))
    certificate = ol.certify(zero, text(f), box, max_boxes=50)
    truth = Truth(of_expression(f), zero)
    points = try_points(certificate, truth, rng, [f], {0: [0.7313]})
    assert not judge(certificate, truth, points, rng).lies
    lie = replace(certificate, status="proved", eps=0.1, upper=0.1, lower=0.0, witness=None, resisted=None)
    assert judge(lie, truth, points, rng).lies
    high = replace(certificate, status="undecided", eps=None, upper=math.inf, lower=2.0, witness=(0.7313,))
    assert judge(high, truth, points, rng).lies


def test_a_point_without_a_value_is_found() -> None:
    """0 / (x - 0.3) has no value at 0.3, whatever multiplies it; the judge finds the point by bisection."""
    x, rng = var(0), Random(4)
    f = 0.0 / (x - 0.3)
    with pytest.raises(Undefined):
        ball_values(f, [0.3])
    low, high = (torch.tensor([end], dtype=torch.float64) for end in (0.0, 1.0))
    samples = torch.rand(64, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(rng.randrange(99)))
    found = places.zeros_of(x - 0.3, low, high, samples)
    assert bool((found == 0.3).any())


def test_cases_are_drawn_from_their_number() -> None:
    one, two = (run.many_cases(3, range(4), "formula") for _ in range(2))
    assert one.count == two.count
    assert [finding["why"] for finding in one.findings] == [finding["why"] for finding in two.findings]


def test_a_finding_names_its_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What crashes or lies is written as one JSON line with everything needed to see it again."""

    def crash(rng: Random, case: object) -> object:
        raise KeyError("planted")

    monkeypatch.setitem(ATTACKS, "formula", (crash, 1.0))
    out = tmp_path / "findings.jsonl"
    report = run.run(seed=9, seconds=0.0, proofs=1, jobs=1, only="formula", out=out)
    assert not report.clean
    first = json.loads(out.read_text().splitlines()[0])
    assert (first["what"], first["attack"], first["seed"], first["case"]) == ("crash", "formula", 9, 0)
    assert "KeyError" in first["why"]


def test_the_command_ends_with_its_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m liar`: one JSON object at the end, and status 1 only if something was found."""
    monkeypatch.setattr("sys.argv", ["liar", "--seconds", "0", "--jobs", "1", "--seed", "5", "--only", "enclosures"])
    assert liar_command.main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["cases"], found["seed"], found["jobs"], found["lies"], found["crashes"]) == (8, 5, 1, 0, 0)
    assert found["enclosures"] > 0
    assert found["seconds"] > 0


def test_round_trips_are_counted_by_method() -> None:
    """What the checker says of an honest proof is counted by how it was made; most proofs are accepted."""
    said = run.many_cases(6, range(12), "trip").summary()["trips"]
    words = sum((Counter(counts) for counts in said.values()), Counter())
    assert set(said) <= set(METHODS)
    assert words["accepted"] + words["declined"] == 12
    assert words["accepted"] > 6


def test_a_rejected_folder_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A finding says where the folder is that the checker rejected."""
    report = CheckReport("rejected", "planted", 0, 1, 0.0, 0.0, 0.0)
    monkeypatch.setattr(trips.ol, "check", lambda place, max_seconds: report)
    found = run.many_cases(3, range(1), "trip", keep=tmp_path / "kept")
    (folder,) = (tmp_path / "kept").glob("*/proof")
    assert str(folder) in found.findings[0]["why"]
    assert found.summary()["trips"] == {found.findings[0]["method"]: {"rejected": 1}}
    assert not found.clean


@pytest.mark.parametrize("half", range(2))
def test_a_slice_of_the_campaign_is_clean(half: int) -> None:
    """No lie and no crash in a hundred cases of every kind; `make liar` tries a thousand times more."""
    report = run.many_cases(2024, range(50 * half, 50 * half + 50))
    assert not [finding for finding in report.findings if finding["what"] in ("lie", "crash")]
    assert report.count["proofs"] > 10
    assert report.count["enclosures"] > 10_000


def test_a_cube_root_in_code_is_a_power_by_the_float_next_to_a_third() -> None:
    """Far from 1 the two differ by more than rounding, so that balls of the one are no judge of the other."""
    formula = call("cbrt", var(0))
    code = as_code(formula)
    point = [7e-201]
    with ctx.workprec(400):
        root, power = ball_values(formula, point), ball_values(code, point)
        apart = float(abs(power / root - 1).mid())
    ran = float(torch_code(code)(torch.tensor([point], dtype=torch.float64)))
    assert 5e-15 < apart < 1e-14
    assert abs(ran - float(power.mid())) <= 4e-16 * float(power.mid())
