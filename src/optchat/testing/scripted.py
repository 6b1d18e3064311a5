"""A host without a host: a conversation as protocol requests, for tests of everything below it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from optchat.core.budget import measure
from optchat.wire import (
    AssembleRequest,
    AssembleResponse,
    MessageInfo,
    ModelInfo,
    Part,
    SessionInfo,
    ShapeMessage,
    SizesInfo,
    SyncRequest,
    SyncResponse,
    TextPart,
    ToolPart,
    ToolRequest,
    ToolResponse,
)


class Coordinator(Protocol):
    """What a scripted host talks to: the service in process, or a client over the socket."""

    def sync(self, request: SyncRequest) -> SyncResponse: ...
    def assemble(self, request: AssembleRequest) -> AssembleResponse: ...
    def tool(self, request: ToolRequest) -> ToolResponse: ...


def sizes(text: str) -> SizesInfo:
    """A text's sizes as the plugin would measure them."""
    measured = measure(text)
    return SizesInfo(
        letters=measured.letters,
        spaces=measured.spaces,
        symbols=measured.symbols,
        other_bytes=measured.other_bytes,
    )


BIG = ModelInfo(provider="fake", id="big", context_tokens=200_000, output_tokens=8_000)


@dataclass(slots=True)
class ScriptedSession:
    """One conversation that grows by whole messages and keeps its own count of ids."""

    coordinator: Coordinator
    id: str
    directory: str = "/project"
    title: str = ""
    model: ModelInfo = BIG
    parent: str | None = None
    archived: bool = False
    overhead_text: str = "instructions and tools"
    store: str = "a store"
    messages: list[MessageInfo] = field(default_factory=list[MessageInfo])
    clock_ms: int = 1_700_000_000_000
    count: int = 0
    created_ms: int = 1_600_000_000_000
    fork_of: str | None = None
    project: str = ""  # the directory that it began in, unless said otherwise

    def __post_init__(self) -> None:
        self.project = self.project or self.directory

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(
            host="scripted",
            id=self.id,
            project_key=self.project,
            project_directory=self.project,
            directory=self.directory,
            title=self.title or self.id,
            created_ms=self.created_ms,
            fork_of=self.fork_of,
            parent_id=self.parent,
            store=self.store,
            archived=self.archived,
        )

    def _add(
        self,
        role: Literal["user", "assistant", "other"],
        parts: list[Part],
        *,
        final: bool = True,
        terminal: Literal["completed", "interrupted", "failed"] | None = None,
        opens: bool | None = None,
    ) -> MessageInfo:
        self.count += 1
        self.clock_ms += 60_000
        message = MessageInfo(
            id=f"{self.id}-m{self.count}",
            role=role,
            digest=hashlib.sha256(msgspec.json.encode(parts)).hexdigest(),
            final=final,
            created_ms=self.clock_ms,
            terminal=terminal,
            opens=opens,
            parts=parts,
        )
        self.messages.append(message)
        return message

    def user(self, text: str, *, opens: bool = True) -> MessageInfo:
        """The person's message; ``opens=False`` steers a running turn."""
        return self._add("user", [TextPart(id=f"p{self.count}", text=text)], opens=opens)

    def assistant(
        self,
        text: str = "",
        *,
        tools: tuple[tuple[str, dict[str, Any], str], ...] = (),
        terminal: Literal["completed", "interrupted", "failed"] | None = None,
    ) -> MessageInfo:
        """A finished assistant message: text, then tool calls with their results."""
        parts: list[Part] = [TextPart(id=f"p{self.count}t", text=text)] if text else []
        parts += [
            ToolPart(
                id=f"p{self.count}c{index}",
                tool=name,
                input_json=json.dumps(arguments),
                status="completed",
                output=output,
            )
            for index, (name, arguments, output) in enumerate(tools)
        ]
        return self._add("assistant", parts, terminal=terminal)

    def sync(self, *, idle: bool = False) -> SyncResponse:
        return self.coordinator.sync(
            SyncRequest(
                session=self.info,
                messages=list(self.messages),
                idle=idle,
                observed_ms=self.clock_ms,
            )
        )

    def assemble(self) -> AssembleResponse:
        """Ask what the next request of this conversation carries."""
        return self.coordinator.assemble(self.request())

    def request(self) -> AssembleRequest:
        shape = [ShapeMessage(id=m.id, role=m.role, sizes=sizes(text_of(m))) for m in self.messages]
        return AssembleRequest(
            session=self.info,
            model=self.model,
            agent="build",
            shape=shape,
            overhead=sizes(self.overhead_text),
            overhead_known=True,
        )

    def turn(self, asked: str, answered: str, **options: Any) -> AssembleResponse:
        """A whole turn: request, assembly, answer, end."""
        self.user(asked)
        self.sync()
        assembled = self.assemble()
        self.assistant(answered, terminal="completed", **options)
        self.sync(idle=True)
        return assembled

    def call(self, tool: str, /, **args: Any) -> ToolResponse:
        """A retrieval call of the open turn."""
        return self.coordinator.tool(
            ToolRequest(
                tool=tool,  # pyright: ignore[reportArgumentType]
                args_json=json.dumps(args),
                host="scripted",
                session=self.id,
            )
        )

    def fork(self, name: str, count: int | None = None, *, known: bool = True) -> ScriptedSession:
        """A session that the host made from the first ``count`` messages of this one.

        The copies have ids of their own, for messages and parts, and the times of the originals.
        ``known`` is whether the host's plugin found out where it came from.
        """
        self.clock_ms += 60_000
        copies = [
            msgspec.structs.replace(
                message,
                id=f"{name}-copy{index}",
                parts=[
                    msgspec.structs.replace(part, id=f"{name}-{part.id}")
                    for part in message.parts or []
                ],
            )
            for index, message in enumerate(self.messages[:count])
        ]
        return ScriptedSession(
            self.coordinator,
            name,
            directory=self.directory,
            title=f"{self.title or self.id} (fork)",
            model=self.model,
            messages=copies,
            clock_ms=self.clock_ms,
            count=len(copies),
            created_ms=self.clock_ms,
            fork_of=self.id if known else None,
        )

    def edited(self, index: int, text: str) -> None:
        """Change the text of a message that is there, as a host's edit does."""
        self.clock_ms += 60_000
        parts: list[Part] = [TextPart(id="edited", text=text)]
        digest = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
        self.messages[index] = msgspec.structs.replace(
            self.messages[index], parts=parts, digest=digest
        )


def text_of(message: MessageInfo) -> str:
    """All that a model would read of a message."""
    texts: list[str] = []
    for part in message.parts or []:
        match part:
            case TextPart():
                texts.append(part.text)
            case ToolPart():
                texts += [part.input_json, part.output or part.error or ""]
            case _:
                texts.append(part.filename)
    return "\n".join(texts)
