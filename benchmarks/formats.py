"""What few bits cost: one function built for every format, its proof, its file, and a float32 layer merely rounded.

``rounded_seen`` is the largest error seen of the float32 layer of the same eps with every weight rounded to the format,
executed in it: what one gets without building for the format. Errors are seen at 100,000 numbers of the format.

python benchmarks/formats.py
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import report
import torch
from suite import F1, F3

from onelayer import Box, approximate
from onelayer.build.lookup.storage import Integers
from onelayer.layer.file import FILE_NAME
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.recording.target import Target
from onelayer.result import Approximation

POINTS = 100_000
CASES = (
    (F3, "float32", 1e-2),
    (F3, "bfloat16", 1e-2),
    (F3, "int8", 1e-2),
    (F3, "float32", 3e-3),
    (F3, "float16", 3e-3),
    (F1, "float32", 2e-2),
    (F1, "bfloat16", 2e-2),
    (F1, "int8", 2e-2),
    (F1, "float32", 3e-3),
    (F1, "float16", 3e-3),
)


def seen(model: OneLayerTransformer, target: Target, box: Box) -> float:
    """The largest |T - f| at numbers of the format of the model."""
    low, high = (side.to(model.dtype) for side in (box.lower, box.upper))
    x = torch.minimum(torch.maximum(box.sample(POINTS).to(model.dtype), low), high)
    inside = ((x.double() >= box.lower) & (x.double() <= box.upper)).all(-1)
    x = x[inside]
    with torch.no_grad():
        return float((model(x).double() - target.function(x.double())).abs().max())


def merely_rounded(plain: Approximation, name: str) -> OneLayerTransformer:
    """The float32 layer with its weights rounded to the nearest numbers of the format."""
    model = copy.deepcopy(plain.model)
    if name != "int8":
        return model.to(getattr(torch, name))
    for tensor in model.state_dict().values():
        if tensor.ndim >= 2:
            columns = tensor.reshape(-1, tensor.shape[-1]).double().numpy()
            tensor.copy_(torch.from_numpy(Integers().nearest(columns)).reshape(tensor.shape))
    return model


def row(problem: Any, name: str, eps: float, plain: dict[tuple[str, float], Approximation]) -> dict[str, Any]:
    a = approximate(problem.formula, problem.box, eps, dtype=name)
    if name == "float32":
        plain[problem.name, eps] = a
    with tempfile.TemporaryDirectory() as folder:
        size = (a.save(Path(folder) / "layer") / FILE_NAME).stat().st_size
    assert a.target is not None
    rounded = merely_rounded(plain[problem.name, eps], name)
    return {
        "function": problem.name,
        "format": name,
        "eps": eps,
        "status": a.certificate.status,
        "tokens": a.size()["tokens"],
        "file_bytes": size,
        "proved": a.certificate.upper,
        "seen": seen(a.model, a.target, a.box),
        "rounded_seen": seen(rounded, a.target, a.box),
    }


def main() -> None:
    torch.set_num_threads(1)
    plain: dict[tuple[str, float], Approximation] = {}
    report.write("formats", [row(*case, plain) for case in CASES])


if __name__ == "__main__":
    main()
