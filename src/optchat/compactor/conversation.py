"""One batch from its first call to its last line: ask, judge, commit, ask again (§10).

Good lines are committed as soon as they are there, each under its own lease, with the row of the
call that made them in the same transaction. What is wrong is asked for again in the same
conversation, within a bound; what is left then goes back to the queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from optchat.compactor import results
from optchat.compactor.admission import Finding, findings
from optchat.compactor.answers import parse
from optchat.compactor.batching import Planned, has_failed
from optchat.compactor.desk import Desk
from optchat.compactor.items import ChunkTarget, Item, LeafTarget, MergeTarget, TurnTarget
from optchat.compactor.models import Call, ChatModel, Outcome, Reply
from optchat.compactor.prompts import prompts
from optchat.compactor.rendering import next_call, said, same_call
from optchat.compactor.results import Made
from optchat.core.tree import Node
from optchat.engine.deps import Deps
from optchat.engine.publish import turn_source
from optchat.storage.ports import ModelCall, Store, Tx

CALLS_MAX = 3
"""Calls of one conversation; a job that was given back gets one call fewer, and is alone."""

LEASE_MARGIN_MS = 30_000

_AGAIN = frozenset(
    {Outcome.EMPTY, Outcome.REASONING_ONLY, Outcome.CUT, Outcome.INVALID, Outcome.TOO_LARGE}
)
"""Outcomes after which the same call is worth making once more."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a conversation ended. ``reply`` is the last one; ``stopped`` that a cap was reached."""

    reply: Reply
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Best:
    """The best line of an item so far: admissible, with soft findings."""

    text: str
    soft: int


@dataclass(frozen=True, slots=True)
class _Committed:
    codes: frozenset[str]
    lost: frozenset[str]  # another holder has them now, or what they were read from has moved on
    row: ModelCall | None
    stopped: bool


@dataclass(kw_only=True)
class Conversation:
    """The state of one batch on its way.

    ``pending`` are the items without an admissible line, ``accepted`` the lines found so far,
    ``committed`` those that stand in the store.
    """

    store: Store
    deps: Deps
    desk: Desk
    model: ChatModel
    planned: Planned
    call: Call
    row: ModelCall
    context: str
    note: str = ""
    made_by: str = ""
    pending: dict[str, Item] = field(default_factory=dict[str, Item])
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    committed: set[str] = field(default_factory=set[str])
    error: str = "no admissible line"
    _best: dict[str, _Best] = field(default_factory=dict[str, _Best])
    _wrong: dict[str, list[Finding]] = field(default_factory=dict[str, list[Finding]])
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.pending = {i.code: i for i in self.planned.batch.items}

    @property
    def unfinished(self) -> list[tuple[Item, bool]]:
        """What is not in the store, and whether that is its own fault."""
        return [
            (i, i.code in self.pending)
            for i in self.planned.batch.items
            if i.code not in self.committed
        ]

    def run(self) -> Ended:
        """Ask until everything is committed, the bound is reached, or the model gives up."""
        again = any(has_failed(i.job) for i in self.planned.batch.items)
        calls_max = CALLS_MAX - 1 if again else CALLS_MAX
        number = 1
        while True:
            reply, took_ms = self._ask()
            self.made_by = reply.model or self.made_by
            self._count(f"outcome: {reply.outcome.value}")
            last = number == calls_max
            if not reply.outcome.is_models:
                self.desk.breaker.succeeded()
            if reply.outcome is Outcome.ANSWER:
                self._judge(reply.text, first=number == 1)
                self._settle(asks_again=not last and number == 1)
            else:
                self.error = f"{reply.outcome.value.replace('_', ' ')}: {reply.detail}".strip(": ")
            if reply.outcome is Outcome.ANSWER:
                again = not self._repeats_itself(reply)
            else:
                again = reply.outcome in _AGAIN
            following = self._following(reply) if again and self.pending and not last else None
            done = self._commit(reply, took_ms, following)
            if following is None or done.row is None:
                return Ended(reply, done.stopped)
            self.call, self.row = following, done.row
            number += 1

    def _ask(self) -> tuple[Reply, int]:
        first = self.call.messages[0]
        started_ms = self.deps.clock.now_ms()
        with self.desk.warm(self.call.system + first.text[: first.stable], started_ms):
            reply = self.model.call(self.call)
        return reply, max(0, self.deps.clock.now_ms() - started_ms)

    def _repeats_itself(self, reply: Reply) -> bool:
        """Whether what was said about an answer did not move the model; once more will not."""
        return len(self.call.messages) > 1 and self.call.messages[-2].text == said(reply.text)

    def _following(self, reply: Reply) -> Call:
        if reply.outcome is not Outcome.ANSWER:
            return same_call(self.call)
        wrong = [(code, self._wrong[code]) for code in self.pending]
        return next_call(self.call, reply.text, wrong)

    # --- judging ---

    def _judge(self, text: str, *, first: bool) -> None:
        parsed = parse(text, list(self.pending))
        self._count("foreign", parsed.foreign)
        self._count("noise", parsed.noise)
        lines = self.accepted | parsed.lines
        for code, item in list(self.pending.items()):
            fault = parsed.faults.get(code)
            line = parsed.lines.get(code, "")
            if fault is not None:
                found = [Finding(fault)]
            else:
                subject = self.planned.batch.subject(item, self.context, lines)
                found = findings(line, subject)
            for finding in found:
                self._count(finding.name)
                if first:
                    self._count(f"first: {finding.name}")
            if first:
                self._count("first: lines")
            self._wrong[code] = found
            best = self._best.get(code)
            if not found:
                self._accept(code, line)
            elif all(f.soft for f in found) and (best is None or len(found) < best.soft):
                self._best[code] = _Best(line, len(found))
        if self.pending:
            self.error = "; ".join(
                sorted({f.name.replace("_", " ") for c in self.pending for f in self._wrong[c]})
            )

    def _settle(self, *, asks_again: bool) -> None:
        """Take the best lines with soft findings; only a line that others see is worth a call."""
        hard = any(code not in self._best for code in self.pending)
        for code, item in list(self.pending.items()):
            worth_it = asks_again and (hard or isinstance(item.target, TurnTarget))
            if code in self._best and not worth_it:
                self._accept(code, self._best[code].text)

    def _accept(self, code: str, line: str) -> None:
        self.accepted[code] = line
        del self.pending[code]

    def _count(self, name: str, times: int = 1) -> None:
        if times:
            self._counts[name] = self._counts.get(name, 0) + times

    # --- committing ---

    def _commit(self, reply: Reply, took_ms: int, following: Call | None) -> _Committed:
        """What is good, the meter, and the next call's row, in one transaction."""
        counts, self._counts = self._counts, {}
        now_ms = self.deps.clock.now_ms()
        done = self.store.write(
            lambda tx: self._commit_in(tx, reply, took_ms, following, counts, now_ms)
        )
        self.committed |= done.codes | done.lost
        for code in done.lost:
            self.pending.pop(code, None)
        return done

    def _commit_in(
        self,
        tx: Tx,
        reply: Reply,
        took_ms: int,
        following: Call | None,
        counts: dict[str, int],
        now_ms: int,
    ) -> _Committed:
        if reply.sent or reply.outcome not in (Outcome.UNAVAILABLE, Outcome.TIMED_OUT):
            # One that was turned away at the door is a call as well, of no tokens.
            meter = self.desk.meter
            tx.ledger.close(meter.closed(self.row, reply, self.call.input_bytes, took_ms))
        else:
            tx.ledger.drop(self.row.call_id)
        for name, times in counts.items():
            tx.ledger.count(self._name, prompts().version, name, times)
        codes, lost = self._put_lines(tx)
        until_ms = now_ms + self.model.timeout_ms + LEASE_MARGIN_MS
        for item in self.planned.batch.items:
            if item.code in self.committed or item.code in codes or item.code in lost:
                continue
            if not tx.jobs.renew(item.job.job_id, item.job.token, until_ms):
                lost.add(item.code)
        row, stopped = None, False
        if following is not None and not lost.issuperset(self.pending):
            stopped = self.desk.is_stopped(tx, now_ms, self.row.turn_id)
            if not stopped:
                row = replace(self.row, call_id=self.deps.ids.new_id(), at_ms=now_ms)
                row = self.desk.meter.opened(
                    row, following.input_bytes, following.output_tokens_max
                )
                tx.ledger.open(row)
        return _Committed(frozenset(codes), frozenset(lost), row, stopped)

    @property
    def _name(self) -> str:
        return self.made_by or self.model.name

    def _put_lines(self, tx: Tx) -> tuple[set[str], set[str]]:
        """Commit the accepted lines, members before what is over them."""
        codes, lost = set[str](), set[str]()
        for item in self.planned.batch.items:
            line = self.accepted.get(item.code)
            standing = self.committed | codes
            if line is None or item.code in standing or not standing.issuperset(item.members):
                continue
            made = Made(
                text=line,
                model=self._name,
                prompt_version=prompts().version,
                evidence=self.planned.evidence,
                note=self.note,
            )
            (codes if self._put_line(tx, item, made) else lost).add(item.code)
        return codes, lost

    def _put_line(self, tx: Tx, item: Item, made: Made) -> bool:
        if tx.jobs.job(item.job.job_id) is None:
            return False  # forgotten meanwhile, with all that it was made from
        match item.target:
            case ChunkTarget(chunk=chunk):
                tx.chunks.put(replace(chunk, text=made.text))
                return True
            case LeafTarget(record=record):
                return results.commit_leaf(tx, self.deps, item.job, record, made)
            case MergeTarget(tree=tree, span=span, children=children):
                forest = results.forest_of(tx, tree)
                for child, read in zip(span.children, children, strict=True):
                    if not self._is_as_read(forest.node(child), read):
                        # What moved it on has scheduled this range anew.
                        tx.jobs.finish(item.job.job_id, item.job.token)
                        return False
                return results.commit_merge(tx, self.deps, item.job, made)
            case TurnTarget(turn=turn, nodes=nodes):
                source = turn_source(tx, turn, text_bytes_max=0)
                if all(map(self._is_as_read, source.nodes, nodes)):
                    return results.commit_turn(tx, self.deps, item.job, source, made)
                tx.jobs.finish(item.job.job_id, item.job.token)
                return False

    def _is_as_read(self, now: Node | None, read: Node | None) -> bool:
        """Whether a member is still what was read, or is what this conversation made."""
        if now is None:
            return False
        if read is None:
            return now.text in self.accepted.values()
        return (now.input_hash, now.text) == (read.input_hash, read.text)
