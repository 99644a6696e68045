"""The Coq development in formal/: it compiles, it rests on four axioms, and theory.md links each of its theorems.

What needs ``coqc`` is skipped where it is not installed; `make formal` installs it. The texts are compared everywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMAL = ROOT / "formal"
SOURCES = sorted(FORMAL.glob("*.v"))

# What Coq's real numbers (the first three) and its classical logic bring along.
AXIOMS = {"sig_not_dec", "sig_forall_dec", "functional_extensionality_dep", "classic"}

# Every way to state something without a proof, or to loosen the kernel.
ESCAPES = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Conjectures?|Parameters?|Primitive|Declare|Abort"
    r"|bypass_check|Unset|type_in_type|impredicative_set|native_compute)\b"
)

without_coq = pytest.mark.skipif(
    not all(map(shutil.which, ("coqc", "coq_makefile", "make"))),
    reason="coqc is not installed: NO THEOREM OF formal/ WAS CHECKED (`make formal` installs it)",
)


def needs_coq(test: Any) -> Any:
    """Run by `make formal`, where Coq is installed, and not a second time by `make test`."""
    return pytest.mark.coq(without_coq(test))


def code(source: Path) -> str:
    """The text of a Coq file without its comments, which may nest."""
    text, previous = source.read_text(encoding="utf-8"), ""
    while text != previous:
        previous, text = text, re.sub(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", " ", text, flags=re.S)
    return text


def statements(kinds: str) -> dict[str, set[str]]:
    return {s.name: set(re.findall(rf"^(?:{kinds})\s+([\w']+)", code(s), flags=re.M)) for s in SOURCES}


def linked() -> dict[str, set[str]]:
    """The links of docs/theory.md: [`name`][File.v]."""
    links: dict[str, set[str]] = {}
    for name, file in re.findall(r"\[`([\w']+)`\]\[(\w+\.v)\]", (ROOT / "docs/theory.md").read_text(encoding="utf-8")):
        links.setdefault(file, set()).add(name)
    return links


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.name)
def test_nothing_is_taken_on_trust(source: Path) -> None:
    assert not ESCAPES.findall(code(source))
    section = 0
    for word, _ in re.findall(r"^\s*(Section|End|Variables?|Hypothes[ie]s|Context)\b(.*)$", code(source), flags=re.M):
        section += {"Section": 1, "End": -1}.get(word, 0)
        assert section > 0 or word == "End", f"{word} outside of a section is an axiom"


def test_theory_links_every_theorem_and_no_other() -> None:
    theorems = {file: names for file, names in statements("Theorem|Corollary").items() if names}
    assert linked() == theorems


def test_theory_defines_every_link() -> None:
    theory = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    for file in linked():
        assert f"\n[{file}]: ../formal/{file}\n" in theory


def test_project_lists_every_file() -> None:
    listed = [line for line in (FORMAL / "_CoqProject").read_text(encoding="utf-8").splitlines() if line.endswith(".v")]
    assert sorted(listed) == [source.name for source in SOURCES]


def run(command: list[str], folder: Path) -> str:
    """What the command prints, on both streams (coqchk reports on the second), if it succeeds."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


def compile_into(folder: Path) -> None:
    for source in [*SOURCES, FORMAL / "_CoqProject"]:
        shutil.copy(source, folder)
    run(["coq_makefile", "-f", "_CoqProject", "-o", "CoqMakefile"], folder)
    run(["make", "-s", "-f", "CoqMakefile"], folder)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The development, compiled once per run: the workers of one run share the folder above their own."""
    import fcntl  # where there is no fcntl there is no coqc either

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "formal"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shared.mkdir()
            compile_into(shared)
    return shared


def coqc(source: Path, compiled: Path) -> str:
    return run(["coqc", "-Q", str(compiled), "Onelayer", "-w", "-ambiguous-paths", source.name], source.parent)


@needs_coq
def test_compiles_and_rests_on_four_axioms(compiled: Path, tmp_path: Path) -> None:
    """Taken together: one definition that mentions every theorem, and the axioms below it."""
    theorems = statements("Theorem|Corollary")
    uses = [f"let _ := @{file[:-2]}.{name} in" for file, names in theorems.items() for name in sorted(names)]
    source = tmp_path / "Everything.v"
    source.write_text(
        f"From Onelayer Require {' '.join(file[:-2] for file in theorems)}.\n"
        f"Definition everything : True := {' '.join(uses)} I.\nPrint Assumptions everything.\n"
    )
    printed = coqc(source, compiled).splitlines()
    assert len(uses) > 60
    assert printed[0] == "Axioms:"
    assert {line.split()[0].rsplit(".", 1)[-1] for line in printed[1:] if not line.startswith(" ")} == AXIOMS


@needs_coq
def test_a_false_theorem_does_not_pass(compiled: Path, tmp_path: Path) -> None:
    source = tmp_path / "Lie.v"
    source.write_text("From Onelayer Require Softmax.\nTheorem lie : 1 = 2.\nProof. reflexivity. Qed.\n")
    with pytest.raises(AssertionError, match="Unable to unify"):
        coqc(source, compiled)


@needs_coq
def test_a_certificate_compiles_and_a_smaller_claim_is_refused(compiled: Path, tmp_path: Path) -> None:
    """example_certificate.v proves 697e-6 and expects failure at 695e-6; the error of its head is 696.1e-6."""
    shutil.copy(Path(__file__).with_name("example_certificate.v"), tmp_path)
    coqc(tmp_path / "example_certificate.v", compiled)


@needs_coq
@pytest.mark.slow
def test_the_independent_checker_accepts_every_file(compiled: Path) -> None:
    """coqchk reads the compiled files with a kernel of its own, and names the axioms it met."""
    files = [f"Onelayer.{source.stem}" for source in SOURCES]
    said = run(["coqchk", "-o", "-silent", "-Q", ".", "Onelayer", *files], compiled)
    axioms = said.split("* Axioms:")[1].split("*")[0].split()
    assert {axiom.rsplit(".", 1)[-1] for axiom in axioms} == AXIOMS
    assert said.count("<none>") == 3  # no type in type, no unsafe fixpoint, no assumed positivity
