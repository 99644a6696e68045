"""The frame of every self-contained HTML page: nothing is fetched, and the browser is told to refuse anything else."""

from __future__ import annotations

import base64
import hashlib
from html import escape

# Nothing from anywhere: pictures and styles are in the page, and a script only by its hash.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# One transparent pixel: without an icon of its own a browser asks the server for one.
_ICON = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def allowing(script: str) -> str:
    """The same policy with this one script allowed, named by its hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{POLICY}; script-src 'sha256-{digest}'"


def webpage(title: str, style: str, body: str, policy: str = POLICY) -> str:
    """A whole page; ``style`` and ``body`` are written as they are, the title is escaped."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="{_ICON}">
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
