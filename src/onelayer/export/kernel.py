"""Coq as the judge of an exported certificate: the file, the library that it imports, one run of ``coqc`` each."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from onelayer.door import door
from onelayer.errors import OnelayerError, one_line
from onelayer.export.coq import to_coq
from onelayer.ground import pinned
from onelayer.result import Approximation, load

# What an exported file imports, each after what it imports itself.
LIBRARY = (
    *("Softmax", "Vectors", "Lookup", "Attention", "Kinks", "Certificate"),
    *("Stored", "Enclosure", "Expansion", "Checker", "Verified"),
)
# What Coq's real numbers and its classical logic rest on.
AXIOMS = {"sig_not_dec", "sig_forall_dec", "functional_extensionality_dep", "classic"}
# With machine integers also what Coq says of the processor's arithmetic.
MACHINE = re.compile(r"(?:PrimInt63|Uint63|PrimFloat|FloatAxioms)\.\w+")
INSTALL = "apt-get install coq libcoq-coquelicot libcoq-interval libcoq-flocq"
CERTIFICATE = "certificate.v"


@dataclass(frozen=True)
class Judgement:
    """ "accepted": Coq's kernel checked a proof of sup|T - f| <= eps in real arithmetic, from ``axioms`` alone.

    "rejected" (``reason`` is what Coq said) and "undecided" (the time ended) prove nothing about the layer.
    """

    status: str
    eps: float
    reason: str
    pieces: int  # of the tactic interval; none where the verifier of formal/Checker.v computed
    integers: str
    axioms: tuple[str, ...]
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether the kernel accepted the theorem."""
        return self.status == "accepted"

    def __str__(self) -> str:
        if not self.accepted:
            return f"{self.status} by Coq's kernel: {self.reason} ({self.seconds:.0f} s)"
        basis = "Coq's real numbers" if self.integers == "plain" else "Coq's real numbers and machine arithmetic"
        how = f"{self.pieces} pieces" if self.pieces else "by the verified checker"
        return (
            f"accepted by Coq's kernel: sup|T - f| <= {self.eps!r} in real arithmetic, {how}, "
            f"on the axioms of {basis} ({self.seconds:.0f} s)"
        )


@door
@pinned()
def check_formally(
    a: Approximation | str | os.PathLike[str],
    *,
    max_seconds: float = 600.0,
    integers: str = "plain",
    eps: Fraction | float | None = None,
) -> Judgement:
    """Write the certificate of ``a``, or of the approximation in a folder, as a Coq theorem and let Coq check it.

    It is accepted iff coqc ends well and the theorem rests on the expected axioms. The library is compiled anew.
    """
    coqc = find_coqc()
    own = load(a) if isinstance(a, str | os.PathLike) else a
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onelayer-coq-") as folder:
        claim = Path(folder) / "claim" / CERTIFICATE
        path = to_coq(own, claim, eps=eps, integers=integers)
        pieces = path.read_text(encoding="ascii").count("\nLemma piece")
        try:
            # Anew each time: Coq believes a compiled file, and one that lies about may be anybody's.
            library = compile_library(Path(folder) / "library", began + max_seconds)
            command = [coqc, *_options(library), CERTIFICATE]
            done = _run(command, path.parent, began + max_seconds)
            axioms = _axioms_of(done.stdout)
            reason = _reason(done, axioms, integers)
            status = "rejected" if reason else "accepted"
        except subprocess.TimeoutExpired:
            axioms = ()
            reason = f"no answer within {max_seconds:g} s"
            status = "undecided"
    certificate = own.certificate
    claimed = certificate.upper if certificate.eps is None else certificate.eps
    stated = claimed if eps is None else not_below(eps)
    seconds = time.monotonic() - began
    return Judgement(status, stated, reason, pieces, integers, axioms, seconds)


def not_below(eps: Fraction | float) -> float:
    """The float that a theorem of this bound may be said to prove: the bound itself, or the next one above it."""
    near = float(eps)
    return near if near >= eps else math.nextafter(near, math.inf)


def find_coqc() -> str:
    """The program, or one line that says how to get it."""
    coqc = shutil.which("coqc")
    if coqc is None:
        raise OnelayerError(f"coqc is not installed; on Debian and Ubuntu: {INSTALL}")
    return coqc


def sources() -> Path:
    """The folder of the Coq library: inside an installed package, or formal/ of the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "formal", package.parents[1] / "formal"):
        if (folder / f"{LIBRARY[-1]}.v").is_file():
            return folder
    raise OnelayerError("the Coq sources of the package are missing; install onelayer again")


def compile_library(into: Path, deadline: float) -> Path:
    """Compile what certificates import into a new folder; returns it."""
    into.mkdir(parents=True)
    for name in LIBRARY:
        file = f"{name}.v"
        shutil.copyfile(sources() / file, into / file)
        done = _run([find_coqc(), *_options(into), file], into, deadline)
        if done.returncode:
            raise OnelayerError(f"Coq does not compile {name}.v ({_said(done)}); needed: {INSTALL}")
    return into


def _axioms_of(printed: str) -> tuple[str, ...]:
    """The names that Print Assumptions lists; empty where it was not reached."""
    _, found, listed = printed.partition("Axioms:\n")
    if found:
        # What a name is of follows on lines that are moved in.
        lines = [line for line in listed.splitlines() if line[:1].strip()]
        return tuple(sorted(line.split()[0] for line in lines))
    return ()


def _reason(done: subprocess.CompletedProcess[str], axioms: tuple[str, ...], integers: str) -> str:
    """Why a run accepts nothing; empty where it accepts."""
    if done.returncode:
        return _said(done)
    # Over plain integers nothing may rest on the processor.
    others = [name for name in axioms if integers == "plain" or not MACHINE.fullmatch(name)]
    if {name.rsplit(".", 1)[-1] for name in others} != AXIOMS:
        return one_line(f"the theorem rests on other axioms than those of the real numbers: {', '.join(others)}")
    return ""


def _options(library: Path) -> list[str]:
    return ["-q", "-w", "none", "-Q", str(library), "Onelayer"]


def _run(command: list[str], folder: Path, deadline: float) -> subprocess.CompletedProcess[str]:
    """A program with arguments, never through a shell."""
    left = max(0.0, deadline - time.monotonic())
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=left, check=False)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return one_line(done.stderr.replace("\n", " ") or f"coqc ended with status {done.returncode}")
