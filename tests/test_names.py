"""Names and units of the coordinates, and every way to write a box: from the command line to the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer import Box
from onelayer.cli.console import run as run_app
from onelayer.cli.options import app
from onelayer.errors import OnelayerError
from onelayer.language.endpoints import parse_domain, parse_point
from onelayer.language.formula import parse
from onelayer.pictures.explanation import explain
from onelayer.pictures.scene import Scene
from onelayer.proof.certificate import Certificate

RELATIVE = "m0/sqrt(1 - v**2/c**2)"


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_app(app, list(arguments))
    out, err = capfd.readouterr()
    return status, out, err


def test_a_mass_with_names_of_its_own(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "rel")
    domain = "m0[kg]=1:1.2, v=1:1.1, c=3:3.3"
    status, _, err = run(capfd, "approximate", RELATIVE, "--domain", domain, "--eps", "0.01", "--out", folder)
    assert status == 0, err
    stored = json.loads((tmp_path / "rel" / "certificate.json").read_text())
    assert stored["names"] == ["m0[kg]", "v", "c"]
    assert "x1" in (tmp_path / "rel" / "function.txt").read_text()
    loaded = ol.load(folder)
    assert loaded.box.variables == ("m0", "v", "c")
    assert loaded.box.labels[0] == "m0 [kg]"
    assert "m0" in loaded.certificate.short_function
    assert run(capfd, "check", folder)[0] == 0
    status, by_name, err = run(capfd, "eval", folder, "v=1.05, c=3.1, m0=1.1")
    assert status == 0, err
    assert by_name == run(capfd, "eval", folder, "1.1, 1.05, 3.1")[1]
    assert abs(float(by_name) - 1.1 / (1 - 1.05**2 / 3.1**2) ** 0.5) < 0.01
    for wrong in ("v=1, c=3", "v=1, w=2, c=3", "v=1, v=1, c=3", "v=1, 2, 3"):
        assert run(capfd, "eval", folder, wrong)[0] == 2
    assert Scene.of(loaded).names == ["m0 [kg]", "v", "c"]
    assert explain(loaded).as_dict()["names"] == ["m0[kg]", "v", "c"]
    assert "m0" in str(explain(loaded)) or "v" in str(explain(loaded))


def test_names_and_units_are_in_everything_that_is_written(tmp_path: Path) -> None:
    """Report, C file and header, live page, explanation and guard call a coordinate what the user calls it."""
    a = ol.approximate("m0*v", {"m0 [kg]": (1, 2), "v[m/s]": (1, 3)}, 0.05)
    a.report(tmp_path / "r.html", title="Force")
    page = (tmp_path / "r.html").read_text()
    assert "<pre>m0 * v</pre>" in page
    assert "<td>v</td>" in page
    assert "<td>m/s</td>" in page
    a.export("c", tmp_path / "mass.c")
    for text in ((tmp_path / "mass.c").read_text(), (tmp_path / "mass.h").read_text()):
        assert "x[0] = m0 [kg] in [1.0, 2.0], x[1] = v [m/s] in [1.0, 3.0]" in text
    a.to_html(tmp_path / "live.html")
    assert '"names":["m0 [kg]","v [m/s]"]' in (tmp_path / "live.html").read_text()
    assert "v [m/s]" in str(explain(a))
    with pytest.raises(OnelayerError, match=r"v \[m/s\] is 9.0, not in \[1.0, 3.0\]"):
        a([[1.5, 9.0]], guard=True)
    assert parse_point("v[m/s]=2, m0=1", a.box.variables) == [1.0, 2.0]


BOXES: list[Any] = [
    "a=0:1, b=-1:2",
    {"a": (0, 1), "b": (-1, 2)},
    Box(a=(0, 1), b=(-1, 2)),
    Box([0, -1], [1, 2], names=["a", "b"]),
    Box([(0, 1), (-1, 2)], names=["a", "b"]),
    Box("a=0:1, b=-1:2"),
    {"a": np.array([0, 1]), "b": torch.tensor([-1.0, 2.0])},
    Box(np.array([[0, 1], [-1, 2]]), names=["a", "b"]),
]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_every_way_to_write_a_box(box: Any) -> None:
    result = ol.approximate("a*b", box, 0.5)
    assert result.certificate.proved
    assert result.box == Box([0, -1], [1, 2])
    assert result.box.names == ("a", "b")
    assert ol.certify(result.model, "a*b", box, 0.5).proved


def test_pairs_without_names() -> None:
    assert ol.approximate("x*y", [(0, 1), (-1, 2)], 0.5).box == Box([0, -1], [1, 2])
    assert ol.approximate("x*y", np.array([[0, 1], [-1, 2]]), 0.5).box == Box([0, -1], [1, 2])
    assert ol.approximate("x1*x2", "0:1, -1:2", 0.5).box.names == ()
    assert Box("m0 [kg] = 1:2, v[m/s]=0:1").names == ("m0[kg]", "v[m/s]")
    assert parse_domain("0:1, -1:2").names == ()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Box([1, 2, 3]), "pairs"),
        (lambda: Box(7), "pairs"),
        (lambda: Box([0], [1], a=(0, 1)), "not both"),
        (lambda: Box([(0, 1)], a=(0, 1)), "not both"),
        (lambda: Box({"a b": (0, 1)}), "no name"),
        (lambda: Box({"x2": (0, 1)}), "another one"),
        (lambda: Box([(0, 1), (0, 1)], names=["a", "a[m]"]), "two coordinates"),
        (lambda: Box([0, 0], [1, 1], names=["a"]), "one per coordinate"),
        (lambda: Box([[0, 0]], [[1, 1]], names=["a", "b"]), "one per coordinate"),
        (lambda: Box(), "at least one"),
        (lambda: parse_domain("a=0:1, 2:3"), "every coordinate or none"),
        (lambda: parse_domain("a=0:1, =2:3"), "column"),
        (lambda: ol.certify(lambda x: x[..., 0], "sin", Box(sin=(0, 1)), 1.0), "cannot be called 'sin'"),
        (lambda: ol.certify(lambda x: x[..., 0], "e", Box(e=(0, 1)), 1.0), "cannot be called 'e'"),
        (lambda: ol.certify(lambda x: x[..., 0], "m0 + 1", Box([0], [1]), 1.0), "from the domain, as in v=1:2"),
        (lambda: ol.certify(lambda x: x[..., 0], "m1 + 1", Box(m0=(0, 1)), 1.0), "the variables are m0"),
        (lambda: parse_point("a=1", ["b"]), "no coordinate is called a"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(build: Any, says: str) -> None:
    with pytest.raises(OnelayerError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_names_leave_the_formula_as_it_is() -> None:
    formula = parse("t1 = v*c; t1**2 + x1", 2, names=["v", "c"])
    assert formula == parse("t1 = x1*x2; t1**2 + x1", 2)
    assert parse(formula.text(["v", "c"]), 2, names=["v", "c"]) == formula
    shared = parse("sin(x1) + sin(x1)**2 + cos(x2)", 2)
    assert parse(shared.text(["t", "t1"]), 2, names=["t", "t1"]) == shared


def test_a_witness_is_told_by_name() -> None:
    found = ol.certify(lambda x: 0 * x[..., 0], "v + c", Box(v=(1, 2), c=(3, 4)), 1.0)
    assert found.status == "refuted"
    assert "v = " in str(found)
    assert "c = " in str(found)
    again = Certificate.from_json(found.to_json())
    assert again.domain.names == ("v", "c")


def test_onnx_knows_the_names() -> None:
    pytest.importorskip("onnx")
    from onelayer.export.onnx import onnx_model

    result = ol.approximate("v*c", Box({"v[m/s]": (0, 1), "c": (1, 2)}), 0.5)
    facts = {entry.key: entry.value for entry in onnx_model(result).metadata_props}
    assert facts["inputs"] == "v[m/s], c"
    assert "v" in facts["function"]
    assert result.model(torch.zeros(2, 2, dtype=torch.float64)).shape == (2,)
