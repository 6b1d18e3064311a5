"""Sessions, records, payloads, nodes and views in dictionaries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from optchat.core.records import Generation, HostMessage, Record, RecordKind, Session, Turn
from optchat.core.scopes import Project, Scope
from optchat.core.tree import Node, NodeKind, SessionTree, Tree
from optchat.core.views import View
from optchat.errors import BadInput, Conflict, EventConflict, IntegrityError
from optchat.limits import BLOB_CHUNK_BYTES, PAYLOAD_BYTES_MAX
from optchat.refs import BlobHash, Csn, FoldId, ProjectId, ScopeId, SessionId, Span, TurnId
from optchat.storage.memory.state import Changes
from optchat.storage.words import searchable, words


class MemorySessions:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def project(self, host: str, host_key: str) -> Project | None:
        return next(
            (p for p in self._tables.projects.values() if (p.host, p.host_key) == (host, host_key)),
            None,
        )

    def projects(self) -> tuple[Project, ...]:
        return tuple(sorted(self._tables.projects.values(), key=lambda p: p.project_id))

    def put_project(self, project: Project) -> None:
        other = self.project(project.host, project.host_key)
        if other is not None and other.project_id != project.project_id:
            raise Conflict("another project has that host key; the stored one stands.")
        self._changes.put(self._tables.projects, project.project_id, project)

    def scope(self, scope_id: ScopeId) -> Scope | None:
        return self._tables.scopes.get(scope_id)

    def scopes(self) -> tuple[Scope, ...]:
        return tuple(sorted(self._tables.scopes.values(), key=lambda s: s.scope_id))

    def put_scope(self, scope: Scope) -> None:
        known = self._tables.scopes.get(scope.scope_id, scope)
        grown = replace(
            scope,
            publications=max(known.publications, scope.publications),
            sessions=max(known.sessions, scope.sessions),
        )
        self._changes.put(self._tables.scopes, scope.scope_id, grown)

    def session(self, session_id: SessionId) -> Session | None:
        return self._tables.sessions.get(session_id)

    def session_of_host(self, host: str, host_session: str) -> Session | None:
        return next(
            (
                s
                for s in self._tables.sessions.values()
                if (s.host, s.host_session) == (host, host_session)
            ),
            None,
        )

    def session_numbered(self, scope_id: ScopeId, number: int) -> Session | None:
        named = (
            session_id
            for (of, session_id), given in self._tables.members.items()
            if (of, given) == (scope_id, number)
        )
        session_id = next(named, None)
        return None if session_id is None else self.session_in(scope_id, session_id)

    def session_in(self, scope_id: ScopeId, session_id: SessionId) -> Session | None:
        session = self._tables.sessions.get(session_id)
        number = self._tables.members.get((scope_id, session_id))
        if session is None or number is None:
            return None
        return replace(session, scope_id=scope_id, number=number)

    def sessions(self, scope_id: ScopeId) -> tuple[Session, ...]:
        found = (s for s in self._tables.sessions.values() if s.scope_id == scope_id)
        return tuple(sorted(found, key=lambda s: s.number))

    def children(self, host: str, host_session: str) -> tuple[Session, ...]:
        found = (
            s
            for s in self._tables.sessions.values()
            if (s.host, s.parent_host_session) == (host, host_session)
        )
        return tuple(sorted(found, key=lambda s: (s.created_ms, s.session_id)))

    def scopes_of(self, session_id: SessionId) -> tuple[ScopeId, ...]:
        return tuple(sorted(of for of, member in self._tables.members if member == session_id))

    def put_session(self, session: Session) -> None:
        for other in (
            self.session_of_host(session.host, session.host_session),
            self.session_numbered(session.scope_id, session.number),
        ):
            if other is not None and other.session_id != session.session_id:
                raise Conflict("another session has that host id or number; it stands.")
        self._changes.put(self._tables.sessions, session.session_id, session)
        self._changes.put(
            self._tables.members, (session.scope_id, session.session_id), session.number
        )

    def leave_scope(self, scope_id: ScopeId, session_id: SessionId) -> None:
        self._changes.drop(self._tables.members, (scope_id, session_id))

    def generation(self, session_id: SessionId, number: int) -> Generation | None:
        return self._tables.generations.get(SessionTree(session_id, number))

    def put_generation(self, generation: Generation) -> None:
        known = self._tables.generations.get(generation.tree, generation)
        grown = replace(generation, length=max(known.length, generation.length))
        self._changes.put(self._tables.generations, generation.tree, grown)

    def generations(self, session_id: SessionId) -> tuple[Generation, ...]:
        return self._generations(lambda g: g.session_id == session_id)

    def derived(self, tree: SessionTree) -> tuple[Generation, ...]:
        return self._generations(lambda g: g.base == tree)

    def of_project(self, project_id: ProjectId) -> tuple[Session, ...]:
        found = (s for s in self._tables.sessions.values() if s.project_id == project_id)
        return tuple(sorted(found, key=lambda s: s.session_id))

    def remove_session(self, session_id: SessionId) -> None:
        for generation in self.generations(session_id):
            self._changes.drop(self._tables.generations, generation.tree)
        for scope_id in self.scopes_of(session_id):
            self._changes.drop(self._tables.members, (scope_id, session_id))
        self._changes.drop(self._tables.sessions, session_id)

    def remove_project(self, project_id: ProjectId) -> None:
        self._changes.drop(self._tables.projects, project_id)

    def remove_scope(self, scope_id: ScopeId) -> None:
        self._changes.drop(self._tables.scopes, scope_id)

    def _generations(self, is_wanted: Callable[[Generation], bool]) -> tuple[Generation, ...]:
        found = (g for g in self._tables.generations.values() if is_wanted(g))
        return tuple(sorted(found, key=lambda g: (g.session_id, g.number)))


class MemoryRecords:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def append(self, record: Record, text: str) -> bool:
        sealed = self._tables.event_keys.get(record.event_key)
        if sealed is not None:
            if sealed.payload != record.payload:
                raise EventConflict(
                    f"{record.event_key} is sealed with other content; it is unchanged."
                )
            return False
        tree = SessionTree(record.session_id, record.generation)
        generation = self._tables.generations.get(tree)
        if generation is None or generation.length != record.seq:
            raise Conflict(
                f"record {record.seq} of {tree} is not the next one; nothing was sealed."
            )
        if record.payload not in self._tables.blobs:
            raise IntegrityError("the record's payload is not kept; nothing was sealed.")
        key = (tree, record.seq)
        self._changes.put(self._tables.records, key, record)
        self._changes.put(self._tables.event_keys, record.event_key, record)
        self._changes.put(
            self._tables.generations, tree, replace(generation, length=generation.length + 1)
        )
        if text:
            self._changes.put(self._tables.texts, key, searchable(text))
            self._changes.put(self._tables.words, key, words(searchable(text)))
        return True

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        return self._tables.records.get((tree, seq))

    def by_event_key(self, event_key: str) -> Record | None:
        return self._tables.event_keys.get(event_key)

    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        found = (
            record
            for (of, seq), record in self._tables.records.items()
            if of == tree and start <= seq < end_exclusive
        )
        return tuple(sorted(found, key=lambda r: r.seq))

    def count(self) -> int:
        return len(self._tables.records)

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        found = (
            m
            for m in self._tables.messages.values()
            if m.session_id == session_id and m.start_seq >= start
        )
        return tuple(sorted(found, key=lambda m: m.position))

    def put_message(self, message: HostMessage) -> None:
        for other in self.messages(message.session_id):
            if other.message_id == message.message_id and other.position != message.position:
                raise Conflict("that message stands at another position; it stays there.")
        self._changes.put(self._tables.messages, (message.session_id, message.position), message)

    def put_messages(self, messages: Sequence[HostMessage]) -> None:
        for message in messages:
            if (message.session_id, message.position) in self._tables.messages:
                raise Conflict("that position is taken; what is there stays.")
            self.put_message(message)

    def truncate_messages(self, session_id: SessionId, position: int) -> None:
        for message in self.messages(session_id):
            if message.position >= position:
                self._changes.drop(self._tables.messages, (session_id, message.position))

    def turn(self, turn_id: TurnId) -> Turn | None:
        return self._tables.turns.get(turn_id)

    def turn_by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None:
        asked = (session_id, generation, key)
        return next(
            (
                t
                for t in self._tables.turns.values()
                if (t.session_id, t.generation, t.key) == asked
            ),
            None,
        )

    def turns(self, session_id: SessionId) -> tuple[Turn, ...]:
        found = (t for t in self._tables.turns.values() if t.session_id == session_id)
        return tuple(sorted(found, key=lambda t: (t.start_seq, t.opened_ms, t.turn_id)))

    def open_turn(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = self.turns(session_id)
        return next((t for t in turns if t.generation == generation and t.outcome is None), None)

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        turns = reversed(self.turns(session_id))
        return next((t for t in turns if t.generation == generation and t.pin is not None), None)

    def turns_of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        return tuple(t for t in self.turns(session_id) if t.fold_id == fold_id)

    def folded_turns(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        found = (t for t in self.turns(session_id) if t.generation == generation)
        return tuple(t for t in found if t.checkpoints)

    def put_turn(self, turn: Turn) -> None:
        other = self.turn_by_key(turn.session_id, turn.generation, turn.key)
        if other is not None and other.turn_id != turn.turn_id:
            raise Conflict("another turn was opened by that message; it stands.")
        self._changes.put(self._tables.turns, turn.turn_id, turn)

    def put_turns(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.turn_id in self._tables.turns:
                raise Conflict("a turn of that id is there; it stands.")
            self.put_turn(replace(turn, pin=None, fold_id=None, news=""))

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        found = (
            record
            for record in self._tables.records.values()
            if record.session_id == session_id
            and record.kind is RecordKind.TOOL_RESULT
            and (record.tool or "").lower().startswith("memory_")
        )
        return tuple(sorted(found, key=lambda r: (r.generation, r.seq)))

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        removed = self.range(tree, start, end_exclusive)
        for record in removed:
            self._drop_text(tree, record.seq)
            self._changes.drop(self._tables.records, (tree, record.seq))
            self._changes.drop(self._tables.event_keys, record.event_key)
        return tuple(record.payload for record in removed)

    def _drop_text(self, tree: SessionTree, seq: int) -> None:
        self._changes.drop(self._tables.texts, (tree, seq))
        self._changes.drop(self._tables.words, (tree, seq))

    def remove_turns(self, session_id: SessionId) -> None:
        for turn in self.turns(session_id):
            self._changes.drop(self._tables.turns, turn.turn_id)

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for record in self.range(tree, 0, end_exclusive):
            moved = replace(record, session_id=to.session_id, generation=to.generation)
            old, new = (tree, record.seq), (to, record.seq)
            self._changes.drop(self._tables.records, old)
            self._changes.put(self._tables.records, new, moved)
            self._changes.put(self._tables.event_keys, record.event_key, moved)
            if old in self._tables.texts:
                self._changes.put(self._tables.texts, new, self._tables.texts[old])
                self._changes.put(self._tables.words, new, self._tables.words[old])
                self._drop_text(tree, record.seq)


class MemoryBlobs:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put(self, payload: bytes) -> BlobHash:
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise BadInput(
                f"a payload of {len(payload)} bytes is over the bound of {PAYLOAD_BYTES_MAX}; "
                "nothing was kept."
            )
        blob = BlobHash(hashlib.sha256(payload).hexdigest())
        self._changes.put(self._tables.blobs, blob, bytes(payload))
        return blob

    def size(self, blob: BlobHash) -> int:
        return len(self._payload(blob))

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        if start < 0 or count < 0:
            raise BadInput(f"not a range of bytes: {start}+{count}.")
        return self._payload(blob)[start : start + count]

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        payload = self._payload(blob)
        for at in range(0, len(payload), BLOB_CHUNK_BYTES):
            yield payload[at : at + BLOB_CHUNK_BYTES]

    def verify(self, blob: BlobHash) -> None:
        if hashlib.sha256(self._payload(blob)).hexdigest() != blob:
            raise IntegrityError(f"the payload {blob} is not what its name says.")

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        used = {record.payload for record in self._tables.records.values()}
        gone = {blob for blob in blobs if blob in self._tables.blobs} - used
        for blob in gone:
            self._changes.drop(self._tables.blobs, blob)
            for key in [k for k in self._tables.chunks if k[0] == blob]:
                self._changes.drop(self._tables.chunks, key)
        return len(gone)

    def _payload(self, blob: BlobHash) -> bytes:
        payload = self._tables.blobs.get(blob)
        if payload is None:
            raise IntegrityError(f"the payload {blob} is not there.")
        return payload


class MemoryTrees:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._tables = changes.tables

    def put_node(self, node: Node) -> bool:
        live = self.node(node.tree, node.span)
        if live is not None:
            if live.input_hash == node.input_hash:
                return False
            if node.died is None:
                raise Conflict(f"another revision of {node.tree}#{node.span} is live; it stands.")
        if self.node_revision(node.tree, node.span, node.revision) is not None:
            raise Conflict(f"revision {node.revision} of {node.tree}#{node.span} is taken.")
        self._put(node.tree, node.span, (*self._revisions(node.tree, node.span), node))
        return True

    def node(self, tree: Tree, span: Span, csn: Csn | None = None) -> Node | None:
        seen = (
            node
            for node in self._revisions(tree, span)
            if (node.died is None if csn is None else node.seen_at(csn))
        )
        return max(seen, key=lambda n: n.revision, default=None)

    def node_revision(self, tree: Tree, span: Span, revision: int) -> Node | None:
        return next((n for n in self._revisions(tree, span) if n.revision == revision), None)

    def last_revision(self, tree: Tree, span: Span) -> int:
        return max((n.revision for n in self._revisions(tree, span)), default=0)

    def nodes_in(self, tree: Tree, spans: Sequence[tuple[Span, int]]) -> tuple[Node | None, ...]:
        return tuple(self.node_revision(tree, span, revision) for span, revision in spans)

    def leaves_from(self, tree: Tree, start: int, limit: int) -> tuple[Node, ...]:
        found: list[Node] = []
        while len(found) < limit:
            node = self.node(tree, Span(start + len(found), 1))
            if node is None:
                break
            found.append(node)
        return tuple(found)

    def made_otherwise(
        self, tree: Tree, model: str | None, prompt_version: str
    ) -> tuple[Node, ...]:
        live = (n for revisions in self._tables.nodes.values() for n in revisions if n.died is None)
        found = [
            n
            for n in live
            if str(n.tree) == str(tree)
            and n.kind is not NodeKind.VERBATIM
            and n.model != "none"
            and (n.prompt_version != prompt_version or model not in (None, n.model))
        ]
        return tuple(sorted(found, key=lambda n: (n.span.count, n.span.start)))

    def retire_node(self, tree: Tree, span: Span, csn: Csn) -> None:
        revisions = self._revisions(tree, span)
        if any(node.died is None for node in revisions):
            ended = tuple(replace(n, died=csn) if n.died is None else n for n in revisions)
            self._put(tree, span, ended)

    def view(self, tree: Tree, csn: Csn | None = None) -> View:
        views = self._tables.views.get(str(tree), ())
        seen = (view for born, view in views if csn is None or born <= csn)
        return max(seen, key=lambda v: v.revision, default=View())

    def put_view(self, tree: Tree, view: View, csn: Csn) -> None:
        newest = self.view(tree).revision
        if view.revision != newest + 1:
            raise Conflict(
                f"view revision {view.revision} of {tree} does not follow {newest}; "
                "the stored one stands."
            )
        views = self._tables.views.get(str(tree), ())
        self._changes.put(self._tables.views, str(tree), (*views, (csn, view)))

    def prune_views(self, tree: Tree, pinned: Collection[Csn]) -> int:
        views = self._tables.views.get(str(tree), ())
        seen = {self.view(tree, csn).revision for csn in pinned} | {self.view(tree).revision}
        kept = tuple((born, v) for born, v in views if v.revision in seen)
        if kept != views:
            self._changes.put(self._tables.views, str(tree), kept)
        return len(views) - len(kept)

    def remove_node(self, tree: Tree, span: Span) -> int:
        count = len(self._revisions(tree, span))
        self._changes.drop(self._tables.nodes, (str(tree), span.start, span.count))
        return count

    def remove_tree(self, tree: Tree) -> int:
        self._changes.drop(self._tables.views, str(tree))
        keys = [key for key in self._tables.nodes if key[0] == str(tree)]
        return sum(self.remove_node(tree, Span(start, count)) for _, start, count in keys)

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        for key, revisions in tuple(self._tables.nodes.items()):
            of, start, count = key
            if of == str(tree) and start + count <= end_exclusive:
                moved = tuple(replace(node, tree=to) for node in revisions)
                self._changes.drop(self._tables.nodes, key)
                self._changes.put(self._tables.nodes, (str(to), start, count), moved)

    def _revisions(self, tree: Tree, span: Span) -> tuple[Node, ...]:
        return self._tables.nodes.get((str(tree), span.start, span.count), ())

    def _put(self, tree: Tree, span: Span, revisions: tuple[Node, ...]) -> None:
        self._changes.put(self._tables.nodes, (str(tree), span.start, span.count), revisions)
