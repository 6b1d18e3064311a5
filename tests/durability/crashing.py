"""A real coordinator that kills itself at the n-th commit of a named kind, before it or after.

For tests, started as a module in the place of ``optchat serve --foreground``. What it does is
decided by the environment: ``OPTCHAT_TEST_CRASH`` is ``point:side:n``, or empty to only count;
``OPTCHAT_TEST_MIGRATED`` adds a step to the schema. ``crash.json`` in the data directory says what
was in flight, ``points.json`` beside it how often each point was passed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from optchat import config
from optchat.compactor import results
from optchat.coordinator import daemon
from optchat.engine import assemble, forget, lifecycle, sync
from optchat.storage.sqlite import store as store_module
from optchat.storage.sqlite.connection import Connection
from optchat.storage.sqlite.migrations import MIGRATIONS, migrate
from optchat.storage.sqlite.trees import SqliteTrees

POINTS = (
    *("admission", "seal", "node", "publication", "view", "retirement"),
    *("forget", "scrub", "migration"),
)
"""The scrub's commit is the emptying of the log, after the file was written anew into it."""


def m0002_more(connection: Connection) -> None:
    connection.script("create table more (x integer) strict; insert into more values (1)")


MIGRATED = (*MIGRATIONS, m0002_more)


class Crasher:
    """Notes what the open transaction of a thread is about, and ends the process at its commit."""

    def __init__(self, home: Path, point: str, side: str, nth: int) -> None:
        self.home = home
        self.point, self.side, self.nth = point, side, nth
        self.passed: Counter[str] = Counter()
        self._open = threading.local()

    @property
    def marks(self) -> dict[str, Any]:
        return self._open.__dict__.setdefault("marks", {})

    def mark(self, point: str, what: Any) -> None:
        self.marks.setdefault(point, what)

    def watch(self) -> None:
        """Listen to the units of work; what they do is not changed."""
        self._after(assemble, "admit", "admission", lambda done, *_: done.turn)
        self._after(sync, "sync", "seal", lambda done, *_: _sealed(done))
        self._after(results, "_put", "node", lambda _, *a: _named(a[-1]))
        self._after(results, "publish", "publication", lambda done, *_: done and done.turn_id)
        self._after(SqliteTrees, "put_view", "view", lambda _, me, *a: [str(a[0]), a[1].revision])
        self._after(lifecycle, "retire", "retirement", lambda _, *a: [p.seq for p in a[3]])
        self._after(forget, "_close", "forget", lambda done, *_: [done.what, done.at_ms])
        self._migration()
        self._start("begin", {})
        self._start("scrub", {"scrub": True})
        self._end("commit")
        self._end("checkpoint")

    def _start(self, name: str, marks: dict[str, Any]) -> None:
        """A step of a connection from which on what is marked is its own."""
        step = getattr(Connection, name)

        @wraps(step)
        def starting(*args: Any) -> Any:
            self.marks.clear()
            self.marks.update(marks)
            return step(*args)

        setattr(Connection, name, starting)

    def _end(self, name: str) -> None:
        """The step that makes what was marked lasting."""
        step = getattr(Connection, name)

        @wraps(step)
        def ending(*args: Any, **more: Any) -> Any:
            here = dict(self.marks)
            self.marks.clear()
            self.passed.update(here.keys())
            # Whole at any moment: who watches may kill this process meanwhile, or copy the home.
            told = self.home.parent / f"points.{threading.get_ident()}"
            told.write_text(json.dumps(self.passed))
            told.replace(self.home.parent / "points.json")
            hit = self.point in here and self.passed[self.point] == self.nth
            if hit:
                (self.home / "crash.json").write_text(json.dumps(here[self.point]))
            if hit and self.side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = step(*args, **more)
            if hit:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        setattr(Connection, name, ending)

    def _after(self, owner: Any, name: str, point: str, what: Callable[..., Any]) -> None:
        function = getattr(owner, name)

        @wraps(function)
        def listening(*args: Any, **more: Any) -> Any:
            done = function(*args, **more)
            seen = what(done, *args)
            if seen:
                self.mark(point, seen)
            return done

        setattr(owner, name, listening)

    def _migration(self) -> None:
        def m0002_crashing(connection: Connection) -> None:
            m0002_more(connection)
            self.mark("migration", 2)

        if os.environ.get("OPTCHAT_TEST_MIGRATED"):
            steps = (*MIGRATIONS, m0002_crashing)
            store_module.migrate = partial(migrate, migrations=steps)


def _sealed(done: Any) -> list[Any]:
    return [int(done.session[1:]), done.generation, done.records] if done.sealed else []


def _named(node: Any) -> list[Any]:
    return [str(node.tree), node.span.start, node.span.count, node.text]


def main() -> None:
    point, _, rest = os.environ.get("OPTCHAT_TEST_CRASH", "").partition(":")
    side, _, nth = rest.partition(":")
    Crasher(config.home(), point, side, int(nth or 0)).watch()
    daemon.run(config.home())


if __name__ == "__main__":
    main()
