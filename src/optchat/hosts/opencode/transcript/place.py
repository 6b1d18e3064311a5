"""Where OpenCode keeps its sessions, and by what name the plugin calls that place."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

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
    return Path(data, "opencode", os.environ.get("OPENCODE_DB") or "opencode.db").absolute()


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


def _birth_ms(path: Path) -> int:
    """When a file was made, in whole milliseconds; 0 where the system does not say."""
    found = path.stat()
    if sys.platform != "linux":
        return (
            int(getattr(found, "st_birthtime_ns", getattr(found, "st_birthtime", 0) * 10**9))
            // 10**6
        )
    told = _Statx()
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, ctypes.byref(told)):
        return 0
    if not told.mask & _STATX_BTIME:
        return 0
    return told.birth.seconds * 1000 + told.birth.nanoseconds // 10**6
