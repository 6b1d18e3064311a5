"""A scope as Markdown that a person can read from the top of the tree to the originals (§9)."""

from __future__ import annotations

import re
from pathlib import Path

from optchat.core.context import escape
from optchat.core.publications import Publication
from optchat.core.records import Record
from optchat.core.scopes import Scope
from optchat.core.tree import cover
from optchat.engine.forest import Forest
from optchat.engine.labels import label_of, record_label
from optchat.engine.originals import read_text
from optchat.engine.retrieve import iso
from optchat.engine.visible import Reader
from optchat.errors import BadInput, IntegrityError
from optchat.refs import PublicationRef, SessionRef, Span
from optchat.wire import ExportResponse


def export(reader: Reader, scope: Scope, folder: Path) -> ExportResponse:
    """Write ``README.md`` (the tree) and one file a publication, with its originals, below folder.

    Files are written whole, 0600 in a folder 0700; files of an earlier export are replaced.

    Raises:
        BadInput: the folder cannot be made or written, or holds something that is no export.
    """
    visibility = reader.visibility
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strangers = [p.name for p in folder.iterdir() if not _ours(p.name)]
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written: {error}.", hint="name another folder"
        ) from None
    if strangers:
        raise BadInput(
            f"{folder} holds {strangers[0]!r}, which is no export; nothing was written.",
            hint="name a new or empty folder",
        )
    forest = reader.shared()
    publications = [
        p
        for p in reader.tx.publications.range(scope.scope_id, 0, visibility.publication_end)
        if p.seen_at(visibility.csn)
    ]
    lines = [
        f"# Memory of {_md(scope.name)}",
        "",
        f"Snapshot {visibility.served}.",
        "",
        "## Tree",
        "",
    ]
    for root in cover(0, visibility.publication_end):
        lines += _branch(forest, root, 0)
    if not publications:
        lines.append("Nothing has been published yet.")
    records = 0
    for publication in publications:
        text, count = _publication(reader, forest, publication)
        records += count
        _write(folder / _file(publication.seq), text)
    _write(folder / "README.md", "\n".join(lines) + "\n")
    return ExportResponse(
        folder=str(folder),
        files=len(publications) + 1,
        publications=len(publications),
        records=records,
    )


def _ours(name: str) -> bool:
    return name == "README.md" or re.fullmatch(r"pub-\d{6,}\.md", name) is not None


def _file(seq: int) -> str:
    return f"pub-{seq:06d}.md"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _md(text: str) -> str:
    """Text of a transcript inside a Markdown line: no markup, no link, no heading of its own."""
    return re.sub(r"([\\`*_\[\]#|])", r"\\\1", escape(text))


def _branch(forest: Forest, span: Span, depth: int) -> list[str]:
    """The lines of a subtree, summaries above what they summarise."""
    node = forest.node(span)
    indent = "  " * depth
    ref = str(PublicationRef(span))
    name = f"[{ref}]({_file(span.start)})" if span.count == 1 else f"**{ref}**"
    told = f"{_md(node.label)}: {_md(node.text)}" if node is not None else "(not summarised yet)"
    lines = [f"{indent}- {name} {told}"]
    if span.count > 1:
        for child in span.children:
            lines += _branch(forest, child, depth + 1)
    return lines


def _publication(reader: Reader, forest: Forest, publication: Publication) -> tuple[str, int]:
    session = reader.tx.sessions.session_in(publication.scope_id, publication.session_id)
    leaf = forest.node(Span(publication.seq, 1))
    if session is None or leaf is None:
        raise IntegrityError(f"the session or leaf of pub:{publication.seq} is missing.")
    lines = [
        f"# pub:{publication.seq} — {_md(label_of(reader.tx, publication))}",
        "",
        _md(leaf.text),
        "",
        f"- conversation: s{session.number} {_md(publication.title)}",
        f"- opened {iso(publication.opened_ms)}, ended {iso(publication.completed_ms)}",
        "- source cover: "
        + ", ".join(
            f"`{SessionRef(session.number, publication.generation, p.span)}`"
            for p in publication.cover
        ),
        "",
        "[to the tree](README.md)",
        "",
        "## Originals",
    ]
    count = 0
    for part in publication.cover:
        records = reader.tx.records.range(part.tree, part.span.start, part.span.end_exclusive)
        for record in records:
            count += 1
            lines += _original(reader, record, session.number, publication.generation)
    return "\n".join(lines) + "\n", count


def _original(reader: Reader, record: Record, number: int, generation: int) -> list[str]:
    try:
        text, _ = read_text(
            reader.tx, record.payload, 0, record.payload_bytes, mask=reader.privacy.masks_export
        )
    except IntegrityError as error:
        text = f"(this original cannot be read: {error.message})"
    # A fence longer than any run of backticks inside cannot be closed by the text.
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    ref = SessionRef(number, generation, Span(record.seq, 1))
    return [
        "",
        f"### `{ref}` {_md(record_label(record))}, {iso(record.host_time_ms)}",
        "",
        f"sha256 `{record.payload}`, {record.payload_bytes} bytes",
        "",
        fence,
        text,
        fence,
    ]
