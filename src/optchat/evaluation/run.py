"""Running the questions of an evaluation set and making figures of the answers."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optchat.config import Compactor, Config
from optchat.coordinator.service import newest
from optchat.core.questions import STOP_WORDS
from optchat.core.snapshots import Visibility
from optchat.engine.deps import Deps
from optchat.engine.search import family, parse_query, parse_time_or_age
from optchat.engine.search_rank import Ranked, narrow, rank_records
from optchat.engine.visible import Reader
from optchat.errors import BadInput
from optchat.evaluation.ingest import ingest
from optchat.evaluation.sets import HOST, Conversations, locomo, requests, zero_of
from optchat.storage.ports import Store, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.connection import Connection
from optchat.storage.words import searchable, words
from optchat.wire import SyncRequest

HITS = 20


class _Clock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)


class _Ids:
    def new_id(self) -> str:
        return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Filled:
    """A temporary store that holds a set."""

    store: Store
    path: Path
    records: int
    seconds: float

    def reader(self, tx: Tx, asking: str | None = None) -> Reader:
        """A reader of everything; for a host session, one that stands in that session."""
        scope = tx.sessions.scopes()[0]
        visibility: Visibility = newest(tx, scope)
        session = tx.sessions.session_of_host(HOST, asking) if asking is not None else None
        if session is not None:
            visibility = replace(visibility, session_id=session.session_id)
        return Reader(tx, visibility)


@contextmanager
def filled(sessions: Sequence[SyncRequest]) -> Generator[Filled, None, None]:
    """A store of these sessions, gone with the block."""
    with tempfile.TemporaryDirectory(prefix="optchat-eval-") as folder:
        path = Path(folder) / "memory.db"
        store = SqliteStore(path, _Clock())
        try:
            # Nothing waits for neighbours, since no summary model is going to be called.
            config = Config(compactor=Compactor(hold_seconds=0))
            started = time.perf_counter()
            count = ingest(store, Deps(config, _Clock(), _Ids()), sessions)
            yield Filled(store, path, count, time.perf_counter() - started)
        finally:
            store.close()


def retrieval(data: Any) -> dict[str, Any]:
    """Figures of a session file: by session, as its cases ask."""
    now_ms = zero_of(data)
    only_reasoning = reasoning_cases(data)
    by_kind: dict[str, list[tuple[float, bool]]] = {}
    milliseconds: list[float] = []
    broken: list[str] = []
    leaked: list[str] = []
    missed: list[str] = []
    with filled([*requests(data, now_ms)]) as held:
        for case in data["cases"]:
            started = time.perf_counter()
            hits, names = held.store.read(
                lambda tx, case=case: _answer(held.reader(tx, case["ctx_session"]), case, now_ms)
            )
            milliseconds.append((time.perf_counter() - started) * 1000)
            rank = next((n + 1 for n, s in enumerate(names[:10]) if s in case["relevant"]), 0)
            if case["name"] in only_reasoning:
                if rank:
                    leaked.append(case["name"])
                continue
            broken += _broken(case, names, hits)
            if rank != 1:
                missed.append(f"{case['name']}: {rank or 'not found'}")
            kind = case["name"].rsplit(" #", 1)[0]
            by_kind.setdefault(kind, []).append((1 / rank if rank else 0.0, 0 < rank <= 5))
        records, seconds = held.records, held.seconds
    every = [row for rows in by_kind.values() for row in rows]
    return {
        **_means(every),
        "exclusions_broken": len(broken),
        "broken": broken,
        "missed": missed,
        "left_out_reasoning_only": sorted(only_reasoning),
        "reasoning_found": leaked,
        "by_competency": {kind: _means(rows) for kind, rows in by_kind.items()},
        "records": records,
        "import_seconds": round(seconds, 2),
        "latency_ms": _latency(milliseconds),
    }


def _answer(reader: Reader, case: Any, now_ms: int) -> tuple[list[Ranked], list[str]]:
    args = case["args"]
    since, until = args.get("since"), args.get("until")
    parsed = parse_query(
        args["query"],
        session_id=None,
        since_ms=parse_time_or_age(since, "since", now_ms) if since else None,
        until_ms=parse_time_or_age(until, "until", now_ms) if until else None,
    )
    found, _ = rank_records(reader, args["query"], parsed, left_out=family(reader))
    found = narrow(reader, found, directory=args.get("directory"))
    best = {hit.session.host_session: hit for hit in reversed(found)}
    names = list(dict.fromkeys(hit.session.host_session for hit in found))[:10]
    if args.get("group") == "session":
        return [best[name] for name in names], names
    return found, names


_CLASSES = {
    "typed": "human-text",
    "tool-input": "tool-input",
    "skill": "skill-definition",
    "tool-output": "tool-output",
    "file-read": "file-read",
    "web-fetch": "web-fetch",
    "title": "session-title",
    # The file's name for what a model said as well: "authored launchTerminal usage".
    "model": "human-text",
}


def _broken(case: Any, names: list[str], hits: list[Ranked]) -> list[str]:
    expect = case["expect"]
    found = [f"{case['name']}: {s}" for s in expect.get("not_in_results", []) if s in names]
    wanted = expect.get("class_in_top3")
    classes = [_CLASSES.get(hit.evidence, hit.evidence) for hit in hits]
    if wanted and not set(wanted) & set(classes[:3]):
        found.append(f"{case['name']}: none of {wanted} in the first three, but {classes[:3]}")
    for kind, most in expect.get("max_class_in_top5", {}).items():
        if classes[:5].count(kind) > most:
            found.append(f"{case['name']}: more than {most} of {kind} in the first five")
    return found


def reasoning_cases(data: Any) -> set[str]:
    """The cases whose relevant sessions hold a word of the query in reasoning and nowhere else."""
    sessions = {s["id"]: s for s in data["sessions"]}
    found: set[str] = set()
    for case in data["cases"]:
        asked = set(words(searchable(case["args"]["query"]))) - STOP_WORDS
        plain: set[str] = set()
        thought: set[str] = set()
        for name in case["relevant"]:
            session = sessions[name]
            plain.update(words(searchable(session["title"])))
            for message in session["messages"]:
                for part in message["parts"]:
                    if part["type"] == "reasoning":
                        thought.update(words(searchable(part["text"])))
                    else:
                        plain.update(words(searchable(str(part))))
        if asked & thought and not asked & plain:
            found.add(case["name"])
    return found


def conversations(data: Any, chosen: range | None = None) -> dict[str, Any]:
    """Figures of LoCoMo by evidence turns, beside plain FTS5 over the same text."""
    told = locomo(data, chosen)
    ours: list[tuple[list[str], frozenset[str], int]] = []
    milliseconds: list[float] = []
    with filled(told.requests) as held:
        for question in told.questions:
            started = time.perf_counter()
            keys = held.store.read(lambda tx, q=question: _keys(held.reader(tx), q.text))
            milliseconds.append((time.perf_counter() - started) * 1000)
            ours.append((keys, question.evidence, question.category))
        seconds = held.seconds
        plain = _recall(_plain(told, held.path.parent))
    return {
        **_recall([(keys, evidence) for keys, evidence, _ in ours]),
        "by_category": {
            str(n): _recall([(k, e) for k, e, category in ours if category == n])
            for n in sorted({category for _, _, category in ours})
        },
        "plain_fts5": plain,
        "questions": len(told.questions),
        "dropped": told.dropped,
        "turns": len(told.texts),
        "import_seconds": round(seconds, 2),
        "latency_ms": _latency(milliseconds),
    }


def _keys(reader: Reader, question: str) -> list[str]:
    try:
        found, _ = rank_records(reader, question, parse_query(question), left_out=frozenset())
    except BadInput:
        return []
    keys: list[str] = []
    for hit in [h for h in found if h.seq >= 0][:HITS]:
        record = reader.tx.records.record(hit.tree, hit.seq)
        keys.append(record.message_id if record is not None else "")
    return keys


def _plain(told: Conversations, folder: Path) -> list[tuple[list[str], frozenset[str]]]:
    """FTS5 with porter, terms joined by OR, stop words left out, ranked by its bm25."""
    connection = Connection(Path(folder) / "plain.db", readonly=False)
    connection.script("create virtual table t using fts5(text, tokenize='porter unicode61')")
    keys = list(told.texts)
    connection.begin()
    connection.many("insert into t (rowid, text) values (?, ?)", enumerate(told.texts.values()))
    connection.commit()
    found: list[tuple[list[str], frozenset[str]]] = []
    for question in told.questions:
        asked = [w for w in words(searchable(question.text)) if w not in STOP_WORDS]
        match = " OR ".join(f'"{w}"' for w in dict.fromkeys(asked))
        rows: list[Any] = []
        if match:
            rows = connection.all(
                "select rowid from t where t match ? order by rank limit ?", (match, HITS)
            )
        found.append(([keys[row[0]] for row in rows], question.evidence))
    connection.close()
    return found


def _recall(rows: list[tuple[list[str], frozenset[str]]]) -> dict[str, float]:
    count = max(len(rows), 1)

    def reciprocal(keys: list[str], evidence: frozenset[str]) -> float:
        return next((1 / (n + 1) for n, key in enumerate(keys) if key in evidence), 0.0)

    figures = {
        f"any@{k}": round(sum(bool(e & set(keys[:k])) for keys, e in rows) / count, 4)
        for k in (1, 5, 10, 20)
    }
    return {
        **figures,
        "all@10": round(sum(e <= set(keys[:10]) for keys, e in rows) / count, 4),
        "mrr": round(sum(reciprocal(keys, e) for keys, e in rows) / count, 4),
    }


def _means(rows: list[tuple[float, bool]]) -> dict[str, float]:
    count = max(len(rows), 1)
    return {
        "cases": len(rows),
        "mrr": round(sum(r for r, _ in rows) / count, 4),
        "hit@1": round(sum(r == 1 for r, _ in rows) / count, 4),
        "hit@5": round(sum(five for _, five in rows) / count, 4),
    }


def _latency(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds) or [0.0]
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2),
    }
