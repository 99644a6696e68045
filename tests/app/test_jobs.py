"""A worker that dies, babbles or is late ends its job with one line, never with a job that hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra app is not installed")

from onelayer.app import jobs as room
from onelayer.app.orders import Refused

WORKERS = {
    "dies": ("import sys; sys.exit(3)", "without a result"),
    "babbles": ("print('hello', flush=True); input()", "middle of a word"),
    "too much": ("print('x' * 2**23, flush=True); input()", "middle of a word"),
    "late": ("import time; time.sleep(60)", "took longer"),
}


@pytest.mark.parametrize("name", WORKERS)
def test_a_bad_worker_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, word = WORKERS[name]

    async def worker(root: Path) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=room.LONGEST_LINE,
        )

    monkeypatch.setattr(room, "start_worker", worker)
    monkeypatch.setattr(room, "BUILD_SECONDS", 0.5)
    monkeypatch.setattr(room, "GRACE", 0.5)

    async def ordered() -> dict[str, Any]:
        jobs = room.Jobs(tmp_path)
        job = jobs.find(
            jobs.start({"kind": "formula", "formula": "x", "domain": "0:1", "eps": "1", "format": "float64"})
        )
        assert job is not None
        while not job.finished:
            await job.newer(job.version, 5)
        await jobs.close()
        await asyncio.gather(*jobs.tasks)
        if jobs.spare is not None:
            await room.ended(jobs.spare)
        return job.snapshot

    found = asyncio.run(ordered())
    assert found["state"] == "failed"
    assert word in found["error"]


SLEEPER = "import time; time.sleep(60)"
ORDER = {"kind": "formula", "formula": "x", "domain": "0:1", "eps": "1", "format": "float64"}


def test_only_so_many_orders_run_and_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []

    async def worker(root: Path) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        made = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SLEEPER, stdin=pipe, stdout=pipe, start_new_session=True
        )
        started.append(made)
        return made

    monkeypatch.setattr(room, "start_worker", worker)

    async def crowded() -> int:
        jobs = room.Jobs(tmp_path)
        for _ in range(room.AT_ONCE + room.WAITING):
            jobs.start(ORDER)
        with pytest.raises(Refused, match="too many orders wait"):
            jobs.start(ORDER)
        await asyncio.sleep(0.5)
        running = sum(job.process is not None for job in jobs.jobs.values())
        for task in jobs.tasks:
            task.cancel()
        await asyncio.gather(*jobs.tasks, return_exceptions=True)
        await jobs.close()
        for one in started:
            room.end(one)
            await room.ended(one)
        return running

    assert asyncio.run(crowded()) == room.AT_ONCE


LIMITED = """
import resource, sys
from pathlib import Path
from onelayer.app import worker
worker.MEMORY, worker.FILE_BYTES = 2**28, 2**16
worker.limit(5.0)
assert resource.getrlimit(resource.RLIMIT_CPU) == (65, 95)
try:
    bytearray(2**29)
except MemoryError:
    print("memory")
try:
    Path(sys.argv[1]).write_bytes(bytes(2**20))
except OSError:
    print("disk")
"""


def test_the_system_ends_what_takes_too_much(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "large")], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["memory", "disk"]
    assert (tmp_path / "large").stat().st_size <= 2**16


def test_who_cancels_while_the_worker_is_started_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that answers to a second line alone: without one it would be waited for to the end."""
    code = 'import sys; sys.stdin.readline(); said = sys.stdin.readline(); print(\'{"event": "done"}\', flush=True)'
    jobs_here: list[room.Jobs] = []

    async def worker(root: Path) -> asyncio.subprocess.Process:
        for job in jobs_here[0].jobs.values():
            await jobs_here[0].cancel(job)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    monkeypatch.setattr(room, "start_worker", worker)
    monkeypatch.setattr(room, "BUILD_SECONDS", 20.0)

    async def ordered() -> dict[str, Any]:
        jobs = room.Jobs(tmp_path)
        jobs_here.append(jobs)
        job = jobs.find(jobs.start({"kind": "formula", "formula": "x", "domain": "0:1", "eps": "1", "format": "x"}))
        assert job is not None
        while not job.finished:
            await job.newer(job.version, 5)
        await jobs.close()
        await asyncio.gather(*jobs.tasks)
        if jobs.spare is not None:
            await room.ended(jobs.spare)
        return job.snapshot

    assert asyncio.run(ordered())["state"] == "done"


NAME = "0123456789abcdef"
STATES = [
    "",
    "{",
    "[]",
    "null",
    '{"state": "done"}',
    '{"id": "' + NAME + '", "state": "running"}',
    '{"id": NaN}',
    "[" * 9999,
]


@pytest.mark.parametrize("text", STATES)
def test_a_folder_that_holds_no_finished_job_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / room.STATE).write_text(text)
    assert room.Jobs(tmp_path).find(NAME) is None
