"""Certificates as Coq theorems: exported, compiled, and refused by Coq where the bound is below the true error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onelayer import Box, approximate, sort
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.errors import OnelayerError
from onelayer.export import kernel
from onelayer.export.coq import certificate_text, to_coq
from onelayer.export.exact import exact_layer
from onelayer.export.exporter import export
from onelayer.export.kernel import AXIOMS, LIBRARY, check_formally, compile_library, not_below, sources
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

without_coq = pytest.mark.skipif(
    shutil.which("coqc") is None,
    reason="coqc is not installed: NO EXPORTED CERTIFICATE WAS CHECKED (`make formal` installs it)",
)


def needs_coq(test: Any) -> Any:
    """Run by `make formal`, where Coq is installed, and not a second time by `make test`."""
    return pytest.mark.coq(without_coq(test))


MODELS = {
    "sin": ("sin(x1)", [0], [1], 1e-3),
    "sin finer": ("sin(x1)", [0], [1], 1e-6),
    "sum of axes": ("sin(x1) + x2**2", [0, 0], [1, 1], 1e-3),
    "kink": ("abs(x1 - x2)", [-1, -1], [1, 1], 1e-3),
    "two outputs": ("sin(x1); cos(x1)", [0], [1], 1e-3),
    "merged direction": ("sin(x1 + 2*x2)", [0, 0], [1, 1], 1e-3),
    "kinks of f and T": ("abs(x1 - 0.3) + max(x2, x1 + x2 - 0.1)", [-1, -1], [1, 1], 1e-3),
    "constants": ("sin(pi*x1)*cos(pi*x1) + x2", [0, 0], [1, 1], 1e-4),
    "interacting": ("x1*x2", [0, 0], [1, 1], 1e-3),
    "interacting finer": ("sin(x1*x2)", [0, 0], [2, 2], 1e-6),
    "three variables": ("x3*exp(x1*x2)", [0, 0, 0], [1, 1, 1], 1e-3),
    "every function": (
        "sqrt(1 + x1*x2)*log(2 + x1) - tanh(x2)/(1 + cos(x1)**2) + sigmoid(x1)**-2",
        [0, 0],
        [1, 1],
        1e-2,
    ),
    "irrational sqrt(d_k)": ("x1*x2*x3*x4", [0, 0, 0, 0], [1, 1, 1, 1], 1e-2),
    "interacting kink": ("x1*x2 + abs(x1 - 0.3)", [0, 0], [1, 1], 1e-2),
}
QUICK = ("sin", "kink", "two outputs", "merged direction", "interacting")
TACTIC = ("kink", "kinks of f and T")
CASES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MODELS]


@pytest.fixture(scope="module")
def built():
    """Approximations by name, built once."""
    known = {}

    def build(name: str):
        if name not in known:
            f, low, high, eps = MODELS[name]
            known[name] = approximate(f, Box(low, high), eps)
            assert known[name].certificate.proved
        return known[name]

    return build


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("coq") / "library", time.monotonic() + 300)


def coqc(text: str, folder: Path, library: Path) -> subprocess.CompletedProcess[str]:
    """One run on the text; what the theorem rests on takes Coq longest to say and is asked for elsewhere."""
    (folder / "claim.v").write_text(text.replace("Print Assumptions certificate.", ""))
    command = ["coqc", "-q", "-w", "none", "-Q", str(library), "Onelayer", "claim.v"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@needs_coq
@pytest.mark.parametrize("name", CASES)
def test_certificates_compile(name: str, built, library: Path, tmp_path: Path) -> None:
    text = certificate_text(built(name), integers="machine")
    done = coqc(text, tmp_path, library)
    assert done.returncode == 0, done.stderr
    assert "Theorem certificate : forall x1" in text
    assert "Admitted" not in text


def true_error(a) -> float:
    """The largest error of the layer in real arithmetic that a grid sees: at most the true one."""
    layer = exact_layer(a.model)
    points = round(40_401 ** (1 / a.box.dim))
    axes = [torch.linspace(low, high, points) for low, high in zip(a.box.lower, a.box.upper, strict=True)]
    x = torch.cartesian_prod(*axes).reshape(-1, a.box.dim).double()
    return float((layer(x) - a.target.formula(x).reshape(len(x), -1)).abs().max())


@needs_coq
@pytest.mark.parametrize("name", CASES)
def test_a_bound_below_the_error_is_rejected(name: str, built, library: Path, tmp_path: Path) -> None:
    """A kink costs a unit or two in the last place of the weights; float64 does not see more than that it is there."""
    a = built(name)
    below = Fraction(1, 10**16) if "kink" in name else Fraction(0.999 * true_error(a))
    assert below <= Fraction(a.certificate.upper)
    done = coqc(certificate_text(a, below, "machine"), tmp_path, library)
    assert done.returncode != 0
    reason = "Numerical evaluation failed to conclude" if name in TACTIC else "while it is expected to have type"
    assert reason in " ".join(done.stderr.split())


def no_value_at(c: float) -> tuple[str, str]:
    """Functions without a value next to c alone, which no sample sees: one for the verifier, one for the tactic."""
    root = f"sqrt((x1 - {c})*(x1 - {c}) - 1e-22)"
    return f"x1 + 1e-3*{root}", f"abs(x1 - 0.1) + 1e-3*{root}"


@needs_coq
def test_a_function_without_a_value_is_no_theorem(library: Path, tmp_path: Path) -> None:
    """Coq's square root of a negative number is 0: what is proved of it says nothing of f, however small the set."""
    verifier, tactic = no_value_at(0.3712345)
    box = Box([0], [1])
    for text, like in ((verifier, "x1"), (tactic, "abs(x1 - 0.1)")):
        honest = approximate(like, box, 1e-2)
        claim = replace(honest.certificate, function=text, eps=1e-2)
        forged = Approximation(honest.model, claim, understood(text, box))
        with pytest.raises(OnelayerError, match="f may have no value"):
            certificate_text(forged, integers="machine", method="tactic")
        assert coqc(certificate_text(forged, integers="machine"), tmp_path, library).returncode != 0


@needs_coq
@pytest.mark.slow
@pytest.mark.parametrize("integers", ["plain", "machine"])
def test_both_methods_prove_the_same(integers: str, built, library: Path, tmp_path: Path) -> None:
    for method in ("verifier", "tactic"):
        done = coqc(certificate_text(built("sin"), None, integers, method), tmp_path, library)
        assert done.returncode == 0, done.stderr


@needs_coq
@pytest.mark.slow
@pytest.mark.parametrize("integers", ["plain", "machine"])
def test_the_kernel_says_what_the_theorem_rests_on(integers: str, built) -> None:
    judged = check_formally(built("sin"), integers=integers)
    assert judged.accepted
    assert judged.eps == 1e-3
    assert "accepted by Coq's kernel: sup|T - f| <= 0.001" in str(judged)
    names = {name.rsplit(".", 1)[-1] for name in judged.axioms}
    assert names == AXIOMS if integers == "plain" else names > AXIOMS


@needs_coq
@pytest.mark.slow
def test_command_line(built, tmp_path: Path, capsys) -> None:
    folder = built("sin").save(tmp_path / "sin")
    assert run(app, ["check", str(folder), "--formal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "accepted"


def stand_in(folder: Path, body: str) -> str:
    """A program in the place of coqc, for what does not depend on Coq."""
    program = folder / "coqc"
    program.write_text(f"#!{sys.executable}\nimport sys\nlast = sys.argv[-1] == 'certificate.v'\n{body}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("print('Axioms:\\nA.classic : x\\n  y') if last else None", "rejected", "rests on other axioms"),
        ("sys.exit('no proof\\nof it' if last else 0)", "rejected", "no proof of it"),
        ("import time\nlast and time.sleep(60)", "undecided", "no answer within 3 s"),
        (
            "last and print('Axioms:\\n' + ' : x\\n'.join(['a.sig_not_dec', 'a.sig_forall_dec', "
            "'b.functional_extensionality_dep', 'c.classic']) + ' :\\n  x')",
            "accepted",
            "on the axioms of Coq's real numbers",
        ),
    ],
)
def test_judgements(body: str, status: str, says: str, built, tmp_path: Path, monkeypatch) -> None:
    program = stand_in(tmp_path, body)
    monkeypatch.setattr(kernel, "find_coqc", lambda: program)
    judged = check_formally(built("sin"), max_seconds=3)
    assert judged.status == status
    assert says in str(judged)
    assert "\n" not in str(judged)


def test_without_coqc_one_line_says_how_to_install_it(built, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    folder = built("sin").save(tmp_path / "sin")
    assert run(app, ["check", str(folder), "--formal"]) == 2
    said = capsys.readouterr().err
    assert "apt-get install coq" in said
    assert said.count("\n") == 1


def test_exact_weights_are_the_layer(built, tmp_path: Path) -> None:
    for name in ("sum of axes", "kink", "two outputs"):
        exported = export(built(name), to="coq", out=tmp_path / name)
        assert exported.difference <= 1e-14
        assert exported.path.name == "certificate.v"


def test_everything_stored_is_in_the_text(built) -> None:
    text = certificate_text(built("sin"))
    assert built("sin").certificate.weights_sha256 in text
    for value in built("sin").model.memory_of(0).values.flatten().tolist():
        assert str(Fraction(value).numerator) in text


def supposing() -> Approximation:
    """A result about a black box that an assumption puts within 0.01 of the sine, which is drawn and exported as f."""
    sine = approximate("sin(x1)", Box([0], [1]), 1e-2)
    supposed = sine.certificate.supposing(0.1, 0.01, "f is within 0.01 of sin(x1)", estimated=False)
    assert supposed.proved
    return replace(sine, certificate=supposed)


def exact() -> Approximation:
    """A result whose bound is zero, as a folder from elsewhere may state it."""
    sine = approximate("sin(x1)", Box([0], [1]), 1e-2)
    return replace(sine, certificate=replace(sine.certificate, eps=0.0, lower=0.0, upper=0.0))


REFUSED = [
    (exact, "above zero"),
    (supposing, "conditional on the declared structure"),
    (lambda: approximate("erf(x1)", Box([0], [1]), 1e-2), "'erf'"),
    (lambda: approximate("x1*atan(x2)", Box([0, 0], [1, 1]), 1e-2), "interacting variables"),
    (lambda: sort(3, 0.0, 1.0, 0.2, kind="thresholds"), "proof by lemma"),
    (lambda: approximate(lambda x: np.square(x[..., 0]), Box([0], [1]), 0.5, lipschitz=2.0), "conditional"),
]


@pytest.mark.parametrize(("build", "says"), REFUSED)
def test_refusals_are_one_line(build, says: str, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match=says) as raised:
        to_coq(build(), tmp_path / "certificate.v")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "certificate.v").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"norm": "pre"}, "LayerNorm"), ({"attention": "hardmax"}, "softmax attention"), ({"hidden": 2}, "read a head")],
)
def test_layers_of_another_form_are_refused(options: dict, says: str) -> None:
    memory = PlainMemory(torch.randn(3, 4).double(), torch.randn(3, 1).double())
    model = OneLayerTransformer.packed((1,), (), [memory], d_model=4, **options)
    with pytest.raises(OnelayerError, match=says):
        exact_layer(model)


def test_tokens_that_attend_to_tokens_are_refused() -> None:
    with pytest.raises(OnelayerError, match="sequence"):
        exact_layer(OneLayerTransformer.tokens((3, 2), (3, 2), d_model=4))


def test_no_bound_is_reported_below_the_one_that_was_proved() -> None:
    for eps in (Fraction(1, 3), Fraction(1, 10), Fraction(2, 3), Fraction(1, 2), 0.1):
        assert Fraction(eps) <= Fraction(not_below(eps)) <= Fraction(eps) * (1 + Fraction(1, 2**52))


def test_only_known_integers(built, tmp_path: Path) -> None:
    with pytest.raises(OnelayerError, match="plain, machine"):
        to_coq(built("sin"), tmp_path / "x.v", integers="quantum")


def test_the_package_carries_what_certificates_import() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for name in LIBRARY:
        assert (sources() / f"{name}.v").is_file()
        assert f'"formal/{name}.v" = "onelayer/formal/{name}.v"' in project
