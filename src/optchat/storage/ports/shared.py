"""Trees with their views, publications, and reading them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from optchat.core.publications import Publication
from optchat.core.records import Fold, Session
from optchat.core.snapshots import Visibility
from optchat.core.tree import Node, SessionTree, Tree
from optchat.core.views import View
from optchat.refs import Csn, FoldId, ScopeId, SessionId, Span, TurnId
from optchat.storage.ports.frame import Frame, Places
from optchat.storage.ports.values import SharedBase


class Trees(Protocol):
    """Nodes, views and their projections."""

    def put_node(self, node: Node) -> bool:
        """Add a revision of a node.

        Returns:
            False, writing nothing, when a live revision of the span has the same input hash.

        Raises:
            Conflict: the revision number is taken, or another live revision exists.
        """
        ...

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        """Add the first nodes of their spans, for which nothing waits yet.

        Raises:
            Conflict: one is taken, or another live revision exists.
        """
        ...

    def node(self, tree: Tree, span: Span, csn: Csn | None = None) -> Node | None:
        """The revision that a snapshot at ``csn`` sees; the live one when None."""
        ...

    def node_revision(self, tree: Tree, span: Span, revision: int) -> Node | None: ...
    def nodes_in(self, tree: Tree, spans: Sequence[tuple[Span, int]]) -> tuple[Node | None, ...]:
        """The named revisions, in the order asked; one statement for many."""
        ...

    def last_revision(self, tree: Tree, span: Span) -> int:
        """The highest revision that the span ever had; 0 for none."""
        ...

    def leaves_from(self, tree: Tree, start: int, limit: int) -> tuple[Node, ...]:
        """The contiguous live leaves from ``start`` on; stops at the first gap."""
        ...

    def made_otherwise(
        self, tree: Tree, model: str | None, prompt_version: str
    ) -> tuple[Node, ...]:
        """The live nodes that some other model (if one is given) or prompt version made.

        Verbatim ones, tombstones and lines of taken in history were made by none. Shorter spans
        first, then by start.
        """
        ...

    def retire_node(self, tree: Tree, span: Span, csn: Csn) -> None:
        """End the live revision at ``csn``; no live revision is a no-op."""
        ...

    def view(self, tree: Tree, csn: Csn | None = None) -> View:
        """The view as of ``csn``, else the newest; an empty view at revision 0 if there is none."""
        ...

    def put_view(self, tree: Tree, view: View, csn: Csn) -> None:
        """Add a revision, born at ``csn``.

        Raises:
            Conflict: if its revision is not the successor of the newest (compare-and-set).
        """
        ...

    def prune_views(self, tree: Tree, pinned: Collection[Csn]) -> int:
        """Forget the revisions but the newest and those that the ``pinned`` snapshots see.

        Returns:
            How many were forgotten.
        """
        ...

    def remove_node(self, tree: Tree, span: Span) -> int:
        """Remove every revision of a node, with its searched text; how many that were."""
        ...

    def remove_tree(self, tree: Tree) -> int:
        """Remove every node and view of a tree; how many nodes that were."""
        ...

    def move(self, tree: SessionTree, to: SessionTree, end_exclusive: int) -> None:
        """Make the nodes of ``tree`` that end at or below ``end_exclusive`` those of ``to``."""
        ...


class Publications(Protocol):
    """The scope's numbered publications."""

    def append(self, publication: Publication) -> bool:
        """Add it under its scope's next number. Its cover is exact, as §5 wants it.

        Returns:
            False when (scope, session, generation, turn) is published already.

        Raises:
            Conflict: if its number is not the scope's next, or there is no such scope. The counter
                is ``Scope.publications``, which this raises by one.
            IntegrityError: a generation of its cover is not there; nothing is written.
        """
        ...

    def append_many(self, publications: Sequence[Publication]) -> None:
        """``append`` for publications of one scope in a row, none of which is there yet.

        Raises:
            Conflict: as ``append``, or one of them is published already; nothing is written.
            IntegrityError: as ``append``.
        """
        ...

    def publication(self, scope_id: ScopeId, seq: int) -> Publication | None: ...
    def of_turn(self, turn_id: TurnId) -> Publication | None:
        """The live publication of a turn; the last made, should several scopes hold one."""
        ...

    def range(self, scope_id: ScopeId, start: int, end_exclusive: int) -> tuple[Publication, ...]:
        """Publications by number, retired ones included."""
        ...

    def of_session(
        self, visibility: Visibility, session_id: SessionId, before: int | None, limit: int
    ) -> tuple[Publication, ...]:
        """The visible publications of a session, newest first, numbered below ``before``."""
        ...

    def covering(
        self, visibility: Visibility, session_id: SessionId, generation: int, seq: int
    ) -> Publication | None:
        """The last publication of a record that the reader could see at some time, or None.

        Numbered below the snapshot's end and born by its commit, retired or not; ``generation`` is
        the publication's own.
        """
        ...

    def retire(self, scope_id: ScopeId, seq: int, csn: Csn) -> None:
        """End it at ``csn``; a publication that is not there or retired already is left alone."""
        ...

    def retired_since(self, scope_id: ScopeId, csn: Csn, before_seq: int) -> bool:
        """Whether one numbered below ``before_seq`` was retired after the commit ``csn``."""
        ...

    def of_turn_ever(self, turn_id: TurnId) -> tuple[Publication, ...]:
        """All publications of a turn, retired ones included, by scope and number."""
        ...

    def completed(
        self, scope_id: ScopeId, start: int, end_exclusive: int
    ) -> tuple[int, int] | None:
        """When the turns of the first and the last that are there in a range were completed."""
        ...

    def remove(self, scope_id: ScopeId, seq: int) -> None:
        """Remove it with its cover; its number stays taken."""
        ...

    def move_covers(self, tree: SessionTree, to: SessionTree) -> None:
        """Let every cover part in ``tree`` name ``to``, a generation that is there."""
        ...

    def visible_count(
        self, visibility: Visibility, tree: SessionTree, start: int, end_exclusive: int
    ) -> int:
        """How many own records of ``tree`` in the range lie in visible publications (§9, §11)."""
        ...

    def visible_sessions(self, visibility: Visibility) -> tuple[tuple[Session, int, int, int], ...]:
        """Sessions with a visible publication: (session, publications, first_ms, last_ms).

        Times and counts are of what is visible: the first turn's opening and the last completion.
        Newest activity first, then by number.
        """
        ...


class Folds(Protocol):
    """What requests begin with until the next fold, and the shared part that folds are made of."""

    def remove_rendered(self, scope_id: ScopeId) -> int:
        """Remove what was rendered of a scope: its base; its sessions' folds, news, checkpoints.

        Returns:
            The number of texts that held something.
        """
        ...

    def put(self, fold: Fold) -> None: ...
    def fold(self, fold_id: FoldId) -> Fold | None: ...
    def prune(self, session_id: SessionId, kept: Collection[FoldId]) -> int:
        """Forget the session's folds but these; how many were forgotten."""
        ...

    def put_shared_base(self, base: SharedBase) -> None:
        """Replace the scope's base."""
        ...

    def shared_base(self, scope_id: ScopeId) -> SharedBase | None: ...


class Search(Protocol):
    """What a reader may see as columns, and where a stem stands in all there is.

    Stems are those of ``storage/words.py``. A stem's places are of every document: they are to be
    cut to the frame's rows before anything is counted, limited or told (I4).
    """

    def frame(self, visibility: Visibility) -> Frame:
        """The visible records that have words, with the visible titles and summaries."""
        ...

    def places(self, stems: Sequence[str]) -> dict[str, Places]:
        """Where each stem stands in records; empty for one that stands nowhere."""
        ...

    def node_places(self, stems: Sequence[str]) -> dict[str, Places]:
        """Where each stem stands in summaries; verbatim and fallback nodes have no words."""
        ...

    def known(self, stems: Sequence[str]) -> tuple[str, ...]:
        """Those of ``stems`` that stand in some record, whoever may see it."""
        ...

    def holding(self, pieces: Sequence[str]) -> tuple[str, ...]:
        """The stems that contain one of ``pieces``, whoever may see them, in order."""
        ...
