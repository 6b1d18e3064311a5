"""A disk that can lose power at every write and sync, under the real SQLite.

``Disk`` is SQLite's own file system with an ear on it: files are written for real, so the store
under test runs as ever, shared memory and locks included, and every write, truncation, sync,
deletion and rename is noted in order. ``Replay`` goes through the notes and, at any of them, lays
out what a disk would hold whose power went right there: what was synced, and of what was not a
random half, by sectors of 512 bytes. A name is as lasting as its folder's last sync: a file that
was made, deleted or renamed since may be there or not.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from optchat.storage.sqlite import migrations

SECTOR = 512
JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
"""The files whose first sync also syncs the folder, as SQLite's file system for Unix does."""


class Note(NamedTuple):
    """One thing that a file system was asked for. ``data`` is bytes, a length or a new name."""

    verb: str  # create, write, truncate, sync, delete, rename, sync_folder
    name: str
    offset: int = 0
    data: Any = None


class Disk(apsw.VFS):
    """The default file system of this process while it is in use; ``notes`` is what it did.

    ``writes_left``, once set, is how many writes there is room for; each one after those raises
    ``refusal``.
    """

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.writes_left: int | None = None
        self.refusal: type[Exception] = apsw.FullError
        self._known: set[str] = set()
        self._lock = threading.Lock()
        super().__init__("powerloss", "unix", makedefault=True)

    def note(self, verb: str, name: str, offset: int = 0, data: Any = None) -> None:
        with self._lock:
            self.notes.append(Note(verb, Path(name).name, offset, data))

    def take_room(self) -> None:
        if self.writes_left is not None:
            if self.writes_left <= 0:
                raise self.refusal
            self.writes_left -= 1

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        made = _File(self, path, name, flags)
        if path is not None and path not in self._known:
            self._known.add(path)
            self.note("create", path)
        return made

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802
        super().xDelete(name, sync_folder)
        self._known.discard(name)
        self.note("delete", name)
        if sync_folder:
            self.note("sync_folder", name)

    def renamed(self, source: Path, target: Path) -> None:
        self._known.discard(str(source))
        self._known.add(str(target))
        self.note("rename", str(source), data=target.name)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, path: str | None, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = path
        self._syncs_folder = bool(flags[0] & JOURNALS)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.take_room()
        super().xWrite(data, offset)
        if self._path is not None:
            self._disk.note("write", self._path, offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        super().xTruncate(size)
        if self._path is not None:
            self._disk.note("truncate", self._path, data=size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        if self._path is not None:
            self._disk.note("sync", self._path)
            if self._syncs_folder:
                self._disk.note("sync_folder", self._path)
                self._syncs_folder = False


@contextlib.contextmanager
def disk() -> Iterator[Disk]:
    """Every connection that is opened inside goes through the disk; so do the migration's files."""
    made = Disk()
    replace, sync = Path.replace, migrations.sync_path

    def renaming(self: Path, target: Path) -> Path:
        done = replace(self, target)
        made.renamed(self, Path(target))
        return done

    def syncing(path: Path) -> None:
        sync(path)
        made.note("sync_folder" if path.is_dir() else "sync", str(path))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", renaming)
        patched.setattr(migrations, "sync_path", syncing)
        try:
            yield made
        finally:
            made.unregister()


@dataclass(slots=True)
class _Content:
    """A file's bytes as they were synced last, and what came after, in order."""

    synced: bytearray = field(default_factory=bytearray)
    since: list[Note] = field(default_factory=list)

    def settle(self) -> None:
        for note in self.since:
            _apply(self.synced, note)
        self.since.clear()

    def survives(self, chance: random.Random) -> bytes:
        """What the platters hold: the synced bytes, and about half of the sectors written since."""
        held = bytearray(self.synced)
        for note in self.since:
            if note.verb == "truncate":
                if chance.random() < 0.5:
                    _apply(held, note)
                continue
            for piece in _sectors(note):
                if chance.random() < 0.5:
                    _apply(held, piece)
        return bytes(held)


def _sectors(note: Note) -> Iterator[Note]:
    start, end = note.offset, note.offset + len(note.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield Note("write", note.name, start, note.data[start - note.offset : stop - note.offset])
        start = stop


def _apply(held: bytearray, note: Note) -> None:
    if note.verb == "truncate":
        del held[note.data :]
        return
    held.extend(bytes(max(0, note.offset - len(held))))
    held[note.offset : note.offset + len(note.data)] = note.data


class Replay:
    """The notes gone through up to some point; ``lay_out`` is the power cut there."""

    def __init__(self, notes: list[Note]) -> None:
        self._notes = notes
        self._at = 0
        self._live: dict[str, _Content] = {}
        self._lasting: dict[str, _Content] = {}
        self._names: list[tuple[Note, _Content]] = []

    def go_to(self, position: int) -> None:
        """Do the notes before ``position``; only forward."""
        while self._at < position:
            self._do(self._notes[self._at])
            self._at += 1

    def _do(self, note: Note) -> None:
        match note.verb:
            case "create":
                self._live[note.name] = _Content()
                self._names.append((note, self._live[note.name]))
            case "delete" | "rename":
                content = self._live.pop(note.name)
                self._names.append((note, content))
                if note.verb == "rename":
                    self._live[note.data] = content
            case "sync":
                self._live[note.name].settle()
            case "sync_folder":
                self._lasting = dict(self._live)
                self._names.clear()
            case _:
                self._live[note.name].since.append(note)

    def lay_out(self, folder: Path, chance: random.Random) -> None:
        """Write the files of a disk whose power went here."""
        names = dict(self._lasting)
        for note, content in self._names:
            if chance.random() < 0.5:
                continue
            if note.verb == "create":
                names[note.name] = content
            else:
                names.pop(note.name, None)
                if note.verb == "rename":
                    names[note.data] = content
        for name, content in names.items():
            (folder / name).write_bytes(content.survives(chance))
