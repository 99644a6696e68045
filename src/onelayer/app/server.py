"""The server: routes, limits and origins. It binds to this machine alone and answers to its own name alone."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from onelayer.app.gallery import GALLERY
from onelayer.app.jobs import CHECK_SECONDS, EXPORT_SECONDS, Job, Jobs
from onelayer.app.orders import MOST_CSV, Refused, read_order
from onelayer.app.outside import Outside

# The files of the live view, named here because their room loads torch, which the server does without.
LIVE = ("base.css", "live.css", "layer.js", "formula.js", "figure.js", "heads.js", "view.js")
MOST_BODY = 2 * MOST_CSV
PATIENCE = 15.0  # seconds after which a stream says that it is still there
STATIC = {
    **{name: ("onelayer.app", f"static/{name}") for name in ("app.css", "app.js", "result.js", "welcome.json")},
    **{name: ("onelayer.pictures", f"live/{name}") for name in LIVE},
}
DOWNLOADS = ("zip", "onnx", "torch", "c", "report", "html")


def application(folder: Path, hosts: tuple[str, ...]) -> Any:
    """The web application over a folder of results, for requests to one of ``hosts`` (name:port)."""
    jobs: list[Jobs] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        jobs.append(Jobs(folder))
        await jobs[0].open()
        yield
        await jobs[0].close()

    def route(path: str, answer: Callable[..., Awaitable[Response]], *methods: str) -> Route:
        async def answered(request: Request) -> Response:
            return await answer(request, jobs[0])

        return Route(path, answered, methods=list(methods or ("GET",)))

    routes = [
        route("/", _page),
        route("/r/{name}", _page),
        route("/static/{name}", _static),
        route("/api/gallery", _gallery),
        route("/api/jobs", _order, "POST"),
        route("/api/jobs/{name}", _state),
        route("/api/jobs/{name}/events", _events),
        route("/api/jobs/{name}/cancel", _cancel, "POST"),
        route("/api/jobs/{name}/live", _live),
        route("/api/jobs/{name}/check", _check, "POST"),
        route("/api/jobs/{name}/files/{what}", _download),
    ]
    handlers: Any = {HTTPException: _refusal, Refused: _refused}
    return Outside(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers), hosts, MOST_BODY)


async def _refusal(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code)


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error), "field": error.field}, 422)


async def _page(request: Request, jobs: Jobs) -> Response:
    text = files("onelayer.app").joinpath("static", "index.html").read_text(encoding="utf-8")
    return Response(text, media_type="text/html")


async def _static(request: Request, jobs: Jobs) -> Response:
    if request.path_params["name"] not in STATIC:
        raise HTTPException(404, "there is no such file")
    package, path = STATIC[request.path_params["name"]]
    kind = mimetypes.guess_type(path)[0] or "text/plain"
    return Response(files(package).joinpath(*path.split("/")).read_bytes(), media_type=kind)


async def _gallery(request: Request, jobs: Jobs) -> Response:
    return JSONResponse(GALLERY)


async def _order(request: Request, jobs: Jobs) -> Response:
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON")
    try:
        data = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the order is not valid JSON") from error
    return JSONResponse({"id": jobs.start(read_order(data))}, 201)


def _found(request: Request, jobs: Jobs, *, done: bool = False) -> Job:
    job = jobs.find(request.path_params["name"])
    if job is None:
        raise HTTPException(404, "there is no such result")
    if done and job.snapshot["state"] != "done":
        raise HTTPException(409, "there is no result yet")
    return job


async def _state(request: Request, jobs: Jobs) -> Response:
    return JSONResponse(_found(request, jobs).snapshot)


async def _events(request: Request, jobs: Jobs) -> Response:
    """Snapshots as server-sent events, from the present one to the last."""
    job = _found(request, jobs)

    async def stream() -> AsyncIterator[str]:
        version = -1
        while True:
            if job.version > version:
                version = job.version
                yield f"data: {json.dumps(job.snapshot)}\n\n"
            if job.finished:
                return
            if not await job.newer(version, PATIENCE):
                yield ": still there\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


async def _cancel(request: Request, jobs: Jobs) -> Response:
    job = _found(request, jobs)
    await jobs.cancel(job)
    return JSONResponse({"cancelled": True})


async def _live(request: Request, jobs: Jobs) -> Response:
    path = _found(request, jobs, done=True).folder / "live.json"
    if not path.is_file():
        raise HTTPException(404, "the folder of this result has lost its live view")
    return FileResponse(path, media_type="application/json")


async def _check(request: Request, jobs: Jobs) -> Response:
    job = _found(request, jobs, done=True)
    async with job.busy:
        answer = await jobs.work(job, {"action": "check"}, CHECK_SECONDS)
    if "error" in answer:
        raise HTTPException(500, answer["error"])
    await job.update(checked={key: answer[key] for key in ("verdict", "reason", "seconds")})
    return JSONResponse(job.snapshot["checked"])


async def _download(request: Request, jobs: Jobs) -> Response:
    job = _found(request, jobs, done=True)
    what = request.path_params["what"]
    if what not in DOWNLOADS:
        raise HTTPException(404, f"there is no such download; there are {', '.join(DOWNLOADS)}")
    async with job.busy:
        answer = await jobs.work(job, {"action": "export", "to": what}, EXPORT_SECONDS)
    if "error" in answer:
        raise HTTPException(500, answer["error"])
    path = job.folder / "exports" / Path(answer["file"]).name
    return FileResponse(path, filename=f"onelayer-{job.snapshot['id'][:6]}-{path.name}")
