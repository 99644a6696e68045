"""The page in a real browser, without network: every image decodes, nothing is logged, nothing is fetched."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onelayer.paper.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium found")
OPTIONS = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,900 --remote-debugging-pipe"


class Pipe:
    """The DevTools protocol over a pair of pipes: messages are JSON ended by a zero byte."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write
        self.count, self.rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def wait(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.read, 65536)
            assert part, "the browser ended"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browser(profile: Path) -> Iterator[Pipe]:
    """Chromium with its protocol on descriptors 3 and 4; a timer ends it if it hangs."""
    (inner_read, write), (read, inner_write) = os.pipe(), os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (inner_read, inner_write)]

    def place() -> None:
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    assert BROWSER is not None
    process = subprocess.Popen(
        ["timeout", "60", BROWSER, *OPTIONS.split(), f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=place,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for end in (inner_read, inner_write, *high):
        os.close(end)
    try:
        yield Pipe(read, write)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        os.close(read)
        os.close(write)


def opened(pipe: Pipe, path: Path) -> str:
    target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
    session = str(pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
    for room in ("Page", "Runtime", "Log", "Network"):
        pipe.call(f"{room}.enable", session)
    pipe.events.clear()
    pipe.call("Page.navigate", session, url=path.as_uri())
    pipe.wait("Page.loadEventFired")
    time.sleep(0.3)
    return session


def evaluated(pipe: Pipe, session: str, expression: str) -> Any:
    return pipe.call("Runtime.evaluate", session, expression=expression, returnByValue=True)["result"]["value"]


def test_page_opens_without_network(tmp_path: Path) -> None:
    page = write_report(tmp_path / "report", quick=True, only=["2", "14", "18"]).page
    with browser(tmp_path / "profile") as pipe:
        session = opened(pipe, page)
        images = evaluated(pipe, session, "[...document.images].map(i => [i.complete, i.naturalWidth])")
        fetched = [
            event["params"]["request"]["url"]
            for event in pipe.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        logged = [e for e in pipe.events if e.get("method") in ("Runtime.consoleAPICalled", "Log.entryAdded")]
        wide = evaluated(pipe, session, "document.documentElement.scrollWidth <= window.innerWidth")
        evaluated(pipe, session, "document.querySelector('.live-host').scrollIntoView()")
        until = time.monotonic() + 20
        ready = "document.querySelector('.live-host').dataset.ready === 'yes'"
        while not evaluated(pipe, session, ready) and time.monotonic() < until:
            time.sleep(0.1)
        value = evaluated(pipe, session, "document.querySelector('.live-value').dataset.all")
        shot = base64.b64decode(pipe.call("Page.captureScreenshot", session)["data"])
    assert len(images) == 3
    assert all(complete and width > 300 for complete, width in images)
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []
    assert logged == []
    assert len(json.loads(value)) == 4
    assert wide
    assert shot.startswith(b"\x89PNG")


def test_a_missing_image_and_a_fetch_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src='none.png'><img src='http://127.0.0.1:9/x.png'><script>console.error('x')</script>")
    with browser(tmp_path / "profile") as pipe:
        session = opened(pipe, page)
        images = evaluated(pipe, session, "[...document.images].map(i => i.naturalWidth)")
        logged = [e for e in pipe.events if e.get("method") in ("Runtime.consoleAPICalled", "Log.entryAdded")]
        evaluated(pipe, session, "1")
    assert images == [0, 0]
    assert logged
