"""ONNX: the same layer in onnxruntime, in float64 and float32, with its certificate in the file.

Expected output: export_onnx.out
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime
import torch

import onelayer as ol
from onelayer.export.onnx import to_onnx


def main() -> None:
    box = ol.Box([-1, -1], [1, 1])
    for dtype, eps in ((torch.float64, 1e-6), (torch.float32, 1e-3)):
        a = ol.approximate("exp(x1*x2); sin(x1 + x2)", box, eps=eps, dtype=dtype)
        with tempfile.TemporaryDirectory() as folder:
            path = to_onnx(a, Path(folder) / "model.onnx")
            size = path.stat().st_size
            facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
            session = onnxruntime.InferenceSession(str(path))
            x = box.sample(1000).to(dtype)
            y = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
        bar = 1e-9 if dtype == torch.float64 else 1e-5
        print(
            dtype, f"under 100 kB: {size < 100_000}", f"parity < {bar:g}: {(y - a.model(x)).abs().max().item() < bar}"
        )
        print("  function in the file:", facts["function"])


if __name__ == "__main__":
    main()
