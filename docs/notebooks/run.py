"""Run the code cells of the tutorial notebooks in a fresh process each and store what they show.

    python docs/notebooks/run.py [notebook ...]     default: all of this folder

A cell's output is what it prints, and its last expression: as HTML where the object has a card, as a picture where it
is a figure. No notebook software is needed, here or to read them.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = "@onelayer-notebook "  # no cell prints this: what follows is the number of a cell, or data to display
SHOW = f"""
import base64, io, json
def _show(value):
    if value is None:
        return
    data = {{"text/plain": repr(value)}}
    card = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if card is not None:
        data["text/html"] = card
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=75)
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
    print({MARK!r} + "data " + json.dumps(data))
"""


def program(notebook: dict[str, Any]) -> str:
    """The code cells as one program that marks where each begins and shows its last expression."""
    parts = [SHOW]
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                call = ast.Call(ast.Name("_show", ast.Load()), [tree.body[-1].value], [])
                tree.body[-1] = ast.Expr(call)
            parts += [f"print({MARK!r} + 'cell {number}')", ast.unparse(ast.fix_missing_locations(tree))]
    return "\n".join(parts)


def outputs(text: str) -> list[dict[str, Any]]:
    """What one cell said: streams and displays in order."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(f"{MARK}data "):
            data = json.loads(line.removeprefix(f"{MARK}data "))
            found.append({"output_type": "display_data", "metadata": {}, "data": data})
        elif found and found[-1]["output_type"] == "stream":
            found[-1]["text"].append(line)
        else:
            found.append({"output_type": "stream", "name": "stdout", "text": [line]})
    return found


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of this run."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, "-c", program(notebook)]
        done = subprocess.run(call, capture_output=True, text=True, cwd=folder, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{path.name}: {done.stderr.strip().splitlines()[-1]}")
    for part in done.stdout.split(f"{MARK}cell ")[1:]:
        number, _, text = part.partition("\n")
        notebook["cells"][int(number)]["outputs"] = outputs(text)
    return notebook


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n")
        print(path.name)


if __name__ == "__main__":
    main()
