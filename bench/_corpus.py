"""Sessions for the benchmarks of recall: the shared generators' text and varied real transcripts.

``OPTCHAT_SHARED`` names the folder that holds ``data`` and ``tools``; by default it is the one
beside the repository. The generators are run by their path.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from optchat.evaluation.files import Message, Reasoning, Session, Text, Tool, load

NOISE_SEED = 20261130
SYNTHETIC_SEED = 4242
"""The published seeds; held-out ones are others."""

IDENTIFIER = re.compile(r"\b(?=\w*[A-Z_0-9])[A-Za-z_]\w{4,}\b|\b\d{3,}\b")


def shared() -> Path:
    """The folder of shared data and tools.

    Raises:
        SystemExit: it is not there; the benchmark is left out with a message.
    """
    named = os.environ.get("OPTCHAT_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data" / "retrieval" / "eval_v2.json").exists():
        raise SystemExit(f"bench: no shared data at {folder}; left out (OPTCHAT_SHARED names it)")
    return folder


def noisy(out: Path, count: int, seed: int = NOISE_SEED) -> Path:
    """The peer's set among ``count`` distractors, written to ``out``."""
    base = shared() / "data" / "retrieval" / "eval_v2.json"
    return _generated("gen_noise.py", out, base, count, out, seed)


def synthetic(out: Path, count: int, seed: int = SYNTHETIC_SEED) -> Path:
    """The synthetic set over ``count`` sessions of noise, written to ``out``."""
    return _generated("gen_synth.py", out, count, out, seed)


def _generated(tool: str, out: Path, *arguments: object) -> Path:
    script = shared() / "tools" / "retrieval" / tool
    words = [str(word) for word in arguments]
    subprocess.run([sys.executable, script, *words], check=True, stdout=subprocess.DEVNULL)
    return out


def copies(count: int) -> Iterator[Session]:
    """``count`` sessions from the real transcripts; the first twelve are the originals."""
    originals = load(shared() / "data" / "transcripts" / "agent_sessions.json").sessions
    for number in range(count):
        copy, place = divmod(number, len(originals))
        yield varied(originals[place], copy)


def varied(session: Session, copy: int) -> Session:
    """A copy with identifiers and numbers of its own, so that no payload is one of another copy."""
    if copy == 0:
        return session
    messages = [
        Message(
            id=f"c{copy}-{message.id}",
            role=message.role,
            created=message.created + copy,
            parts=[_part(part, copy) for part in message.parts],
        )
        for message in session.messages
    ]
    return Session(
        id=f"c{copy}-{session.id}",
        title=_text(session.title, copy),
        directory=f"{session.directory}-{copy}",
        created=session.created + copy,
        updated=session.updated + copy,
        messages=messages,
    )


def _part(part: Text | Reasoning | Tool, copy: int) -> Text | Reasoning | Tool:
    match part:
        case Tool():
            return Tool(
                id=f"c{copy}-{part.id}",
                tool=part.tool,
                input=_input(part.input, copy),
                output=None if part.output is None else _text(part.output, copy),
                error=None if part.error is None else _text(part.error, copy),
                title=part.title,
                status=part.status,
            )
        case _:
            return type(part)(id=f"c{copy}-{part.id}", text=_text(part.text, copy))


def _input(given: object, copy: int) -> object:
    written = msgspec.json.encode(given).decode()
    changed = IDENTIFIER.sub(lambda found: _other(found[0], copy), written)
    made = msgspec.json.decode(changed)
    return {**made, "copy": copy} if changed == written and isinstance(made, dict) else made


def _text(text: str, copy: int) -> str:
    changed = IDENTIFIER.sub(lambda found: _other(found[0], copy), text)
    return changed if changed != text or not text else f"{text} ({copy})"


def _other(word: str, copy: int) -> str:
    """Another word of the same length and kind: its last three letters or digits are replaced."""
    number = int.from_bytes(hashlib.blake2b(f"{copy} {word}".encode(), digest_size=4).digest())
    if word.isdigit():
        return f"{word[:-3]}{number % 1000:03d}" if word[0] != "0" else word
    tail = "".join(chr(97 + number // 26**place % 26) for place in range(3))
    return word[:-3] + tail
