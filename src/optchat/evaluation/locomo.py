"""LoCoMo: questions about long conversations, asked of one index over all of them.

A conversation is a project, its sessions are host sessions and each dialogue turn is a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from optchat.errors import BadInput
from optchat.evaluation.files import HINT, Message, Session, Text, read
from optchat.evaluation.plain import Document, Plain
from optchat.evaluation.room import Room, room
from optchat.evaluation.scores import Evidence, drawn, percentiles

HITS = 50
TUNED = 3
"""Conversations that parameters may be tuned on; the others are held out."""

Split = Literal["tune", "held-out"]


class _Turn(msgspec.Struct):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str | None = None


class _Question(msgspec.Struct):
    question: str
    evidence: list[str] = []
    category: int = 0


class _Conversation(msgspec.Struct):
    conversation: dict[str, Any]
    sample_id: str = ""
    qa: list[_Question] = []


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the messages that hold its evidence."""

    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation's sessions, and the questions whose evidence is among their turns."""

    sessions: list[Session]
    questions: list[Question]


def load(path: Path) -> list[Conversation]:
    """The conversations of a file; questions without valid evidence are left out.

    Raises:
        BadInput: the file cannot be used.
    """
    found = read(path, list[_Conversation])
    loaded = [_conversation(path, number, one) for number, one in enumerate(found)]
    if not any(conversation.sessions for conversation in loaded):
        raise BadInput(f"{path} holds no conversation; nothing was evaluated.", hint=HINT)
    return loaded


def _conversation(path: Path, number: int, found: _Conversation) -> Conversation:
    name = f"{number:02d}-{found.sample_id or 'conversation'}"
    sessions: list[Session] = []
    for key, value in found.conversation.items():
        if not re.fullmatch(r"session_\d+", key):
            continue
        try:
            turns = msgspec.convert(value, list[_Turn])
        except msgspec.ValidationError as error:
            raise BadInput(
                f"{path}: {key} of conversation {number} is of another form: {error}; "
                "nothing was evaluated.",
                hint=HINT,
            ) from None
        when = _when(str(found.conversation.get(f"{key}_date_time", "")))
        first = found.conversation.get("speaker_a")
        sessions.append(_session(name, key, turns, when, first))
    known = {message.id for session in sessions for message in session.messages}
    questions: list[Question] = []
    for asked in found.qa:
        places = re.findall(r"D(\d+):(\d+)", " ".join(asked.evidence))
        evidence = {f"{name}/D{int(session)}:{int(turn)}" for session, turn in places} & known
        if evidence:
            questions.append(Question(asked.question, frozenset(evidence), asked.category))
    return Conversation(sessions, questions)


def _session(name: str, key: str, turns: list[_Turn], when_ms: int, first: object) -> Session:
    messages = [
        Message(
            id=f"{name}/{turn.dia_id}",
            role="user" if turn.speaker == first else "assistant",
            created=when_ms + 30_000 * index,
            parts=[Text(id=f"{name}/{turn.dia_id}/text", text=_said(turn))],
        )
        for index, turn in enumerate(turns)
    ]
    return Session(
        id=f"{name}/{key}",
        directory=f"/conversations/{name}",
        created=when_ms,
        updated=when_ms + 30_000 * len(turns),
        messages=messages,
    )


def _said(turn: _Turn) -> str:
    """Who said what, with the picture that went along as its caption."""
    picture = f" [picture: {turn.blip_caption}]" if turn.blip_caption else ""
    return f"{turn.speaker}: {turn.text}{picture}"


def _when(text: str) -> int:
    """A session's time such as "1:56 pm on 8 May, 2023"; 0 where there is none."""
    try:
        at = datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(at.timestamp() * 1000)


def evaluate(
    path: Path, *, split: Split | None = None, sample: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """The figures of a LoCoMo file: all conversations are indexed, those of ``split`` are asked.

    Raises:
        BadInput: the file cannot be used.
    """
    conversations = load(path)
    asked = {"tune": conversations[:TUNED], "held-out": conversations[TUNED:], None: conversations}
    questions = [question for one in asked[split] for question in one.questions]
    questions = drawn(questions, sample, seed)
    sessions = [session for one in conversations for session in one.sessions]
    with room() as made:
        made.take_in(sessions)
        made.warm()
        figures = _figures(made, sessions, questions)
    return {
        "file": path.name,
        "split": split or "all",
        "seed": seed,
        "conversations": len(conversations),
        "sessions": len(sessions),
        "turns": sum(len(session.messages) for session in sessions),
        **figures,
    }


def _figures(made: Room, sessions: list[Session], questions: list[Question]) -> dict[str, Any]:
    plain = Plain(
        Document(message.id, part.text)
        for session in sessions
        for message in session.messages
        for part in message.parts
        if isinstance(part, Text)
    )
    ours, theirs = Evidence(), Evidence()
    categories: dict[str, Evidence] = {}
    for question in questions:
        # A question is no query: what it quotes is a name, and need not stand there as it is.
        query = re.sub(r'["“”:-]', " ", question.text)
        answer = made.ask({"query": query, "group": "record", "limit": HITS})
        found = made.messages([hit["ref"] for hit in answer["hits"]])
        category = categories.setdefault(str(question.category), Evidence())
        ours.add(found, question.evidence)
        category.add(found, question.evidence)
        theirs.add(plain.search(question.text, first=HITS), question.evidence)
    plain.close()
    return {
        **ours.figures(),
        "categories": {name: found.figures() for name, found in sorted(categories.items())},
        "latency": percentiles(made.times),
        "plain": theirs.figures(),
    }
