"""A compactor that does not keep up is told of, and nothing is missing for it (§16 Slow compactor).

§6 (readiness, no silent loss of coverage), §10; I2. The summaries' endpoint takes every call and
answers none; the conversation stays native for as long as that fits, and then says why it stops.
"""

from __future__ import annotations

from pathlib import Path

from optchat.testing.endpoint import Endpoint, Raw, Received, obedient
from optchat.testing.hostfiles import ModelSpec, short_agent
from optchat.testing.provider import text
from tests.e2e.support import check_requests, eventually, running_memory
from tests.e2e.support_b import has_memory, last_error, notices

WINDOW = ModelSpec(id="window-12k", context=12_288, output=2_048)
SETTINGS = """
[memory]
readiness_timeout_ms = 500
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
hold_seconds = 0
timeout_seconds = 1
"""
LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 30
TURNS_MAX = 20


def test_a_backlog_is_visible_stops_what_does_not_fit_and_is_caught_up(tmp_path: Path) -> None:
    """§6, §10, §16; I2: native while it fits, an explicit stop after that, whole in the end."""
    slow = True

    def script(received: Received) -> Raw | str:
        return Raw(hang=True) if slow else obedient(received.asked)

    with (
        Endpoint(script) as endpoint,
        running_memory(
            tmp_path,
            config=SETTINGS.format(url=endpoint.url),
            models=(WINDOW,),
            model=WINDOW.id,
            agents={"short": short_agent("memory_*")},
        ) as memory,
    ):
        host = memory.host
        events = host.events()
        a = host.create_session(title="A")
        asked = 0
        while not last_error(host, a):
            assert asked < TURNS_MAX, "the window was never full"
            memory.provider.plan(a, text(f"{asked} {LONG}"))
            host.prompt(a, f"step {asked}", agent="short")
            asked += 1

        # The condition is visible: in the conversation, to whoever asks, and as a notice.
        error = last_error(host, a)
        assert "memory_not_ready" in error
        assert "Next: " in error
        status = memory.status()
        assert status is not None
        assert status.jobs["failed"] == 0
        assert status.jobs["ready"] + status.jobs["waiting"] + status.jobs["leased"] >= asked
        eventually(lambda: "does not answer" in " ".join(memory.status().notices) or None)
        told = [e["properties"]["message"] for e in notices(events)]
        assert len([t for t in told if "summaries wait" in t]) == 1, told
        # Nothing is missing from what was sent, and what did not fit was not sent.
        sent = memory.provider.requests(a)
        assert len(sent) == asked - 1
        assert all(has_memory(request) for request in sent)
        check_requests(host, sent, a)
        assert memory.publications() == 0

        slow = False
        endpoint.released.set()
        memory.optchat("resume")
        memory.wait_published(a, asked)
        memory.wait_quiet()
        memory.provider.plan(a, text("It goes on."))
        host.prompt(a, "and now?", agent="short")
        assert last_error(host, a) == ""
        assert len(memory.provider.requests(a)) == asked
        check_requests(host, memory.provider.requests(a), a)
