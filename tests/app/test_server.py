"""The server: orders become results on disk, what is wrong is one line at its field, nobody else is answered."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import signal
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import onelayer as ol
from onelayer.app import worker
from onelayer.app.building import built
from onelayer.app.gallery import GALLERY
from onelayer.app.orders import MOST_TEXT, Refused, read_order
from onelayer.observer import Observer
from onelayer.pictures.live_page import live_data

SINE = {"kind": "formula", "formula": "sin(3*x)", "domain": "x = -1:1", "eps": "1e-3"}


@pytest.fixture(scope="module")
def done(server: Any) -> dict[str, Any]:
    state: dict[str, Any] = server.finished(server.order(**SINE))
    assert state["state"] == "done", state
    return state


def test_an_order_becomes_a_proved_result_on_disk(server: Any, done: dict[str, Any]) -> None:
    assert done["status"] == "proved"
    folder = server.folder / done["id"] / "result"
    assert ol.check(folder).ok
    assert ol.load(folder).certificate.upper <= 1e-3
    status, live = server.ask("GET", f"/api/jobs/{done['id']}/live")
    assert status == 200
    assert live["names"] == ["x"]


def test_events_end_with_the_result(server: Any, done: dict[str, Any]) -> None:
    status, text = server.ask("GET", f"/api/jobs/{done['id']}/events")
    assert status == 200
    assert text.startswith(b"data: ")
    assert b'"state": "done"' in text


def test_check_and_downloads(server: Any, done: dict[str, Any], tmp_path: Path) -> None:
    status, verdict = server.ask("POST", f"/api/jobs/{done['id']}/check", {})
    assert (status, verdict["verdict"]) == (200, "accepted")
    status, data = server.ask("GET", f"/api/jobs/{done['id']}/files/zip")
    assert status == 200
    zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path / "got")
    assert ol.check(tmp_path / "got").ok
    assert server.ask("GET", f"/api/jobs/{done['id']}/files/passwd")[0] == 404


WRONG = {
    "no formula": ({**SINE, "formula": "  "}, "formula"),
    "malformed": ({**SINE, "formula": "sin(x"}, "formula"),
    "code": ({**SINE, "formula": "__import__('os').system('true')"}, "formula"),
    "pole": ({**SINE, "formula": "1/x"}, "formula"),
    "no interval": ({**SINE, "domain": "x"}, "domain"),
    "empty interval": ({**SINE, "domain": "x = 1:0"}, "domain"),
    "eps is a word": ({**SINE, "eps": "small"}, "eps"),
    "eps is nan": ({**SINE, "eps": "nan"}, "eps"),
    "eps is negative": ({**SINE, "eps": "-1"}, "eps"),
    "format": ({**SINE, "format": "float8"}, "format"),
    "a narrow format to sort in": ({"kind": "sort", "length": "3", "eps": "0.1", "format": "float16"}, "format"),
    "a table in int8": ({"kind": "table", "csv": "a,b\n1,2\n3,4\n", "target": "b", "format": "int8"}, "format"),
    "too many to sort": ({"kind": "sort", "length": "9999", "eps": "0.1"}, "length"),
    "a table without the column": ({"kind": "table", "csv": "a,b\n1,2\n3,4\n", "target": "c"}, "csv"),
    "a table of nothing": ({"kind": "table", "csv": "x", "target": "x"}, "csv"),
    "a map without the column": ({"kind": "map", "csv": "a,b\n1,2\n3,4\n", "target": "c", "eps": "1"}, "csv"),
    "a map of words": ({"kind": "map", "csv": "a,b\n1,one\n3,two\n", "target": "b", "eps": "1"}, "csv"),
    "unknown kind": ({"kind": "shell"}, "formula"),
    "unknown field": ({**SINE, "path": "/etc/passwd"}, "formula"),
    "a number": ({**SINE, "eps": 0.1}, "eps"),
    "too long": ({**SINE, "formula": "x+" * MOST_TEXT}, "formula"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_belongs_to_its_field(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    order, field = WRONG[name]
    with pytest.raises(Refused) as raised:
        built(read_order(order), tmp_path, Observer())
    assert raised.value.field == field
    assert str(raised.value)
    assert str(tmp_path) not in str(raised.value)


def test_a_map_is_proved_between_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(example for example in GALLERY if example["kind"] == "map")
    made = built(read_order({name: example[name] for name in ("kind", "csv", "target", "eps")}), tmp_path, Observer())
    assert made.certificate.proved
    assert made.box.variables == ("rpm", "load")


def test_every_step_of_the_enclosure_is_told_however_fast_they_come() -> None:
    out = io.StringIO()
    speaker = worker.Speaker(out, 60.0)
    bounds = [(0.0, 4.0), (0.1, 2.0), (0.5, 1.0)]
    for lower, upper in bounds:
        speaker.report("proving", lower=lower, upper=upper)
    speaker.report("proving", lower=0.0, upper=math.inf)  # no bound yet, so no step
    speaker.report("saving", lower=0.6, upper=0.9)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["stage"] for line in told] == ["proving", "saving"]
    assert [(low, high) for line in told for _, low, high in line["steps"]] == [*bounds, (0.6, 0.9)]


@pytest.mark.parametrize("format", ["bfloat16", "int8"])
def test_narrow_formats_are_built_and_proved(format: str, tmp_path: Path) -> None:
    made = built(read_order({**SINE, "eps": "0.05", "format": format}), tmp_path, Observer())
    assert made.certificate.proved
    assert made.certificate.arithmetic == ("float32" if format == "int8" else format) + " execution"


@pytest.mark.parametrize("name", ["pole", "unknown field"])
def test_what_is_wrong_is_answered_in_one_line(name: str, server: Any) -> None:
    order, field = WRONG[name]
    status, answer = server.ask("POST", "/api/jobs", order)
    if status == 201:
        answer = server.finished(answer["id"])
        assert answer["state"] == "refused"
    else:
        assert status == 422
    assert answer["field"] == field
    assert "\n" not in answer["error"]


@pytest.mark.slow
def test_cancel_returns_the_best_there_is(server: Any) -> None:
    hard = {"kind": "formula", "formula": "sin(9*x*y)*cos(7*y*z + x)", "domain": "0:3, 0:3, 0:3", "eps": "1e-7"}
    name = server.order(**hard)
    until = time.monotonic() + 60
    while server.ask("GET", f"/api/jobs/{name}")[1]["stage"] in ("waiting", "starting") and time.monotonic() < until:
        time.sleep(0.1)
    assert server.ask("POST", f"/api/jobs/{name}/cancel", {})[0] == 200
    state = server.finished(name, 60)
    assert state["state"] in ("done", "refused", "failed")
    if state["state"] == "done":
        assert state["status"] != "proved"


@pytest.mark.slow
def test_two_visitors_at_once(server: Any) -> None:
    names = [server.order(**{**SINE, "formula": f"sin({k}*x)"}) for k in (1, 2)]
    assert [server.finished(name)["status"] for name in names] == ["proved", "proved"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
    ids=str,
)
def test_nobody_else_is_answered(server: Any, headers: dict[str, str]) -> None:
    assert server.ask("GET", "/", **headers)[0] == 403
    assert server.ask("POST", "/api/jobs", SINE, **headers)[0] == 403


def test_bodies_are_bounded_and_json(server: Any) -> None:
    assert server.ask("POST", "/api/jobs", b"{" * 100)[0] == 400
    assert server.ask("POST", "/api/jobs", b"[" * 100_000)[0] in (400, 422)
    assert server.ask("POST", "/api/jobs", b"a=1", Content_Type="application/x-www-form-urlencoded")[0] == 415
    assert server.ask("POST", "/api/jobs", b"x", Content_Length="99999999999")[0] == 413


def test_a_body_that_does_not_say_its_length_is_bounded_too(server: Any) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        pieces = (b"x" * 2**16 for _ in range(100))
        connection.request(
            "POST", "/api/jobs", pieces, {"Content-Type": "application/json", "Host": server.host}, encode_chunked=True
        )
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        status = 413  # answered and closed while we still sent
    finally:
        connection.close()
    assert status == 413
    assert server.ask("GET", "/")[0] == 200


def test_a_table_cannot_reach_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "own"
    place.mkdir()
    monkeypatch.chdir(place)
    for csv, target in (("../../etc/passwd", "x"), ("a,=cmd()\n1,2\n3,4\n", "=cmd()"), ("a,../b\n1,2\n3,4\n", "../b")):
        order = read_order({"kind": "table", "csv": csv, "target": target})
        with contextlib.suppress(Refused):
            built(order, place, Observer())
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert {path.name for path in place.iterdir()} <= {"table.csv"}


def test_the_layer_of_the_first_page_is_what_the_code_makes() -> None:
    shown = json.loads((Path(worker.__file__).parent / "static" / "welcome.json").read_text(encoding="utf-8"))
    made = live_data(ol.approximate("sin(x)*y", ol.Box([0, 0], [1, 1]), 0.1))
    assert set(shown) == set(made)
    assert set(shown["heads"][0]) == set(made["heads"][0])
    assert shown["upper"] <= 1e-2


@pytest.mark.parametrize(
    "path", ["/r/../../etc/passwd", "/static/../server.py", "/static/%2e%2e%2fserver.py", "/api/jobs/..%2f.."]
)
def test_no_path_leads_out(server: Any, path: str) -> None:
    status, answer = server.ask("GET", path)
    assert status in (200, 404)
    assert b"import" not in (answer if isinstance(answer, bytes) else b"")


def test_headers_forbid_everything_from_elsewhere(server: Any) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_only_this_machine_is_listened_to(server: Any) -> None:
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [address for address in listening if address.endswith(f":{server.port:04X}")]
    assert own
    assert all(address.startswith("0100007F") for address in own)


@pytest.mark.slow
def test_a_killed_server_leaves_finished_results(tmp_path: Path, started: Any) -> None:
    first = started(tmp_path / "kept")
    name = first.order(**SINE)
    claim = first.finished(name)["claim"]
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    second = started(tmp_path / "kept")
    try:
        assert second.ask("GET", f"/api/jobs/{name}")[1]["claim"] == claim
    finally:
        second.process.kill()
        second.process.wait()


def test_the_gallery_is_made_of_orders() -> None:
    assert len(GALLERY) >= 12
    for example in GALLERY:
        read_order({key: value for key, value in example.items() if key not in ("title", "about")})
    with pytest.raises(Refused):
        read_order([])


def fuzzed(server: Any, count: int, seed: int) -> list[int]:
    """Statuses of random requests: methods, paths, headers and bodies that no page would send."""
    dice, found = random.Random(seed), []
    paths = [
        "/",
        "/r/x",
        "/static/app.js",
        "/api/jobs",
        "/api/gallery",
        "/api/jobs/0123456789abcdef/events",
        "/%00",
        "/api",
    ]
    for _ in range(count):
        path = dice.choice(paths) + "".join(chr(dice.randrange(33, 126)) for _ in range(dice.randrange(4)))
        body = dice.choice(
            [None, b"", b"{}", b"null", b'{"kind":"formula"}', bytes(dice.randrange(256) for _ in range(40))]
        )
        method = dice.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
        host = dice.choice([server.host, server.host, server.host, "x"])
        try:
            found.append(server.ask(method, path.replace(" ", ""), body, Host=host)[0])
        except Exception:
            found.append(0)
    return found


def test_a_short_fuzz_leaves_it_answering(server: Any) -> None:
    assert not {500, 502} & set(fuzzed(server, 300, 0))
    assert server.ask("GET", "/")[0] == 200


@pytest.mark.slow
def test_ten_thousand_requests_leave_it_answering(server: Any) -> None:
    found: list[int] = []
    crowd = [threading.Thread(target=lambda k=k: found.extend(fuzzed(server, 2500, k))) for k in range(4)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert len(found) == 10_000
    assert 500 not in found
    assert found.count(0) < 100  # hardly any that a client could not even send
    assert server.ask("GET", "/")[0] == 200
