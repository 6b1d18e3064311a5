"""Secrets of twelve kinds through the real host: none leaves what was said there (§8, §14).

Not in another session's requests, not in what the compactor sends, not in the store's bytes but the
payloads, not in the log.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from optchat.testing.endpoint import Endpoint
from optchat.testing.provider import ToolCall, calls, text
from tests.e2e.support import answers, running_memory, shared_lines
from tests.harness.planted import planted, probes
from tests.harness.remains import copied, rows, without_payloads

SETTINGS = """
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
hold_seconds = 0
batch_lines = 1
"""
SECRETS = planted(2026, 12)
ABOUT = ("aws_access_key_id", "clone failed token", "runner registered")


def test_no_secret_leaves_the_record_that_holds_it(tmp_path: Path) -> None:
    with (
        Endpoint() as endpoint,
        running_memory(tmp_path, config=SETTINGS.format(url=endpoint.url)) as memory,
    ):
        a, b = (memory.host.create_session(title=name) for name in "AB")
        for number, secret in enumerate(SECRETS):
            command = f"cat <<'EOF'\n{secret.text}\nEOF"
            shown = calls(
                ToolCall(name="bash", arguments={"command": command, "description": "show it"})
            )
            match number % 3:
                case 0:
                    memory.turn(a, f"{number}: {secret.text} " + "and so on " * 60, text("seen"))
                case 1:
                    memory.turn(a, f"{number}: go on", text(f"it is {secret.text}"))
                case _:
                    memory.turn(a, f"{number}: show it", shown, text("shown"))
        memory.wait_published(a, len(SECRETS))
        asked = [ToolCall(name="memory_search", arguments={"query": words}) for words in ABOUT]
        looks = calls(*asked, ToolCall(name="memory_sessions"))
        memory.turn(b, "what was done?", looks, text("that"))
        requests = memory.provider.requests(b)
        assert len(shared_lines(requests[0])) >= 4
        told = [requests[0].text, *answers(requests[1])]
        assert all("[masked: " in answer for answer in told[1:4])
        found = {f"request {n}": t.encode() for n, t in enumerate(told)}
        assert endpoint.received
        found |= {
            f"asked {n}": json.dumps(r.body).encode() for n, r in enumerate(endpoint.received)
        }
        scratch = copied(memory.home, tmp_path / "copy")
        without_payloads(scratch / "memory.db")
        for path in sorted(p for p in scratch.rglob("*") if p.is_file()):
            found[path.name] = path.read_bytes()
        found |= dict(rows(scratch / "memory.db"))
        shutil.rmtree(scratch)
    lowered = {name: data.lower() for name, data in found.items()}
    leaks = [
        (s.kind, name) for s in SECRETS for p in probes(s) for name, d in lowered.items() if p in d
    ]
    assert leaks == []
    assert any(b"[masked: " in data for name, data in found.items() if name.startswith("asked"))
