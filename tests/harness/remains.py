"""Looks for planted words in everything that a data directory holds, as a thief of the disk would.

The files are copied first, by another process: opening a store's files in the process that has it
open would drop its locks. A word counts as found whole, JSON-escaped, in base64 at any alignment,
by its halves (a page boundary may cut it), in any column, in any decompressed chunk of a payload,
and in the word index, where it is spread over a prefix tree.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HALF = 6
"""Bytes of a half below which it would be found by chance."""


def remains(home: Path, words: Iterable[str], scratch: Path) -> dict[str, list[str]]:
    """Where each word is still found; nothing for a word that is gone."""
    copied(home, scratch)
    found: dict[str, list[str]] = {}
    wanted = {word: tuple(forms(word)) for word in words}
    for name, data in places(scratch):
        for word, shapes in wanted.items():
            if any(shape in data for shape in shapes):
                found.setdefault(word, []).append(name)
    return found


def copied(home: Path, scratch: Path) -> Path:
    """A copy of the folder, made by another process, in the place of an earlier one."""
    shutil.rmtree(scratch, ignore_errors=True)
    subprocess.run(["cp", "-r", str(home), str(scratch)], check=True)
    return scratch


def forms(word: str) -> Iterator[bytes]:
    """The word as it may be written."""
    raw = word.encode()
    yield raw
    yield json.dumps(word)[1:-1].encode()
    for shift in range(3):
        # Only the characters that the word alone decides.
        coded = base64.b64encode(b"\0" * shift + raw)
        yield coded[(shift * 8 + 5) // 6 : len(raw) * 8 // 6 - 1]
    for half in (raw[: len(raw) // 2], raw[len(raw) // 2 :]):
        if len(half) >= HALF:
            yield half


def places(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file as it is, then everything in the stores among them."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    stores: list[Path] = []
    for path in files:
        data = path.read_bytes()
        yield path.name, data
        if data.startswith(b"SQLite format 3"):
            stores.append(path)
    for path in stores:
        yield from rows(path)


def rows(path: Path) -> Iterator[tuple[str, bytes]]:
    connection: Any = apsw.Connection(str(path))
    tables = [
        name
        for name, sql in connection.execute(
            "select name, sql from sqlite_schema where type = 'table'"
        )
        if "fts5" not in (sql or "").lower() and "_fts_" not in name
    ]
    for table in tables:
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        held = [*connection.execute(f"select * from {table}")]
        for column, values in zip(columns, zip(*held, strict=True), strict=False):
            told = (v if isinstance(v, bytes) else str(v).encode() for v in values)
            yield f"{path.name}:{table}.{column}", b"\n".join(told)
        if table == "pack":
            packed = [dict(zip(columns, row, strict=True)) for row in held]
            plain = (zstd.decompress(row["data"]) for row in packed if row["zstd"])
            yield f"{path.name}:payload", b"\n".join(plain)
    connection.close()
    yield f"{path.name}:words", vocabulary(path)


def without_payloads(path: Path) -> None:
    """Take the originals out of a copy of a store, and every byte of them."""
    connection: Any = apsw.Connection(str(path))
    connection.execute("pragma foreign_keys = off")
    connection.execute("delete from pack")
    connection.execute("vacuum")
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()


def vocabulary(path: Path) -> bytes:
    """Every word of every word index of a store."""
    connection: Any = apsw.Connection(str(path))
    schema = connection.execute("select name, sql from sqlite_schema where type = 'table'")
    terms: list[str] = []
    for name, sql in [*schema]:
        if "using fts5 " in f"{sql or ''} ".lower().replace("(", " "):
            connection.execute(
                f"create virtual table temp.v_{name} using fts5vocab(main, {name}, row)"
            )
            terms += [row[0] for row in connection.execute(f"select term from temp.v_{name}")]
    connection.close()
    return "\n".join(terms).encode()
