"""Debian's Chromium, driven by Playwright; nothing may be fetched from elsewhere and nothing may be logged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture(scope="session")
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
