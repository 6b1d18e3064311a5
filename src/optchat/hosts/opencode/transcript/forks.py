"""Finding the session that another one was copied from (§12).

The host keeps no link. A copy keeps the times of its messages, which are then older than the copy
itself, and the original still has messages of exactly these times. The plugin looks for it in the
same way, but sees one folder's sessions alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from optchat.hosts.opencode.transcript.messages import HostMessage, HostSession

CANDIDATES = 20
_FORK = re.compile(r" \(fork #(\d+)\)$")

Times = list[tuple[int, str]]
"""When each message was made and whose it is, in order."""


def find_origin(
    session: HostSession,
    messages: Sequence[HostMessage],
    beside: Sequence[HostSession],
    times: Callable[[str, int], Times],
) -> str | None:
    """The id of the session of those ``beside`` that ``session`` was copied from, or None.

    ``times`` gives those of a session's first messages, so many of them.
    """
    copied = [
        (m.info.time.created, m.info.role)
        for m in messages
        if m.info.time.created < session.created_ms
    ]
    if not copied:
        return None
    previous = _origin_title(session.title)
    candidates = [
        other
        for other in beside
        if other.id != session.id
        and other.parent_id is None
        and other.created_ms < session.created_ms
        and other.updated_ms >= copied[0][0]
    ]
    here = session.directory  # where a copy is made; one of the two may have moved since
    candidates.sort(key=lambda o: (o.title != previous, o.directory != here, -o.updated_ms))
    best: tuple[int, str | None] = (0, None)
    for other in candidates[:CANDIDATES]:
        if times(other.id, 1) != copied[:1]:
            continue  # most are nothing like it
        theirs = times(other.id, len(copied))
        shared = next(
            (i for i, own in enumerate(copied) if i >= len(theirs) or theirs[i] != own), None
        )
        if shared is None:
            return other.id
        if shared > best[0]:
            best = (shared, other.id)
    return best[1]


def _origin_title(title: str) -> str:
    """What the origin of a copy is called by the host's rule for the titles of copies."""
    if title.endswith(" (fork #1)"):
        title = title.removesuffix(" (fork #1)")
    return _FORK.sub(lambda found: f" (fork #{int(found[1]) - 1})", title)
