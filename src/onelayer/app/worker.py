"""The worker: one process per task, with limits. It reads one JSON line, works, and says how far it is in JSON lines.

A line "cancel" on its input ends the work with the best there is. Everything is written into its own folder.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from onelayer.app.orders import Refused
from onelayer.errors import OnelayerError
from onelayer.observer import Observer, Report

MEMORY = 6 * 2**30  # bytes of private memory: torch itself takes half a gigabyte
FILE_BYTES = 2**28  # of the largest file that a job may write: far above a layer of this page, far below a disk
PAUSE = 0.08  # seconds between two reports: more than the eye can follow
MOST_BOXES = 500  # of one round that are shown


class Speaker(Observer):
    """An observer that writes what it is told, at most a dozen times a second, and can be cancelled from outside."""

    def __init__(self, out: TextIO, max_seconds: float) -> None:
        super().__init__(max_seconds)
        self.out = out
        self.last = -math.inf
        self.stage = ""
        self.boxes: list[list[float]] = []
        self.steps: list[list[float | None]] = []  # seconds, lower and upper of every report, shown or not
        self.began = time.monotonic()

    def show(self, report: Report) -> None:
        """Tell the page, not more often than it can be read; no step of the enclosure is lost."""
        now = time.monotonic()
        if report.upper is not None and math.isfinite(report.upper):
            self.steps.append([round(now - self.began, 3), report.lower, report.upper])
        if now - self.last < PAUSE and report.stage == self.stage:
            return
        self.last = now
        self.stage = report.stage
        heard = {"stage": report.stage, "share": report.share, "detail": report.detail}
        say(self.out, "progress", **heard, steps=self.steps, boxes=self.boxes)
        self.steps, self.boxes = [], []

    def proved(self, low: Any, high: Any) -> None:
        """Remember sides of boxes in the first two coordinates, [left, right, bottom, top], until the next report."""
        for a, b in zip(low[:MOST_BOXES].tolist(), high[:MOST_BOXES].tolist(), strict=True):
            upright = (a[1], b[1]) if len(a) > 1 else (0.0, 1.0)  # a box of one coordinate fills the height
            sides = [a[0], b[0], *upright]
            self.boxes.append([float(f"{side:.6g}") for side in sides])


def say(out: TextIO, event: str, **data: Any) -> None:
    """One JSON line."""
    out.write(json.dumps({"event": event, **data}, allow_nan=False) + "\n")
    out.flush()


def settle(folder: Path) -> None:
    """Live in the task's folder: it is the working directory, the home and the place of temporary files."""
    os.chdir(folder)
    os.environ.update(HOME=str(folder), TMPDIR=str(folder), MPLCONFIGDIR=str(folder))
    tempfile.tempdir = str(folder)


def limit(seconds: float) -> None:
    """No more memory, time and disk than a task may have; the system ends what goes beyond."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 60, int(seconds) + 90))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    """Load what every task needs, then carry out the task on the first line of stdin."""
    out = sys.stdout
    sys.stdout = sys.stderr  # whatever prints by accident does not break the protocol
    for module in ("onelayer.app.building", "onelayer.pictures.live_page"):
        import_module(module)
    line = sys.stdin.readline()
    if not line:  # the server is gone
        return 0
    task = json.loads(line)
    settle(Path(task["folder"]))
    limit(task["seconds"])
    speaker = Speaker(out, task["seconds"])
    threading.Thread(target=_listen, args=(speaker,), daemon=True).start()
    folder = Path(task["folder"])
    try:
        say(out, "done", **{"build": build, "check": recheck, "export": write}[task["action"]](task, folder, speaker))
    except Refused as error:
        say(out, "refused", field=error.field, error=_line(error))
    except (OnelayerError, OSError) as error:
        say(out, "refused", field="formula", error=_line(error))
    except MemoryError:
        say(out, "refused", field="eps", error="not enough memory for this problem; loosen eps")
    return 0


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _listen(speaker: Speaker) -> None:
    """Cancel when told to, or when the server is gone."""
    sys.stdin.readline()
    speaker.cancel()


def build(task: dict[str, Any], folder: Path, speaker: Speaker) -> dict[str, Any]:
    """Build, prove and save; then what the page shows, so that the server never has to compute."""
    speaker.report("reading the order")
    from onelayer.app.building import built
    from onelayer.pictures.explanation import explain
    from onelayer.pictures.explanation_table import blocks
    from onelayer.pictures.live_page import live_data

    result = built(task["order"], folder, speaker)
    proof = result.certificate
    # The search reports while it runs; a short one may end before it said what it found.
    speaker.report("saving", lower=proof.lower, upper=proof.upper)
    result.save(folder / "result")
    live = json.dumps(live_data(result), separators=(",", ":"))
    (folder / "live.json").write_text(live)
    return {
        "status": proof.status,
        "claim": proof.sentence,
        "certificate": json.loads(proof.to_json()),
        "size": result.size(),
        "wanted_tokens": result.wanted_tokens,
        "explain": blocks(explain(result)),
        "cancelled": speaker.cancelled,
    }


def recheck(task: dict[str, Any], folder: Path, speaker: Speaker) -> dict[str, Any]:
    """The independent check of the saved files."""
    from onelayer.checker.check import check

    found = check(folder / "result", max_seconds=task["seconds"], observer=speaker)
    return {"verdict": found.verdict, "reason": found.reason, "seconds": found.seconds}


def write(task: dict[str, Any], folder: Path, speaker: Speaker) -> dict[str, Any]:
    """A file to download, named in the answer: the folder as zip, or an export."""
    from onelayer.result import load

    to = task["to"]
    place = folder / "exports"
    place.mkdir(exist_ok=True)
    if to == "zip":
        return {"file": Path(shutil.make_archive(str(place / "result"), "zip", folder / "result")).name}
    result = load(folder / "result")
    if to == "html":
        return {"file": result.to_html(place / "live.html").name}
    if to == "report":
        return {"file": result.report(place / "report.html").name}
    if to == "onnx":
        return {"file": result.export("onnx", place / "layer.onnx").path.name}
    made = result.export(to, place / to / "layer.c" if to == "c" else place / to).path
    source = made.parent if to == "c" else made
    return {"file": Path(shutil.make_archive(str(place / f"layer-{to}"), "zip", source)).name}


if __name__ == "__main__":
    sys.exit(main())
