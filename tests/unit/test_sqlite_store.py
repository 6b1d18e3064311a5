"""What only the SQLite store has: files, migrations, the writer thread and crashes (I6, I7)."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import stat
import subprocess
import sys
import threading
import weakref
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

import optchat
from optchat.core.records import Generation, Lineage, Record, RecordKind, Segment
from optchat.core.snapshots import Visibility
from optchat.core.tree import SessionTree
from optchat.errors import (
    BadInput,
    DiskFull,
    Fenced,
    IntegrityError,
    SchemaTooNew,
    StorageError,
    StoreBusy,
    UnsafeSQLite,
)
from optchat.limits import BLOB_CHUNK_BYTES
from optchat.refs import BlobHash, Csn, ProjectId, ScopeId, SessionId, TurnId
from optchat.storage.ports import Tx
from optchat.storage.sqlite import SqliteStore, index
from optchat.storage.sqlite import connection as connection_module
from optchat.storage.sqlite import writer as writer_module
from optchat.storage.sqlite.blobs import SqliteBlobs
from optchat.storage.sqlite.connection import Connection, Sql, check_library
from optchat.storage.sqlite.migrations import MIGRATIONS, backup_path, backups, migrate
from optchat.storage.sqlite.packs import Opened, packed, zstd
from optchat.storage.words import indexed
from tests.harness.found import records
from tests.harness.payloads import put_many

TREE = SessionTree(SessionId("a"), 0)
READER = Visibility(
    scope_id=ScopeId("project:p"),
    csn=Csn(0),
    publication_end=0,
    policy_revision=1,
    retention_epoch=1,
    own=Lineage((Segment(TREE, 0, 10**6),)),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "store.db"


@pytest.fixture
def store(path):
    made = SqliteStore(path)
    yield made
    made.close()


def put(store: SqliteStore, key: str, value: str = "value") -> None:
    store.write(lambda tx: tx.meta.put(key, value))


def get(store: SqliteStore, key: str) -> str | None:
    return store.read(lambda tx: tx.meta.get(key))


def seal(tx: Tx, text: str) -> int:
    generation = tx.sessions.generation(TREE.session_id, TREE.generation)
    if generation is None:
        generation = Generation(session_id=TREE.session_id, number=TREE.generation)
        tx.sessions.put_generation(generation)
    record = Record(
        session_id=TREE.session_id,
        generation=TREE.generation,
        seq=generation.length,
        event_key=f"{generation.length}",
        turn_id=TurnId("t"),
        message_id="m",
        kind=RecordKind.USER,
        host_time_ms=1,
        sealed_ms=1,
        payload=tx.blobs.put(text.encode()),
        payload_bytes=len(text),
        project_id=ProjectId("p"),
    )
    tx.records.append([record], [indexed(text).encode()])
    return record.seq


def raw(path: Path, sql: str, args: tuple = ()) -> list:
    """Reach around the store, as damage or another program would."""
    connection = Connection(path, readonly=False)
    try:
        return connection.all(sql, args)
    finally:
        connection.close()


# Files


def test_the_files_and_the_folder_are_the_owners_alone(path, store):
    put(store, "key")
    found = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert found == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_wide_file_is_narrowed_and_a_folder_that_was_there_is_left_alone(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "store.db"
    path.touch(0o644)
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_closing_leaves_one_file_and_reopening_reads_the_same(path):
    def everything(tx: Tx) -> object:
        hits = records(tx, READER, "word")
        return tx.records.range(TREE, 0, 99), hits, tx.meta.csn(), tx.meta.get("key")

    store = SqliteStore(path)
    store.write(lambda tx: [seal(tx, f"word {n}") for n in range(20)])
    store.write(lambda tx: tx.meta.next_csn())
    put(store, "key")
    before = store.read(everything)
    store.close()
    assert [p.name for p in path.parent.iterdir()] == ["store.db"]
    store = SqliteStore(path)
    assert store.read(everything) == before
    assert store.damage() == ()
    store.close()


def test_closing_gives_unused_pages_back(path, store):
    for n in range(40):
        put(store, f"large {n}", "x" * 8_000)
    full = raw(path, "pragma page_count")[0][0]
    store.write(lambda tx: [tx.meta.put(f"large {n}", "") for n in range(40)] and None)
    assert raw(path, "pragma freelist_count")[0][0] > 40
    store.close()
    assert raw(path, "pragma freelist_count")[0][0] == 0
    assert path.stat().st_size < (full - 40) * 4096


def test_a_database_of_another_program_is_not_touched(tmp_path):
    path = tmp_path / "other.db"
    path.touch()
    connection = Connection(path, readonly=False)
    connection.run("pragma application_id = 4711")
    connection.run("create table theirs (x)")
    connection.close()
    with pytest.raises(StorageError, match="another program"):
        SqliteStore(path)


def test_a_file_that_is_no_database_is_not_touched(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but long enough to look at " * 50)
    before = path.read_bytes()
    with pytest.raises(IntegrityError):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "file" / "store.db")


# The library


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_an_sqlite_with_the_wal_reset_defect_is_refused(version):
    with pytest.raises(UnsafeSQLite):
        check_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "4.0.0"])
def test_a_repaired_sqlite_is_taken(version):
    check_library(version)


def test_there_is_one_sqlite_library_under_src():
    """Two in one process drop each other's locks. Our store's is known to its connection and to
    what names its errors; the others read a host's file, build a baseline or take words apart."""
    root = Path(optchat.__file__).parent
    texts = {p.relative_to(root).as_posix(): p.read_text("utf-8") for p in root.rglob("*.py")}
    stdlib = re.compile(r"^\s*(import|from)\s+sqlite3\b", re.MULTILINE)
    ours = re.compile(r"^\s*(import|from)\s+apsw\b", re.MULTILINE)
    assert [name for name, text in texts.items() if stdlib.search(text)] == []
    assert sorted(name for name, text in texts.items() if ours.search(text)) == [
        "evaluation/hoststore.py",
        "evaluation/plain.py",
        "hosts/opencode/transcript/database.py",
        "storage/sqlite/connection.py",
        "storage/sqlite/errors.py",
        "storage/words.py",
    ]


def test_the_pragmas_that_durability_and_deletion_lean_on_are_set(store):
    names = ("journal_mode", "synchronous", "secure_delete", "foreign_keys", "trusted_schema")
    found = [store._writer.do(lambda c, n=name: c.one(f"pragma {n}")) for name in names]
    assert found == [("wal",), (2,), (1,), (1,), (0,)]
    with pytest.raises(StorageError):
        store._writer.do(lambda c: c.one('select "a string, not a column"'))


# Migrations


def m0002_more(connection: Connection) -> None:
    connection.script("create table more (x integer) strict; insert into more values (1)")


def m0002_fails(connection: Connection) -> None:
    connection.script("create table more (x integer) strict")
    connection.run("insert into nowhere values (1)")


def migrate_with(path: Path, step) -> None:
    connection = Connection(path, readonly=False)
    try:
        migrate(connection, path, now_ms=7, migrations=(*MIGRATIONS, step))
    finally:
        connection.close()


def test_a_schema_from_the_future_is_refused_and_not_touched(path):
    SqliteStore(path).close()
    raw(path, f"pragma user_version = {len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew):
        SqliteStore(path)
    assert path.read_bytes() == before
    assert backups(path) == ()


def test_each_step_is_recorded(path):
    SqliteStore(path).close()
    names = [row[0] for row in raw(path, "select name from migration order by number")]
    assert names == [step.__name__ for step in MIGRATIONS]


def test_a_store_that_holds_something_is_copied_before_it_is_migrated(path):
    store = SqliteStore(path)
    put(store, "key")
    store.close()
    migrate_with(path, m0002_more)
    assert raw(path, "select x from more") == [(1,)]
    assert raw(path, "select applied_ms from migration where number = 2") == [(7,)]
    (backup,) = backups(path)
    assert backup == backup_path(path, 1)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    copy = SqliteStore(backup)
    assert get(copy, "key") == "value"
    copy.close()


def test_a_step_that_fails_leaves_the_schema_before_it(path):
    store = SqliteStore(path)
    put(store, "key")
    store.close()
    with pytest.raises(StorageError):
        migrate_with(path, m0002_fails)
    store = SqliteStore(path)
    assert get(store, "key") == "value"
    named = "select name from sqlite_schema where name = 'more'"
    assert store._writer.do(lambda c: c.all(named)) == []
    assert store.drop_backups() == 1
    assert backups(path) == ()
    store.close()
    migrate_with(path, m0002_more)


def test_a_new_store_makes_no_backup(path, store):
    assert backups(path) == ()


# The writer thread


def test_an_exception_reaches_the_caller_and_the_writer_goes_on(store):
    class OddError(BaseException):
        pass

    for error in (ValueError("a"), OddError("b"), StorageError("c"), KeyboardInterrupt()):

        def work(tx, error=error):
            tx.meta.put("key", "lost")
            raise error

        with pytest.raises(type(error)) as caught:
            store.write(work)
        assert caught.value is error
    assert get(store, "key") is None
    put(store, "key")
    assert get(store, "key") == "value"


def test_waiting_units_share_one_commit(store):
    go = threading.Event()
    blocker = store.submit(lambda tx: (go.wait(5), tx.meta.put("first", "1")))
    before = store.commits
    waiting = [store.submit(lambda tx, n=n: tx.meta.put(f"k{n}", "1")) for n in range(40)]
    go.set()
    for future in [blocker, *waiting]:
        future.result(5)
    # The blocker used up its group's time; what queued up behind it shares a commit.
    assert store.commits - before <= 3
    assert all(get(store, f"k{n}") == "1" for n in range(40))


def test_a_result_is_given_back_only_after_its_commit(store):
    def check(n: int) -> bool:
        store.write(lambda tx: tx.meta.put(f"k{n}", "1"))
        return get(store, f"k{n}") == "1"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(200)))


def test_units_of_a_commit_that_fails_are_run_again_alone(store, monkeypatch):
    commit = Connection.commit
    failures = iter([True])

    def fail_once(connection: Connection) -> None:
        if next(failures, False):
            raise DiskFull("full")
        commit(connection)

    go = threading.Event()
    blocker = store.submit(lambda tx: go.wait(5))
    waiting = [store.submit(lambda tx, n=n: tx.meta.put(f"k{n}", "1")) for n in range(5)]
    runs: list[int] = []
    waiting.append(store.submit(lambda tx: runs.append(1)))
    monkeypatch.setattr(writer_module, "GROUP_MS_MAX", 10_000)
    monkeypatch.setattr(Connection, "commit", fail_once)
    go.set()
    for future in [blocker, *waiting]:
        future.result(5)
    assert all(get(store, f"k{n}") == "1" for n in range(5))
    assert len(runs) in (1, 2)


def test_a_commit_that_fails_alone_is_the_callers_error_and_leaves_nothing(store, monkeypatch):
    def fail(connection: Connection) -> None:
        raise DiskFull("full")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "commit", fail)
        with pytest.raises(DiskFull):
            put(store, "key")
    assert get(store, "key") is None
    put(store, "key")


def test_what_a_unit_of_work_holds_goes_without_the_collector(store):
    """An import's units hold megabytes each, and the collector comes seldom."""

    class Held:
        pass

    held = Held()
    last = weakref.ref(held)
    gc.disable()
    try:
        store.write(lambda _, held=held: id(held))
        del held
        store.write(lambda _: None)  # the writer has let go of the one before
        assert last() is None
    finally:
        gc.enable()


def test_a_cancelled_unit_is_not_run(store):
    go = threading.Event()
    store.submit(lambda tx: go.wait(5))
    cancelled = store.submit(lambda tx: tx.meta.put("key", "1"))
    assert cancelled.cancel()
    go.set()
    put(store, "other")
    assert get(store, "key") is None


def test_closing_finishes_what_is_queued(path):
    store = SqliteStore(path)
    futures: list[Future[None]] = [
        store.submit(lambda tx, n=n: tx.meta.put(f"k{n}", "1")) for n in range(50)
    ]
    store.close()
    assert all(future.done() for future in futures)
    store = SqliteStore(path)
    assert get(store, "k49") == "1"
    store.close()


def test_statements_and_commits_are_counted(store):
    statements, commits = store.statements, store.commits
    put(store, "key")
    assert store.commits == commits + 1
    assert store.statements > statements
    store.write(lambda tx: tx.meta.get("key"))
    assert store.commits == commits + 1, "a unit that changes nothing syncs nothing"


def test_sealing_a_record_takes_a_bounded_number_of_statements(store):
    store.write(lambda tx: seal(tx, "first"))
    before = store.statements
    store.write(lambda tx: seal(tx, "second"))
    assert store.statements - before <= 16


# Other processes and the log


def test_another_writer_is_waited_for_and_then_reported(path, store, monkeypatch):
    other = Connection(path, readonly=False)
    other.begin()
    try:
        store._writer.do(lambda c: c._db.set_busy_timeout(50))
        with pytest.raises(StoreBusy):
            put(store, "key")
    finally:
        other.rollback()
        other.close()
    put(store, "key")


def test_a_stale_owner_is_fenced_by_the_next_one(path, store):
    """I7."""
    store.owner_epoch = store.write(lambda tx: tx.meta.raise_epoch())
    put(store, "key", "first")
    successor = SqliteStore(path)
    successor.owner_epoch = successor.write(lambda tx: tx.meta.raise_epoch())
    with pytest.raises(Fenced):
        put(store, "key", "stale")
    put(successor, "key", "second")
    assert get(store, "key") == "second"
    successor.close()


def test_the_log_stays_bounded_while_readers_come_and_go(path, store, monkeypatch):
    """A reader is in the midst of every other commit; a checkpoint waits until it has gone."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer_module, "TRUNCATE_PAGES", 200)
    monkeypatch.setattr(connection_module, "CHECKPOINT_WAIT_MS", 60_000)
    store._writer.truncate_at = 200
    noise = random.Random(1)
    sizes: list[int] = []

    def write() -> None:
        store.write(lambda tx: tx.blobs.put(noise.randbytes(40_000)))

    def hold(tx: Tx, entered: threading.Event, leave: threading.Event) -> tuple[int, int]:
        before = tx.meta.csn()
        entered.set()
        leave.wait(60)
        return before, tx.meta.csn()

    with ThreadPoolExecutor(1) as pool:
        for number in range(120):
            if number % 2:
                write()
            else:
                entered, leave = threading.Event(), threading.Event()
                reader = pool.submit(store.read, lambda tx, e=entered, v=leave: hold(tx, e, v))
                assert entered.wait(60)
                write()
                leave.set()
                before, after = reader.result()
                assert before == after
            # Behind any checkpoint that the commit led to.
            store._writer.do(lambda connection: None)
            sizes.append((path.parent / "store.db-wal").stat().st_size)
    pages_max = 200 + 2 * 16
    assert max(sizes) < pages_max * (4096 + 24), "120 writes are 5 MB of log"
    assert store.checkpoint()
    assert (path.parent / "store.db-wal").stat().st_size == 0


def test_a_long_read_delays_the_emptying_of_the_log_and_nothing_else(path, store):
    entered, leave = threading.Event(), threading.Event()

    def hold(tx: Tx) -> tuple[Csn, Csn]:
        before = tx.meta.csn()
        entered.set()
        leave.wait(10)
        return before, tx.meta.csn()

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(store.read, hold)
        assert entered.wait(5)
        store.write(lambda tx: tx.meta.next_csn())
        assert not store.checkpoint()
        leave.set()
        assert reader.result() == (0, 0)
    assert store.checkpoint()


def test_removed_words_and_payloads_leave_no_byte_behind(path, store):
    """I8: secure_delete, the index's secure-delete and an emptied log, together."""
    token = "zqxjkvtoken"
    store.write(lambda tx: [seal(tx, f"{token}{n} spoken") for n in range(200)])

    def forget(connection: Connection) -> None:
        connection.begin()
        sql = Sql(connection)
        index.take_out(sql, SqliteBlobs(sql), TREE, 0, 999)
        for table in ("record", "blob", "pack"):
            connection.run(f"delete from {table}")
        connection.commit()

    store._writer.do(forget)
    assert store.checkpoint()
    content = b"".join(p.read_bytes() for p in path.parent.glob("store.db*"))
    assert token.encode() not in content


# Payloads


def test_a_page_touches_only_its_own_chunks(path):
    payload = random.Random(5).randbytes(3 * BLOB_CHUNK_BYTES)
    store = SqliteStore(path)
    blob = store.write(lambda tx: tx.blobs.put(payload))
    store.close()
    raw(path, "update pack set data = x'00' where id = 2")
    store = SqliteStore(path)
    page = store.read(lambda tx: tx.blobs.read(blob, 2 * BLOB_CHUNK_BYTES, 100))
    assert page == payload[2 * BLOB_CHUNK_BYTES :][:100]
    for read in (
        lambda tx: tx.blobs.read(blob, BLOB_CHUNK_BYTES - 1, 2),
        lambda tx: list(tx.blobs.chunks(blob)),
        lambda tx: tx.blobs.verify(blob),
    ):
        with pytest.raises(IntegrityError):
            store.read(read)
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "delete from pack",
        "update pack set data = x'28b52ffd00'",
        "update pack set data = zeroblob(length(data))",
        "update pack set size = size - 1",
        "update pack set crc32 = 0",
        "update blob set size = size + 5",
    ],
)
@pytest.mark.parametrize("compressible", [True, False])
def test_damage_is_an_error_and_never_other_bytes(path, damage, compressible):
    """I1."""
    payload = b"word " * 500 if compressible else random.Random(3).randbytes(500)
    store = SqliteStore(path)
    blob = store.write(lambda tx: tx.blobs.put(payload))
    store.close()
    raw(path, damage)
    store = SqliteStore(path)
    for read in (lambda tx: tx.blobs.read(blob, 0, 10**6), lambda tx: tx.blobs.verify(blob)):
        with pytest.raises(IntegrityError):
            store.read(read)
    store.close()


def test_a_pack_is_decompressed_only_as_far_as_it_is_read():
    whole = b"".join(b"word %d " % n for n in range(50_000))
    opened = Opened(packed(whole))
    for end in (0, 1, 70_000, 70_000, 70_001, len(whole) - 1, len(whole), len(whole) + 1):
        assert opened.until(end) == whole[:end]
    size, _, _, data = packed(whole)
    for cut in (data[:-1], data[: len(data) // 2], data + b"more"):
        opened = Opened((size, zlib.crc32(cut), 1, cut))
        assert opened.until(100) == whole[:100]
        assert opened.until(size) == (whole if len(cut) > len(data) else None)


def test_a_pack_is_written_again_without_what_was_removed(path):
    """I8: in no pack's bytes, packed or not; the neighbours are where their rows say."""
    word = b"zqxjkv" * 3
    rest = [b"kept %d " % n * 40 for n in range(5)]
    store = SqliteStore(path)
    blobs = store.write(lambda tx: put_many(tx, [*rest[:2], word, *rest[2:]]))
    assert raw(path, "select count(*) from pack") == [(1,)]
    store.write(lambda tx: tx.blobs.drop_unused([blobs[2]]))
    ((size, data),) = raw(path, "select size, data from pack")
    held = zstd.decompress(data)
    assert size == len(held) == sum(map(len, rest))
    assert word not in held
    kept = [*blobs[:2], *blobs[3:]]
    assert [store.read(lambda tx, b=b: tx.blobs.read(b, 0, 999)) for b in kept] == rest
    store.write(lambda tx: tx.blobs.drop_unused(kept))
    assert raw(path, "select (select count(*) from pack), (select count(*) from blob)") == [(0, 0)]
    store.close()


def test_a_damaged_pack_does_not_hold_a_removal_up(path):
    """I8: what shares it is lost already, and says so."""
    store = SqliteStore(path)
    gone, beside = store.write(lambda tx: put_many(tx, [b"to go", b"beside it"]))
    raw(path, "update pack set crc32 = crc32 + 1")
    assert store.write(lambda tx: tx.blobs.drop_unused([gone])) == 1
    assert raw(path, "select count(*) from pack") == [(0,)]
    with pytest.raises(IntegrityError):
        store.read(lambda tx: tx.blobs.read(beside, 0, 99))
    store.close()


def test_exchanged_content_with_a_right_checksum_is_found_by_verify(path):
    store = SqliteStore(path)
    one, _ = (store.write(lambda tx, p=p: tx.blobs.put(p)) for p in (b"one word", b"two word"))
    store.close()
    raw(path, "update blob set pack = 2 where id = 1")
    store = SqliteStore(path)
    with pytest.raises(IntegrityError):
        store.read(lambda tx: tx.blobs.verify(BlobHash(one)))
    store.close()


def test_compressible_payloads_take_less_room_and_others_no_more(path):
    store = SqliteStore(path)
    store.write(lambda tx: tx.blobs.put(b"words " * 50_000))
    store.write(lambda tx: tx.blobs.put(random.Random(2).randbytes(300_000)))
    store.close()
    rows = raw(path, "select zstd, sum(size), sum(length(data)) from pack group by zstd")
    (_, plain, kept), (_, before, after) = rows
    assert kept == plain
    assert after < before / 100


def test_half_a_surrogate_pair_in_a_name_is_bad_input(store):
    with pytest.raises(BadInput):
        put(store, "key", "half \ud800")
    assert get(store, "key") is None


def test_an_iterator_that_outlives_its_transaction_says_so(store):
    store.write(lambda tx: seal(tx, "word"))
    [record] = store.read(lambda tx: tx.records.range(TREE, 0, 1))
    chunks = store.read(lambda tx: tx.blobs.chunks(record.payload))
    with pytest.raises(StorageError, match="over"):
        next(chunks)


# Crashes

WRITER = """
import sys, threading
from pathlib import Path
from typing import Any
from optchat.storage.sqlite import SqliteStore

store = SqliteStore(Path(sys.argv[1]))

def work(name):
    n = 0
    while True:
        def unit(tx):
            tx.meta.put(f"{name}-{n}-a", "1")
            tx.blobs.put(f"{name}-{n}".encode() * 2000)
            tx.meta.put(f"{name}-{n}-b", "1")
        store.write(unit)
        sys.stdout.write(f"{name}-{n}\\n")
        sys.stdout.flush()
        n += 1

for name in "xyz":
    threading.Thread(target=work, args=(name,), daemon=True).start()
threading.Event().wait()
"""


def test_acknowledged_commits_survive_a_killed_writer_at_random_points(path):
    """I6: each unit is there whole or not at all, and every acknowledged one is there."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # noqa: T201
    moments = random.Random(seed)
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip()]
        threading.Timer(moments.uniform(0.01, 0.3), os.kill, (process.pid, signal.SIGKILL)).start()
        # A line that the kill cut short was not told whole.
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
        process.wait()
        process.stdout.close()
        store = SqliteStore(path)
        assert store.damage() == ()
        for name in acknowledged:
            assert get(store, f"{name}-a") == get(store, f"{name}-b") == "1"
        kept = store._writer.do(lambda c: c.all("select key from meta"))
        halves = [key[0].rpartition("-")[0] for key in kept]
        assert all(halves.count(half) == 2 for half in set(halves))
        store.close()
        path.unlink()


def test_a_statement_that_is_used_once_a_transaction_is_not_parsed_again(path):
    """However often others are used between."""
    store = SqliteStore(path)

    def parsed(work):
        def look(connection):
            before = connection._db.cache_stats()["misses"]
            work(connection)
            return connection._db.cache_stats()["misses"] - before

        return store._writer.do(look)

    def others(connection):
        for _ in range(300):
            connection.one("select 2")

    assert parsed(lambda c: c.one("select 1")) == 1
    assert parsed(others) == 1
    assert parsed(lambda c: c.one("select 1")) == 0
    store.close()


def test_a_statement_is_planned_once_whatever_the_values(path):
    """Planned anew for each value, a session takes six times as long to be read."""
    store = SqliteStore(path)
    connection = store._writer.connection._db
    asked: list[str | None] = []

    def allow(_action: int, name: str | None, *_: object) -> int:
        asked.append(name)  # while a statement is planned, and at no other time
        return int(apsw.SQLITE_OK)

    def work(tx: Tx) -> tuple[int, int]:
        connection.set_authorizer(allow)
        tx.sessions.session_of_host("host", "first")
        first = len(asked)
        for number in range(20):
            tx.sessions.session_of_host("host", f"session {number}")
        connection.set_authorizer(None)
        return first, len(asked) - first

    first, again = store.write(work)
    store.close()
    assert first > 0
    assert again == 0


def test_the_number_of_a_document_is_not_given_again(path, store):
    """A word index and its columns would take one record for another."""
    store.write(lambda tx: seal(tx, "one"))
    store.write(lambda tx: seal(tx, "two"))
    store.write(lambda tx: tx.records.remove(TREE, 1, 2))
    store.write(lambda tx: seal(tx, "three"))
    assert raw(path, "select doc from record order by doc") == [(1,), (3,)]


@pytest.mark.parametrize("together", [False, True])
def test_words_leave_the_index_with_their_record_and_not_with_some_merge(path, store, together):
    """I8: also when others are sealed after the removal, in the same transaction or a later one."""

    def held() -> bool:
        store.checkpoint()
        return any(
            b"quixot" in block for (block,) in raw(path, "select block from record_fts_data")
        )

    store.write(lambda tx: [seal(tx, text) for text in ("quixotic words", "others")])
    assert held()
    steps = (lambda tx: tx.records.remove(TREE, 0, 1), lambda tx: seal(tx, "later"))
    if together:
        store.write(lambda tx: [step(tx) for step in steps])
    else:
        for step in steps:
            store.write(step)
    assert not held()
