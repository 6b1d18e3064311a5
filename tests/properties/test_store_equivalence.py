"""Any schedule of verbs gives the same answers on SQLite as on the model (I3, I4, I5, I7).

Names come from small pools, so that collisions, replays and stale numbers are common.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from optchat.core.publications import CoverPart, Publication
from optchat.core.records import (
    Generation,
    HostMessage,
    Lineage,
    Outcome,
    Record,
    RecordKind,
    Segment,
    Session,
    Turn,
)
from optchat.core.scopes import Scope
from optchat.core.snapshots import Visibility
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree, cover
from optchat.core.views import Entry, View
from optchat.errors import OptChatError
from optchat.refs import BlobHash, Csn, ProjectId, ScopeId, SessionId, Span, TurnId
from optchat.storage.memory import MemoryStore
from optchat.storage.ports import Chunk, Job, JobKind, JobState, ModelCall, Tx
from optchat.storage.sqlite import SqliteStore
from optchat.storage.words import indexed
from tests.harness.found import columns, records, summaries
from tests.harness.payloads import put_many

SCOPES = [ScopeId("project:p"), ScopeId("profile:q")]
SESSIONS = [SessionId(name) for name in "ab"]
TREES = [SessionTree(session_id, number) for session_id in SESSIONS for number in (0, 1)]
ALL_TREES = [*TREES, ScopeTree(SCOPES[0])]
WORDS = ["red", "green", "Été", "foo-bar", "x"]
CSN_MAX = 20

scopes = st.sampled_from(SCOPES)
sessions = st.sampled_from(SESSIONS)
trees = st.sampled_from(TREES)
small = st.integers(0, 6)
csns = st.integers(0, CSN_MAX).map(Csn)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
spans = st.builds(lambda level, index: Span(index << level, 1 << level), st.integers(0, 2), small)
turn_ids = st.sampled_from([f"t{n}" for n in range(9)]).map(TurnId)
job_ids = st.sampled_from([f"j{n}" for n in range(6)])


@dataclass(frozen=True)
class Seen:
    """A visibility, relative to what is there when it is used."""

    scope_id: ScopeId
    commits_ago: int
    publications_ago: int
    own: Lineage | None

    def of(self, tx: Tx) -> Visibility:
        scope = tx.sessions.scope(self.scope_id)
        published = scope.publications if scope is not None else 0
        return Visibility(
            scope_id=self.scope_id,
            csn=Csn(max(tx.meta.csn() - self.commits_ago, 0)),
            publication_end=max(published - self.publications_ago, 0),
            policy_revision=1,
            retention_epoch=1,
            own=self.own,
        )


segments = st.builds(
    lambda tree, start, count: Segment(tree, start, start + count), trees, small, small
)
visibilities = st.builds(
    Seen,
    scope_id=scopes,
    commits_ago=st.sampled_from([0, 0, 0, 1, 2, 4]),
    publications_ago=st.sampled_from([0, 0, 0, 1, 2]),
    own=st.none() | st.lists(segments, max_size=2).map(lambda found: Lineage(tuple(found))),
)


def outcome(call: Callable[[], Any]) -> object:
    """What a call gave, or the kind of error that it raised."""
    try:
        return call()
    except OptChatError as error:
        return type(error)


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shared_memory = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None)
        self.memory = MemoryStore()
        self.sqlite = SqliteStore(Path(self.folder) / "store.db")

    def teardown(self) -> None:
        try:
            self.both_read(everything)
            self.sqlite.close()
            self.sqlite = SqliteStore(Path(self.folder) / "store.db")
            self.both_read(everything)
        finally:
            self.sqlite.close()
            shutil.rmtree(self.folder)

    def both(self, work: Callable[[Tx], object]) -> object:
        expected = outcome(lambda: self.memory.write(work))
        assert outcome(lambda: self.sqlite.write(work)) == expected
        return expected

    def both_read(self, work: Callable[[Tx], object]) -> None:
        expected = outcome(lambda: self.memory.read(work))
        assert outcome(lambda: self.sqlite.read(work)) == expected

    # Sessions, records and turns

    @initialize(
        said=st.lists(texts, min_size=6, max_size=6), covers=st.lists(spans, min_size=3, max_size=5)
    )
    def begin_with_something(self, said: list[str], covers: list[Span]) -> None:
        """Two sessions with records, publications and jobs: without them most verbs only fail."""

        def work(tx: Tx) -> None:
            for number, session_id in enumerate(SESSIONS):
                tx.sessions.put_scope(Scope(scope_id=SCOPES[number], name="n"))
                tx.sessions.put_session(a_session(session_id, SCOPES[0], number, session_id))
                tx.sessions.put_generation(Generation(session_id=session_id, number=0))
                tree = SessionTree(session_id, 0)
                for seq, text in enumerate(said):
                    tx.records.append(
                        [a_record(tx, tree, seq, text, seq)], [indexed(text).encode()]
                    )
            for seq, span in enumerate(covers):
                tree = SessionTree(SESSIONS[seq % 2], 0)
                born = tx.meta.next_csn()
                tx.publications.append(
                    replace(
                        a_publication(tree, SCOPES[0], seq, born),
                        turn_id=TurnId(f"first{seq}"),
                        start_seq=span.start,
                        end_seq_exclusive=span.end_exclusive,
                        cover=(CoverPart(tree, span),),
                    )
                )
                if tx.trees.node(tree, span) is None:
                    tx.trees.put_node(a_node(tree, span, said[seq], born))
                tx.jobs.put(a_job(f"j{seq}", seq), [(TREES[1], span)][: seq % 2])

        self.both(work)

    @rule(scope_id=scopes, count=small)
    def put_scope(self, scope_id: ScopeId, count: int) -> None:
        scope = Scope(scope_id=scope_id, name=f"{count}", sessions=count)
        self.both(lambda tx: tx.sessions.put_scope(scope))

    @rule(session_id=sessions, scope_id=scopes, number=small, host=st.sampled_from("abh"))
    def put_session(self, session_id: SessionId, scope_id: ScopeId, number: int, host: str) -> None:
        session = a_session(session_id, scope_id, number, host)
        self.both(lambda tx: tx.sessions.put_session(session))

    @rule(session_id=sessions, scope_id=scopes)
    def leave_scope(self, session_id: SessionId, scope_id: ScopeId) -> None:
        session = self.memory.read(lambda tx: tx.sessions.session(session_id))
        if session is None or session.scope_id != scope_id:
            self.both(lambda tx: tx.sessions.leave_scope(scope_id, session_id))

    @rule(tree=trees, base=st.none() | trees, inherited=small)
    def put_generation(self, tree: SessionTree, base: SessionTree | None, inherited: int) -> None:
        def work(tx: Tx) -> None:
            if tx.sessions.generation(tree.session_id, tree.generation) is None:
                count = inherited if base is not None else 0
                tx.sessions.put_generation(
                    Generation(
                        session_id=tree.session_id,
                        number=tree.generation,
                        base=base,
                        inherited=count,
                        length=count,
                    )
                )

        self.both(work)

    @rule(tree=trees, said=st.lists(texts, min_size=2, max_size=6), at=small)
    def seal(self, tree: SessionTree, said: list[str], at: int) -> None:
        def work(tx: Tx) -> None:
            generation = tx.sessions.generation(tree.session_id, tree.generation)
            start = generation.length if generation is not None else 0
            put_many(tx, [text.encode() for text in said])
            made = [a_record(tx, tree, start + n, text, at) for n, text in enumerate(said)]
            tx.records.append(made, [indexed(text).encode() for text in said])

        self.both(work)

    @rule(tree=trees, seqs=st.lists(small, min_size=1, max_size=3), text=texts, kept=st.booleans())
    def seal_anyhow(self, tree: SessionTree, seqs: list[int], text: str, kept: bool) -> None:
        def work(tx: Tx) -> None:
            made = [a_record(tx, tree, seq, text, 0) for seq in seqs]
            if not kept:
                made[-1] = msgspec.structs.replace(made[-1], payload=BlobHash("f" * 64))
            tx.records.append(made, [indexed(text).encode()] * len(made))

        self.both(work)

    @rule(session_id=sessions, position=small, message=small, cut=st.booleans())
    def membership(self, session_id: SessionId, position: int, message: int, cut: bool) -> None:
        made = HostMessage(
            session_id=session_id,
            position=position,
            message_id=f"m{message}",
            digest="d",
            turn_id=TurnId("t1"),
            start_seq=0,
            end_seq_exclusive=0,
        )
        if cut:
            self.both(lambda tx: tx.membership.truncate(session_id, position))
        else:
            self.both(lambda tx: tx.membership.put(made))

    @rule(turn_id=turn_ids, session_id=sessions, key=small, start=small)
    def put_turn(self, turn_id: TurnId, session_id: SessionId, key: int, start: int) -> None:
        turn = Turn(
            turn_id=turn_id,
            session_id=session_id,
            generation=0,
            key=f"m{key}",
            start_seq=start,
            opened_ms=0,
        )
        self.both(lambda tx: tx.turns.put(turn))

    # Trees

    @rule(tree=st.sampled_from(ALL_TREES), span=spans, revision=st.integers(1, 3), text=texts)
    def put_node(self, tree: Tree, span: Span, revision: int, text: str) -> None:
        def work(tx: Tx) -> tuple[bool, int]:
            plain = a_node(tree, span, text, tx.meta.next_csn())
            kind = NodeKind.VERBATIM if text == "x" else NodeKind.SUMMARY
            node = msgspec.structs.replace(plain, revision=revision, kind=kind)
            return tx.trees.put_node(node), tx.jobs.resolve(tree, span)

        self.both(work)

    @rule(tree=st.sampled_from(ALL_TREES), span=spans)
    def retire_node(self, tree: Tree, span: Span) -> None:
        self.both(lambda tx: tx.trees.retire_node(tree, span, tx.meta.next_csn()))

    @rule(
        tree=st.sampled_from(ALL_TREES),
        ahead=st.sampled_from([0, 1, 1, 1, 2]),
        shrinking=st.booleans(),
    )
    def put_view(self, tree: Tree, ahead: int, shrinking: bool) -> None:
        def work(tx: Tx) -> None:
            revision = tx.trees.view(tree).revision + ahead
            entries = (Entry(Span(0, 1), 1, revision, 3),)
            view = View(revision=revision, entries=entries, shrinking=shrinking)
            tx.trees.put_view(tree, view, tx.meta.next_csn())

        self.both(work)

    @rule(tree=st.sampled_from(ALL_TREES), pinned=st.lists(csns, max_size=2))
    def prune_views(self, tree: Tree, pinned: list[Csn]) -> None:
        self.both(lambda tx: tx.trees.prune_views(tree, pinned))

    # Publications

    @rule(
        tree=trees,
        scope_id=scopes,
        turn_id=turn_ids,
        start=st.integers(0, 3),
        count=small,
        ahead=st.sampled_from([0, 0, 0, 0, 0, 1]),
        times=st.tuples(small, small),
    )
    def publish(
        self,
        tree: SessionTree,
        scope_id: ScopeId,
        turn_id: TurnId,
        start: int,
        count: int,
        ahead: int,
        times: tuple[int, int],
    ) -> None:
        def work(tx: Tx) -> bool:
            scope = tx.sessions.scope(scope_id)
            assert scope is not None
            plain = a_publication(tree, scope_id, scope.publications + ahead, tx.meta.next_csn())
            return tx.publications.append(
                replace(
                    plain,
                    turn_id=turn_id,
                    start_seq=start,
                    end_seq_exclusive=start + count,
                    opened_ms=times[0],
                    completed_ms=times[1],
                    cover=tuple(CoverPart(tree, span) for span in cover(start, start + count)),
                )
            )

        self.both(work)

    @rule(scope_id=scopes, seq=small)
    def retire(self, scope_id: ScopeId, seq: int) -> None:
        self.both(lambda tx: tx.publications.retire(scope_id, seq, tx.meta.next_csn()))

    # Jobs

    @rule(
        job_id=job_ids,
        kind=st.sampled_from(JobKind),
        subject=small,
        waits_for=st.lists(st.tuples(trees, spans), max_size=2),
        not_before=small,
    )
    def put_job(
        self, job_id: str, kind: JobKind, subject: int, waits_for: Any, not_before: int
    ) -> None:
        job = replace(a_job(job_id, subject), kind=kind, not_before_ms=not_before)
        self.both(lambda tx: tx.jobs.put(job, waits_for))

    @rule(now=st.integers(3, 8), lease=small, allowed=st.none() | st.lists(scopes, max_size=2))
    def claim(self, now: int, lease: int, allowed: list[ScopeId] | None) -> None:
        self.both(lambda tx: tx.jobs.claim("w", now, lease, allowed))

    @rule(
        job_id=job_ids,
        stale=st.sampled_from([False, False, False, True]),
        until=small,
        way=st.sampled_from(["finish", "renew", "postpone", "fail", "release"]),
    )
    def settle(self, job_id: str, stale: bool, until: int, way: str) -> None:
        def work(tx: Tx) -> bool:
            jobs = [job for n in range(6) if (job := tx.jobs.job(f"j{n}")) is not None]
            leased = [job for job in jobs if job.state is JobState.LEASED]
            job = tx.jobs.job(job_id) if stale or not leased else leased[0]
            if job is None:
                return tx.jobs.finish(job_id, 1)
            token = job.token - int(stale)
            if way == "finish":
                return tx.jobs.finish(job.job_id, token)
            if way == "renew":
                return tx.jobs.renew(job.job_id, token, until)
            if way == "postpone":
                return tx.jobs.postpone(job.job_id, token, not_before_ms=until, error="p")
            failed = way == "fail"
            return tx.jobs.release(job.job_id, token, not_before_ms=until, error="e", failed=failed)

        self.both(work)

    @rule(
        job_id=job_ids,
        session_id=sessions,
        now=small,
        every=st.booleans(),
        way=st.sampled_from(["lease", "hurry", "retry", "redo", "end"]),
        waits_for=st.lists(st.tuples(trees, spans), max_size=2),
    )
    def manage(
        self,
        job_id: str,
        session_id: SessionId,
        now: int,
        every: bool,
        way: str,
        waits_for: list[tuple[Tree, Span]],
    ) -> None:
        def work(tx: Tx) -> object:
            if way == "lease":
                return tx.jobs.lease(job_id, "w", now, 2)
            if way == "hurry":
                return tx.jobs.hurry(session_id, now, first=every)
            if way == "end":
                return tx.jobs.end_leases()
            if way == "retry":
                return tx.jobs.retry(now, None if every else job_id)
            return tx.jobs.redo(replace(a_job(job_id, now), input_hash="redo"), waits_for)

        self.both(work)

    # The meter, and pieces of payloads

    @rule(number=small, at=small, way=st.sampled_from(["open", "close", "drop", "count"]))
    def meter(self, number: int, at: int, way: str) -> None:
        def work(tx: Tx) -> None:
            call = a_call(number, at, "sent" if way == "open" else "ok")
            if way == "open":
                tx.ledger.open(call)
            elif way == "close":
                tx.ledger.close(call)
            elif way == "drop":
                tx.ledger.drop(call.call_id)
            else:
                tx.ledger.count(f"m{number % 2}", "1", f"f{at}", number)

        self.both(work)

    @rule(level=st.integers(0, 1), position=small, text=texts, kept=st.booleans())
    def put_chunk(self, level: int, position: int, text: str, kept: bool) -> None:
        def work(tx: Tx) -> None:
            payload = tx.blobs.put(b"red") if kept else BlobHash("missing")
            tx.chunks.put(
                Chunk(
                    payload=payload,
                    plan="plan",
                    level=level,
                    position=position,
                    start=position,
                    end_exclusive=position + 1,
                    read=1,
                    text=text,
                )
            )

        self.both(work)

    # Reads

    @rule(
        visibility=visibilities,
        told=st.lists(st.sampled_from([*WORDS, "ete", "bar", "-"]) | texts, max_size=3),
        excluded=st.lists(st.sampled_from(WORDS), max_size=1),
        pieces=st.lists(st.sampled_from(["r", "re", "een", "fo"]), max_size=2),
    )
    def search(
        self, visibility: Seen, told: list[str], excluded: list[str], pieces: list[str]
    ) -> None:
        self.both_read(
            lambda tx: (
                records(tx, visibility.of(tx), *told, excluded=tuple(excluded)),
                summaries(tx, visibility.of(tx), *told, excluded=tuple(excluded)),
                columns(tx, visibility.of(tx)),
                tx.search.frame(visibility.of(tx)).titles,
                tx.search.holding(pieces),
                tx.search.known(("red", "green", "nowhere")),
            )
        )

    @rule(visibility=visibilities, tree=trees, start=small, count=small, limit=small)
    def look(self, visibility: Seen, tree: SessionTree, start: int, count: int, limit: int) -> None:
        self.both_read(
            lambda tx: (
                tx.publications.visible_count(visibility.of(tx), tree, start, start + count),
                tx.publications.visible_sessions(visibility.of(tx)),
                tx.publications.of_session(
                    visibility.of(tx), tree.session_id, start or None, limit
                ),
                tx.trees.leaves_from(tree, start, limit),
            )
        )

    @rule(tree=trees, text=texts)
    def fail_after_writing(self, tree: SessionTree, text: str) -> None:
        def work(tx: Tx) -> None:
            tx.meta.put("key", text)
            tx.trees.retire_node(tree, Span(0, 1), tx.meta.next_csn())
            tx.turns.put(a_turn_of(tree))
            tx.membership.truncate(tree.session_id, 0)
            tx.jobs.claim("w", 99, 1)
            tx.blobs.read(BlobHash("missing"), 0, 1)

        self.both(work)

    @rule()
    def compare_everything(self) -> None:
        self.both_read(everything)

    @invariant()
    def counters_agree(self) -> None:
        self.both_read(lambda tx: (tx.meta.csn(), tx.records.count(), tx.jobs.counts()))


def a_session(session_id: SessionId, scope_id: ScopeId, number: int, host: str) -> Session:
    return Session(
        session_id=session_id,
        host="opencode",
        host_session=host,
        scope_id=scope_id,
        number=number,
        project_id=ProjectId("p"),
        generation=0,
        title="t",
        directory="/d",
        created_ms=0,
        updated_ms=0,
    )


def a_publication(tree: SessionTree, scope_id: ScopeId, seq: int, born: Csn) -> Publication:
    return Publication(
        scope_id=scope_id,
        seq=seq,
        session_id=tree.session_id,
        generation=tree.generation,
        turn_id=TurnId("t1"),
        start_seq=0,
        end_seq_exclusive=0,
        outcome=Outcome.COMPLETED,
        opened_ms=0,
        completed_ms=0,
        published_ms=0,
        cover=(),
        born=born,
    )


def a_call(number: int, at: int, outcome: str) -> ModelCall:
    return ModelCall(
        call_id=f"c{number}",
        at_ms=at,
        day=f"day-{at % 2}",
        purpose="node",
        model=f"m{number % 2}",
        scope_id=SCOPES[0],
        session_id=SESSIONS[0] if number % 3 else None,
        turn_id=TurnId("t1") if number % 2 else None,
        idle=number > 3,
        outcome=outcome,
        input_tokens=number,
        output_tokens=at,
        micros=at if at % 2 else None,
    )


def a_node(tree: Tree, span: Span, text: str, born: Csn) -> Node:
    return Node(
        tree=tree,
        span=span,
        revision=1,
        kind=NodeKind.SUMMARY,
        label="l",
        text=text,
        input_hash=text[:1],
        model="m",
        prompt_version="1",
        born=born,
    )


def a_job(job_id: str, subject: int) -> Job:
    return Job(
        job_id=job_id,
        kind=JobKind.NODE,
        target=f"{subject}",
        session_id=SESSIONS[subject % 2],
        scope_id=SCOPES[0],
        input_hash="i",
        state=JobState.READY,
    )


def a_turn_of(tree: SessionTree) -> Turn:
    return Turn(
        turn_id=TurnId("t1"),
        session_id=tree.session_id,
        generation=1,
        key="never",
        start_seq=0,
        opened_ms=0,
    )


def a_record(tx: Tx, tree: SessionTree, seq: int, text: str, at: int) -> Record:
    return Record(
        session_id=tree.session_id,
        generation=tree.generation,
        seq=seq,
        event_key=f"{tree}:{seq}",
        turn_id=TurnId("t1"),
        message_id="m1",
        kind=RecordKind.USER,
        host_time_ms=at,
        sealed_ms=0,
        payload=tx.blobs.put(text.encode()),
        payload_bytes=len(text.encode()),
        project_id=ProjectId("p"),
        worktree=f"/w{at % 3}" if at else None,
    )


def everything(tx: Tx) -> object:
    """All that can be read of what the pools can name."""
    all_spans = [Span(i << level, 1 << level) for level in range(3) for i in range(7)]
    return (
        tx.sessions.scopes(),
        [tx.sessions.sessions(scope_id) for scope_id in SCOPES],
        [tx.sessions.session_of_host("opencode", host) for host in "abh"],
        [tx.sessions.generation(t.session_id, t.generation) for t in TREES],
        [tx.records.range(tree, 0, 99) for tree in TREES],
        [tx.membership.messages(s) for s in SESSIONS],
        [tx.turns.of_session(s) for s in SESSIONS],
        [
            tx.trees.nodes_in(tree, [(span, r) for span in all_spans for r in (1, 2, 3)])
            for tree in ALL_TREES
        ],
        [
            tx.trees.node(tree, span, csn)
            for tree in ALL_TREES
            for span in all_spans[:6]
            for csn in (None, Csn(4), Csn(9))
        ],
        [tx.trees.last_revision(tree, span) for tree in ALL_TREES for span in all_spans],
        [tx.publications.retired_since(s, Csn(c), 4) for s in SCOPES for c in (0, 3, 7)],
        [tx.trees.view(tree, csn) for tree in ALL_TREES for csn in (None, Csn(3), Csn(8))],
        [tx.publications.range(scope_id, 0, 99) for scope_id in SCOPES],
        [tx.publications.of_turn(TurnId(f"t{n}")) for n in range(9)],
        [tx.jobs.job(f"j{n}") for n in range(6)],
        [tx.jobs.of_target(kind, f"{n}") for kind in JobKind for n in range(7)],
        tx.jobs.failed(3),
        [tx.jobs.listed(state, 9) for state in JobState],
        [tx.jobs.open_in(s, 5, 3) for s in SESSIONS],
        tx.jobs.next_due_ms(),
        tx.jobs.counts(SESSIONS[0]),
        [tx.ledger.table(by, 2) for by in ("day", "session", "purpose", "model")],
        [
            tx.ledger.spent(0, day=day, idle=idle)
            for day in (None, "day-1")
            for idle in (None, True)
        ],
        (tx.ledger.spent(3, turn_id=TurnId("t1")), tx.ledger.unfinished(), tx.ledger.findings()),
        tx.chunks.of(BlobHash(sha256(b"red").hexdigest()), "plan"),
        tx.meta.get("key"),
        [seen_by(tx, seen) for seen in READERS],
    )


MEMBER = Lineage((Segment(TREES[0], 0, 3), Segment(TREES[1], 3, 5)))
READERS = [
    Seen(scope_id=SCOPES[at], commits_ago=commits, publications_ago=publications, own=own)
    for at, commits, publications, own in (
        (0, 0, 0, None),
        (0, 0, 0, MEMBER),
        (0, 0, 1, None),
        (0, 1, 0, MEMBER),
        (0, 3, 0, None),
        (1, 0, 0, MEMBER),
    )
]


def seen_by(tx: Tx, seen: Seen) -> object:
    """All that a reader can learn."""
    visibility = seen.of(tx)
    return (
        records(tx, visibility, "red", "ete", "foo bar x", excluded=("green",)),
        summaries(tx, visibility, "red", "ete", "foo bar x", excluded=("green",)),
        columns(tx, visibility),
        tx.publications.visible_sessions(visibility),
        [tx.publications.of_session(visibility, s, None, 9) for s in SESSIONS],
        [tx.publications.covering(visibility, s, 0, 1) for s in SESSIONS],
        [tx.sessions.session_in(visibility.scope_id, s) for s in SESSIONS],
        [tx.publications.visible_count(visibility, tree, 1, 5) for tree in TREES],
    )


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
