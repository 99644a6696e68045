"""A worker that dies, babbles or is late ends its job with one line, never with a job that hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra app is not installed")

from onelayer.app import jobs as room

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
