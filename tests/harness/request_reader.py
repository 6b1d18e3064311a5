"""Reads an outgoing request as a stranger would, and checks that nothing is missing (I2, I11).

It shares no code with the assembler and imports nothing of optchat: what it knows is the frozen
format. Three steps::

    body = as_sent(session, response)         # a scripted session with what assembly answered
    body = captured["messages"]               # or: what a provider received, {role, content} each

    read = read_request(body)                 # -> MemoryRead; FormatError if a block is not strict
    check_coverage(read, turns=turns)         # -> CoverageError if a record or publication is lost

``turns`` are the conversation's turns in order, the live one last. ``turns_of(messages)`` derives
them from a scripted session's messages by the rules of §5; for a captured request the caller says
them: ``NativeTurn(start=0, end=4, texts=("the request", "the answer"))``, where ``texts`` are what
the request must hold if the turn is native. ``check_sent(session, response)`` is all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(
    r"(?P<ref>pub:(?P<pub>[0-9]+)|s(?P<session>[0-9]+):(?P<gen>[0-9]+):(?P<seq>[0-9]+))"
    r"(?:\+(?P<count>[0-9]+))?(?: (?P<label>[^|<>\n]+))? \| (?P<text>[^<>\n]*)"
)
_BASE = re.compile(
    r"<optchat_memory>\n(?P<instruction>(?:[^<\n][^\n]*\n)+)"
    r'<shared_memory publications="(?P<publications>[0-9]+)">\n(?P<shared>(?:[^<\n][^\n]*\n)*)'
    r"</shared_memory>\n"
    r'(?:<own_history session="s(?P<session>[0-9]+):(?P<gen>[0-9]+)" '
    r'records="(?P<records>[0-9]+)">\n'
    r"(?P<own>(?:[^<\n][^\n]*\n)*)</own_history>\n)?"
    r"(?:<notice>(?P<notice>[^<>\n]+)</notice>\n)?</optchat_memory>\n"
)
_NEWS = re.compile(
    r"<optchat_news>\n(?P<lines>(?:[^<\n][^\n]*\n)*)"
    r"(?:<recalled>\n(?:[^<|\n]*\n){2}(?P<recalled>(?:[^<\n][^\n]*\n)+)</recalled>\n)?"
    r'<now snapshot="pub&lt;(?P<end>[0-9]+)(?P<at>[^"<>\n]*)" '
    r'own="s(?P<session>[0-9]+):(?P<gen>[0-9]+) records&lt;(?P<records>[0-9]+) '
    r'view&lt;(?P<view>[0-9]+)" time="(?P<time>[0-9T:Z-]+)" coverage="(?P<coverage>[^"<>\n]*)"/>\n'
    r"</optchat_news>\n\n"
)
_CHECKPOINT = re.compile(
    r'\n\n<optchat_checkpoint session="s(?P<session>[0-9]+):(?P<gen>[0-9]+)" '
    r'records="(?P<start>[0-9]+)\.\.(?P<end>[0-9]+)">\n'
    r"What you did so far in this turn(?:[^<|\n]*\n)+?(?P<lines>(?:s[0-9]+:[^<\n]+\n)+)"
    r"</optchat_checkpoint>\n?\Z"
)
_CHECKPOINT_MARK = "\n\n<optchat_checkpoint "
_BASE_MARK = "<optchat_memory>\n"
_NEWS_MARK = "<optchat_news>\n"


class FormatError(AssertionError):
    """A block is not what the frozen format says."""


class CoverageError(AssertionError):
    """A record or a publication is nowhere, or in two places."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of memory. ``session`` is None for a publication's."""

    session: int | None
    generation: int
    start: int
    count: int
    label: str
    text: str

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class NewsRead:
    """One news block: its lines, and what its last element says."""

    message: int  # index into MemoryRead.native
    text: str
    lines: tuple[Line, ...]
    snapshot: int
    session: int
    generation: int
    own_records: int
    own_view: int
    coverage: str
    recalled: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointRead:
    """One checkpoint: it tells records ``[start, end)``, behind native message ``message``."""

    message: int
    session: tuple[int, int]
    start: int
    end: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """A request taken apart. ``native`` are (role, text) without anything of ours."""

    base: str | None
    publications: int
    shared: tuple[Line, ...]
    session: tuple[int, int] | None
    boundary: int
    own: tuple[Line, ...]
    notice: str | None
    news: tuple[NewsRead, ...]
    native: tuple[tuple[str, str], ...]
    checkpoints: tuple[CheckpointRead, ...] = ()

    @property
    def snapshot(self) -> int:
        """Where the publications shown end."""
        return self.news[-1].snapshot if self.news else self.publications


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeTurn:
    """Records ``[start, end)`` of a conversation, and the texts that stand for them natively.

    ``records`` are the numbers of the records that the texts are of; left out, one after another.
    """

    start: int
    end: int
    texts: tuple[str, ...]
    key: str = ""
    records: tuple[int, ...] = ()

    @property
    def numbered(self) -> list[tuple[int, str]]:
        return list(zip(self.records or range(self.start, self.end), self.texts, strict=False))


def read_request(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> MemoryRead:
    """Take a request apart: a body with ``messages``, or the list of {role, content}.

    The base stands as a system message of its own (or at a line's start in one), or at the head of
    the first other message; a news block at the head of a user's message, a checkpoint at its end.

    Raises:
        FormatError: a block is there twice, is not closed, or holds a line that is none.
    """
    messages = body["messages"] if isinstance(body, Mapping) else body
    base: str | None = None
    news: list[NewsRead] = []
    native: list[tuple[str, str]] = []
    told: list[CheckpointRead] = []
    for message in messages:
        role, text = str(message["role"]), content_of(message)
        first_other = role != "system" and all(r == "system" for r, _ in native)
        at = -1
        if role == "system":
            at = 0 if text.startswith(_BASE_MARK) else text.find("\n" + _BASE_MARK) + 1 or -1
        elif first_other and text.startswith(_BASE_MARK):
            at = 0
        if at >= 0:
            if base is not None:
                raise FormatError("there are two bases")
            found = _BASE.match(text, at)
            if found is None and text.startswith(_BASE_MARK):
                found = _BASE.match(text + "\n", at)  # some hosts strip what they send
            if found is None:
                raise FormatError(f"the base does not parse:\n{text[at : at + 4000]}")
            base = found[0]
            text = text[:at] + text[found.end() :]
            if role == "system" and not text.strip():
                continue
        if role == "user" and text.startswith(_NEWS_MARK):
            found = _NEWS.match(text)
            if found is None:
                raise FormatError(f"a news block does not parse:\n{text[:4000]}")
            news.append(_news(found, len(native)))
            text = text[found.end() :]
            if text.startswith(_NEWS_MARK):
                raise FormatError("a message has two news blocks")
        text = _without_checkpoints(text, len(native), told) if role in ("user", "other") else text
        native.append((role, text))
    parsed = _BASE.fullmatch(base) if base is not None else None
    if parsed is None:
        return MemoryRead(None, 0, (), None, 0, (), None, tuple(news), tuple(native), tuple(told))
    _once(parsed[0], ("optchat_memory", "shared_memory"))
    return MemoryRead(
        base=base,
        publications=int(parsed["publications"]),
        shared=_lines(parsed["shared"]),
        session=(int(parsed["session"]), int(parsed["gen"])) if parsed["session"] else None,
        boundary=int(parsed["records"] or 0),
        own=_lines(parsed["own"] or ""),
        notice=parsed["notice"],
        news=tuple(news),
        native=tuple(native),
        checkpoints=tuple(told),
    )


def check_coverage(
    read: MemoryRead,
    *,
    turns: Sequence[NativeTurn],
    snapshot: int | None = None,
    partial: bool = False,
) -> None:
    """Everything up to the snapshot and every earlier record is there exactly once (I2).

    ``turns`` in order, the live one last. ``partial`` allows gaps that the
    request itself discloses.

    Raises:
        CoverageError: naming what is missing or doubled.
    """
    if read.base is None or not read.news:
        raise CoverageError("the request has no base or no news")
    last, live = read.news[-1], turns[-1]
    gaps = partial and read.notice is not None and last.coverage != "complete"
    if not gaps and (read.notice is not None or last.coverage != "complete"):
        raise CoverageError(f"a complete memory says it is partial: {last.coverage}")
    at = _continuous(read.shared, read.shared[0].start if gaps and read.shared else 0, "shared")
    if at != read.publications and not gaps:
        raise CoverageError(f"the shared view ends at {at}, not at {read.publications}")
    at = read.publications
    for block in read.news:
        at = _continuous(block.lines, at, "news")
        if at != block.snapshot:
            raise CoverageError(f"a news block ends at {at} and says {block.snapshot}")
    if snapshot is not None and at != snapshot:
        raise CoverageError(f"publications are shown up to {at}, the snapshot is {snapshot}")
    if any(
        line.session is not None
        for line in (*read.shared, *(x for b in read.news for x in b.lines))
    ):
        raise CoverageError("a session's line is among the publications")

    own = {(line.session, line.generation) for line in read.own}
    if read.session is not None and own - {read.session}:
        raise CoverageError(f"lines of {own} are in the history of {read.session}")
    at = _continuous(read.own, read.own[0].start if gaps and read.own else 0, "own")
    if at != read.boundary and not gaps:
        raise CoverageError(f"the own view ends at {at}, not at {read.boundary}")
    if (last.own_records, last.own_view) != (live.start, read.boundary):
        raise CoverageError(
            f"the last news say records<{last.own_records} view<{last.own_view}, "
            f"the turn starts at {live.start}, the view ends at {read.boundary}"
        )
    if read.boundary > live.start:
        raise CoverageError("the live turn is in the own view")
    told = _told(read, turns)
    position = 0
    for turn in turns:
        if turn.end <= read.boundary or (gaps and turn is not live):
            continue
        if turn.start < read.boundary:
            raise CoverageError(
                f"the boundary {read.boundary} cuts the turn {turn.start}..{turn.end}"
            )
        if turn.start in told:
            raise CoverageError(f"the request of {turn.start}..{turn.end} is not as it was said")
        for record, text in turn.numbered:
            if record not in told:
                position = _find(read.native, position, text, turn)


def check_sent(session: Any, response: Any, *, partial: bool = False) -> MemoryRead:
    """Read and check what a scripted session sends with an assembly's answer."""
    read = read_request(as_sent(session, response))
    check_coverage(read, turns=turns_of(session.messages), partial=partial)
    return read


def as_sent(session: Any, response: Any) -> list[dict[str, str]]:
    """The request of a scripted session, with a ready ``AssembleResponse`` put into it (§7)."""
    if response.state != "ready":
        raise FormatError(f"the answer is {response.state}: {response.error or response.notice}")
    ids = [m.id for m in session.messages]
    kept = session.messages[ids.index(response.keep_from) if response.keep_from else 0 :]
    news = {n.message_id: n.text for n in response.news}
    if len(news) != len(response.news) or set(news) - {m.id for m in kept}:
        raise FormatError("news for a message twice, or for one that is not sent")
    placed = {m.id: at for at, m in enumerate(session.messages)}
    told: dict[str, str] = {}
    gone: set[str] = set()
    for checkpoint in response.checkpoints:
        after, until = placed[checkpoint.after], placed[checkpoint.until]
        if after >= until or {checkpoint.after, checkpoint.until} - {m.id for m in kept}:
            raise FormatError("a checkpoint between messages that are not in this order")
        told[checkpoint.after] = told.get(checkpoint.after, "") + checkpoint.text
        gone |= {m.id for m in session.messages[after + 1 : until]}
    if gone & (set(told) | set(news)):
        raise FormatError("a message is left out that carries something")
    kept = [m for m in kept if m.id not in gone]
    sent = [{"role": "system", "content": session.overhead_text}]
    if response.placement == "system":
        sent.append({"role": "system", "content": response.base})
    for message in kept:
        head = news.get(message.id, "")
        if response.placement == "message" and message is kept[0]:
            head = response.base + head
        texts = [*texts_of(message)] or [""]
        tail = told.get(message.id, "")
        sent.append({"role": message.role, "content": head + texts[0] + tail})
        sent += [{"role": "tool", "content": text} for text in texts[1:]]
    return sent


def texts_of(message: Any) -> tuple[str, ...]:
    """What a model reads of a scripted message, a text for each record that it gives."""
    if message.role == "other":
        return ()
    found: list[str] = []
    for part in message.parts or []:
        if hasattr(part, "input_json"):
            found += [part.input_json, part.output if part.output is not None else part.error or ""]
        elif hasattr(part, "mime"):
            found.append(part.filename)
        elif part.text:
            found.append(part.text)
    return tuple(found)


def turns_of(messages: Iterable[Any]) -> list[NativeTurn]:
    """The turns of a scripted session by the rules of §5, with the records that they give.

    A user's message opens a turn when it came to an idle session or none is open; what is said
    meanwhile belongs to the open one; a terminal message ends it.
    """
    turns: list[NativeTurn] = []
    running = False
    seq = 0
    for message in messages:
        if message.role == "other":
            continue
        texts = texts_of(message)
        if not running or (message.role == "user" and message.opens):
            turns.append(NativeTurn(start=seq, end=seq, texts=(), key=message.id))
            running = True
        open_turn = turns[-1]
        seq += len(texts)
        turns[-1] = NativeTurn(
            start=open_turn.start, end=seq, texts=(*open_turn.texts, *texts), key=open_turn.key
        )
        running = message.terminal is None
    return turns


def content_of(message: Mapping[str, Any]) -> str:
    """A message's text, be its content a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def _without_checkpoints(text: str, message: int, told: list[CheckpointRead]) -> str:
    """A message's text without the checkpoints at its end, which are added to ``told``."""
    found: list[CheckpointRead] = []
    while (at := text.rfind(_CHECKPOINT_MARK)) >= 0:
        match = _CHECKPOINT.match(text, at)
        if match is None:
            raise FormatError(f"a checkpoint does not parse:\n{text[at : at + 4000]}")
        _once(match[0], ("optchat_checkpoint",))
        found.append(
            CheckpointRead(
                message=message,
                session=(int(match["session"]), int(match["gen"])),
                start=int(match["start"]),
                end=int(match["end"]),
                lines=_lines(match["lines"]),
            )
        )
        text = text[:at]
    told += reversed(found)
    return text


def _told(read: MemoryRead, turns: Sequence[NativeTurn]) -> set[int]:
    """The records that checkpoints tell: each whole, in order, none twice, none in the base."""
    told: set[int] = set()
    at = read.boundary
    for checkpoint in read.checkpoints:
        if checkpoint.start < at:
            raise CoverageError(f"records from {checkpoint.start} on are told, {at} are before")
        at = _continuous(checkpoint.lines, checkpoint.start, "checkpoint's")
        if at != checkpoint.end:
            raise CoverageError(f"a checkpoint ends at {at} and says {checkpoint.end}")
        if not any(t.start < checkpoint.start and at <= t.end for t in turns):
            raise CoverageError(f"the checkpoint {checkpoint.start}..{at} is not inside a turn")
        of = {checkpoint.session, *((x.session, x.generation) for x in checkpoint.lines)}
        if of != {(read.news[-1].session, read.news[-1].generation)}:
            raise CoverageError(f"a checkpoint tells of {of}")
        told |= set(range(checkpoint.start, at))
    return told


def _news(found: re.Match[str], message: int) -> NewsRead:
    _once(found[0], ("optchat_news",))
    return NewsRead(
        message=message,
        text=found[0],
        lines=_lines(found["lines"]),
        snapshot=int(found["end"]),
        session=int(found["session"]),
        generation=int(found["gen"]),
        own_records=int(found["records"]),
        own_view=int(found["view"]),
        coverage=found["coverage"],
        recalled=_lines(found["recalled"] or ""),
    )


def _lines(text: str) -> tuple[Line, ...]:
    found: list[Line] = []
    for line in text.split("\n")[:-1]:
        match = _LINE.fullmatch(line)
        if match is None:
            raise FormatError(f"not a line of memory: {line!r}")
        found.append(
            Line(
                session=int(match["session"]) if match["session"] else None,
                generation=int(match["gen"] or 0),
                start=int(match["pub"] or match["seq"]),
                count=int(match["count"] or 1),
                label=match["label"] or "",
                text=match["text"],
            )
        )
    return tuple(found)


def _continuous(lines: Sequence[Line], at: int, name: str) -> int:
    for line in lines:
        if line.start != at:
            raise CoverageError(f"the {name} lines go on at {line.start}, not at {at}")
        if line.count & (line.count - 1) or line.start % line.count:
            raise CoverageError(f"{line.start}+{line.count} is no dyadic range")
        at = line.end
    return at


def _find(native: Sequence[tuple[str, str]], position: int, text: str, turn: NativeTurn) -> int:
    for index in range(position, len(native)):
        if text in native[index][1]:
            return index
    raise CoverageError(
        f"records {turn.start}..{turn.end} are neither in the own view nor native: {text[:80]!r}"
    )


def _once(block: str, tags: Sequence[str]) -> None:
    for tag in tags:
        if len(re.findall(rf"<{tag}[ >]", block)) != 1 or block.count(f"</{tag}>") != 1:
            raise FormatError(f"{tag} is opened or closed more than once")
