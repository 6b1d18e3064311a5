"""What recall over 4,700 sessions costs: import, index, store, queries, memory.

A host's store is made of the shared generators' sessions and varied copies of real transcripts, and
imported by ``optchat import opencode`` into a data directory of its own. In the same run a plain
FTS5 table is built of the same text: the text already read, porter, with its content, in one
transaction. Both are done three times in turn. ``OPTCHAT_BENCH_SESSIONS`` makes it smaller.
``make bench NAME=recall`` writes a table of ``docs/performance.md`` too.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench._corpus import copies, noisy, synthetic
from bench._tables import replace_section
from optchat.config import load as load_config
from optchat.coordinator.client import Client
from optchat.coordinator.ids import CountedIds
from optchat.coordinator.paths import Paths
from optchat.coordinator.reading import Order
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.evaluation import hoststore
from optchat.evaluation.files import Case, Session, load
from optchat.evaluation.plain import documents
from optchat.evaluation.room import EVERYTHING
from optchat.evaluation.scores import percentiles
from optchat.hosts.opencode.transcript.source import open_source
from optchat.storage.sqlite import SqliteStore
from optchat.storage.sqlite.store import SystemClock
from optchat.wire import Health, StatusResponse, ToolRequest, ToolResponse

SESSIONS = 4_700
ROUNDS = 3
"""How often the plain table is built and the store imported, in turn; medians are told."""
HELD_OUT_SEED = 77
AT_ONCE = 8
CONFIG = f"""
[sharing]
default = "{EVERYTHING}"
subagents = true
[sharing.profiles]
{EVERYTHING} = []
[compactor]
model = "deterministic"
workers = 0
[coordinator]
idle_exit_seconds = 0
"""


def corpus(folder: Path, count: int) -> tuple[list[Session], list[Case]]:
    """``count`` sessions, three sevenths each from a generator, the rest real; and questions."""
    some = count * 2_000 // SESSIONS
    noise = load(noisy(folder / "noise.json", some, HELD_OUT_SEED))
    made = load(synthetic(folder / "synthetic.json", some, HELD_OUT_SEED))
    sessions = [*noise.sessions, *made.sessions]
    return [*sessions, *copies(count - len(sessions))], [*noise.cases, *made.cases]


def run() -> dict[str, Any]:
    """Figures of the product beside the plain table's."""
    count = int(os.environ.get("OPTCHAT_BENCH_SESSIONS", SESSIONS))
    # The socket's path has a bound, so that the folder is a short one.
    with tempfile.TemporaryDirectory(prefix="ob-") as folder:
        sessions, cases = corpus(Path(folder), count)
        host_store = Path(folder) / "opencode.db"
        host_bytes = hoststore.write(host_store, sessions)
        texts = [document.text for document in documents(sessions)]
        text_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
        messages = sum(len(session.messages) for session in sessions)
        del sessions
        say(f"{count} sessions, {messages} messages, {text_bytes / 1e6:.0f} MB of text")
        plains: list[dict[str, Any]] = []
        imports: list[dict[str, Any]] = []
        homes = [new_home(Path(folder) / f"home{number}") for number in range(ROUNDS)]
        for number, home in enumerate(homes):
            plains.append(plain_build(Path(folder) / f"plain{number}.db", texts))
            say(f"plain FTS5: {plains[-1]['seconds']} s")
            imports.append(imported(home, host_store))
            say(f"import: {imports[-1]['seconds']} s, {imports[-1]['peak_mb']} MB")
        del texts
        plain, importing, home = medians(plains), medians(imports), homes[-1]
        importing["reading_mb"] = reading_mb(host_store)
        asked = [arguments(case) for case in cases]
        socket = through_the_socket(home, asked)
        say(f"socket: {socket}")
        engine = in_the_engine(home, asked)
        say(f"engine: {engine}")
        sizes = measured(home)
    return {
        "figures": {
            "sessions": count,
            "messages": messages,
            "records": importing["records"],
            "text_bytes": text_bytes,
            "host_store_bytes": host_bytes,
            "import_seconds": importing["seconds"],
            "import_ratio": round(importing["seconds"] / plain["seconds"], 2),
            "import_cpu_seconds": importing["cpu_seconds"],
            "import_cpu_ratio": round(importing["cpu_seconds"] / plain["cpu_seconds"], 2),
            "import_peak_mb": importing["peak_mb"],
            "reading_mb": importing["reading_mb"],
            "index_bytes": sizes["index"],
            "index_per_text_byte": round(sizes["index"] / text_bytes, 3),
            "store_bytes": sizes["store"],
            "store_per_host_byte": round(sizes["store"] / host_bytes, 3),
            "queries": len(asked),
            "socket": socket,
            "engine": engine,
            "tables": sizes["tables"],
        },
        "baseline": {
            "plain_fts5": plain,
            "required": {
                "import_ratio": 2.5,
                "index_per_text_byte": 0.45,
                "store_per_host_byte": 0.6,
                "p95_ms": 100,
                "memory_mb": 200,
            },
        },
    }


def new_home(home: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    return home


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each figure's median over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def plain_build(path: Path, texts: list[str]) -> dict[str, Any]:
    """One FTS5 table with its content, built in one transaction from text that is there already."""
    started, worked = time.monotonic(), time.process_time()
    database: Any = apsw.Connection(str(path))
    database.pragma("journal_mode", "wal")
    database.pragma("synchronous", 2)
    database.execute("create virtual table said using fts5 (words, tokenize = 'porter unicode61')")
    with database:
        database.executemany(
            "insert into said values (?)",
            ((text.encode("utf-8", "replace").decode(),) for text in texts),
        )
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    seconds, cpu = time.monotonic() - started, time.process_time() - worked
    database.close()
    size = path.stat().st_size
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "bytes": size}


def optchat(home: Path, *words: str) -> str:
    """A command of ours over ``home``; its output."""
    ended = subprocess.run(
        [sys.executable, "-m", "optchat", *words],
        env={**os.environ, "OPTCHAT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"bench.recall: optchat {words[0]} failed: {ended.stderr[-2000:]}")
    return ended.stdout


def imported(home: Path, host_store: Path) -> dict[str, Any]:
    """Import the host's store through the coordinator; its seconds and peak memory."""
    optchat(home, "ensure", "--json")
    started = time.monotonic()
    optchat(home, "import", "opencode", "--db", str(host_store), "--json")
    seconds = time.monotonic() - started
    with Client(Paths(home)) as client:
        peak = memory_mb(client.health().pid, "VmHWM")
        cpu = cpu_seconds(client.health())
        records = client.call("/v1/status", None, StatusResponse).records
    optchat(home, "stop")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_mb": peak,
        "records": records,
    }


def memory_mb(pid: int, field: str) -> float:
    """A process's own memory: not what it was forked from, which ru_maxrss begins with."""
    status = Path(f"/proc/{pid}/status").read_text().split()
    return round(int(status[status.index(f"{field}:") + 1]) / 1024, 1)


def reading_mb(host_store: Path) -> float:
    """The peak of the process that reads the host's store for an import."""
    source = open_source(host_store)
    order = Order(str(host_store), [session.id for session in source.sessions()], mask=True)
    source.close()
    command = [sys.executable, "-m", "optchat.coordinator.reader"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(msgspec.msgpack.encode(order))
        reader.stdin.close()
        peak = 0.0
        while reader.stdout.read(1 << 20):
            with contextlib.suppress(ValueError):  # it has ended: nothing is said of its memory
                peak = max(peak, memory_mb(reader.pid, "VmHWM"))
    return peak


def cpu_seconds(health: Health) -> float:
    """What the coordinator has computed so far, all its threads together."""
    fields = Path(f"/proc/{health.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def arguments(case: Case) -> dict[str, Any]:
    """A case as a call of memory_search."""
    given = {"since": case.args.since, "until": case.args.until, "directory": case.args.directory}
    asked = {name: value for name, value in given.items() if value is not None}
    return {"query": case.args.query, "group": "session", **asked}


def through_the_socket(home: Path, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Times of warm queries to a coordinator that has just started, and its memory.

    ``peak_mb`` is that while it answers one after another, ``resident_mb`` what it has after that,
    ``at_once_mb`` the peak when ``AT_ONCE`` ask at the same time.
    """
    optchat(home, "ensure", "--json")
    times: list[float] = []
    with Client(Paths(home)) as client:
        started = time.perf_counter()
        client.call("/v1/tool", search_request(asked[0]), ToolResponse)
        first = time.perf_counter() - started
        for warming in (True, False):
            for args in asked:
                started = time.perf_counter()
                client.call("/v1/tool", search_request(args), ToolResponse)
                if not warming:
                    times.append(time.perf_counter() - started)
        health = client.health()
        memory = {
            "resident_mb": memory_mb(health.pid, "VmRSS"),
            "peak_mb": memory_mb(health.pid, "VmHWM"),
        }
        with ThreadPoolExecutor(AT_ONCE) as several:
            list(several.map(lambda at: ask(home, asked[at::AT_ONCE]), range(AT_ONCE)))
        memory["at_once_mb"] = memory_mb(health.pid, "VmHWM")
    optchat(home, "stop")
    return {**percentiles(times), "first_ms": round(1000 * first, 1), **memory}


def ask(home: Path, asked: list[dict[str, Any]]) -> None:
    with Client(Paths(home)) as client:
        for args in asked:
            client.call("/v1/tool", search_request(args), ToolResponse)


def search_request(args: dict[str, Any]) -> ToolRequest:
    return ToolRequest(tool="memory_search", args_json=json.dumps(args), scope=EVERYTHING)


def in_the_engine(home: Path, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Times and statements of the same queries without a process and a socket between."""
    clock = SystemClock()
    store = SqliteStore(Paths(home).store, clock)
    epoch = store.write(lambda tx: tx.meta.raise_epoch())
    service = Service(store, Deps(load_config(home), clock, CountedIds(epoch)), home)
    times: list[float] = []
    statements: list[int] = []
    for warming in (True, False):
        for args in asked:
            before, started = counted(store), time.perf_counter()
            service.tool(search_request(args))
            if not warming:
                times.append(time.perf_counter() - started)
                statements.append(counted(store) - before)
    store.close()
    statements.sort()
    return {
        **percentiles(times),
        "statements_p50": statements[len(statements) // 2],
        "statements_max": statements[-1],
    }


def counted(store: SqliteStore) -> int:
    return sum(connection.statements for connection in store._readers)  # noqa: SLF001


def measured(home: Path) -> dict[str, Any]:
    """Bytes by table, and of them those of the word indexes."""
    path = Paths(home).store
    database: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables: dict[str, int] = dict(
        database.execute("select name, sum(pgsize) from dbstat group by name order by 2 desc")
    )
    database.close()
    index = sum(size for name, size in tables.items() if is_index(name))
    large = {name: size for name, size in tables.items() if size > 1_000_000}
    return {"store": path.stat().st_size, "index": index, "tables": large}


def is_index(table: str) -> bool:
    """Whether a table is there for searching alone."""
    return table.startswith(("record_fts", "node_fts", "record_text", "node_text", "title_fts"))


def document(whole: dict[str, Any]) -> None:
    """The table in docs/performance.md."""
    figures, baseline = whole["figures"], whole["baseline"]
    needed, plain = baseline["required"], baseline["plain_fts5"]
    mega = 1_000_000
    rows = [
        (
            "import, as a ratio to the plain build",
            f"{figures['import_ratio']:.2f}",
            f"≤ {needed['import_ratio']}",
            (
                f"{figures['import_seconds']:.0f} s against {plain['seconds']:.0f} s; of the "
                f"processor's time {figures['import_cpu_ratio']:.2f}"
            ),
        ),
        (
            "index bytes per byte of text",
            f"{figures['index_per_text_byte']:.3f}",
            f"≤ {needed['index_per_text_byte']}",
            (
                f"{figures['index_bytes'] / mega:.0f} of {figures['text_bytes'] / mega:.0f} MB; "
                f"the plain table: {plain['bytes'] / mega:.0f} MB with its content"
            ),
        ),
        (
            "store bytes per byte of the host's store",
            f"{figures['store_per_host_byte']:.3f}",
            f"≤ {needed['store_per_host_byte']}",
            f"{figures['store_bytes'] / mega:.0f} of {figures['host_store_bytes'] / mega:.0f} MB",
        ),
        (
            "a query, warm, through the socket: p50, p95",
            f"{figures['socket']['p50_ms']:.0f} ms, {figures['socket']['p95_ms']:.0f} ms",
            f"p95 < {needed['p95_ms']} ms",
            f"the first after a start: {figures['socket']['first_ms']:.0f} ms",
        ),
        (
            "the same in the engine: p50, p95",
            f"{figures['engine']['p50_ms']:.0f} ms, {figures['engine']['p95_ms']:.0f} ms",
            "",
            (
                f"{figures['engine']['statements_p50']} statements (p50), "
                f"at most {figures['engine']['statements_max']}"
            ),
        ),
        (
            "the coordinator's memory: peak while it answers, resident after",
            f"{figures['socket']['peak_mb']:.0f} MB, {figures['socket']['resident_mb']:.0f} MB",
            f"< {needed['memory_mb']} MB",
            (
                f"peak with {AT_ONCE} asking at once: {figures['socket']['at_once_mb']:.0f} MB; "
                f"while it imports: {figures['import_peak_mb']:.0f} MB, "
                f"and {figures['reading_mb']:.0f} MB of the process that reads"
            ),
        ),
    ]
    lines = [
        (
            f"{figures['sessions']:,} sessions, {figures['messages']:,} messages, "
            f"{figures['records']:,} records, {figures['queries']} queries; "
            f"{whole['machine']['cpus']} cores, Python {whole['machine']['python']}."
        ),
        "",
        "| what | figure | to reach | from |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    replace_section("recall", lines)
