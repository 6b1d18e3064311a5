"""The host's messages in the protocol's terms, byte for byte as the plugin tells them (§3).

The other half of the plugin's ``map.ts``: the same roles, the same parts, the same digests, so that
a session that was read here and is told by the plugin later is the same session.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal, cast
from urllib.parse import unquote_to_bytes

import msgspec

from optchat.hosts.opencode.transcript import javascript
from optchat.hosts.opencode.transcript.messages import HostMessage, HostPart, Metadata, State
from optchat.wire import OWN_TOOLS, FilePart, MessageInfo, OwnResult, Part, TextPart, ToolPart

Role = Literal["user", "assistant", "other"]
Terminal = Literal["completed", "interrupted", "failed"]

_ATTACHED = re.compile(r"\[Attached [^\s\ufeff]+: [^\n\r\u2028\u2029]*\]")

_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def map_messages(messages: Sequence[HostMessage], *, is_settled: bool) -> list[MessageInfo]:
    """Every message, in order, with its content.

    ``is_settled``: nothing has been written to the session for so long that nobody is at work in
    it, so that what is open stays open.
    """
    roles = roles_of(messages)
    last = max((i for i, m in enumerate(messages) if m.info.role == "assistant"), default=-1)
    found: list[MessageInfo] = []
    for index, message in enumerate(messages):
        role = roles[index]
        told = () if role == "other" else message.parts
        parts = [mapped for part in told if (mapped := _part(part)) is not None]
        follows = messages[index + 1] if index + 1 < len(messages) else None
        final = _is_final(
            message,
            is_superseded=index < last,
            is_last=follows is None,
            is_settled=is_settled,
        )
        ends = role == "assistant" and final
        found.append(
            MessageInfo(
                id=message.id,
                role=role,
                digest=digest(role, parts),
                final=final,
                created_ms=message.info.time.created,
                terminal=_terminal(message, follows, is_settled=is_settled) if ends else None,
                parts=parts,
            )
        )
    return found


def roles_of(messages: Sequence[HostMessage]) -> list[Role]:
    """Who speaks in each message; what the host's compaction has added is no new history."""
    person: str | None = None
    overflowed = False
    found: list[Role] = []
    for message in messages:
        if message.info.role == "assistant":
            found.append("other" if message.info.summary else "assistant")
            continue
        compaction = next((p for p in message.parts if p.type == "compaction"), None)
        if compaction is not None:
            overflowed = compaction.overflow is True
            found.append("other")
            continue
        if any(
            p.type == "text" and p.metadata and p.metadata.compaction_continue
            for p in message.parts
        ):
            found.append("other")
            continue
        text = _spoken(message.parts)
        is_replayed = overflowed and text == person
        overflowed = False
        person = text
        found.append("other" if is_replayed else "user")
    return found


def _spoken(parts: Sequence[HostPart]) -> str:
    """A message's text without the lines that a copy has in the place of its media."""
    texts = (p.text for p in parts if p.type == "text")
    return "\n".join(text for text in texts if not _ATTACHED.fullmatch(text))


def _is_final(
    message: HostMessage, *, is_superseded: bool, is_last: bool, is_settled: bool
) -> bool:
    if message.info.role == "user":
        return not is_last or is_settled
    if is_superseded or is_settled:
        return True
    if message.info.time.completed is None:
        return False
    return not any(
        p.type == "tool" and p.state and p.state.status in ("pending", "running")
        for p in message.parts
    )


def _terminal(
    message: HostMessage, follows: HostMessage | None, *, is_settled: bool
) -> Terminal | None:
    info = message.info
    if info.error is not None:
        return "interrupted" if info.error.name == "MessageAbortedError" else "failed"
    if info.finish in ("tool-calls", "unknown"):
        return None
    if info.finish is not None:
        return "completed"
    # A command that the person ran has parts, but no step of a model and no finish either.
    if message.parts and all(p.type == "tool" for p in message.parts):
        return "completed"
    if follows is None:
        return "interrupted" if is_settled else None
    compacted = next((p for p in follows.parts if p.type == "compaction"), None)
    return None if compacted is not None and compacted.overflow else "interrupted"


def _part(part: HostPart) -> Part | None:
    match part.type:
        case "text" if not part.ignored:
            return TextPart(id=part.id, text=part.text, synthetic=part.synthetic is True)
        case "tool" if part.state is not None:
            return _tool(part, part.state)
        case "subtask":
            return TextPart(id=part.id, text=part.prompt)
        case "file":
            return _file(part)
        case _:
            return None


def _file(part: HostPart) -> FilePart:
    found = FilePart(id=part.id, mime=part.mime or "", filename=part.filename or "", url=part.url)
    if not part.url.startswith("data:"):
        return found
    comma = part.url.find(",")
    payload = part.url[comma + 1 :]
    is_base64 = part.url[:comma].endswith(";base64")
    size = _base64_bytes(payload) if is_base64 else _text_bytes(payload)
    return msgspec.structs.replace(found, url="data:", content_bytes=size)


def _base64_bytes(payload: str) -> int:
    """How many bytes a payload stands for, as the plugin counts them: by its length."""
    padding = 2 if payload.endswith("==") else int(payload.endswith("="))
    return max(0, len(payload) - padding) * 3 // 4


def _text_bytes(payload: str) -> int:
    """How many bytes a percent-encoded payload stands for; one that is none, as it is."""
    decoded = unquote_to_bytes(payload)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        decoded = payload.encode()
    return len(payload.encode() if _BAD_ESCAPE.search(payload) else decoded)


def _tool(part: HostPart, state: State) -> ToolPart:
    metadata, time = state.metadata, state.time
    own = part.tool in OWN_TOOLS
    cut = not own and metadata is not None and metadata.truncated is True
    path = metadata.output_path if cut and metadata is not None else None
    return ToolPart(
        id=part.id,
        tool=part.tool,
        input_json=javascript.stringify({} if state.input is None else state.input).decode(),
        status=cast("Any", state.status),
        title=state.title or "",
        started_ms=cast("Any", time.start if time else None),
        ended_ms=cast("Any", time.end if time else None),
        report=part.tool == "task",
        attachments=[_file(f) for f in state.attachments or []],
        own=_own_result(metadata) if own else None,
        output=None if own else state.output,
        error=None if own else state.error,
        truncated="the host truncated this output" if cut else None,
        full_output_path=path if isinstance(path, str) else None,
    )


def _own_result(metadata: Metadata | None) -> OwnResult:
    """What one of our tools answered; without an answer nothing of it is worth keeping."""
    found = metadata.optchat if metadata is not None else None
    told = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return OwnResult(
        refs=told.get("refs") or [],
        snapshot=told.get("snapshot") or "",
        sha256=told.get("sha256") or "",
    )


def digest(role: Role, parts: Sequence[Part]) -> str:
    """The hash of what would be sealed, without ids of parts: a fork's copies have others."""
    told = javascript.stringify([role, [_told(part) for part in parts]])
    return hashlib.sha256(told).hexdigest()


def _told(part: Part) -> dict[str, Any]:
    """A part with its fields in the plugin's order."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, "synthetic": part.synthetic}
        case FilePart():
            return _told_file(part)
        case ToolPart():
            told: dict[str, Any] = {
                "type": "tool",
                "tool": part.tool,
                "input_json": part.input_json,
                "status": part.status,
                "title": part.title,
                "started_ms": part.started_ms,
                "ended_ms": part.ended_ms,
                "report": part.report,
                "attachments": [_told_file(f) for f in part.attachments],
            }
            if part.own is not None:
                told["own"] = {n: getattr(part.own, n) for n in ("refs", "snapshot", "sha256")}
                return told
            told["output"] = part.output
            told["error"] = part.error
            if part.truncated is not None:
                told["truncated"] = part.truncated
            if part.full_output_path is not None:
                told["full_output_path"] = part.full_output_path
            return told


def _told_file(part: FilePart) -> dict[str, Any]:
    told: dict[str, Any] = {
        "type": "file",
        "mime": part.mime,
        "filename": part.filename,
        "url": part.url,
    }
    if part.content_bytes is not None:
        told["content_bytes"] = part.content_bytes
    return told
