"""Reading evaluation files: sessions of the common form, and LoCoMo."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from optchat.errors import BadInput
from optchat.wire import MessageInfo, Part, SessionInfo, SyncRequest, TextPart, ToolPart

HOST = "evaluation"
_DIALOGUE = re.compile(r"D(\d+):(\d+)")
DAY_MS = 86_400_000


def load(file: Path) -> Any:
    """The JSON of an evaluation file.

    Raises:
        BadInput: it cannot be read or is no JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read as JSON: {error}.") from None


def requests(data: Any, now_ms: int) -> Iterator[SyncRequest]:
    """The sessions of the common form as a host would tell of them; reasoning is left out."""
    for number, session in enumerate(data["sessions"]):
        messages = [_message(m, now_ms) for m in session["messages"]]
        for message, after in zip(messages, [*messages[1:], None], strict=True):
            if message.role == "assistant" and (after is None or after.role == "user"):
                message.terminal = "completed"
        yield _request(
            session["id"],
            messages,
            observed_ms=now_ms + number,
            directory=session["directory"],
            title=session["title"],
            parent_id=session.get("parent_id"),
        )


def zero_of(data: Any) -> int:
    """What the times of a file are relative to."""
    return int(time.time() * 1000) if "relative to now" in data.get("time_unit", "") else 0


def _request(
    session: str,
    messages: list[MessageInfo],
    *,
    observed_ms: int,
    directory: str,
    title: str,
    parent_id: str | None = None,
) -> SyncRequest:
    info = SessionInfo(
        host=HOST,
        id=session,
        project_key=HOST,
        project_directory="/",
        directory=directory,
        title=title,
        parent_id=parent_id,
    )
    return SyncRequest(session=info, messages=messages, idle=True, observed_ms=observed_ms)


def _message(message: Any, now_ms: int) -> MessageInfo:
    parts: list[Part] = []
    for part in message["parts"]:
        if part["type"] == "text":
            parts.append(TextPart(id=part["id"], text=part["text"]))
        elif part["type"] == "tool":
            parts.append(
                ToolPart(
                    id=part["id"],
                    tool=part["tool"],
                    input_json=json.dumps(part["input"], ensure_ascii=False),
                    status="error" if part["status"] == "error" else "completed",
                    output=part.get("output"),
                    error=part.get("error"),
                    title=part.get("title") or "",
                )
            )
    return _told(message["id"], message["role"], parts, now_ms + message["created"])


def _told(
    name: str, role: Literal["user", "assistant"], parts: list[Part], created_ms: int
) -> MessageInfo:
    return MessageInfo(
        id=name,
        role=role,
        digest=hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest(),
        final=True,
        created_ms=created_ms,
        opens=role == "user",
        parts=parts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A LoCoMo question and the turns that answer it, as message ids."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """LoCoMo, or some of its conversations; ``texts`` by message id."""

    requests: list[SyncRequest]
    questions: list[Question]
    texts: dict[str, str]
    dropped: int


def locomo(data: Any, chosen: range | None = None) -> Conversations:
    """Conversations as sessions, their sessions as turns, their turns as records.

    A question's evidence must name turns that are there; a question without any is dropped.
    """
    found = Conversations(requests=[], questions=[], texts={}, dropped=0)
    dropped = 0
    for number, conversation in enumerate(data):
        if chosen is not None and number not in chosen:
            continue
        name = str(conversation["sample_id"])
        told = conversation["conversation"]
        messages: list[MessageInfo] = []
        sessions = sorted(
            (int(m[1]) for key in told if (m := re.fullmatch(r"session_(\d+)", key))),
        )
        for session in sessions:
            for place, turn in enumerate(told[f"session_{session}"]):
                caption = turn.get("blip_caption")
                text = f"{turn['speaker']}: {turn['text']}" + (f" [{caption}]" if caption else "")
                key = f"{name}:{turn['dia_id']}"
                message = _told(
                    key,
                    "user",
                    [TextPart(id="p", text=text)],
                    DAY_MS * (session + 1) + place * 60_000,
                )
                message.opens = place == 0
                messages.append(message)
                found.texts[key] = text
        found.requests.append(
            _request(name, messages, observed_ms=number + 1, directory="/", title=name)
        )
        for asked in conversation["qa"]:
            named = _DIALOGUE.findall(" ".join(map(str, asked.get("evidence", []))))
            keys = [f"{name}:D{session}:{int(turn)}" for session, turn in named]
            evidence = frozenset(k for k in keys if k in found.texts)
            if not evidence:
                dropped += 1
                continue
            found.questions.append(
                Question(text=str(asked["question"]), category=asked["category"], evidence=evidence)
            )
    return Conversations(
        requests=found.requests, questions=found.questions, texts=found.texts, dropped=dropped
    )
