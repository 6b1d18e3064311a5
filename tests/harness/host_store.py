"""A store of OpenCode's with made conversations."""

from __future__ import annotations

import random
from pathlib import Path

import apsw

from optchat.evaluation import hoststore
from optchat.evaluation.files import Message, Session, Text, Tool


def sessions(count: int, seed: int = 1) -> list[Session]:
    """Conversations of several projects with calls, failures and an answer that is missing."""
    dice = random.Random(seed)
    words = [f"w{n}" for n in range(400)]

    def said(length: int) -> str:
        return " ".join(dice.choices(words, k=length))

    found: list[Session] = []
    for number in range(count):
        at = 1_700_000_000_000 + number * 3_600_000
        messages: list[Message] = []
        for turn in range(dice.randint(1, 4)):
            name = f"{number:04}{turn:02}"
            asked = Text(id=f"prt_{name}a", text=f"question {name} {said(20)}")
            messages.append(
                Message(id=f"msg_{name}a", role="user", created=at + turn * 1000, parts=[asked])
            )
            if dice.random() < 0.1:
                continue
            call = Tool(id=f"prt_{name}b", tool="bash", input={"n": turn}, output=said(300))
            answer = Text(id=f"prt_{name}c", text=f"answer {name} {said(60)}")
            messages.append(
                Message(
                    id=f"msg_{name}b",
                    role="assistant",
                    created=at + turn * 1000 + 500,
                    parts=[call, answer],
                )
            )
        found.append(
            Session(
                id=f"ses_{number:04}",
                title=f"session {number}",
                directory=f"/code/p{number % 3}",
                created=at,
                updated=at + 10_000,
                messages=messages,
            )
        )
    return found


def make(path: Path, count: int) -> Path:
    """``sessions`` in a store at ``path``."""
    hoststore.write(path, sessions(count))
    return path


def change(store: Path, *statements: str) -> None:
    """As a host would while nothing of ours runs."""
    db = apsw.Connection(str(store))
    db.execute("; ".join(["pragma foreign_keys = on", *statements]))
    db.close()
