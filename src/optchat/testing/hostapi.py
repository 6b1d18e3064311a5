"""The host's HTTP API, one method a route, as tests want to say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx2

from optchat.testing.hostfiles import PROVIDER_ID

Json = dict[str, Any]


class HostError(RuntimeError):
    """The host answered with an HTTP error; ``status`` and ``body`` say which."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:2000]}")
        self.status = status
        self.body = body


class HostApi:
    """Calls to one running host, in one project folder unless a call names another."""

    def __init__(self, *, project: Path, model: str) -> None:
        self.project = project
        self.model = model
        self._client: httpx2.Client | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        directory: Path | str | None = None,
        timeout: float | None = None,
        **query: Any,
    ) -> Any:
        """Send one request to the host and return the decoded answer.

        Raises:
            HostError: for an answer outside 2xx.
        """
        assert self._client is not None, "the host is not running"
        parameters = {"directory": str(directory or self.project)}
        parameters |= {k: str(v) for k, v in query.items() if v is not None}
        response = self._client.request(
            method,
            path,
            params=parameters,
            json=body,
            timeout=timeout or self._client.timeout,
        )
        if not response.is_success:
            raise HostError(response.status_code, response.text)
        return response.json() if response.content else None

    def create_session(self, *, directory: Path | None = None, **fields: Any) -> str:
        """Create a session and return its id; fields: title, parentID, metadata."""
        session = self.request("POST", "/session", body=fields, directory=directory)
        return str(session["id"])

    def session(self, session_id: str) -> Json:
        """Return one session's record."""
        return cast(Json, self.request("GET", f"/session/{session_id}"))

    def sessions(self, **query: Any) -> list[Json]:
        """Return the project's sessions."""
        return cast(list[Json], self.request("GET", "/session", **query))

    def patch_session(self, session_id: str, **fields: Any) -> Json:
        """Change a session: title, metadata, time."""
        return cast(Json, self.request("PATCH", f"/session/{session_id}", body=fields))

    def status(self) -> Json:
        """Return the sessions that are not idle in this process."""
        return cast(Json, self.request("GET", "/session/status"))

    def prompt(self, session_id: str, content: str = "", **options: Any) -> Json:
        """Send a prompt and return the last assistant message once the session is idle.

        Options: model (an id of the fake provider), agent, parts, directory, timeout, and any field
        of the host's prompt body, such as messageID, noReply, tools or system.
        """
        directory, timeout = options.pop("directory", None), options.pop("timeout", None)
        body = self._prompt_body(content, options)
        path = f"/session/{session_id}/message"
        return cast(
            Json, self.request("POST", path, body=body, directory=directory, timeout=timeout)
        )

    def prompt_async(self, session_id: str, content: str = "", **options: Any) -> None:
        """Send a prompt and return at once; options as for ``prompt``."""
        directory = options.pop("directory", None)
        body = self._prompt_body(content, options)
        self.request("POST", f"/session/{session_id}/prompt_async", body=body, directory=directory)

    def abort(self, session_id: str) -> None:
        """Abort what the session is doing."""
        self.request("POST", f"/session/{session_id}/abort")

    def messages(self, session_id: str, **query: Any) -> list[Json]:
        """Return the session's messages as {info, parts}."""
        path = f"/session/{session_id}/message"
        return cast(list[Json], self.request("GET", path, **query))

    def delete_message(self, session_id: str, message_id: str) -> None:
        """Delete one message."""
        self.request("DELETE", f"/session/{session_id}/message/{message_id}")

    def patch_part(self, session_id: str, part: Mapping[str, Any]) -> Json:
        """Replace one part by this whole part."""
        path = f"/session/{session_id}/message/{part['messageID']}/part/{part['id']}"
        return cast(Json, self.request("PATCH", path, body=dict(part)))

    def delete_part(self, session_id: str, message_id: str, part_id: str) -> None:
        """Delete one part."""
        self.request("DELETE", f"/session/{session_id}/message/{message_id}/part/{part_id}")

    def fork(self, session_id: str, message_id: str | None = None) -> Json:
        """Copy a session, up to a message if one is given, and return the copy."""
        body = {"messageID": message_id} if message_id else {}
        return cast(Json, self.request("POST", f"/session/{session_id}/fork", body=body))

    def revert(self, session_id: str, message_id: str, part_id: str | None = None) -> Json:
        """Mark everything from this message on as undone."""
        body = {"messageID": message_id, **({"partID": part_id} if part_id else {})}
        return cast(Json, self.request("POST", f"/session/{session_id}/revert", body=body))

    def unrevert(self, session_id: str) -> Json:
        """Take a revert back."""
        return cast(Json, self.request("POST", f"/session/{session_id}/unrevert"))

    def delete(self, session_id: str) -> None:
        """Delete a session."""
        self.request("DELETE", f"/session/{session_id}")

    def summarize(self, session_id: str, *, model: str | None = None) -> None:
        """Run the host's own compaction and return when it is done."""
        body = {"providerID": PROVIDER_ID, "modelID": model or self.model}
        self.request("POST", f"/session/{session_id}/summarize", body=body)

    def shell(self, session_id: str, command: str, *, agent: str = "build") -> Json:
        """Run a shell command as the user does with ``!``."""
        body = {"agent": agent, "command": command, "model": self._model_body(self.model)}
        return cast(Json, self.request("POST", f"/session/{session_id}/shell", body=body))

    def command(self, session_id: str, name: str, arguments: str = "", **fields: Any) -> Json:
        """Run a slash command."""
        body = {"command": name, "arguments": arguments, **fields}
        return cast(Json, self.request("POST", f"/session/{session_id}/command", body=body))

    def tools(self, *, model: str | None = None) -> list[Json]:
        """Return the definitions of the tools a model is offered."""
        found = self.request(
            "GET", "/experimental/tool", provider=PROVIDER_ID, model=model or self.model
        )
        return cast(list[Json], found)

    def _prompt_body(self, content: str, options: Mapping[str, Any]) -> Json:
        body = dict(options)
        body["model"] = self._model_body(str(body.pop("model", None) or self.model))
        body.setdefault("parts", [{"type": "text", "text": content}])
        return body

    @staticmethod
    def _model_body(model: str) -> Json:
        return {"providerID": PROVIDER_ID, "modelID": model}
