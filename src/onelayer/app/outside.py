"""What stands between the application and the outside: names, origins and sizes of requests, headers of answers."""

from __future__ import annotations

import json
import re
from typing import Any

# Everything comes from here; no frame may hold the page, so no other page can click on it.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# Digits of other scripts are digits to Python, and no numbers; long ones it refuses to read.
LENGTH = re.compile(r"[0-9]{1,20}")


class Outside:
    """ASGI middleware. A request must name this server (a page elsewhere that rebinds its name to 127.0.0.1 does not),
    come from its own pages, and have a body below the limit."""

    def __init__(self, app: Any, hosts: tuple[str, ...], most_body: int) -> None:
        self.app = app
        self.most_body = most_body
        self.hosts = set(hosts)
        self.origins = {f"http://{host}" for host in hosts}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reason = self._refusal(scope)
        if reason is not None:
            await _answer(send, *reason)
            return
        body = await self._body(receive)
        if body is None:
            await _answer(send, 413, f"a request has at most {self.most_body:,} bytes")
            return
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def received() -> Any:
            return whole.pop() if whole else await receive()

        async def headed(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, received, headed)

    async def _body(self, receive: Any) -> bytes | None:
        """The whole body, or None for one beyond the limit, whatever length it said it has."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.most_body:
                return None
            if not message.get("more_body", False):
                return bytes(body)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if headers.get("host", []) not in [[host] for host in self.hosts]:
            return 403, "this server answers to its own address alone"
        origin = headers.get("origin")
        if origin is not None and origin not in [[own] for own in self.origins]:
            return 403, "this request comes from another page"
        if headers.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none"):
            return 403, "this request comes from another page"
        length = headers.get("content-length", ["0"])[0]
        if not LENGTH.fullmatch(length) or int(length) > self.most_body:
            return 413, f"a request has at most {self.most_body:,} bytes"
        return None


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _answer(send: Any, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **HEADERS}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})
