"""Write the golden folders: one small proof per construction, method and format.

    python tests/golden/make.py [folder]     default: beside this file

The committed folders are what this program wrote once; the tests load, check and forge them. Run it into another folder
and compare (``python tests/golden/make.py out --compare``) to see whether a change of shape changed a number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import onelayer as ol

HERE = Path(__file__).parent
POINTS, OUTPUTS = 8, "outputs.json"
VARYING = {"seconds", "version", "sha256"}
F32 = torch.float32


def _unit(dim: int) -> ol.Box:
    return ol.Box([0.0] * dim, [1.0] * dim)


def _real() -> ol.Approximation:
    built = ol.approximate("exp(x)", _unit(1), 1e-5)
    certificate = ol.certify(built.model, "exp(x)", _unit(1), 1e-5, execution="real")
    return ol.Approximation(built.model, certificate, built.target)


def _enclosed() -> ol.Approximation:
    built = ol.approximate("cos(3*x)", _unit(1), 1e-4)
    return ol.Approximation(built.model, ol.certify(built.model, "cos(3*x)", _unit(1)), built.target)


def _table() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.25, -1.0], [2.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
    return x, torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0], dtype=torch.float64)


CASES: dict[str, Callable[[], ol.Approximation]] = {
    "axis": lambda: ol.approximate("sin(pi*x)", ol.Box([-1.0], [1.0]), 1e-6),
    "axis_float32": lambda: ol.approximate("exp(-x)", _unit(1), 1e-4, dtype=F32),
    "axes": lambda: ol.approximate("sin(x1) + sin(x2)", ol.Box([0.0, 0.0], [6.0, 6.0]), 1e-3),
    "grid": lambda: ol.approximate("exp(x1*x2)", _unit(2), 1e-3),
    "grid_float32": lambda: ol.approximate("cos(x1*x2)", _unit(2), 1e-3, dtype=F32),
    "kink": lambda: ol.approximate("abs(x1 - x2)", _unit(2), 1e-6),
    "quotient": lambda: ol.approximate("1/(1 + x1*x1 + x2)", _unit(2), 1e-3),
    "outputs": lambda: ol.approximate("x1*x2; x1 - x2", _unit(2), 1e-2),
    "refuted": lambda: ol.approximate("cos(40*x)", _unit(1), 1e-6, max_tokens=3),
    "real": _real,
    "enclosed": _enclosed,
    "gathered": lambda: ol.approximate("x1*x2", _unit(2), 0.05, layout="tokens"),
    "superposed": lambda: ol.approximate("exp(x1 + x2)", _unit(2), 0.05, layout="tokens"),
    "superposed_float32": lambda: ol.approximate("exp(x1 + x2)", _unit(2), 0.05, layout="tokens", dtype=F32),
    "sorted": lambda: ol.sort(4, 0.0, 1.0, 0.1, kind="thresholds"),
    "sorted_float32": lambda: ol.sort(3, -1.0, 1.0, 0.1, kind="thresholds", dtype=F32),
    "subsets": lambda: ol.sort(3, 0.0, 1.0, 0.1, kind="subsets"),
    "recalled": lambda: ol.memorize(*_table(), recipe="softmax"),
    "recalled_relu": lambda: ol.memorize(*_table(), recipe="relu"),
    "recalled_float32": lambda: ol.memorize(*_table(), recipe="softmax", dtype=F32),
}


def claim(folder: Path) -> dict[str, object]:
    """What a folder claims, without what differs from run to run."""
    data = json.loads((folder / "certificate.json").read_text())
    return {key: value for key, value in data.items() if key not in VARYING}


def main() -> int:
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    out = Path(names[0]) if names else HERE
    changed = []
    for name, build in CASES.items():
        made = build()
        made.save(out / name)
        x = made.box.sample(POINTS).to(made.model.dtype)
        values = {"x": x.tolist(), "T": made.model(x).tolist()}
        (out / name / OUTPUTS).write_text(json.dumps(values) + "\n")
        if "--compare" in sys.argv and claim(out / name) != claim(HERE / name):
            changed.append(name)
        print(name, "changed" if name in changed else "", flush=True)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
