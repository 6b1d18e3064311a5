"""What opencode-memory-tree has kept: the original messages in the leaves of its trees (§8).

    DIR/data/sessions/<session>/nodes/node0_001.json    with details: "[{role, content}, ...]"
    DIR/data/sessions/<session>/buffer-states.json      with what was not compressed yet

Only originals are taken, not its summaries. Times are those of its files, since it keeps none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import javascript
from optchat.hosts.opencode.transcript.messages import (
    HostMessage,
    HostPart,
    HostSession,
    Info,
    State,
    Times,
)

_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
_MESSAGE_MS = 1
"""Between two messages of one file, so that they keep their order."""


class MemoryTree:
    """The trees below one folder, as sessions of a directory's project.

    ``name`` is empty: it is no store of the host's, and what it lacks was never deleted.
    """

    name = ""
    is_at_rest = True

    def __init__(self, path: Path, *, directory: str, project_id: str) -> None:
        self.path = path
        self.directory = directory
        self.project_id = project_id
        inside = path / "data" / "sessions"
        self._folder = inside if inside.is_dir() else path / "sessions"
        if not self._folder.is_dir():
            raise BadInput(
                f"there is no tree of opencode-memory-tree in {path}; nothing was read.",
                hint="name its folder, such as .opencode/plugins/memory-tree",
            )

    def close(self) -> None:
        """There is nothing to close."""

    def sessions(self) -> list[HostSession]:
        """One for each tree, oldest first.

        Raises:
            BadInput: a file of it cannot be read.
        """
        found = [self._session(folder) for folder in self._folder.iterdir() if folder.is_dir()]
        return sorted(found, key=lambda s: (s.created_ms, s.id))

    def messages(self, session: HostSession) -> list[HostMessage]:
        """The originals in the tree, in its order.

        Raises:
            BadInput: as ``sessions``.
        """
        found: list[HostMessage] = []
        for written_ms, spoken in _spoken(self._folder / session.id):
            number = len(found)
            after_ms = found[-1].info.time.created + _MESSAGE_MS if found else 0
            at_ms = max(written_ms, after_ms)
            part = _part(spoken, f"prt_{session.id}_{number}")
            if part is None:
                continue
            role = "user" if spoken["role"] in ("user", "system") else "assistant"
            info = Info(role=role, time=Times(created=at_ms, completed=at_ms))
            found.append(HostMessage(id=f"msg_{session.id}_{number}", info=info, parts=[part]))
        for message, following in zip(found, [*found[1:], None], strict=True):
            goes_on = following is not None and following.info.role == "assistant"
            if message.info.role == "assistant":
                message.info.finish = "tool-calls" if goes_on else "stop"
        return found

    def ids(self, session: HostSession) -> list[str]:
        """Those of its messages."""
        return [message.id for message in self.messages(session)]

    def times(self, session_id: str, count: int) -> list[tuple[int, str]]:
        """When the first messages were made and whose they are."""
        found = self.messages(next(s for s in self.sessions() if s.id == session_id))
        return [(m.info.time.created, m.info.role) for m in found[:count]]

    def _session(self, folder: Path) -> HostSession:
        spoken = list(_spoken(folder))
        at = [at_ms for at_ms, _ in spoken] or [0]
        asked = next((_text(s["content"]) for _, s in spoken if s["role"] == "user"), "")
        return HostSession(
            id=folder.name,
            project_id=self.project_id,
            directory=self.directory,
            title=" ".join(asked.split())[:60],
            created_ms=min(at),
            updated_ms=max(at),
            project_directory=self.directory,
            messages=len(spoken),
            mark=f"{max(at)}:{len(spoken)}:tree",
        )


def _spoken(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """What was said, with the time of the file that has it."""
    leaves = [(_read(file), file) for file in sorted(folder.glob("nodes/node0_*.json"))]
    leaves.sort(key=lambda leaf: _number(leaf[0], "round_start"))
    for leaf, file in leaves:
        node = cast("dict[str, Any]", leaf) if isinstance(leaf, dict) else {}
        details = node.get("details")
        told = _parsed(details, file) if isinstance(details, str) else details
        yield from _messages(told, file)
    buffer = folder / "buffer-states.json"
    if buffer.is_file():
        yield from _messages(_raw(_read(buffer)), buffer)


def _messages(told: Any, file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    at_ms = file.stat().st_mtime_ns // 10**6
    for item in cast("list[Any]", told) if isinstance(told, list) else ():
        if isinstance(item, dict) and isinstance(cast("dict[str, Any]", item).get("role"), str):
            found = cast("dict[str, Any]", item)
            if "content" in found and found["role"] not in _THOUGHTS:
                yield at_ms, found


def _raw(state: Any) -> list[Any]:
    """The messages of a buffer that stand in no node: those with a role and no node's id."""
    if isinstance(state, list):
        return [i for i in cast("list[Any]", state) if isinstance(i, dict) and "role" in i]
    if isinstance(state, dict):
        return [m for value in cast("dict[str, Any]", state).values() for m in _raw(value)]
    return []


def _part(spoken: dict[str, Any], part_id: str) -> HostPart | None:
    text = javascript.well_formed(_text(spoken["content"]))
    if not text:
        return None
    if spoken["role"] in ("tool", "function"):
        name = javascript.well_formed(str(spoken.get("name") or spoken.get("tool") or "tool"))
        return HostPart(
            type="tool", id=part_id, tool=name, state=State(status="completed", output=text)
        )
    return HostPart(type="text", id=part_id, text=text, synthetic=spoken["role"] == "system")


def _text(content: Any) -> str:
    """The words of a message, without what the model thought."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, cast("list[Any]", content))))
    if isinstance(content, dict):
        part = cast("dict[str, Any]", content)
        if part.get("type") in _THOUGHTS:
            return ""
        return _text(part.get("text") or part.get("content") or part.get("output") or "")
    return ""


def _number(node: Any, name: str) -> float:
    value = cast("dict[str, Any]", node).get(name) if isinstance(node, dict) else None
    return value if isinstance(value, int | float) else 0.0


def _read(file: Path) -> Any:
    try:
        return _parsed(file.read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _parsed(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> BadInput:
    return BadInput(
        f"{file} does not read as a tree's file ({error}); nothing of this tree was taken in.",
        hint="mend or move that file, then run the command again",
    )
