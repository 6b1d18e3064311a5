"""From a host's message parts to the exact payloads that are retained (§3).

A payload is byte for byte what the host holds: a text part's text, a call's input as the host
serialises it, a result's output. Attachments and our own tools' results are kept by manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec

from optchat.core.records import RecordKind
from optchat.engine.keys import event_key, pair_key
from optchat.engine.originals import without_secrets
from optchat.errors import EventConflict
from optchat.refs import BlobHash, blob_hash
from optchat.storage.searched import has_words, searched_text
from optchat.storage.words import indexed
from optchat.wire import FilePart, MessageInfo, Part, SessionInfo, SyncRequest, TextPart, ToolPart

_WHOLE_AT = "; the whole was at "


class Source(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    """One record's worth of a message, before it has a place in a session."""

    part_id: str
    facet: str  # which record of the part: a tool part gives a call and a result
    kind: RecordKind
    payload: bytes
    text: str  # what may be told of it; empty for our own results
    time_ms: int
    tool: str | None = None
    pair: str | None = None
    status: str | None = None
    truncated: str | None = None
    attachments: tuple[str, ...] = ()
    words: bytes = b""  # what the index is given of it, in UTF-8
    as_is: bool = False  # it is given the payload, which is not told twice, and ``words`` behind it
    key: str = ""  # of its event, as ``event_key`` gives it
    blob: BlobHash = BlobHash("")  # the payload's name

    @property
    def indexed(self) -> bytes:
        """What the index is given of it, in UTF-8."""
        return self.payload + self.words if self.as_is else self.words


Prepared = Mapping[str, Sequence[Source]]
"""The records of messages by their id."""


def prepare(
    request: SyncRequest, *, mask: bool, told: Callable[[str], str] | None = None
) -> dict[str, list[Source]]:
    """All of the content of a request that needs no transaction, so that none is held for it.

    ``mask``: secrets go from what is told too, as always from the words that are searched.
    ``told``: only the person's requests are told of, each as this gives it.

    Raises:
        EventConflict: a part is there twice with different content.
    """
    info = request.session
    return {
        m.id: _sources(m, info, mask=mask, told=told)
        for m in request.messages
        if m.parts is not None
    }


def _sources(
    message: MessageInfo, info: SessionInfo, *, mask: bool, told: Callable[[str], str] | None
) -> list[Source]:
    """The records of a message, in part order; a message without content gives none.

    Raises:
        EventConflict: a part is there twice with different content.
    """
    if message.role == "other":
        return []
    found: dict[tuple[str, str], Source] = {}
    for part in message.parts or []:
        for one in _of_part(message, part):
            first = found.setdefault((one.part_id, one.facet), one)
            if first.payload != one.payload:
                raise told_twice(message.id, info)
    for one in found.values():
        one.key = event_key(info.host, info.id, message.id, one.part_id, one.facet)
        one.blob = blob_hash(one.payload)
        searched = searched_text(one.kind, one.tool, one.attachments, one.payload)
        one.words = indexed(searched).encode()
        if one.words.startswith(one.payload):  # as most do
            one.as_is, one.words = True, one.words[len(one.payload) :]
        if told is None:
            one.text = _told(one, searched, mask=mask)
        else:
            is_request = one.kind is RecordKind.USER
            one.text = told(_told(one, searched, mask=mask)) if is_request else ""
    return list(found.values())


def told_twice(message_id: str, info: SessionInfo) -> EventConflict:
    """What is wrong with a part that has two contents."""
    return EventConflict(
        f"a part of message {message_id} of {info.id} is there a second time with other content; "
        "nothing was sealed.",
    )


def _told(source: Source, searched: str, *, mask: bool) -> str:
    """What may be told of a record; masked no second time."""
    same = source.kind is not RecordKind.TOOL_CALL and not source.attachments
    if mask and same and has_words(source.tool, len(source.payload)):
        return searched
    return without_secrets(source.text, mask=mask)


def _of_part(message: MessageInfo, part: Part) -> list[Source]:
    match part:
        case TextPart():
            if not part.text:
                return []
            kind = RecordKind.USER if message.role == "user" else RecordKind.ASSISTANT
            return [
                Source(
                    part_id=part.id,
                    facet="text",
                    kind=kind,
                    payload=_utf8(part.text),
                    text=_readable(part.text),
                    time_ms=message.created_ms,
                    status="synthetic" if part.synthetic else None,
                )
            ]
        case FilePart():
            manifest = _manifest(part)
            kind = RecordKind.USER if message.role == "user" else RecordKind.ASSISTANT
            return [
                Source(
                    part_id=part.id,
                    facet="file",
                    kind=kind,
                    payload=_utf8(manifest),
                    text=f"attached {part.filename or 'file'} ({part.mime})",
                    time_ms=message.created_ms,
                    attachments=(manifest,),
                )
            ]
        case ToolPart():
            return _of_tool(message, part)


def _of_tool(message: MessageInfo, part: ToolPart) -> list[Source]:
    pair = pair_key(message.id, part.id)
    call = Source(
        part_id=part.id,
        facet="call",
        kind=RecordKind.TOOL_CALL,
        payload=_utf8(part.input_json),
        text=_readable(part.input_json),
        time_ms=part.started_ms or message.created_ms,
        tool=part.tool,
        pair=pair,
    )
    result = Source(
        part_id=part.id,
        facet="result",
        kind=RecordKind.REPORT if part.report else RecordKind.TOOL_RESULT,
        payload=b"",
        text="",
        time_ms=part.ended_ms or message.created_ms,
        tool=part.tool,
        pair=pair,
        status=part.status if part.status in ("completed", "error") else "interrupted",
        truncated=_truncation(part),
        attachments=tuple(_manifest(f) for f in part.attachments),
    )
    if part.own is not None:
        # By reference only: foreign evidence must not become this session's own (§3, design).
        manifest = json.dumps(
            {"refs": part.own.refs, "snapshot": part.own.snapshot, "sha256": part.own.sha256}
        )
        result.payload = _utf8(manifest)
        return [call, result]
    output = part.output if part.output is not None else part.error
    if output is None:
        output = "(no result: the call was interrupted)"
    result.payload, result.text = _utf8(output), _readable(output)
    return [call, result]


def _truncation(part: ToolPart) -> str | None:
    if part.truncated is None:
        return None
    where = f"{_WHOLE_AT}{part.full_output_path}" if part.full_output_path else ""
    return f"{part.truncated}{where}"


def whole_output(truncated: str | None) -> str | None:
    """Where the host had the whole of an output that it cut, from a record's account of it."""
    return truncated.partition(_WHOLE_AT)[2] or None if truncated is not None else None


def _manifest(part: FilePart) -> str:
    return json.dumps(
        {
            "mime": part.mime,
            "filename": part.filename,
            "url": part.url,
            "bytes": part.content_bytes,
        },
        ensure_ascii=False,
    )


def _utf8(text: str) -> bytes:
    # A lone surrogate from a host's JavaScript string must neither fail the turn nor be altered.
    return text.encode("utf-8", "surrogatepass")


def _readable(text: str) -> str:
    """``text`` as it can be shown and searched, where half of a surrogate pair is no character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
