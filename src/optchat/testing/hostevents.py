"""The host's event stream, read by a thread and waited on by tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlencode

Event = dict[str, Any]


class EventStream:
    """Collect the events of one project folder of one host process, in order.

    Use it as a context manager; entering returns only once the host has confirmed the connection,
    so that nothing which happens afterwards is missed.
    """

    def __init__(self, port: int, *, directory: str | None, path: str = "/event") -> None:
        query = f"?{urlencode({'directory': directory})}" if directory else ""
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._target = path + query
        self._condition = threading.Condition()
        self._events: list[Event] = []
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(lambda event: event.get("type") == "server.connected", timeout=30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def events(self) -> list[Event]:
        """The events so far."""
        with self._condition:
            return list(self._events)

    def mark(self) -> int:
        """Return the number of events so far, to wait for later ones only."""
        with self._condition:
            return len(self._events)

    def of_type(self, *types: str, session: str | None = None) -> list[Event]:
        """Return the events of these types, in order, of one session if it is given."""
        return [
            event
            for event in self.events
            if event.get("type") in types and (session is None or session_of(event) == session)
        ]

    def wait(
        self, predicate: Callable[[Event], bool], *, timeout: float = 30.0, since: int = 0
    ) -> Event:
        """Return the first event from ``since`` on for which the predicate holds."""
        position = since
        found: Event | None = None

        def search() -> bool:
            nonlocal position, found
            while position < len(self._events) and found is None:
                if predicate(self._events[position]):
                    found = self._events[position]
                position += 1
            return found is not None or self._ended

        with self._condition:
            self._condition.wait_for(search, timeout)
        if found is None:
            kinds = [event.get("type") for event in self.events[since:]]
            state = "the stream ended" if self._ended else f"{timeout} s passed"
            raise TimeoutError(f"no such event before {state}; seen: {kinds}")
        return found

    def wait_type(
        self, kind: str, *, session: str | None = None, timeout: float = 30.0, since: int = 0
    ) -> Event:
        """Return the first event of a type, of one session if it is given."""
        return self.wait(
            lambda event: (
                event.get("type") == kind and (session is None or session_of(event) == session)
            ),
            timeout=timeout,
            since=since,
        )

    def wait_text(self, content: str, *, timeout: float = 30.0, since: int = 0) -> Event:
        """Return the first stored part with this text, be it a user's or an assistant's."""
        return self.wait(
            lambda event: (
                event.get("type") == "message.part.updated"
                and event["properties"]["part"].get("text") == content
            ),
            timeout=timeout,
            since=since,
        )

    def wait_final(
        self, session: str, *, count: int = 1, timeout: float = 30.0, since: int = 0
    ) -> list[str]:
        """Return the ids of the first ``count`` assistant messages that were reported complete."""
        done: list[str] = []

        def complete(event: Event) -> bool:
            if event.get("type") != "message.updated" or session_of(event) != session:
                return False
            info = event["properties"]["info"]
            final = info["role"] == "assistant" and info["time"].get("completed")
            if final and info["id"] not in done:
                done.append(info["id"])
            return len(done) >= count

        self.wait(complete, timeout=timeout, since=since)
        return done

    def close(self) -> None:
        """End the stream from this side."""
        sock = cast(socket.socket | None, self._connection.sock)
        if sock is not None:
            # Closing alone would not wake the thread that reads.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5)
        self._connection.close()

    def _read(self) -> None:
        try:
            self._connection.request("GET", self._target, headers={"accept": "text/event-stream"})
            response = self._connection.getresponse()
            while line := response.readline():
                if line.startswith(b"data:"):
                    self._add(json.loads(line[5:]))
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            with self._condition:
                self._ended = True
                self._condition.notify_all()

    def _add(self, event: Event) -> None:
        with self._condition:
            self._events.append(event)
            self._condition.notify_all()


def session_of(event: Event) -> str | None:
    """Return the session an event speaks of, wherever its kind keeps it."""
    properties = cast(Event, event.get("properties") or {})
    info = cast(Event, properties.get("info") or {})
    part = cast(Event, properties.get("part") or {})
    found = properties.get("sessionID") or info.get("sessionID") or part.get("sessionID")
    if found is None and str(event.get("type", "")).startswith("session."):
        found = info.get("id")
    return cast(str | None, found)
