"""Whatever makes the summaries, a turn of one session reaches the next session's request.

The host's own model, an endpoint that speaks chat completions, and one that speaks Anthropic's
messages (§10, §14), each on the real host. What the host's model is used for leaves no trace in the
host: no session in a list, nothing of it in the memory, and nothing left behind by a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from optchat.testing.captured import CapturedRequest
from optchat.testing.endpoint import Asked, Endpoint, obedient
from optchat.testing.provider import Gate, Reply, text
from tests.e2e.support import Memory, eventually, running_memory, shared_lines

HOST = '[compactor]\nmodel = "host"\nhold_seconds = 0\ntimeout_seconds = 60\n'
LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
INSTRUCTIONS = "You write lines"


def asked_of(request: CapturedRequest) -> Asked:
    """A captured request as the compactor's model reads it."""
    first, *rest = request.messages
    from optchat.testing.provider import content_text

    return Asked(content_text(first), tuple(content_text(m) for m in rest))


def is_summary(request: CapturedRequest) -> bool:
    return not request.tools and "\nWrite" in request.last_user_text


def respond(request: CapturedRequest) -> Reply | None:
    return text(obedient(asked_of(request))) if is_summary(request) else None


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with running_memory(
        tmp_path_factory.mktemp("m"), config=HOST, small_model="medium-64k"
    ) as memory:
        memory.provider.responder = respond
        yield memory


def test_experiment(memory: Memory) -> None:
    a = memory.host.create_session(title="A")
    events = memory.host.events()
    memory.provider.plan(a, text(LONG))
    memory.host.prompt(a, "Which retry?")
    import time

    seen = set()
    for _ in range(100):
        for s in memory.host.sessions():
            seen.add((s["id"], s.get("parentID"), s["title"], str(s.get("metadata"))))
        if memory.publications():
            break
        time.sleep(0.2)
    for s in seen:
        print(s)
    print(memory.optchat("status"))
    for r in memory.provider.requests(purpose=None):
        print(r.number, r.session_id, r.parent_session_id, r.purpose, r.model, len(r.tools), {k: v for k, v in r.body.items() if k not in ("messages", "tools")})
        for m in r.messages:
            print("   ", m["role"], repr(str(m.get("content"))[:300]))
    print(memory.optchat("spend"))
    print(memory.host.sessions())
    print([ (e["type"]) for e in events.seen()] if hasattr(events, "seen") else dir(events))
    print(memory.host.log[-3000:])
    assert 0
