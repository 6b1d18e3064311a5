"""One POST with bounds on everything, and the outcomes that are the same for every provider."""

from __future__ import annotations

import ipaddress
import json
import os
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2

from optchat.compactor.models.port import Outcome, Reply
from optchat.errors import BadInput

ANSWER_BYTES_MAX = 1024 * 1024
"""A whole answer with its envelope; a batch of lines needs a fiftieth of it."""

CONNECT_TIMEOUT_S = 10.0
DETAIL_CHARS = 200
RETRY_AFTER_MS_MAX = 24 * 3_600_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """A response with a JSON object in it."""

    status: int
    body: Json
    retry_after_ms: int | None


class Poster:
    """A connection to one endpoint. The key is read from the environment at each call."""

    def __init__(self, url: str, *, key_env: str, timeout_ms: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"compactor.url is no http(s) address: {url[:200]!r}")
        if parts.username or parts.password:
            raise BadInput(
                "compactor.url holds a credential; it was not used.",
                hint="name the environment variable with the key in compactor.key_env",
            )
        self._url = url.rstrip("/")
        self._key_env = key_env
        self._timeout_s = timeout_ms / 1000
        self._http = httpx2.Client(
            timeout=httpx2.Timeout(
                self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)
            ),
            follow_redirects=False,  # a key must not follow
            trust_env=not _is_loopback(parts.hostname),
        )

    @property
    def key(self) -> str | None:
        return os.environ.get(self._key_env) if self._key_env else None

    @property
    def missing_key(self) -> str | None:
        """What to say when a key is configured and not there."""
        if self._key_env and not self.key:
            return f"the environment variable {self._key_env} is not set in the coordinator"
        return None

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: Json, headers: dict[str, str]) -> Answered | Reply:
        """Send once; whatever is no JSON object within the bounds is a ``Reply`` already."""
        deadline = time.monotonic() + self._timeout_s
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"content-type": "application/json", **headers}
        try:
            with self._http.stream(
                "POST", self._url + path, content=data, headers=headers
            ) as response:
                collected = bytearray()
                for piece in response.iter_bytes():
                    collected += piece
                    if len(collected) > ANSWER_BYTES_MAX:
                        return Reply(
                            outcome=Outcome.TOO_LARGE, detail=f"over {ANSWER_BYTES_MAX} bytes"
                        )
                    if time.monotonic() > deadline:
                        return Reply(outcome=Outcome.TIMED_OUT, detail="the answer came too slowly")
                return _read(response, bytes(collected))
        except httpx2.TimeoutException as error:
            sent = not isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout)
            return Reply(outcome=Outcome.TIMED_OUT, detail=type(error).__name__, sent=sent)
        except httpx2.ConnectError:
            return Reply(outcome=Outcome.UNAVAILABLE, detail="no connection", sent=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return Reply(outcome=Outcome.UNAVAILABLE, detail=type(error).__name__)


def _read(response: httpx2.Response, data: bytes) -> Answered | Reply:
    retry_after_ms = _retry_after_ms(response.headers.get("retry-after"))
    status = response.status_code
    try:
        body: Any = json.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        if status == 200:
            return Reply(outcome=Outcome.INVALID, detail="the answer is no UTF-8 JSON")
        body = {}
    if not isinstance(body, dict):
        if status == 200:
            return Reply(outcome=Outcome.INVALID, detail="the answer is no JSON object")
        body = {}
    return Answered(status, cast(Json, body), retry_after_ms)


def refusal(answered: Answered, model: str) -> Reply:
    """The outcome of a response that is no 200, by its status and what it says."""
    said = error_text(answered.body)
    low = said.lower()
    outcome = Outcome.REJECTED
    match answered.status:
        case 408 | 504:
            outcome = Outcome.TIMED_OUT
        case 429:
            outcome = Outcome.DENIED if "insufficient_quota" in low else Outcome.RATE_LIMITED
        case 401 | 402 | 403:
            outcome = Outcome.DENIED
        case 404 | 410:
            outcome = Outcome.GONE
        case status if status >= 500:
            outcome = Outcome.UNAVAILABLE
        case status if 300 <= status < 400:
            outcome = Outcome.REJECTED
            said = "the endpoint redirects; a key does not follow"
        case _:
            if "content_filter" in low or "content management policy" in low or "safety" in low:
                outcome = Outcome.FILTERED
            elif "model" in low and any(w in low for w in ("not found", "not exist", "decommiss")):
                outcome = Outcome.GONE
    return Reply(
        outcome=outcome,
        retry_after_ms=answered.retry_after_ms,
        detail=f"HTTP {answered.status} for {model}: {_short(said)}".rstrip(": "),
        # A request that was turned away at the door is not paid.
        sent=answered.status not in (401, 402, 403, 404, 410, 429),
    )


def error_text(body: Json) -> str:
    """What an error body says, in any of the usual shapes."""
    error = body.get("error", body)
    if isinstance(error, dict):
        fields = cast(Json, error)
        return " ".join(str(fields[k]) for k in ("type", "code", "message") if fields.get(k))
    return str(error)


def _short(text: str) -> str:
    """Enough to tell a person; an endpoint may quote the request, so not more."""
    flat = " ".join(text.split())
    return flat if len(flat) <= DETAIL_CHARS else flat[:DETAIL_CHARS] + "…"


def _retry_after_ms(value: str | None) -> int | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    if seconds != seconds:  # noqa: PLR0124  # not a number
        return None
    return int(min(max(seconds, 0) * 1000, RETRY_AFTER_MS_MAX))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def as_int(value: Any) -> int:
    """A token count; anything else that an endpoint puts there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
