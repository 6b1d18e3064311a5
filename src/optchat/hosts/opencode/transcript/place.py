"""Where OpenCode keeps its sessions, and by what name the plugin calls that place."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
"""A lock on a range of a file, as 64-bit Linux has it."""
_OPEN_BYTE = 128
"""Of a store's shared index, the byte that its users hold (SQLite's file format)."""
_AT_FDCWD = -100
_STATX_BTIME = 0x800


class _Timestamp(ctypes.Structure):
    _fields_ = (
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("reserved", ctypes.c_int32),
    )


class _Statx(ctypes.Structure):
    """What Linux's statx gives, up to the time of birth, and the rest of it as room."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("before", ctypes.c_uint8 * 76),
        ("birth", _Timestamp),
        ("rest", ctypes.c_uint8 * 256),
    )


def default_path() -> Path:
    """The host's store by the host's own rules: OPENCODE_DB, XDG_DATA_HOME, the home directory."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    folder = Path(data, "opencode").absolute()
    path = folder / (os.environ.get("OPENCODE_DB") or "opencode.db")
    files = folder / "storage"  # of versions before the database
    return files if files.is_dir() and not path.exists() else path


def identity(path: Path) -> str:
    """The name of the file that lies at ``path`` now, as the plugin makes it; "" for none.

    A file that was made anew in its place has another one: what it lacks was not deleted from it.
    """
    try:
        inode = path.stat().st_ino
        return f"{path}:{inode}:{_birth_ms(path)}"
    except OSError:
        return ""


def path_of(store: str) -> Path | None:
    """The path in a store's name, if it is one of ours."""
    path, _, rest = store.rpartition(":")
    path, _, inode = path.rpartition(":")
    return Path(path) if path and inode.isdigit() and rest else None


def is_there(store: str) -> bool:
    """Whether the very file of that name is still there."""
    path = path_of(store)
    return path is not None and identity(path) == store


def is_open(path: Path) -> bool:
    """Whether some other process has the store at ``path`` open; True where that cannot be told.

    Asked before it is opened here, and only looked at: each that has a store with a write-ahead log
    open holds a shared lock on one byte of its index. Without a log nobody has written to it.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        if not log.stat().st_size:
            return False
    except FileNotFoundError:
        return False
    if sys.platform != "linux":
        return True
    try:
        with path.with_name(f"{path.name}-shm").open("rb") as index:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _OPEN_BYTE, 1, 0)
            answer = fcntl.fcntl(index, fcntl.F_GETLK, asked)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK


def _birth_ms(path: Path) -> int:
    """When a file was made, in whole milliseconds; 0 where the system does not say."""
    found = path.stat()
    if sys.platform != "linux":
        return int(getattr(found, "st_birthtime", 0) * 1000)
    told = _Statx()
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, ctypes.byref(told)):
        return 0
    if not told.mask & _STATX_BTIME:
        return 0
    return told.birth.seconds * 1000 + told.birth.nanoseconds // 10**6
