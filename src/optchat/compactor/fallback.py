"""A line for what no model could summarise: it says only that a range needs inspection (§10).

Without it one source that no model can take would keep its turn from being published and everything
behind it from being folded, for good. It is labelled by its kind, is searched by no summary, and is
replaced by the first line that a model makes of the same source.
"""

from __future__ import annotations

from optchat.compactor import results
from optchat.compactor.results import Made
from optchat.core.records import RecordKind
from optchat.core.tree import NodeKind, ScopeTree, SessionTree
from optchat.engine.deps import Deps
from optchat.engine.publish import turn_source
from optchat.errors import IntegrityError
from optchat.refs import TurnId
from optchat.storage.ports import Job, JobKind, Tx

FALLBACK = "fallback"
"""The model name and prompt version of such a line."""

_WHAT = {RecordKind.TOOL_CALL: "input", RecordKind.TOOL_RESULT: "output"}


def stand_in(tx: Tx, deps: Deps, job: Job) -> None:
    """Put the line of a job that has failed for good, unless an older revision stands there.

    The job stays failed, and a retry replaces the line. Where something else is missing as well,
    nothing is put: what the line is over must be there.
    """
    try:
        if job.kind is JobKind.TURN:
            _publish(tx, deps, TurnId(job.target))
        else:
            _put(tx, deps, job)
    except IntegrityError:
        return


def _publish(tx: Tx, deps: Deps, turn_id: TurnId) -> None:
    turn = tx.turns.turn(turn_id)
    if turn is None or turn.end_seq_exclusive is None:
        return
    source = turn_source(tx, turn, text_bytes_max=0)
    count = sum(part.span.count for part in source.cover)
    results.put_turn(tx, deps, source, _line(f"a turn of {count:,} records"))


def _put(tx: Tx, deps: Deps, job: Job) -> None:
    tree, span = results.target(job)
    if tx.trees.node(tree, span) is not None:
        return
    if span.count > 1:
        what = "turns" if isinstance(tree, ScopeTree) else "records"
        results.put_merge(tx, deps, job, _line(f"{span.count:,} {what}"))
        return
    record = tx.records.record(tree, span.start) if isinstance(tree, SessionTree) else None
    if record is not None:
        what = _WHAT.get(record.kind, "text")
        made = _line(f"{record.payload_bytes:,} bytes of {what}")
        results.put_leaf(tx, deps, job, record, made)


def _line(what: str) -> Made:
    return Made(
        text=f"(needs inspection: {what})",
        model=FALLBACK,
        prompt_version=FALLBACK,
        kind=NodeKind.FALLBACK,
    )
