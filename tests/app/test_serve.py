"""Starting the server: what cannot work is refused in one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from onelayer import extras
from onelayer.app.serve import HOST, serve
from onelayer.cli.console import run
from onelayer.cli.options import app
from onelayer.errors import OnelayerError


@pytest.mark.parametrize("port", [-1, 65536])
def test_no_such_port(port: int, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with pytest.raises(OnelayerError, match="from 0 to 65535"):
        serve(port, folder=tmp_path, open_page=False)


def test_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(app, ["app", "--port", port, "--no-open", "--folder", str(tmp_path)]) == 2
    assert "choose another with --port" in capsys.readouterr().err


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(OnelayerError, match=r'pip install "onelayer\[app\]"'):
        serve(0, folder=tmp_path, open_page=False)
