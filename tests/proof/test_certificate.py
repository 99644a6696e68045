"""Certificate: invariants at construction, the one line people read, JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onelayer as ol
from onelayer import Box
from onelayer.errors import OnelayerError
from onelayer.proof.certificate import Certificate, outward
from onelayer.proof.files import read_proof, write_proof
from onelayer.proof.tree import LEAF, BoxTree


def certificate(**changes: object) -> Certificate:
    base = Certificate(
        status="proved",
        eps=1e-6,
        lower=4.0e-7,
        upper=4.187e-7,
        witness=(0.5, 0.5),
        boxes=1024,
        order=6,
        arithmetic="float64 execution",
        domain=Box([0.0, 0.0], [1.0, 1.0]),
        function="sin(x1) + sin(x2)",
        weights_sha256="0" * 64,
        seconds=1.5,
        version="0.1.0",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_the_line_of_a_proof() -> None:
    line = "Certificate(proved: sup|T - f| <= 4.19e-07 < 1e-06, 1,024 boxes, float64 execution)"
    assert str(certificate()) == repr(certificate()) == line


def test_the_line_of_a_refutation_names_the_witness() -> None:
    line = str(certificate(status="refuted", lower=2.0041e-6, upper=3e-6, arithmetic="real"))
    assert (
        line
        == "Certificate(refuted: sup|T - f| >= 2.004e-06 > 1e-06 at (0.5, 0.5), 1,024 boxes, exact real arithmetic)"
    )


def test_the_line_of_an_undecided_search_names_the_place() -> None:
    line = str(certificate(status="undecided", upper=math.inf, resisted=((0.0, 0.0), (0.5, 1.0))))
    assert line.startswith(
        "Certificate(undecided: sup|T - f| >= 3.999e-07, no upper bound, asked for 1e-06, resisted near (0.25, 0.5)"
    )


def test_without_eps_the_line_is_the_enclosure() -> None:
    assert "proved: 3.999e-07 <= sup|T - f| <= 4.19e-07," in str(certificate(eps=None))


def test_lemma_and_condition_are_said() -> None:
    assert "by lemma" in str(certificate(method="lemma", boxes=0))
    assert "declared Lipschitz constant" in str(certificate(method="conditional on Lipschitz constant"))


@pytest.mark.parametrize("upper", [0.1, math.nextafter(0.1, 0), 0.0999, 0.09995])
def test_the_printed_bound_never_exceeds_eps(upper: float) -> None:
    shown = re.search(r"<= (\S+) <=? 0.1", str(certificate(eps=0.1, upper=upper)))
    assert shown is not None
    assert float(shown[1]) <= 0.1
    assert float(shown[1]) >= upper


@given(st.floats(min_value=1e-300, max_value=1e300), st.booleans())
def test_printed_bounds_are_rounded_outward(value: float, up: bool) -> None:
    shown = Decimal(outward(value, up=up))
    assert shown >= Decimal(value) if up else shown <= Decimal(value)
    assert abs(shown - Decimal(value)) <= Decimal(value) / 1000


@pytest.mark.parametrize(
    "changes",
    [
        {"upper": math.nan},
        {"upper": 2e-6},
        {"lower": 1e-3},
        {"lower": math.nan},
        {"status": "refuted"},
        {"witness": (0.5, 1.5)},
        {"boxes": -1},
    ],
)
def test_inconsistent_certificates_cannot_be_built(changes: dict[str, object]) -> None:
    with pytest.raises(OnelayerError, match="inconsistent certificate"):
        certificate(**changes)


def test_the_proof_must_match() -> None:
    tree = BoxTree(np.zeros(2), np.ones(2), np.array([1, LEAF, LEAF], dtype=np.uint8))
    assert certificate(proof=tree, boxes=2).proof == tree
    with pytest.raises(OnelayerError, match="1024 boxes stated, 2 in the proof"):
        certificate(proof=tree)
    with pytest.raises(OnelayerError, match="another box"):
        certificate(proof=tree, boxes=2, domain=Box([0.0, 0.0], [1.0, 2.0]))


def test_json_round_trip() -> None:
    for changes in ({}, {"status": "undecided", "upper": math.inf}, {"eps": None}, {"function": "x1 + " * 2000 + "x2"}):
        found = certificate(**changes)
        assert Certificate.from_json(found.to_json(), found.function) == found
    sequence = certificate(domain=Box(np.zeros((2, 3)), np.ones((2, 3))), witness=(0.5,) * 6)
    assert Certificate.from_json(sequence.to_json()) == sequence


def test_saved_round_trip(tmp_path: Path) -> None:
    tree = BoxTree(np.zeros(2), np.ones(2), np.array([1, LEAF, LEAF], dtype=np.uint8))
    found = certificate(proof=tree, boxes=2)
    write_proof(tmp_path, found)
    assert read_proof(tmp_path) == found


def test_a_claim_of_another_kind_is_said_and_kept(tmp_path: Path) -> None:
    plain = certificate()
    assert "claim" not in json.loads(plain.to_json())
    other = certificate(claim="sup|dT/dx|")
    assert "sup|dT/dx| <= 4.19e-07 < 1e-06" in str(other)
    assert json.loads(other.to_json())["claim"] == "sup|dT/dx|"
    assert Certificate.from_json(other.to_json()) == other
    with pytest.raises(OnelayerError, match="few words"):
        certificate(claim="")


def test_the_status_is_decided_in_one_place() -> None:
    facts = {
        name: getattr(certificate(), name)
        for name in ("boxes", "order", "arithmetic", "domain", "function", "weights_sha256", "seconds", "witness")
    }
    where = ((0.0, 0.0), (0.5, 1.0))
    for lower, upper, status in ((0.1, 0.9, "proved"), (2.0, 3.0, "refuted"), (0.1, 2.0, "undecided")):
        found = Certificate.settled(eps=1.0, lower=lower, upper=upper, resisted=where, **facts)
        assert (found.status, found.resisted) == (status, where if status == "undecided" else None)


def test_eps_may_be_any_kind_of_number() -> None:
    """It is stated as a float, never above what was asked."""
    for eps in (np.float64(0.01), np.float32(0.01), Fraction(1, 3), Fraction(1, 10)):
        found = ol.approximate("sin(x)", ol.Box([0.0], [1.0]), eps).certificate
        assert type(found.eps) is float
        assert found.proved
        assert found.eps <= eps
        assert "np." not in str(found)


def test_an_eps_that_is_no_float_is_the_next_one_below() -> None:
    """sup|x / 3| on [0, 1] is a third, which no float is."""
    box = Box([0.0], [1.0])
    proved = {}
    for eps in (Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**9), 10**400):
        proved[eps] = ol.certify(lambda x: x[..., 0] * 0.0, "x/3", box, eps=eps, execution="real", max_boxes=50).proved
    assert list(proved.values()) == [False, True, True]
    for eps in (Fraction(1, 3), np.longdouble("0.1")):
        assert ol.certify(lambda x: x[..., 0], "x", box, eps=eps).eps <= eps
