"""Sessions, their records and the payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from optchat.core.records import Generation, HostMessage, Record, Session, Turn
from optchat.core.scopes import Project, Scope
from optchat.core.tree import SessionTree
from optchat.refs import BlobHash, FoldId, ProjectId, ScopeId, SessionId, TurnId


class Sessions(Protocol):
    """Projects, scopes, sessions and generations."""

    def project(self, host: str, host_key: str) -> Project | None: ...
    def projects(self) -> tuple[Project, ...]: ...
    def put_project(self, project: Project) -> None:
        """Insert or replace.

        Raises:
            Conflict: if another project has that (host, host_key).
        """
        ...

    def scope(self, scope_id: ScopeId) -> Scope | None: ...
    def scopes(self) -> tuple[Scope, ...]:
        """All scopes, by id."""
        ...

    def put_scope(self, scope: Scope) -> None:
        """Insert or replace; the two counters only grow, so that no number is given twice."""
        ...

    def session(self, session_id: SessionId) -> Session | None: ...
    def session_of_host(self, host: str, host_session: str) -> Session | None: ...
    def session_numbered(self, scope_id: ScopeId, number: int) -> Session | None:
        """The session that a scope knows by a number, also one that has left it since.

        It comes with that scope and number, whatever scope it is in now.
        """
        ...

    def session_in(self, scope_id: ScopeId, session_id: SessionId) -> Session | None:
        """A session as a scope knows it; like ``session_numbered``."""
        ...

    def session_called(self, scope_id: ScopeId, host_session: str) -> Session | None:
        """The session that a scope knows by its host's id of it; like ``session_numbered``."""
        ...

    def sessions(self, scope_id: ScopeId) -> tuple[Session, ...]:
        """The sessions that are in a scope now, by number."""
        ...

    def children(self, host: str, host_session: str) -> tuple[Session, ...]:
        """The sessions whose parent is that host session, oldest first."""
        ...

    def scopes_of(self, session_id: SessionId) -> tuple[ScopeId, ...]:
        """The scopes that know a session by a number, in order."""
        ...

    def put_session(self, session: Session) -> None:
        """Insert or replace; (host, host_session) and (scope, number) are unique.

        A scope that it was in before goes on knowing it by its number there.

        Raises:
            Conflict: if another session has that host session or that number.
        """
        ...

    def leave_scope(self, scope_id: ScopeId, session_id: SessionId) -> None:
        """Have a scope that a session is not in any more forget its number."""
        ...

    def generation(self, session_id: SessionId, number: int) -> Generation | None: ...
    def put_generation(self, generation: Generation) -> None:
        """Insert or replace; ``length`` only grows. ``Records.append`` raises it by itself."""
        ...

    def generations(self, session_id: SessionId) -> tuple[Generation, ...]:
        """The generations of a session, by number."""
        ...

    def derived(self, tree: SessionTree) -> tuple[Generation, ...]:
        """The generations whose base is ``tree``, of whatever session."""
        ...

    def of_project(self, project_id: ProjectId) -> tuple[Session, ...]:
        """The sessions of a project in all scopes, by id."""
        ...

    def of_host(self, host: str) -> tuple[Session, ...]:
        """The sessions of a host in all scopes, by id."""
        ...

    def remove_session(self, session_id: SessionId) -> None:
        """Remove its row and its generations; its number is not given again."""
        ...

    def remove_project(self, project_id: ProjectId) -> None: ...
    def remove_scope(self, scope_id: ScopeId) -> None: ...


class Records(Protocol):
    """Sealed records."""

    def append(self, records: Sequence[Record], words: Sequence[bytes]) -> None:
        """Seal records of one generation at its next seqs, and index ``words`` for search.

        The next seq is the generation's ``length``, which this raises by their number. ``words``
        are the searched texts of their payloads, one each, as ``words.indexed`` gives them, in
        UTF-8, which is done before a transaction; an empty one indexes nothing. Which events are
        new is the engine's to tell, by the membership, in the same transaction (I5).

        Raises:
            Conflict: the seqs are not the next ones, or there is no such generation.
            IntegrityError: a payload is not kept. Nothing is written in either case.
        """
        ...

    def record(self, tree: SessionTree, seq: int) -> Record | None:
        """An own record of ``tree``; the engine resolves lineage."""
        ...

    def range(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[Record, ...]:
        """Own records of ``tree`` in the range, in order."""
        ...

    def count(self) -> int:
        """All records in the store, for status."""
        ...

    def own_results(self, session_id: SessionId) -> tuple[Record, ...]:
        """The results of our own tools in a session, every generation: manifests of refs."""
        ...

    def remove(self, tree: SessionTree, start: int, end_exclusive: int) -> tuple[BlobHash, ...]:
        """Remove own records of ``tree`` with their searched text; positions stay taken.

        Returns:
            The payload of each that was there, for ``Blobs.drop_unused``.
        """
        ...

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        """Make the own records of ``tree`` below ``end_exclusive`` those of ``to``."""
        ...


class Membership(Protocol):
    """The host's messages of a session, as they were when they were sealed (§3)."""

    def messages(self, session_id: SessionId, start: int = 0) -> tuple[HostMessage, ...]:
        """The current membership by position, of messages that begin at record ``start`` or later.

        A message without records begins where the next record will.
        """
        ...

    def message(self, session_id: SessionId, message_id: str) -> HostMessage | None:
        """One message of the current membership, by the host's id of it."""
        ...

    def put(self, message: HostMessage) -> None:
        """Insert or replace at (session, position); message ids are unique in a session.

        Raises:
            Conflict: if that message id stands at another position.
        """
        ...

    def put_many(self, messages: Sequence[HostMessage]) -> None:
        """New messages of a session, in one statement.

        Raises:
            Conflict: a position or an id is taken; nothing is written.
        """
        ...

    def truncate(self, session_id: SessionId, position: int) -> None:
        """Drop the membership from ``position`` on; the records stay."""
        ...


class Turns(Protocol):
    """A session's turns, with what was sent of memory in each (§5)."""

    def turn(self, turn_id: TurnId) -> Turn | None: ...
    def by_key(self, session_id: SessionId, generation: int, key: str) -> Turn | None: ...
    def of_session(self, session_id: SessionId) -> tuple[Turn, ...]:
        """All turns of the session, every generation, by (start_seq, opened_ms, turn id)."""
        ...

    def open(self, session_id: SessionId, generation: int) -> Turn | None:
        """The generation's turn without an outcome; the earliest, should there be several."""
        ...

    def last_pinned(self, session_id: SessionId, generation: int) -> Turn | None:
        """The generation's last turn that has a pin, by the order of ``turns``."""
        ...

    def of_fold(self, session_id: SessionId, fold_id: FoldId) -> tuple[Turn, ...]:
        """The session's turns that were sent with this fold, in the order of ``turns``."""
        ...

    def folded(self, session_id: SessionId, generation: int) -> tuple[Turn, ...]:
        """The generation's turns that have checkpoints, in the order of ``turns``."""
        ...

    def put(self, turn: Turn) -> None:
        """Insert or replace; (session, generation, key) is unique.

        Raises:
            Conflict: if another turn has that key.
        """
        ...

    def put_many(self, turns: Sequence[Turn]) -> None:
        """New turns that no request was sent with: no pin, fold or news. In one statement.

        Raises:
            Conflict: an id or a key is taken; nothing is written.
        """
        ...

    def remove(self, session_id: SessionId) -> None: ...


class Blobs(Protocol):
    """Content-addressed payloads, compressed."""

    def put(self, payload: bytes) -> BlobHash:
        """Keep ``payload`` once under the sha256 of its bytes. At most PAYLOAD_BYTES_MAX.

        Raises:
            BadInput: over the bound; nothing is kept.
        """
        ...

    def put_many(self, payloads: Mapping[BlobHash, bytes]) -> None:
        """Keep several under their names; what is put together may be stored together.

        Raises:
            BadInput: one is over the bound; nothing is kept.
        """
        ...

    def size(self, blob: BlobHash) -> int:
        """Its bytes. Raises IntegrityError if it is not there."""
        ...

    def read(self, blob: BlobHash, start: int, count: int) -> bytes:
        """Exactly the bytes ``[start, min(start + count, size))``; only touches what holds them.

        Raises:
            IntegrityError: if the blob or what holds it is missing or damaged.
        """
        ...

    def chunks(self, blob: BlobHash) -> Iterator[bytes]:
        """The whole payload, a chunk at a time, for hashing and export. Errors as ``read``."""
        ...

    def verify(self, blob: BlobHash) -> None:
        """Hash the whole payload again.

        Raises:
            IntegrityError: if it is missing, or is not what its name says.
        """
        ...

    def drop_unused(self, blobs: Collection[BlobHash]) -> int:
        """Remove those of ``blobs`` that no record refers to; how many that were."""
        ...
