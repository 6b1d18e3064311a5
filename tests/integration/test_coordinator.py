"""The coordinator as a process: one owner of a data directory, and clear ends when it cannot be.

§9 (one owner, fencing), §10 (crash recovery), invariants I5, I6, I7, I8. No host: what a plugin
would say is said by scripted sessions over the socket.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from optchat.coordinator.client import EXIT_NOT_OWNER, Client, RemoteError
from optchat.errors import Unreachable
from optchat.storage.sqlite import SqliteStore
from optchat.testing.scripted import ScriptedSession
from optchat.wire import PROTOCOL, PROTOCOL_HEADER, SyncResponse, WorkRequest, WorkResponse
from tests.e2e.support_b import COMMAND, Memory, Remote, alive, eventually, temporary_memory

LONG = "the broker keeps every message until its consumer acknowledges it " * 20
NOBODY = 65_534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with temporary_memory() as made:
        yield made


@pytest.fixture
def client(memory: Memory) -> Iterator[Client]:
    """A connection to the running coordinator."""
    memory.ensure()
    with Client(memory.paths) as connected:
        yield connected


def talk(client: Client, name: str = "A", turns: int = 2, answer: str = "answered") -> None:
    """Whole turns of one scripted session."""
    session = ScriptedSession(Remote(client), name)
    for turn in range(turns):
        session.turn(f"request {turn} of {name}", f"{answer} {turn}")


def ended(process: subprocess.Popen[str], timeout: float = 30) -> tuple[int, str]:
    """The status and all the words of a process that ends by itself."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out + err


# --- one owner ------------------------------------------------------------------------------------


def test_a_second_start_ends_with_a_clear_message_and_disturbs_nobody(memory: Memory) -> None:
    """§9: the lock elects one owner; the other says so and touches nothing."""
    memory.serve()
    first = eventually(memory.health)
    status, said = ended(memory.serve())
    assert status == EXIT_NOT_OWNER
    assert f"another coordinator serves {memory.home}" in said
    assert "Traceback" not in said
    assert memory.health() == first


def test_five_callers_at_once_get_one_coordinator(memory: Memory) -> None:
    """§9: whoever asks first starts it; all are told of the same process."""
    with ThreadPoolExecutor(5) as pool:
        told = [f.result() for f in [pool.submit(memory.ensure) for _ in range(5)]]
    assert len({t["pid"] for t in told}) == 1
    assert {t["epoch"] for t in told} == {memory.health().epoch}


def test_after_kill_9_a_start_finds_everything_and_raises_the_epoch(memory: Memory) -> None:
    """§10, I6: acknowledged writes are there; the stale socket and lock are no obstacle."""
    memory.ensure()
    with Client(memory.paths) as client:
        talk(client, answer=LONG)
        memory.published(2)
    before, epoch = memory.status(), memory.health().epoch
    nodes, publications = memory.nodes(), memory.publications()
    memory.kill()
    assert memory.paths.socket.exists()  # the crash left it behind
    memory.ensure()
    after = memory.status()
    assert memory.health().epoch > epoch
    assert (after.records, after.scopes) == (before.records, before.scopes)
    assert (memory.nodes(), memory.publications()) == (nodes, publications)


def test_a_stale_socket_is_replaced(memory: Memory) -> None:
    """§9: nobody listens on it, so it is only a name in the way."""
    memory.home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(memory.paths.socket))
    assert memory.ensure()["pid"] == memory.health().pid


def test_a_file_in_the_sockets_place_is_named_and_left_alone(memory: Memory) -> None:
    """§9: it may be somebody's; the person is told which file and what to do."""
    memory.home.mkdir(mode=0o700)
    memory.paths.socket.write_text("mine", encoding="utf-8")
    done = memory.cli("ensure")
    assert done.status == 1
    assert str(memory.paths.socket) in done.stderr
    assert "is in the way" in done.stderr
    assert "next:" in done.stderr
    assert memory.paths.socket.read_text(encoding="utf-8") == "mine"


def test_a_stale_owner_is_fenced_and_ends(memory: Memory) -> None:
    """§9, I7: when the epoch has moved on, its writes are refused and it goes."""
    process = memory.serve()
    eventually(memory.health)
    with Client(memory.paths) as client:
        talk(client)
        memory.published(2)
        records = memory.status().records
        other = SqliteStore(memory.paths.store)
        try:
            other.write(lambda tx: tx.meta.raise_epoch())
        finally:
            other.close()
        late = ScriptedSession(Remote(client), "B")
        late.user("too late")
        # It may notice by itself before our write comes.
        with pytest.raises((RemoteError, Unreachable)) as caught:
            late.sync()
    assert caught.value.code in ("fenced", "unreachable")
    status, _ = ended(process)
    assert status == 0
    memory.ensure()
    assert memory.status().records == records
    assert {s.host_session for scope in memory.status().scopes for s in scope.sessions} == {"A"}


def test_a_fenced_write_is_answered_as_fenced(memory: Memory) -> None:
    """§9, I7: the caller is told that it was refused, not that it failed."""
    memory.configure("[compactor]\nworkers = 0\n")  # nobody else finds out first
    memory.serve()
    eventually(memory.health)
    other = SqliteStore(memory.paths.store)
    try:
        other.write(lambda tx: tx.meta.raise_epoch())
    finally:
        other.close()
    with Client(memory.paths) as client, pytest.raises(RemoteError) as caught:
        talk(client)
    assert caught.value.code == "fenced"


# --- protocol -------------------------------------------------------------------------------------


def post(memory: Memory, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, dict]:
    """A request as any program could send it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(memory.paths.socket))
        request = http.client.HTTPConnection("optchat")
        request.sock = connection
        request.request("POST", path, body=body, headers=headers)
        response = request.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize("spoken", [None, "0", str(PROTOCOL + 1), f" {PROTOCOL}.0", "one"])
def test_another_protocol_is_refused_with_what_to_do(
    memory: Memory, client: Client, spoken: str | None
) -> None:
    """§9: plugin and coordinator of two versions never guess at each other's words."""
    status, answer = post(memory, "/v1/health", {} if spoken is None else {PROTOCOL_HEADER: spoken})
    assert status == 426
    assert answer["error"]["code"] == "version_mismatch"
    assert "optchat stop" in answer["error"]["hint"]


def test_a_request_that_does_not_parse_is_refused_and_changes_nothing(
    memory: Memory, client: Client
) -> None:
    """§3: a misspelt field is not silently dropped."""
    known = {PROTOCOL_HEADER: str(PROTOCOL)}
    for body in (b"", b"{", b'{"sesion": 1}', b"\xff\xfe", b"[]"):
        status, answer = post(memory, "/v1/sync", known, body)
        assert (status, answer["error"]["code"]) == (400, "bad_input")
    assert memory.status().records == 0


# --- what cannot be used --------------------------------------------------------------------------


def as_directory(path: Path) -> None:
    path.mkdir()


def as_text(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    "make, named",
    [
        pytest.param(as_text("[memory\n"), "line 1", id="no-toml"),
        pytest.param(as_text('[memory]\nlayuot = "fold"\n'), "layuot", id="misspelt-key"),
        pytest.param(as_text('[memory]\nlayout = "folds"\n'), "layout", id="wrong-word"),
        pytest.param(as_text("[memory]\nshared_part = 1.5\n"), "shared_part", id="out-of-range"),
        pytest.param(as_text('[sharing]\ndefault = "team"\n'), "team", id="no-such-profile"),
        pytest.param(lambda p: p.write_bytes(b"\xff\xfe\x00"), "config.toml", id="no-utf-8"),
        pytest.param(as_directory, "config.toml", id="a-folder"),
    ],
)
def test_an_unusable_configuration_is_named_and_the_store_unharmed(
    memory: Memory, make: Callable[[Path], None], named: str
) -> None:
    """§14: nobody runs on half a configuration, and the fault is said where it is seen."""
    memory.ensure()
    memory.stop()
    before = memory.paths.store.read_bytes()
    (memory.home / "config.toml").unlink()
    make(memory.home / "config.toml")
    done = memory.cli("ensure")
    assert done.status == 1
    assert str(memory.home / "config.toml") in done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert memory.paths.store.read_bytes() == before
    assert not memory.paths.socket.exists()


def test_a_store_of_a_newer_version_is_not_touched(memory: Memory) -> None:
    """I6: what cannot be understood is left as it is."""
    memory.ensure()
    memory.stop()
    connection = apsw.Connection(str(memory.paths.store))
    connection.pragma("user_version", 99)
    connection.close()
    before = memory.paths.store.read_bytes()
    done = memory.cli("ensure")
    assert done.status == 1
    assert "schema 99" in done.stderr
    assert memory.paths.store.read_bytes() == before


def test_another_programs_database_is_not_touched(memory: Memory) -> None:
    """I6: a file of that name that is not ours is refused."""
    memory.home.mkdir(mode=0o700)
    connection = apsw.Connection(str(memory.paths.store))
    connection.execute("create table theirs (x)")
    connection.close()
    before = memory.paths.store.read_bytes()
    done = memory.cli("ensure")
    assert done.status == 1
    assert "another program" in done.stderr
    assert memory.paths.store.read_bytes() == before


@contextlib.contextmanager
def small_disk(folder: Path, size: str, *options: str) -> Iterator[bool]:
    """A file system of its own at ``folder``; False where the system does not allow one."""
    folder.mkdir(mode=0o700, parents=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", "mode=700", *options))]
    try:
        made = subprocess.run([*command, "tmpfs", str(folder)], capture_output=True, check=False)
        mounted = made.returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_folder_is_said_and_suggests_another(memory: Memory) -> None:
    """§9: no traceback, and the next thing to do."""
    with small_disk(memory.home, "1m") as mounted:
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(memory.home)], check=True)
        elif os.getuid() != 0:
            memory.home.chmod(0o500)
        else:
            pytest.fail("root may write everywhere and may not mount: run this as another user")
        try:
            done = memory.cli("ensure")
        finally:
            if not mounted:
                memory.home.chmod(0o700)
    assert done.status == 1
    assert str(memory.home) in done.stderr
    assert "Traceback" not in done.stderr
    assert "next:" in done.stderr


def test_a_full_disk_refuses_the_write_and_keeps_what_was_acknowledged(memory: Memory) -> None:
    """I6: the state before the failed write stands; with space again, it goes on."""
    with small_disk(memory.home, "8m") as mounted:
        if not mounted:
            _limit_file_size(memory)
        memory.serve()
        eventually(memory.health)
        with Client(memory.paths) as client:
            talk(client)
            memory.published(2)
            filler = memory.home / "filler"
            if mounted:
                fill(filler)
            records = memory.status().records
            large = ScriptedSession(Remote(client), "B")
            large.user(os.urandom(4_000_000).hex())
            with pytest.raises(RemoteError) as caught:
                large.sync()
            assert caught.value.code in ("disk_full", "storage")
            assert memory.status().records == records
            if mounted:
                assert caught.value.code == "disk_full"
                filler.unlink()
                talk(client, "C", turns=1)
                memory.published(3)
        memory.stop()
        assert memory.ensure()["pid"]
        assert memory.status().records >= records


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65_536)


def _limit_file_size(memory: Memory) -> None:
    """Where nothing can be mounted: no file of the coordinator may grow past 3 MB."""
    limit = 3_000_000

    def serve() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--foreground"],
            env={**os.environ, **memory.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),  # noqa: PLW1509
        )
        memory.started.append(process)
        return process

    memory.serve = serve  # type: ignore[method-assign]


def test_a_home_too_deep_for_a_socket_still_works(memory: Memory) -> None:
    """§9: a socket's path is bounded by the kernel; the coordinator is found all the same."""
    deep = Memory(memory.home / ("d" * 60) / ("e" * 60))
    try:
        told = deep.ensure()
        assert deep.ensure()["pid"] == told["pid"]
        elsewhere = Path(told["socket"])
        assert not elsewhere.is_relative_to(deep.home)
        assert stat.S_IMODE(elsewhere.parent.stat().st_mode) == 0o700
        other_tmp = {**os.environ, **deep.env, "TMPDIR": str(memory.home)}
        found = subprocess.run(
            [*COMMAND, "ensure", "--json"], env=other_tmp, capture_output=True, check=True
        )
        assert json.loads(found.stdout)["pid"] == told["pid"]
    finally:
        deep.stop()
        shutil.rmtree(deep.paths.socket.parent, ignore_errors=True)


# --- ending ---------------------------------------------------------------------------------------


def test_an_idle_coordinator_ends_by_itself(memory: Memory) -> None:
    """§9: it costs nothing when nobody works; its socket goes with it."""
    memory.configure("[coordinator]\nidle_exit_seconds = 1\n")
    process = memory.serve()
    eventually(memory.health)
    status, said = ended(process)
    assert status == 0
    assert "Traceback" not in said
    assert not memory.paths.socket.exists()


def test_a_quiet_coordinator_tidies_once_and_serves_on(memory: Memory) -> None:
    """§6: what nothing shows any more goes when nobody asks; the newest view of each tree stays."""
    run = (
        f"from optchat.coordinator import daemon as d; d.TIDY_IDLE_S = 0.3; d.run({memory.home!r})"
    )
    memory.configure("")
    code = f"from pathlib import Path, PosixPath; {run}"
    memory.started.append(
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    eventually(memory.health)
    with Client(memory.paths) as client:
        talk(client, turns=4)
        eventually(lambda: len(memory.publications()) == 4)
        eventually(
            lambda: memory.rows("select count(*) = count(distinct tree) from tree_view")[0][0]
        )
        assert memory.rows("select max(revision) from tree_view where tree like 'p:%'")[0][0] >= 4
        talk(client, "B", turns=1)
        memory.published(5)


def test_a_stop_with_jobs_queued_is_clean_and_they_go_on_after(memory: Memory) -> None:
    """§10: the queue is in the store; a restart resumes it and no work is lost."""
    memory.configure("[compactor]\nworkers = 0\n")
    process = memory.serve()
    eventually(memory.health)
    with Client(memory.paths) as client:
        talk(client, turns=3, answer=LONG)
    waiting = memory.status().jobs
    assert waiting["ready"]
    assert waiting["waiting"]
    assert memory.cli("stop").status == 0
    assert ended(process)[0] == 0
    memory.configure("[compactor]\nworkers = 2\n")
    memory.ensure()
    memory.published(3)
    jobs = memory.status().jobs
    assert jobs["failed"] == 0
    assert jobs["done"] >= sum(waiting.values())


def test_a_kill_9_while_summaries_are_made_makes_none_twice(memory: Memory) -> None:
    """§9, §10, I7: leases run out, results are fenced, each span has one revision."""
    memory.ensure()
    with Client(memory.paths) as client:
        talk(client, turns=12, answer=LONG)
    memory.kill()
    before = memory.nodes()
    memory.ensure()
    # A job that was leased when its worker died is taken up when the lease has run out.
    memory.published(12, timeout=100)
    after = memory.nodes()
    assert {key: after[key] for key in before} == before
    assert {revision for _, _, _, revision in after} == {1}
    assert len(memory.publications()) == 12


def test_sigterm_is_a_clean_stop(memory: Memory) -> None:
    """§10: what a system sends at shutdown."""
    process = memory.serve()
    eventually(memory.health)
    process.terminate()
    status, said = ended(process)
    assert (status, "Traceback" in said) == (0, False)
    assert not memory.paths.socket.exists()


# --- privacy --------------------------------------------------------------------------------------


def test_everything_in_the_home_is_private(memory: Memory, client: Client) -> None:
    """§11: one user; folder 0700, files and socket 0600."""
    talk(client)
    modes = {p.name: stat.S_IMODE(p.lstat().st_mode) for p in memory.home.iterdir()}
    assert stat.S_IMODE(memory.home.stat().st_mode) == 0o700
    assert modes["coordinator.sock"] == 0o600
    assert "memory.db" in modes
    assert "memory.db-wal" in modes
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


@root_only
def test_another_user_is_refused_even_where_the_modes_would_let_him(
    memory: Memory, client: Client
) -> None:
    """§11: the kernel says who is at the other end."""
    assert ask_as(NOBODY, memory) == "no connection"
    memory.home.parent.chmod(0o711)
    memory.home.chmod(0o711)
    memory.paths.socket.chmod(0o666)
    assert ask_as(NOBODY, memory) == "no answer"
    assert memory.health().pid  # and it still serves its owner


@root_only
def test_a_home_of_another_user_is_refused(memory: Memory) -> None:
    """§11: a folder that somebody else may have laid out is not trusted."""
    memory.home.mkdir(mode=0o700)
    os.chown(memory.home, NOBODY, NOBODY)
    done = memory.cli("ensure")
    assert done.status == 1
    assert "belongs to another user" in done.stderr
    assert [p.name for p in memory.home.iterdir()] == []


def ask_as(uid: int, memory: Memory) -> str:
    """What a process of this user gets from the coordinator."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = "died"
        try:
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                try:
                    connection.connect(str(memory.paths.socket))
                except OSError:
                    told = "no connection"
                else:
                    told = _asked(connection)
        finally:
            os.write(write, told.encode())
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read()


def _asked(connection: socket.socket) -> str:
    header = f"{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-length: 0\r\nhost: x\r\n\r\n"
    try:
        connection.sendall(f"POST /v1/health HTTP/1.1\r\n{header}".encode())
        return "answered" if connection.recv(100) else "no answer"
    except ConnectionError:
        return "no answer"


def test_the_log_holds_nothing_of_a_transcript(memory: Memory) -> None:
    """§11, I8: what is forgotten must not live on in a log."""
    secret = "zanzibar-quokka-7731"
    memory.ensure()
    with Client(memory.paths) as client:
        session = ScriptedSession(Remote(client), "A", title=f"about {secret}")
        session.turn(f"my {secret}", f"{LONG} {secret}", tools=(("bash", {"c": secret}, secret),))
        session.user(f"open {secret}")
        session.sync()
        session.assemble()
        for refused in (
            lambda: session.call("memory_zoom", ref=secret),
            lambda: session.call("memory_search", query=secret, **{secret: 1}),
            lambda: client.call("/v1/resync", _resync(secret), SyncResponse),
        ):
            with pytest.raises(RemoteError):
                refused()
        session.edited(0, f"other {secret}")
        with contextlib.suppress(RemoteError):
            session.sync()
        memory.published(1)
    memory.stop()
    memory.configure(f'[memory]\nlayout = "{secret}"\n')
    log = memory.paths.log.read_text(encoding="utf-8")
    assert log  # the refusals are there, by path and code
    assert secret not in log


def _resync(session: str):
    from optchat.wire import ResyncRequest

    return ResyncRequest(session=session)


def test_a_coordinator_outlives_its_starter(memory: Memory) -> None:
    """§9: summaries go on after the editor has closed."""
    with tempfile.TemporaryDirectory() as elsewhere:
        done = memory.cli("ensure", "--json", cwd=Path(elsewhere))
    pid = done.data["pid"]
    assert alive(pid)
    assert os.getsid(pid) == pid


# --- hosts that wait for work ---------------------------------------------------------------------


def test_hosts_that_wait_for_work_hold_nobody_up() -> None:
    """§6, §10: fifty open hosts that ask for summaries to make, and a turn beside them."""
    with temporary_memory('[compactor]\nmodel = "host"\n') as memory:
        memory.ensure()
        with Client(memory.paths, timeout_s=20) as client, ThreadPoolExecutor(50) as pool:
            ask(client, "A")
            waiting = [pool.submit(wait_for_work, memory, n) for n in range(50)]
            eventually(lambda: sum(f.running() for f in waiting) == 50)
            begun = time.monotonic()
            ask(client, "B")
            took = time.monotonic() - begun
            # Even the end does not wait for them.
            memory.stop()
            ended = time.monotonic() - begun - took
            [f.exception() for f in waiting]
    assert took < 3, f"{took:.1f} s for a turn"
    assert ended < 8, f"{ended:.1f} s to stop"


def ask(client: Client, name: str) -> ScriptedSession:
    """A session's first request, which needs no summary."""
    session = ScriptedSession(Remote(client), name, directory="/project")
    session.user("short")
    session.sync()
    assert session.assemble().state == "ready"
    return session


def asking(number: int) -> WorkRequest:
    return WorkRequest(
        host="scripted",
        instance=str(number),
        project_key="/project",
        project_directory="/project",
        directory="/project",
        wait_ms=10_000,
    )


def wait_for_work(memory: Memory, number: int) -> WorkResponse:
    with Client(memory.paths, timeout_s=20) as client:
        return client.call("/v1/work", asking(number), WorkResponse)


def test_work_is_not_given_to_a_host_that_has_gone() -> None:
    """§10: its question is still open here when it is killed; the next host gets the call."""
    with temporary_memory('[compactor]\nmodel = "host"\nhold_seconds = 0\n') as memory:
        memory.ensure()
        with Client(memory.paths, timeout_s=20) as client:
            session = ask(client, "A")
            with pytest.raises(Unreachable), Client(memory.paths, timeout_s=0.5) as gone:
                gone.call("/v1/work", asking(1), WorkResponse)
            session.assistant(LONG, terminal="completed")
            session.sync(idle=True)
            begun = time.monotonic()
            taken = wait_for_work(memory, 2)
            assert taken.work is not None
            assert time.monotonic() - begun < 10, "within the first question's time"
