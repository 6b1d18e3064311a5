"""What a new request's own words bring up from other conversations, where that is wanted (§8).

Looked up before the request is admitted, so that no writer waits for it, and held against the
turn's own snapshot when it is: what that does not see is left out.
"""

from __future__ import annotations

import re

from optchat.core import context
from optchat.core.cues import is_cued, without_cues
from optchat.core.records import Lineage, RecordKind, Turn
from optchat.core.snapshots import pinned
from optchat.engine.assemble import find
from optchat.engine.deps import Deps
from optchat.engine.news import Recalled
from optchat.engine.pins import fresh_pin
from optchat.engine.recall.answer import search
from optchat.engine.recall.stopwords import STOP_WORDS
from optchat.engine.sessions import own_lineage
from optchat.engine.visible import Reader
from optchat.errors import OptChatError
from optchat.limits import RECALLED_LINES_MAX
from optchat.storage.ports import Tx
from optchat.wire import AssembleRequest, AssembleResponse

_ASKED_BYTES = 4_096
_WORDS_MAX = 24
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_WORD = re.compile(r"\w(?:[\w./-]*\w)?")


def recollect(tx: Tx, deps: Deps, request: AssembleRequest) -> tuple[Recalled, ...]:
    """The best that a new request's words find outside of its session and its family.

    Nothing where it is switched off or earlier work is not referred to, where the turn is under way
    already, or where no hit holds enough of the words.
    """
    wanted = deps.config.recall.automatic
    if wanted == "off":
        return ()
    opened = find(tx, deps, request)
    if isinstance(opened, AssembleResponse):
        return ()
    session, turn = opened
    lineage = own_lineage(tx, session)
    asked = _asked(tx, lineage, turn) if turn.pin is None and not session.isolated else ""
    if not asked or (wanted == "cues" and not is_cued(asked)):
        return ()
    words = _words(without_cues(asked))
    if not words:
        return ()
    pin = fresh_pin(tx, session, turn)
    reader = Reader(tx, pinned(pin, session.session_id, lineage), deps.config.privacy)
    try:
        hits = search(reader, query=" ".join(words), now_ms=deps.clock.now_ms()).data["hits"]
    except OptChatError:
        return ()  # a request is not held up by what its words would have found
    least = min(2, len(words)) if wanted == "cues" else max(2, (len(words) + 1) // 2)
    found: list[Recalled] = []
    size = len(context.recalled_block(["x"]).encode())
    for hit in hits:
        # Originals only: a summary may be of several conversations, this one among them.
        if len(hit["matched"]) < least or hit["kind"] in ("summary", "title"):
            continue
        line = _line(hit)
        size += len(line.encode())
        if size > deps.config.recall.automatic_bytes or len(found) == RECALLED_LINES_MAX:
            break
        found.append(Recalled(hit["ref"], line))
    return tuple(found)


def _asked(tx: Tx, lineage: Lineage, turn: Turn) -> str:
    """What the person said to open the turn, and nothing that a host or plugin put beside it."""
    return "\n".join(
        tx.blobs.read(record.payload, 0, _ASKED_BYTES).decode("utf-8", "replace")
        for piece in lineage.owners(turn.start_seq, lineage.length)
        for record in tx.records.range(piece.tree, piece.start, piece.end_exclusive)
        if record.kind is RecordKind.USER and record.status != "synthetic"
    )[:_ASKED_BYTES]


def _words(text: str) -> list[str]:
    """The words that may say what is meant; of a script without spaces, each two characters."""
    found: dict[str, None] = {}
    for word in _WORD.findall(text):
        run = _UNSPACED.search(word)
        if run is not None:
            told = word if len(word) <= 2 else run[0]
            found |= dict.fromkeys(told[at : at + 2] for at in range(max(1, len(told) - 1)))
        elif len(word) > 1 and word not in STOP_WORDS:
            found[word] = None
    return list(found)[:_WORDS_MAX]


def _line(hit: dict[str, object]) -> str:
    label = f"{hit['kind']} {hit.get('time') or ''}".strip()
    text = str(hit["excerpt"])
    while True:
        try:
            return context.line(str(hit["ref"]), label, text)
        except ValueError:  # over the bound of a line
            text = f"{text[: len(text) * 3 // 4]}…"
