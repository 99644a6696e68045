"""Jobs: a folder and a worker process each, a few at a time; what is finished stays on disk and outlives the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

from onelayer.app.orders import MOST_TEXT, Refused
from onelayer.disk import read_if_there, replace_file, strict_json
from onelayer.errors import FileError

AT_ONCE, WAITING = 2, 16  # jobs that run, one per core of a small machine, and that may wait
BUILD_SECONDS, CHECK_SECONDS, EXPORT_SECONDS = 300.0, 120.0, 120.0  # what a visitor may wait for each kind of job
GRACE = 20.0  # seconds that a cancelled or late worker has to come back with its best
MOST_STEPS = 300  # points of the enclosure's history that are kept
MOST_BOXES = 1500  # boxes of a proof that are shown while it runs
LONGEST_LINE = 2**22  # bytes of one report of a worker: the boxes of a proof with their corners
MOST_STATE = 2**26  # bytes of the snapshot of a finished job: its certificate and the words about its layer
FINISHED = ("done", "refused", "failed")
STATE = "state.json"


class Job:
    """One order: its folder, and a snapshot of how far it is; ``version`` grows with every change."""

    def __init__(self, folder: Path, snapshot: dict[str, Any]) -> None:
        self.folder = folder
        self.snapshot = snapshot
        self.version = 0
        self.changed = asyncio.Condition()
        self.process: asyncio.subprocess.Process | None = None
        self.cancelled = False
        self.busy = asyncio.Lock()  # one check or export at a time

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.snapshot["state"] in FINISHED

    async def update(self, **news: Any) -> None:
        """Change the snapshot and wake whoever follows it."""
        self.snapshot = {**self.snapshot, **news}
        self.version += 1
        async with self.changed:
            self.changed.notify_all()
        if self.finished:
            self.snapshot.pop("boxes", None)  # the result has them all
            replace_file(self.folder / STATE, json.dumps(self.snapshot).encode())

    async def newer(self, version: int, patience: float) -> bool:
        """Wait until there is something newer than ``version``; False if nothing came."""
        with contextlib.suppress(TimeoutError):
            async with self.changed:
                await asyncio.wait_for(self.changed.wait_for(lambda: self.version > version), patience)
        return self.version > version


class Jobs:
    """All jobs of a server, by their names."""

    def __init__(self, root: Path) -> None:
        self.root, self.jobs = root, {}  # type: tuple[Path, dict[str, Job]]
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.tasks: set[asyncio.Task[None]] = set()
        self.spare: asyncio.subprocess.Process | None = None
        root.mkdir(parents=True, exist_ok=True)

    async def open(self) -> None:
        """Have a worker ready before the first order."""
        self.spare = await start_worker(self.root)

    def find(self, name: str) -> Job | None:
        """The job of that name, from memory or from disk."""
        if len(name) != 16 or not all(letter in "0123456789abcdef" for letter in name):
            return None
        folder = self.root / name
        if name not in self.jobs:
            snapshot = _kept(folder, name)
            if snapshot is None:
                return None
            self.jobs[name] = Job(folder, snapshot)
        return self.jobs[name]

    def start(self, order: dict[str, str]) -> str:
        """Take an order; refused when too many wait."""
        if sum(not job.finished for job in self.jobs.values()) >= AT_ONCE + WAITING:
            raise Refused("formula", "too many orders wait already; cancel one or try again in a minute")
        name = secrets.token_hex(8)
        folder = self.root / name
        folder.mkdir()
        shown = {key: value for key, value in order.items() if len(value) <= MOST_TEXT}  # a long table is not sent back
        job = Job(
            folder, {"id": name, "state": "waiting", "order": shown, "stage": "waiting", "history": [], "boxes": []}
        )
        self.jobs[name] = job
        task = asyncio.create_task(self._run(job, order))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return name

    async def _run(self, job: Job, order: dict[str, str]) -> None:
        async with self.slots:
            if job.cancelled:
                await job.update(state="refused", field="formula", error="cancelled before it began")
                return
            began = time.monotonic()

            async def follow(news: dict[str, Any]) -> None:
                spent = round(time.monotonic() - began, 2)
                history = [*job.snapshot["history"], *news.pop("steps")][-MOST_STEPS:]
                again = news["stage"] != job.snapshot["stage"]  # another fit begins with an empty picture
                boxes = [*(() if again else job.snapshot["boxes"]), *news.pop("boxes", [])][-MOST_BOXES:]
                await job.update(**news, state="running", history=history, boxes=boxes, seconds=spent)

            await job.update(state="running", stage="starting")
            answer = await self.work(job, {"action": "build", "order": order}, BUILD_SECONDS, follow)
            await job.update(**_outcome(answer), seconds=round(time.monotonic() - began, 2))

    async def work(self, job: Job, task: dict[str, Any], seconds: float, follow: Any = None) -> dict[str, Any]:
        """Run a worker to its end and return its last word; it is killed when it is late."""
        process = await self._worker()
        job.process = process
        try:
            async with asyncio.timeout(seconds + GRACE):
                await _ordered(process, {**task, "folder": str(job.folder), "seconds": seconds})
                # Whoever cancelled while the worker was started had nobody to tell.
                if job.cancelled:
                    await self._ask_to_end(job)
                return await _conversation(process, follow)
        except TimeoutError:
            return {"event": "failed", "error": f"it took longer than {seconds:.0f} s and was ended; loosen eps"}
        except (ValueError, OSError):  # a line that is no JSON or too long, a pipe that broke
            return {"event": "failed", "error": "the worker ended in the middle of a word; please report it"}
        finally:
            end(process)
            await ended(process)

    async def _worker(self) -> asyncio.subprocess.Process:
        """A worker that waits for its task; the next one is started at once, so that it has loaded torch by then."""
        spare = self.spare
        self.spare = None
        process = await start_worker(self.root) if spare is None or spare.returncode is not None else spare
        self.spare = await start_worker(self.root)
        return process

    async def cancel(self, job: Job) -> None:
        """Ask the worker for the best it has, as soon as there is one; end it when it does not answer."""
        job.cancelled = True
        await self._ask_to_end(job)

    async def _ask_to_end(self, job: Job) -> None:
        process = job.process
        if job.finished or process is None or process.stdin is None:
            return
        with contextlib.suppress(ConnectionError):
            process.stdin.write(b"cancel\n")
            await process.stdin.drain()
        asyncio.get_running_loop().call_later(GRACE, end, process)

    async def close(self) -> None:
        """End every worker; finished results stay."""
        for process in [self.spare, *(job.process for job in self.jobs.values())]:
            if process is not None:
                end(process)


def _kept(folder: Path, name: str) -> dict[str, Any] | None:
    """The snapshot of a job that lies in its folder, or None for what is none of a job that came to an end."""
    try:
        data = read_if_there(folder / STATE, MOST_STATE)
        snapshot = None if data is None else strict_json(data, STATE)
    except FileError:
        return None
    whole = isinstance(snapshot, dict) and snapshot.get("id") == name and snapshot.get("state") in FINISHED
    return snapshot if whole else None


async def _ordered(process: asyncio.subprocess.Process, task: dict[str, Any]) -> None:
    """Send a worker its task."""
    if process.stdin is None:
        raise RuntimeError("a worker is started with pipes")
    with contextlib.suppress(ConnectionError):  # a worker that is gone says nothing afterwards
        process.stdin.write(json.dumps(task).encode() + b"\n")
        await process.stdin.drain()


async def _conversation(process: asyncio.subprocess.Process, follow: Any) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("a worker is started with pipes")
    while line := await process.stdout.readline():
        said: dict[str, Any] = json.loads(line)
        if said.pop("event") == "progress":
            if follow is not None:
                await follow(said)
        else:
            return {**said, "event": "refused" if "error" in said else "done"}
    return {"event": "failed", "error": "it ended without a result: out of memory, out of time, or killed"}


async def ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process that was killed; a pipe that nobody empties would never close."""
    while process.stdout is not None and await process.stdout.read(LONGEST_LINE):
        pass
    await process.wait()


def _outcome(answer: dict[str, Any]) -> dict[str, Any]:
    news = dict(answer)
    state = news.pop("event")
    return {"state": state, "stage": state, "field": news.pop("field", "formula"), **news}


async def start_worker(root: Path) -> asyncio.subprocess.Process:
    """A worker process; of ours it sees where Python finds things, and it computes on one thread."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    own = {"HOME": str(root), "MPLCONFIGDIR": str(root), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onelayer.app.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=root,
        env={**kept, **own},
        start_new_session=True,
        limit=LONGEST_LINE,
    )


def end(process: asyncio.subprocess.Process) -> None:
    """Kill a worker and what it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
