"""The host's terminal interface, driven through tmux: keys in, screen out."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from optchat.testing import reaper
from optchat.testing.opencode import OpenCodeHost


class TerminalHost:
    """``opencode`` in a terminal of its own, over the home and project of a host.

    The host object gives the settings; it need not run. Use it as a context manager.
    """

    def __init__(
        self, host: OpenCodeHost, *arguments: str, columns: int = 120, rows: int = 40
    ) -> None:
        if shutil.which("tmux") is None:
            raise FileNotFoundError("no tmux")
        self._host = host
        self._command = [str(host.binary), *arguments]
        self._size = (columns, rows)
        # The path of a socket is limited to about a hundred bytes, and test folders are deep.
        self._folder = Path(tempfile.mkdtemp(prefix="optchat-tmux-"))
        self._changed = threading.Condition()
        self._chunks = 0
        self._pane_pid = 0

    def __enter__(self) -> Self:
        columns, rows = self._size
        pipe = self._folder / "output"
        os.mkfifo(pipe)
        self._tmux(
            "new-session", "-d", "-s", "main", "-x", str(columns), "-y", str(rows),
            "-c", str(self._host.project), shlex.join(self._command),
        )  # fmt: skip
        self._pane_pid = int(self._tmux("display-message", "-p", "-t", "main", "#{pane_pid}"))
        reaper.watch(self._pane_pid)
        threading.Thread(target=self._watch, args=(pipe,), daemon=True).start()
        self._tmux("pipe-pane", "-t", "main", f"cat > {shlex.quote(str(pipe))}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def screen(self) -> str:
        """Return what the terminal shows now."""
        return self._tmux("capture-pane", "-p", "-t", "main")

    def type(self, content: str) -> None:
        """Type text literally."""
        self._tmux("send-keys", "-t", "main", "-l", content)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names, such as Enter, Escape or C-c."""
        self._tmux("send-keys", "-t", "main", *keys)

    def submit(self, content: str) -> None:
        """Type text, see it on the screen, and press Enter."""
        self.type(content)
        self.wait_for(content)
        self.press("Enter")

    def wait_for(self, wanted: str | Callable[[str], bool], timeout: float = 60.0) -> str:
        """Return the screen once it shows this text, or satisfies this predicate."""

        def matches(screen: str) -> bool:
            return wanted in screen if isinstance(wanted, str) else wanted(screen)

        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                seen = self._chunks
            screen = self.screen()
            if matches(screen):
                return screen
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the screen never showed {wanted!r}:\n{screen}")
                # tmux draws a moment after it has piped the bytes, so look again in any case.
                self._changed.wait_for(lambda: self._chunks != seen, min(left, 0.2))  # noqa: B023

    def close(self) -> None:
        """End the terminal and what runs in it."""
        reaper.kill_group(self._pane_pid)
        reaper.release(self._pane_pid)
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self, pipe: Path) -> None:
        with contextlib.suppress(OSError), pipe.open("rb", buffering=0) as output:
            while output.read(65_536):
                with self._changed:
                    self._chunks += 1
                    self._changed.notify_all()

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._folder / "socket"), "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=self._host.env, timeout=30
        )
        return done.stdout
