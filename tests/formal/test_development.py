"""The Coq development in formal/: it compiles, it rests on four axioms, and theory.md links each of its theorems.

What needs ``coqc`` is skipped where it is not installed; `make formal` installs it. The texts are compared everywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

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

needs_coq = pytest.mark.skipif(
    not all(map(shutil.which, ("coqc", "coq_makefile", "make"))),
    reason="coqc is not installed: NO THEOREM OF formal/ WAS CHECKED (`make formal` installs it)",
)


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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compile_into(folder: Path) -> None:
    for source in [*SOURCES, FORMAL / "_CoqProject"]:
        shutil.copy(source, folder)
    run(["coq_makefile", "-f", "_CoqProject", "-o", "CoqMakefile"], folder)
    run(["make", "-s", "-f", "CoqMakefile"], folder)


def assumptions(folder: Path) -> set[str]:
    """The axioms below all theorems taken together: one definition that mentions each of them."""
    names = [f"{file[:-2]}.{name}" for file, found in statements("Theorem|Corollary").items() for name in sorted(found)]
    uses = " ".join(f"let _ := @{name} in" for name in names)
    modules = " ".join(source.stem for source in SOURCES)
    (folder / "Everything.v").write_text(
        f"From Onelayer Require {modules}.\nDefinition everything : True := {uses} I.\nPrint Assumptions everything.\n"
    )
    printed = run(["coqc", "-Q", ".", "Onelayer", "-w", "-ambiguous-paths", "Everything.v"], folder)
    assert printed.startswith("Axioms:\n")
    return {line.split()[0].rsplit(".", 1)[-1] for line in printed.splitlines()[1:] if not line.startswith(" ")}


@needs_coq
def test_compiles_and_rests_on_four_axioms(tmp_path: Path) -> None:
    compile_into(tmp_path)
    assert assumptions(tmp_path) == AXIOMS


@needs_coq
def test_a_theorem_without_proof_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "Lie.v").write_text("Theorem lie : 1 = 2.\nProof. reflexivity. Qed.\n")
    with pytest.raises(AssertionError, match="Unable to unify"):
        run(["coqc", "Lie.v"], tmp_path)


@needs_coq
@pytest.mark.slow
def test_the_independent_checker_accepts_every_file(tmp_path: Path) -> None:
    """coqchk reads the compiled files with a kernel of its own, and names the axioms it met."""
    compile_into(tmp_path)
    files = [f"Onelayer.{source.stem}" for source in SOURCES]
    said = run(["coqchk", "-o", "-silent", "-Q", ".", "Onelayer", *files], tmp_path)
    axioms = said.split("* Axioms:")[1].split("*")[0].split()
    assert {axiom.rsplit(".", 1)[-1] for axiom in axioms} == AXIOMS
    assert said.count("<none>") == 3  # no type in type, no unsafe fixpoint, no assumed positivity
