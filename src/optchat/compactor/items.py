"""What one line of a call is about: its source as the model sees it, and as the checks do."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from optchat.compactor.admission import NOT_DONE, Subject
from optchat.compactor.facts import Facts
from optchat.core.context import escaped_bytes
from optchat.core.publications import CoverPart
from optchat.core.records import Record, RecordKind, Turn
from optchat.core.tree import Node, ScopeTree, SessionTree, Tree
from optchat.engine.forest import Forest
from optchat.engine.labels import record_label
from optchat.engine.nodes import is_retired
from optchat.engine.originals import read_text
from optchat.engine.publish import source_cover, told_pieces
from optchat.engine.sessions import lineage as lineage_of
from optchat.errors import IntegrityError
from optchat.refs import Span, TurnId
from optchat.storage.ports import Chunk, Job, Tx

LEAF_BYTES_MAX = 24 * 1024
"""A larger payload is read through a chunk tree."""

CALL_SHOWN_BYTES = 300
"""How much of a tool's input stands beside its result, to say what it is a result of."""

RANGE_LABEL_BYTES = 36
"""The two times that a line over several publications begins with."""

CODE_LETTERS = "bcdfghjklmnpqrstvwxz"
CODE_LENGTH = 4

_EDITS = re.compile(
    r"\b(?:call|result) \S*(?:edit|write|patch|apply|create|replace|move|rename)\S*"
)
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class LeafTarget:
    """The record that a leaf stands for."""

    record: Record


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """The span over two children; None for a child that this same call makes."""

    tree: Tree
    span: Span
    children: tuple[Node | None, Node | None]


@dataclass(frozen=True, slots=True)
class TurnTarget:
    """A turn with its source cover; None for a node that this same call makes."""

    turn: Turn
    cover: tuple[CoverPart, ...]
    nodes: tuple[Node | None, ...]


@dataclass(frozen=True, slots=True)
class ChunkTarget:
    """A piece of an oversized payload, or the line over several pieces; its text is to come."""

    chunk: Chunk


Target = LeafTarget | MergeTarget | TurnTarget | ChunkTarget


@dataclass(slots=True, kw_only=True)
class Item:
    """One line to be made. ``members`` are the codes of the items that it is over."""

    job: Job
    code: str
    head: str
    body: str
    target: Target
    own_text: str
    hint: str = ""
    speaker: str = ""
    outcome: str = ""
    partly_failed: bool = False
    members: tuple[str, ...] = ()
    durable_bytes: int = 0  # what its durable members measure together, with their labels
    source_bytes: int = 0

    @property
    def is_leaf(self) -> bool:
        return isinstance(self.target, LeafTarget)

    def rendered(self) -> str:
        return f"[{self.code} {self.head}]\n{self.body}\n[/{self.code}]\n"


@dataclass(slots=True)
class Batch:
    """The items of one call, in the order of their sources, members before what is over them."""

    items: list[Item] = field(default_factory=list[Item])
    _facts: dict[str, Facts] = field(default_factory=dict[str, Facts])

    def facts(self, text: str) -> Facts:
        """The facts of a text, kept as long as the batch: every line is checked against many."""
        return self._facts.setdefault(text, Facts(text))

    def by_code(self, code: str) -> Item:
        return next(i for i in self.items if i.code == code)

    def source_text(self, item: Item) -> str:
        """All that an item may speak of: its own text and what its members may."""
        parts = [
            item.own_text,
            item.hint,
            *(self.source_text(self.by_code(m)) for m in item.members),
        ]
        return "\n".join(p for p in parts if p)

    def subject(self, item: Item, context: str, lines: dict[str, str]) -> Subject:
        """What the line of ``item`` is checked against; ``lines`` are those of its members."""
        text = self.source_text(item)
        members_bytes = None
        if isinstance(item.target, MergeTarget):
            members_bytes = item.durable_bytes + sum(
                escaped_bytes(lines.get(m, "")) + _label_bytes(self.by_code(m))
                for m in item.members
            )
        others: tuple[Facts, ...] = ()
        if item.is_leaf:
            others = tuple(
                self.facts(o.own_text) for o in self.items if o.is_leaf and o is not item
            )
        return Subject(
            kind=item.head,
            source=self.facts(text),
            context=self.facts(context),
            speaker=item.speaker,
            outcome=item.outcome,
            partly_failed=item.partly_failed
            or any(self._failed(self.by_code(m)) for m in item.members),
            members_bytes=members_bytes,
            edits=bool(_EDITS.search(f"{item.head}\n{item.body}"))
            or any(bool(_EDITS.search(self.by_code(m).head)) for m in item.members),
            others=others,
        )

    def _failed(self, item: Item) -> bool:
        return (
            item.outcome in NOT_DONE
            or item.partly_failed
            or any(self._failed(self.by_code(m)) for m in item.members)
        )


def _label_bytes(item: Item) -> int:
    """What a member's own line has beside its text, and the line over it has not."""
    return len(item.head) if item.is_leaf else 0


def code_for(key: str, taken: Iterable[str], texts: Iterable[str]) -> str:
    """Four letters made from what the line is of, which no source holds as a head or foot.

    The same source gets the same code, so that a call that is made again is the same bytes; a line
    cannot slide to its neighbour, since codes do not follow each other; a source cannot close its
    own block, since it would have to hold a digest of itself.
    """
    used, held = set(taken), list(texts)
    number = 0
    while True:
        hashed = hashlib.sha256(f"{key}\x1f{number}".encode("utf-8", "surrogatepass")).digest()
        code = "".join(CODE_LETTERS[b % len(CODE_LETTERS)] for b in hashed[:CODE_LENGTH])
        marks = (f"[{code}", f"[/{code}")
        if code not in used and not any(m in text for text in held for m in marks):
            return code
        number += 1


def shown(text: str) -> str:
    """A source as it goes into a prompt: nothing that is no character."""
    return _UNSHOWN.sub("\ufffd", text.replace("\r\n", "\n"))


def flat(text: str) -> str:
    """On one line, for the places where a line break would begin something else."""
    return " ".join(shown(text).split())


def leaf_item(tx: Tx, job: Job, record: Record, taken: Iterable[str], *, mask: bool) -> Item:
    """The item of one record, whose payload is within ``LEAF_BYTES_MAX``."""
    text = shown(read_text(tx, record.payload, 0, LEAF_BYTES_MAX + 1, mask=mask)[0])
    head = record_label(record)
    hint, body = "", text
    if record.kind in (RecordKind.TOOL_RESULT, RecordKind.REPORT):
        hint = _call_of(tx, record, mask=mask)
        if hint:
            body = f"(of the call: {hint})\n{text}"
    speaker = {
        RecordKind.USER: "person",
        RecordKind.ASSISTANT: "agent",
        RecordKind.REPORT: "agent",
    }.get(record.kind, "tool")
    if record.status == "synthetic":
        speaker = "tool"
    return Item(
        job=job,
        code=code_for(f"{job.target}\x1f{record.payload}", taken, [text]),
        head=head,
        body=body,
        target=LeafTarget(record),
        own_text=text,
        hint=hint,
        speaker=speaker,
        outcome=record.status if record.status in NOT_DONE else "",
        source_bytes=len(body.encode("utf-8", "replace")),
    )


def _call_of(tx: Tx, record: Record, *, mask: bool) -> str:
    if record.pair is None or not record.seq:
        return ""
    tree = SessionTree(record.session_id, record.generation)
    call = tx.records.record(tree, record.seq - 1)
    if call is None or call.pair != record.pair or call.kind is not RecordKind.TOOL_CALL:
        return ""
    text, _ = read_text(tx, call.payload, 0, CALL_SHOWN_BYTES, mask=mask)
    return flat(text.rstrip("\ufffd"))


def merge_item(
    job: Job, forest: Forest, span: Span, made_here: dict[tuple[str, Span], Item]
) -> Item | None:
    """The item over two children, each durable or made in this call; None if one is neither."""
    tree = forest.tree
    children: list[Node | None] = []
    members: list[str] = []
    told: list[str] = []
    body: list[str] = []
    durable_bytes, outcomes = 0, list[bool]()
    for child in span.children:
        owner = forest.owner(child)
        here = made_here.get((str(owner), child))
        node = forest.node(child) if here is None else None
        if here is not None:
            members.append(here.code)
            body.append(f"= {here.code}")
        elif node is None:
            return None
        elif not is_retired(node):
            line = node_line(node)
            told.append(line)
            body.append(f"- {line}")
            durable_bytes += escaped_bytes(node.text) + len(node.label)
            outcomes.append(is_failed(node.label))
        children.append(node)
    key = f"{job.target}\x1f{job.input_hash}\x1f" + "\x1f".join(body)
    rendered = "\n".join(body)
    return Item(
        job=job,
        code=code_for(key, [i.code for i in made_here.values()], [rendered]),
        head="range",
        body=rendered,
        target=MergeTarget(tree, span, (children[0], children[1])),
        own_text="\n".join(told),
        outcome="failed" if outcomes and all(outcomes) and not members else "",
        partly_failed=any(outcomes),
        members=tuple(members),
        durable_bytes=durable_bytes - (RANGE_LABEL_BYTES if isinstance(tree, ScopeTree) else 0),
        source_bytes=sum(len(t.encode()) for t in told),
    )


def node_line(node: Node) -> str:
    """A durable node as a member: its label, where it has one, and its text."""
    text = flat(node.text)
    return f"{node.label}: {text}" if node.label and node.span.count == 1 else text


def is_failed(label: str) -> bool:
    return any(word in NOT_DONE for word in label.split())


def turn_item(tx: Tx, job: Job, made_here: dict[tuple[str, Span], Item]) -> Item | None:
    """The item of a closed turn; None while a node of its cover is neither durable nor made here.

    The request and the last answer stand first, by their leaves; the cover tells the rest.
    """
    turn = tx.turns.turn(TurnId(job.target))
    if turn is None or turn.end_seq_exclusive is None or turn.outcome is None:
        raise IntegrityError(f"the turn {job.target} of a job is missing or open.")
    history = lineage_of(tx, SessionTree(turn.session_id, turn.generation))
    forest = Forest(tx, SessionTree(turn.session_id, turn.generation), lineage=history)
    parts = source_cover(history, turn)
    members: dict[str, None] = {}
    told: list[str] = []
    body: list[str] = []

    def add(lead: str, owner: SessionTree, span: Span) -> bool:
        here = made_here.get((str(owner), span))
        if here is not None:
            members.setdefault(here.code)
            body.append(f"{lead}= {here.code}")
            return True
        node = forest.node(span)
        if node is None:
            return False
        told.append(node_line(node))
        body.append(f"{lead}{node_line(node)}")
        return True

    request, answer = _ends(tx, forest, turn)
    if request is not None:
        add("asked: ", request[0], Span(request[1], 1))
    nodes: list[Node | None] = []
    for part in parts:
        is_here = (str(part.tree), part.span) in made_here
        # What is made anew here is not what stands there yet.
        nodes.append(None if is_here else forest.node(part.span))
        if part.span.count == 1 and part.span.start in _seqs(request, answer):
            if not is_here and nodes[-1] is None:
                return None
            continue
        if not add("- ", part.tree, part.span):
            return None
    if answer is not None and not add("answered: ", answer[0], Span(answer[1], 1)):
        return None
    rendered = "\n".join(body)
    key = f"{job.target}\x1f{job.input_hash}\x1f{rendered}"
    return Item(
        job=job,
        code=code_for(key, [i.code for i in made_here.values()], [rendered]),
        head=f"turn {turn.outcome.value}",
        body=rendered,
        target=TurnTarget(turn, parts, tuple(nodes)),
        own_text="\n".join(told),
        outcome=turn.outcome.value if turn.outcome.value in NOT_DONE else "",
        members=tuple(members),
        source_bytes=sum(len(t.encode()) for t in told),
    )


_End = tuple[SessionTree, int]


def _ends(tx: Tx, forest: Forest, turn: Turn) -> tuple[_End | None, _End | None]:
    """Where the person's request and the agent's last words of a turn stand."""
    assert forest.lineage is not None
    request: _End | None = None
    answer: _End | None = None
    for piece in told_pieces(forest.lineage, turn):
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive):
            synthetic = record.status == "synthetic"
            if record.kind is RecordKind.USER and not synthetic and request is None:
                request = (piece.tree, record.seq)
            if record.kind is RecordKind.ASSISTANT:
                answer = (piece.tree, record.seq)
    return request, answer


def _seqs(*ends: _End | None) -> set[int]:
    return {end[1] for end in ends if end is not None}


def retrieved_refs(payload: bytes) -> list[str]:
    """The refs in the manifest of one of our own tools' results."""
    try:
        refs = json.loads(payload).get("refs", [])
    except (ValueError, AttributeError):
        return []
    return [r for r in refs if isinstance(r, str)][:8]
