"""A running server on a free port, plain requests to it, and Debian's Chromium, driven by Playwright, to look at it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
SOURCE = Path(__file__).parents[2] / "src"


@dataclass
class Server:
    """The process, its port and its folder."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer; JSON where it is JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Host": self.host, **({"Content-Type": "application/json"} if data is not None else {}), **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, {name.replace("_", "-"): value for name, value in given.items()})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        kind = answer.headers.get_content_type()
        return answer.status, json.loads(text) if kind == "application/json" and text else text

    def order(self, **order: Any) -> str:
        status, answer = self.ask("POST", "/api/jobs", order)
        assert status == 201, answer
        return str(answer["id"])

    def finished(self, name: str, seconds: float = 120.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state: dict[str, Any] = self.ask("GET", f"/api/jobs/{name}")[1]
            if state["state"] in ("done", "refused", "failed"):
                return state
            time.sleep(0.1)
        raise AssertionError(f"not finished: {state}")


def start(folder: Path) -> Server:
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "onelayer", "app", "--port", "0", "--no-open", "--folder", str(folder)]
    said = folder.with_name(f"{folder.name}.log")
    with said.open("w") as out:
        process = subprocess.Popen(command, stderr=out, text=True, env={**os.environ, "PYTHONPATH": paths})
    until = time.monotonic() + 60
    while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", said.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert found is not None
    return Server(process, int(found[1]), folder)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for module in ("starlette", "uvicorn"):
        pytest.importorskip(module, reason="the extra app is not installed")
    running = start(tmp_path_factory.mktemp("app") / "results")
    yield running
    running.process.send_signal(signal.SIGINT)
    running.process.wait(20)


@pytest.fixture
def started() -> Callable[[Path], Server]:
    """Starts a server of one's own over a folder."""
    return start


@pytest.fixture(scope="module")  # its event loop must be gone when other tests run theirs
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="SKIPPED BROWSER TESTS: playwright is not installed")
    if BROWSER is None:
        pytest.skip("SKIPPED BROWSER TESTS: no Chromium found")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=list(OPTIONS))
        yield browser
        browser.close()


class Watched:
    """A page, what it logged, and what it asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.logged: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.logged.append(message.text))
        page.on("pageerror", lambda error: self.logged.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def quiet(self, *origins: str) -> bool:
        """Whether nothing was logged and nothing asked for but data and these origins."""
        elsewhere = [url for url in self.asked if not url.startswith(("data:", "blob:", *origins))]
        assert self.logged == []
        assert elsewhere == []
        return True


@pytest.fixture
def watched(chromium: Any) -> Iterator[Watched]:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(20_000)
    yield Watched(page)
    page.close()
