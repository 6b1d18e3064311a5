"""A cap of ten calls on the real host: the eleventh is not made, and everybody says why (§10, §14).

I12, and I2 for the requests that go on without summaries.
"""

from __future__ import annotations

from pathlib import Path

from optchat.testing.endpoint import Endpoint
from optchat.testing.provider import text
from tests.e2e.support import check_requests, eventually, running_memory
from tests.e2e.support_b import notices

SETTINGS = """
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
hold_seconds = 0
batch_lines = 1
[compactor.caps]
day_calls = 10
"""
LONG = "The retry in src/net/http.ts waits 250 ms; the log shows ECONNRESET from the proxy. " * 10
REASON = "10 of 10 today's calls"


def test_the_eleventh_call_is_not_made_and_the_person_is_told_once(tmp_path: Path) -> None:
    with (
        Endpoint() as endpoint,
        running_memory(tmp_path, config=SETTINGS.format(url=endpoint.url)) as memory,
    ):
        events = memory.host.events()
        a = memory.host.create_session(title="A")
        for turn in range(6):
            memory.provider.plan(a, text(f"{turn} {LONG}"))
            memory.host.prompt(a, f"step {turn}")
        eventually(lambda: REASON in memory.optchat("status") or None)
        for turn in range(2):
            memory.provider.plan(a, text("ok"))
            memory.host.prompt(a, f"and then {turn}")
        assert len(endpoint.received) == 10
        assert REASON in memory.optchat("spend")
        told = [e["properties"]["message"] for e in notices(events)]
        assert len([t for t in told if REASON in t]) == 1, told
        assert len(memory.provider.requests(a)) == 8
        check_requests(memory.host, memory.provider.requests(a), a)

        memory.optchat("resume")
        eventually(lambda: len(endpoint.received) > 10 or None)
