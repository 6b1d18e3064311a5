"""Where a data directory keeps its things: private folders, one socket, one lock."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from optchat.errors import StorageError

SOCKET_PATH_BYTES_MAX = 100
"""The kernel's bound on a socket's path is 104 bytes on some systems and 108 on others."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one data directory."""

    home: Path

    @property
    def store(self) -> Path:
        return self.home / "memory.db"

    @property
    def lock(self) -> Path:
        return self.home / "coordinator.lock"

    @property
    def log(self) -> Path:
        return self.home / "coordinator.log"

    @property
    def socket(self) -> Path:
        """The socket; in a private folder of ``/tmp`` when the home is too deep.

        Not of ``TMPDIR``: two processes with different ones must still find the same socket.
        """
        inside = self.home / "coordinator.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES_MAX:
            return inside
        name = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp") / f"optchat-{os.getuid()}-{name}" / "coordinator.sock"  # noqa: S108  # 0700, owner checked

    def prepare(self) -> None:
        """Make the folders 0700 and refuse one that is somebody else's.

        Raises:
            StorageError: the folder cannot be made, is not ours, or is open to others.
        """
        for folder in {self.home, self.socket.parent}:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                info = folder.stat()
                if info.st_uid == os.getuid() and stat.S_IMODE(info.st_mode) & 0o077:
                    folder.chmod(0o700)
            except OSError as error:
                raise StorageError(
                    f"the data directory {folder} cannot be used: {error}.",
                    hint="set OPTCHAT_HOME to a folder of your own on a writable disk",
                ) from None
            if info.st_uid != os.getuid():
                raise StorageError(
                    f"the data directory {folder} belongs to another user; it was not used.",
                    hint="set OPTCHAT_HOME to a folder of your own",
                )
