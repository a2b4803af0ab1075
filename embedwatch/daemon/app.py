"""App: what the daemon answers over HTTP. `/openapi.json` describes all of it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from embedwatch import __version__
from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Status
from embedwatch.daemon.answers import Refusal, answer, refusal
from embedwatch.daemon.description import JSON_OBJECT, JSON_OBJECTS, PLAIN, errors, parcel_body, rows_body, taken
from embedwatch.daemon.edge import Edge
from embedwatch.daemon.heart import Heart
from embedwatch.daemon.live import Live
from embedwatch.daemon.page_files import page_files, page_response
from embedwatch.daemon.receiving import Receiving
from embedwatch.daemon.request_metrics import with_own

__all__ = ["make_app"]

UNKNOWN = "there is no such Space; /api/v1/spaces lists them"
LONGEST_NAME = 200
LARGEST = 2**53
"""Beyond, JSON's numbers are not exact."""
WORD = r"^[^\x00-\x1f\x7f]*$"
Name = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME, pattern=WORD)]
Segment = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME, pattern=WORD)]
Head = Annotated[str | None, Query(max_length=LONGEST_NAME, pattern=WORD)]
Count = Annotated[int | None, Query(ge=0, le=LARGEST)]
Sender = Annotated[str, Query(max_length=LONGEST_NAME, pattern=WORD)]
Role = Literal["vectors", "table", "token", "embedding", "hidden", "pooled"]
"""Roles whose Spaces consist of rows that somebody can send."""
Layout = Literal["pca", "tsne"]


def make_app(heart: Heart, live: Live) -> Edge:
    """Return the application: ASGI, without a lifespan of its own."""
    app = FastAPI(
        title="embedwatch",
        version=__version__,
        description="Takes embeddings and states, judges their Spaces, and shows what it found.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _refuse_in_one_line(app)
    _pages(app, heart, live)
    _lifecycle(app, live)
    _reading(app, heart)
    _sending(app, Receiving(heart, live))
    return Edge(app, live)


def _refuse_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        del request
        return refusal(error.status, error.message, error.headers)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        del request
        return refusal(error.status_code, HTTPStatus(error.status_code).phrase.lower(), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> Response:
        del request
        told = [f"`{each['loc'][-1]}` {each['msg'][:1].lower()}{each['msg'][1:]}" for each in error.errors()]
        return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(told))


def _pages(app: FastAPI, heart: Heart, live: Live) -> None:
    def file(request: Request, path: str) -> Response:
        found = page_files().get(path)
        if found is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "not found")
        packed = _wants_gzip(request.headers.get("accept-encoding", ""))
        return page_response(found, zipped=packed, known=request.headers.get("if-none-match", ""))

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> Response:
        return file(request, "/")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(request: Request, name: str) -> Response:
        return file(request, f"/page/{name}")

    @app.get("/metrics", response_class=PlainTextResponse, responses={**PLAIN, **errors(401)})
    async def metrics(request: Request) -> Response:
        """Everything measured last, for Prometheus: as text or OpenMetrics, as it asks."""
        accept = request.headers.get("accept", "")
        packed = _wants_gzip(request.headers.get("accept-encoding", ""))
        parts, headers = with_own(live.metrics, *heart.exposition(accept, gzip=packed))
        size = {"Content-Length": str(sum(map(len, parts))), "Vary": "Accept, Accept-Encoding"}

        async def stream() -> Any:
            for part in parts:
                yield part

        return StreamingResponse(stream(), headers={**headers, **size})

    @app.get("/-/healthy", response_class=PlainTextResponse, responses={**PLAIN, **errors(503)})
    async def healthy() -> Response:
        """Whether judging goes on; a process that only answers is not healthy."""
        return _state("healthy", holds=heart.beating)

    @app.get("/-/ready", response_class=PlainTextResponse, responses={**PLAIN, **errors(503)})
    async def ready() -> Response:
        """Whether what was kept is restored, and bodies are taken."""
        return _state("ready", holds=heart.ready)


def _state(name: str, *, holds: bool) -> Response:
    if holds:
        return PlainTextResponse(f"embedwatch is {name}.\n")
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"embedwatch is not {name}")


def _lifecycle(app: FastAPI, live: Live) -> None:
    @app.post("/-/reload", response_class=PlainTextResponse, responses={**PLAIN, **errors(400, 401, 403)})
    async def reload() -> Response:
        """Read the configuration again; the old one stays where it is wrong."""
        if not live.config.web.enable_lifecycle:
            raise Refusal(HTTPStatus.FORBIDDEN, "reloading must be allowed with --web.enable-lifecycle; or send SIGHUP")
        try:
            await run_sync(live.reload)
        except UsageError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error
        return PlainTextResponse("The configuration is taken over.\n")


def _reading(app: FastAPI, heart: Heart) -> None:
    async def told(read: Callable[..., Any], *arguments: Any) -> Response:
        found = await run_sync(read, *arguments)
        if found is None:
            raise Refusal(HTTPStatus.NOT_FOUND, UNKNOWN)
        return answer(found)

    @app.get("/api/v1/status", responses={**JSON_OBJECT, **errors(401)})
    async def status() -> Response:
        """How the daemon itself is doing."""
        return await told(heart.status)

    @app.get("/api/v1/spaces", responses={**JSON_OBJECTS, **errors(401)})
    async def spaces() -> Response:
        """All Spaces, each with its worst verdict."""
        return await told(heart.spaces)

    @app.get("/api/v1/spaces/{model:path}/{place}", responses={**JSON_OBJECT, **errors(401, 404, 422)})
    async def space(model: Name, place: Name, segment: Segment = "all", head: Head = None) -> Response:
        """One Space: its last window, and its verdicts."""
        return await told(heart.space, Space(model, place, segment, head))

    @app.get("/api/v1/courses/{model:path}/{place}", responses={**JSON_OBJECT, **errors(401, 404, 422)})
    async def course(model: Name, place: Name, segment: Segment = "all", head: Head = None) -> Response:
        """Every number of one Space through the windows that are remembered."""
        return await told(heart.course, Space(model, place, segment, head))

    @app.get("/api/v1/maps/{model:path}/{place}", responses={**JSON_OBJECT, **errors(401, 404, 422)})
    async def map_of(
        request: Request,
        model: Name,
        place: Name,
        segment: Segment = "all",
        head: Head = None,
        layout: Layout = "pca",
    ) -> Response:
        """Rows of the last window and of the reference in two dimensions, as they were drawn when it closed.

        Whoever asks for `tsne` gets what there is, and finds t-SNE in it a little later.
        """
        packed = _wants_gzip(request.headers.get("accept-encoding", ""))
        body = heart.map(Space(model, place, segment, head), gzip=packed, spread=layout == "tsne")
        if body is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "there is no map: no rows of this Space came since the start")
        coding = {"Content-Encoding": "gzip"} if packed else {}
        return Response(body, media_type="application/json", headers={"Vary": "Accept-Encoding", **coding})

    @app.get("/api/v1/changes", responses={**JSON_OBJECTS, **errors(401)})
    async def changes() -> Response:
        """Verdicts that became grave, or ceased to be, also before a restart, the newest first."""
        return await told(heart.changes)

    @app.get("/api/v1/verdicts", responses={**JSON_OBJECTS, **errors(401, 422)})
    async def verdicts(status: Status | None = None) -> Response:
        """Verdicts of all Spaces; `status` picks those of one."""
        return await told(heart.verdicts, status)

    @app.get("/api/v1/failures", responses={**JSON_OBJECTS, **errors(401)})
    async def failures() -> Response:
        """What failed lately while judging, and why."""
        return await told(heart.failures)


def _sending(app: FastAPI, receiving: Receiving) -> None:
    codes = (400, 401, 403, 404, 408, 413, 415, 422, 429, 503)

    @app.post(
        "/api/v1/ingest/{model:path}/{place}",
        status_code=202,
        responses=taken(errors(*codes)),
        openapi_extra=rows_body(),
    )
    async def ingest(
        request: Request,
        model: Name,
        place: Name,
        segment: Segment = "all",
        role: Role = "vectors",
        step: Count = None,
        sender: Sender = "",
        number: Count = None,
    ) -> Response:
        """Take rows of one Space. Repeating one (`sender`, `number`) does no harm."""
        if bool(sender) != (number is not None):
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "`sender` and `number` must be given together")
        space = Space(model, place, segment)
        count = await receiving.rows(request, space, role=role, step=step, sender=sender, number=number)
        return answer({"accepted": count}, HTTPStatus.ACCEPTED)

    @app.post("/api/v1/parcels", status_code=202, responses=taken(errors(*codes)), openapi_extra=parcel_body())
    async def parcels(request: Request) -> Response:
        """Take the states of a window or a Snapshot, as the sink `daemon` sends them."""
        return answer({"accepted": await receiving.parcel(request)}, HTTPStatus.ACCEPTED)


def _wants_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header takes gzip.

    Example:
        >>> _wants_gzip("br, gzip"), _wants_gzip("gzip;q=0"), _wants_gzip("")
        (True, False, False)
    """
    for coding in accepted.lower().split(","):
        name, _, options = coding.partition(";")
        if name.strip() == "gzip":
            return options.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
