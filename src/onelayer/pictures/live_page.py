"""The live view as one file: weights, formula and boxes as data, and the script that computes the layer from them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import replace_file
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.words import NOT_RECORDED
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import OrderStatistics, from_text
from onelayer.pictures.explanation import explain
from onelayer.pictures.scene import Scene
from onelayer.proof.files import ARGUMENT
from onelayer.result import Approximation
from onelayer.webpage import POLICY, webpage

LIMIT = 2_000_000  # bytes of a page: it is sent by mail and opened on a phone
MOST_LEAVES = 4000
MOST_NODES = 2000  # of a formula that a browser evaluates at every move
WORDS = 6000  # characters of the explanation
SCRIPTS = ("layer.js", "formula.js", "figure.js", "view.js")


def to_html(a: Approximation, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the live view of ``a`` as one HTML file below 2 MB that needs nothing else; returns the path.

    Drag a point and watch every head's attention over its memory tokens, the weighted values, the hidden units and
    T(x), computed in the browser from the weights.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise OnelayerError(f"cannot write a page to '{target}': the name must end in .html")
    page = live_page(a, title or f"T for {a.certificate.short_function.removeprefix(NOT_RECORDED)}").encode()
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
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{digest}'"
    data = json.dumps(live_data(a), separators=(",", ":")).replace("<", "\\u003c")
    proof = a.certificate
    claim = (
        f"{proof.status}: {proof.sentence} on {a.box!r}. Drag the point; the layer is computed here, from its weights."
    )
    words = str(explain(a))[:WORDS]
    body = f"""<main>
<h1>{escape(title)}</h1>
<p class="sub">{escape(claim)}</p>
<div id="live"></div>
<details><summary>What every head, token and hidden unit is for</summary><pre>{escape(words)}</pre></details>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>"""
    return webpage(title, resource("live.css") + resource("page.css"), body, policy)


def live_script() -> str:
    """The scripts in the order they need each other."""
    return "\n".join(resource(name) for name in SCRIPTS)


def resource(name: str) -> str:
    """A file of the page, as text."""
    return files("onelayer.pictures").joinpath("live", name).read_text(encoding="utf-8")


def live_data(a: Approximation) -> dict[str, Any]:
    """Everything the view computes from, as plain JSON data."""
    proof, box = a.certificate, a.box
    low, high = box.lower.flatten().tolist(), box.upper.flatten().tolist()
    start = list(proof.witness) if proof.witness is not None else box.center.flatten().tolist()
    scene = None if a.target is None else Scene.of(a)
    formula = None if a.target is None else a.target.formula
    return {
        **layer_data(a.model),
        "box": {"lower": low, "upper": high},
        "start": start,
        "names": [f"x{i + 1}" for i in range(box.dim)] if scene is None else scene.names,
        "formula": None if formula is None else _nodes(formula),
        "order": _order(a),
        "boxes": _leaves(a),
        "upper": proof.upper if np.isfinite(proof.upper) else None,
        "purposes": [head.purpose for head in explain(a, samples=64).heads],
    }


def layer_data(model: OneLayerTransformer) -> dict[str, Any]:
    """Shape and numbers of a layer, enough to run it; float32 weights are exact float64 numbers too."""
    tensors = {name: _packed(tensor.double().cpu().numpy()) for name, tensor in model.state_dict().items()}
    return {"config": model.config.to_dict(), "tensors": tensors}


def _nodes(formula: Formula) -> dict[str, Any] | None:
    if len(formula.nodes) > MOST_NODES:
        return None
    nodes = [[node.op, list(node.args), node.value] for node in formula.nodes]
    return {"nodes": nodes, "outputs": list(formula.outputs)}


def _order(a: Approximation) -> dict[str, Any] | None:
    """What is made of the sorted numbers, where that is the function: their weights, None for all of them."""
    text = a.certificate.attachments.get(ARGUMENT)
    argument = None if text is None else from_text(text)
    return {"weights": argument.weights} if isinstance(argument, OrderStatistics) else None


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
    if 3 * len(places) < 2 * len(flat):
        entry["at"] = base64.b64encode(places.astype("<u4").tobytes()).decode()
        flat = flat[places]
    return {**entry, "values": base64.b64encode(flat.tobytes()).decode()}
