"""The layer of the first page: `python -m onelayer.app.welcome` builds it again and writes static/welcome.json."""

from __future__ import annotations

import json
from pathlib import Path

from onelayer.app.gallery import GALLERY
from onelayer.conductor import approximate
from onelayer.disk import replace_file
from onelayer.errors import OnelayerError
from onelayer.language.endpoints import parse_domain
from onelayer.pictures.live_page import live_data

EXAMPLE = next(example for example in GALLERY if example["title"] == "Franke's surface")
PATH = Path(__file__).parent / "static" / "welcome.json"


def main() -> None:
    """Build, prove, and write what the live view needs."""
    found = approximate(EXAMPLE["formula"], parse_domain(EXAMPLE["domain"]), float(EXAMPLE["eps"]))
    if not found.certificate.proved:
        raise OnelayerError(f"the first page shows a proved layer; this one is {found.certificate.status}")
    replace_file(PATH, json.dumps(live_data(found), separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
