"""One summary job from lease to fenced commit (§9, §10).

Reading the sources, calling the model and committing are three steps; only the first and last are
transactions. The commit asks whether the lease is still ours and whether what was read is still
what is there; otherwise the result is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from optchat.compactor.models import SummaryModel, SummaryRequest
from optchat.core.records import Record
from optchat.core.tree import Node, NodeKind, ScopeTree, SessionTree, Tree, parse_tree
from optchat.engine.deps import Deps
from optchat.engine.nodes import (
    VERBATIM,
    Forest,
    children_hash,
    commit,
    digest,
    fits,
    is_retired,
    joined,
    leaf_text,
    parent_node,
    record_label,
)
from optchat.engine.publish import TurnSource, advance_shared_view, publish, turn_source
from optchat.engine.sessions import lineage, require_scope
from optchat.errors import CompactionError, IntegrityError, OptChatError
from optchat.limits import JOB_ATTEMPTS_MAX, JOB_LEASE_MS
from optchat.refs import Span, TurnId
from optchat.storage.ports import Job, JobKind, Store, Tx

SOURCE_BYTES_MAX = 64 * 1024
"""How much of one payload a summary request holds here."""

RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Leaf:
    record: Record
    text: str


@dataclass(frozen=True, slots=True)
class _Merge:
    children: tuple[Node, Node]


_Source = _Leaf | _Merge | TurnSource


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs jobs of one store with one model; several may run side by side."""

    store: Store
    deps: Deps
    model: SummaryModel
    name: str

    def run_one(self) -> bool:
        """Claim and finish one job; False when none is due.

        A job that fails goes back with a delay, or to FAILED after ``JOB_ATTEMPTS_MAX``; nothing of
        its sources is lost either way.
        """
        now_ms = self.deps.clock.now_ms()
        job = self.store.write(lambda tx: tx.jobs.claim(self.name, now_ms, JOB_LEASE_MS))
        if job is None:
            return False
        try:
            source = self.store.read(lambda tx: _read(tx, job))
            text, model = self._summarise(source)
            self.store.write(lambda tx: self._commit(tx, job, source, text, model))
        except OptChatError as error:
            self._give_back(job, f"{error.code}: {error.message}")
        return True

    def _summarise(self, source: _Source) -> tuple[str, str]:
        verbatim = _verbatim(source)
        if verbatim is not None:
            return verbatim, VERBATIM
        text = self.model.summarise(_request(source))
        if not fits(text):
            raise CompactionError("the summary was empty or over the bound.")
        return text, self.model.name

    def _commit(self, tx: Tx, job: Job, source: _Source, text: str, model: str) -> None:
        if not tx.jobs.finish(job.job_id, job.token):
            return  # fenced: another lease is in force, and its holder will commit
        prompt_version = VERBATIM if model == VERBATIM else self.model.prompt_version
        match source:
            case TurnSource():
                if turn_source(tx, source.turn, text_bytes_max=0).input_hash == source.input_hash:
                    publish(
                        tx,
                        self.deps,
                        source,
                        text=text,
                        model=model,
                        prompt_version=prompt_version,
                    )
            case _Leaf(record=record):
                node = Node(
                    tree=SessionTree(record.session_id, record.generation),
                    span=Span(record.seq, 1),
                    revision=1,
                    kind=NodeKind.VERBATIM if model == VERBATIM else NodeKind.SUMMARY,
                    label=record_label(record),
                    text=text,
                    input_hash=digest(record.payload),
                    model=model,
                    prompt_version=prompt_version,
                    born=tx.meta.next_csn(),
                )
                commit(tx, node)
            case _Merge(children=children):
                tree, span = _target(job)
                forest = _forest(tx, tree)
                current = _children(forest, span)
                if children_hash(current) != children_hash(children):
                    return
                node = parent_node(
                    tx,
                    forest,
                    span,
                    children,
                    text,
                    model,
                    tx.meta.next_csn(),
                    prompt_version=prompt_version,
                    revision=int(job.input_hash.removeprefix("r")),
                )
                commit(tx, node)
                if isinstance(tree, ScopeTree):
                    scope = require_scope(tx, tree.scope_id)
                    advance_shared_view(tx, self.deps, tree.scope_id, scope.publications)

    def _give_back(self, job: Job, error: str) -> None:
        failed = job.attempts >= JOB_ATTEMPTS_MAX
        delay_ms = RETRY_MS * 2**job.attempts
        not_before_ms = self.deps.clock.now_ms() + delay_ms
        self.store.write(
            lambda tx: tx.jobs.release(
                job.job_id, job.token, not_before_ms=not_before_ms, error=error, failed=failed
            )
        )


def _target(job: Job) -> tuple[Tree, Span]:
    tree, _, span = job.target.partition("#")
    start, _, count = span.partition("+")
    return parse_tree(tree), Span(int(start), int(count))


def _forest(tx: Tx, tree: Tree) -> Forest:
    if isinstance(tree, ScopeTree):
        return Forest(tx, tree)
    return Forest(tx, tree, lineage=lineage(tx, tree))


def _children(forest: Forest, span: Span) -> tuple[Node, Node]:
    left, right = (forest.node(child) for child in span.children)
    if left is None or right is None:
        raise IntegrityError(f"a child of {forest.tree}#{span} is missing.")
    return left, right


def _read(tx: Tx, job: Job) -> _Source:
    if job.kind is JobKind.TURN:
        turn = tx.records.turn(TurnId(job.target))
        if turn is None:
            raise IntegrityError(f"the turn {job.target} of a job is missing.")
        return turn_source(tx, turn, text_bytes_max=SOURCE_BYTES_MAX)
    tree, span = _target(job)
    if span.count > 1:
        return _Merge(_children(_forest(tx, tree), span))
    if isinstance(tree, ScopeTree):
        raise IntegrityError(f"a publication's leaf has no job of its own: {job.target}")
    record = tx.records.record(tree, span.start)
    if record is None:
        raise IntegrityError(f"the record {job.target} of a job is missing.")
    payload = tx.blobs.read(record.payload, 0, SOURCE_BYTES_MAX)
    return _Leaf(record, payload.decode("utf-8", "replace"))


def _verbatim(source: _Source) -> str | None:
    match source:
        case _Leaf(record=record, text=text):
            return leaf_text(record, text)
        case _Merge(children=children):
            return joined(children)
        case TurnSource():
            return None


def _request(source: _Source) -> SummaryRequest:
    match source:
        case _Leaf(text=text):
            return SummaryRequest(purpose="leaf", parts=(("", text),))
        case _Merge(children=children):
            parts = tuple(
                (n.label if n.span.count == 1 else "", n.text)
                for n in children
                if not is_retired(n)
            )
            return SummaryRequest(purpose="merge", parts=parts)
        case TurnSource():
            steps = " ".join(n.text for n in source.nodes) if not source.answer else ""
            parts = (("asked", source.request), ("answered", source.answer), ("steps", steps))
            return SummaryRequest(purpose="turn", parts=parts)
