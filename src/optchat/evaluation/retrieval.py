"""A session file asked through the real search: ranks by session, constraints, competencies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optchat.engine.recall.query import parse_time
from optchat.evaluation.files import NOW_MS, Case, Reasoning, Session, SessionFile, load
from optchat.evaluation.plain import STOP_WORDS, Plain, documents, texts
from optchat.evaluation.room import Room, room
from optchat.evaluation.scores import Ranks, drawn, percentiles, rank_of

FIRST = 10
"""Sessions of an answer that count."""

HITS = 50
"""Hits of an answer that are looked at; several may be of one session."""

MENDED = " taken for "
"""How a hit says that a word was read as another."""

CLASSES = {
    "human": "human-text",
    "injected": "human-text",
    "delegated": "human-text",
    "model": "human-text",
    "tool_input": "tool-input",
    "tool_output": "tool-output",
    "file_read": "file-read",
    "web_fetch": "web-fetch",
    "skill": "skill-definition",
    "title": "session-title",
    "unknown": "unknown",
}
"""Our evidence in the words of the form, where "human-text" is any text part, the model's too."""


@dataclass(slots=True)
class Side:
    """What became of the cases on one side of the comparison."""

    all: Ranks = field(default_factory=Ranks)
    by_competency: dict[str, Ranks] = field(default_factory=dict[str, Ranks])

    def add(self, case: Case, found: list[str]) -> int:
        rank = rank_of(found, frozenset(case.relevant))
        broken = not set(case.expect.not_in_results).isdisjoint(found)
        for ranks in (self.all, self.by_competency.setdefault(case.competency, Ranks())):
            ranks.add(rank, broken=broken)
        return rank

    def figures(self) -> dict[str, Any]:
        by = {name: ranks.figures() for name, ranks in self.by_competency.items()}
        return {**self.all.figures(), "competencies": by}


@dataclass(slots=True)
class Thought:
    """What became of the cases that only reasoning text answers.

    ``found`` must be empty: places that hold a word that is only in reasoning, or the very session.
    ``nearly`` are answered with a word that is a slip away, and say so.
    """

    cases: int = 0
    found: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    nearly: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, case: Case, hits: list[dict[str, Any]], found: list[str]) -> None:
        self.cases += 1
        if not found:
            return
        mended = all(any(MENDED in why for why in hit["why"]) for hit in hits)
        leaks = not mended or not set(found).isdisjoint(case.relevant)
        (self.found if leaks else self.nearly)[case.name] = found[:5]


def evaluate(path: Path, *, sample: int | None = None, seed: int = 0) -> dict[str, Any]:
    """The figures of a session file.

    ``sample`` cases are drawn by ``seed``.

    Raises:
        BadInput: the file cannot be used.
    """
    loaded = load(path)
    cases = drawn(loaded.cases, sample, seed)
    with room() as made:
        made.take_in(loaded.sessions)
        made.warm()
        figures = _figures(loaded, cases, made)
    return {"file": path.name, "seed": seed, **figures}


def _figures(loaded: SessionFile, cases: list[Case], made: Room) -> dict[str, Any]:
    sessions = {session.id: session for session in loaded.sessions}
    names = made.host_sessions()
    plain = Plain(documents(loaded.sessions))
    ours, theirs = Side(), Side()
    broken: list[str] = []
    missed: list[dict[str, Any]] = []
    thought = Thought()
    checked = 0
    for case in cases:
        hits = _ask(made, case, sessions)
        found = _sessions(hits, names)
        if needs_reasoning(case, sessions):
            thought.add(case, hits, found)
            continue
        rank = ours.add(case, found)
        theirs.add(case, _plainly(plain, case, sessions))
        checked += bool(case.expect.class_in_top3) + len(case.expect.max_class_in_top5)
        broken += [f"{case.name}: {fault}" for fault in _class_faults(case, hits)]
        if rank != 1:
            missed.append({"case": case.name, "rank": rank, "found": found[:5]})
    extra: list[dict[str, Any]] = []
    for case in loaded.extra:
        found = _sessions(_ask(made, case, sessions), names)
        extra.append({"case": case.name, "rank": rank_of(found, frozenset(case.relevant))})
    plain.close()
    return {
        "sessions": len(loaded.sessions),
        "messages": sum(len(session.messages) for session in loaded.sessions),
        **ours.figures(),
        "constraints": {"checked": checked, "broken": broken},
        "reasoning": {
            "cases": thought.cases,
            "found": thought.found,
            "nearly": thought.nearly,
        },
        "extra": extra,
        "missed": missed,
        "latency": percentiles(made.times),
        "plain": theirs.figures(),
    }


def needs_reasoning(case: Case, sessions: dict[str, Session]) -> bool:
    """Whether the answer's sessions hold the query's words in reasoning and nowhere else."""
    words = {w for w in re.findall(r"\w+", case.args.query.lower()) if w not in STOP_WORDS}
    thought: set[str] = set()
    said: set[str] = set()
    for name in case.relevant:
        said.update(_words(sessions[name].title))
        for message in sessions[name].messages:
            for part in message.parts:
                if isinstance(part, Reasoning):
                    thought.update(_words(part.text))
                for text in texts(part):
                    said.update(_words(text))
    return bool(words & thought) and not words & said


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _ask(made: Room, case: Case, sessions: dict[str, Session]) -> list[dict[str, Any]]:
    asked = case.args
    asking = sessions.get(case.ctx_session or "")
    query = asked.query
    if asked.match == "literal" and '"' not in query:
        query = f'"{query}"'
    args: dict[str, Any] = {
        "query": query,
        "group": "session" if asked.group == "session" else "record",
        "limit": HITS,
    }
    given = {"since": asked.since, "until": asked.until, "directory": asked.directory}
    args |= {name: value for name, value in given.items() if value is not None}
    if asking is not None and asked.scope == "project":
        args.setdefault("directory", asking.directory)
    if asking is not None and asked.scope == "session":
        args["session"] = asking.id
    answer = made.ask(args, session=case.ctx_session)
    hits: list[dict[str, Any]] = answer["hits"]
    return hits


def _sessions(hits: list[dict[str, Any]], names: dict[str, str]) -> list[str]:
    """The host's sessions of some hits, each once, as many as count."""
    return list(dict.fromkeys(names[hit["session"]] for hit in hits if hit["session"]))[:FIRST]


def _class_faults(case: Case, hits: list[dict[str, Any]]) -> list[str]:
    """Which of the case's constraints on evidence its hits break."""
    classes: list[str] = [CLASSES[hit["evidence"] or "unknown"] for hit in hits[:5]]
    faults: list[str] = []
    wanted = case.expect.class_in_top3
    if wanted and set(wanted).isdisjoint(classes[:3]):
        faults.append(f"none of {', '.join(wanted)} among the first 3 ({', '.join(classes[:3])})")
    for name, most in case.expect.max_class_in_top5.items():
        if classes.count(name) > most:
            faults.append(f"{classes.count(name)} of {name} among the first 5, not {most}")
    return faults


def _plainly(plain: Plain, case: Case, sessions: dict[str, Session]) -> list[str]:
    """What plain FTS5 finds, under the same filters and without the asking session's family."""
    asked = case.args
    asking = case.ctx_session
    family = {s.id for s in sessions.values() if asking and asking in (s.id, s.parent_id)}
    return plain.search(
        asked.query,
        first=FIRST,
        without=frozenset(family),
        directory=asked.directory,
        since_ms=_moment(asked.since),
        until_ms=_moment(asked.until),
    )


def _moment(text: str | None) -> int | None:
    return parse_time(text, "a case's time", NOW_MS) if text else None
