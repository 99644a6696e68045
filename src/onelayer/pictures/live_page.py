"""The live view as one file: weights, formula and boxes as data, and the script that computes the layer from them."""

from __future__ import annotations

import base64
import json
import os
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import replace_file
from onelayer.errors import OnelayerError
from onelayer.formats import FLOAT64, format_of, spelled
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.language.knots import Content
from onelayer.language.words import NOT_RECORDED
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import OrderStatistics, from_text
from onelayer.pictures.explanation import ExplainedHead, explain
from onelayer.pictures.scene import Scene, spread
from onelayer.pictures.written import written_box, written_domain, written_names
from onelayer.proof.certificate import Certificate, abridged
from onelayer.proof.claim import ESTIMATED
from onelayer.proof.files import ARGUMENT, TABLE, read_table
from onelayer.result import Approximation
from onelayer.webpage import allowing, webpage

LIMIT = 2_000_000  # bytes of a page: it is sent by mail and opened on a phone
MOST_LEAVES = 4000  # boxes of a proof: smaller ones than a few pixels show nothing
MOST_NODES = 2000  # of a formula that a browser evaluates at every move
MOST_TABLE = 300_000  # characters of a table in a formula
MOST_TITLE = 80  # characters of a function in the title
WORDS = 6000  # characters of the explanation
SCRIPTS = ("layer.js", "formula.js", "figure.js", "heads.js", "view.js")
STYLES = ("base.css", "live.css", "page.css")
MOST_ROWS = 500  # of a table that are drawn as dots
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@pinned()
def to_html(a: Approximation, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the live view of ``a`` as one HTML file below 2 MB that needs nothing else; returns the path.

    Drag a point and watch every head's attention over its memory tokens, the weighted values, the hidden units and
    T(x), computed in the browser from the weights.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise OnelayerError(f"cannot write a page to '{target}': the name must end in .html")
    function = a.certificate.short_function.removeprefix(NOT_RECORDED)
    heading = title or f"T for {abridged(function, MOST_TITLE)}"
    page = live_page(a, heading).encode()
    if len(page) > LIMIT:
        raise OnelayerError(
            f"the live view would have {len(page):,} bytes, more than {LIMIT:,}: this layer has "
            f"{a.size()['parameters']:,} parameters; draw it instead"
        )
    replace_file(target, page)
    return target


def live_page(a: Approximation, title: str) -> str:
    """The whole page. Data cannot end its script element: every < in it is written as an escape."""
    mount = "mountLive(document.getElementById('live'), JSON.parse(document.getElementById('data').textContent));"
    script = f"{live_script()}\n{mount}\n"
    data = json.dumps(live_data(a), separators=(",", ":")).replace("<", "\\u003c")
    proof = a.certificate
    mark = f'<span class="badge {escape(proof.status)}">{escape(proof.status)}</span>'
    where = written_domain(written_box(a.box, a.target))
    claim = typeset(f"{proof.sentence}, {proof.executed}, on {where}")
    claim = f"{claim}. Drag the point: the layer is computed here, from its weights{_arithmetic_here(a)}."
    words = str(explain(a))[:WORDS]
    body = f"""<main>
<h1>{escape(title)}</h1>
<p class="sub">{mark}{escape(claim)}</p>
<div id="live"></div>
<details><summary>What every head, token and hidden unit is for</summary><pre>{escape(words)}</pre></details>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>"""
    style = "".join(map(resource, STYLES))
    return webpage(title, style, body, allowing(script))


def _arithmetic_here(a: Approximation) -> str:
    """Where a browser computes in another format than the layer: that it does."""
    if format_of(a.model.dtype) is FLOAT64:
        return ""
    return f", in float64 and not in {spelled(a.model.dtype)}"


def _bound_word(proof: Certificate) -> str:
    """What the number ``upper`` may be called: proved only where nothing is declared or guessed."""
    if proof.method == ESTIMATED:
        return "estimated bound"
    return "bound under its condition" if proof.condition else "proved bound"


def typeset(sentence: str) -> str:
    """A sentence of a certificate with the signs of mathematics; its digits stay as they are."""
    text = re.sub(r"(?<=\d)e([+-]?\d+)", lambda found: f"·10{str(int(found[1])).translate(RAISED)}", sentence)
    text = re.sub(r"\^(\d+)", lambda found: found[1].translate(RAISED), text)
    return text.replace("<=", "≤").replace(">=", "≥").replace("T - f", "T − f")


def live_script() -> str:
    """The scripts in the order they need each other."""
    return "\n".join(resource(name) for name in SCRIPTS)


def resource(name: str) -> str:
    """A file of the page, as text."""
    return files("onelayer.pictures").joinpath("live", name).read_text(encoding="utf-8")


def _start(a: Approximation) -> list[float]:
    """Where x stands first: at the largest error known; of a sequence, where its numbers differ."""
    witness = a.certificate.witness
    if a.model.config.layout == "tokens" and a.box.dim > 2:
        return list(spread(a.box).tolist())
    if witness is None:
        return list(a.box.center.flatten().tolist())
    return list(witness)


def live_data(a: Approximation) -> dict[str, Any]:
    """Everything the view computes from, as plain JSON data."""
    proof = a.certificate
    box = a.box
    low = box.lower.flatten().tolist()
    high = box.upper.flatten().tolist()
    scene = None if a.target is None else Scene.of(a)
    formula = None if a.target is None else a.target.formula
    names = written_names(a.box, a.target)
    # Samples find the peaks of scattered tokens, which the view computes for itself: few of them do.
    told = explain(a, samples=64).heads
    # JSON has no infinity.
    upper = proof.upper if np.isfinite(proof.upper) else None
    return {
        **layer_data(a.model),
        "box": {"lower": low, "upper": high},
        "start": _start(a),
        "names": names,
        "output": 0 if scene is None else scene.output,  # the one of the largest error known
        "formula": None if formula is None else _nodes(formula),
        "order": _order(a),
        "boxes": _leaves(a),
        "upper": upper,
        "bound": _bound_word(proof),
        "rounded": _arithmetic_here(a).removeprefix(", "),
        "heads": [_told(head) for head in told],
        "tokens": _tokens(a, names),
        "rows": _rows(a),
    }


def layer_data(model: OneLayerTransformer) -> dict[str, Any]:
    """Shape and numbers of a layer, enough to run it; float32 weights are exact float64 numbers too."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        tensors[name] = _packed(tensor.double().cpu().numpy())
    return {"config": model.config.to_dict(), "tensors": tensors}


def _told(head: ExplainedHead) -> dict[str, Any]:
    """A head in words, with the lines slope u + bias whose softmax is its attention along each axis."""
    axes = []
    for axis in head.axes:
        told: dict[str, Any] = {"reads": axis.reads, "direction": axis.direction, "range": axis.range}
        for number in ("slope", "bias", "peak"):
            told[number] = [getattr(token, number) for token in axis.tokens]
        axes.append(told)
    return {"purpose": head.purpose, "axes": axes or None}


def _tokens(a: Approximation, names: list[str]) -> list[str]:
    """Names of the tokens of a sequence, where each holds one number; nothing where they have no names."""
    config = a.model.config
    if config.layout == "tokens" and config.length == len(names):
        return names
    return []


def _rows(a: Approximation) -> dict[str, Any] | None:
    """The rows of a table that the layer recalls, where a figure can show them."""
    text = a.certificate.attachments.get(TABLE)
    if text is None or a.box.dim > 2:
        return None
    x, y = read_table(text)
    if len(x) > MOST_ROWS:
        return None
    return {"x": _packed(x.reshape(len(x), -1)), "y": _packed(y.reshape(len(y), -1))}


def _nodes(formula: Formula) -> dict[str, Any] | None:
    contents = [node.value for node in formula.nodes if isinstance(node.value, Content)]
    tables = sum(len(content.text()) for content in contents)
    if len(formula.nodes) > MOST_NODES or tables > MOST_TABLE:
        return None
    nodes = [[node.op, list(node.args), _plain(node.value)] for node in formula.nodes]
    return {"nodes": nodes, "outputs": list(formula.outputs)}


def _plain(value: float | None) -> Any:
    """The parameter of a node: a number, or the lists of numbers of a table."""
    return json.loads(f"[{value.text()}]") if isinstance(value, Content) else value


def _order(a: Approximation) -> dict[str, Any] | None:
    """What is made of the sorted numbers, where that is the function: their weights, None for all of them."""
    text = a.certificate.attachments.get(ARGUMENT)
    argument = None if text is None else from_text(text)
    if isinstance(argument, OrderStatistics):
        return {"weights": argument.weights}
    return None


def _leaves(a: Approximation) -> dict[str, Any] | None:
    proof = a.certificate.proof
    if proof is None or proof.leaves > MOST_LEAVES:
        return None
    low, high = proof.boxes()
    return {"lower": _packed(low), "upper": _packed(high)}


def _packed(array: NDArray[np.float64]) -> dict[str, Any]:
    """Shape and base64 of little-endian float64; a mostly empty array by the places of what is not zero."""
    flat = np.ascontiguousarray(array, dtype="<f8").reshape(-1)
    places = np.flatnonzero(flat)
    entry: dict[str, Any] = {"shape": list(array.shape)}
    # A place takes 4 bytes and a number 8: 12 for each that is not zero, or 8 for every one.
    if 3 * len(places) < 2 * len(flat):
        entry["at"] = base64.b64encode(places.astype("<u4").tobytes()).decode()
        flat = flat[places]
    return {**entry, "values": base64.b64encode(flat.tobytes()).decode()}
