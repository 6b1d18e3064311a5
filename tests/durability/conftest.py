"""A service over a real store, with enough in it that each kind of damage has something to hit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from optchat.coordinator.doctor import examine
from optchat.storage.sqlite.connection import Connection
from optchat.wire import DoctorRequest, DoctorResponse
from tests.engine.conftest import Bench

LONG = "The broker keeps every message until its consumer acknowledges it. " * 12


class Patient(Bench):
    """Two sessions with merged views, one edit, a fork, and everything published."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            own_high_bytes=1_500,
            own_low_bytes=900,
            shared_high_bytes=700,
            shared_low_bytes=400,
        )
        self.a, self.b = self.session("A"), self.session("B")
        self.talk(3)
        self.a.edited(4, "I take it back.")
        self.a.sync(idle=True)
        self.talk(1)
        self.c = self.a.fork("C")
        self.c.turn("in the fork", LONG + "forked")
        self.drain()

    def talk(self, count: int = 1) -> None:
        for turn in range(count):
            for session in (self.a, self.b):
                session.turn(f"request {turn}", LONG + str(turn), tools=(("read", {}, LONG),))
                self.drain()

    def run_sql(self, *statements: str) -> None:
        """Reach around the store, as damage would, and open it again."""
        self.store.close()
        connection = Connection(self.folder / "memory.db", readonly=False)
        try:
            connection.run("pragma foreign_keys = 0")
            connection._db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            for sql in statements:
                assert connection.run(sql), sql
        finally:
            connection.close()
        self.reopen()

    def examine(self, *, full: bool = True, repair: bool = False) -> DoctorResponse:
        return examine(self.store, self.deps, DoctorRequest(full=full, repair=repair))

    def kept(self) -> list[tuple[object, bytes]]:
        """Every record with its original."""
        own = (("A", 0), ("A", 1), ("B", 0), ("C", 0))
        found = [record for name, number in own for record in self.records(name, number)]
        return [(record, self.payload(record)) for record in found]


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    made = Patient(tmp_path)
    yield made
    made.store.close()
