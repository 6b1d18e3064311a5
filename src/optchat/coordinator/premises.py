"""What lies around the store: modes, configuration, log, copies, and the host's entry.

Looked at from outside, so that it is told even where no coordinator can start.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from optchat import config
from optchat.coordinator.paths import Paths
from optchat.errors import OptChatError
from optchat.hosts.opencode import install
from optchat.storage.sqlite.connection import Connection
from optchat.storage.sqlite.migrations import backups
from optchat.wire import Fault

LOG_BYTES_MAX = 64 * 1024 * 1024
"""A write-ahead log that is longer was not emptied for long: somebody holds an old state."""


def look_around(paths: Paths) -> tuple[list[Fault], list[str]]:
    """The faults, and what is only worth knowing."""
    faults = [
        *_open_to_others(paths),
        *_socket(paths),
        *_configuration(paths),
        *_log(paths),
        *_copies(paths),
        *_entries(),
    ]
    notes = [
        f"{copy} is the store as it was before an upgrade; it holds what was removed since."
        for copy in backups(paths.store)
    ]
    if not _installed():
        notes.append("No entry of optchat is in OpenCode's configuration: optchat install.")
    return faults, notes


def _open_to_others(paths: Paths) -> Iterator[Fault]:
    """Folders 0700 and files 0600, all of them the person's own."""
    folders = {paths.home, paths.socket.parent}
    for path in sorted(f for f in folders if f.exists()):
        yield from _private(path, 0o700)
    if paths.home.is_dir():
        for path in sorted(paths.home.iterdir()):
            if path.is_file() and path.name != "config.toml":
                yield from _private(path, 0o600)


def _private(path: Path, mode: int) -> Iterator[Fault]:
    found = path.stat()
    if found.st_uid != os.getuid():
        yield Fault(
            what=f"{path} belongs to another user",
            unharmed="the others' files are not touched",
            next="set OPTCHAT_HOME to a folder of your own",
        )
    elif stat.S_IMODE(found.st_mode) & 0o077:
        yield Fault(
            what=f"{path} is open to other users ({stat.S_IMODE(found.st_mode):04o})",
            unharmed="its content",
            next=f"chmod {mode:o} {path}",
        )


def _socket(paths: Paths) -> Iterator[Fault]:
    """A socket that a coordinator left behind is replaced by the next; anything else is not."""
    if paths.socket.exists() and not stat.S_ISSOCK(paths.socket.lstat().st_mode):
        yield Fault(
            what=f"{paths.socket} is in the way and is no socket: no coordinator can start",
            unharmed="the store, and that file",
            next=f"look at {paths.socket} and move it away",
        )


def _configuration(paths: Paths) -> Iterator[Fault]:
    try:
        config.load(paths.home)
    except OptChatError as error:
        yield Fault(what=error.message, unharmed="the store", next=error.hint)


def _log(paths: Paths) -> Iterator[Fault]:
    log = paths.store.with_name(f"{paths.store.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > LOG_BYTES_MAX:
        yield Fault(
            what=f"the store's log has grown to {size // 2**20} MiB: something reads an old state "
            "and keeps it from being emptied",
            unharmed="everything; it only takes room",
            next=f"end whatever else has {paths.store} open, then: optchat stop",
        )


def _copies(paths: Paths) -> Iterator[Fault]:
    """A copy that cannot be read is no copy."""
    for copy in backups(paths.store):
        try:
            connection = Connection(copy, readonly=True)
            try:
                found = connection.all("pragma quick_check(1)")
            finally:
                connection.close()
            problem = "" if found == [("ok",)] else str(found[0][0])
        except OptChatError as error:
            problem = error.message
        if problem:
            yield Fault(
                what=f"the copy {copy} is damaged: {problem}",
                unharmed="the store itself",
                next=f"rm {copy}",
            )
    for rest in sorted(paths.home.glob(f"{paths.store.name}.*.partial")):
        yield Fault(
            what=f"{rest} is a copy that was never finished",
            unharmed="the store itself",
            next=f"rm {rest}",
        )


def _installed() -> tuple[tuple[Path, Any], ...]:
    try:
        return install.installed()
    except OptChatError:
        return ()


def _entries() -> Iterator[Fault]:
    """Each entry in the host's configuration leads to this version's plugin and to a Python."""
    try:
        entries = install.installed()
        bundle = install.BUNDLE.read_bytes()
    except OptChatError as error:
        yield Fault(what=error.message, unharmed="the memory", next=error.hint)
        return
    except OSError:
        yield Fault(
            what=f"the plugin's bundle is missing: {install.BUNDLE}",
            unharmed="the memory",
            next=install.BundleMissing.default_hint,
        )
        return
    for file, entry in entries:
        problem = _problem(entry, bundle)
        if problem:
            yield Fault(
                what=f"the entry in {file} {problem}",
                unharmed="the memory, and the rest of the file",
                next="optchat install, then restart OpenCode",
            )


def _problem(entry: Any, bundle: bytes) -> str:
    parts = cast(list[Any], entry) if isinstance(entry, list) else [entry]
    plugin = Path(unquote(urlsplit(str(parts[0])).path))
    try:
        if plugin.read_bytes() != bundle:
            return f"loads {plugin}, which is not this version's plugin"
    except OSError:
        return f"loads {plugin}, which is not there"
    match parts[1:]:
        case [{"command": [str(program), *_]}] if Path(program).exists():
            return ""
        case _:
            return "starts a Python that is not there"
