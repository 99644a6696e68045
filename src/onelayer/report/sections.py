"""The sections of a report, each a piece of HTML with every text escaped."""

from __future__ import annotations

import base64
import hashlib
import io
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path

from onelayer.card import counted
from onelayer.checker.check import CheckReport
from onelayer.disk import read_if_there
from onelayer.errors import OnelayerError
from onelayer.formats import spelled
from onelayer.layer.file import FILE_NAME
from onelayer.layer.file import MAX_BYTES as MAX_WEIGHTS
from onelayer.network.network import RecordedNetwork
from onelayer.pictures.drawing import drawn
from onelayer.proof.certificate import Certificate
from onelayer.proof.files import MAX_BYTES
from onelayer.proof.saved import Claimed
from onelayer.report import claimed, words
from onelayer.result import Approximation

LIBRARIES = ("torch", "numpy", "python-flint")
# What a proof consists of, by the most that a reader takes; whatever else lies in the folder proves nothing.
PROOF_FILES = {FILE_NAME: MAX_WEIGHTS, **MAX_BYTES}
MOST_COORDINATES = 64  # rows of the domain table; sequences have thousands
LONGEST = 4000  # characters of a formula that are printed


@dataclass(frozen=True)
class Subject:
    """What a page is about: a result, its files, the check of them, names and units of its inputs."""

    result: Approximation | Claimed
    folder: Path
    checked: CheckReport
    names: Sequence[str]
    units: Mapping[str, str]


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    lines = []
    for name, text in rows:
        lines.append(f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>')
    return f'<table class="facts"><tbody>{"".join(lines)}</tbody></table>'


def reference(subject: Subject) -> str:
    """What is claimed of which model and function."""
    proof = subject.result.certificate
    model = subject.result.model
    if isinstance(model, RecordedNetwork):
        return _network(proof, model)
    config = model.config
    layer = (
        f"One Transformer layer with {config.attention} attention: {counted(model.size())}. "
        f"Input {config.input_shape}, output {config.output_shape or 'one number'}, "
        f"stored as {spelled(model.dtype)}."
    )
    return f"{_function(proof)}<h2>Model</h2><p>{escape(layer)}</p>"


def _function(proof: Certificate) -> str:
    """The function that the model was compared with, and whether it is the reference itself."""
    heading = "Function in place of the reference" if proof.within else "Reference function"
    text = proof.named_function
    # What is left out is marked: a beginning would read as another function.
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ... ({len(text):,} characters in all)"
    return f"<h2>{heading}</h2><pre>{escape(text)}</pre>"


def _network(proof: Certificate, model: RecordedNetwork) -> str:
    """Of a network: its operations and sizes, and the reference function of a claim that has one."""
    steps = [step.op for step in model.program.steps if step.op != "arrange"]
    counts = ", ".join(f"{steps.count(op)} {op.replace('_', ' ')}" for op in dict.fromkeys(steps))
    weights = sum(p.numel() for p in model.parameters())
    program = model.program
    about = (
        f"A network of {len(steps)} operations ({counts}) with {weights:,} stored numbers in {spelled(model.dtype)}. "
        f"Input {program.input_shape}, output {program.output_shape or 'one number'}."
    )
    text = f"<h2>Model</h2><p>{escape(about)}</p>"
    # Claims about |T - f|, which have no kind, and about slopes compare with a function; all others are about T alone.
    if proof.about.get("kind", "slopes") != "slopes" or not proof.function:
        return text
    return f"{_function(proof)}{text}"


def domain(subject: Subject) -> str:
    """The table of the sides."""
    box = subject.result.box
    low = box.lower.flatten().tolist()
    high = box.upper.flatten().tolist()
    sides = list(zip(subject.names, low, high, strict=True))
    rows = ""
    for name, a, b in sides[:MOST_COORDINATES]:
        unit = subject.units.get(name, "-")
        # As repr: every digit of the ends that are claimed.
        numbers = f"<td class='num'>{a!r}</td><td class='num'>{b!r}</td>"
        rows += f"<tr><td>{escape(name)}</td>{numbers}<td>{escape(unit)}</td></tr>"
    left = box.dim - MOST_COORDINATES
    more = f"<p>and {left:,} more inputs, in certificate.json.</p>" if left > 0 else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("input", "from", "to", "unit"))
    return (
        f"<h2>Domain</h2><p>{words.extent(subject.result.certificate)}</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}'
    )


def picture(subject: Subject) -> str:
    """The picture, or why there is none."""
    if not isinstance(subject.result, Approximation):
        return ""
    try:
        figure = drawn(subject.result)
    except OnelayerError as error:
        return f"<h2>Picture</h2><p>There is no picture: {escape(str(error))}.</p>"
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    about, seen = words.pictured(subject.result.certificate)
    image = f'<img src="data:image/png;base64,{data}" alt="{seen}">'
    return f"<h2>Picture</h2><figure>{image}<figcaption>{about}</figcaption></figure>"


def worst(subject: Subject) -> str:
    """Where the largest known difference is."""
    proof = subject.result.certificate
    if proof.about:
        return _extreme(subject)
    if proof.witness is None:
        return "<h2>Largest known difference</h2><p>No point with a difference above zero is recorded.</p>"
    rests = words.resting(proof)
    rows = [
        ("difference", f"at least {proof.lower!r}{rests if proof.within else ''}"),
        ("at", words.listed(proof.witness, subject.names)),
        (proof.where or "everywhere", f"at most {proof.upper!r}{rests}"),
    ]
    return f"<h2>Largest known difference</h2>{_facts(rows)}"


def _extreme(subject: Subject) -> str:
    """The numbers of a claim of another kind, and the point where it is closest to failing, or fails."""
    proof = subject.result.certificate
    if proof.witness is None:
        return ""
    rows = [("at", words.listed(proof.witness, subject.names))]
    rows += [(name, f"{value!r}") for name, value in claimed.facts(proof).items()]
    return f"<h2>Closest point known</h2>{_facts(rows)}"


def assumptions(subject: Subject) -> str:
    """What the proof assumes."""
    items = "".join(f"<li>{escape(text)}</li>" for text in subject.result.certificate.assumptions)
    return f"<h2>Assumptions</h2><ul>{items or '<li>none beyond the correctness of the program</li>'}</ul>"


def checked(subject: Subject) -> str:
    """What the independent checker says."""
    found = subject.checked
    rows = [
        ("verdict", f"{found.verdict}. {words.verdict(found.verdict)}"),
        ("in detail", found.reason),
        ("time", f"{found.seconds:.1f} s"),
    ]
    about = (
        "A second program, given the files alone, tries to prove the statement again. It shares no arithmetic with the "
        "first one: it computes with balls of real numbers (Arb)."
    )
    return f"<h2>Independent check</h2><p>{about}</p>{_facts(rows)}"


def identity(subject: Subject) -> str:
    """Hashes of the files and versions of the programs."""
    proof = subject.result.certificate
    rows = [("weights and shape", f"sha256 {proof.weights_sha256}")]
    rows += [(f"sha256 of {name}", digest) for name, digest in digests(subject.folder).items()]
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    machine = f"{platform.system()} {platform.machine()}"
    rows += [
        ("proof made by", f"onelayer {proof.version}, {proof.seconds:.1f} s"),
        ("checked with", libraries),
        ("on", f"Python {platform.python_version()}, {machine}"),
    ]
    return f"<h2>Identity and versions</h2>{_facts(rows)}"


def digests(folder: Path) -> dict[str, str]:
    """sha256 of the files in a folder that a proof consists of, by their names; none of what is no folder."""
    found = {name: read_if_there(folder / name, most) for name, most in sorted(PROOF_FILES.items())}
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items() if data is not None}


def again() -> str:
    """How to check it once more."""
    lines = (
        'pip install onelayer\nonelayer check FOLDER --all     # exit status 0: accepted\nonelayer eval FOLDER "POINT"'
    )
    return (
        "<h2>How to check again</h2><p>With the folder that holds the files named above:</p>"
        f"<pre>{escape(lines)}</pre><p>The hashes above must agree with <code>sha256sum FOLDER/*</code>.</p>"
    )
