"""The HTTP routes over ``Service``: decoding, errors and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import structlog
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from optchat.coordinator.service import Service
from optchat.errors import BadInput, OptChatError, VersionMismatch
from optchat.limits import REQUEST_BYTES_MAX
from optchat.masking import mask
from optchat.wire import PROTOCOL, PROTOCOL_HEADER, ROUTES, ErrorBody, ErrorInfo, Wire

log = structlog.get_logger()

HOSTS_MAX = 256
"""Hosts that may wait for work side by side, each in a thread that nobody else needs."""


def make_app(service: Service, *, stop: Callable[[], None]) -> Starlette:
    """The application; ``stop`` asks the process to end after the answer."""
    handlers: dict[str, Callable[..., Any]] = {
        "/v1/health": service.health,
        "/v1/sync": service.sync,
        "/v1/assemble": service.assemble,
        "/v1/check": service.check,
        "/v1/tool": service.tool,
        "/v1/status": service.status,
        "/v1/import": service.importing.ask,
        "/v1/import-status": service.importing.status,
        "/v1/export": service.export,
        "/v1/follow": service.follow,
        "/v1/share": service.share,
        "/v1/resync": service.resync,
        "/v1/forget": service.forget,
        "/v1/forgotten": service.forgotten,
        "/v1/present": service.present,
        "/v1/work": service.work,
        "/v1/work-done": service.work_done,
        "/v1/spend": service.spend,
        "/v1/jobs": service.jobs,
        "/v1/resume": service.resume,
        "/v1/rebuild": service.rebuild,
        "/v1/summarise": service.summarise,
        "/v1/doctor": service.doctor,
        "/v1/stop": partial(_stopping, service, stop),
    }
    # A host may wait for long, and be gone when there is something for it.
    lost: dict[str, Callable[..., None]] = {"/v1/work": service.work_lost}
    return Starlette(
        routes=[
            Route(
                path,
                _endpoint(path, handlers[path], ROUTES[path][0], lost.get(path)),
                methods=["POST"],
            )
            for path in ROUTES
        ]
    )


def _stopping(service: Service, stop: Callable[[], None]) -> Wire:
    stop()
    return service.health()


def _endpoint(
    path: str,
    handler: Callable[..., Any],
    request_type: type[Wire] | None,
    lost: Callable[..., None] | None,
) -> Callable[[Request], Awaitable[Response]]:
    limiter = CapacityLimiter(HOSTS_MAX) if lost is not None else None

    async def endpoint(request: Request) -> Response:
        try:
            _check_protocol(request)
            body = await _body(request)
            arguments = () if request_type is None else (_decoded(body, request_type),)
            answer = await to_thread.run_sync(handler, *arguments, limiter=limiter)
            if lost is not None and await request.is_disconnected():
                await to_thread.run_sync(lost, answer)
        except OptChatError as error:
            # The path and code only: a message may quote what came from a transcript.
            log.info("refused", path=path, code=error.code)
            return _failure(error)
        except Exception:
            log.exception("failed", path=path)
            return _failure(
                OptChatError(
                    "the coordinator failed on this request; the store is as it was before.",
                    hint="the coordinator's log has the reason: optchat status",
                )
            )
        return _json(answer)

    return endpoint


def _check_protocol(request: Request) -> None:
    spoken = request.headers.get(PROTOCOL_HEADER)
    if spoken != str(PROTOCOL):
        raise VersionMismatch(
            f"the caller speaks protocol {spoken!r}, not {PROTOCOL}; nothing was done.",
            hint="after an upgrade: optchat stop, then restart the host",
        )


async def _body(request: Request) -> bytes:
    collected = bytearray()
    async for chunk in request.stream():
        collected += chunk
        if len(collected) > REQUEST_BYTES_MAX:
            raise BadInput(f"a request is over {REQUEST_BYTES_MAX} bytes; nothing was done.")
    return bytes(collected)


def _decoded(body: bytes, request_type: type[Wire]) -> Wire:
    try:
        return msgspec.json.decode(body, type=request_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the request does not parse: {error}; nothing was done.") from None


def _json(answer: Wire, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def _failure(error: OptChatError) -> Response:
    info = ErrorInfo(
        code=error.code, message=mask(error.message), hint=error.hint, retryable=error.retryable
    )
    return _json(ErrorBody(error=info), error.status)
