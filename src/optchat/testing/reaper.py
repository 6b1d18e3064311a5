"""Process groups that end with the test run, also when that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

# A child that reads "+pid" and "-pid" until the pipe closes, which it does however we end, and then
# kills what is still on its list. It has a session of its own so that Ctrl-C does not reach it.
_PROGRAM = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

_lock = threading.Lock()
_helper: subprocess.Popen[str] | None = None


def watch(group: int) -> None:
    """See to it that this process group does not outlive us."""
    _tell(f"+{group}\n")


def release(group: int) -> None:
    """Forget a process group that has ended."""
    _tell(f"-{group}\n")


def kill_group(group: int) -> None:
    """Kill a process group that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _tell(line: str) -> None:
    global _helper  # noqa: PLW0603
    with _lock:
        if _helper is None:
            _helper = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert _helper.stdin is not None
        _helper.stdin.write(line)
        _helper.stdin.flush()
