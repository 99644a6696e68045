"""A page on paper: Chromium, where it is installed, prints HTML to PDF without a network."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from onelayer.disk import replace_file
from onelayer.errors import OnelayerError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--no-pdf-header-footer"),
)
SECONDS = 60  # for a browser that prints, before it is given up


def print_page(page: str, target: Path) -> Path:
    """Write the HTML text ``page`` as the PDF file ``target``; refused in one line where no browser is found."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise OnelayerError("printing to PDF needs Chromium, which was not found; write .html and print it by hand")
    with tempfile.TemporaryDirectory(prefix="onelayer-") as folder:
        source = Path(folder) / "page.html"
        printed = Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        command = [browser, *OPTIONS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}", source.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise OnelayerError(
                f"{browser} did not print within {SECONDS} s; write .html and print it by hand"
            ) from error
        if not printed.exists():
            raise OnelayerError(f"{browser} printed nothing; write .html and print it by hand")
        replace_file(target, printed.read_bytes())
    return target
