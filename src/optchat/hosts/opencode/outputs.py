"""The files in which OpenCode keeps the whole of an output that it has cut (§3).

It cuts at 2,000 lines or 51,200 bytes and writes all of it below its data directory, for seven
days. The file's name comes out of a transcript, so that only a file of that very folder is opened.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from optchat.limits import PAYLOAD_BYTES_MAX

_NAME = re.compile(r"tool_[A-Za-z0-9_-]{1,200}", re.ASCII)


def read_output(store: str, named: str, start: int, count: int) -> tuple[bytes, int] | None:
    """Bytes of the file of a cut output, and how many it has; None where there is none.

    ``store`` is the host's store as the plugin names it: path, inode and birth time. A file that
    does not lie beside that store, or is a link or no plain file, is not opened; of a larger one
    the first PAYLOAD_BYTES_MAX count.
    """
    path = Path(named)
    folder = Path(store.rsplit(":", 2)[0]).parent / "tool-output"
    if not store or _NAME.fullmatch(path.name) is None or path.parent != folder:
        return None
    try:
        # No link is followed, and nobody at the other end of a pipe is waited for.
        opened = os.open(folder / path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                return None
            total = min(status.st_size, PAYLOAD_BYTES_MAX)
            file.seek(start)
            return file.read(min(count, max(0, total - start))), total
    except OSError:
        return None
