"""serve: the door of ``onelayer app``."""

from __future__ import annotations

import socket
import sys
import webbrowser
from pathlib import Path

from onelayer.errors import OnelayerError
from onelayer.extras import require

HOST = "127.0.0.1"


def serve(port: int = 8000, *, folder: Path = Path("onelayer-results"), open_page: bool = True) -> None:
    """Serve the page on this machine alone until interrupted; results stay in ``folder``. Port 0 takes a free one."""
    for module in ("starlette", "uvicorn"):
        require(module, "app")
    import uvicorn

    from onelayer.app.server import application

    if not 0 <= port < 2**16:
        raise OnelayerError(f"port must be a number from 0 to 65535, got {port}")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OnelayerError(f"cannot listen on port {port}: {error.strerror}; choose another with --port") from error
    port = listener.getsockname()[1]
    address = f"http://{HOST}:{port}/"
    app = application(folder.resolve(), (f"{HOST}:{port}", f"localhost:{port}"))
    print(f"onelayer app: {address} (results in {folder}; stop with Ctrl-C)", file=sys.stderr, flush=True)
    if open_page:
        webbrowser.open(address)
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    with listener:
        uvicorn.Server(settings).run(sockets=[listener])
