"""One node from an extractor: the local, free kind of model, a job at a time."""

from __future__ import annotations

from dataclasses import dataclass

from optchat.compactor import results
from optchat.compactor.models import Extractor, SummaryRequest
from optchat.compactor.results import Made
from optchat.core.records import Record
from optchat.core.tree import Node, ScopeTree
from optchat.engine.deps import Deps
from optchat.engine.nodes import (
    children_hash,
    fits,
    is_retired,
    joined,
    leaf_text,
    merged_bytes_max,
)
from optchat.engine.originals import read_text
from optchat.engine.publish import TurnSource, turn_source
from optchat.errors import CompactionError, IntegrityError
from optchat.refs import TurnId
from optchat.storage.ports import Job, JobKind, Store, Tx

SOURCE_BYTES_MAX = 64 * 1024
"""How much of one payload an extractor is shown: it looks at beginnings only."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    record: Record
    text: str


@dataclass(frozen=True, slots=True)
class _Merge:
    children: tuple[Node, Node]
    bytes_max: int


_Source = _Leaf | _Merge | TurnSource


def extract(store: Store, deps: Deps, model: Extractor, job: Job) -> None:
    """Read, extract and commit one job.

    Raises:
        OptChatError: it could not be done; the caller gives the job back.
    """
    source = store.read(lambda tx: _read(tx, job, mask=deps.config.privacy.mask))
    made = _make(source, model)
    store.write(lambda tx: _commit(tx, deps, job, source, made))


def _make(source: _Source, model: Extractor) -> Made:
    ready = _verbatim(source)
    if ready is not None:
        return results.verbatim(ready)
    text = model.summarise(_request(source))
    if not fits(text):
        raise CompactionError("the summary was empty or over the bound.")
    return Made(text=text, model=model.name, prompt_version=model.prompt_version)


def _commit(tx: Tx, deps: Deps, job: Job, source: _Source, made: Made) -> None:
    match source:
        case TurnSource():
            results.commit_turn(tx, deps, job, source, made)
        case _Leaf(record=record):
            results.commit_leaf(tx, deps, job, record, made)
        case _Merge(children=children):
            results.commit_merge(tx, deps, job, made, read_hash=children_hash(children))


def _read(tx: Tx, job: Job, *, mask: bool) -> _Source:
    if job.kind is JobKind.TURN:
        turn = tx.turns.turn(TurnId(job.target))
        if turn is None:
            raise IntegrityError(f"the turn {job.target} of a job is missing.")
        return turn_source(tx, turn, text_bytes_max=SOURCE_BYTES_MAX, mask=mask)
    tree, span = results.target(job)
    if span.count > 1:
        forest = results.forest_of(tx, tree)
        children = results.children_of(forest, span)
        return _Merge(children, merged_bytes_max(forest, span, children))
    if isinstance(tree, ScopeTree):
        raise IntegrityError(f"a publication's leaf has no job of its own: {job.target}")
    record = tx.records.record(tree, span.start)
    if record is None:
        raise IntegrityError(f"the record {job.target} of a job is missing.")
    text, _ = read_text(tx, record.payload, 0, SOURCE_BYTES_MAX, mask=mask)
    return _Leaf(record, text)


def _verbatim(source: _Source) -> str | None:
    match source:
        case _Leaf(record=record, text=text):
            # Masked, the beginning of a long text may be short, and is not the whole of it.
            return leaf_text(record, text) if record.payload_bytes <= SOURCE_BYTES_MAX else None
        case _Merge(children=children):
            return joined(children)
        case TurnSource():
            return None


def _request(source: _Source) -> SummaryRequest:
    match source:
        case _Leaf(text=text):
            return SummaryRequest(purpose="leaf", parts=(("", text),))
        case _Merge(children=children, bytes_max=bytes_max):
            parts = tuple(
                (n.label if n.span.count == 1 else "", n.text)
                for n in children
                if not is_retired(n)
            )
            return SummaryRequest(purpose="merge", parts=parts, bytes_max=bytes_max)
        case TurnSource():
            steps = " ".join(n.text for n in source.nodes) if not source.answer else ""
            parts = (("asked", source.request), ("answered", source.answer), ("steps", steps))
            return SummaryRequest(purpose="turn", parts=parts)
