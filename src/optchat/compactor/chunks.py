"""An oversized payload as a recorded tree of pieces: all of it, in bounded memory (§4).

The pieces of level 0 cover every byte once. Each has a line: a model's where it was read, else a
mechanical one that says which bytes were not, with what their first lines and errors look like.
Which are read is decided by a budget for each payload, from both ends, and the leaf's label says
how much that was. Every line is a row, written with the meter's row of its call, so that a crash
goes on where it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optchat.compactor.admission import NOT_DONE
from optchat.compactor.batching import Oversized, Planned, has_failed
from optchat.compactor.conversation import LEASE_MARGIN_MS, Conversation, Ended
from optchat.compactor.desk import Desk
from optchat.compactor.items import (
    Batch,
    ChunkTarget,
    Item,
    LeafTarget,
    Target,
    code_for,
    flat,
    shown,
)
from optchat.compactor.models import Call, ChatModel, Outcome, Reply
from optchat.compactor.prompts import prompts
from optchat.compactor.rendering import first_call
from optchat.core.tree import SessionTree
from optchat.engine.deps import Deps
from optchat.engine.labels import record_label
from optchat.engine.originals import read_text
from optchat.storage.ports import Chunk, ModelCall, Store, Tx

CHUNK_BYTES = 32 * 1024
CUT_WITHIN_BYTES = 2 * 1024
"""A cut is moved back to a line's end, if there is one this near."""

FAN_IN = 32
CUTS_A_COMMIT = 64
EXTRACT_CHARS = 70

_ALARMING = re.compile(
    r"\b(?:error|fatal|panic|exception|traceback|failed|failure)\b", re.IGNORECASE
)


class _Fenced(Exception):
    """The lease was lost: whoever has it now goes on from the same rows."""


class _Stopped(Exception):
    """A cap was reached, or the model gave up; ``ended`` says which."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended)
        self.ended = ended


@dataclass(kw_only=True)
class ChunkTree:
    """The work on one oversized leaf, under the lease of its job."""

    store: Store
    deps: Deps
    desk: Desk
    model: ChatModel
    oversized: Oversized
    error: str = "no admissible line"

    def run(self) -> Ended | None:
        """Go on from what is recorded, up to the committed leaf; how it ended if it did not."""
        try:
            level = self._pieces()
            while len(level) > FAN_IN:
                level = self._above(level)
            self._leaf(level)
        except _Fenced:
            return None
        except _Stopped as stopped:
            return stopped.ended
        return None

    @property
    def plan(self) -> str:
        """The rows of another prompt, cut or budget are not mixed with these."""
        return f"{prompts().version} {CHUNK_BYTES} {self._budget}"

    @property
    def _budget(self) -> int:
        return self.deps.config.compactor.caps.payload_calls or 1_000_000

    @property
    def _size(self) -> int:
        return self.oversized.record.payload_bytes

    # --- the pieces ---

    def _pieces(self) -> list[Chunk]:
        known = [c for c in self._recorded() if c.level == 0]
        while not known or known[-1].end_exclusive < self._size:
            known += self._cut(known[-1].end_exclusive if known else 0, len(known))
        for index, chunk in enumerate(known):
            if not chunk.text:
                known[index] = self._read_piece(chunk, len(known))
        return known

    def _recorded(self) -> tuple[Chunk, ...]:
        payload = self.oversized.record.payload
        return self.store.read(lambda tx: tx.chunks.of(payload, self.plan))

    def _cut(self, start: int, position: int) -> list[Chunk]:
        """Record the next pieces; those that no model will read get their line at once."""

        def work(tx: Tx) -> list[Chunk]:
            self._hold(tx)
            found: list[Chunk] = []
            at = start
            while at < self._size and len(found) < CUTS_A_COMMIT:
                raw = tx.blobs.read(self.oversized.record.payload, at, CHUNK_BYTES)
                length = _cut_length(raw) if at + len(raw) < self._size else len(raw)
                chunk = Chunk(
                    payload=self.oversized.record.payload,
                    plan=self.plan,
                    level=0,
                    position=position + len(found),
                    start=at,
                    end_exclusive=at + length,
                    read=length if self._is_to_read(at, at + length) else 0,
                    text="",
                )
                if not chunk.read:
                    chunk = _with_text(chunk, _extract(self._text(tx, chunk), at, at + length))
                tx.chunks.put(chunk)
                found.append(chunk)
                at += length
            return found

        return self.store.write(work)

    def _is_to_read(self, start: int, end_exclusive: int) -> bool:
        """Within the payload's budget: the beginning and the end, where the news of a log is."""
        calls = max(1, self._budget - 2)  # one or two are for the lines over them
        if self._size <= calls * (CHUNK_BYTES - CUT_WITHIN_BYTES):
            return True
        half = calls // 2 * CHUNK_BYTES
        return end_exclusive <= half or start >= self._size - half

    def _read_piece(self, chunk: Chunk, count: int) -> Chunk:
        record = self.oversized.record

        def read(tx: Tx) -> str:
            return shown(self._text(tx, chunk))

        text = self.store.read(read)
        head = f"part {chunk.position + 1} of {count} of a {record_label(record)}"
        item = self._item(head, text, text, ChunkTarget(chunk))
        return _with_text(chunk, self._ask(item, "chunk"))

    def _text(self, tx: Tx, chunk: Chunk) -> str:
        count = chunk.end_exclusive - chunk.start
        mask = self.deps.config.privacy.mask
        return read_text(tx, chunk.payload, chunk.start, count, mask=mask)[0]

    # --- the lines over them ---

    def _above(self, below: list[Chunk]) -> list[Chunk]:
        level = below[0].level + 1
        known = {c.position: c for c in self._recorded() if c.level == level}
        found: list[Chunk] = []
        for position in range((len(below) + FAN_IN - 1) // FAN_IN):
            members = below[position * FAN_IN : (position + 1) * FAN_IN]
            chunk = known.get(position) or self._over(members, level, position)
            found.append(chunk)
        return found

    def _over(self, members: list[Chunk], level: int, position: int) -> Chunk:
        chunk = Chunk(
            payload=members[0].payload,
            plan=self.plan,
            level=level,
            position=position,
            start=members[0].start,
            end_exclusive=members[-1].end_exclusive,
            read=sum(m.read for m in members),
            text="",
        )
        if chunk.read:
            body = _told(members)
            head = f"{record_label(self.oversized.record)} in parts"
            return _with_text(
                chunk, self._ask(self._item(head, body, body, ChunkTarget(chunk)), "chunk")
            )
        whole = _with_text(chunk, f"bytes {chunk.start}..{chunk.end_exclusive} were not read")

        def work(tx: Tx) -> Chunk:
            self._hold(tx)
            tx.chunks.put(whole)
            return whole

        return self.store.write(work)

    def _leaf(self, top: list[Chunk]) -> None:
        record = self.oversized.record
        read = sum(c.read for c in top)
        note = f"in parts, {_amount(read)} of {_amount(self._size)} read"
        if not read:
            note = f"{_amount(self._size)} not read"
        body = _told(top)
        item = self._item(record_label(record), body, body, LeafTarget(record))
        self._ask(item, "leaf", note=note if read < self._size else "in parts")

    def _item(self, head: str, body: str, text: str, target: Target) -> Item:
        record = self.oversized.record
        return Item(
            job=self.oversized.job,
            code=code_for(f"{record.payload}\x1f{head}\x1f{text}", (), [text]),
            head=head,
            body=body,
            target=target,
            own_text=text,
            outcome=record.status if record.status in NOT_DONE else "",
        )

    # --- asking ---

    def _ask(self, item: Item, purpose: str, *, note: str = "") -> str:
        """One line, committed with the meter; raises when there is none."""
        call = first_call(
            [item],
            purpose=purpose,
            earlier="",
            foreign="",
            scope_id=self.oversized.job.scope_id,
            output_tokens_max=self.deps.config.compactor.output_tokens_max,
            again=has_failed(self.oversized.job),
        )
        row = self._opened(call)
        record = self.oversized.record
        planned = Planned(
            batch=Batch([item]),
            tree=SessionTree(record.session_id, record.generation),
            turn_id=self.oversized.turn_id,
            start=record.seq,
            end_exclusive=record.seq + 1,
        )
        talk = Conversation(
            store=self.store,
            deps=self.deps,
            desk=self.desk,
            model=self.model,
            planned=planned,
            call=call,
            row=row,
            context="",
            note=note,
        )
        ended = talk.run()
        line = talk.accepted.get(item.code)
        if line is None:
            if not talk.unfinished:
                raise _Fenced
            self.error = talk.error
            raise _Stopped(ended)
        return line

    def _opened(self, call: Call) -> ModelCall:
        def work(tx: Tx) -> ModelCall | None:
            self._hold(tx)
            now_ms = self.deps.clock.now_ms()
            if self.desk.is_stopped(tx, now_ms, self.oversized.turn_id):
                return None
            row = self.desk.row(
                self.deps, self.model.name, call, self.oversized.job, self.oversized.turn_id
            )
            tx.ledger.open(row)
            return row

        row = self.store.write(work)
        if row is None:
            self.error = "a cap is reached"
            raise _Stopped(Ended(Reply(outcome=Outcome.ANSWER, sent=False), stopped=True))
        return row

    def _hold(self, tx: Tx) -> None:
        """Keep the lease for one more step."""
        job = self.oversized.job
        until_ms = self.deps.clock.now_ms() + self.model.timeout_ms + LEASE_MARGIN_MS
        if not tx.jobs.renew(job.job_id, job.token, until_ms):
            raise _Fenced


def _cut_length(raw: bytes) -> int:
    """Where a piece ends: behind a line near its end, else between two characters."""
    line = raw.rfind(b"\n", len(raw) - CUT_WITHIN_BYTES)
    if line > 0:
        return line + 1
    end = len(raw)
    while end > len(raw) - 4 and end > 1 and raw[end - 1] & 0xC0 == 0x80:
        end -= 1
    # What is left ends with a whole character, or with the first byte of one.
    return end - 1 if end > 1 and raw[end - 1] >= 0xC0 else len(raw) if end == len(raw) else end


def _extract(text: str, start: int, end_exclusive: int) -> str:
    """What an unread piece looks like: its first line, and the first that sounds like trouble."""
    lines = [flat(line) for line in text.splitlines()[:400]]
    first = next((line for line in lines if line), "")
    alarming = next((line for line in lines if _ALARMING.search(line) and line != first), "")
    told = f"bytes {start}..{end_exclusive} were not read; they begin: {first[:EXTRACT_CHARS]}"
    return f"{told}; among them: {alarming[:EXTRACT_CHARS]}" if alarming else told


def _told(chunks: list[Chunk]) -> str:
    """Lines as members; runs of pieces that nobody read become one line."""
    told: list[str] = []
    unread: list[Chunk] = []

    def flush() -> None:
        if len(unread) > 2:
            told.append(f"- bytes {unread[0].start}..{unread[-1].end_exclusive} were not read")
        else:
            told.extend(f"- {c.text}" for c in unread)
        unread.clear()

    for chunk in chunks:
        if chunk.read:
            flush()
            told.append(f"- {chunk.text}")
        else:
            unread.append(chunk)
    flush()
    return "\n".join(told)


def _with_text(chunk: Chunk, text: str) -> Chunk:
    return Chunk(
        payload=chunk.payload,
        plan=chunk.plan,
        level=chunk.level,
        position=chunk.position,
        start=chunk.start,
        end_exclusive=chunk.end_exclusive,
        read=chunk.read,
        text=text,
    )


def _amount(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 1_000_000 else f"{count / 1_000:.0f} kB"
