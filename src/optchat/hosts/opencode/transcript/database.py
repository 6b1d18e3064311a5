"""The host's database, opened to be looked at.

The file is another program's and in use. It is opened read-only, nothing is ever written to it or
locked for longer than one session takes to read, and what the host writes meanwhile is seen by the
next read.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from optchat.errors import BadInput
from optchat.hosts.opencode.transcript import place

BUSY_MS = 2_000
"""How long a read waits for a host that has its file to itself for a moment."""


class Database:
    """One file; ``name`` is the plugin's name for it, ``tables`` are those that it has.

    ``is_at_rest``: no process had it open, so that nobody is at work in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = place.identity(path)
        self.is_at_rest = not place.is_open(path)
        try:
            self._db: Any = apsw.Connection(
                f"file:{quote(str(path))}?mode=ro",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
            self._db.set_busy_timeout(BUSY_MS)
            names = self._db.execute("select name from sqlite_schema")
            self.tables = frozenset(row[0] for row in names)
        except apsw.Error as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def moment(self) -> Generator[Any]:
        """A connection in one short read transaction.

        Raises:
            BadInput: the file cannot be read.
        """
        try:
            self._db.execute("begin")
            try:
                yield self._db
            finally:
                self._db.execute("rollback")
        except apsw.Error as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: apsw.Error) -> BadInput:
        return BadInput(
            f"{self.path} cannot be read ({error}); nothing was taken in or taken back for it.",
            hint="look whether the file is there and yours, then run the command again",
        )
